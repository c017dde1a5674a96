"""Queues as Spark tables, batch and streaming, and ready pipelines on them.

    import penstock.spark

    spark = penstock.spark.session("orders")
    spark.read.format("penstock").load("/data/orders").groupBy("tag").count().show()

    penstock.spark.sql(spark, "SELECT tag, count(*) FROM {q} GROUP BY tag", q="/data/orders").show()

The second reads no column but `tag`: `sql` and `table` say what a query needs, which Spark does not
tell a Python source by itself. The format registers itself; `register` is for sessions whose
search is switched off. `read_batches` and `write_batches` do without the format, which PySpark 3.5
can't have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.batches import read_batches as read_batches
from penstock.spark.batches import write_batches as write_batches
from penstock.spark.pruning import sql as sql
from penstock.spark.pruning import table as table
from penstock.spark.session import need_sources
from penstock.spark.session import session as session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["read_batches", "register", "session", "sql", "table", "write_batches"]


def register(spark: SparkSession) -> None:
    """Makes the format "penstock" known to a session that does not look for it by itself.

    Any number of times: a notebook's cell is run again, and PySpark 4.0 refuses a second time.
    """
    need_sources()
    from pyspark.errors import AnalysisException

    from pyspark_penstock import DefaultSource

    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
