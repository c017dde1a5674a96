"""What tests count while they run: kills, states, flips. A rung of the ladder says the sums, so
that its figure has the unit of its question and not only a number of tests."""

from __future__ import annotations

from collections import Counter

COUNTS: Counter[str] = Counter()
"""Of this process, since the last `take`."""


def count(what: str, many: int = 1) -> None:
    """`what` is a unit (`kills`), or a subject and its unit (`zbus steps`)."""
    COUNTS[what] += many


def take() -> Counter[str]:
    """What was counted since the last time."""
    taken = COUNTS.copy()
    COUNTS.clear()
    return taken
