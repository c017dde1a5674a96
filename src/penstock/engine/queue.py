"""The queue: what users open.

    with penstock.Queue("orders") as queue:
        queue.put(b"…", tag="eu.created")
        message = queue.get(timeout=1)
        message.ack()

`put` and `get` are native methods bound to the instance, one call each from Python to bytes,
unless a subclass, or a test that patched the class, has its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from itertools import islice

from penstock import _core
from penstock import clock as clocks
from penstock.engine import exclusive, kept_options, open_queues, paths, retrying_writer
from penstock.engine.maintenance import Maintenance
from penstock.engine.open_groups import OpenGroups
from penstock.errors import ClosedError, NoQueueError, OffsetError, OptionError, typed
from penstock.formats import registry
from penstock.formats.store import Store
from penstock.formats.values import End, Verdict
from penstock.hints import TYPE_CHECKING, Any, Self, Unpack
from penstock.logs import renamed
from penstock.options import (
    DEFAULT_GROUP,
    CodecName,
    Dialect,
    Durability,
    GroupKeywords,
    GroupOptions,
    KeptKeywords,
    QueueKeywords,
    QueueOptions,
    check_count,
    check_timeout,
)
from penstock.places import Path
from penstock.sidecar import opening

if TYPE_CHECKING:
    from types import ModuleType

    from penstock.engine import positions
    from penstock.engine.codecs import Codec
    from penstock.engine.group import Group
    from penstock.engine.repair import Report
    from penstock.engine.table import Head, Scan

# Most programs only open a queue, put and get. Everything else is imported when it is first used.


@cache
def _table() -> ModuleType:
    """What a scan is made of: to import names anew takes a sixth of the time to make one."""
    from penstock.engine import table

    return table


def is_arrow(items: Any) -> bool:
    """Whether it is an array or a table of any library that speaks Arrow's C interface."""
    return hasattr(items, "__arrow_c_stream__") or hasattr(items, "__arrow_c_array__")


def refuse_one(items: Any) -> None:
    """An error for one value where many are asked for: its letters or its keys would be put, and a
    codec may well take them."""
    if isinstance(items, str | bytes | bytearray | memoryview | dict):
        kind = type(items).__name__
        raise TypeError(f"put_many() takes a list or an iterator, not {kind}; put() takes one")


class Queue:
    """A durable queue in a folder, shared by any number of processes and threads."""

    path: Path
    codec: Codec | None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        layout: str | None = None,
        create: bool = True,
        read_only: bool = False,
        clock: clocks.ManualClock | _core.Clock | None = None,
        codec: CodecName | Codec | type | None = None,
        **options: Unpack[QueueKeywords],
    ) -> None:
        """Opens the queue at `path`; creates it when nothing is there.

        `create=False` never creates; `read_only=True` changes nothing on disk; with `codec`
        (`bytes`, `str`, `json`, `cbor`, `logrecord`, a dataclass, a msgspec struct, or an object)
        `put` takes objects and `message.value` gives them back. The other options are those of
        `QueueOptions`. The options given when the queue was created are stored in it.
        """
        self.path = paths.absolute(path)
        self._said = QueueOptions.checked(options)
        self._given = QueueOptions(**self._said)
        self._format, self._layout = format, layout
        self._create, self._read_only = create and not read_only, read_only
        self._clock = clocks.native(clock)
        self._open_groups = OpenGroups(self)
        self._maintenance: Maintenance | None = None
        self._turn = threading.RLock()
        """Held by the thread that closes the queue, or reopens it after a fork."""
        self._patience = threading.local()
        self._codec_given = codec
        self._find_codec(codec)  # An unknown name is refused before anything is created.
        self._is_closed, self._pid = False, os.getpid()
        self._open()
        open_queues.add(self)

    def _open(self) -> None:
        if not self._create and not self.path.exists():
            raise NoQueueError(self.path)
        is_new = self._create and registry.is_empty(self.path)
        said = self._said | {"codec": self._codec_given}
        held = {} if is_new else kept_options.load(opening.sidecar_of(self.path))
        kept_options.tell(self.path, held, said)
        kept_codec = held.pop("codec", None)
        self.codec = self._find_codec(self._codec_given or kept_codec)
        self._given = QueueOptions.of(**held | self._said)
        self.store: Store = registry.open_store(
            self.path, format=self._format, layout=self._layout, options=self._given,
            clock=self._clock, create=self._create, live=not self._read_only,
        )  # fmt: skip
        kept_options.tell_own(self.store, self._said)
        self._recent = _core.Recent()
        if self._read_only:
            return
        try:
            if is_new:
                kept_options.first(self.store, said)
            self._open_live()
        except BaseException:
            # The caller gets no handle to close, so what is open now would stay open.
            self.store.drop()
            raise

    def _open_live(self) -> None:
        self.store.on_full = self._make_room
        exclusive.sweep(self.store)
        if self.codec is None and type(self).put is _OWN_PUT:
            self.put = retrying_writer.writer(self).put  # type: ignore[method-assign]
        if self.store.was_first:
            self._resolve_sinks()
        self.store.need_shared().steady_wall_ns(
            self.store.clock
        )  # From here on, jumps of the wall clock do not count.
        if self.options.durability is not Durability.PROCESS or self._has_retention():
            self._maintenance = Maintenance(self)

    def _find_codec(self, codec: CodecName | Codec | type | None) -> Codec | None:
        if codec is None:
            return None
        from penstock.engine import codecs

        return codecs.find(codec)

    def _make_room(self, needed: int) -> None:
        from penstock.engine import when_full

        when_full.make(self, needed)

    def _resolve_sinks(self) -> None:
        if (self.store.sidecar / "sinks").is_dir():
            from penstock.engine import intents

            intents.resolve_all(self.store)

    def _free_consumed(self) -> None:
        if self.store.capabilities.deletes_consumed:
            from penstock.engine import retention

            retention.free_consumed(self)

    def _has_retention(self) -> bool:
        return bool(self.options.retention_age_s or self.options.retention_bytes)

    # ── putting ────────────────────────────────────────────────────────────────────────────

    def put(
        self,
        body: Any,
        *,
        tag: str | None = None,
        id: str | None = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        delay: float | None = None,
        timestamp_ns: int | None = None,
    ) -> int:
        """Puts one message and returns its offset.

        Groups filter on `tag`; `id` is your own name for the message. Messages with the same `key`
        are delivered in order. `headers` are text. `delay` holds the message back, in seconds.
        """
        self.ensure_open()
        if self.codec is not None:
            body = self.codec.encode(body)
        return retrying_writer.writer(self).put(
            body, tag=tag, id=id, key=key, headers=headers, delay=delay, timestamp_ns=timestamp_ns
        )

    def put_many(
        self, items: Any, *, tag: str | None = None, delay: float | None = None
    ) -> int | None:
        """Puts a list of bodies, an iterator of `Message`, or an Arrow array or table.

        They become visible together; a list longer than half a segment is put in pieces, in
        order. Returns the offset of the first message, or `None` for an empty list.
        """
        self.ensure_open()
        if is_arrow(items):
            return retrying_writer.writer(self).put_arrow(items, tag=tag, delay=delay)
        refuse_one(items)
        if self.codec is not None:
            encode = self.codec.encode
            items = [one if isinstance(one, _core.Message) else encode(one) for one in items]
        return retrying_writer.writer(self).put_list(items, tag=tag, delay=delay)

    @contextmanager
    def put_timeout(self, seconds: float | None) -> Iterator[None]:
        """Inside it, puts of this thread wait up to `seconds` for room in a full queue."""
        check_timeout(seconds)
        before = self.put_timeout_s
        self._patience.seconds = seconds
        try:
            yield
        finally:
            self._patience.seconds = before

    def patience(self, seconds: float | None) -> AbstractContextManager[None]:
        """The former name of `put_timeout`; the next release removes it."""
        renamed("Queue.patience()", "Queue.put_timeout()")
        return self.put_timeout(seconds)

    @property
    def put_timeout_s(self) -> float | None:
        """How long a put of this thread waits for room; `None` waits for ever."""
        found: float | None = getattr(self._patience, "seconds", self.options.put_timeout_s)
        return found

    # ── getting ────────────────────────────────────────────────────────────────────────────

    def group(
        self,
        name: str = DEFAULT_GROUP,
        *,
        start: positions.Where | Group | None = None,
        create: bool = True,
        **options: Unpack[GroupKeywords],
    ) -> Group:
        """Opens the group of this name; creates it if there is none.

        `start` says where a new group begins: `earliest` (the default), `latest`, an offset, a
        time, or another group. `create=False` never creates one. The other options are those of
        `GroupOptions`; they are stored with the group.
        """
        self.ensure_open()
        self._need_live()
        how = {"create": create} | ({} if start is None else {"start": start})
        said = GroupOptions.said(options)
        found, is_fresh = self._open_groups.group(name, {**how, **said})
        found.name_dead_letters(said.get("dead_letter"))
        if said and not is_fresh:
            found.refresh()
            wanted: dict[str, Any] = {k: v for k, v in said.items() if v is not None}
            changes = {k: v for k, v in wanted.items() if getattr(found.options, k, None) != v}
            if changes:
                found.configure(**changes)
        return found

    def broadcast(
        self, *, start: positions.Where | Group = "latest", **options: Unpack[GroupKeywords]
    ) -> Group:
        """Creates a group for one consumer. It gets every message put from now on, and is deleted
        when the consumer closes it."""
        name = f"only-{os.getpid()}-{os.urandom(4).hex()}"
        options["exclusive"] = True
        return self.group(name, start=start, **options)

    def groups(self) -> list[str]:
        """The names of all groups."""
        from penstock.engine.group import names

        return names(self.store)

    def get(
        self, timeout: float | None = None, *, visibility: float | None = None
    ) -> _core.Message:
        """The next message of the default group; raises `Empty` if none comes within `timeout`."""
        group = self.group()
        if type(self).get is _OWN_GET and group.is_native:
            self.get = group.core.get  # type: ignore[method-assign]
            if not self._open_groups.has(group):
                self.__dict__.pop("get", None)  # Another thread has closed or deleted it meanwhile.
        return group.get(timeout, visibility=visibility)

    def get_many(
        self, count: int, timeout: float | None = 0.0, *, visibility: float | None = None
    ) -> list[_core.Message]:
        """Up to `count` messages of the default group, without waiting for more; `[]` if there are
        none."""
        return self.group().get_many(count, timeout, visibility=visibility)

    def __iter__(self) -> Iterator[_core.Message]:
        """Waits for each message of the default group; ends when the queue is closed."""
        return iter(self.group())

    __contains__ = None
    """`x in queue` would take and ack message after message to find out: it is a `TypeError`."""

    def peek(self, count: int = 1) -> list[_core.Message]:
        """The next unread messages of the default group, without taking them."""
        return self.group().peek(count)

    def seek(self, where: positions.Where, *, id: str | None = None) -> int:
        """Moves the default group to `where`; with `id`, only if the message there has that id."""
        return self.group().seek(where, id=id)

    @property
    def lag(self) -> int:
        """How many messages the default group has not read yet."""
        return self.group().lag

    # ── reading without taking ─────────────────────────────────────────────────────────────

    def scan(
        self,
        *,
        start: positions.Where = "earliest",
        end: positions.Where | None = None,
        tags: str = "",
        dialect: Dialect = "modern",
        columns: Sequence[str] | None = None,
        tolerant: bool = False,
    ) -> Scan:
        """A range as a table (Arrow C stream) or as messages; changes nothing.

        `start` and `end` are offsets, times, `number:N`, `earliest` or `latest`.
        """
        self.ensure_open()
        table = _table()
        first, last = table.bounds(self.store, start, end)
        # By place: a class that is called by names makes a dict of them.
        scan: Scan = table.Scan(
            self.store, first, last, tags, dialect, columns, tolerant, self.codec, self._recent
        )
        return scan

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Every message kept, as an Arrow C stream: `duckdb.sql("from queue")`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def head(self, count: int = 5) -> Head:
        """The oldest messages kept, without taking them; drawn as a table in a notebook."""
        from penstock.engine.table import Head

        return Head(islice(self.scan(), check_count(count)))

    def to_pandas(self, **scan: Any) -> Any:
        """A pandas frame of `scan(**scan)`; needs pyarrow and pandas."""
        return self.scan(**scan).to_pandas()

    def to_polars(self, **scan: Any) -> Any:
        """A Polars frame of `scan(**scan)`."""
        return self.scan(**scan).to_polars()

    def _repr_html_(self) -> str:
        """What a notebook shows: the queue, and its oldest messages."""
        from penstock.engine.table import html_safe

        if self._is_closed:
            return f"<pre>{html_safe(repr(self))}</pre>"
        kept = f"{len(self)} messages, {self.store.used_bytes()} bytes"
        return f"<pre>{html_safe(repr(self))}\n{kept}</pre>" + self.head()._repr_html_()

    def message_at(self, offset: int, *, id: str | None = None) -> _core.Message:
        """The message at an offset; with `id`, raises `OffsetError` if it has another id."""
        from penstock.engine.positions import resolve

        resolve(self.store, offset, id)
        found = next(iter(self.scan(start=offset)), None)
        if found is None or found.offset != offset:
            raise OffsetError(f"{self.path}: no message is at offset {offset}")
        return found

    def count_from(self, offset: int) -> int:
        """How many messages there are from `offset` to the tail."""
        from penstock.engine.facts import messages_from

        return messages_from(self.store, offset)

    def offsets(self) -> End:
        """Where the queue begins and ends now, and up to where it is on the disk."""
        self.ensure_open()
        return self.store.end()

    def end(self) -> End:
        """The former name of `offsets`; the next release removes it."""
        renamed("Queue.end()", "Queue.offsets()")
        return self.offsets()

    # ── keeping ────────────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """Returns when everything put so far, and every ack of this process, is on the disk."""
        self.ensure_open()
        self.store.need_writer().sync()
        self.sync_groups()
        self._free_consumed()

    def sync_groups(self) -> None:
        """Syncs the journals of the groups that this process has open or looks at."""
        for group, is_consumed in self._open_groups.all_groups():
            if is_consumed:
                group.refresh()
            group.core.sync_progress()

    def trim(self, before: positions.Where | None = None, *, dry_run: bool = False) -> int:
        """Deletes whole segments before `before`, or as retention says; returns how many."""
        from penstock.engine import positions, retention

        self.ensure_open()
        offset = None if before is None else positions.resolve(self.store, before, name="before")
        planned = retention.plan(self, offset)
        return len(planned.segments) if dry_run else len(retention.apply(self, planned))

    def retain(self) -> None:
        """Deletes what retention allows. The maintenance thread calls this from time to time."""
        # The newest segment always stays. A short-lived program rarely has another, and must not
        # wait for the interpreter while this thread imports what it does not need.
        if self._has_retention() and not self._is_closed and len(self.store.segments()) > 1:
            from penstock.engine import retention

            planned = retention.plan(self)
            if planned.segments:
                retention.apply(self, planned)
        self._free_consumed()

    def purge(self) -> int:
        """Marks every message as read, for every group, and deletes the segments that this frees.

        Returns how many messages the default group had not read.
        """
        from penstock.engine import retention

        self.ensure_open()
        return retention.purge(self)

    def verify(self) -> Verdict:
        """Checks every frame; changes nothing."""
        from penstock.engine import verifying  # Few programs ever do.

        self.ensure_open()
        return verifying.verify(self.store)

    def repair(self, *, dry_run: bool = False) -> Report:
        """Sets damage aside so that readers go on; every whole message stays where it is.

        No other process may have the queue open. This handle is closed for the repair and then
        opened again: its leases end, and its groups must be opened again with `group(name)`.
        """
        from penstock.engine import repair

        self.ensure_open()
        again = partial(
            repair.repair, self.path, format=self._format, layout=self._layout,
            options=self._given, clock=self._clock, dry_run=dry_run,
        )  # fmt: skip
        if dry_run:
            return again()
        self._need_live()
        self.close()
        try:
            return again()
        finally:
            self._reopen()

    def _reopen(self) -> None:
        self._is_closed = False
        self._open_groups = OpenGroups(self)
        self._open()
        open_queues.add(self)

    def look(self, name: str) -> Group | None:
        """A group to look at, without consuming; also one that belongs to another consumer."""
        return self._open_groups.look(name)

    def is_news(self, name: str) -> bool:
        """Whether this is the first time that the group is reported as unreadable."""
        return self._open_groups.is_news(name)

    def open_groups(self) -> list[Group]:
        """The groups that this process has open."""
        return self._open_groups.groups()

    def known_groups(self) -> set[str]:
        """The names of the groups that this process has open or looks at."""
        return {group.name for group, _ in self._open_groups.all_groups()}

    def keep_group(self, group: Group) -> None:
        """Remembers a group under its new name."""
        self._open_groups.keep(group)

    def forget_group(self, name: str) -> None:
        """Forgets a group that was closed, deleted or renamed."""
        self._open_groups.forget(name)
        if name == DEFAULT_GROUP:
            self.__dict__.pop("get", None)

    def dead_letters(self, path: Path) -> Queue:
        """The queue for dead letters at `path`, open as long as this one is."""
        from penstock.engine import deadletter

        return self._open_groups.grave(
            path, lambda: deadletter.open_at(path, self.store, type(self))
        )

    def redrive(self, target: Queue | None = None, *, limit: int | None = None) -> int:
        """This queue holds dead letters: moves them back to their origin, or to `target`."""
        from penstock.engine.redrive import redrive

        if target is not None:
            if not isinstance(target, Queue):
                raise OptionError("target", target, "an open Queue: redrive(Queue(path))")
            paths.refuse_same(self.path, target.path, "move")
        key, trust = self.options.key, self.options.trust_others
        reopen = partial(type(self), create=False, key=key, trust_others=trust)
        return redrive(self, target, reopen, limit=limit)

    # ── about the queue ────────────────────────────────────────────────────────────────────

    @property
    def meta(self) -> dict[str, Any]:
        """What the format keeps about the queue."""
        return self.store.format.meta()

    def set_meta(self, **values: Any) -> None:
        """Changes what the format keeps about the queue, and what groups took over from it."""
        kept_options.change_meta(self, values)

    @property
    def options(self) -> QueueOptions:
        """The options as given, combined with the settings in the format's own files."""
        return self.store.options

    @property
    def kept_options(self) -> dict[str, Any]:
        """The options stored in the queue: they apply to openings that give no others."""
        self.ensure_open()
        return kept_options.load(self.store.sidecar)

    def set_options(self, **options: Unpack[KeptKeywords]) -> None:
        """Changes the stored options, for later openings; `None` restores the default.

        These can be stored: `durability`, `segment_bytes`, `max_bytes`, `when_full`,
        `max_message_bytes`, `compression`, `delay_s`, the options of retention, and `codec`.
        """
        self.ensure_open()
        self._need_live()
        kept_options.change(self, options)

    @property
    def is_poisoned(self) -> bool:
        """Whether a sync has failed."""
        shared = self.store.shared
        return shared is not None and shared.is_poisoned

    @property
    def is_closed(self) -> bool:
        """Whether the queue was closed."""
        return self._is_closed

    def stats(self) -> dict[str, Any]:
        """Facts about the queue and all its groups, as plain values."""
        from penstock.engine import facts, overview

        self.ensure_open()
        return {
            **facts.of_queue(self.store),
            "segments": len(self.store.segments(fresh=True)),
            "poisoned": self.is_poisoned,
            "groups": overview.all_groups(self.store),
        }

    def __repr__(self) -> str:
        """The path, the format and the state."""
        state = "closed" if self._is_closed else f"tail {self.store.end().tail}"
        return f"<Queue {str(self.path)!r} {self.store.format.name} {self.store.layout}: {state}>"

    def __len__(self) -> int:
        """How many messages the queue keeps."""
        return self.count_from(self.store.end().head)

    def __bool__(self) -> bool:
        """A queue is always true, also when it is empty."""
        return True

    # ── life ───────────────────────────────────────────────────────────────────────────────

    def _need_live(self) -> None:
        if self._read_only:
            raise ClosedError(f"{self.path}: the queue is open for reading only")

    def ensure_open(self) -> None:
        """Reopens after a fork; raises after `close`."""
        if self._is_closed:
            raise ClosedError()
        if self._pid != os.getpid():
            with self._turn:
                if self._pid != os.getpid():
                    self._open()
                    self._open_groups.reopen()
                    self._pid = os.getpid()  # Last: other threads continue as soon as they see it.

    def close(self) -> None:
        """Syncs and closes the queue. Leases of this process end; waits raise `ClosedError`."""
        with self._turn:
            if not self._is_closed:
                self._close()

    def _close(self) -> None:
        """If one step raises, the others still run: a closed queue leaves nothing open. But Ctrl-C
        ends them all, since each may wait for a process that is frozen."""
        is_ours = self._pid == os.getpid()
        met: list[Exception] = []
        try:
            for step in self._closing_steps() if is_ours else (self._be_closed,):
                try:
                    step()
                except Exception as error:
                    met.append(error)
            if met:
                raise met[0]
        except BaseException:
            self._be_closed()
            if is_ours:
                if self._maintenance is not None:
                    self._maintenance.tell_to_stop()
                for group in self._open_groups.close()[0]:
                    group.let_go()
                self.store.drop()  # The next opener recovers the queue.
            raise

    def _closing_steps(self) -> Iterator[Callable[[], object]]:
        if not self._read_only and not self.is_poisoned:
            # Other programs that read the files do not find what was acked.
            yield self._free_consumed
        yield self._be_closed
        self.store.on_full = None  # It refers to this queue: a cycle.
        if not self._read_only:
            yield lambda: self.store.need_shared().signal()
        if self._maintenance is not None:
            yield self._maintenance.stop
            self._maintenance = None
        groups, graves = self._open_groups.close()
        for group in groups:
            yield group.core.close if self.is_poisoned else group.close
            yield group.let_go
        for grave in graves:
            yield grave.close
        yield self.store.close

    def _be_closed(self) -> None:
        self._is_closed = True
        open_queues.discard(self)
        for name in ("put", "get"):
            self.__dict__.pop(name, None)

    def after_fork(self) -> None:
        """Called in a forked child: the open files are the parent's; the next use reopens."""
        self._turn = threading.RLock()
        self.store.abandon()
        self._maintenance = None
        for name in ("put", "get"):
            self.__dict__.pop(name, None)
        self._open_groups.after_fork()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled handle holds the path and the options; it is opened again where it arrives."""
        options = self._said | {"codec": self._codec_given}
        return _reopen, (str(self.path), self._format, self._read_only, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Not `put` and `put_many`: they run the user's code, whose errors pass unchanged.
typed(
    Queue, "__init__", "_open", "group", "broadcast", "groups", "get", "get_many", "peek", "seek",
    "lag", "scan", "message_at", "count_from", "offsets", "sync", "sync_groups", "trim", "retain",
    "purge", "verify", "repair", "look", "dead_letters", "redrive", "meta", "set_meta", "stats",
    "head", "kept_options", "set_options",
    "__len__", "close",
)  # fmt: skip

_OWN_PUT, _OWN_GET = Queue.put, Queue.get
"""The methods defined here. A subclass or a patch that replaces them is respected."""


def _reopen(path: str, format: str | None, read_only: bool, options: dict[str, Any]) -> Queue:
    return Queue(path, format=format, create=False, read_only=read_only, **options)
