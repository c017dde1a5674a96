"""Every layout that we write passes what every format passes."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.formats.beats.helpers import KEY
from tests.formats.conformance import Conformance


class TestLayout1(Conformance):
    format = "beats"
    layout = "1"


class TestLayout0(Conformance):
    format = "beats"
    layout = "0"


class TestLayout2(Conformance):
    format = "beats"
    layout = "2"
    options: ClassVar[dict[str, Any]] = {"key": KEY}


class TestLayout3(Conformance):
    format = "beats"
    layout = "3"
    options: ClassVar[dict[str, Any]] = {"key": KEY}


class TestLayout2Released(Conformance):
    format = "beats"
    layout = "2-released"


class TestLayout2ReleasedLz4(Conformance):
    format = "beats"
    layout = "2-released-lz4"
