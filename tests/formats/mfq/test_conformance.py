"""MappedFileQueues.Stream passes what every format passes."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.formats.conformance import Conformance


class TestPlain(Conformance):
    format = "mfq"


class TestWithoutChecksums(Conformance):
    format = "mfq"
    options: ClassVar[dict[str, Any]] = {"checksums": False}
