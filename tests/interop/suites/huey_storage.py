"""Huey's own tests of storages, and of its API, on a folder."""

from __future__ import annotations

import tempfile
from typing import Any

from huey.tests.base import BaseTestCase
from huey.tests.test_priority import TestPriority as Priorities
from huey.tests.test_storage import StorageTests

from penstock.huey import PenstockHuey


class TestPenstockStorage(StorageTests, BaseTestCase):  # type: ignore[misc]
    supports_ttl = False

    def get_huey(self) -> Any:
        return PenstockHuey("test", path=tempfile.mkdtemp(), utc=False, read_timeout=0.05)

    def tearDown(self) -> None:
        self.huey.storage.close()


class TestPenstockPriority(Priorities):  # type: ignore[misc]
    def get_huey(self) -> Any:
        return PenstockHuey("test", path=tempfile.mkdtemp(), utc=False, read_timeout=0.05)


del StorageTests, BaseTestCase, Priorities
