"""Compact: full segments to Parquet, compared with what was read, then trimmed if asked for.

    <to>/<queue>/from=<first offset>/…      one folder per run and queue, written anew if repeated
    <to>/_penstock/<queue>.json             which queue it was, and how far it is compacted

Only sealed segments are taken: the one that is written to stays for the next run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.disk import files
from penstock.engine import kept_files
from penstock.engine.queue import Queue
from penstock.errors import OptionError
from penstock.spark import queues
from penstock.spark.pipelines.convert import UnequalError, digest
from penstock.spark.pipelines.request import Request, Run
from penstock.spark.queues import LocalQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "queue", "offset", "number", "timestamp", "timestamp_ns", "id", "key", "tag", "headers", "body"
)  # fmt: skip
ADVICE = "restore it, or delete it: then all full segments that the queue has are moved once more"


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Compacts every queue to `to`."""
    request.refuse_queues()
    target, options = str(request.local_target(replaces=True)), request.parsed()
    done = []
    for name, where in queues.find_some(options).items():
        queue = queues.open_queue(name, where, options)
        if not isinstance(queue, LocalQueue):
            raise OptionError("source", where, "a queue on this machine: a shipped one stays")
        state = Path(target) / "_penstock" / f"{name.replace('/', '__')}.json"
        known = kept_files.read(state, "place that was reached", ADVICE) or {}
        first = queue.head
        if known.get("identity") == queue.identity:
            first = max(first, int(known["next"]))
        sealed = [i.end for i in queue.store.segments(fresh=True) if i.end is not None]
        last = max([end for end in sealed if end <= queue.end], default=first)
        one: dict[str, Any] = {"queue": name, "first": first, "last": last, "rows": 0, "trimmed": 0}
        done.append(one)
        if last <= first or request.dry_run:
            continue
        one["rows"] = _move(spark, request, name, where, first, last, target)
        record.count(one["rows"])
        record.bytes += last - first
        files.make_folder(state.parent)
        files.write_json(state, {"identity": queue.identity, "next": last})
        if request.trim:
            with Queue(where, create=False, key=options.queue_options().key) as live:
                one["trimmed"] = live.trim(last)
    return {"to": target, "queues": done}


def _move(
    spark: SparkSession, request: Request, name: str, where: str, first: int, last: int, target: str
) -> int:
    reader = spark.read.format("penstock").options(
        **request.source_options, columns=",".join(COLUMNS),
        startingOffsets=str(first), endingOffsets=str(last),
    )  # fmt: skip
    frame = reader.load(where)
    folder = f"{target}/{name}/from={first:020d}"
    frame.write.format(request.format).mode("overwrite").options(**request.options).save(folder)
    columns = [column for column in COLUMNS if column != "timestamp"]
    before = digest(frame, columns)
    after = digest(spark.read.format(request.format).load(folder), columns)
    if before != after:
        raise UnequalError(f"{folder} holds {after[0]} rows, {where} has {before[0]}, and they "
                           f"are not the same; nothing was trimmed")  # fmt: skip
    _sync(Path(folder))
    return before[0]


def _sync(folder: Path) -> None:
    """Spark leaves its files in the page cache: nothing is trimmed before they are on the disk."""
    for path in sorted(folder.rglob("*")):
        (_core.sync_folder if path.is_dir() else _core.sync_file)(path)
    for path in (folder, folder.parent, folder.parent.parent):
        _core.sync_folder(path)
