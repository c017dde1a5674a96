"""For tests of a disk that fails."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import _core


@contextmanager
def failing_syncs(error: int = errno.EIO) -> Iterator[None]:
    """No sync of this process succeeds."""
    _core.fail_syncs(error)
    try:
        yield
    finally:
        _core.fail_syncs(0)
