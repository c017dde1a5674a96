"""Power cuts between any two effects of small programs on a ring."""

from __future__ import annotations

import os

import pytest

from tests.crash.test_power_cut import MEMORY, SEED, cut_everywhere
from tests.crash.workloads import record

STATES = 100


@pytest.mark.parametrize("level", ["always", "process"])
@pytest.mark.parametrize("name", ["appends", "reopens"])
def test_a_power_cut_anywhere_keeps_what_was_promised_in_a_ring(name: str, level: str) -> None:
    root = MEMORY / f"penstock-ring-{os.getpid()}" / "queue"
    options = {"format": "vqs", "layout": "stage4", "max_bytes": 1 << 16, "durability": level}
    assert cut_everywhere(record(name, root, **options), STATES, SEED) > STATES
