"""Power cuts at every effect of small programs on a zbus queue, whose end is a word of its own."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.crash.test_power_cut import MEMORY, SEED, cut_everywhere
from tests.crash.workloads import record

pytestmark = pytest.mark.crash
STATES = int(os.environ.get("PENSTOCK_STATES", "600"))


@pytest.mark.parametrize("layout", ["corr", "crc"])
@pytest.mark.parametrize("level", ["always", "process"])
@pytest.mark.parametrize("name", ["appends", "rolls", "trims", "reopens", "leases"])
def test_a_power_cut_anywhere_keeps_what_was_promised(name: str, level: str, layout: str) -> None:
    options: dict[str, Any] = {"format": "zbus", "layout": layout, "durability": level}
    recording = record(name, MEMORY / f"penstock-zbus-{os.getpid()}" / "queue", **options)
    assert cut_everywhere(recording, STATES, SEED) > 100
