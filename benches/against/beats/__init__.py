"""The disk queue of Beats, measured in Go by a program of its own (`make bench-servers`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parents[3] / "build" / "beats" / "bench"


def missing() -> str:
    """Why it can't take part; empty when it can."""
    if PROGRAM.exists():
        return ""
    return "the Beats disk queue is left out: it was not built (Go, and `make bench-servers`)"


def measured(folder: Path, count: int, batch: int, size: int) -> dict[str, Any]:
    """Nanoseconds of an event published and acked, and of one got and acked; `batch` at once. All
    of it happens in Go, and what is acked is synced."""
    if why := missing():
        raise ImportError(why)
    folder.mkdir(exist_ok=True)
    command = [str(PROGRAM), str(folder / "queue"), str(count), str(batch), str(size)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if found.returncode:
        raise RuntimeError(found.stderr[-500:])
    answer: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return answer
