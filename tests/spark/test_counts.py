"""Counting messages without reading them."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import Queue
from penstock.spark import counts, source, versions
from penstock.spark.tasks import Task
from tests.spark.helpers import batch, options_of

KINDS = ["penstock", "zbus", "beats", "vqs", "mfq"]


def filled(path: Path, kind: str = "penstock", count: int = 120) -> Path:
    size: dict[str, Any] = {"max_bytes": 262144} if kind == "vqs" else {"segment_bytes": 16384}
    with Queue(path, format=kind, **size) as queue:
        for number in range(count):
            queue.put(b"%03d" % number + b"x" * 900)
    return path


def damage(path: Path) -> None:
    first = sorted(path.rglob("*.seg"))[0]
    data = bytearray(first.read_bytes())
    at = data.index(b"005xxx")
    data[at : at + 6] = b"damage"
    first.write_bytes(data)


def spans(path: Path, **options: object) -> list[int | None]:
    given = options_of(path, table="counts", **options)
    tasks = source.reader(given, source.schema(given)).partitions()
    return [span.messages for task in tasks if isinstance(task, Task) for span in task.spans]


def total(path: Path, **options: object) -> int:
    return sum(row["rows"] for row in batch(path, table="counts", **options))


@pytest.mark.parametrize("kind", KINDS)
def test_a_count_is_the_number_of_rows_in_every_format(tmp_path: Path, kind: str) -> None:
    path = filled(tmp_path / "q", kind)
    offsets = [row["offset"] for row in batch(path, columns="offset")]
    assert total(path) == total(path, targetPartitionBytes="700") == len(offsets) == 120
    for at in (7, 40, 119):
        assert total(path, startingOffsets=offsets[at]) == 120 - at
        assert total(path, endingOffsets=offsets[at]) == at


@pytest.mark.parametrize("kind", ["penstock", "zbus"])
def test_what_segments_say_of_themselves_is_not_read(tmp_path: Path, kind: str) -> None:
    path = filled(tmp_path / "q", kind)
    found = spans(path)
    assert len(found) > 3
    assert None not in found
    with Queue(path) as queue:
        queue.put(b"one more")
        assert total(path) in (120, 121)  # As far as it is synced.
        queue.sync()
        assert total(path) == sum(one or 0 for one in spans(path)) == 121


def test_a_count_of_what_can_be_read_looks_at_it(tmp_path: Path) -> None:
    path = filled(tmp_path / "q")
    damage(path)
    assert spans(path, failOnDataLoss="false").count(None) == len(spans(path))
    assert total(path) == 120
    assert total(path, failOnDataLoss="false") == 119


def test_what_a_repair_set_aside_is_not_counted(tmp_path: Path) -> None:
    path = filled(tmp_path / "q")
    damage(path)
    with Queue(path) as queue:
        queue.repair()
    assert total(path) == 119


def test_queues_are_counted_apart_and_by_tag(tmp_path: Path) -> None:
    for name, count in (("a", 3), ("b", 5)):
        with Queue(tmp_path / name) as queue:
            for number in range(count):
                queue.put(b"x", tag=f"t{number % 2}")
    found = batch(str(tmp_path / "*"), table="counts")
    assert {row["queue"]: row["rows"] for row in found} == {"a": 3, "b": 5}
    assert total(tmp_path / "b", tags="t1") == 2


def test_many_messages_are_several_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "AT_MOST", 50)
    path = filled(tmp_path / "q")
    assert sorted(row["rows"] for row in batch(path, table="counts")) == [20, 50, 50]


def test_a_task_does_not_wait_for_pandas(tmp_path: Path) -> None:
    path = filled(tmp_path / "q", count=3)
    program = (
        "import sys; from tests.spark.helpers import batch; sys.modules.pop('pandas', None)\n"
        "sys.meta_path.insert(0, type('', (), {'find_spec': staticmethod("
        "lambda name, *more: exit(f'imports {name}') if name == 'pandas' else None)}))\n"
        "from penstock.spark import source\n"
        f"given = {{'path': {str(path)!r}}}\n"
        "reader = source.reader(given, source.schema(given))\n"
        "print(sum(b.num_rows for task in reader.partitions() for b in reader.read(task)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("3", 0), done.stderr


def test_only_a_worker_keeps_its_modules_from_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setitem(versions._frozen, "modules", 0)
    versions.lighten_worker()
    assert frozen == []
    spec = importlib.util.find_spec("pyspark.daemon")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    versions.lighten_worker()
    versions.lighten_worker()
    assert frozen == [1]
    monkeypatch.setitem(sys.modules, "penstock_came_later", ModuleType("penstock_came_later"))
    versions.lighten_worker()
    versions.lighten_worker()
    assert frozen == [1, 1]


def test_a_worker_of_an_older_pyspark_forgets_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as file:
        file.writestr("penstock_zipped.py", "")
        file.writestr("penstock_zipped_too.py", "")
    where = str(tmp_path / "zipped.zip")
    monkeypatch.syspath_prepend(where)
    __import__("penstock_zipped")
    monkeypatch.setattr(versions, "VERSION", (4, 3))
    versions.forget_zips()
    assert where in sys.path_importer_cache
    monkeypatch.setattr(versions, "VERSION", (4, 0))
    versions.forget_zips()
    assert where not in sys.path_importer_cache
    __import__("penstock_zipped_too")
