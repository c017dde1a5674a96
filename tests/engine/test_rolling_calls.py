"""What a roll costs in Python: a segment may fill many times a second."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import penstock
from penstock import Queue

PACKAGE = str(Path(penstock.__file__).parent)
PLACES = f"{PACKAGE}/places.py"
"""It stands in for `pathlib`, whose calls are not ours either."""
CALLS_MAX = {"penstock": 46, "zbus": 36, "beats": 58, "mfq": 38}
"""Python calls of our own code; let them fall."""


@pytest.mark.parametrize("format", CALLS_MAX)
def test_a_roll_takes_few_calls(tmp_path: Path, format: str) -> None:
    for number in range(8):  # The first objects of a class are made without a constructor.
        rolls = calls_of_rolls(tmp_path / str(number), format)
    assert len(rolls) > 3
    assert sorted(rolls)[len(rolls) // 2] <= CALLS_MAX[format]


def calls_of_rolls(path: Path, format: str) -> list[int]:
    body, calls, rolls = b'{"text": "%s"}' % (b"x" * 900), 0, []

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        file = frame.f_code.co_filename
        calls += event == "call" and file.startswith(PACKAGE) and file != PLACES

    options = {"durability": "process", "segment_bytes": 16 << 10}
    with Queue(path, format=format, **options) as queue:  # type: ignore[arg-type]
        for _ in range(120):
            base, calls = queue.offsets().segment_base, 0
            sys.setprofile(count)
            queue.put(body)
            sys.setprofile(None)
            if queue.offsets().segment_base != base:
                rolls.append(calls)
    return rolls
