"""The native core: finds and moves bytes and keeps shared state; holds no policy.

Checked against the built module by `python -m mypy.stubtest penstock._core`.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar, final

from typing_extensions import Buffer

_T = TypeVar("_T")

__all__ = [
    "Clock",
    "FolderLock",
    "Frames",
    "Group",
    "Message",
    "MfqConsumer",
    "MfqProducer",
    "Mirror",
    "Publish",
    "Recent",
    "Scan",
    "Segment",
    "Shared",
    "Upkeep",
    "View",
    "VqsHeader",
    "Walked",
    "Watch",
    "Writer",
    "ZbusIndex",
    "arrow_stream",
    "beats_check_macs",
    "beats_close_macs",
    "beats_crypt",
    "beats_frames",
    "beats_is_stream",
    "beats_open_end",
    "beats_pack_stream",
    "beats_plain_frame",
    "beats_publish",
    "beats_state",
    "beats_stream",
    "beats_stream_end",
    "beats_stream_rest",
    "beats_whole_frames",
    "check_range",
    "consumer_offset",
    "crc32",
    "crc32c",
    "crc32c_array",
    "create_file",
    "decrypt_bytes",
    "encrypt_bytes",
    "fail_syncs",
    "file_system",
    "find_frame",
    "frame_cuts",
    "frame_start",
    "is_boundary",
    "make_folder",
    "mark_effect",
    "mfq_frames",
    "open_or_create",
    "opens_frames",
    "penstock_frames",
    "penstock_key_check",
    "producer_offset",
    "publish_size_word",
    "record_effects",
    "refuse_memory",
    "rename_file",
    "replace_file",
    "replay_journal",
    "resize_file",
    "skip_frames",
    "sync_file",
    "sync_folder",
    "tag_matches",
    "take_effects",
    "unlink_file",
    "vqs_frames",
    "walk",
    "word_offsets",
    "write_file",
    "zbus_frames",
]

@final
class Clock:
    """What time it is. Shared by everything that one queue opens."""

    def __new__(cls, manual: bool = False, wall_ns: int = 1_700_000_000_000_000_000) -> Self: ...
    def wall_now_ns(self) -> int:
        """Nanoseconds since 1970."""

    def boot_now_ns(self) -> int:
        """Nanoseconds since the machine was started."""

    def after_fork(self) -> None:
        """In a forked child, which may be in another time namespace."""

    def boot_id(self) -> int:
        """Which run of the machine this is."""

    @property
    def manual(self) -> bool:
        """Whether only a test moves it."""

    def advance_ns(self, by: int) -> None:
        """Both clocks go on (a manual clock only)."""

    def set_wall_ns(self, wall_ns: int) -> None:
        """The wall clock is set, as an administrator would (a manual clock only)."""

    def restart(self, off_ns: int) -> None:
        """The machine is started anew, `off_ns` after it went down (a manual clock only)."""

@final
class Frames:
    """A framing, as Python hands it around."""

@final
class Publish:
    """How an end is published, as Python hands it around."""

    @property
    def foreign_end(self) -> int | None:
        """The end as the format's own file has it; none where only we move it."""

@final
class Mirror:
    """A mirror, as Python hands it around."""

@final
class Segment:
    """A segment, as Python hands it around."""

    def __new__(
        cls,
        path: Path,
        base: int,
        shift: int,
        frames: Frames,
        *,
        first: int | None = None,
        end: int | None = None,
        writable: bool = False,
        capacity: int | None = None,
        grow_step: int = 0,
        by_write: bool = False,
        ring: bool = False,
        control: Path | None = None,
        side_span: int = 0,
        extras: Path | None = None,
        integrity: Path | None = None,
        covers: bool = True,
        soft_bytes: int | None = None,
    ) -> Self: ...
    @staticmethod
    def over(
        path: Path,
        base: int,
        shift: int,
        frames: Frames,
        bytes: Buffer,
        *,
        at: int = 0,
        first: int | None = None,
        end: int | None = None,
        extras: Path | None = None,
    ) -> Segment:
        """A segment over bytes that were read, decrypted or decompressed: `at` is where in the file
        (or in the plain stream) they begin.
        """

    def copy_range(self, start: int, end: int) -> Segment:
        """The offsets `[start, end)` as a segment of their own, read by calls and not through a
        mapping. A file that is too short is `EOFError`.
        """

    @property
    def base(self) -> int:
        """Offset of the first byte."""

    @property
    def is_mapped(self) -> bool:
        """Whether it is the file itself that is read, not bytes made from it."""

    @property
    def end(self) -> int | None:
        """First offset after it, none while it is written to."""

    @property
    def is_stale(self) -> bool:
        """Whether its file was replaced while it was written to, or as a ring: open it again."""

    def set_end(self, end: int) -> None:
        """No more appends: it ends here."""

    def set_holes(self, holes: list[tuple[int, int]]) -> None:
        """Known damage, `[first, last)` offsets each: nobody reads it. Said once, after opening."""

    @property
    def path(self) -> Path:
        """The file."""

    def position(self, offset: int) -> int:
        """The byte of the file where `offset` is."""

    def read(self, at: int, len: int) -> bytes:
        """Mapped bytes `[at, at + len)` as a copy, fewer at the end."""

    def store(self, at: int, bytes: bytes) -> None:
        """Stores `bytes` at byte `at` of the file (headers, summaries)."""

    def zero(self, first: int, last: int) -> None:
        """Zeroes the offsets `[first, last)`."""

    def scrub(self, offset: int) -> int:
        """Zeroes every page from `offset` to the end of the file that is not zero yet; returns how
        many bytes that were.
        """

    def sync(self) -> None:
        """Syncs the file and what lies beside it."""

    def recover_sides(self, tail: int, vouched: int = 0) -> None:
        """After an unclean end: what lies beside the segment forgets everything at or above `tail`,
        and frames below `vouched` that lost their checksum get it anew.
        """

    def extras_fault(self) -> tuple[Path, int] | None:
        """The file of extras and the byte from which on its records do not check, if any."""

@final
class Shared:
    """Opening and the shared words, for Python."""

    @staticmethod
    def open(folder: Path, times: object, work: Callable[[Shared], object]) -> Shared:
        """Opens the block in `folder` and calls `work` with it, while nobody else opens or closes.
        `times` says how long to wait for others.
        """

    @staticmethod
    def visit(folder: Path, times: object, work: Callable[[Shared], _T]) -> _T:
        """The same for someone who leaves at once; returns what `work` does."""

    def alone(self, work: Callable[[], _T]) -> _T:
        """Calls `work` while nobody else opens, closes, or changes groups; returns what it does. It
        may come here again.
        """

    def close(self, work: Callable[[], object] | None = None) -> None:
        """Takes no further part: whatever this opener had leased may go to others. Before that,
        `work` is called while nobody else opens or closes. However that ends, this opener has ended.
        """

    def abandon(self) -> None:
        """Leaves everything as a killed process does."""

    @staticmethod
    def run_id(folder: Path, boot: int) -> int:
        """Which run the words of the block in `folder` would be of if they were written now: of this
        boot, this mounting of the file system and this very file. A disk that went back to what was
        synced while the machine stayed up has words of another run. Not 0.
        """

    @staticmethod
    def is_open(folder: Path) -> bool:
        """Whether anyone has the queue in `folder` open, seen without opening it."""

    @property
    def boot(self) -> int:
        """Which run of the machine the words are of."""

    def poison(self) -> None:
        """A sync has failed: every later put raises, in every process, until the queue is opened
        anew.
        """

    def sync_file(self, path: Path) -> None:
        """Syncs a file of the queue, or the names in a folder of it; a failure poisons the queue."""

    def steady_wall_ns(self, clock: Clock) -> int:
        """Nanoseconds since 1970, by a clock that does not jump forward."""

    def is_older(self, clock: Clock, timestamp_ns: int, age_ns: int) -> bool:
        """Whether what was put at `timestamp_ns` is older than `age_ns`, whatever happened to the
        wall clock since.
        """

    @property
    def owner(self) -> int:
        """This opener's name in lease tables."""

    @property
    def is_first(self) -> bool:
        """Whether nobody else has the queue open: the opener must recover it."""

    @property
    def is_new(self) -> bool:
        """Whether there was no valid block."""

    def is_alone(self) -> bool:
        """Whether nobody else has it open now. Only inside `alone` or `close`."""

    @property
    def folder(self) -> Path:
        """The folder of the block."""

    def reset(
        self,
        *,
        boot: int,
        tail: int,
        next_number: int,
        segment_base: int,
        head: int,
        head_number: int,
        durable: int,
    ) -> None:
        """Sets every word; the opener does it before anyone else may look."""

    @property
    def tail(self) -> int:
        """Offset of the next append."""

    @property
    def durable(self) -> int:
        """Everything below it has been synced."""

    @property
    def head(self) -> int:
        """Oldest kept offset."""

    @property
    def segment_base(self) -> int:
        """Base of the segment that is appended to."""

    @property
    def next_number(self) -> int:
        """Number of the next message."""

    @property
    def head_number(self) -> int:
        """Number of the oldest kept message."""

    @property
    def is_poisoned(self) -> bool:
        """Whether a sync has failed."""

    @property
    def generation(self) -> int:
        """Counts what everyone must look at again (resized file, moved head)."""

    def bump_generation(self) -> int:
        """Raises the count."""

    def set_clean(self, clean: bool) -> None:
        """Said by the last closer, after its sync; taken back by the next opener."""

    def follow(self, tail: int, segment_base: int) -> bool:
        """Another program has appended: the tail is now `tail`, in the segment at `segment_base`.
        False: it was a put of ours, or someone else has said so.
        """

    def set_head(self, head: int, number: int) -> None:
        """Moves the head: everything below is gone. Never back."""

    def signal(self) -> None:
        """Wakes every waiter in every process."""

    def want_room(self, offset: int) -> int:
        """Asks every group's acks for a signal once a cursor reaches `offset`. Look for room after
        it, then give the answer to `wait_room`.
        """

    def wait_room(self, seen: int, seconds: float | None = None) -> bool:
        """Sleeps until a signal came after `seen`; false when `seconds` are over before."""

    def set_user_word(self, index: int, value: int) -> None:
        """Stores a word of the format's own, in the second half of the block."""

@final
class FolderLock:
    """A locked folder."""

    @staticmethod
    def take(folder: Path) -> FolderLock | None:
        """Takes `folder`; none when someone else has it, or it is another one by now."""

    def close(self) -> None:
        """Lets others have it."""

@final
class Writer:
    """Appends to one queue. One per open queue, shared by its threads."""

    def __new__(
        cls,
        shared: Shared,
        segment: Segment,
        publish: Publish,
        clock: Clock,
        host: object,
        *,
        always: bool,
        wants_sync: bool,
        encrypting: bool,
        max_message_bytes: int,
        max_bytes: int,
        delay_ns: int,
        quick_step_ns: int,
    ) -> Self: ...
    def put(
        self,
        body: Buffer,
        *,
        tag: str | None = None,
        id: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        delay: float | None = None,
        timestamp_ns: int | None = None,
    ) -> int:
        """Puts one message and returns its offset.

        `tag` is what groups filter on, `id` your own name for it, `key` orders it among messages
        with the same key, `headers` are text, `delay` keeps it back for that many seconds.
        """

    def put_list(
        self,
        items: Iterable[Buffer | Message],
        *,
        tag: str | None = None,
        delay: float | None = None,
    ) -> int | None:
        """Puts a list of bodies or messages; returns the first offset, none for an empty list.

        They become visible together; only a list of more than half a segment goes in pieces.
        """

    def append_atomic(self, data: object, *, note: Path, text: str) -> tuple[int, int, int] | None:
        """Appends a whole Arrow table (as `put_arrow` takes it) with one publication, however large
        it is, and syncs it. The file `note` is written before: `text`, which is one line, and a
        line with `first`, `end` and `check`. Returns `(first offset, offset behind, rows)`, none
        for an empty table.
        """

    def put_arrow(
        self, data: object, *, tag: str | None = None, delay: float | None = None
    ) -> int | None:
        """Puts an Arrow array of bodies or a table with a column `body` (and `tag`, `id`, `key`,
        `headers`, `timestamp`, `due` where there are any; `offset` and `number` are passed over,
        another column is refused); returns the first offset.
        """

    @property
    def segment(self) -> Segment:
        """The segment that is appended to, as this process knows it."""

    def switch(
        self,
        *,
        old_base: int,
        tail: int,
        number: int,
        path: Path,
        prepared: Path,
        base: int,
        first: int,
        closing: bytes,
        header: tuple[int, bytes] | None,
    ) -> bool:
        """Begins a new segment at `base`, if the tail is still `tail`, the next number `number` and
        the segment still `old_base`. False: another process has put or rolled meanwhile; prepare
        the segment again, or use the one that is there.

        `prepared` is renamed to `path`; `first` is the offset of its first message; `closing` is
        stored where the old one ends, if there is room; `header` is written to the old one's file
        before that, and synced at `always`: where, and what.
        """

    def refusal(self, message: Message) -> str | None:
        """Why the queue can't hold `message`; none when it can."""

    def set_limits(
        self,
        *,
        max_bytes: int | None = None,
        delay_ns: int | None = None,
        max_message_bytes: int | None = None,
    ) -> None:
        """New limits, at once."""

    def sync(self) -> None:
        """Syncs everything put so far."""

    def wait_work(self, seen: int, seconds: float) -> int:
        """Sleeps until this opener's maintenance threads are asked to do something at once that was
        not asked before, or `seconds` are over. Returns a count to be given back as `seen`.
        """

    def poke(self) -> None:
        """Asks this opener's maintenance threads to look at once."""

    def put_unsynced(self, message: Message, delay: float | None = None) -> int:
        """Appends without waiting for the sync that `always` asks for: the caller must `sync()`
        before it tells anyone. Returns the message's offset.
        """

    @property
    def is_quick(self) -> bool:
        """Whether puts fill pages faster than they are well made one by one: the next segment need
        not be zeroed by hand.
        """

    def close(self) -> None:
        """Every later put raises."""

@final
class Message:
    """One message of a queue. What its fields give are copies: you may keep them when the queue is closed."""

    def __new__(
        cls,
        body: Buffer,
        *,
        tag: str | None = None,
        id: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        timestamp_ns: int | None = None,
        due_ns: int | None = None,
    ) -> Self: ...
    @property
    def offset(self) -> int | None:
        """Where it is in its queue."""

    @property
    def number(self) -> int | None:
        """How many messages were put before it, as its format counts them."""

    @property
    def timestamp_ns(self) -> int | None:
        """When it was put, ns since 1970."""

    @property
    def timestamp(self) -> datetime | None:
        """When it was put, as a `datetime` in UTC, to the microsecond; none where there is no time."""

    @property
    def due_ns(self) -> int | None:
        """Nobody gets it before this time, ns since 1970."""

    @property
    def id(self) -> str | None:
        """The sender's name for it."""

    @property
    def tag(self) -> str | None:
        """Label for filters."""

    @property
    def key(self) -> str | None:
        """Messages with one key are handed out one at a time, in order."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers, a new dict at each call."""

    @property
    def body(self) -> bytes:
        """The user's bytes."""

    @property
    def text(self) -> str:
        """The body as text, which must be UTF-8: else `CodecError`."""

    def json(self) -> Any:
        """The value of the body, which must be JSON: else `CodecError`."""

    @property
    def value(self) -> Any:
        """The object that was put, by the queue's codec; without one, the body."""

    def use_codec(self, codec: object) -> None:
        """`value` decodes with this codec from now on, unless it has one."""

    @property
    def payload(self) -> bytes:
        """The bytes inside the frame, still encoded, compressed or encrypted."""

    @property
    def receives(self) -> int:
        """How often it was handed out in its group, this time included."""

    @property
    def receipt(self) -> str | None:
        """Proof of the lease, as text; none without one."""

    def ack(self) -> None:
        """It is done and never comes back. Without a lease (`ack="auto"`) there is nothing to
        do.
        """

    def nack(self, delay: float = 0.0) -> None:
        """It could not be handled: hand it out again, after `delay` seconds."""

    def extend(self, seconds: float) -> None:
        """Keep it for another `seconds` from now."""

    def settle(self, done: bool) -> None:
        """At the end of a loop's body: acks what is still leased (`done`), or gives it back."""

    def __len__(self) -> int: ...

@final
class Group:
    """A group, open."""

    def __new__(
        cls,
        shared: Shared,
        folder: Path,
        clock: Clock,
        host: object,
        *,
        start: int,
        always: bool,
        options: dict[str, Any],
        mirror: Mirror | None = None,
        publish: Publish | None = None,
        entered: list[tuple[int, int]] = ...,
    ) -> Self: ...
    def get(self, timeout: float | None = None, *, visibility: float | None = None) -> Message:
        """The next message; `Empty` when none comes within `timeout` seconds (none: wait for
        ever).
        """

    def get_many(
        self, count: int, timeout: float | None = ..., *, visibility: float | None = None
    ) -> list[Message]:
        """Up to `count` messages: what is there after at most `timeout` seconds, `[]` if
        nothing.
        """

    def get_bodies(self, count: int, timeout: float | None = ...) -> list[bytes]:
        """The bodies alone of up to `count` messages, which are done by this: for groups with
        `ack="auto"`.
        """

    def take_back(self, messages: list[Message]) -> list[Message]:
        """Gives back messages that a get claimed and its caller never saw: any consumer gets them,
        and it does not count. Answers those whose bytes are gone.
        """

    def ack(self, receipt: str) -> None:
        """Acks by receipt text."""

    def nack(self, receipt: str, delay: float = 0.0) -> None:
        """Gives back by receipt text."""

    def extend(self, receipt: str, seconds: float) -> None:
        """Extends by receipt text."""

    def standing(self, offset: int) -> tuple[str, str] | None:
        """How the message at `offset` stands (`leased`, `delayed`, `ready`, `blocked`) and the receipt
        of its lease, if it is out; none: it is done, or was not read yet.
        """

    def ack_at(self, offset: int) -> bool:
        """Acks the message at `offset` whether it is out or not, for any consumer. False: there is
        nothing to ack, it is done or was not read yet.
        """

    def seek(self, offset: int) -> None:
        """Forgets what is out and reads on at `offset`, which must be a message's or the tail."""

    def cut(self, tail: int) -> None:
        """The queue ends at `tail`: what is known of messages behind it is forgotten and reading
        goes on there. What is out below it stays out, what was acked there stays acked.
        """

    def overtake(self, offset: int, unread: int = 0) -> bool:
        """Moves the group forward to `offset` if it is behind: what lay before is gone, `unread` of
        it before the group had read it."""

    @property
    def cursor(self) -> int:
        """The lowest unacked offset."""

    @property
    def next(self) -> int:
        """The next unread offset."""

    def idle_ns(self, tail: int) -> int:
        """How long nothing was handed out or acked though the queue goes on to `tail`, as far as
        those who asked this could see. By the boot clock: time while the machine was off does not
        count, and setting the wall clock changes nothing.
        """

    def wake_in(self) -> float | None:
        """Seconds until something may be there without a signal: the next deadline, or the time
        to look for dead consumers. None: only a signal brings anything.
        """

    def pause(self, paused: bool) -> None:
        """Hands nothing out until `resume`, in every process."""

    @property
    def replayed_next(self) -> int | None:
        """Where reading goes on by the journal; none where this opener had no reason to read it."""

    @property
    def torn(self) -> tuple[Path, int] | None:
        """The journal and the byte from which on it could not be read, if that was so."""

    def journal_next(self) -> None:
        """Journals how far reading has got, where no message says so."""

    @property
    def is_paused(self) -> bool:
        """Whether it is paused."""

    def counts(self) -> dict[str, int]:
        """Counts since the group was made, and what is out now."""

    def outstanding(self) -> list[tuple[int, str, int, int]]:
        """Offsets that are out, held back or waiting, each with its state and how often it went
        out.
        """

    def adopt(self, options: dict[str, Any]) -> None:
        """Goes on with these options, as far as they may change while the group is open."""

    def expire_after(self, seconds: float) -> None:
        """Passes over messages that are older than so many seconds; 0: over none."""

    @property
    def version(self) -> int:
        """Counts changes of the group's settings file, so that every process reads it again."""

    def bump_version(self) -> None:
        """The settings file was changed."""

    def retire(self) -> None:
        """The group is about to be deleted or renamed: every handle on it, in every process, is
        done.
        """

    @property
    def is_gone(self) -> bool:
        """Whether the group was deleted or renamed."""

    def copy_from(self, other: Group) -> None:
        """Takes over another group's progress: what it has out, held back or waiting is waiting
        here, what it has acked is done here.
        """

    def sync(self) -> None:
        """Syncs the journal (and, for groups that ack by getting, the word)."""

    def sync_progress(self) -> None:
        """Syncs what was asked for, if that is not done."""

    @property
    def is_dirty(self) -> bool:
        """Whether the journal has records that are not synced."""

    def release_dead(self) -> int:
        """Gives back, at once, everything that dead consumers had."""

    def give_back(self) -> int:
        """Gives back, at once, everything that this opener has: it is leaving."""

    def checkpoint(self) -> None:
        """Rewrites the journal as a checkpoint."""

    def set_codec(self, codec: object) -> None:
        """What `value` of its messages decodes with; set once."""

    def close(self) -> None:
        """Ends every wait of this handle."""

@final
class Upkeep:
    """The native part of one queue's maintenance thread."""

    def __new__(cls, writer: Writer, syncs: bool) -> Self: ...
    def wait(self, interval: float, pause: float, idle: float) -> tuple[bool, list[str]]:
        """Sleeps and syncs until Python has something to do. False: what was asked for at once.
        True: all its duties, which come up to every `pause` seconds while the queue is in use, and
        else every `idle` seconds; with the names of groups that nobody else syncs.
        """

    def stuck_groups(self) -> list[str]:
        """Looks at the groups that this opener does not have open: the names of those that were
        not synced since the last look.
        """

@final
class Watch:
    """Tells an event loop, through a file descriptor, that a queue is worth another look."""

    def __new__(cls, shared: Shared) -> Self: ...
    def fileno(self) -> int:
        """The eventfd: readable when there may be something new."""

    def arm(self) -> None:
        """From now on every signal of the queue raises the eventfd. Look at the queue after it."""

    def disarm(self) -> None:
        """Nobody waits any more: producers need not wake us."""

    def close(self) -> None:
        """Takes no further part."""

@final
class Recent:
    """The segment in which the last scan of an opening began."""

    def __new__(cls) -> Self: ...

@final
class Scan:
    """A range of a queue, read in order."""

    def __new__(
        cls,
        host: object,
        start: int,
        end: int,
        shared: Shared | None = None,
        tags: str = "",
        dialect: str = "modern",
        tolerant: bool = False,
        recent: Recent | None = None,
    ) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...
    def take(self, count: int) -> list[Message]:
        """Up to `count` messages."""

    @property
    def faults(self) -> list[tuple[Path, int, str, str, int]]:
        """Damage so far: `(path, byte, found, expected, bytes passed over)`."""

    @property
    def at(self) -> int:
        """Where the scan stands."""

@final
class Walked:
    """What a walk saw."""

    @property
    def frames(self) -> int:
        """Whole frames."""

    @property
    def messages(self) -> int:
        """Messages in them."""

    @property
    def unchecked(self) -> int:
        """Frames that no checksum covers as a whole."""

    @property
    def end(self) -> int:
        """Offset after the last whole frame."""

    @property
    def put_end(self) -> int:
        """Offset after the last put that is there with all its frames."""

    @property
    def put_number(self) -> int | None:
        """Number after the last message's of that put."""

    @property
    def first_number(self) -> int | None:
        """Number of the first message, none where the format keeps none."""

    @property
    def next_number(self) -> int | None:
        """Number after the last message's."""

    @property
    def first_ns(self) -> int | None:
        """Smallest timestamp."""

    @property
    def last_ns(self) -> int | None:
        """Largest timestamp."""

    @property
    def checksum(self) -> int:
        """CRC-32C of all frames in order."""

    @property
    def tags(self) -> list[str]:
        """Distinct tags, at most 256."""

    @property
    def more_tags(self) -> bool:
        """Whether there were more tags, or tags that could not be read."""

    @property
    def faults(self) -> list[tuple[int, str, str, int]]:
        """Damage: `(byte, found, expected, bytes passed over)`."""

    @property
    def bad(self) -> list[tuple[int, int]]:
        """The offsets `[first, last)` of each fault."""

    @property
    def stop(self) -> str:
        """Why it stopped before the limit: "end", "cut" (a frame that runs past the bytes), "bad",
        or "" at the limit.
        """

# Codecs and checksums

def penstock_frames(
    queue_id: bytes,
    base: int,
    *,
    compress: bool = False,
    encrypted: bool = False,
    key: bytes | None = None,
    salt: bytes | None = None,
) -> Frames:
    """The framing of a `penstock` segment; with `key` (32 bytes) and `salt` an encrypted one."""

def penstock_key_check(key: bytes, queue_id: bytes, base: int, salt: bytes, header: bytes) -> bytes:
    """What only someone with the queue's key can say about the segment header `header`: 16 bytes
    that stand behind it, and prove the key before it is used for anything.
    """

def publish_size_word() -> Publish:
    """The end of a `penstock` segment: the first frame's size word."""

def vqs_frames(*, gzip: bool = False) -> Frames:
    """The framing of a VQS ring; `gzip` for the stages that pack their records."""

@final
class VqsHeader:
    """The header of a VQS queue that is open for writing."""

    def __new__(
        cls, shared: Shared, extent_file: Path, *, always: bool, meta: Path | None = None
    ) -> Self:
        """`extent_file` is the extent record's file, `meta` the header's, if not the segment's own."""

    def publish(self) -> Publish:
        """How the end becomes visible."""

    def mirror(self) -> Mirror:
        """Where a group's acks are shown."""

    def follow(self, segment: Segment, shows: bool) -> None:
        """The ring as it is now: acks are shown in its header if `shows`, else none is."""

    def free(self, segment: Segment, head: int, synced: bool, since: int | None = None) -> int:
        """Gives everything before `head` back; returns how many messages that were.

        With `synced` this survives a power loss before the space is used again. Nothing when the
        head is not `since` any more, if that is given.
        """

    def replace(self, segment: Segment, fresh: Path, ring: int, copied: int) -> tuple[bool, int]:
        """Puts the ring in the file `fresh`, of `ring` bytes and with everything up to `copied` in
        it, synced, in the place of this one. Returns whether it did, and how many bytes are in use:
        it does not when these are more, or when the file was replaced meanwhile.
        """

def mfq_frames(segment_bytes: int) -> Frames:
    """The framing of an mfq segment."""

def producer_offset(path: Path) -> Publish:
    """The end of an mfq queue: its file `producer.offset`."""

def consumer_offset(path: Path) -> Mirror:
    """Where an mfq queue keeps its default group's progress: its file `consumer.offset`."""

@final
class View:
    """Lends spans of a mapped segment. As long as one is looked at, the mapping stays."""

@final
class MfqConsumer:
    """The consumer."""

    def __new__(
        cls, host: object, *, spin_s: float, retry_s: float, wait_times: object, always: bool
    ) -> Self: ...
    @property
    def next_offset(self) -> int:
        """The next offset to consume: moved by `commit`, or by hand before consuming."""

    @next_offset.setter
    def next_offset(self, value: int) -> None: ...
    def consume(self, deserializer: Any = None, *, timeout: float | None = None) -> Any:
        """The next message, not copied: a view of the mapped file that ends with `commit`, and the
        same message again until then. With `bytes` a copy that is yours, with a deserializer the
        object it makes.

        Waits for one: spins first, then looks again at intervals. `Empty` after `timeout`
        seconds; without one it waits for ever.
        """

    def consume_many(self, limit: int, *, timeout: float | None = None) -> list[bytes]:
        """Up to `limit` messages as bytes that are yours, in order, as soon as there is one: the
        same ones again until `commit`, which is for all of them.
        """

    def commit(self) -> None:
        """What was consumed is done. An error when there is nothing."""

    def sync(self) -> None:
        """Returns when the progress is on the disk."""

    def close(self) -> None:
        """Ends a view that was handed out."""

@final
class MfqProducer:
    """The producer."""

    def __new__(cls, host: object) -> Self: ...
    def produce(self, message: Any, serializer: Any = None) -> int:
        """Writes bytes, or an object through its serializer; returns the message's offset."""

def crc32(data: bytes) -> int:
    """CRC-32 (IEEE) of `data`."""

def crc32c(data: bytes) -> int:
    """CRC-32C of `data`."""

def crc32c_array(data: object) -> int:
    """CRC-32C of what is in an Arrow array of bytes (`uint8`): a large file as it is mapped."""

def tag_matches(tags: str, tag: str, dialect: str = "modern") -> bool:
    """Whether `tag` passes the filter."""

# Walking and reading

def walk(
    segment: Segment,
    start: int,
    limit: int,
    *,
    past_damage: bool = False,
    open_frames: bool = False,
    covered: bool = False,
) -> Walked:
    """Walks the frames of `[start, limit)` with their checksums. With `past_damage` it goes on
    behind bad bytes wherever a whole frame stands again; with `open_frames` it also opens every
    compressed or encrypted frame; with `covered` it ends at the first frame without a checksum.
    """

def find_frame(
    segment: Segment,
    start: int,
    limit: int,
    *,
    number: int | None = None,
    timestamp_ns: int | None = None,
) -> tuple[int, bool]:
    """The offset of the first frame at or after `start` for which `number` or time is reached:
    `(offset, found)`; without one, the end of what was walked.
    """

def frame_cuts(segment: Segment, start: int, limit: int, every: int) -> list[int]:
    """Frame boundaries of `[start, limit)` at least `every` bytes apart, `start` not among them:
    where a range may be cut. Damage ends the list; what is behind it stays in one piece.
    """

def frame_start(segment: Segment, offset: int, limit: int) -> int:
    """Where the frame begins that the message at `offset` is in: `offset` itself, unless it is
    inside a compressed one.
    """

def skip_frames(segment: Segment, start: int, limit: int, rows: int, bytes: int) -> tuple[int, int]:
    """As many whole frames from `start` on as hold at most `rows` messages and `bytes` bytes, but at
    least one: `(offset behind them, messages)`. Damage counts as the end of the range, so that
    reading it finds it.
    """

def encrypt_bytes(key: bytes, data: bytes, context: bytes) -> bytes:
    """Encrypts `data` under a key of its own, derived from `key` and a fresh salt that goes first.
    `context` must be the same when it is opened.
    """

def decrypt_bytes(key: bytes, data: bytes, context: bytes) -> bytes:
    """What `encrypt_bytes` made; `ValueError` when the key is another one or anything was changed."""

def check_range(segment: Segment, first: int, end: int) -> int | None:
    """The check of the frames in `[first, end)`, as a note has it; none if they are not all there."""

def is_boundary(segment: Segment, offset: int, limit: int) -> bool:
    """Whether a message begins at `offset`: cursors are checked with it before they are trusted."""

def opens_frames(segment: Segment, limit: int) -> bool | None:
    """Whether the segment's key opens one of the first whole frames below `limit`; none when there
    is no frame to try.
    """

def arrow_stream(scan: Scan, columns: list[str] | None = None) -> object:
    """An Arrow C stream over `scan` with these columns, in a capsule."""

def replay_journal(name: int, data: bytes) -> tuple[int, dict[int, int], int]:
    """Where reading goes on, what is not done with its state, and bytes that are records."""

# File effects

def replace_file(path: Path, data: bytes, *, synced: bool = True) -> None:
    """Replaces a file: temporary file, sync, rename, sync of the folder."""

def create_file(
    path: Path,
    size: int,
    *,
    head: bytes | None = None,
    zeroed: int = 0,
    rest_ns: int = 0,
    synced: bool = False,
) -> None:
    """Creates a file of `size` bytes that really exist; the first `zeroed` of them are written, so
    that the first store to a page later costs no allocation. Of a whole file each piece is followed
    by a rest of `rest_ns`. With `synced` it is synced. If that fails, there is no file.
    """

def make_folder(path: Path, like: Path | None = None) -> None:
    """Makes a folder: its owner's alone, or like the file or folder `like` and for the same users.
    One that is there already is fine.
    """

def write_file(path: Path, at: int, data: bytes, *, synced: bool = False) -> None:
    """Writes bytes into an existing file."""

def resize_file(path: Path, size: int) -> None:
    """Cuts or extends a file."""

def rename_file(source: Path, target: Path) -> None:
    """Moves a name."""

def unlink_file(path: Path) -> bool:
    """Removes a name; a missing one is no error."""

def open_or_create(path: Path) -> int:
    """Opens a small file that is locked or changed in place, and makes it where it is missing.
    Answers its descriptor, which the caller closes.
    """

def sync_file(path: Path) -> None:
    """Syncs a file."""

def sync_folder(path: Path) -> None:
    """Syncs a folder's names."""

def file_system(path: Path) -> int:
    """The magic number of the file system that holds `path`."""

def word_offsets() -> dict[str, dict[str, int]]:
    """By the name of Python's struct: where each of its fields begins. `group table parts` has where
    the parts of a group's table begin, `own words` those of formats in the control block, `values`
    what some words hold.
    """

# For tests: only in a build with the feature `recorder`, which the wheels do not have.

def record_effects(on: bool) -> None:
    """Starts or stops recording every effect of this process on files."""

def mark_effect(label: str) -> None:
    """Puts a mark of the test's own into the log."""

def take_effects() -> list[tuple[Any, ...]]:
    """Takes the log: tuples that begin with the kind of the effect."""

def fail_syncs(errno: int, nth: int | None = None) -> bool:
    """Lets every later sync fail with this error number, or only the `nth` of them; 0 ends it.

    Whether the sync that was named before has come.
    """

def refuse_memory(nth: int) -> bool:
    """Lets the `nth` question for memory after this be answered with no; below 0: none.

    Whether the question that was named before has come.
    """

@final
class ZbusIndex:
    """The index of a zbus queue, mapped. Where the fields are is the layout's."""

    def __new__(
        cls,
        path: Path,
        *,
        base_at: int,
        end_at: int,
        created_at: int,
        updated_at: int,
        count_at: int,
        first_number: int,
    ) -> Self: ...
    def publish(self) -> Publish:
        """How the queue's end becomes visible."""

    def mirror(
        self,
        reader: Path,
        nak: Path | None = None,
        record_bytes: int = 21,
        blocks: Path | None = None,
    ) -> Mirror:
        """Where a group's progress is kept: its reader file, and its NAK file with records of
        `record_bytes`. With the folder of the blocks, records have ids.
        """

    @property
    def block_count(self) -> int:
        """How many blocks there are."""

    def end_of(self, base: int) -> int | None:
        """How many bytes of the block that begins at `base` are used; none when there is no such
        block.
        """

    def locate(self, offset: int) -> tuple[int, int]:
        """The block that `offset` is in, and its place there."""

    def trim(self, shared: Shared, base: int) -> bool:
        """The blocks before the one that begins at `base` are gone: their count and the first one's
        number change by one write, while nobody appends. False: they were gone already.
        """

def zbus_frames(base: int, *, absolute: bool, crc: bool) -> Frames:
    """The framing of a `zbus` segment that begins at `base`."""

def beats_frames(
    encoding: str,
    *,
    packed: bool = False,
    wide_flags: bool = False,
    key: bytes | None = None,
    iv: bytes | None = None,
    data_at: int = 0,
) -> Frames:
    """The framing of a segment: `encoding` is json or cbor.

    `packed` says that each event is an LZ4 block. With `key`, frames are encrypted from byte
    `data_at` of the file on.
    """

def beats_stream(
    path: Path,
    base: int,
    first: int,
    *,
    data_at: int,
    key: bytes | None = None,
    iv: bytes | None = None,
    extras: Path | None = None,
) -> tuple[Segment, list[tuple[int, int, str, str]]]:
    """Opens a segment that is one compressed stream, with its first frame at position `first`.

    Also returns damage that did not stop the unpacking.
    """

def beats_stream_rest(
    path: Path, *, data_at: int, key: bytes | None = None, iv: bytes | None = None
) -> tuple[bytes, list[bytes]]:
    """What a broken block of a compressed stream still gave, and the plain bytes of the blocks
    that stand behind it.
    """

def beats_pack_stream(plain: bytes) -> bytes:
    """`plain` as a closed stream."""

def beats_open_end(path: Path, data_at: int) -> int:
    """The byte of a file where the blocks of its open stream end; the rest of it is a hole."""

def beats_stream_end(plain: bytes) -> bytes:
    """What ends an open stream that holds `plain`."""

def beats_is_stream(plain: bytes) -> bool:
    """Whether `plain` begins like a compressed stream."""

def beats_crypt(key: bytes, iv: bytes, data: bytes, *, at: int = 0) -> bytes:
    """Encrypts or decrypts `data`, which stands `at` bytes behind the first encrypted one."""

def beats_publish(
    stream: tuple[Path, Path, int] | None = None, *, mac_key: bytes | None = None
) -> Publish:
    """How an end is published; with `stream`, for segments that are written as one: the queue's
    folder, that of their plain copies, and where frames begin in these.

    With `mac_key`, the queue's key, every frame gets a tag beside its segment.
    """

def beats_close_macs(segment: Segment, path: Path, key: bytes, iv: bytes, end: int) -> None:
    """Closes the tags of a segment that ends at `end`."""

def beats_check_macs(
    segment: Segment, tags: bytes, key: bytes, iv: bytes, end: int
) -> list[tuple[int, str]]:
    """What the tags say about the frames up to `end`: `(offset, found)` for each fault."""

def beats_state(path: Path, version: int, host: object) -> Mirror:
    """`state.dat` at `path` as a group's own file; `host` has `segment_of(offset)`."""

def beats_whole_frames(segment: Segment, start: int, limit: int) -> list[tuple[int, int, int]]:
    """Every whole frame of `[start, limit)`, also behind damage: `(offset, size, crc)`."""

def beats_plain_frame(segment: Segment, offset: int, size: int) -> bytes:
    """The bytes of a frame before encryption."""
