"""The segments that an opening keeps open, shared by its threads.

Any thread of an opening may read, append, roll or trim: each looks up and changes the same few
segments, so every look and every change is made under one lock. Files are opened outside of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from penstock import _core

OPEN_SEGMENTS = 16
UNPACKED_MAX = 2
"""Segments whose bytes are kept in memory, unpacked or copied, rather than mapped."""


class OpenSegments:
    """Open segments by base, the longest unused forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_base: OrderedDict[int, _core.Segment] = OrderedDict()

    def get(self, base: int) -> _core.Segment | None:
        """The segment that begins at `base`, if it is open."""
        with self._lock:
            return self._by_base.get(base)

    def holding(self, offset: int, live_base: int) -> _core.Segment | None:
        """The open segment that `offset` lies in; `live_base` is where the last one begins."""
        with self._lock:
            for segment in reversed(self._by_base.values()):
                if segment.end is None and segment.base != live_base:
                    continue
                if segment.base <= offset and (segment.end is None or offset < segment.end):
                    return segment
        return None

    def keep(self, segment: _core.Segment) -> _core.Segment:
        """Keeps it open; or says which one another thread opened alike a moment before.

        All threads must use the same one: it is told when the segment ends.
        """
        gone = []  # Unmapped at the end: nobody waits for that at the lock.
        with self._lock:
            known = self._by_base.get(segment.base)
            if known is not None and (known.path, known.end) == (segment.path, segment.end):
                segment = known
            self._by_base[segment.base] = segment
            self._by_base.move_to_end(segment.base)
            while len(self._by_base) > OPEN_SEGMENTS:
                gone.append(self._by_base.popitem(last=False))
            if not segment.is_mapped:
                unpacked = [base for base, one in self._by_base.items() if not one.is_mapped]
                gone += [(base, self._by_base.pop(base)) for base in unpacked[:-UNPACKED_MAX]]
            return segment

    def forget(self, base: int) -> None:
        """Closes a segment that is gone, or must be opened anew."""
        with self._lock:
            gone = self._by_base.pop(base, None)
        del gone  # Here it is unmapped: nobody waits for that at the lock.

    def clear(self) -> None:
        with self._lock:
            gone, self._by_base = self._by_base, OrderedDict()
        gone.clear()
