"""Each file of a queue in turn gone, emptied, cut, grown or begun with zeros: never silent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.killing import in_a_small_process
from tests.ladder import fuzz
from tests.ladder.fuzz import Kind
from tests.ladder.means import MEMORY
from tests.ladder.rungs import FORMATS

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-each-file-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def each(work: Path, kind: Kind) -> None:
    results = list(fuzz.each_file(work, kind))
    assert len(results) > 20
    assert [f"{done}: {'; '.join(wrong)}" for done, wrong in results if wrong] == []


@pytest.mark.parametrize("ended", ["closed", "killed"])
@pytest.mark.parametrize(("format", "layout"), FORMATS, ids=[name for name, _ in FORMATS])
def test_no_file_goes_or_changes_in_silence(
    folder: Path, format: str, layout: str, ended: str
) -> None:
    in_a_small_process(each, folder, Kind(format, layout, ended))
