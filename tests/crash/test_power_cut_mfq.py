"""Power cuts at every effect of small programs on an mfq queue, whose end is a word of its own."""

from __future__ import annotations

import os

import pytest

from tests.crash.test_power_cut import MEMORY, SEED, cut_everywhere
from tests.crash.workloads import record

pytestmark = pytest.mark.crash
STATES = int(os.environ.get("PENSTOCK_STATES", "150"))
WORKLOADS = ["appends", "rolls", "trims", "reopens", "leases", "gets"]


def cut(name: str, level: str, states: int) -> None:
    root = MEMORY / f"penstock-mfq-{os.getpid()}" / "queue"
    recording = record(name, root, format="mfq", durability=level)
    assert cut_everywhere(recording, states, SEED) > 100


@pytest.mark.parametrize("level", ["always", "process"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_power_cut_anywhere_keeps_what_was_promised(name: str, level: str) -> None:
    cut(name, level, STATES)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["always", "process"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_many_power_cuts_keep_what_was_promised(name: str, level: str) -> None:
    cut(name, level, 20 * STATES)
