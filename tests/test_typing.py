"""A user's program with deliberate mistakes: the type checker finds every one, and no other.

Each line that ends with `# wrong` is a mistake that Python itself meets only when it runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock.options import GroupKeywords, GroupOptions, QueueKeywords, QueueOptions

ROOT = Path(__file__).parent.parent

RIGHT = '''
"""A program that uses what is there as it is meant."""

import asyncio
from datetime import datetime

import penstock
from penstock import AsyncQueue, StandardQueue, Durability, Group, Message, Queue


class Audited(Queue):
    """One may derive."""

    audits = 0


with Audited("orders", max_bytes=1 << 30, when_full="reject", durability="always") as queue:
    queue.audits += 1
    offset: int = queue.put(b"body", tag="eu.created", headers={"trace": "7"}, delay=1.5)
    queue.put_many([b"a", b"b"], tag="bulk")
    message: Message = queue.get(timeout=1)
    when: datetime | None = message.timestamp
    text: str = message.text
    message.ack()
    group: Group = queue.group("billing", start="latest", tags="eu.#", ack="lease", max_receives=5)
    group.configure(visibility_s=60)
    for found in group.messages(0):
        print(found.offset, found.value)
    print([one.body for one in queue.scan(start="2026-11-01", columns=["body"])])
    for raw in (queue.broadcast(tags="a"), queue.group()):
        raw.close()
Queue("plain", durability=Durability.PROCESS, codec="json", format="zbus", layout="crc").close()
tasks = StandardQueue("tasks", 10, codec="cbor", ack="auto", compression="lz4")
tasks.put({"n": 1}, timeout=1)
report = penstock.convert("orders", "copy", format="mfq", drop=["tag"])
print(report.messages, penstock.export("orders", "orders.jsonl").bytes, penstock.__version__)


async def main() -> None:
    """The same, awaited."""
    async with AsyncQueue("orders", max_bytes=1 << 20) as orders:
        await orders.put(b"x", key="k")
        async for one in orders.group("billing", tags="eu.#"):
            print(one.body)


asyncio.run(main())
'''

WRONG = """
import penstock
from penstock import AsyncQueue, StandardQueue, Queue

queue = Queue("q", max_byte=1)  # wrong
queue = Queue("q", when_full="drop")  # wrong
queue = Queue("q", durability="allways")  # wrong
queue = Queue("q", retention_age_s="7d")  # wrong
queue = Queue("q", codec="pickle")  # wrong
queue.put(b"x", tags="eu")  # wrong
queue.put(b"x", headers={"trace": 7})  # wrong
queue.get(timeout="1")  # wrong
queue.group("g", visibility=30)  # wrong
queue.group("g", ack="maybe")  # wrong
queue.group("g").configure(windw=7)  # wrong
print(b"x" in queue)  # wrong
queue.scan(start=1.5)  # wrong
queue.get().acknowledge()  # wrong
StandardQueue("q", compression="zip")  # wrong
AsyncQueue("q", delay=3)  # wrong
penstock.export("q", "f.jsonl", start=None)  # wrong
"""


CHECKERS = {
    "mypy": ["--strict", "--no-error-summary"],
    "pyright": ["--pythonpath", sys.executable],
}


@pytest.fixture(params=CHECKERS)
def checker(request: pytest.FixtureRequest) -> str:
    """Both that users run; each is left out where it is not installed."""
    name: str = request.param
    pytest.importorskip(name)
    return name


def complaints(tmp_path: Path, checker: str, program: str) -> tuple[set[int], str]:
    """The lines that a checker complains about, and what it says."""
    file = tmp_path / "program.py"
    file.write_text(program)
    # In the project for mypy, which reads its sources; elsewhere for pyright, which would take the
    # options of the project for the user's.
    where = ROOT if checker == "mypy" else tmp_path
    line = [sys.executable, "-m", checker, *CHECKERS[checker], str(file)]
    done = subprocess.run(line, cwd=where, capture_output=True, text=True, check=False)
    found = re.findall(r"program\.py:(\d+):(?:\d+ -)? error", done.stdout)
    return {int(number) for number in found}, done.stdout + done.stderr


def test_a_type_checker_finds_every_mistake_of_a_user(tmp_path: Path, checker: str) -> None:
    wanted = {at for at, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}
    found, text = complaints(tmp_path, checker, WRONG)
    assert len(wanted) >= 10
    assert found == wanted, text


def test_a_type_checker_is_content_with_a_right_program(tmp_path: Path, checker: str) -> None:
    found, text = complaints(tmp_path, checker, RIGHT)
    assert found == set(), text


@pytest.mark.slow
def test_every_name_has_a_type_that_checkers_agree_on(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    line = [sys.executable, "-m", "pyright", "--outputjson"]
    line += ["--verifytypes", "penstock", "--ignoreexternal"]
    # It passes `--pythonpath` over here, and takes the first `python` that it finds.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        line, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    assert len(symbols) > 1000
    # An interface to a library that is not installed here has bases without a type.
    missing = [name for name in ("celery", "dramatiq", "huey", "kombu", "taskiq")
               if name not in sys.modules and importlib.util.find_spec(name) is None]  # fmt: skip
    incomplete = [
        one["name"]
        for one in symbols
        if one["isExported"]
        and not (one["isTypeKnown"] and not one["isTypeAmbiguous"])
        and one["name"].split(".")[1] not in missing
    ]
    assert incomplete == []


@pytest.mark.parametrize(
    ("options", "keywords"), [(QueueOptions, QueueKeywords), (GroupOptions, GroupKeywords)]
)
def test_every_option_is_a_typed_keyword(options: Any, keywords: Any) -> None:
    assert {field.name for field in fields(options)} == set(keywords.__annotations__)
