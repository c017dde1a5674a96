"""The settings of a Beats disk queue under the names that Beats has for them.

    settings = Settings.of(max_size="10GB", segment_size="100MB")      # as under queue.disk in yml
    Queue(path, format="beats", **settings.queue_options())

A Beat reads and writes by loops of its own; here events are read where they lie and written by the
put itself. What the settings of those loops promise is kept all the same: at most `read_ahead`
events are out with a consumer, at most `write_ahead` are put and not on the disk, and a write that
fails is tried again after `retry_interval`, doubled each time up to `max_retry_interval`.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.errors import OptionError
from penstock.records import dataclass, fields

MIN_MAX_SIZE = 10_000_000
MIN_SEGMENT_SIZE = 1_000_000
MAX_SEGMENT_SIZE = (2 << 30) - (1 << 20)
UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*\Z")


def amount(name: str, value: object, units: dict[str, Any]) -> float:
    """A number, or a text with a unit (`10GB`, `30s`)."""
    match = AMOUNT.match(str(value))
    if isinstance(value, bool) or match is None or match[2].lower() not in units:
        known = ", ".join(unit for unit in units if unit)
        raise OptionError(name, value, f"a number, or one with a unit of {known}")
    return float(match[1]) * float(units[match[2].lower()])


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """`queue.disk.*` of a Beat."""

    max_size: int
    """The most bytes the queue may take; 0: no limit. Beats has no default either."""

    segment_size: int = 0
    """A segment is rolled before it passes this; 0: a tenth of `max_size`."""

    read_ahead: int = 512
    """Events that a consumer may hold at once."""

    write_ahead: int = 2048
    """Events that are not on the disk yet: the put that makes them as many syncs them."""

    retry_interval: float = 1.0
    """Seconds before a failed write is tried again; meanwhile the put waits."""

    max_retry_interval: float = 30.0
    """The longest such wait."""

    def __post_init__(self) -> None:
        """Refuses what a Beat refuses, and what it only stumbles over later."""
        is_size = self.max_size == 0 or self.max_size >= MIN_MAX_SIZE
        self._check("max_size", is_size, f"0 or at least {MIN_MAX_SIZE}")
        size, most = self.segment_size, self.max_size // 2 or MAX_SEGMENT_SIZE
        is_size = size == 0 or MIN_SEGMENT_SIZE <= size <= min(most, MAX_SEGMENT_SIZE)
        self._check("segment_size", is_size, f"{MIN_SEGMENT_SIZE} to half of max_size")
        for name in ("read_ahead", "write_ahead"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        self._check("retry_interval", self.retry_interval > 0, "more than 0")
        wait = self.max_retry_interval
        self._check("max_retry_interval", wait >= self.retry_interval, "at least retry_interval")

    def _check(self, name: str, ok: bool, expected: str) -> None:
        if not ok:
            raise OptionError(name, getattr(self, name), expected)

    @classmethod
    def of(cls, **values: object) -> Settings:
        """Settings as they stand in yml: sizes and times may be texts with units."""
        known = {field.name for field in fields(cls)}
        given: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                raise OptionError(name, value, f"one of {', '.join(sorted(known))}")
            is_time = name.endswith("interval")
            number = amount(name, value, SECONDS if is_time else UNITS)
            given[name] = number if is_time else int(number)
        if "max_size" not in given:
            raise OptionError("max_size", None, "a size: Beats has no default for it")
        return cls(**given)

    @property
    def segment_bytes(self) -> int:
        """What a segment may have: a tenth of the queue, unless it was said."""
        if self.segment_size:
            return self.segment_size
        tenth = self.max_size // 10 or 100 << 20
        return min(max(tenth, MIN_SEGMENT_SIZE), MAX_SEGMENT_SIZE)

    def queue_options(self) -> dict[str, Any]:
        """The same as options of `Queue`."""
        return {
            "max_bytes": self.max_size,
            "segment_bytes": self.segment_bytes,
            "max_unsynced": self.write_ahead,
            "retry_interval_s": self.retry_interval,
            "max_retry_interval_s": self.max_retry_interval,
        }

    def group_options(self) -> dict[str, Any]:
        """The same as options of `Queue.group`."""
        return {"max_in_flight": self.read_ahead}
