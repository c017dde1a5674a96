"""Every queue that an original program wrote, as Spark sees it, beside what `penstock cat` prints.

Batch and stream, from where it lies and from a copy behind a URL, in splits of a few hundred
bytes. Reader classes are called as Spark calls them; the JVM comes in at the end, once for all.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import PenstockError, Queue, UnsupportedError
from penstock.cli import main
from penstock.spark.ship import ship
from penstock.spark.shipped import file_system
from tests import golden_data
from tests.golden_data import GoldenCase
from tests.spark.helpers import MESSAGE, batch, drain, stream

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Found = dict[str, Any]

NAMES = (*MESSAGE, "payload")
CASES = [case for name in golden_data.FORMATS for case in golden_data.golden_cases(name)]
FREES = ("beats", "vqs")
"""Formats whose original deletes what it has read."""
LARGE = 1 << 20
"""Queues of this size are not worth printing as JSON, or sending through a JVM."""
HUGE = 1 << 28
"""Files of this size, all holes, are not copied to memory; their format has smaller ones."""


class Golden:
    """One golden queue, copied, with the options that it needs."""

    def __init__(self, case: GoldenCase, folder: Path) -> None:
        self.case, self.path = case, case.copy(folder / "queues")
        self.key: Any = {}
        if case.key is not None:
            (folder / "key").write_bytes(case.key)
            self.key = {"keyFile": str(folder / "key")}
        self.options = {
            "columns": ",".join(NAMES), "targetPartitionBytes": "512", "failOnDataLoss": "false",
        } | self.key  # fmt: skip

    def scan(self) -> list[Found] | None:
        """What the engine finds; none if the queue can't be read at all."""
        try:
            with Queue(self.path, read_only=True, key=self.case.key) as queue:
                found = queue.scan(tolerant=True)
                return [plain({name: getattr(m, name) for name in NAMES}) for m in found]
        except PenstockError:
            return None

    def cat(self, capsysbinary: pytest.CaptureFixture[bytes]) -> list[Found] | None:
        """What `penstock cat` prints; none if the queue can't be read at all."""
        scanned = self.scan()
        if scanned is None or size_of(scanned) > LARGE:
            return scanned
        key = ["--key-file", self.key["keyFile"]] if self.key else []
        capsysbinary.readouterr()
        main(["cat", str(self.path), "--json", "--payload", *key])
        return [plain(json.loads(line)) for line in capsysbinary.readouterr().out.splitlines()]

    def file_bytes(self) -> int:
        files = self.path.rglob("*") if self.path.is_dir() else [self.path]
        return max(file.stat().st_size for file in files)

    def ship(self, url: str) -> str:
        ship(self.path, url, whole=True, **self.key)
        return url


def size_of(rows: list[Found]) -> int:
    return sum(len(row["body"]) for row in rows)


def plain(row: Found) -> Found:
    """A row, whoever made it: bytes as bytes, no headers as an empty map."""
    for name in ("body", "payload"):
        row[name] = base64.b64decode(row[name]) if isinstance(row[name], str) else bytes(row[name])
    row["headers"] = row["headers"] or {}
    return {name: row.get(name) for name in NAMES}


def read(path: object, **options: str) -> list[Found]:
    return [plain(row) for row in batch(path, **options)]


def follow(path: object, **options: str) -> list[Found]:
    reader = stream(path, maxOffsetsPerTrigger=7, **options)
    try:
        return [plain(row) for rows in drain(reader)[0] for row in rows]
    finally:
        reader.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.format}/{case.id}")
def test_batch_and_stream_here_and_behind_a_url_are_what_cat_prints(
    tmp_path: Path, case: GoldenCase, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    golden = Golden(case, tmp_path)
    wanted, url = golden.cat(capsysbinary), f"memory://golden/{case.format}/{case.id}"
    if wanted is None:
        for refused in (read, follow):
            with pytest.raises(PenstockError):
                refused(golden.path, **golden.options)
        with pytest.raises(PenstockError):
            golden.ship(url)
        return
    assert read(golden.path, **golden.options) == wanted
    if golden.file_bytes() < HUGE:
        golden.ship(url)
        assert read(url, **golden.options) == wanted
        assert follow(url, **golden.options) == wanted
        system, path = file_system(url)
        system.rm(path, recursive=True)
    if case.format not in FREES:
        assert follow(golden.path, **golden.options) == wanted
        return
    # The original deletes what it has read and waits for nobody: first the queue must be ours.
    with pytest.raises(UnsupportedError, match="another program owns"):
        follow(golden.path, group="g", **golden.options)
    try:
        Queue(golden.path, key=case.key).close()
    except PenstockError:
        return
    wanted = golden.cat(capsysbinary)  # Before: what the only group has read is deleted.
    assert follow(golden.path, group="g", **golden.options) == wanted


def by_queue(rows: Iterable[Row]) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {}
    for row in sorted(rows, key=lambda row: (row.queue, row.offset)):
        found.setdefault(row.queue, []).append(plain(row.asDict()))
    return found


@pytest.mark.spark
def test_spark_itself_reads_all_of_them_at_once(spark: SparkSession, tmp_path: Path) -> None:
    here: dict[str, list[Found]] = {}
    far: dict[str, list[Found]] = {}
    urls: list[str] = []
    for number, case in enumerate(case for case in CASES if case.key is None):
        folder = tmp_path / ("own" if case.format in FREES else "free") / f"{number:03d}"
        golden = Golden(case, folder)
        rows = golden.scan()
        if rows is None or size_of(rows) > LARGE:
            folder.rename(tmp_path / f"unread-{number}")
            continue
        is_small = golden.path.is_dir() or golden.path.stat().st_size < LARGE
        if rows:
            here[str(golden.path.relative_to(folder.parent))] = rows
        if rows and case.format in FREES and is_small:
            urls.append(golden.ship(f"local://{tmp_path}/far/{number:03d}"))
            far[f"{number:03d}"] = rows
    options = {"columns": ",".join(("queue", *NAMES)), "failOnDataLoss": "false",
               "targetPartitionBytes": "64k"}  # fmt: skip
    table = spark.read.format("penstock").options(**options)
    both = table.load(f"{tmp_path}/own/*/queues/*").union(table.load(f"{tmp_path}/free/*/queues/*"))
    assert by_queue(both.collect()) == here
    paths = json.dumps([f"{tmp_path}/free/*/queues/*", *urls])
    frame = spark.readStream.format("penstock").options(**options).option("path", paths).load()
    query = frame.writeStream.format("memory").queryName("golden").trigger(availableNow=True)
    query.start().awaitTermination()
    free = {name: rows for name, rows in here.items() if (tmp_path / "free" / name).exists()}
    assert by_queue(spark.table("golden").collect()) == free | far
