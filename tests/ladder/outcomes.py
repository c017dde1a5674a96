"""A plugin of pytest for the rungs: writes what was collected, how each test ended, and what the
tests counted themselves (`tests/counting.py`), to the file that the rung names."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import counting

FILE = "PENSTOCK_OUTCOMES"


class Told:
    """Of one session."""

    def __init__(self) -> None:
        self.collected: list[str] = []
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.counted: dict[str, Counter[str]] = {}
        """By file."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected = [item.nodeid for item in session.items]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        is_expected = hasattr(report, "wasxfail")  # To fail, and then it counts as a failure.
        if report.failed or is_expected:
            self.outcomes[report.nodeid] = "failed"
        elif report.skipped:
            self.outcomes[report.nodeid] = "skipped"
            self.reasons[report.nodeid] = str(report.longrepr[2]).removeprefix("Skipped: ")  # type: ignore[index]
        elif report.when == "call":
            self.outcomes.setdefault(report.nodeid, "passed")
        if report.when == "call":
            file = report.nodeid.partition("::")[0]
            self.counted.setdefault(file, Counter()).update(counting.take())

    def pytest_sessionfinish(self) -> None:
        told: dict[str, Any] = vars(self)
        Path(os.environ[FILE]).write_text(json.dumps(told))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Told())
