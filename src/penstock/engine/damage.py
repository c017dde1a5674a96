"""What is wrong with a queue beside its frames: one rule for `cat` and Spark."""

from __future__ import annotations

from penstock.formats import known_damage
from penstock.formats.store import Store
from penstock.formats.values import Damage


def around(store: Store, start: int | None = None) -> tuple[list[Damage], list[Damage]]:
    """What a crash cut off, and segments that are gone, from `start` on. Reads no frames."""
    lost = known_damage.new_in(store.format.missing_segments(start), store.set_aside)
    gone = {damage.path for damage in lost}
    return [damage for damage in store.dropped if damage.path not in gone], lost


def sentence(damage: Damage) -> str:
    """Where it is and what is wrong, for a log."""
    return f"{damage.path}:{damage.at}: found {damage.found}, expected {damage.expected}"
