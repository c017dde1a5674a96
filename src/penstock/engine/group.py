"""Groups: consumers that share progress.

Unicast: consumers of one group share it. Multicast: every group gets every message. Broadcast: a
consumer with a group of its own, which we name, and delete when the consumer leaves. Consumers may
be threads, asyncio tasks or processes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

from penstock import _core
from penstock.disk import files
from penstock.engine import deadletter, facts, positions
from penstock.errors import (
    ClosedError,
    Empty,
    GroupError,
    OffsetError,
    PenstockError,
    no_group,
    typed,
)
from penstock.hints import TYPE_CHECKING, Any, Protocol, Self, Unpack
from penstock.logs import logger
from penstock.options import (
    DEFAULT_GROUP,
    OLD_GROUP,
    Durability,
    GroupKeywords,
    GroupOptions,
    check_count,
    of_today,
)
from penstock.places import Path
from penstock.records import fields
from penstock.sidecar import groups as group_files

if TYPE_CHECKING:
    from penstock.engine.codecs import Codec
    from penstock.engine.table import Scan
    from penstock.formats.contract import OwnGroups
    from penstock.formats.store import Store
    from penstock.formats.values import End
    from penstock.options import Dialect, QueueOptions


def folder_of(store: Store, name: str) -> Path:
    """Where a group's files are."""
    if not files.is_name(name):
        allowed = "up to 80 letters, digits, _ . -, the first no dot"
        raise GroupError(f"{store.path}: {name!r} can't be a group's name; use {allowed}")
    return store.sidecar / "groups" / name


def names(store: Store) -> list[str]:
    """All groups: ours, and those that the format's own files know."""
    folder = store.sidecar / "groups"
    ours = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted({*filter(files.is_name, ours), *store.format.groups.bookmarks()})


def has_progress(folder: Path) -> bool:
    """Whether the folder holds a group that has read messages, whatever its options say."""
    return any(name.startswith("journal-") for name in files.names_in(folder))


def load_options(folder: Path) -> GroupOptions | None:
    """The options in the group's file; `None` for a new group.

    The file is only ever replaced as a whole, so anything unreadable in it was not written by us.
    That is an error: going on with default options would deliver messages in another way.
    """
    import json

    path = folder / "group.json"
    raw = files.read_if_there(path, files.SMALL_BYTES_MAX)
    if raw is None:
        return None
    try:
        found = json.loads(raw)
        if found.pop("check", None) not in (None, files.check_of(found)):
            raise ValueError("its check does not fit (after an edit by hand, remove `check`)")
        known = {field.name for field in fields(GroupOptions)}
        found = of_today(found, OLD_GROUP)
        return GroupOptions(**{name: value for name, value in found.items() if name in known})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        advice = "delete this file to go on with the usual options, or the folder for a new group"
        raise GroupError(f"{path}: no options of a group: {error}; {advice}") from error


def store_options(folder: Path, options: GroupOptions) -> None:
    """Writes the group's file."""
    group_files.write_options(folder, options.as_dict())


class OpenQueue(Protocol):
    """What a queue's parts (groups, maintenance, retention, dead letters) may ask of the queue.

    `Queue` fulfils it. The parts name this instead of `Queue`, which is built from them.
    """

    path: Path
    store: Store
    codec: Codec | None

    @property
    def options(self) -> QueueOptions:
        """The options of the open queue."""

    @property
    def put_timeout_s(self) -> float | None:
        """How long a put of this thread waits for room; `None` waits for ever."""

    @property
    def is_poisoned(self) -> bool:
        """Whether a sync has failed."""

    def ensure_open(self) -> None:
        """Opens again after a fork; raises after `close`."""

    def put_many(self, items: Any) -> int | None:
        """Puts a list of messages; the offset of the first."""

    def scan(self, *, start: positions.Where, tags: str, dialect: Dialect) -> Scan:
        """The messages from `start` on; changes nothing."""

    def groups(self) -> list[str]:
        """The names of all groups."""

    def group(self, name: str = DEFAULT_GROUP, *, create: bool = True) -> Group:
        """Opens the group of this name."""

    def look(self, name: str) -> Group | None:
        """A group to look at, without consuming; `None` if there is no such group."""

    def open_groups(self) -> list[Group]:
        """The groups that this process consumes through."""

    def known_groups(self) -> set[str]:
        """The names of the groups that this process has open or looks at."""

    def keep_group(self, group: Group) -> None:
        """Remembers a group under its new name."""

    def forget_group(self, name: str) -> None:
        """Forgets a group that was closed, deleted or renamed."""

    def is_news(self, name: str) -> bool:
        """Whether this is the first time that the group is reported as unreadable."""

    def sync_groups(self) -> None:
        """Syncs what this process has acked."""

    def retain(self) -> None:
        """Deletes what retention allows."""

    def dead_letters(self, path: Path) -> OpenQueue:
        """The queue for dead letters at `path`, open as long as this one is."""

    def close(self) -> None:
        """Syncs and lets go."""


class LetGo:
    """Takes the place of a group's native part when its queue is closed: every use raises."""

    def __getattr__(self, name: str) -> Any:
        raise ClosedError()


class Group:
    """One group, open in this process."""

    queue: OpenQueue
    name: str
    folder: Path
    options: GroupOptions
    core: _core.Group

    def __init__(
        self,
        queue: OpenQueue,
        name: str,
        *,
        start: positions.Where | Group = "earliest",
        create: bool = True,
        look: bool = False,
        **options: Any,
    ) -> None:
        """Opens the group, or creates it to read from `start` on.

        With `look`, the handle only looks: it may then be another consumer's exclusive group.
        """
        self.queue, self.name = queue, name
        self.folder = folder_of(queue.store, name)
        self._start: positions.Where | Group = start
        self._wanted = {key: value for key, value in options.items() if value is not None}
        self._create, self._is_look = create, look
        self._seat: _core.FolderLock | None = None
        self._version = -1
        self.options = GroupOptions()
        self.bury: Callable[[_core.Message, str | None], None] | None = None
        """If it is set: gets the messages that would else go to the dead letters."""
        self._open()

    @property
    def _own(self) -> OwnGroups:
        """What the format's own files know of groups."""
        return self.queue.store.format.groups

    def _open(self) -> None:
        # Alone: if another process deleted or renamed the group meanwhile, this one would pair the
        # table of the old group with the journal of a new one of its name.
        self.queue.store.need_shared().alone(self._open_alone)
        self._say_what_was_lost()
        self._check_cursor()
        if self.queue.store.was_first:
            self.core.release_dead()
        if self.is_native:
            self.get = self.core.get  # type: ignore[method-assign]
            self.get_many = self.core.get_many  # type: ignore[method-assign]

    def _open_alone(self) -> None:
        stored = load_options(self.folder)
        has_native = self._wanted.get("native_cursor", stored is None or stored.native_cursor)
        own = self._own.bookmarks().get(self.name) if has_native else None
        if stored is None and own is None and not self._create:
            raise no_group(self.queue.path, self.name, names(self.queue.store))
        base = stored or GroupOptions(**self._own.defaults(self.name))
        self.options = base.changed(**self._wanted)
        deadletter.refuse_own(self.queue.path, self.options)
        if stored is not None and stored.ack != self.options.ack:
            raise GroupError(
                f"group {self.name!r} was made with ack={stored.ack!r}; delete it, or use another"
            )
        start = own if own is not None else 0
        if stored is None:
            start = self._starting_offset(own)
            group_files.make(self.folder)
        try:
            self._open_files(stored, own, start)
        except BaseException:
            if stored is None and own is None:
                self._unmake()  # Else the next opener would find half a group.
            raise

    def _unmake(self) -> None:
        self._stand_up()
        with suppress(OSError, PenstockError):
            group_files.remove(self.folder)
            if self.options.native_cursor:
                self._own.drop(self.name)

    def _open_files(self, stored: GroupOptions | None, own: int | None, start: int) -> None:
        if self.options.exclusive and not self._is_look:
            self._sit_down()
        entered = self._own.leases(self.name) if own is not None else []
        if self.options.native_cursor:
            self._own.note(self.name, self.options)
        self._own.recount()
        self.core = self._open_core(start, entered)
        if self.core.is_gone:
            # A process died while it deleted or renamed the group. It had marked the table as gone,
            # for the handles that were open then; they are no more.
            group_files.drop_table(self.folder)
            self.core = self._open_core(start, entered)
        if stored is None and isinstance(self._start, Group):
            self.core.copy_from(self._start.core)
        if self.queue.codec is not None:
            self.core.set_codec(self.queue.codec)
        if self.queue.options.retention_age_s:
            self.core.expire_after(self.queue.options.retention_age_s)
        if stored != self.options:
            store_options(self.folder, self.options)
            self.core.bump_version()
        self._version = self.core.version

    def _open_core(self, start: int, entered: list[tuple[int, int]]) -> _core.Group:
        options = self.options
        # By a weak reference: the collector does not see into native objects, and a closed group
        # would keep its files open for ever.
        return _core.Group(
            self.queue.store.need_shared(), self.folder, self.queue.store.clock,
            weakref.proxy(self),
            start=start, always=self.queue.options.durability is Durability.ALWAYS,
            mirror=self._own.mirror(self.name) if options.native_cursor else None,
            publish=self.queue.store.publish, entered=entered, options=options.native(),
        )  # fmt: skip

    @property
    def is_native(self) -> bool:
        """Whether `get` and `get_many` are the native methods: neither is replaced."""
        return (type(self).get, type(self).get_many) == _OWN

    def _alone(self, work: Callable[[], None]) -> None:
        """Calls `work` while no other process opens, changes, deletes or renames the group."""

        def inside() -> None:
            if self.core.is_gone:
                raise GroupError(f"group {self.name!r} was deleted or renamed; open it again")
            self.queue.store.ensure_in_place()
            work()

        self.queue.store.need_shared().alone(inside)

    def _sit_down(self) -> None:
        """Keeps everyone else out for as long as this process has the group open."""
        if self._seat is None:
            self._seat = _core.FolderLock.take(self.folder)
        if self._seat is None:
            raise GroupError(
                f"group {self.name!r} of {self.queue.path} is exclusive and another consumer has "
                f"it; use queue.broadcast() for a group of your own"
            )

    def _stand_up(self) -> None:
        if self._seat is not None:
            self._seat.close()
            self._seat = None

    def _starting_offset(self, own: int | None) -> int:
        if own is not None:
            return own
        if isinstance(self._start, Group):
            return self._start.cursor
        return positions.resolve(self.queue.store, self._start, name="start")

    def _say_what_was_lost(self) -> None:
        if self.core.torn is not None:
            path, at = self.core.torn
            text = "%s:%d: a record that does not check; what was acked after it comes again"
            logger("groups").warning(text, path, at)

    def _is_nowhere(self, offset: int, end: End) -> bool:
        """Whether only the table says that reading goes on at `offset`, and no message begins
        there: a group that acks by getting moves its word without a record until the next sync."""
        if self.core.replayed_next in (None, offset) or offset <= end.head:
            return False
        store = self.queue.store
        try:
            for _, first, last in store.ranges(end.head, end.tail):
                if first < offset < last:
                    return not _core.is_boundary(store.segment_at(first), offset, last)
                if offset in (first, last):
                    return False
        except PenstockError:
            return False  # Reading there raises the error.
        return True

    def _check_cursor(self) -> None:
        """A cursor above the tail (power loss) or below the head (retention) is set right."""
        # First we ask where the group is, then where the queue ends. The other way round, messages
        # that others put and take in between would look like a cursor above the tail.
        next_unread = self.core.next
        end = self.queue.store.end()
        own = self._own.cursor(self.name) if self.queue.store.was_first else None
        if own is not None and self.core.cursor < own <= end.tail:
            # A program that is not ours has consumed messages, as the format's own file says.
            self.core.seek(positions.check(self.queue.store, max(own, end.head)))
        elif next_unread > end.tail:
            self.core.cut(end.tail)
        elif self._is_nowhere(next_unread, end):
            self.core.cut(max(end.head, self.core.replayed_next or 0))
        elif self.core.cursor < end.head:
            self.core.overtake(end.head)

    # ── the native host ────────────────────────────────────────────────────────────────────

    def segment_at(self, offset: int) -> _core.Segment:
        """The segment that holds `offset`."""
        return self.queue.store.segment_at(offset)

    def follow(self) -> None:
        """Another program has appended."""
        self.queue.store.follow()

    def dead_letter(self, message: _core.Message, reason: str | None = None) -> None:
        """Moves a message to the dead letters, with the reason, and acks it here."""
        if self.bury is not None:
            self.bury(message, reason)
            return
        # In this order: a crash in between leaves the message in both queues, never in none.
        dead = self.queue.dead_letters(self.dead_letter_path)
        dead.put_many([deadletter.letter(message, self.queue.path, self.name, reason)])
        message.settle(True)  # If its lease has run out, another consumer moves it once more.

    @property
    def dead_letter_path(self) -> Path:
        """Where the group's dead letters go."""
        return deadletter.path_of(self.queue.path, self.folder, self.options)

    # ── consuming ──────────────────────────────────────────────────────────────────────────

    def get(
        self, timeout: float | None = None, *, visibility: float | None = None
    ) -> _core.Message:
        """The next message; raises `Empty` if none comes within `timeout` seconds."""
        self.queue.ensure_open()
        return self.core.get(timeout, visibility=visibility)

    def get_many(
        self, count: int, timeout: float | None = 0.0, *, visibility: float | None = None
    ) -> list[_core.Message]:
        """Up to `count` messages; waits for the first one only. `[]` if none comes in time."""
        self.queue.ensure_open()
        return self.core.get_many(count, timeout, visibility=visibility)

    def get_bodies(self, count: int, timeout: float | None = 0.0) -> list[bytes]:
        """The bodies alone of up to `count` messages, in half the time of `get_many`.

        Only where getting a message acks it (`ack="auto"`): a body alone can't be acked.
        """
        self.queue.ensure_open()
        return self.core.get_bodies(count, timeout)

    def __iter__(self) -> Iterator[_core.Message]:
        """Waits for each message; ends when the queue is closed.

        Leaving the loop's body normally acks a message that was not acked or nacked there;
        leaving it with an error nacks it.
        """
        return self.messages(None)

    __contains__ = None
    """`x in group` would take and ack message after message to find out: it is a `TypeError`."""

    def messages(self, timeout: float | None) -> Iterator[_core.Message]:
        """Like iterating, but ends when nothing comes within `timeout` seconds."""
        while True:
            try:
                message = self.get(timeout)
            except (Empty, ClosedError):
                return
            yield from self._settled(message)

    def _settled(self, message: _core.Message) -> Iterator[_core.Message]:
        try:
            yield message
        except GeneratorExit:
            # `break` or an exception in the loop's body: the message was not finished. A queue
            # that was closed meanwhile, at exit for instance, has given it back already.
            with suppress(ClosedError):
                message.settle(False)
            raise
        message.settle(True)

    def peek(self, count: int = 1) -> list[_core.Message]:
        """The next unread messages, without taking them."""
        count = check_count(count)
        tags, dialect, start = self.options.tags, self.options.dialect, self.core.next
        while True:
            try:
                return list(islice(self.queue.scan(start=start, tags=tags, dialect=dialect), count))
            except OffsetError:
                # Others have taken what lay there, and it was deleted meanwhile.
                again = max(self.core.next, self.queue.store.end().head)
                if again == start:
                    raise
                start = again

    def ack(self, receipt: str) -> None:
        """Acks the message that the receipt names."""
        self.core.ack(receipt)

    def nack(self, receipt: str, delay: float = 0.0) -> None:
        """Gives the message back that the receipt names; it is delivered again after `delay`."""
        self.core.nack(receipt, delay)

    def extend(self, receipt: str, seconds: float) -> None:
        """Extends the lease that the receipt names."""
        self.core.extend(receipt, seconds)

    def standing(self, offset: int) -> tuple[str, str] | None:
        """How the message at `offset` stands, and the receipt of its lease if it is out.

        `leased`, `delayed`, `ready` or `blocked`; none: it is done, or was not read yet.
        """
        return self.core.standing(offset)

    def ack_at(self, offset: int) -> bool:
        """Acks the message at `offset`, leased by any consumer or by none; false: it is gone."""
        return self.core.ack_at(offset)

    # ── position and settings ──────────────────────────────────────────────────────────────

    @property
    def cursor(self) -> int:
        """The lowest unacked offset."""
        return self.core.cursor

    @property
    def lag(self) -> int:
        """How many messages that pass the group's filter are unread."""
        return facts.lag(self.queue.store, self.options, self.core.next)

    @property
    def lag_bytes(self) -> int:
        """How many bytes of messages lie between the cursor and the tail."""
        return facts.lag_bytes(self.queue.store, self.core.cursor)

    @property
    def idle_ns(self) -> int:
        """How long the group has made no progress although there was something to read. Time counts
        from one call of this to the next."""
        return self.core.idle_ns(self.queue.store.end().tail)

    def seek(self, where: positions.Where, *, id: str | None = None) -> int:
        """Moves the group to `where`, and returns that offset. Its leases are forgotten.

        With `id`, raises `OffsetError` and changes nothing if the message there has another id.
        """
        offset = positions.resolve(self.queue.store, where, id)
        self.core.seek(offset)
        return offset

    def pause(self) -> None:
        """Stops deliveries, in every process, until `resume`."""
        self.core.pause(True)

    def resume(self) -> None:
        """Starts deliveries again."""
        self.core.pause(False)

    @property
    def is_paused(self) -> bool:
        """Whether the group is paused."""
        return self.core.is_paused

    def configure(self, **changes: Unpack[GroupKeywords]) -> None:
        """Changes options of the open group, and stores them. `ack` can't be changed."""
        said = GroupOptions.said(changes)
        if said.get("ack", self.options.ack) != self.options.ack:
            raise GroupError(f"group {self.name!r}: ack can't change; delete the group first")
        options = self.options.changed(**said)
        deadletter.refuse_own(self.queue.path, options)
        self.name_dead_letters(said.get("dead_letter"))
        if options.native_cursor:
            self._own.note(self.name, options)

        def change() -> None:
            # From what the file says: another process may have changed something else.
            changed = (load_options(self.folder) or options).changed(**said)
            store_options(self.folder, changed)
            self.core.bump_version()

        self._alone(change)
        self.refresh()

    def name_dead_letters(self, named: str | None) -> None:
        """Remembers where this process said dead letters go, and creates the queue there now, so
        that processes that only read the group's file find it."""
        if named is not None and not deadletter.is_beside(named):
            path = self.queue.path.parent / named
            deadletter.TOLD.add(path)
            self.queue.dead_letters(path)

    def refresh(self) -> None:
        """Adopts options that another process or thread has changed."""
        # First the count, then the file; and the count again, for another thread may have taken
        # over a later change before this one was done with an earlier.
        while (version := self.core.version) != self._version:
            options = self.options = load_options(self.folder) or self.options
            self.core.adopt(options.native())
            self._version = version

    def stats(self) -> dict[str, Any]:
        """Counts, messages in flight, cursor and lag, as plain values."""
        return facts.of_group(
            self.queue.store, self.name, self.options, cursor=self.core.cursor,
            next_unread=self.core.next, is_paused=self.core.is_paused, counts=self.core.counts(),
        )  # fmt: skip

    def close(self) -> None:
        """Ends this handle's waits and returns its leases. A broadcast group is deleted."""
        if isinstance(self.core, LetGo):
            return  # It was closed with its queue.
        self.core.close()
        self.__dict__.pop("get", None)
        self.__dict__.pop("get_many", None)
        if self.options.exclusive and not self._is_look:
            self.delete()
            return
        self.core.give_back()
        self.core.journal_next()
        if self.core.is_dirty and self.queue.options.durability is not Durability.PROCESS:
            self.core.sync()
        self.queue.forget_group(self.name)

    def let_go(self) -> None:
        """The queue is closed: so are the group's files, however long this object lives."""
        self.__dict__.pop("get", None)
        self.__dict__.pop("get_many", None)
        self.core = LetGo()  # type: ignore[assignment]

    def delete(self) -> None:
        """Removes the group and its progress. Consumers in other processes get `GroupError`."""
        self.queue.store.ensure_in_place()
        self.core.close()
        self.queue.forget_group(self.name)
        with suppress(GroupError):
            self._alone(self._remove)
        self._stand_up()

    def _remove(self) -> None:
        # The mark comes first: from then on open handles leave the files alone, which a new group
        # of the name may own soon.
        self.core.retire()
        group_files.remove(self.folder)
        if self.options.native_cursor:
            self._own.drop(self.name)
        self._own.recount()

    def rename(self, name: str) -> None:
        """Gives the group another name. Leases end; other handles on it get `GroupError`."""
        folder = folder_of(self.queue.store, name)
        if self.name in self._own.bookmarks():
            raise GroupError(
                f"format {self.queue.store.format.name} itself keeps group {self.name!r}"
            )

        def move() -> None:
            if name in names(self.queue.store):
                raise GroupError(f"{self.queue.path}: there is a group {name!r} already")
            # Where getting is acking, the journal has no record of what was read last.
            self.core.checkpoint()
            self.core.retire()
            group_files.rename(self.folder, folder)

        self._alone(move)
        self.queue.forget_group(self.name)
        self.name, self.folder = name, folder
        self._open()
        self.queue.keep_group(self)

    def reset(self, where: positions.Where = "earliest") -> int:
        """Forgets all progress and reads from `where` on: by default, from the oldest message."""
        return self.seek(where)

    def after_fork(self) -> None:
        """Called in a forked child: the open files belong to the parent."""
        self.__dict__.pop("get", None)
        self.__dict__.pop("get_many", None)
        self._stand_up()
        if self.options.exclusive:
            self.core.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Refused, with what to send instead: the open files are this process's own."""
        advice = f"send the queue, or its path, and call queue.group({self.name!r}) there"
        raise TypeError(f"a group can't be pickled or copied: {advice}")

    def __repr__(self) -> str:
        """The name, the cursor and the lag."""
        where = f"{self.name!r} of {str(self.queue.path)!r}"
        if isinstance(self.core, LetGo):
            return f"<Group {where}: closed>"
        return f"<Group {where}: cursor {self.cursor}, lag {self.lag}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


typed(
    Group, "__init__", "_open", "segment_at", "follow", "dead_letter", "peek", "lag",
    "lag_bytes", "idle_ns", "seek", "configure", "refresh", "stats", "close", "delete", "rename",
)  # fmt: skip
_OWN = (Group.get, Group.get_many)
"""The methods defined here."""
