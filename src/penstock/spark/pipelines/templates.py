"""A project for Spark's own `spark-pipelines` that reads a queue: bronze, rollup, dead letters.

penstock pipeline template DIR --source /data/orders
cd DIR && spark-pipelines run
"""

from __future__ import annotations

import string
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.errors import StorageError

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


@dp.table
def bronze() -> DataFrame:
    """Every message as it is."""
    return spark.readStream.format("penstock").option("group", "$name").load(QUEUE)


@dp.materialized_view
def per_minute() -> DataFrame:
    """Messages and bytes per tag and minute."""
    return (
        spark.read.table("bronze")
        .groupBy(F.date_trunc("minute", "timestamp").alias("minute"), "tag")
        .agg(F.count("*").alias("messages"), F.sum(F.length("body")).alias("bytes"))
    )
'''


def write(folder: Path, source: str, name: str = "orders") -> list[Path]:
    """Writes the project; never over a file that is there."""
    values = {"name": name, "folder": str(folder.absolute()), "source": source}
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
