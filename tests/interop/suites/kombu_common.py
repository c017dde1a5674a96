"""kombu's integration tests that every broker passes, on a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kombu
import pytest
from t.integration.common import (  # type: ignore[import-not-found]
    BaseEventLoop,
    BaseExchangeTypes,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)


@pytest.fixture
def connection(folder: Path) -> Any:
    return kombu.Connection(f"penstock://{folder}/jobs")


@pytest.fixture
def invalid_connection(folder: Path) -> Any:
    (folder / "file").write_text("no folder")
    return kombu.Connection(f"penstock://{folder}/file")


class TestBasics(BasicFunctionality):  # type: ignore[misc]
    pass


class TestExchanges(BaseExchangeTypes):  # type: ignore[misc]
    pass


class TestTimeToLive(BaseTimeToLive):  # type: ignore[misc]
    pass


class TestPriority(BasePriority):  # type: ignore[misc]
    PRIORITY_ORDER = "asc"


class TestMessage(BaseMessage):  # type: ignore[misc]
    pass


class TestLoop(BaseEventLoop):  # type: ignore[misc]
    pass
