"""How long a consumer waits before it looks again.

The native core waits, and these numbers tell it how long. A put of ours wakes the consumers that
wait for it, so none of this delays a message that another process of ours puts.
"""

from __future__ import annotations

from penstock.records import dataclass


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """The times of one group, or of the consumer of an mfq queue, in nanoseconds."""

    look_for_dead_ns: int = 200_000_000
    """While messages are in flight, one of all consumers looks this often, and no more often,
    whether another has died: what a dead one had goes to others."""

    sleep_for_dead_ns: int = 250_000_000
    """A consumer that sleeps wakes up after this long for that look. It is a little longer than the
    time between two looks, so that the look is due by then."""

    first_poll_ns: int = 64_000
    """Programs that are not ours wake nobody. Where one may append, a waiting consumer looks after
    this long, then after twice as long, and so on up to a thousand times as long."""

    longest_sleep_ns: int = 1_000_000_000
    """A consumer that sleeps looks this often whether Python has a signal to handle: one that comes
    just before the sleep, or to another thread, does not end it."""

    spin_ns: int = 2_000
    """A consumer that finds nothing looks again and again for this long before it sleeps: most
    waits between busy processes end within it."""

    longest_spin_ns: int = 10_000_000
    """The consumer of an mfq queue spins for as long as its user says. After this long it looks
    whether Python has a signal to handle, and then spins on."""


WAIT_TIMES = WaitTimes()
