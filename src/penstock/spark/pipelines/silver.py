"""Silver: bodies as typed columns, each id once, bad rows to a queue of dead letters.

Each micro-batch is a folder of its own (`batch=…`), written anew if the batch comes again; Delta
tables, which know what they have, are appended to by the batch's number. So are the dead letters:
a repeated batch changes nothing.

A body may have fields that are called like a column of the message (`id`, `timestamp`…): those keep
their names, and the message's column becomes `message_id`, `message_timestamp`….
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.disk import files
from penstock.engine import kept_files
from penstock.spark import shipped
from penstock.spark.options import plain
from penstock.spark.pipelines import bodies, lake
from penstock.spark.pipelines.request import Request, Run, query_id
from penstock.spark.session import listen_for_callbacks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KEPT = ("queue", "offset", "timestamp", "id", "tag")
ADVICE = "restore it, or delete it: then the columns are those of what is read next"


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Decodes what is new to `to`."""
    request.refuse_queues()
    target = request.table_target().rstrip("/")
    dead = request.dead_letters or f"{target}.dead"
    schema = request.schema
    if schema == "infer":
        schema = _known(request) or bodies.infer(request.batch(spark), request.decode)
    if request.dry_run:
        return request.plan("silver") | {"schema": schema, "dead_letters": dead}
    frame = bodies.typed(bodies.with_text(request.stream(spark), request.decode), schema)
    # A message without an id is its own: it is never anyone's repetition.
    same = F.coalesce("id", F.concat_ws("@", "queue", F.col("offset").cast("string")))
    frame = frame.withColumn("_same", same).withWatermark("timestamp", request.watermark)
    frame = frame.dropDuplicatesWithinWatermark(["_same"])
    if request.schema == "infer":
        _remember(request, schema)
    listen_for_callbacks(spark)
    counts = {"good": 0, "bad": 0}
    writer = _Writer(request, target, dead, counts)
    if lake.is_ours(spark, request.format):
        writer.table = lake.open_table(request, target)
    query = (
        frame.writeStream.foreachBatch(writer)
        .option("checkpointLocation", request.checkpoint_folder("silver"))
        .queryName(record.id)
    )
    batches = record.drain(query.trigger(**request.trigger()).start())
    return {"to": target, "batches": batches, "schema": schema, "dead_letters": dead, **counts}


def kept_columns(frame: DataFrame) -> list[Column]:
    """The message's own columns, out of the way of what the bodies have."""
    taken = {name.lower() for name in frame.select("data.*").columns}
    return [F.col(n).alias(f"message_{n}") if n in taken else F.col(n) for n in KEPT]


def _note(request: Request) -> Path | None:
    """Where the columns that were found are kept: later runs must write the same ones."""
    folder = plain(request.checkpoint_folder("silver"))
    return None if shipped.is_url(folder) else Path(f"{folder}.schema.json")


def _known(request: Request) -> str:
    note = _note(request)
    found = None if note is None else kept_files.read(note, "columns", ADVICE)
    return "" if found is None else str(found["schema"])


def _remember(request: Request, schema: str) -> None:
    note = _note(request)
    if note is not None:
        files.make_folder(note.parent)
        files.write_json(note, {"schema": schema})


class _Writer:
    """Writes one micro-batch to both places."""

    def __init__(self, request: Request, target: str, dead: str, counts: dict[str, int]) -> None:
        self.request, self.target, self.dead, self.counts = request, target, dead, counts
        self.table: lake.Table | None = None
        """Where a Python package writes the rows."""

    def __call__(self, frame: DataFrame, number: int) -> None:
        query = query_id(frame)
        frame = frame.persist()
        try:
            good = frame.where(f"{bodies.BAD} is null")
            self._store(good.select(*kept_columns(frame), "data.*"), number, f"silver-{query}")
            bad = frame.where(f"{bodies.BAD} is not null")
            self._bury(bad, number, f"silver-{query}")
            self.counts["good"] += good.count()
            self.counts["bad"] += bad.count()
        finally:
            frame.unpersist()

    def _store(self, rows: DataFrame, number: int, app: str) -> None:
        if self.table is not None:
            lake.append(self.table, rows, app, number)
            return
        writer = rows.write.format(self.request.format)
        if self.request.format == "delta":
            once = {"txnAppId": app, "txnVersion": str(number)}
            writer.mode("append").options(**(once | self.request.options)).save(self.target)
            return
        folder = f"{self.target}/batch={number:012d}"
        writer.mode("overwrite").options(**self.request.options).save(folder)

    def _bury(self, bad: DataFrame, number: int, app: str) -> None:
        extra = F.create_map(
            F.lit("penstock.source"), F.col("queue"),
            F.lit("penstock.offset"), F.col("offset").cast("string"),
            F.lit("penstock.reason"), F.col(bodies.BAD),
        )  # fmt: skip
        headers = F.map_concat(F.coalesce("headers", F.expr("map()")), extra)
        rows = bad.select("body", "tag", "id", "key", headers.alias("headers"))
        rows.write.format("penstock").mode("append").option("txnAppId", app).option(
            "txnVersion", str(number)
        ).save(self.dead)
