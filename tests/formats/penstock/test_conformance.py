"""Our own format: plain, compressed, encrypted, and both."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.formats.conformance import Conformance


class TestPlain(Conformance):
    format = "penstock"


class TestCompressed(Conformance):
    format = "penstock"
    options: ClassVar[dict[str, Any]] = {"compression": "lz4"}


class TestEncrypted(Conformance):
    format = "penstock"
    options: ClassVar[dict[str, Any]] = {"key": bytes(range(32))}


class TestCompressedAndEncrypted(Conformance):
    format = "penstock"
    options: ClassVar[dict[str, Any]] = {"key": bytes(range(32)), "compression": "lz4"}
