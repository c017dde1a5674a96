"""What happened to a queue before it was opened: decided here, once, for every format.

The first process that opens a queue must know what it may believe. After an orderly close the
shared words are right. If every process that had it open was killed, no page was lost, but an
append may have been cut short. If the machine stopped, only what was synced is surely there. After
a failed sync it is unknown what is on the disk, whatever the page cache shows. In each of these
cases another program, one that is not ours, may have used the queue since. Comparing the format's
own files with the last words that we stored tells whether it did.

The answer is one value, `Past`; formats get it and decide none of this themselves.
"""

from __future__ import annotations

from enum import Enum

from penstock import _core
from penstock.formats.values import Damage
from penstock.hints import Protocol
from penstock.places import Path
from penstock.records import dataclass
from penstock.sidecar import control


class Cause(Enum):
    """How the queue was left by those of us who had it open last."""

    NEW = "we never had it open, or no word about that is left"
    CLOSED = "closed in order"
    KILLED = "all who had it open were killed, in this run of the machine; or they have it open"
    STOPPED = "a power cut, or the disk went back to what was synced while the machine stayed up"
    POISONED = "a sync had failed, in this run"


@dataclass(frozen=True, slots=True)
class Past:
    """What happened to a queue before it was opened."""

    cause: Cause
    words: control.Words | None = None
    """The last words that we wrote ourselves; none when there are none that can be believed."""
    is_foreign: bool = False
    """Whether a program that is not ours has written to the queue since."""
    faults: tuple[Damage, ...] = ()
    """Words of ours that can't be true: reported, and the files decide without them."""

    @property
    def is_closed(self) -> bool:
        """Whether we left it in order; another program may have used it since."""
        return self.cause is Cause.CLOSED

    @property
    def is_killed(self) -> bool:
        """Whether only processes died: no page was lost."""
        return self.cause is Cause.KILLED

    @property
    def is_stopped(self) -> bool:
        """Whether what was not synced may be anything."""
        return self.cause is Cause.STOPPED

    @property
    def is_poisoned(self) -> bool:
        """Whether a sync had failed: what lies above `durable` must be written anew, elsewhere."""
        return self.words is not None and self.words.is_poisoned

    @property
    def durable(self) -> int:
        """Everything below was synced, and is expected to be there."""
        return self.words.durable if self.words is not None else 0

    def unfinished_end(self, tail: int) -> int:
        """Up to where an append of ours was under way behind `tail` when the last process that
        could have ended it was killed; `tail` if none was. Its put has not returned: what it left
        there is no damage, and no message either."""
        words = self.words
        if words is None or self.is_foreign or self.cause not in (Cause.KILLED, Cause.POISONED):
            return tail  # Or the bytes are another program's.
        is_append = words.is_tail_whole and words.reserved_end != control.ROLLING
        return max(tail, words.reserved_end) if is_append and words.tail == tail else tail

    @property
    def last_number(self) -> int:
        """The number of the next message by our own words."""
        return self.words.last_number if self.words is not None else 0


class Described(Protocol):
    """What `of` asks about a queue."""

    sidecar: Path

    @property
    def run(self) -> int: ...
    def is_foreign(self, words: control.Words) -> bool: ...
    def base_limit(self, tail: int) -> int: ...


def of(queue: Described) -> Past:
    """Looks at the shared words and the format's own files. Changes nothing."""
    words = control.peek(queue.sidecar)
    if words is None:
        return Past(Cause.NEW)
    cause = _cause_of(words, queue.run)
    if cause is Cause.STOPPED:
        # The disk may have kept any mixture of older and newer words; only `durable` counts, and
        # what another program did can't be told from what was lost.
        return Past(cause, words)
    fault = _fault_of(words, queue.base_limit(words.tail), queue.sidecar / "control")
    if fault is not None:
        return Past(Cause.NEW, faults=(fault,))
    return Past(cause, words, queue.is_foreign(words))


def is_foreign_now(queue: Described, words: control.Words) -> bool:
    """Whether a program that is not ours has written since `words`, asked by a reader. Others may
    have the queue open: then words and files change while they are compared."""
    while queue.is_foreign(words):
        again = control.peek(queue.sidecar)
        if again is None or again == words:
            return True
        words = again
    return False


def _cause_of(words: control.Words, run: int) -> Cause:
    if words.is_clean and not words.is_poisoned:
        return Cause.CLOSED
    if words.boot != run:
        return Cause.STOPPED
    return Cause.POISONED if words.is_poisoned else Cause.KILLED


def _fault_of(words: control.Words, base_limit: int, path: Path) -> Damage | None:
    """Words that contradict each other, whatever the files say."""
    order = (
        ("head", words.head, "tail", words.tail),
        ("durable", words.durable, "tail", words.tail),
        ("segment_base", words.segment_base, "what follows tail", base_limit),
        ("head_number", words.head_number, "next_number", words.last_number),
    )
    for low, value, high, limit in order:
        if value > limit:
            at = control.CONTROL.offset_of(low)
            return Damage(path, at, 8, f"{low} {value}", f"at most {high}, {limit}")
    return None


# ── where frames end ───────────────────────────────────────────────────────────────────────────


NEAR_BYTES = (1 << 18, 1 << 22)
"""So far before an end whole frames are looked for that lead there, before all are walked."""


def lead(segment: _core.Segment, start: int, end: int, number: int | None = None) -> _core.Walked:
    """The frames that lead to `end`: the last few, if each has a checksum and the next one has the
    number that is said; else all from `start` on. So this takes no longer in a full segment."""
    for length in NEAR_BYTES:
        seen = _core.walk(segment, max(start, end - length), end, past_damage=True)
        if seen.frames > 0 == seen.unchecked and (seen.end, seen.next_number) == (end, number):
            return seen
    return _core.walk(segment, start, end, past_damage=True)


def frames_end(
    segment: _core.Segment, start: int, said: int, limit: int, said_number: int | None = None
) -> tuple[int, int | None]:
    """Where a segment's frames end after a kill, and the number after the last one, if any tells;
    its words say: at `said`, with `said_number`.

    Damage below the tail is damage in the middle, never the end. A tail that no frame reaches is
    wrong, and so is one with whole frames behind it: the frames are the truth. A last frame that
    is rotten stays below the tail, where its reader reports it.
    """
    tail = min(max(said, start), limit)
    seen = lead(segment, start, tail, said_number)
    number, end = seen.next_number, seen.end
    # What was never published is not whole from its first byte on: so nothing is passed over.
    on = _core.walk(segment, end, limit)
    if on.frames:
        number, end = on.next_number, on.end
    elif end != tail and any(segment.read(segment.position(end), tail - end)):
        end = tail
    return end, number
