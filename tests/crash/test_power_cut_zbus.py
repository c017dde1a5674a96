"""Power cuts at every effect of small programs on a zbus queue, whose end is a word of its own."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from tests.crash.test_power_cut import MANY_STATES, MEMORY, SEED, STATES, cut_everywhere
from tests.crash.workloads import record

pytestmark = pytest.mark.crash
CASES = list(itertools.product(
    ("appends", "rolls", "trims", "reopens", "leases"), ("always", "process"), ("corr", "crc")
))  # fmt: skip


def cut(name: str, level: str, layout: str, states: int) -> None:
    options: dict[str, Any] = {"format": "zbus", "layout": layout, "durability": level}
    recording = record(name, MEMORY / f"penstock-zbus-{os.getpid()}" / "queue", **options)
    assert cut_everywhere(recording, states, SEED) > 100


@pytest.mark.parametrize(("name", "level", "layout"), CASES)
def test_a_power_cut_anywhere_keeps_what_was_promised(name: str, level: str, layout: str) -> None:
    cut(name, level, layout, STATES)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "level", "layout"), CASES)
def test_many_power_cuts_keep_what_was_promised(name: str, level: str, layout: str) -> None:
    cut(name, level, layout, MANY_STATES)
