"""How Spark finds the format "penstock" by itself.

Spark imports every top-level module named `pyspark_…` when it looks for data sources, unguarded:
whatever fails here breaks every lookup of that session. So this imports nothing but PySpark, and
what does the work is loaded when a penstock table is used.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """`spark.read.format("penstock")` and its three siblings.

    Name: `penstock`. Schema: `queue string, offset long, number long, timestamp timestamp,
    id string, key string, tag string, headers map<string,string>, body binary`.

    >>> spark.read.format("penstock").load("orders").show()              # doctest: +SKIP
    >>> spark.readStream.format("penstock").option("group", "bronze").load("orders")
    ...                                                                  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """What `format()` is given."""
        return "penstock"

    def schema(self) -> Any:
        """The default columns, those of `columns`, or those of `layout` and `table`."""
        from penstock.spark import source

        return source.schema(self.options)

    def reader(self, schema: Any) -> Any:
        """Reads a batch."""
        from penstock.spark import source

        return source.reader(self.options, schema)

    def streamReader(self, schema: Any) -> Any:
        """Reads a stream."""
        from penstock.spark import source

        return source.stream_reader(self.options, schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Writes a batch."""
        from penstock.spark import sink

        return sink.writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """Writes a stream."""
        from penstock.spark import sink

        return sink.stream_writer(self.options, schema, overwrite=overwrite)
