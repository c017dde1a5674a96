"""The checks of every format, for the two layouts that are written."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.formats.conformance import Conformance


class TestDoc(Conformance):
    format = "vqs"
    name = "queue.bin"
    has_segments = False
    options: ClassVar[dict[str, Any]] = {"max_bytes": 1 << 20}


class TestStage4(Conformance):
    format = "vqs"
    layout = "stage4"
    has_segments = False
    options: ClassVar[dict[str, Any]] = {"max_bytes": 1 << 20}
