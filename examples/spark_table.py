"""A Filebeat-style spool as a table: what is in it, per hour and per message.

    python examples/spark_table.py [SPOOL]

Without a spool, a small one is written first, in the very format that Filebeat writes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import penstock.spark
from penstock import Queue


def write_spool(path: Path) -> None:
    with Queue(path, format="beats") as queue:
        for number in range(300):
            event = {"message": f"line {number}", "level": "warn" if number % 10 == 0 else "info"}
            queue.put(json.dumps(event).encode())


def main(spool: Path) -> None:
    spark = penstock.spark.session("spool")
    spark.sparkContext.setLogLevel("ERROR")
    spark.read.format("penstock").load(str(spool)).createOrReplaceTempView("spool")
    spark.sql("""
        SELECT get_json_object(cast(body AS string), '$.level') AS level, count(*) AS messages
        FROM spool GROUP BY level ORDER BY level
    """).show()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_spool(Path(folder) / "spool")
            main(Path(folder) / "spool")
