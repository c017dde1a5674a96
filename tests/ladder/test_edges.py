"""Whatever bytes Python meets in a queue's files, it answers, or raises an error of ours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.ladder import edges


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    yield
    shutil.rmtree(edges.FOLDER, ignore_errors=True)


@pytest.mark.parametrize("name", edges.TARGETS)
def test_changed_bytes_end_in_an_answer_or_an_error_of_ours(name: str) -> None:
    assert edges.tries(name, 0.05, int(os.environ.get("PENSTOCK_SEED", "1"))) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("name", edges.TARGETS)
def test_many_changed_bytes_end_in_an_answer_or_an_error_of_ours(name: str) -> None:
    edges.tries(name, 20, int(os.environ.get("PENSTOCK_SEED", "2")))
