"""The Spark act of `penstock demo`: the queue that was just filled, as a table and as a stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.engine.queue import Queue
from penstock.spark.session import session


def act(path: Path, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Counts the queue as a table, then streams it to another queue, in two runs."""
    say("Spark starts")
    begun = time.monotonic()
    spark = session("demo")
    spark.sparkContext.setLogLevel("OFF")
    try:
        ready = time.monotonic()
        frame = spark.read.format("penstock").schema("tag string").load(str(path))
        tags = {row["tag"]: row["count"] for row in frame.groupBy("tag").count().collect()}
        counted = time.monotonic()
        say(f"as a table: {sum(tags.values()):,} rows in {counted - ready:.1f} s")
        stream = spark.readStream.format("penstock").option("maxBytesPerTrigger", "16m")
        copy = folder / "copy"
        for _ in range(2):
            query = (
                stream.load(str(path))
                .select("body", "tag")
                .writeStream.format("penstock")
                .option("path", str(copy))
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        streamed = time.monotonic()
    finally:
        spark.stop()
    with Queue(path, read_only=True) as queue, Queue(copy, read_only=True) as target:
        kept, copied = len(queue), len(target)
    say(f"as a stream into another queue, run twice: {copied:,} messages, each once")
    return {
        "ok": sum(tags.values()) == kept == copied,
        "start_s": round(ready - begun, 1),
        "rows": sum(tags.values()),
        "rows_per_second": sum(tags.values()) / (counted - ready),
        "streamed": copied,
        "streamed_per_second": copied / (streamed - counted),
    }
