"""Instructions of the hot paths, counted by valgrind: figures that a busy machine can't blur.

Each case runs twice in a process of its own, with few and with many operations; what the second
takes more, divided by the operations that it does more, is the cost of one. Time says what users
feel, this says which change made it so. `make instructions` fails when a figure is more than 3 %
off the one in `benches/instructions.json`; `--update` (`python -m benches.instructions --update`)
writes that file, and the commit says why the figure moved. Counts belong to the release build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.harness import Row, scratch

KNOWN = Path(__file__).parent / "instructions.json"
FEW, MANY = 200, 1200
TOLERANCE = 1.03
PREPARE = """
import sys, gc, penstock
folder, count = sys.argv[1], int(sys.argv[2])
body = bytes(100)
queue = penstock.Queue(folder, durability="process", **{options})
gc.disable()
"""
CASES = {
    "put 100 B": "put = queue.put\nfor _ in range(count): put(body)",
    "put_many 1000 x 100 B": (
        "many = [body] * 1000\nfor _ in range(count // 100): queue.put_many(many)"
    ),
    "get 100 B, ack=auto": (
        "queue.put_many([body] * 1200)\nget = queue.group(ack='auto').get\n"
        "for _ in range(count): get(0).body"
    ),
    "get_many 1000 x 100 B": (
        "for _ in range(12): queue.put_many([body] * 1000)\n"
        "many = queue.group(ack='auto').get_many\n"
        "for _ in range(count // 100): [one.body for one in many(1000)]"
    ),
    "Arrow read 1000 x 100 B": (
        "import pyarrow\nqueue.put_many([body] * 1000)\n"
        "for _ in range(count // 10): pyarrow.table(queue.scan(columns=['body']))"
    ),
    "leased get and ack 100 B": (
        "queue.put_many([body] * 1200)\nget = queue.group().get\n"
        "for _ in range(count): get(0).ack()"
    ),
}  # fmt: skip
PER = {"put_many 1000 x 100 B": 10, "get_many 1000 x 100 B": 10, "Arrow read 1000 x 100 B": 100}
"""Messages that one of `count` stands for, where they go by the thousand."""
OTHERS = ("zbus", "beats", "vqs", "mfq")
"""Formats of which one put and get together is counted."""


def cases() -> Iterator[tuple[str, str]]:
    """Name and program."""
    for name, text in CASES.items():
        yield name, PREPARE.replace("{options}", "{}") + text
    both = (
        "put, get = queue.put, queue.group(ack='auto').get\n"
        "for _ in range(count): put(body); get(0).body"
    )
    for format in OTHERS:
        prepared = PREPARE.replace("{options}", repr({"format": format}))
        if format == "beats":  # Its bodies are events in JSON.
            prepared = prepared.replace("bytes(100)", "b'{\"n\": 1}' + b' ' * 92")
        yield f"{format}: put and get 100 B", prepared + both


def counted(program: str, folder: Path, count: int) -> int:
    """Instructions of a whole process that runs `program` on a new queue in `folder`."""
    queue = Path(tempfile.mkdtemp(dir=folder)) / "q"
    found = subprocess.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
         sys.executable, "-c", program, str(queue), str(count)],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    if found.returncode:
        raise SystemExit(f"{program}\nended with {found.returncode}: {found.stderr[-2000:]}")
    (text,) = re.findall(r"I\s+refs:\s+([\d,]+)", found.stderr)
    return int(text.replace(",", ""))


def run(quick: bool) -> Iterator[Row]:
    """A row for each case; nothing where valgrind is missing."""
    if shutil.which("valgrind") is None:
        print("instructions: valgrind is not installed; nothing was counted", file=sys.stderr)
        return
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    with scratch() as folder:
        for name, program in cases():
            if quick and ":" in name:
                continue
            few, many = (counted(program, folder, count) for count in (FEW, MANY))
            ours = (many - few) / ((MANY - FEW) * PER.get(name, 1))
            yield Row(
                case=name, ours=round(ours), unit="instructions", peer="before",
                peer_value=known.get(name), ratio_goal=TOLERANCE if name in known else None,
            )  # fmt: skip


def main() -> int:
    """Compares, or with `--update` writes what is compared with."""
    rows = list(run(quick=False))
    for row in rows:
        ratio = f"{row.ratio:.3f} x" if row.ratio else "new"
        print(f"{row.case:36} {row.ours:8,.0f} instructions  {ratio}")
    if "--update" in sys.argv[1:]:
        KNOWN.write_text(json.dumps({row.case: row.ours for row in rows}, indent=1) + "\n")
        return 0
    moved = [row.case for row in rows if row.ratio and not 2 - TOLERANCE <= row.ratio <= TOLERANCE]
    for case in moved:
        print(f"more than 3 % off: {case}; say why in the commit, and run with --update")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
