"""A Beat and penstock at one folder, in turns: nothing is lost, nothing acked comes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.originals.beats.beat import NEWEST, RELEASES
from tests.originals.beats.parties import Turns

PAIRS = [(release, layout) for release, layouts in RELEASES.items() for layout in layouts]


@pytest.mark.parametrize("layout", RELEASES[NEWEST])
@pytest.mark.parametrize("seed", range(3))
def test_a_beat_and_penstock_take_turns(layout: str, seed: int, tmp_path: Path) -> None:
    Turns(NEWEST, tmp_path / "q", layout, seed).run(6)


@pytest.mark.slow
@pytest.mark.parametrize(("release", "layout"), PAIRS)
def test_every_release_and_penstock_take_turns(release: str, layout: str, tmp_path: Path) -> None:
    for seed in range(200):
        Turns(release, tmp_path / str(seed), layout, seed).run(8)
