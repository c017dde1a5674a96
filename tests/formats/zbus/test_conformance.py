"""Every layout that we create passes the checks that every format passes."""

from __future__ import annotations

from typing import ClassVar

from tests.formats.conformance import Conformance


class Zbus(Conformance):
    format = "zbus"


class TestDoc000(Zbus):
    layout: ClassVar[str | None] = "doc000"


class TestDoc001(Zbus):
    layout: ClassVar[str | None] = "doc001"


class TestFlag(Zbus):
    layout: ClassVar[str | None] = "flag"


class TestCorr(Zbus):
    layout: ClassVar[str | None] = "corr"


class TestCrc(Zbus):
    layout: ClassVar[str | None] = "crc"
