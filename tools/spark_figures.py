"""Measures queues in Spark beside Parquet, text, JSON and a Kafka broker, and renews the tables of
docs/spark.md: `python -m tools.spark_figures` (half an hour), or with bytes for each format.

The run has an environment of its own, `build/pyspark-4.0.x`, since the newest Kafka connector that
comes with all it needs is that of Spark 4.0. Spark's own downloader gets its jars and the broker's
into `build/kafka`; where they are not to be had, the broker is left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.spark_versions import ROOT, environment

PYSPARK = "4.0.*"
PACKAGES = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0,org.apache.kafka:kafka_2.13:3.9.1"
BYTES = 300_000_000
RESULT = ROOT / "benches" / "results" / "spark.json"
PAGE = ROOT / "docs" / "spark.md"
WORKS = {
    "scan": "`sum(length(body))`",
    "sink": "sink, synced",
    "count": "`count(*)`",
}
FORMATS = {
    "parquet": "Parquet, uncompressed",
    "text": "text",
    "json": "JSON",
    "kafka": "Kafka 3.9, one broker",
    "penstock": "penstock",
}


def jars(python: Path) -> Path | None:
    """The connector's jars and the broker's; none if they can't be had."""
    folder = ROOT / "build" / "kafka"
    program = folder / "nothing.py"
    folder.mkdir(parents=True, exist_ok=True)
    program.write_text("")
    home = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__path__[0])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    done = subprocess.run(
        [f"{home}/bin/spark-submit", "--master", "local[1]", "--packages", PACKAGES,
         "--conf", f"spark.jars.ivy={folder}", "--conf", "spark.jars.excludes=org.slf4j:slf4j-api",
         str(program)],
        env=os.environ | {"SPARK_HOME": home, "PYSPARK_PYTHON": str(python)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"no broker: {done.stderr[-500:]}", file=sys.stderr)
    return folder / "jars" if done.returncode == 0 else None


def table(found: dict[str, Any]) -> str:
    """The tables, with the machine that they were measured on."""
    machine = found["machine"]
    return "\n".join([
        f"{machine['cpu']}, {machine['cores']} cores, PySpark {machine['pyspark']}, "
        f"{machine['bytes'] // 1_000_000} MB of bodies in each format, load "
        f"{machine['load_1min']}, {machine['when'][:10]}. CPU seconds of all processes (JVM, "
        "Python, broker), wall seconds in brackets; the formats took turns, each the best of five:",
        "",
        *comparison(found["rows"]),
        "",
        *segments(found["rows"]),
        "",
    ])  # fmt: skip


def comparison(rows: list[dict[str, Any]]) -> list[str]:
    at = {(row["format"], row["work"], row["body"]): row for row in rows if row["work"] in WORKS}
    bodies = sorted({body for _, _, body in at})
    cases = [(work, body) for work in WORKS for body in bodies]
    heads = [f"{WORKS[work]}, {body} B" for work, body in cases]
    lines = [f"| | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(cases)]
    for name, title in FORMATS.items():
        if (name, *cases[0]) in at:
            cells = [cell(at[(name, *case)]) for case in cases]
            lines.append(f"| {title} | {' | '.join(cells)} |")
    ratios = [
        f"{at['penstock', *case]['cpu_s'] / at['parquet', *case]['cpu_s']:.1f} x" for case in cases
    ]
    lines.append(f"| penstock's CPU beside Parquet's | {' | '.join(ratios)} |")
    shares = [
        f"{at['penstock', *case]['python_s'] / at['penstock', *case]['cpu_s']:.0%}"
        for case in cases
    ]
    return [*lines, f"| Python's share of penstock's | {' | '.join(shares)} |"]


def cell(row: dict[str, Any]) -> str:
    return f"{row['cpu_s']:.1f} ({row['wall_s']:.1f})"


def segments(rows: list[dict[str, Any]]) -> list[str]:
    """What the number of segments costs, and a plan."""
    found = [row for row in rows if "segments" in row]
    size = found[0]["rows"] * found[0]["body"] // 1_000_000
    (plan,) = (row for row in rows if row["work"] == "plan of a micro-batch")
    tasks = [row for row in rows if row["work"] == "scan by tasks"]
    costs = ", ".join(f"{cell(row)} in {row['tasks']:,}" for row in tasks)
    return [
        f"At least {size} MB of bodies in few segments and in many (segments of a queue or of a "
        "topic, files of a folder), the best of two. A batch of penstock's sink lands whole in one "
        "segment, whatever their size; the queues that are scanned were filled by lists:",
        "",
        *by_segments(found),
        "",
        f"Ten thousand rows in many tasks: {costs}. "
        f"A micro-batch of ten rows is planned in {plan['cpu_s'] * 1000:.1f} ms of our time.",
    ]


def by_segments(rows: list[dict[str, Any]]) -> list[str]:
    at = {(row["format"], row["work"], row["body"], row["segments"]): row for row in rows}
    cases = sorted({(row["body"], row["segments"]) for row in rows})
    heads = [f"{body} B in {count:,}" for body, count in cases]
    lines = [f"| | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(cases)]
    for work in ("scan", "sink"):
        for name, title in FORMATS.items():
            if (name, f"{work} by segments", *cases[0]) in at:
                cells = [cell(at[name, f"{work} by segments", *case]) for case in cases]
                lines.append(f"| {work}, {title} | {' | '.join(cells)} |")
    return lines


def filled(page: str, found: dict[str, Any]) -> str:
    """The page with new tables between its markers."""
    text = f"<!-- figures -->\n{table(found)}<!-- end -->"
    return re.sub(r"<!-- figures -->\n.*?<!-- end -->", lambda _: text, page, flags=re.DOTALL)


def main(size: int) -> int:
    python = environment(PYSPARK)
    with_broker = jars(python)
    RESULT.parent.mkdir(exist_ok=True)
    command = [str(python), "-m", "benches._spark_beside", str(size), str(RESULT)]
    if with_broker is not None:
        command.append(str(with_broker))
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    subprocess.run(command, cwd=ROOT, env=env, check=True)
    PAGE.write_text(filled(PAGE.read_text(), json.loads(RESULT.read_text())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if sys.argv[1:] else BYTES))
