"""A project for Spark's own `spark-pipelines` that reads a queue.

Bronze, typed columns, a rollup per minute, and dead letters back into a queue.

penstock pipeline template DIR --source /data/orders
cd DIR && spark-pipelines run
"""

from __future__ import annotations

import string
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.errors import StorageError
from penstock.spark import shipped

COLUMNS = "message string, level string"
SPEC = """# Run with: spark-pipelines run
name: $name
storage: file://$folder/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
"""

CODE = '''"""Tables made from a penstock queue, for `spark-pipelines run`."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
QUEUE = "$source"
COLUMNS = "$schema"  # of the bodies, which are JSON
DEAD_LETTERS = "$folder/dead-letters"


@dp.table
def bronze() -> DataFrame:
    """Every message as it is."""
    return spark.readStream.format("penstock").option("group", "$name").load(QUEUE)


@dp.temporary_view
def parsed() -> DataFrame:
    """With `data`: the body as columns, null where it is none."""
    text = F.try_validate_utf8(F.col("body").cast("string"))
    data = F.from_json(text, COLUMNS, {"mode": "PERMISSIVE"})
    is_json = F.get_json_object(text, "$$").isNotNull()
    return spark.readStream.table("bronze").withColumn("data", F.when(is_json, data))


@dp.table
def silver() -> DataFrame:
    """Typed columns."""
    good = spark.readStream.table("parsed").where("data is not null")
    return good.select("queue", "offset", "timestamp", "id", "tag", "data")


@dp.materialized_view
def per_minute() -> DataFrame:
    """Messages and bytes per tag and minute."""
    return (
        spark.read.table("bronze")
        .groupBy(F.date_trunc("minute", "timestamp").alias("minute"), "tag")
        .agg(F.count("*").alias("messages"), F.sum(F.length("body")).alias("bytes"))
    )


# A full refresh counts its batches anew: `at-least-once` puts its dead letters again then.
dp.create_sink(
    "dead_letters", "penstock", {"path": DEAD_LETTERS, "delivery": "at-least-once"}
)


@dp.append_flow(target="dead_letters")
def unreadable() -> DataFrame:
    """Bodies that are not JSON, back into a queue."""
    bad = spark.readStream.table("parsed").where("data is null")
    return bad.select("body", "tag", "id", "key")
'''


def write(folder: Path, source: str, name: str = "orders", schema: str = COLUMNS) -> list[Path]:
    """Writes the project; never over a file that is there."""
    source = source if shipped.is_url(source) else str(Path(source).absolute())
    values = {"name": name, "folder": str(folder.absolute()), "source": source, "schema": schema}
    wanted = {"spark-pipeline.yml": SPEC, "transformations/tables.py": CODE}
    written = []
    for file, text in wanted.items():
        path = folder / file
        if path.exists():
            raise StorageError(path, "is there already; nothing was written over it")
        files.make_folder(path.parent)
        _core.replace_file(path, string.Template(text).substitute(values).encode())
        written.append(path)
    return written
