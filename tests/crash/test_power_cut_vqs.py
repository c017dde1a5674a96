"""Power cuts at every effect of small programs on a ring, whose space is used again."""

from __future__ import annotations

import os

import pytest

from tests.crash.test_power_cut import MEMORY, SEED, cut_everywhere
from tests.crash.workloads import record

pytestmark = pytest.mark.crash
STATES = int(os.environ.get("PENSTOCK_STATES", "150"))


CASES = [
    (name, level, "doc")
    for name in ("appends", "reopens", "leases", "gets", "laps", "resizes")
    for level in ("always", "process")
]
CASES += [
    ("reopens", "always", "stage4"),
    ("laps", "process", "stage4"),
    ("resizes", "always", "stage4"),
]


def cut(name: str, level: str, layout: str, states: int) -> None:
    root = MEMORY / f"penstock-vqs-{os.getpid()}" / ("queue.bin" if layout == "doc" else "queue")
    pages = 4 if name == "laps" else 16
    options = {"format": "vqs", "layout": layout, "max_bytes": pages * 4096, "durability": level}
    recording = record(name, root, **options)
    assert cut_everywhere(recording, states, SEED) > 100


@pytest.mark.parametrize(("name", "level", "layout"), CASES)
def test_a_power_cut_anywhere_keeps_what_was_promised(name: str, level: str, layout: str) -> None:
    cut(name, level, layout, STATES)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level", "layout"), CASES)
def test_many_power_cuts_keep_what_was_promised(name: str, level: str, layout: str) -> None:
    cut(name, level, layout, 20 * STATES)
