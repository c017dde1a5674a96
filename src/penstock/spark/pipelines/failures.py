"""How a run ends before its time: it is asked to, or Spark fails, which takes it pages to say."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILURES: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What a call into Spark raises."""
OURS = re.compile(r"^penstock\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
"""Where the text of one of our errors begins, in the traceback that Spark makes of it."""
PYTHONS = re.compile(r"^([\w.]*?(\w+(?:Error|Exception))): (.+)$", re.MULTILINE)
SPARKS = re.compile(r"\[([A-Z][A-Z0-9_.]{3,})\] ?([^\[\n]*)")
STATE = re.compile(r"( SQLSTATE: \w+)+\s*$")


def be_brief(spark: SparkSession) -> None:
    """A failure will be one sentence: Spark does not fill the screen with it before that."""
    spark.sparkContext.setLogLevel("OFF")
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def sentence(error: BaseException) -> str:
    """What went wrong: our own words, wherever Spark has put them, else the first of Spark's."""
    text = str(error)
    ours = OURS.findall(text)
    if ours:
        return str(ours[-1][1])
    pythons = PYTHONS.findall(text.partition("Traceback (most recent call last)")[2])
    if pythons:
        return f"{pythons[-1][1]}: {pythons[-1][2]}"
    # The first line that has one: what is inside others stands behind them.
    sparks = [found for found in map(SPARKS.findall, text.splitlines()) if found]
    if sparks:
        name, words = sparks[0][-1]
        return f"Spark: {STATE.sub('', words).strip()} ({name})"
    first = text.strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def is_damage(error: BaseException) -> bool:
    """Whether it was data that could not be read, rather than a wish that could not be met."""
    return any(name in ("DataLoss", "CorruptError") for name, _ in OURS.findall(str(error)))


@contextmanager
def asked() -> Iterator[Callable[[], bool]]:
    """Whether a signal asked for the end; a call into the JVM is not cut in two by it."""
    event = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield event.is_set
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
