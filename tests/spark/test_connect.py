"""Spark Connect: the client has no JVM and no queue; the server finds the format by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import LEAN
from tests.spark.helpers import bodies, fill

JOB = f"""
import os, sys
from penstock.spark import java
java.ensure()
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession

(folder,) = sys.argv[1:]
spark = (
    SparkSession.builder.remote("local[2]").config("spark.driver.extraJavaOptions", "{LEAN}")
    .config("spark.sql.shuffle.partitions", "2").config("spark.ui.enabled", "false").getOrCreate()
)
table = spark.read.format("penstock").schema("tag string").load(f"{{folder}}/q")
assert {{row.tag: row["count"] for row in table.groupBy("tag").count().collect()}} == {{
    "t.0": 20, "t.1": 20, "t.2": 20
}}
frame = spark.readStream.format("penstock").option("maxOffsetsPerTrigger", "25")
query = (
    frame.load(f"{{folder}}/q").select("body", "tag", "id").writeStream.format("penstock")
    .option("path", f"{{folder}}/out").option("checkpointLocation", f"{{folder}}/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
def test_connect_reads_batches_and_streams(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    path = fill(tmp_path / "q", 60)
    # What Spark's own tests say for a port that nobody else has.
    environment = os.environ | {"SPARK_TESTING": "1"}
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert bodies(tmp_path / "out") == bodies(path)
