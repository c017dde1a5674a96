"""The wheel: unpacked anywhere on the path, Spark finds the format without being told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.spark.helpers import fill

ROOT = Path(__file__).parent.parent.parent

JOB = """
import sys
import penstock.spark
import pyspark_penstock
path, site = sys.argv[1:]
assert penstock.__file__.startswith(site) and pyspark_penstock.__file__.startswith(site)
spark = penstock.spark.session("wheel")
assert spark.read.format("penstock").load(path).count() == 5
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_an_installed_wheel_needs_no_registration(tmp_path: Path) -> None:
    maturin = shutil.which("maturin", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if maturin is None:
        pytest.skip("maturin is not installed")
    build = [maturin, "build", "--profile", "quick", "--out", str(tmp_path / "wheels")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    path = fill(tmp_path / "q", 5)
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(path), str(tmp_path / "site")], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
