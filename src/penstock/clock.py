"""Time is an argument: the machine's clock, or one that only a test moves.

Wall time is what users see and what survives a restart of the machine. Boot time never jumps and
counts while the machine sleeps, so deadlines are kept in it, with the boot id and the wall time
beside them.
"""

from __future__ import annotations

import os

from penstock._core import Clock as Clock
from penstock.errors import CodecError, OptionError
from penstock.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class ManualClock:
    """A clock that stands still until it is told otherwise. Pass it as `Queue(clock=…)`."""

    core: Clock

    def __init__(self, wall_s: float = 1_700_000_000.0) -> None:
        """Starts at `wall_s`, seconds since 1970."""
        self.core = Clock(True, int(wall_s * 1e9))

    def advance(self, seconds: float) -> None:
        """Both clocks go on; a negative step sets only the wall clock back."""
        self.core.advance_ns(int(seconds * 1e9))

    def set_wall(self, wall_s: float) -> None:
        """The wall clock is set, as an administrator or a time server would."""
        self.core.set_wall_ns(int(wall_s * 1e9))

    def restart(self, off_s: float = 0.0) -> None:
        """The machine is started anew, `off_s` seconds after it went down."""
        self.core.restart(int(off_s * 1e9))

    def wall(self) -> float:
        """Seconds since 1970."""
        return self.core.wall_now_ns() / 1e9


def moment(ns: int) -> datetime:
    """A time in ns since 1970 as a `datetime` in UTC, to the microsecond."""
    from datetime import UTC, datetime, timedelta

    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)
    except OverflowError as error:
        text = f"timestamp_ns={ns} is in no year that datetime has; see message.timestamp_ns"
        raise CodecError(text) from error


SYSTEM = Clock()
os.register_at_fork(after_in_child=SYSTEM.after_fork)


def native(clock: ManualClock | Clock | None) -> Clock:
    """The native clock behind what a user passed."""
    if clock is None:
        return SYSTEM
    found = clock.core if isinstance(clock, ManualClock) else clock
    if not isinstance(found, Clock):
        raise OptionError("clock", clock, "a ManualClock, or None for the machine's clock")
    return found
