"""Convert: to a queue of another format, then both are read again and compared.

Every message in its place, by a hash of everything that the new format keeps: bodies, tags, ids,
keys, headers, and times as exactly as it has them. What it has no place for is refused by the sink
before anything is written; say which columns to leave out with `options={"drop": "tag,id"}`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.engine.intents import Ledger
from penstock.engine.queue import Queue
from penstock.errors import OptionError, PenstockError, UnsupportedError
from penstock.formats import registry
from penstock.options import key_from
from penstock.spark.options import plain
from penstock.spark.pipelines.request import Request, Run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CARRIED = ("body", "tag", "id", "key", "headers", "timestamp_ns")
STEPS_NS = {"ns": 1, "ms": 1_000_000}
"""How exactly formats keep times."""
PLACE_BITS = 33
"""The bits of `monotonically_increasing_id` that hold the row's place in its task."""


class UnequalError(PenstockError):
    """The copy does not hold what the source holds."""


def digest(frame: DataFrame, columns: list[str]) -> tuple[int, int]:
    """Rows, and a hash that does not depend on their order."""
    found = frame.agg(F.count(F.lit(1)), F.sum(_hash(*map(_part, columns)))).collect()[0]
    return int(found[0]), int(found[1] or 0)


def ordered(frame: DataFrame, hashes: list[Column]) -> list[tuple[int, int, int]]:
    """Rows and two sums of each hash: plain, and times the row's place in the whole.

    One pass: a task knows a row's place in itself, and how many rows came before the task is known
    once all have counted theirs. So it does not matter where tasks were cut.
    """
    place = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << PLACE_BITS) - 1))
    names = [f"h{number}" for number in range(len(hashes))]
    rows = frame.select(
        F.spark_partition_id().alias("task"), place.cast("decimal(11,0)").alias("place"),
        *(one.alias(name) for name, one in zip(names, hashes, strict=True)),
    )  # fmt: skip
    sums = [F.sum(x) for name in names for x in (F.col(name), F.col(name) * F.col("place"))]
    found = [[0, 0] for _ in hashes]
    count = 0
    tasks = rows.groupBy("task").agg(F.count(F.lit(1)), *sums).orderBy("task").collect()
    for _, mine, *values in tasks:
        for number, total in enumerate(found):
            plain, weighted = int(values[2 * number]), int(values[2 * number + 1])
            total[0] += plain
            total[1] += weighted + count * plain
        count += mine
    return [(count, plain, weighted) for plain, weighted in found]


def _hash(*parts: Column) -> Column:
    return F.xxhash64(*parts).cast("decimal(20,0)")


def _part(name: str) -> Column:
    return F.to_json(name) if name == "headers" else F.col(name)


def compared(frame: DataFrame, columns: list[str]) -> list[tuple[int, int, int]]:
    """What `ordered` finds, once for every step that a format may keep times in."""
    parts = [_part(name) for name in columns if name != "timestamp_ns"]
    if "timestamp_ns" not in columns:
        return ordered(frame, [_hash(*parts)])
    time = F.col("timestamp_ns")
    steps = [time - F.pmod(time, F.lit(step)) for step in STEPS_NS.values()]
    return ordered(frame, [_hash(*parts, step) for step in steps])


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Copies to the queue `to`, which must be new."""
    target, options = plain(request.target()), dict(request.options)
    dropped = [name.strip() for name in options.pop("drop", "").split(",") if name.strip()]
    for name in dropped:
        if name not in CARRIED[1:]:
            raise OptionError("drop", name, f"some of {', '.join(CARRIED[1:])}")
    columns = [name for name in CARRIED if name not in dropped]
    if len(request.sources) != 1 or "*" in request.sources[0]:
        raise OptionError("source", list(request.sources), "one queue")
    if request.dry_run:
        return request.plan() | {"columns": columns}
    _refuse_what_is_there(target, options)
    _refuse_lost_times(target, options, columns)
    request = request.pinned()
    frame = request.batch(spark, columns=",".join(columns)).select(*columns)
    frame.write.format("penstock").mode("append").options(**options).save(target)
    reading = {k: v for k, v in options.items() if k.lower() in ("keyfile", "keyenv")}
    copy = spark.read.format("penstock").options(**reading, columns=",".join(columns)).load(target)
    before, after = compared(frame, columns), compared(copy, columns)
    equal = [step for step, one, two in zip(STEPS_NS, before, after, strict=False) if one == two]
    if not equal:
        raise UnequalError(f"{target} holds {after[0][0]} rows that hash to {after[0][1:]}; the "
                           f"source has {before[0][0]} that hash to {before[0][1:]}")  # fmt: skip
    rows = before[0][0]
    record.count(rows)
    facts = {"to": target, "rows": rows, "compared": columns, "ok": True}
    return facts | ({"times": equal[0]} if "timestamp_ns" in columns else {})


def _refuse_what_is_there(target: str, options: dict[str, str]) -> None:
    """The copy is compared with its source, so it is a new queue, or this very run's own."""
    if not Path(target).exists() or registry.is_empty(Path(target)):
        return
    lower = {name.lower(): text for name, text in options.items()}
    key = key_from(file=lower.get("keyfile"), env=lower.get("keyenv"))
    with Queue(target, create=False, key=key) as queue:
        end = queue.offsets()
        app, version = lower.get("txnappid", ""), lower.get("txnversion", "")
        is_repeated = app and Ledger(queue.store, app).last >= int(version or 0)
        if end.head != end.tail and not is_repeated:
            raise UnsupportedError(
                f"{target}: a queue with messages is here; convert to a new one, or "
                f"add to this one with the pipeline replay"
            )


def _refuse_lost_times(target: str, options: dict[str, str], columns: list[str]) -> None:
    """The sink itself lets them go where a format has no place for them: a message is put now."""
    named = next((v for k, v in options.items() if k.lower() == "queueformat"), None)
    if Path(target).exists() and not registry.is_empty(Path(target)):
        named = registry.sniff(Path(target))[0].name
    kind = registry.format_class(named or "penstock")
    if "timestamp_ns" in columns and not kind.capabilities.timestamps:
        raise UnsupportedError(
            f"format {kind.name} keeps no times: leave them out with the option "
            f"drop=timestamp_ns, or choose format penstock"
        )
