"""A user's program with deliberate mistakes: the type checker finds every one, and no other.

Each line that ends with `# wrong` is a mistake that Python itself meets only when it runs.
"""

from __future__ import annotations

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


def complaints(tmp_path: Path, program: str) -> tuple[set[int], str]:
    """The lines that mypy complains about, and what it says."""
    file = tmp_path / "program.py"
    file.write_text(program)
    line = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.findall(r"program\.py:(\d+): error", done.stdout)
    return {int(number) for number in found}, done.stdout + done.stderr


def test_the_type_checker_finds_every_mistake_of_a_user(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    wanted = {at for at, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}
    found, text = complaints(tmp_path, WRONG)
    assert len(wanted) >= 10
    assert found == wanted, text


def test_the_type_checker_is_content_with_a_right_program(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    found, text = complaints(tmp_path, RIGHT)
    assert found == set(), text


@pytest.mark.parametrize(
    ("options", "keywords"), [(QueueOptions, QueueKeywords), (GroupOptions, GroupKeywords)]
)
def test_every_option_is_a_typed_keyword(options: Any, keywords: Any) -> None:
    assert {field.name for field in fields(options)} == set(keywords.__annotations__)
