"""What formats and the engine tell each other: plain frozen values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock import _core
from penstock.disk import files
from penstock.hints import Any
from penstock.places import Path
from penstock.records import asdict, dataclass, field
from penstock.sidecar import control


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a format has a place for. The engine asks, never guesses."""

    tags: bool = True
    ids: bool = True
    headers: bool = True
    timestamps: bool = True
    numbers: bool = True
    empty_bodies: bool = True
    keys: bool = False
    """In the frame itself; elsewhere the sidecar holds them."""
    delays: bool = False
    """In the frame itself; elsewhere the sidecar holds them."""
    checksums: bool = False
    """Over whole frames; elsewhere the sidecar holds them."""
    deletes_consumed: bool = False
    """What every group has acked goes away; the head is the lowest cursor."""
    json_bodies: bool = False
    """Bodies and headers are values in JSON: how they were spelled is not kept."""
    ring: bool = False
    """Space is used again message by message, not segment by segment."""
    gaps: bool = False
    """Offsets have gaps between segments: the store itself watches `max_bytes`."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a format encrypts its frames."""

    key_bytes: int
    layouts: tuple[str, ...] = ()
    """Layouts that are always encrypted, the others never; none: the key alone decides."""

    def plain(self, key: bytes) -> bytes:
        """The key; twice as many hex digits are the bytes that they spell."""
        try:
            return bytes.fromhex(key.decode()) if len(key) == 2 * self.key_bytes else key
        except ValueError:
            return key


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One data file, from its name and header."""

    path: Path
    base: int
    first: int
    end: int | None
    """None: it is the one that is appended to."""
    known_size: int | None
    """Its bytes; None: looked up when asked for, which most who list ten thousand never do."""
    first_number: int | None = None
    next_number: int | None = None
    messages: int | None = None
    first_ns: int | None = None  # The smallest time of its messages, and the largest one.
    last_ns: int | None = None
    written_ns: int | None = None  # By the writer's clock: copied messages are older, or newer.

    @classmethod
    def in_a_row(cls, found: Iterable[tuple[int, Path, int | None]]) -> list[SegmentInfo]:
        """Segments by base, path and size, each of which ends where the next one begins."""
        infos: list[SegmentInfo] = []
        for base, path, size in reversed(list(found)):
            infos.append(cls(path, base, base, infos[-1].base if infos else None, size))
        return infos[::-1]

    @property
    def size(self) -> int:
        """The bytes of its file; 0 once it is gone."""
        return files.size_of(self.path) if self.known_size is None else self.known_size


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that should be something else."""

    path: Path
    at: int
    length: int
    found: str
    expected: str
    offset: int | None = None
    """Where in the queue, when the bytes are or should be frames."""

    def as_dict(self) -> dict[str, Any]:
        """The damage as plain values, for a report."""
        return asdict(self) | {"path": str(self.path)}


@dataclass(frozen=True, slots=True)
class End:
    """Where a queue begins and ends, and what had to be dropped to say so."""

    tail: int
    next_number: int
    segment_base: int
    head: int
    head_number: int
    durable: int
    dropped: tuple[Damage, ...] = ()

    @classmethod
    def by(cls, words: control.Words | _core.Shared) -> End:
        """The end as the shared words have it."""
        return cls(
            words.tail, words.next_number, words.segment_base, words.head, words.head_number,
            words.durable,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Consumed:
    """How far the groups of a queue are, for formats that delete what all of them have acked."""

    lowest: int | None
    """The lowest cursor; none when no group holds anything."""
    needed_from: int | None
    """Batches from this offset on must stay: it is not known yet whether they landed."""
    sync: Callable[[], None]
    """Syncs the journals of the groups: an ack must not be lost once what it acked is gone."""

    def limit(self, offset: int) -> int:
        """`offset`, or less where what is below it may not go yet."""
        return offset if self.needed_from is None else min(offset, self.needed_from)


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A prepared file and what it becomes."""

    path: Path
    base: int
    first: int
    closing: bytes = b""
    """Stored where the segment before it ends."""
    size: int | None = None
    """Its bytes, where the format wants them known."""
    header: tuple[int, bytes] | None = None
    """Written to the segment before it: where, and what."""


@dataclass(slots=True)
class Verdict:
    """What `verify` has found in a queue."""

    frames: int = 0
    messages: int = 0
    torn: list[Damage] = field(default_factory=list)
    corrupt: list[Damage] = field(default_factory=list)
    unchecked: int = 0

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong; a torn tail is expected after a crash, and counted."""
        return not self.corrupt and not self.torn
