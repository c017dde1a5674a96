"""The contract between the store and a format.

A queue that is open is one `Store`, whatever its format: it opens, locks, recovers, rolls, trims,
closes and verifies. What differs between formats is a `Format`: facts about the format (its
layouts, what it can hold) and answers about one queue (which segments there are, how far their
frames go, how a new one begins). A format asks the store through `Host` and nothing else; it never
sees the queue, its groups or the store's insides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from penstock import _core
from penstock.errors import KeyNeededError, UnsupportedError
from penstock.formats import known_damage, past
from penstock.formats.past import Past
from penstock.formats.segment_list import SegmentList
from penstock.formats.values import (
    Capabilities,
    Consumed,
    Damage,
    Encryption,
    End,
    NewSegment,
    SegmentInfo,
    Verdict,
)
from penstock.hints import Any, ClassVar, Protocol, final
from penstock.options import GroupOptions, QueueOptions
from penstock.places import Path
from penstock.sidecar import control, side_files
from penstock.sidecar.damage import SetAside
from penstock.sidecar.groups import GroupProgress


class Host(Protocol):
    """What a format may ask of the store that it describes; `Store` says what each answers."""

    path: Path
    sidecar: Path
    layout: str
    options: QueueOptions
    clock: _core.Clock
    is_live: bool
    shared: _core.Shared | None
    writer: _core.Writer | None
    publish: _core.Publish | None
    set_aside: tuple[SetAside, ...]
    dropped: tuple[Damage, ...]

    @property
    def run(self) -> int: ...
    def need_shared(self) -> _core.Shared: ...
    def end(self) -> End: ...
    def segments(self, *, fresh: bool = False) -> SegmentList: ...
    def segments_above(self, offset: int) -> Iterator[SegmentInfo]: ...
    def bytes_between(self, start: int, end: int) -> int: ...
    def is_trimmed(self, info: SegmentInfo) -> bool: ...
    def live_segment(self, base: int) -> SegmentInfo: ...
    def open_whole(self, info: SegmentInfo, *, writable: bool) -> _core.Segment: ...
    def open_listed(self, info: SegmentInfo) -> _core.Segment: ...
    def segment_at(self, offset: int) -> _core.Segment: ...
    def forget_segments(self) -> None: ...
    def forget_stale(self, base: int) -> None: ...
    def follow_options(self) -> None: ...
    def make_room(self, needed: int) -> None: ...
    def switch(self, base: int, needed: int) -> int | None: ...
    def trim(self, before: int) -> list[SegmentInfo]: ...


class OwnGroups:
    """What a format's own files know of groups; formats without such files answer as this does.

    Where original programs keep how far they have read, a group of ours keeps it too (`mirror`), so
    that either can go on where the other stopped.
    """

    def defaults(self, group: str) -> dict[str, Any]:
        """Options of a new group that the format's own files or settings decide."""
        return {}

    def bookmarks(self) -> dict[str, int]:
        """Groups that the format's own files know, with the offset each reads next."""
        return {}

    def leases(self, group: str) -> list[tuple[int, int]]:
        """What the format's own files say is out: offset, and how often it was handed out."""
        return []

    def cursor(self, group: str) -> int | None:
        """The group's cursor, where programs that are not ours move it while we have the queue
        open."""
        return None

    def mirror(self, group: str) -> _core.Mirror | None:
        """Where the format itself keeps this group's progress, if it does."""
        return None

    def note(self, group: str, options: GroupOptions) -> None:
        """A group was opened or changed: formats that keep its options themselves do so here."""

    def recount(self) -> None:
        """A group was opened, made or deleted: for formats in which it matters how many there are.
        Alone, under the opening lock."""

    def drop(self, group: str) -> None:
        """A group was deleted: removes its files in the format."""

    # ── after another program may have moved it ────────────────────────────────────────────

    def bookmark_of(self, group: str, progress: GroupProgress) -> int | None:
        """What the format's own file says of a group whose progress is this, if only we write it;
        none where the format keeps no bookmark."""
        return None

    def is_moved(self, group: str) -> bool:
        """Whether the format's own file says something else than when the last of us closed the
        queue; asked only if it is not what `bookmark_of` says."""
        return True

    def fault(self, group: str) -> Damage | None:
        """A bookmark where no message can be."""
        return None

    def set_bookmark(self, group: str, offset: int) -> None:
        """Writes a group's bookmark into the format's own file. Alone."""


class Format(ABC):
    """What one format says about itself, and about one queue of that format."""

    name: ClassVar[str]
    layouts: ClassVar[tuple[str, ...]]
    """The variants of the format that can be read."""
    created: ClassVar[tuple[str, ...]]
    """Those that a new queue may have: the first one, unless another is asked for."""
    is_file: ClassVar[frozenset[str]] = frozenset()
    """Those in which a queue is one file; in the others it is a folder."""
    encryption: ClassVar[Encryption | None] = None
    """How frames are encrypted, if the format can do that."""
    capabilities: ClassVar[Capabilities]
    inner_folders: ClassVar[tuple[str, ...]] = ()
    """Folders of the format itself inside the queue's folder."""
    makes_ahead: ClassVar[bool] = False
    """Whether the next segment's file is made in the background."""
    tends_often: ClassVar[bool] = False
    """Whether `tend` has something to do at every interval in which the queue was used; else it is
    called when a segment has begun, and about once in a second."""
    closing: bytes = b""
    """What stands where a full segment ends, at the next one's base, and behind it zeros."""
    hands_over: ClassVar[bool] = False
    """Whether one process alone appends to a segment, and others begin the next one."""
    instead: ClassVar[str] = "format penstock holds it: `penstock convert`"
    """Advice for a message that has no place in the format's files."""
    refused: ClassVar[Mapping[str, str]] = {
        "compression": "compresses nothing; penstock does",
        "key": "has no encryption, penstock has",
        "tamper_evident": "keeps no tags; that takes an encrypted queue of format beats",
    }
    """Options that the format can't honour, with the reason. Any value but the default is refused,
    so that a user never takes for compressed or deleted what is not."""
    own_options: ClassVar[Mapping[str, str]] = {}
    """Options that the format's own files keep, by their name there; none: the file's size."""

    groups: OwnGroups = OwnGroups()
    """What the format's own files know of groups; `load` sets it where they do."""
    is_encrypted: bool = False
    """Whether new frames are encrypted, so that no offset of a dead appender is used again. `load`
    sets it."""

    def __init__(self, store: Host) -> None:
        """Describes the queue that `store` opens; reads nothing yet."""
        self.store = store
        self.path: Path = store.path
        self.sidecar: Path = store.sidecar
        self.layout: str = store.layout
        self.options: QueueOptions = store.options
        self.clock: _core.Clock = store.clock
        self.is_live: bool = store.is_live

    @property
    @final
    def run(self) -> int:
        """The number that shared words of now carry; see `Store.run`."""
        return self.store.run

    # ── which queue this is ────────────────────────────────────────────────────────────────

    @classmethod
    @abstractmethod
    def sniff(cls, path: Path) -> str | None:
        """The layout, if this is a queue of the format. An error that lists what was seen when it
        is one but its layouts can't be told apart."""

    @classmethod
    @abstractmethod
    def make(
        cls, path: Path, sidecar: Path, layout: str, options: QueueOptions, clock: _core.Clock
    ) -> None:
        """Makes an empty queue, unless another process just did. Alone, under the opening lock."""

    @abstractmethod
    def load(self) -> None:
        """Reads headers and settings; raises on what can't be opened. Changes nothing."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Tells this queue from another one made later at the same path."""

    # ── its segments ───────────────────────────────────────────────────────────────────────

    @abstractmethod
    def list_segments(self) -> list[SegmentInfo]:
        """All segments in order, with their ends as far as names and headers tell."""

    @abstractmethod
    def path_of(self, base: int) -> Path:
        """The file of the segment that begins at `base`."""

    @abstractmethod
    def open_segment(self, info: SegmentInfo, *, writable: bool) -> _core.Segment:
        """Maps one segment, or unpacks it where its bytes can't be read as they are."""

    def rescue_segment(self, info: SegmentInfo) -> _core.Segment | None:
        """A segment with a damaged header, read by what else is known; none when nothing is."""
        return None

    def describe(self, info: SegmentInfo) -> SegmentInfo:
        """`info` with the facts from the segment's header and summary, if there are any."""
        return info

    def list_from(self, offset: int) -> list[SegmentInfo] | None:
        """The segments from the one that holds `offset` on, for a queue that this process only
        reads; none where that costs as much as listing all."""
        return None

    def find_segment(self, offset: int) -> SegmentInfo | None:
        """The first segment that ends above `offset`, if that can be told without a listing."""
        return None

    def base_limit(self, tail: int) -> int:
        """The highest base of a last segment while the queue ends at `tail`."""
        return tail

    def missing_segments(self, head: int | None) -> list[Damage]:
        """Segments that should be there and are not: between the head, as it is now or was, and
        the oldest file. Formats whose offsets have gaps can't tell this way."""
        infos = self.store.segments(fresh=True)
        # Asked for after the files: others move the head before they unlink.
        head = self.store.end().head if head is None else head
        if not infos or infos[0].first <= head:
            return []
        lost = infos[0].first - head
        return [Damage(self.path_of(head), 0, lost, "no file", f"{lost} bytes of messages", head)]

    def unreadable_segments(self, start: int) -> list[tuple[Damage, bool]]:
        """Files from the segment of `start` on that no reader takes for segments though they should
        be, and whether a crash explains that. Most formats list such files as segments, and say so
        when they are read."""
        return []

    def torn_end(self, info: SegmentInfo, segment: _core.Segment) -> list[Damage]:
        """What a crash cut short at the end of a segment, where it is not dropped when the queue is
        opened. Reads the segment."""
        return []

    def noticed(self, start: int = 0) -> list[Damage]:
        """What is wrong, beside the frames, with segments from `start` on that were opened."""
        return []

    def contradictions(self, start: int = 0) -> list[Damage]:
        """What headers and the format's own files say that does not fit together, of segments from
        `start` on. Reads no frames."""
        return []

    @final
    def side_files(self) -> dict[str, Any]:
        """Arguments for `_core.Segment` that name the folders of side files; none while what they
        say may belong to frames that are gone."""
        if not self.is_live and self._is_passed():
            return {}
        kinds, covers = self.side_kinds(), self.options.checksums
        return side_files.folders(self.sidecar, kinds, live=self.is_live, covers=covers)

    @final
    @classmethod
    def side_kinds(cls) -> dict[str, bool]:
        """Which kinds of side files a segment of this format has."""
        has = cls.capabilities
        return {"extras": not (has.keys and has.delays), "integrity": not has.checksums}

    @final
    def has_checksums(self, base: int) -> bool:
        """Whether every frame that we put into the segment at `base` has a checksum beside it,
        which was noted before the frame was published."""
        return self.options.checksums and self._is_noted("integrity", base)

    @final
    def _is_noted(self, kind: str, base: int) -> bool:
        return side_files.path_of(self.sidecar, kind, base).exists()

    # ── where it ends ──────────────────────────────────────────────────────────────────────

    def is_foreign(self, words: control.Words) -> bool:
        """Whether the format's own files say what no process of ours can have left that stored
        `words` last: then a program that is not ours has written since."""
        return False

    @abstractmethod
    def find_end(self, past: Past) -> End:
        """Computes the end from the files; everything below `past.durable` is expected to be
        there. Changes nothing."""

    @abstractmethod
    def recover(self, end: End, past: Past) -> End:
        """Makes the files agree with `end`, before the first append. Alone, under the opening
        lock."""

    def seen_end(self) -> object:
        """What the format's own files say about the end now, to notice that another program moved
        it. Asked for before the shared words: a put of ours moves it before the tail."""
        return None

    def believed(self, seen: object) -> control.Words | None:
        """The shared words, if they say where a queue ends that this process only reads."""
        words = control.peek(self.sidecar)
        if words is not None and words.is_clean and past.is_foreign_now(self, words):
            return None
        if words is None or words.is_clean or _core.Shared.is_open(self.sidecar):
            return words
        return None  # A process left them without closing the queue: the files decide.

    def _is_passed(self) -> bool:
        """Whether another program has appended after us, and no process of ours has opened the
        queue since."""
        words = control.peek(self.sidecar)
        if words is None or words.is_clean or _core.Shared.is_open(self.sidecar):
            return False
        return past.is_foreign_now(self, words)

    @final
    def forget_passed_sides(self, past: Past) -> None:
        """What we noted beside frames that were never published counts for nothing where another
        program has written its own over them. Alone, for recovery."""
        words = past.words
        if words is None or not past.is_foreign:
            return
        for info in self.list_segments():
            is_noted = any(self._is_noted(kind, info.base) for kind in side_files.KINDS)
            if info.base == words.segment_base and info.path.exists() and is_noted:
                self.open_segment(info, writable=True).recover_sides(min(words.published))

    def end_now(self) -> End | None:
        """Asked for before the shared words are read: a format takes over here what another
        program has appended. It answers itself only while it recovers."""
        return None

    def refresh(self) -> None:
        """Adopts what other programs or processes have changed in the format's own files."""

    def let_go(self) -> None:
        """Closes the format's own files that are open; one that is needed again is opened again."""

    # ── appending ──────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def publisher(self) -> _core.Publish:
        """How the end becomes visible in the format's own files."""

    @abstractmethod
    def prepare_segment(self, tail: int, number: int, needed: int) -> tuple[Path, NewSegment]:
        """A file in the sidecar that can be renamed in as the segment that begins at `tail`."""

    def before_roll(self, base: int, needed: int) -> None:
        """Refuses what no segment can hold, or waits until the queue may have another one. A ring
        gives up its oldest messages, read or not, until `needed` bytes are free."""

    def began(self, new: NewSegment, old_base: int, tail: int, number: int, needed: int) -> None:
        """`new` has got its name; the segment at `old_base` ends at `tail`."""

    def listed(self, new: NewSegment, needed: int) -> None:
        """The old segment is closed, and `new` is in the list of segments."""

    def rolled(self, base: int) -> None:
        """The segment at `base` is full, and the next one has begun."""

    def make_next(self, path: Path, last_bytes: int, *, is_quick: bool) -> None:
        """Makes the next segment's file ahead of time, for formats with `makes_ahead`. It is zeroed
        throughout, or for a quick writer, whose pages are made ahead anyhow, at its beginning."""

    def tend(self) -> None:
        """Does the format's own background work."""

    def leave(self, shared: _core.Shared) -> None:
        """Tidies the files up. Called by the last process that closes the queue."""

    @property
    @final
    def can_decrypt(self) -> bool:
        """Whether bodies can be read: the key is there, or none is needed."""
        return not self.is_encrypted or self.options.key is not None

    @final
    def need_key(self) -> None:
        """Raises where frames can't be judged without a key that was not given. Sizes and groups
        can be looked at without."""
        if self.is_encrypted:
            self.key_for(self.path)

    @final
    def key_for(self, path: Path) -> bytes:
        """The key of what is encrypted at `path`, or an error that says what it should be."""
        assert self.encryption is not None
        key, size = self.options.key, self.encryption.key_bytes
        if key is None:
            raise KeyNeededError(
                f"{path}: this is encrypted; open the queue with key= ({size} bytes)"
            )
        if len(key) != size:
            expected = f"the key of a {self.name} queue has {size} bytes"
            raise KeyNeededError(f"{path}: {expected}, this one {len(key)}")
        return key

    # ── deleting ───────────────────────────────────────────────────────────────────────────

    def used_bytes(self, end: End) -> int:
        """What `max_bytes` limits: the bytes of frames between head and tail."""
        return self.store.bytes_between(end.head, end.tail)

    def trim_limit(self, before: int) -> int:
        """Up to where a trim may go that was asked to go up to `before`."""
        return before

    def store_head(self, kept: SegmentInfo) -> None:
        """The head moves to `kept`: formats that store it do so here, before files go."""

    def trimmed(self, info: SegmentInfo) -> None:
        """A segment's file was deleted: removes what the format keeps beside it."""

    def free_consumed(self, consumed: Consumed) -> bool:
        """Deletes what every group has acked, if the format does that; returns whether it did."""
        return False

    def resize(self, size: int) -> None:
        """Changes the size of a queue whose format has a fixed one."""
        raise UnsupportedError(f"format {self.name} has no fixed size; max_bytes limits a queue")

    # ── checking and mending ───────────────────────────────────────────────────────────────

    def judge(
        self, info: SegmentInfo, segment: _core.Segment, last: int, seen: _core.Walked,
        verdict: Verdict,
    ) -> None:  # fmt: skip
        """Adds what a walk through a segment up to `last` met, and what else is wrong with it."""
        verdict.corrupt += known_damage.met(info, seen)

    def rebuild_header(self, info: SegmentInfo) -> bool:
        """Writes a damaged header again from what else is known; returns whether it could."""
        return False

    def bring_back(self, damaged: set[Path]) -> int:
        """Saves messages of damaged segments that no offset reaches; returns how many."""
        return 0

    def as_stored(
        self, message: _core.Message, original: _core.Message, source: Format
    ) -> _core.Message:
        """`message`, which is to be put here, with what `original` tells beyond it in a queue of
        the format `source`: formats that can hold its bytes as they are add them."""
        return message

    # ── what the format keeps about the queue ──────────────────────────────────────────────

    def meta(self) -> dict[str, Any]:
        """What the format keeps about the queue."""
        return {}

    def set_meta(self, **values: Any) -> None:
        """Changes what the format keeps about the queue."""
        name = next(iter(values), "")
        raise UnsupportedError(f"format {self.name} has no option {name!r}; see `penstock show`")
