"""When messages were put, as far as retention needs to know.

The record holds no time. Now and then the tail and the time are noted together in the sidecar:
everything below that tail is at least that old. So a message goes at the latest one note after its
retention period, never before.
"""

from __future__ import annotations

from pathlib import Path

from penstock.sidecar import notes

MAX_NOTES = 512
LEAST_S = 1.0


class Ages:
    """The notes of one queue; the maintenance thread adds to them."""

    notes: list[tuple[int, int]]

    def __init__(self, sidecar: Path) -> None:
        self._sidecar = sidecar
        self.notes = self._load()

    def _load(self) -> list[tuple[int, int]]:
        found = notes.read(self._sidecar, notes.AGES) or {}
        try:
            return [(int(time), int(tail)) for time, tail in found.get("notes", [])][-MAX_NOTES:]
        except (TypeError, ValueError, OverflowError):
            return []  # Damaged. They are hints: notes are taken anew.

    def note(self, now_ns: int, tail: int, period_s: float) -> None:
        """Notes the tail, unless that was done just now."""
        if self.notes and self.notes[-1][1] >= tail:
            return
        if self.notes and 0 <= now_ns - self.notes[-1][0] < max(LEAST_S, period_s / 256) * 1e9:
            return
        self.notes = self._load()  # Another process may have noted something meanwhile.
        if not self.notes or (self.notes[-1][1] < tail and self.notes[-1][0] < now_ns):
            self.notes = [*self.notes, (now_ns, tail)][-MAX_NOTES:]
            notes.write(self._sidecar, notes.AGES, {"notes": self.notes}, synced=False)

    def expired(self, now_ns: int, period_s: float) -> int:
        """Everything below this offset has been there for longer than the period."""
        oldest = now_ns - int(period_s * 1e9)
        return max((tail for time, tail in self.notes if time < oldest), default=0)

    def forget(self, head: int) -> None:
        """Drops the notes about what is gone."""
        self.notes = [note for note in self.notes if note[1] > head]
