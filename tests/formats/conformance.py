"""The checks that every format passes, without skips.

A format's own test file is short:

    class TestPlain(Conformance):
        format = "zbus"

What a format has no place for (`store.capabilities`) must be refused before a byte is written,
with an error that names a format that could.
"""

from __future__ import annotations

from tests.formats.checks_consuming import Consuming
from tests.formats.checks_keeping import Keeping
from tests.formats.checks_life import Life


class Conformance(Consuming, Keeping, Life):
    """All of them."""
