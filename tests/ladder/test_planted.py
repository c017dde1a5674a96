"""Planted bugs: each still finds its place, and (slow) is caught by the test that it names."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import counting
from tests.ladder import planted
from tests.ladder.means import NotRun
from tests.ladder.planted import ROOT, Plant

PLANTS = planted.all_plants()


def named(plant: Plant) -> str:
    return plant.name


def test_there_are_thirty_bugs_to_be_caught() -> None:
    assert len(PLANTS) >= 30
    assert len({(plant.file, plant.old, plant.new) for plant in PLANTS}) == len(PLANTS)


@pytest.mark.parametrize("plant", PLANTS, ids=named)
def test_a_planted_bug_has_its_place_and_a_test_that_is_there(plant: Plant) -> None:
    assert plant.why.endswith(".")
    assert plant.fault(ROOT) == ""
    assert plant.old != plant.new
    files = [word.partition("::")[0] for word in plant.test.split() if word.startswith("tests/")]
    assert files
    assert all((ROOT / name).is_file() for name in files)


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-planted-") as folder:
        planted.copy_tree(Path(folder))
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("plant", PLANTS, ids=named)
def test_a_planted_bug_is_caught(plant: Plant, tree: Path) -> None:
    try:
        assert planted.is_caught(plant, tree), f"{plant.test} does not notice: {plant.why}"
        counting.count("bugs caught")
    except NotRun as missing:
        pytest.skip(str(missing))
