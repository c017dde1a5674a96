"""Options: frozen values, checked here and nowhere else."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from types import NoneType

from penstock.errors import OptionError, StorageError, either
from penstock.hints import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict
from penstock.logs import renamed
from penstock.pacing import WAIT_TIMES
from penstock.records import dataclass, fields, replace

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE_BYTES = 4096
COUNT_MAX = (1 << 63) - 1
"""No offset, and so no size or count, is greater: all of them are signed words of 64 bits."""
SECONDS_MAX = 4e9
"""A hundred years and more. In nanoseconds it still fits into a word."""

DurabilityName = Literal["process", "interval", "always"]
WhenFull = Literal["block", "reject", "drop-oldest"]
Compression = Literal["none", "lz4"]
AckMode = Literal["lease", "auto"]
Dialect = Literal["modern", "flag", "flag-late"]
CodecName = Literal["bytes", "cbor", "json", "logrecord", "str"]


class Durability(Enum):
    """What survives the death of a process, and what a power cut."""

    PROCESS = "process"  # kill -9 at any instant; nothing is synced
    INTERVAL = "interval"  # power loss up to the last background sync, at most 100 ms old
    ALWAYS = "always"  # power loss: put() returns after the sync


def _check(name: str, value: Any, ok: bool, expected: str) -> None:
    if not ok:
        raise OptionError(name, value, expected)


def check_timeout(seconds: float | None, name: str = "timeout") -> None:
    """Refuses a timeout that nobody can wait for; none waits for ever."""
    if seconds is not None:
        is_fine = 0 <= seconds <= SECONDS_MAX
        _check(name, seconds, is_fine, "a number of seconds from 0 to 4e9")


def check_count(count: int) -> int:
    """A number of messages, none below zero, that is no more than Python can count."""
    _check("count", count, operator.index(count) >= 0, "0 or more")
    return min(operator.index(count), sys.maxsize)


def check_filter(tags: str, dialect: str) -> None:
    """Refuses a filter on tags that makes no sense, for a group and for a scan."""
    is_text = isinstance(tags, str) and len(tags) <= 4096 and _can_encode(tags)
    _check("tags", tags, is_text, "text of at most 4096 characters, none a lone surrogate")
    dialects = ("modern", "flag", "flag-late")
    _check("dialect", dialect, dialect in dialects, either(dialects))


OLD_QUEUE = {
    "hold_for_groups": "retain_unread",
    "hold_max_s": "retain_unread_max_s",
    "integrity": "checksums",
    "seal": "tamper_evident",
}
DEFAULT_GROUP = "default"
"""The group that `Queue.get` reads as."""
OLD_GROUP = {
    "bound": "release_on_exit",
    "holds": "retain_unread",
    "mirrored": "native_cursor",
    "window": "max_in_flight",
}
"""Names of before: they warn, and go with the next release. Files may have them for ever."""


def of_today(values: Mapping[str, Any], old: Mapping[str, str]) -> dict[str, Any]:
    """Values under the names of today, as a file may have them under those of before."""
    return {old.get(name, name): value for name, value in values.items()}


def _said(values: Mapping[str, Any], old: Mapping[str, str]) -> dict[str, Any]:
    for name in values.keys() & old.keys():
        renamed(f"the option {name}", old[name])
    return of_today(values, old)


def _check_names(options: type[QueueOptions | GroupOptions], values: Iterable[str]) -> None:
    """An error for a name that no option has, with the one that was probably meant."""
    known = [field.name for field in fields(options)]
    for name in values:
        if name not in known:
            from difflib import get_close_matches

            close = get_close_matches(name, known, 1)
            expected = close[0] if close else f"one of {', '.join(sorted(known))}"
            raise OptionError.unknown(name, expected)


KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "Durability": ((Durability,), either([level.value for level in Durability])),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "float | None": ((int, float, NoneType), "a number, or None"),
    "bool": ((bool,), "True or False"),
    "str": ((str,), "text"),
    "str | None": ((str, NoneType), "text, or None"),
    "bytes | None": ((bytes, NoneType), "bytes, or None"),
}
"""The types of options, by annotation. What has others is checked by its values."""


def _check_types(options: QueueOptions | GroupOptions) -> None:
    for field in fields(options):
        kinds, expected = KINDS.get(str(field.type), ((object,), ""))
        value = getattr(options, field.name)
        is_number = isinstance(value, bool) and bool not in kinds and object not in kinds
        shown = "…" if field.name == "key" else value
        if is_number or not isinstance(value, kinds):
            raise OptionError(field.name, shown, expected)


def _can_encode(text: str, errors: str = "strict") -> bool:
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


class _Renamed:
    """Fields under older names can still be read, with a warning."""

    __slots__ = ()
    old: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # Or a checker would take every name for a field.

        def __getattr__(self, name: str) -> Any:
            if name not in self.old:
                raise AttributeError(f"{type(self).__name__} has no option {name!r}")
            renamed(f"the option {name}", self.old[name])
            return getattr(self, self.old[name])


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueOptions(_Renamed):
    """How a queue is opened."""

    old: ClassVar[Mapping[str, str]] = OLD_QUEUE

    durability: Durability = Durability.INTERVAL
    """What survives a power loss."""

    sync_interval_s: float = 0.1
    """The time between two syncs at `interval`."""

    segment_bytes: int = 64 * MIB
    """A segment is rolled before it would pass this size. The first ones are smaller."""

    max_bytes: int = 0
    """The queue holds at most this many bytes; 0: no limit."""

    when_full: WhenFull = "block"
    """What `put` does when `max_bytes` is reached."""

    put_timeout_s: float | None = None
    """How long `put` blocks when the queue is full, then `Full`; none: for ever."""

    retry_interval_s: float = 0.0
    """A put whose write fails (a full disk) is tried again after this, then after twice as long
    each time, until `put_timeout_s`; 0: it raises at once."""

    max_retry_interval_s: float = 30.0
    """The longest wait between two tries."""

    max_unsynced: int = 0
    """A put syncs when this many messages are unsynced; 0: only time decides."""

    max_message_bytes: int = 64 * MIB
    """A larger body is refused."""

    compression: Compression = "none"
    """Compress frames where it pays (format `penstock`; other formats refuse it)."""

    key: bytes | None = None
    """Encrypt with this key: 32 bytes for `penstock`, 16 for `beats`, or 32 hex digits. Other
    formats refuse it."""

    tamper_evident: bool = False
    """Keep tags beside encrypted segments that show any edit, exchange or cut (format `beats`)."""

    delay_s: float = 0.0
    """Every message is held back this long unless `put(delay=…)` says otherwise."""

    retention_bytes: int = 0
    """Whole segments go once the queue has more than this; 0: never."""

    retention_age_s: float = 0.0
    """Messages older than this are not delivered, and their segments go; 0: never."""

    retain_unread: bool = True
    """Retention waits until every group has read a segment, each at most `retain_unread_max_s`."""

    retain_unread_max_s: float = 7 * 86400.0
    """How long retention waits for a group that makes no progress."""

    checksums: bool = True
    """Keep checksums beside formats that have none (zbus, vqs, mfq)."""

    trust_others: bool = False
    """Open for writing what another user owns, or what every user of the machine may write to."""

    def __post_init__(self) -> None:
        _check_types(self)
        big, small = self.segment_bytes, 16 * KIB
        _check("segment_bytes", big, small <= big <= 2 * GIB - MIB, f"{small} to {2 * GIB - MIB}")
        most = self.max_message_bytes
        _check("max_message_bytes", most, 1 <= most <= GIB, f"1 to {GIB}")
        for name in ("max_bytes", "max_unsynced", "retention_bytes"):
            found = getattr(self, name)
            _check(name, found, 0 <= found <= COUNT_MAX, f"0 to {COUNT_MAX}")
        for name in ("delay_s", "retention_age_s", "retain_unread_max_s", "retry_interval_s"):
            found = getattr(self, name)
            _check(name, found, 0 <= found <= SECONDS_MAX, "0 to 4e9 seconds")
        often, expected = self.sync_interval_s, "more than 0 and at most 4e9 seconds"
        _check("sync_interval_s", often, 0 < often <= SECONDS_MAX, expected)
        longest, expected = self.max_retry_interval_s, "retry_interval_s to 4e9 seconds"
        is_fine = self.retry_interval_s <= longest <= SECONDS_MAX
        _check("max_retry_interval_s", longest, is_fine, expected)
        check_timeout(self.put_timeout_s, "put_timeout_s")
        _check("compression", self.compression, self.compression in ("none", "lz4"), "none or lz4")
        modes = ("block", "reject", "drop-oldest")
        if self.when_full not in modes:  # The names are put together only where they are needed.
            raise OptionError("when_full", self.when_full, either(modes))
        if self.key is not None:
            is_key = isinstance(self.key, bytes) and len(self.key) in (16, 32)
            _check("key", "…", is_key, "16 or 32 bytes")

    def check_for(self, format: str, refused: Mapping[str, str]) -> None:
        """Refuses what a format can't honour: no option that is said is ignored."""
        for name, reason in refused.items():
            value, default = getattr(self, name), _DEFAULTS[name]
            if value != default:
                shown = "…" if name == "key" else value
                raise OptionError(name, shown, f"{default}: format {format} {reason}")

    def __repr__(self) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "key")
        return f"QueueOptions({', '.join(shown)})"

    @classmethod
    def of(cls, **values: Any) -> QueueOptions:
        """Options from what a user wrote; `durability` may be text, `None` means the default."""
        return cls(**cls.checked(values))

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a user gave; an error for a name that is no option."""
        said = _said(values, OLD_QUEUE)
        _check_names(cls, said)
        given = {name: value for name, value in said.items() if value is not None}
        level = given.get("durability")
        if isinstance(level, str):
            levels = [item.value for item in Durability]
            _check("durability", level, level in levels, either(levels))
            given["durability"] = Durability(level)
        return given


_DEFAULTS = {field.name: field.default for field in fields(QueueOptions)}


class QueueKeywords(TypedDict, total=False):
    """What `Queue` takes besides its own arguments: the fields of `QueueOptions`, any left open."""

    durability: Durability | DurabilityName | None
    sync_interval_s: float | None
    segment_bytes: int | None
    max_bytes: int | None
    when_full: WhenFull | None
    put_timeout_s: float | None
    retry_interval_s: float | None
    max_retry_interval_s: float | None
    max_unsynced: int | None
    max_message_bytes: int | None
    compression: Compression | None
    key: bytes | None
    tamper_evident: bool | None
    delay_s: float | None
    retention_bytes: int | None
    retention_age_s: float | None
    retain_unread: bool | None
    retain_unread_max_s: float | None
    checksums: bool | None
    trust_others: bool | None


class KeptKeywords(QueueKeywords, total=False):
    """What `Queue.set_options` takes: a codec too, by its name."""

    codec: CodecName | None


MAX_IN_FLIGHT = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupOptions(_Renamed):
    """How a group hands messages out. Kept in the group's own file."""

    old: ClassVar[Mapping[str, str]] = OLD_GROUP

    ack: AckMode = "lease"
    """`lease`: get hands out a lease that ends by ack; `auto`: the get is the ack."""

    tags: str = ""
    """Only messages whose tag matches; patterns separated by `;`. Empty: all."""

    dialect: Dialect = "modern"
    """Which characters are wildcards: `modern` (`*`, `#`), or a zbus dialect."""

    visibility_s: float = 30.0
    """How long a leased message stays hidden from other consumers."""

    max_in_flight: int = 100_000
    """Messages that may be leased, delayed or waiting for their key at once."""

    max_receives: int = 0
    """A message handed out this often goes to the dead letters; 0: never."""

    dead_letter: str | None = None
    """Path of the queue for dead letters, beside this one unless it is absolute."""

    release_on_exit: bool = True
    """A lease ends when the process that has it dies."""

    native_cursor: bool = True
    """Progress also goes where the format's own programs look for it, if it has such a place."""

    key_batches: bool = False
    """One `get_many` may take several messages of a key, in order; no consumer gets later
    ones until these are acked or back. What is there of a key comes before the next key."""

    retain_unread: bool = True
    """Retention waits until this group has read a segment."""

    exclusive: bool = False
    """One consumer only; the group goes when it leaves (broadcast)."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check("ack", self.ack, self.ack in ("lease", "auto"), "lease or auto")
        seconds = self.visibility_s
        _check("visibility_s", seconds, 0 <= seconds <= SECONDS_MAX, "0 to 4e9 seconds")
        out = self.max_in_flight
        _check("max_in_flight", out, 1 <= out <= MAX_IN_FLIGHT, f"1 to {MAX_IN_FLIGHT}")
        most = 2**32 - 1
        _check("max_receives", self.max_receives, 0 <= self.max_receives <= most, f"0 to {most}")
        check_filter(self.tags, self.dialect)
        if self.dead_letter is not None:
            place = self.dead_letter
            is_path = bool(place) and "\0" not in place and _can_encode(place, "surrogateescape")
            _check("dead_letter", place, is_path, "a path")

    def native(self) -> dict[str, Any]:
        """What the native group needs of them, under the names that it has there."""
        return {
            "lease": self.ack == "lease", "bound": self.release_on_exit,
            "visibility_s": self.visibility_s, "window": self.max_in_flight,
            "max_receives": self.max_receives, "together": self.key_batches,
            "tags": self.tags, "dialect": self.dialect, "wait_times": WAIT_TIMES,
        }  # fmt: skip

    def changed(self, **values: Any) -> GroupOptions:
        """With other values; an error for a name that is no option."""
        _check_names(GroupOptions, values)
        return replace(self, **{name: v for name, v in values.items() if v is not None})

    @staticmethod
    def said(values: Mapping[str, Any]) -> dict[str, Any]:
        """What a user wrote, under the names of today; those of before warn."""
        return _said(values, OLD_GROUP)

    def as_dict(self) -> dict[str, Any]:
        """As it is written to the group's file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class GroupKeywords(TypedDict, total=False):
    """What `Queue.group` takes besides its own arguments: the fields of `GroupOptions`."""

    ack: AckMode | None
    tags: str | None
    dialect: Dialect | None
    visibility_s: float | None
    max_in_flight: int | None
    max_receives: int | None
    dead_letter: str | None
    release_on_exit: bool | None
    native_cursor: bool | None
    key_batches: bool | None
    retain_unread: bool | None
    exclusive: bool | None


def key_from(*, file: str | None = None, env: str | None = None) -> bytes | None:
    """A key from a file, a descriptor (`/dev/fd/N`) or an environment variable.

    Raw bytes, or twice as many hex digits; a line end behind it is not part of it. Errors never
    show what was found.
    """
    raw: bytes | None = None
    if file is not None:
        try:
            with open(file, "rb") as stream:  # noqa: PTH123  (also takes /dev/fd/N)
                raw = stream.read(1024)
        except OSError as error:
            raise StorageError(file, f"the key can't be read: {error.strerror}") from error
    elif env is not None:
        raw = os.environb.get(os.fsencode(env))
        if raw is None:
            raise OptionError("key_env", env, "a variable that is set")
    return None if raw is None else _key_of(raw)


def _key_of(raw: bytes) -> bytes:
    import re

    text = raw.strip()
    if re.fullmatch(rb"[0-9A-Fa-f]{64}", text):
        return bytes.fromhex(text.decode("ascii"))
    # 32 hex digits stay as they are: only a format whose keys have 16 bytes takes them for one.
    # A raw key may end with a byte that looks like white space, so little is taken off at first.
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    for found in (raw, line, text):
        if len(found) in (16, 32):
            return found
    raise OptionError("key", "…", "16 or 32 bytes, raw or as hex digits")
