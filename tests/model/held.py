"""When a message may come and when it must, while the wall clock is set back and forth.

What a step of the wall clock may change is stated, not guessed: a deadline is kept in boot time,
which no step moves; only over a restart of the machine, and for a delay that was put before
anyone looked, the wall clock counts, so it may be off by as much as the clock was set, and never
waits longer than the delay from the first look.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Held:
    """A message that must not come before its time, and must come after it."""

    seconds: float
    since: float
    forward: float = 0.0
    """How far the wall clock was set forward before the first look."""
    forward_later: float = 0.0
    """And after it: boot time counts then, unless the machine is restarted."""
    back: float = 0.0
    looked_at: float | None = None
    """When a group first saw it in this run of the machine: from then on boot time counts."""
    is_free: bool = False
    """Its holder is gone: it may come at any time."""

    def earliest(self) -> float:
        return self.since if self.is_free else self.since + self.seconds - self.forward

    def latest(self) -> float:
        """A clock that was set back delays it, but by no more than its time from the first look."""
        by_wall = self.since + self.seconds + self.back
        return by_wall if self.looked_at is None else min(by_wall, self.looked_at + self.seconds)

    def step(self, seconds: float) -> None:
        """The wall clock was set."""
        if self.looked_at is None:
            self.forward += max(seconds, 0)
        else:
            self.forward_later += max(seconds, 0)
        self.back += max(-seconds, 0)

    def restart(self, now: float) -> None:
        """The machine was started anew: what was looked at is reckoned by the wall clock."""
        if self.looked_at is not None:
            self.looked_at = now
        self.forward += self.forward_later
        self.forward_later = 0.0
