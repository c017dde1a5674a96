"""How long one waits, and when one looks again.

The native core waits, and these numbers tell it how long. A put of ours wakes the consumers that
wait for it, and who gives a lock back wakes the next one: none of this delays what another process
of ours has done. They are for what wakes nobody: a death, a program that is not ours, a signal.
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
    this long, then after twice as long, and so on."""

    longest_poll_ns: int = 65_536_000
    """The longest that it waits between two such looks."""

    polls_in_doubt: int = 4
    """One of ours that is in the middle of a put looks like a program that is not ours. A consumer
    that has seen the lock held at so many looks in a row takes the lock to find out."""

    manual_nap_ns: int = 2_000_000
    """A clock that only a test moves says nothing of how long to sleep: a consumer looks this often
    whether it was moved."""

    longest_sleep_ns: int = 1_000_000_000
    """A consumer that sleeps looks this often whether Python has a signal to handle: one that comes
    just before the sleep, or to another thread, does not end it."""

    spin_ns: int = 2_000
    """A consumer that finds nothing looks again and again for this long before it sleeps: most
    waits between busy processes end within it."""

    longest_spin_ns: int = 10_000_000
    """The consumer of an mfq queue spins for as long as its user says. After this long it looks
    whether Python has a signal to handle, and then spins on."""


@dataclass(frozen=True, slots=True)
class LockTimes:
    """The times of one opening of a queue, in nanoseconds."""

    look_for_dead_ns: int = 20_000_000
    """A thread that waits for a lock, or for a sync, looks this often whether its holder lives."""

    looks_before_signals: int = 5
    """A thread that waits without Python's interpreter lock looks after so many of these times
    whether Python has a signal to handle."""

    first_opening_nap_ns: int = 100_000
    """A thread that waits for another to open or close the queue looks again after this, then after
    twice as long, and so on: the kernel wakes nobody when a file lock is given back."""

    longest_opening_nap_ns: int = 10_000_000
    """The longest that one waits between two such looks."""

    closing_nap_ns: int = 1_000_000
    """A thread that closes a queue looks this often whether the last of the others has given back
    what it holds."""

    longest_sleep_ns: int = 1_000_000_000
    """A maintenance thread that sleeps looks this often whether it has been asked for something: no
    wake finds it once the control block was cut short."""


WAIT_TIMES = WaitTimes()
LOCK_TIMES = LockTimes()

QUICK_STEP_NS = 50_000_000
"""A writer is quick when a megabyte takes it less than this, half the usual time between syncs. The
pages that it stores to are then made ahead of it, and those behind it are sent to the disk."""

LONGEST_SLEEP_S = WAIT_TIMES.longest_sleep_ns / 1e9
MANUAL_NAP_S = WAIT_TIMES.manual_nap_ns / 1e9
"""These two in seconds, for what waits in Python."""

FOREIGN_NAP_S = 0.02
"""A task that waits for a queue where a program that is not ours may append looks this often."""

REST_NS = 50_000
"""A thread that fills the next segment with zeros rests this long after each piece: else that
thread would keep its processor for milliseconds while a consumer on it is to run."""
