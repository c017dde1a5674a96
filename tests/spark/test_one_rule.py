"""`cat`, `verify` and Spark agree on what is wrong with a queue, and none of them is silent."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import PenstockError, Queue
from penstock.cli import main
from penstock.formats.penstock import structs
from penstock.formats.penstock.segments import Header
from penstock.formats.zbus.format import ZbusFormat
from penstock.records import replace
from tests.spark.helpers import batch

LAYOUTS = {
    "penstock": ["1"],
    "zbus": ["doc000", "doc001", "flag", "corr", "crc"],
    "beats": ["0", "1", "2-released", "2-released-lz4"],
    "vqs": ["doc", "stage4"],
    "mfq": ["1"],
}
CASES = [(kind, layout) for kind, layouts in LAYOUTS.items() for layout in layouts]
SUFFIX = {"penstock": ".seg", "zbus": ".zbus", "beats": ".seg", "vqs": ".dat", "mfq": ""}


def filled(path: Path, kind: str, layout: str) -> Path:
    size: dict[str, Any] = {"max_bytes": 131072} if kind == "vqs" else {"segment_bytes": 16384}
    with Queue(path, format=kind, layout=layout, **size) as queue:
        for number in range(120):
            queue.put(b"%03d" % number + b"x" * (900 if number % 2 else 9))
    return path


def segments(path: Path, kind: str) -> list[Path]:
    if path.is_file():
        return [path]
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    inside = [file for file in files if ".penstock" not in file.parts]
    return [file for file in inside if file.suffix == SUFFIX[kind] and "offset" not in file.name]


def used(file: Path) -> int:
    return len(file.read_bytes().rstrip(b"\0"))


def cut_last(files: list[Path]) -> None:
    with files[-1].open("r+b") as file:
        file.truncate(used(files[-1]) - 3)


def cut_in_the_middle(files: list[Path]) -> None:
    middle = files[len(files) // 2]
    with middle.open("r+b") as file:
        file.truncate(used(middle) // 2)


def stray(files: list[Path]) -> None:
    at = used(files[-1])
    with files[-1].open("r+b") as file:
        file.seek(at + 8 - at % 8)
        file.write(b"stray bytes!" * 3)


def header(files: list[Path]) -> None:
    with files[len(files) // 2].open("r+b") as file:
        file.write(b"\xaa\x55")


def missing(files: list[Path]) -> None:
    files[len(files) // 2].unlink()


def missing_first(files: list[Path]) -> None:
    files[0].unlink()


def missing_last(files: list[Path]) -> None:
    files[-1].unlink()


def producer_behind(path: Path) -> None:
    (path / "offset" / "producer.offset").write_bytes(bytes(8))


def consumer_inside(path: Path) -> None:
    (path / "offset" / "consumer.offset").write_bytes((1000).to_bytes(8, "little"))


def consumer_in_a_lost_file(path: Path) -> None:
    lost = sorted((path / "commitlog").iterdir())[1]
    (path / "offset" / "consumer.offset").write_bytes((int(lost.name) + 7).to_bytes(8, "little"))
    lost.unlink()


def block_ends_early(path: Path) -> None:
    change_end(path, -8)


def block_ends_beyond_memory(path: Path) -> None:
    change_end(path, 0x7000_0000)


def change_end(path: Path, by: int) -> None:
    """Of the second block, as the index has it."""
    with Queue(path, read_only=True) as queue:
        store = queue.store.format
        assert isinstance(store, ZbusFormat)
        block = store.index().blocks[1]
    word, file = block.end.to_bytes(4, "big"), path / f"{path.name}.idx"
    at = file.read_bytes().index(word, block.slot_at + 16)  # Behind its time and its base.
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write((block.end + by).to_bytes(4, "big"))


def link_to_another(path: Path) -> None:
    """A segment that continues another history, as after a part of a copy was put back."""
    file = sorted((path / "log").iterdir())[1]
    page = file.read_bytes()[: structs.HEADER_BYTES]
    header = replace(Header.unpack(page, file), previous=1)
    with file.open("r+b") as opened:
        opened.write(header.pack()[: structs.HEADER.size])


CONTRADICTIONS = [
    ("mfq", "1", producer_behind), ("mfq", "1", consumer_inside),
    ("mfq", "1", consumer_in_a_lost_file), ("penstock", "1", link_to_another),
    *(("zbus", layout, change) for layout in LAYOUTS["zbus"]
      for change in (block_ends_early, block_ends_beyond_memory)),
]  # fmt: skip
"""Words of a format's own files and headers that do not fit together."""


DAMAGE = [cut_last, cut_in_the_middle, stray, header, missing, missing_first, missing_last]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_what_verify_finds_cat_tells_and_spark_does_not_pass_over(
    tmp_path: Path, kind: str, layout: str, damage: Callable[[list[Path]], None],
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    path = filled(tmp_path / "q", kind, layout)
    damage(segments(path, kind))
    agree(path, capfd, caplog)


@pytest.mark.parametrize(
    ("kind", "layout", "contradict"), CONTRADICTIONS,
    ids=[f"{kind}-{layout}-{change.__name__}" for kind, layout, change in CONTRADICTIONS],
)  # fmt: skip
def test_words_that_do_not_fit_together_are_told_by_all(
    tmp_path: Path, kind: str, layout: str, contradict: Callable[[Path], None],
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    path = filled(tmp_path / "q", kind, layout)
    contradict(path)
    assert agree(path, capfd, caplog)["corrupt"]


def agree(
    path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> dict[str, Any]:
    """`verify`, `cat` and Spark say the same; what `verify` says."""
    code = main(["verify", str(path), "--json"])
    verdict: dict[str, Any] = json.loads(capfd.readouterr().out)
    # What can't be opened is an error of its own for `cat`.
    assert main(["cat", str(path), "--json"]) in ({code} if code < 2 else {1, 2})
    offsets = [json.loads(line)["offset"] for line in capfd.readouterr().out.splitlines()]
    options = {"columns": "offset,body", "targetPartitionBytes": "700"}
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        if verdict["corrupt"] or code == 2:
            with pytest.raises((PenstockError, OSError)):
                batch(path, **options)
        else:
            assert sorted(row["offset"] for row in batch(path, **options)) == offsets
            assert bool(caplog.records) == bool(code)
        if code < 2:
            found = batch(path, failOnDataLoss="false", **options)
            assert sorted(row["offset"] for row in found) == offsets
            assert bool(caplog.records) == bool(code)
    return verdict


@pytest.mark.parametrize("damage", [stray, header], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("layout", LAYOUTS["beats"])
def test_what_a_repair_set_aside_fails_no_query(
    tmp_path: Path, layout: str, damage: Callable[[list[Path]], None],
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = filled(tmp_path / "q", "beats", layout)
    damage(segments(path, "beats"))
    assert main(["repair", str(path)]) == 0
    assert main(["verify", str(path)]) == 0
    capfd.readouterr()
    assert main(["cat", str(path), "--json"]) == 0
    offsets = [json.loads(line)["offset"] for line in capfd.readouterr().out.splitlines()]
    assert sorted(row["offset"] for row in batch(path, columns="offset,body")) == offsets


@pytest.mark.parametrize("damage", [header, missing], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("layout", LAYOUTS["beats"])
def test_a_query_behind_a_segment_that_is_lost_does_not_fail(
    tmp_path: Path, layout: str, damage: Callable[[list[Path]], None]
) -> None:
    path = filled(tmp_path / "q", "beats", layout)
    last = [row["offset"] for row in batch(path, columns="offset,body")][-2:]
    files = segments(path, "beats")
    assert len(files) > 2
    damage(files)
    found = batch(path, columns="offset,body", startingOffsets=last[0])
    assert sorted(row["offset"] for row in found) == last
