"""Silver: bodies as typed columns, each id once, bad rows to a queue of dead letters.

Each micro-batch is a folder of its own (`batch=…`), written anew if the batch comes again, and
the dead letters of a batch are committed once by its number: a repeated batch changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.errors import OptionError
from penstock.spark.pipelines import bodies
from penstock.spark.pipelines.request import Request, Run
from penstock.spark.session import listen_for_callbacks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = ("queue", "offset", "timestamp", "id", "tag")


def run(spark: SparkSession, request: Request, record: Run) -> dict[str, Any]:
    """Decodes what is new to `to`."""
    target = request.target().rstrip("/")
    dead = request.dead_letters or f"{target}.dead"
    if not request.schema:
        raise OptionError("schema", "", "the columns of the bodies as DDL, or infer")
    schema = request.schema
    if schema == "infer":
        schema = bodies.infer(request.batch(spark), request.decode)
    if request.dry_run:
        return request.plan() | {"schema": schema, "dead_letters": dead}
    frame = bodies.typed(bodies.with_text(request.stream(spark), request.decode), schema)
    # A message without an id is its own: it is never anyone's repetition.
    same = F.coalesce("id", F.concat_ws("@", "queue", F.col("offset").cast("string")))
    frame = frame.withColumn("_same", same).withWatermark("timestamp", request.watermark)
    frame = frame.dropDuplicatesWithinWatermark(["_same"])
    listen_for_callbacks(spark)
    counts = {"good": 0, "bad": 0}
    writer = _Writer(request, target, dead, record.id, counts)
    query = (
        frame.writeStream.foreachBatch(writer)
        .option("checkpointLocation", request.checkpoint_folder("silver"))
        .queryName(record.id)
    )
    trigger = {"processingTime": "1 second"} if request.follow else {"availableNow": True}
    batches = record.drain(query.trigger(**trigger).start())
    return {"to": target, "batches": batches, "schema": schema, "dead_letters": dead, **counts}


class _Writer:
    """Writes one micro-batch to both places."""

    def __init__(
        self, request: Request, target: str, dead: str, app: str, counts: dict[str, int]
    ) -> None:
        self.request, self.target, self.dead, self.counts = request, target, dead, counts
        self.app = f"silver-{request.checkpoint_folder('silver')}"

    def __call__(self, frame: DataFrame, number: int) -> None:
        frame = frame.persist()
        try:
            good = frame.where(f"{bodies.BAD} is null").select(*KEPT, "data.*")
            folder = f"{self.target}/batch={number:012d}"
            good.write.format(self.request.format).mode("overwrite").options(
                **self.request.options
            ).save(folder)
            bad = frame.where(f"{bodies.BAD} is not null")
            self._bury(bad, number)
            self.counts["good"] += good.count()
            self.counts["bad"] += bad.count()
        finally:
            frame.unpersist()

    def _bury(self, bad: DataFrame, number: int) -> None:
        extra = F.create_map(
            F.lit("penstock.source"), F.col("queue"),
            F.lit("penstock.offset"), F.col("offset").cast("string"),
            F.lit("penstock.reason"), F.col(bodies.BAD),
        )  # fmt: skip
        headers = F.map_concat(F.coalesce("headers", F.expr("map()")), extra)
        rows = bad.select("body", "tag", "id", "key", headers.alias("headers"))
        rows.write.format("penstock").mode("append").option("txnAppId", self.app).option(
            "txnVersion", str(number)
        ).save(self.dead)
