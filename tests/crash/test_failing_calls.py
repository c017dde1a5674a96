"""Any call on a file may fail: the error is ours, names the file, and nothing is lost by it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.formats import registry
from tests import counting

HERE = Path(__file__).parent
SHORT = 0
ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE, SHORT)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler to get between us and the C library")
    library = tmp_path_factory.mktemp("shim") / "failing_calls.so"
    asked = [compiler, "-shared", "-fPIC", "-o", str(library), str(HERE / "failing_calls.c")]
    subprocess.run(asked, check=True, timeout=60)
    return library


def failing(
    shim: Path, folder: Path, format: str, durability: str, step: int, mode: str, shift: int = 0
) -> list[str]:
    """What went wrong, of every `step`th call; `mode` is once, always or both in turn."""
    numbers = ",".join(map(str, ERRORS))
    asked = [sys.executable, str(HERE / "failing_calls.py"), str(folder), format, durability]
    asked += [numbers, str(step), mode, str(shift)]
    ran = subprocess.run(
        asked, env=os.environ | {"LD_PRELOAD": str(shim)},
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    tried = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(tried) > 5
    counting.count("failing calls", len(tried) - 1)  # The first only counts the calls.
    return [f"call {one['at']} of {one['of']}: {bad}" for one in tried for bad in one["bad"]]


@pytest.mark.parametrize("format", list(registry.MODULES))
def test_a_call_that_fails_loses_nothing_and_is_a_typed_error(
    shim: Path, tmp_path: Path, format: str
) -> None:
    assert not failing(shim, tmp_path / "q", format, "always", 37, "both")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shift", range(len(ERRORS)))
@pytest.mark.parametrize("durability", ["process", "interval", "always"])
@pytest.mark.parametrize("mode", ["once", "always"])
@pytest.mark.parametrize("format", list(registry.MODULES))
def test_every_call_may_fail_in_every_way_once_or_from_then_on(
    shim: Path, tmp_path: Path, format: str, mode: str, durability: str, shift: int
) -> None:
    assert not failing(shim, tmp_path / "q", format, durability, 1, mode, shift)
