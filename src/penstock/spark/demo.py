"""The Spark acts of `penstock demo`: from queues of several formats to tables, alerts, a report.

    queues/orders    penstock   what the first act left: a million messages
    queues/sensors   zbus       readings as JSON, one in fifty too hot
    queues/spool     beats      events as Filebeat leaves them

Streamed to Parquet, rolled up, alerts put back into a queue while a task dies by kill -9, audited,
converted; every number is checked against what was put.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock import _core
from penstock.disk import files
from penstock.engine.queue import Queue
from penstock.spark import pipelines
from penstock.spark.pipelines import report
from penstock.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READINGS = 20_000
HOT_EVERY = 50
MINUTE_NS = 60 * 10**9
FORMATS = {"sensors": "zbus", "spool": "beats"}
SETTINGS: dict[str, str | bool] = {
    "spark.ui.showConsoleProgress": False,
    # This JVM lives for a minute: compiling for longer ones took a third of the CPU time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

Say = Callable[[str], None]


def act(
    orders: Path,
    folder: Path,
    say: Say,
    kept: Path | None = None,
    readings: int = READINGS,
    story: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Plays it; returns what was found, with `ok`; leaves pages and plots in `kept`.

    `story` is what the first act found, for the page.
    """
    begun = time.monotonic()
    queues = folder / "queues"
    queues.mkdir()
    orders.rename(queues / "orders")
    produce_all(queues, readings)
    say(f"producers put {readings:,} readings into a zbus queue and a beats queue each")
    say("Spark starts")
    spark = quiet_session(folder / "spark.log")
    try:
        ready = time.monotonic()
        facts = _Play(spark, queues, folder, say, readings).run()
    finally:
        spark.stop()
    facts["start_s"] = round(ready - begun, 1)
    facts["seconds"] = round(time.monotonic() - begun, 1)
    if kept is not None:
        facts["page"] = keep(kept, folder, facts, story or {})
    return facts


def quiet_session(log: Path) -> SparkSession:
    """A session whose JVM says what it has to say in a file: none of it is news. Errors are."""
    screen, file = os.dup(2), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(file, 2)
    try:
        spark = session("demo", **SETTINGS)
        spark.sparkContext.setLogLevel("OFF")
        return spark
    except Exception as error:
        error.add_note(log.read_text(errors="replace"))
        raise
    finally:
        os.dup2(screen, 2)
        os.close(screen)
        os.close(file)


def produce_all(queues: Path, readings: int) -> None:
    """One process per queue."""
    context = multiprocessing.get_context("spawn")
    work = [
        context.Process(target=produce, args=(str(queues / name), format, readings))
        for name, format in FORMATS.items()
    ]
    for one in work:
        one.start()
    for one in work:
        one.join()


def produce(path: str, format: str, readings: int) -> None:
    """Readings of two hours, a few of them too hot."""
    tagged = format != "beats"
    first_ns = time.time_ns() // MINUTE_NS * MINUTE_NS - 120 * MINUTE_NS
    with Queue(path, format=format) as queue:
        for number in range(readings):
            value = 99 if number % HOT_EVERY == 0 else number % 40
            body = json.dumps({"n": number, "celsius": value}).encode()
            at = first_ns + number * 120 * MINUTE_NS // readings
            tag = f"hall.{number % 4}" if tagged else None
            queue.put(body, tag=tag, timestamp_ns=at)


class _Play:
    """One run over the queues, once they are there."""

    def __init__(
        self, spark: SparkSession, queues: Path, folder: Path, say: Say, readings: int
    ) -> None:
        self.spark, self.queues, self.folder, self.say = spark, queues, folder, say
        self.readings = readings
        self.lake = folder / "lake"
        with Queue(queues / "orders", read_only=True) as queue:
            self.total = len(queue) + readings * len(FORMATS)

    def run(self) -> dict[str, Any]:
        """Every act, in order."""
        facts = {**self.bronze(), **self.rollup(), **self.alerts(), **self.audit()}
        facts.update(self.convert())
        facts["ok"] = (
            facts["rows"] == facts["counted"] == self.total
            and facts["audited"] == self.total - self.readings
            and facts["alerts"] == facts["alerts_wanted"]
            and facts["killed_tasks"] > 0
            and facts["sound"]
            and facts["converted"] == self.readings
        )
        return facts

    def pipeline(self, name: str, *sources: str, **rest: Any) -> dict[str, Any]:
        """A ready pipeline, as `penstock pipeline run` would run it."""
        request = pipelines.Request([str(self.queues / one) for one in sources], **rest)
        return pipelines.run(self.spark, name, request, str(self.folder / "runs"))

    def bronze(self) -> dict[str, Any]:
        """All queues, whatever their format, as one stream to Parquet."""
        # A beats queue frees what every group has read: a stream needs a group of its own there.
        done = self.pipeline("bronze", "*", to=str(self.lake / "bronze"),
                             source_options={"group": "bronze"})  # fmt: skip
        rate = done["rows"] / done["seconds"]
        self.say(f"three queues of three formats to Parquet: {done['rows']:,} rows, {rate:,.0f}/s")
        return {"rows": done["rows"], "rows_per_second": rate}

    def rollup(self) -> dict[str, Any]:
        """Per tag and minute, from the Parquet that the stream wrote."""
        from pyspark.sql import functions as F

        from penstock.spark.pipelines.rollup import counted

        bronze = self.spark.read.parquet(str(self.lake / "bronze"))
        windows = counted(bronze, "1 minute").persist()
        by_tag = windows.groupBy("queue", "tag").agg(F.sum("messages").alias("messages"))
        tags = [row.asDict() for row in by_tag.orderBy("queue", "tag").collect()]
        total, count = sum(row["messages"] for row in tags), windows.count()
        windows.unpersist()
        self.say(f"rolled up: {total:,} messages in {count} windows of a minute and a tag")
        return {"counted": total, "windows": count, "tags": tags}

    def alerts(self) -> dict[str, Any]:
        """What is too hot, back into a queue, once each, though a task dies in the middle."""
        mark, target = self.folder / "killed", self.folder / "alerts"
        reading = self.spark.readStream.format("penstock").option("minPartitions", "4")
        frame = reading.option("columns", "body,queue,offset").load(str(self.queues / "sensors"))
        found = frame.mapInArrow(_Hot(str(mark)), "body binary, tag string, id string")
        for _ in range(2):
            writer = found.writeStream.format("penstock").option("path", str(target))
            writer = writer.option("checkpointLocation", str(self.folder / "alerts.checkpoint"))
            writer.trigger(availableNow=True).start().awaitTermination()
        with Queue(target, read_only=True) as queue:
            ids = [message.id for message in queue.scan()]
        self.say(f"alerts put back while a task died by kill -9, run twice: {len(ids)}, each once")
        return {
            "alerts": len(ids) if len(ids) == len(set(ids)) else -1,
            "alerts_wanted": self.readings // HOT_EVERY,
            "killed_tasks": int(mark.exists()),
        }

    def audit(self) -> dict[str, Any]:
        """Checksums, gaps, repetitions, and the page with the plots."""
        # Not the spool: its only group has read it, so its segments are gone, as they should be.
        done = self.pipeline("audit", "orders", "sensors", to=str(self.folder / "audit"))
        result = done["result"]
        self.say(f"audited what stays (a beats queue frees what was read): "
                 f"{result['messages']:,} messages, {result['corrupt']} damaged")  # fmt: skip
        return {"audited": result["messages"], "sound": result["ok"]}

    def convert(self) -> dict[str, Any]:
        """From zbus to ours, compared."""
        done = self.pipeline("convert", "sensors", to=str(self.folder / "converted"),
                             options={"queueFormat": "penstock"})  # fmt: skip
        self.say(f"zbus to penstock: {done['rows']:,} messages, every one compared")
        return {"converted": done["rows"]}


class _Hot:
    """Finds what is too hot. The first task that gets here is killed with half its work done."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.to_pylist()
            hot = [row for row in rows if json.loads(row["body"])["celsius"] > 90]
            yield pa.RecordBatch.from_pydict({
                "body": [row["body"] for row in hot],
                "tag": ["alert"] * len(hot),
                "id": [f"{row['queue']}@{row['offset']}" for row in hot],
            }, schema=_ALERT)  # fmt: skip
            self._die_once()

    def _die_once(self) -> None:
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


_ALERT = pa.schema([("body", pa.binary()), ("tag", pa.string()), ("id", pa.string())])


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>penstock demo</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto }}
svg {{ max-width: 100%; height: auto }}
</style></head><body>
<h1>penstock demo: <span style="color:{colour}">{verdict}</span></h1>
<p>Two producers filled a queue, consumers drained it, and one of each was killed with
<code>kill -9</code> on the way. {messages:,} messages stayed, {missing} were lost.</p>
{course}
<p>Then Spark read this queue and two more, of three formats, into Parquet: {counted:,} messages.
It put {alerts} alerts back while one of its tasks was killed; each arrived once.</p>
{tags}
<p>The <a href="audit.html">audit</a> has checksums, gaps and repetitions of every queue.</p>
</body></html>
"""


def keep(to: Path, folder: Path, facts: dict[str, Any], story: Mapping[str, Any]) -> str:
    """Leaves a page with the plots, and the audit's page; returns where the former is."""
    files.make_folder(to)
    _core.replace_file(to / "audit.html", (folder / "audit" / "audit.html").read_bytes())
    page = PAGE.format(
        colour="#176f2c" if facts["ok"] else "#b3261e",
        verdict="nothing was lost" if facts["ok"] else "something is wrong",
        messages=story.get("messages", 0), missing=story.get("missing", 0),
        course=plot_course(story) if story.get("course") else "",
        counted=facts["counted"], alerts=facts["alerts"], tags=plot_counts(facts["tags"]),
    )  # fmt: skip
    _core.replace_file(to / "index.html", page.encode())
    return str(to / "index.html")


def plot_course(story: Mapping[str, Any]) -> str:
    """Messages put and acked over the seconds of the first act, kills marked; as SVG."""
    figure, axes = report.figure(3.6)
    seconds, put, acked = zip(*story["course"], strict=True)
    axes.plot(seconds, put, label="put", color="#0b6e99")
    axes.plot(seconds, acked, label="taken and acked", color="#d98c00")
    top = max(put, default=1)
    for number, (at, text) in enumerate(story["marks"]):
        axes.axvline(at, color="#b3261e" if "kill" in text else "#888888", linestyle=":")
        axes.annotate(text, (at, top * (0.95 - 0.09 * number)), fontsize=8, ha="left",
                      xytext=(4, 0), textcoords="offset points")  # fmt: skip
    axes.set_title("Messages so far: two producers, consumers, and two kills", loc="left")
    axes.set_xlabel("seconds")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(loc="lower right")
    return report.svg(figure)


def plot_counts(rows: Sequence[Mapping[str, Any]]) -> str:
    """What Spark counted, per queue and tag; as SVG."""
    figure, axes = report.figure(1.2 + 0.25 * len(rows))
    names = [f"{row['queue']} {row['tag'] or ''}" for row in rows]
    bars = axes.barh(names, [row["messages"] for row in rows], color="#0b6e99")
    axes.bar_label(bars, [f"{row['messages']:,}" for row in rows], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_title("Messages that Spark counted, by queue and tag", loc="left")
    return report.svg(figure)
