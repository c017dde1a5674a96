"""Any queue to any other: every message copied, nothing lost without being named, all verified.

    report = penstock.convert("old", "new", format="mfq", drop=["timestamp", "number"])

Three passes over the source: *check* asks the target about every message and refuses before a
byte is written; *copy* appends; *verify* reads both queues again and compares. Then the groups are
made in the target, each where it stood. Others may use the source meanwhile: what they delete
before a pass comes to it, that pass does not see.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from penstock import _core
from penstock.engine import paths, positions
from penstock.engine.copied_groups import Carried, Groups
from penstock.engine.queue import Queue
from penstock.engine.table import remaining
from penstock.errors import OptionError, PenstockError, UnsupportedError, plural
from penstock.formats import registry
from penstock.formats.values import Damage
from penstock.records import asdict, dataclass, field

FIELDS = ("tag", "id", "key", "headers", "timestamp", "number", "delay", "body")
"""What may be left out. `body`: the whole message, where its body is what can't be held."""

BATCH_MESSAGES = 1000
BATCH_BYTES = 1 << 20
TIME_STEPS_NS = (1, 1_000, 1_000_000, 1_000_000_000)


class ConvertError(PenstockError):
    """The copy does not hold what the source holds."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a conversion, an export or an import is."""

    phase: Literal["check", "copy", "verify"]
    messages: int
    bytes: int
    """Bytes of message bodies so far."""
    offset: int
    """The offset in the source."""
    end: int
    """Where the source ends: the phase is done when `offset` gets there. 0 if that is not known."""


OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class ConversionReport:
    """What became of every message."""

    messages: int = 0
    """Messages that were copied."""
    bytes: int = 0
    """Bytes of their bodies."""
    verified: int = 0
    """Messages that were copied, read again and found equal."""
    gone: int = 0
    """Messages that were copied, and that were deleted from the source before they were compared,
    or others of their batch were."""
    left_out: int = 0
    """Messages that the target can't hold at all (`drop=body`)."""
    lost: dict[str, int] = field(default_factory=dict)
    """Field → how many messages lost it."""
    renumbered: int = 0
    """Messages whose number is another one in the target, which counts by itself."""
    rounded: int = 0
    """Messages whose time the target keeps less exactly."""
    first: int | None = None
    """Offset of the first copied message in the target."""
    groups: Carried = field(default_factory=Carried)
    """Which groups begin in the target where they stood, and which do not."""
    damage: list[Damage] = field(default_factory=list)
    """What was passed over in the source (`tolerant`)."""

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self) | {"damage": [damage.as_dict() for damage in self.damage]}


def convert(
    source: Queue | str | os.PathLike[str],
    target: Queue | str | os.PathLike[str],
    *,
    format: str | None = None,
    layout: str | None = None,
    key: bytes | None = None,
    drop: Collection[str] = (),
    start: positions.Where = "earliest",
    end: positions.Where | None = None,
    tags: str = "",
    tolerant: bool = False,
    verify: bool = True,
    groups: bool | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> ConversionReport:
    """Copies the messages of `source` to the end of `target`, and the groups' cursors.

    Either is an open queue or a path. A path as the target is made when nothing is there, in
    `format` and `layout`, and encrypted with `key`; with `dry_run` nothing is made.
    What the target has no place for is refused, with a count per field, before anything is
    written; `drop` names fields (`FIELDS`) that may be left out where they do not fit. With
    `tolerant`, damage in the source is passed over and reported. `dry_run` only checks.
    Groups are carried over unless the target's format deletes what every group has acked; with
    `groups=True` also then, with `groups=False` none.
    """
    how: dict[str, Any] = {"format": format, "layout": layout, "key": key}
    with ExitStack() as stack:
        source = stack.enter_context(opened(source, read_only=True))
        with asked(target, **how) as model:
            paths.refuse_same(source.path, model.path, "convert")
            work = _Work(source, model, checked_drop(drop), on_progress)
            work.first = positions.resolve(source.store, start, name="start")
            work.last = source.offsets().tail
            if end is not None:
                work.last = positions.resolve(source.store, end, name="end")
            work.tags, work.tolerant = tags, tolerant
            work.groups = Groups(source, model, groups)
            work.report.groups = work.groups.carried
            work.check(target)
        if not dry_run:
            work.target = work.groups.target = stack.enter_context(opened(target, **how))
            work.copy()
            work.target.sync()
            if verify:
                work.verify()
            work.groups.make(work.put_batches)
        return work.report


@contextmanager
def asked(queue: Queue | str | os.PathLike[str], **options: Any) -> Iterator[Queue]:
    """A queue to ask what it could hold. Where none is yet it is one like it, in another place:
    what is refused leaves nothing behind."""
    path = place_of(queue)
    is_there = isinstance(queue, Queue) or not registry.is_empty(path)
    if is_there or not options.get("create", True):
        with opened(queue, **options) as found:
            yield found
        return
    with TemporaryDirectory() as folder, Queue(Path(folder) / path.name, **options) as model:
        yield model


@contextmanager
def opened(queue: Queue | str | os.PathLike[str], **options: Any) -> Iterator[Queue]:
    """An open queue as it is; the one at a path, closed at the end."""
    if isinstance(queue, Queue):
        yield queue
        return
    with Queue(queue, **options) as found:
        yield found


def place_of(queue: Queue | str | os.PathLike[str]) -> Path:
    """Where a queue is, open or not."""
    return queue.path if isinstance(queue, Queue) else paths.absolute(queue)


def checked_drop(names: Collection[str]) -> frozenset[str]:
    """The names of fields to leave out; an error for one that is no field."""
    for name in names:
        if name not in FIELDS:
            raise OptionError("drop", name, f"some of {', '.join(FIELDS)}")
    return frozenset(names)


def lost_fields(message: _core.Message, target: Queue) -> tuple[str, ...]:
    """Which fields of `message` the target can't hold."""
    can = target.store.capabilities
    lost = [] if can.timestamps or message.timestamp_ns is None else ["timestamp"]
    lost += [] if can.numbers or message.number is None else ["number"]
    writer = target.store.need_writer()
    if writer.refusal(message) is None:
        return tuple(lost)
    for name in ("tag", "id", "key", "headers", "delay"):
        alone = only(message, {name}, body=b"x")
        if alone is not None and writer.refusal(alone) is not None:
            lost.append(name)
    rest = only(message, {"tag", "id", "key", "headers", "delay", "timestamp"} - set(lost))
    if rest is None or writer.refusal(rest) is not None:
        lost.append("body")
    return tuple(lost)


def only(
    message: _core.Message, names: Collection[str], *, body: bytes | None = None
) -> _core.Message | None:
    """`message` with no more than the fields `names`; none when it has none of a single one."""
    values: dict[str, Any] = {
        "tag": message.tag,
        "id": message.id,
        "key": message.key,
        "headers": message.headers or None,
        "timestamp": message.timestamp_ns,
        "delay": message.due_ns,
    }
    kept = {name: value for name, value in values.items() if name in names}
    if body is not None and all(value is None for value in kept.values()):
        return None
    arguments = {
        {"timestamp": "timestamp_ns", "delay": "due_ns"}.get(k, k): v for k, v in kept.items()
    }
    return _core.Message(message.body if body is None else body, **arguments)


def kept(message: _core.Message, lost: Collection[str]) -> _core.Message | None:
    """`message` without what is lost; none when nothing of it is copied."""
    if not lost:
        return message
    return None if "body" in lost else only(message, set(FIELDS) - set(lost))


class Losses:
    """What a queue has no place for, counted per field; refused unless it was named."""

    def __init__(self, target: Queue, drop: frozenset[str], word: str, where: Path) -> None:
        """Errors call the queue `where`, and name a message by `word` and number: "offset 12"."""
        self.counts: Counter[str] = Counter()
        self._target, self._drop, self._word, self._where = target, drop, word, where
        self._examples: dict[str, int] = {}

    def of(self, message: _core.Message, at: int) -> tuple[str, ...]:
        """The fields that `message` loses."""
        names = lost_fields(message, self._target)
        self.counts.update(names)
        for name in names:
            self._examples.setdefault(name, at)
        return names

    def refuse(self) -> None:
        """An error that names and counts what is lost, unless all of it may be."""
        refused = [name for name in FIELDS if name in self.counts and name not in self._drop]
        if refused:
            counts = ", ".join(
                f"{name} ({plural(self.counts[name], 'message')}, first at "
                f"{self._word} {self._examples[name]})"
                for name in refused
            )
            raise UnsupportedError(
                f"{self._where}: format {self._target.store.format.name} can't hold: {counts}. "
                f"Leave them out with drop={','.join(refused)}, or choose format penstock"
            )


class _Work:
    """One conversion, from its checks to its report."""

    first: int
    last: int
    tags: str
    tolerant: bool
    groups: Groups

    def __init__(
        self, source: Queue, target: Queue, drop: frozenset[str], on_progress: OnProgress | None
    ) -> None:
        self.source, self.target, self.drop = source, target, drop
        self.on_progress = on_progress
        self.report = ConversionReport()
        self._lossy: dict[int, tuple[str, ...]] = {}
        self.put_batches: list[tuple[int, int]] = []
        self._copied: list[tuple[int, int]] = []
        """First and last offset in the source of each of them."""

    def batches(self, phase: Literal["check", "copy", "verify"]) -> Iterator[list[_core.Message]]:
        """The source in pieces; `on_progress` is told how far it is."""
        scan = remaining(
            self.source.store, self.first, self.last, tags=self.tags, tolerant=self.tolerant
        )
        batch: list[_core.Message] = []
        messages = size = total = 0
        for message in scan:
            batch.append(message)
            size += len(message)
            if len(batch) >= BATCH_MESSAGES or size >= BATCH_BYTES:
                messages, total = messages + len(batch), total + size
                yield batch
                self._tell(phase, messages, total, (message.offset or 0) + 1)
                batch, size = [], 0
        if batch:
            messages, total = messages + len(batch), total + size
            yield batch
        self._tell(phase, messages, total, self.last)
        self.report.damage = scan.damage

    def _tell(
        self, phase: Literal["check", "copy", "verify"], messages: int, size: int, at: int
    ) -> None:
        if self.on_progress is not None:
            self.on_progress(Progress(phase, messages, size, at, self.last))

    def check(self, where: Queue | str | os.PathLike[str]) -> None:
        """Asks the target about every message; refuses what was not named in `drop`."""
        losses = Losses(self.target, self.drop, "offset", place_of(where))
        for batch in self.batches("check"):
            for message in batch:
                assert message.offset is not None
                names = losses.of(message, message.offset)
                if names:
                    self._lossy[message.offset] = names
        losses.refuse()
        self.report.lost = dict(losses.counts)

    def kept(self, message: _core.Message) -> _core.Message | None:
        """The message as the target gets it; none when nothing of it is copied."""
        assert message.offset is not None
        return kept(message, self._lossy.get(message.offset, ()))

    def copy(self) -> None:
        """Appends; every batch becomes visible together."""
        report, into, out_of = self.report, self.target.store.format, self.source.store.format
        for batch in self.batches("copy"):
            going, offsets = [], list[int]()
            for message in batch:
                kept = self.kept(message)
                if kept is not None:
                    going.append(into.as_stored(kept, message, out_of))
                    offsets.append(message.offset or 0)
                    self.groups.going(message.offset or 0)
            report.left_out += len(batch) - len(going)
            offset = self.target.put_many(going)
            if offset is None:
                continue
            self.put_batches.append((offset, len(going)))
            self._copied.append((offsets[0], offsets[-1]))
            report.first = offset if report.first is None else report.first
            report.messages += len(going)
            report.bytes += sum(map(len, going))

    def verify(self) -> None:
        """Reads both queues again: each message must be what it was."""
        originals = self._originals()
        ahead = next(originals, None)
        for (offset, count), (first, last) in zip(self.put_batches, self._copied, strict=True):
            batch = []
            while ahead is not None and (ahead[0].offset or 0) <= last:
                batch.append(ahead)
                ahead = next(originals, None)
            if len(batch) < count and self.source.offsets().head > first:
                self.report.gone += count
            else:
                self._verify_batch(batch, offset)

    def _originals(self) -> Iterator[tuple[_core.Message, _core.Message]]:
        """Each message that was copied, as it is and as the target should have it."""
        for batch in self.batches("verify"):
            for message in batch:
                wanted = self.kept(message)
                if wanted is not None:
                    yield message, wanted

    def _verify_batch(self, batch: list[tuple[_core.Message, _core.Message]], offset: int) -> None:
        copies = iter(self.target.scan(start=offset))
        for message, wanted in batch:
            found = next(copies, None)
            if found is None:
                raise ConvertError(
                    f"{self.target.path}: the copy of offset {message.offset} is missing"
                )
            self._compare(message, wanted, found)
            self.report.verified += 1

    def _compare(
        self, original: _core.Message, wanted: _core.Message, found: _core.Message
    ) -> None:
        different = [
            name
            for name in ("tag", "id", "key")
            if getattr(wanted, name) is not None and getattr(wanted, name) != getattr(found, name)
        ]
        is_json = self.target.store.capabilities.json_bodies
        is_same, held = _is_same_value if is_json else bytes.__eq__, found.headers
        if not is_same(wanted.body, found.body):
            different.append("body")
        if any(
            name not in held or not is_same(value.encode(), held[name].encode())
            for name, value in wanted.headers.items()
        ):
            different.append("headers")
        time, stored = wanted.timestamp_ns, found.timestamp_ns
        if time is not None and self.target.store.capabilities.timestamps and time != stored:
            if any(time // step * step == stored for step in TIME_STEPS_NS):
                self.report.rounded += 1
            else:
                different.append("timestamp")
        if original.number is not None and found.number not in (None, original.number):
            self.report.renumbered += 1
        if different:
            raise ConvertError(
                f"{self.target.path}: offset {found.offset} differs from offset "
                f"{original.offset} of {self.source.path} in {', '.join(different)}"
            )


def _is_same_value(wanted: bytes, found: bytes) -> bool:
    """Whether both are the same value in JSON: spaces, escapes and how a number is written are not
    kept."""
    if wanted == found:
        return True
    try:
        return bool(_typed(json.loads(wanted)) == _typed(json.loads(found)))
    except ValueError:
        return False


def _typed(value: Any) -> Any:
    """A JSON value in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {name: _typed(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_typed(one) for one in value]
    return type(value).__name__, value
