"""Which segments may go, and why not more.

Retention deletes whole segments. It waits for groups (`retain_unread`), each at most
`retain_unread_max_s` without progress; a group that is overtaken moves to the head, counted and
logged.

The maintenance thread loads this when a queue has its second segment, while a producer puts at full
speed. Loading a module takes the interpreter lock dozens of times, and a put that rolls meanwhile
waits each time. So what only queues with groups or sinks need is loaded where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from penstock.engine import exclusive
from penstock.errors import ClosedError, PenstockError, PoisonedError, plural
from penstock.formats.store import Store
from penstock.formats.values import Consumed, SegmentInfo
from penstock.hints import TYPE_CHECKING
from penstock.logs import logger
from penstock.options import DEFAULT_GROUP
from penstock.records import dataclass
from penstock.sidecar import notes

if TYPE_CHECKING:
    from penstock.engine.group import Group, OpenQueue
    from penstock.engine.intents import Note


@dataclass(frozen=True, slots=True)
class Plan:
    """What a trim would do."""

    before: int
    """Segments that end at or before this offset are deleted."""
    segments: tuple[SegmentInfo, ...]
    reason: str
    kept_because: str
    """What keeps the rest from being deleted."""

    @property
    def bytes(self) -> int:
        """How many bytes the trim frees."""
        return sum(info.size for info in self.segments)


def holding_cursors(queue: OpenQueue) -> dict[str, int]:
    """The cursor of every group that is waited for."""
    found = {name: _cursor(queue, name, _holding_cursor) for name in _names(queue)}
    return {name: cursor for name, cursor in found.items() if cursor is not None}


def _names(queue: OpenQueue) -> list[str]:
    store = queue.store
    is_any = (store.sidecar / "groups").is_dir() or store.format.groups.bookmarks()
    return queue.groups() if is_any else []


def _holding_cursor(queue: OpenQueue, name: str) -> int | None:
    group = _living(queue, name)
    if group is None or not group.options.retain_unread:
        return None
    if group.idle_ns > queue.options.retain_unread_max_s * 1e9:
        return None
    own = queue.store.format.groups.cursor(name)
    return group.cursor if own is None else own


def _living(queue: OpenQueue, name: str) -> Group | None:
    """A group to look at; one of a consumer that is dead goes."""
    group = queue.look(name)
    if group is None or not group.options.exclusive:
        return group
    return None if exclusive.remove_if_dead(queue.store, group.folder) else group


def _cursor(queue: OpenQueue, name: str, of: Callable[[OpenQueue, str], int | None]) -> int | None:
    """A group's cursor; none when the group is gone or not waited for. One whose files can't be
    read holds everything: what it has been given is unknown."""
    try:
        return of(queue, name)
    except (ClosedError, PoisonedError):
        raise
    except (PenstockError, OSError) as error:
        from penstock.engine.group import folder_of, has_progress

        if not has_progress(folder_of(queue.store, name)):
            return None  # Deleted meanwhile.
        head = queue.store.end().head
        if queue.is_news(name):
            text = "%s: group %r can't be read, so nothing from %d on is deleted: %s"
            logger("retention").warning(text, queue.path, name, head, error)
        return head


def free_consumed(queue: OpenQueue) -> bool:
    """Deletes what every group has acked, in formats that do; whether anything went."""
    store = queue.store
    if not store.capabilities.deletes_consumed or store.shared is None:
        return False
    store.ensure_in_place()
    # A ring waits no longer for a group than retention does; elsewhere every group counts.
    is_ring = store.capabilities.ring
    cursors = list(holding_cursors(queue).values()) if is_ring else _cursors(queue)
    if not cursors and not is_ring:
        return False
    # After the cursors: what a group has read was noted before it was visible.
    unresolved = _unresolved(store)
    lowest, needed_from = min(cursors, default=None), min(unresolved, default=None)
    return store.format.free_consumed(Consumed(lowest, needed_from, queue.sync_groups))


def _cursors(queue: OpenQueue) -> list[int]:
    def cursor(queue: OpenQueue, name: str) -> int | None:
        # Looked at, not opened: another's broadcast group can't be, and who opens a dead one's
        # keeps it.
        group = _living(queue, name)
        return None if group is None else group.cursor

    found = [_cursor(queue, name, cursor) for name in _names(queue)]
    return [cursor for cursor in found if cursor is not None]


def plan(queue: OpenQueue, before: int | None = None) -> Plan:
    """What would go now: everything before `before`, or what the options say."""
    store, options = queue.store, queue.options
    infos, head = store.segments(), store.end().head
    wanted = 0 if before is None else before
    reason = "asked for" if before is not None else "nothing is due"
    if before is None and options.retention_bytes:
        for info in infos.beyond(options.retention_bytes, head)[-1:]:
            wanted, reason = info.end or 0, f"more than {options.retention_bytes} bytes"
    if before is None and options.retention_age_s:
        for info in infos.above(head):
            known = store.format.describe(info)
            last = known.last_ns if known.written_ns is None else known.written_ns
            if info is infos[-1] or last is None or not _is_old(store, last):
                break
            if (info.end or 0) > wanted:
                wanted, reason = info.end or 0, f"older than {options.retention_age_s} s"
    kept = "the newest segment always stays"
    if options.retain_unread:
        cursors = holding_cursors(queue) if store.is_live else _cursors_on_disk(store)
        for name, cursor in cursors.items():
            if cursor < wanted:
                wanted, kept = cursor, f"group {name!r} has read only up to offset {cursor}"
    for note in _open_notes(store):
        if note.first < wanted:
            wanted, kept = note.first, f"batch {note.batch} of {note.app!r} is on its way"
    gone = tuple(info for info in infos.below(wanted) if (info.end or 0) > head)
    return Plan(wanted, gone, reason if gone else "nothing is due", kept)


def _cursors_on_disk(store: Store) -> dict[str, int]:
    from penstock.engine import overview

    return overview.holding_cursors(store)


def _has_sinks(store: Store) -> bool:
    return (store.sidecar / "sinks").is_dir()


def _open_notes(store: Store) -> list[Note]:
    if not _has_sinks(store):
        return []
    from penstock.engine import intents

    return intents.open_notes(store.sidecar)


def _unresolved(store: Store) -> list[int]:
    if not _has_sinks(store):
        return []
    from penstock.engine import intents

    return intents.unresolved(store)


def _is_old(store: Store, timestamp_ns: int) -> bool:
    age_ns = int(store.options.retention_age_s * 1e9)
    if store.shared is None:  # This process only reads: the wall clock is all there is.
        return timestamp_ns < store.clock.wall_now_ns() - age_ns
    return store.shared.is_older(store.clock, timestamp_ns, age_ns)


def apply(queue: OpenQueue, planned: Plan) -> list[SegmentInfo]:
    """Deletes what was planned; groups behind the new head move to it."""
    # Counted before the files go. What a consumer takes meanwhile is counted too.
    unread = _unread(queue, planned) if planned.segments else {}
    gone = queue.store.trim(planned.before)
    if gone:
        _overtake(queue, planned.reason, unread)
    return gone


def _unread(queue: OpenQueue, planned: Plan) -> dict[str, int]:
    """How many of the messages that are to go each group has not read; a group that can't be asked,
    or whose messages can't be counted, is left out."""
    found: dict[str, int] = {}
    if not (names := _names(queue)):
        return found
    from penstock.engine import facts

    head, last = queue.store.end().head, max(info.end or 0 for info in planned.segments)
    for name in names:
        with suppress(PenstockError, OSError):
            group = queue.look(name)
            if group is not None and group.core.next < last:
                first = max(group.core.next, head)
                found[name] = facts.messages_between(queue.store, first, last, group.options)
    return found


def _overtake(queue: OpenQueue, reason: str, unread: dict[str, int]) -> None:
    """Also the groups that other processes alone have open: those may go on reading a segment that
    was deleted, and would hand out what is gone."""
    head = queue.store.end().head
    for name in _names(queue):
        try:
            group = queue.look(name)
        except (ClosedError, PoisonedError):
            raise
        except (PenstockError, OSError):
            continue  # `holding_cursors` says so; its next opener checks its cursor.
        if group is not None and group.core.overtake(head, unread.get(name, 0)):
            # One that had read them all may still have had some of them out.
            known = f"{plural(unread.get(name, 0), 'message')} that it had not read"
            what = known if unread.get(name) else "messages that it had not acked"
            text = "%s: group %r was overtaken (%s); deleted: %s"
            logger("retention").warning(text, queue.path, name, reason, what)


def purge(queue: OpenQueue) -> int:
    """Marks every message as read, for every group; how many the default group had not read.

    Where there is no default group, nothing was read for it; none is made.
    """
    from penstock.engine import facts

    store = queue.store
    store.ensure_in_place()
    default = queue.look(DEFAULT_GROUP)
    unread = facts.messages_from(store, store.end().head) if default is None else default.lag
    if store.end().tail > store.segments()[-1].first:
        store.roll(store.need_shared().segment_base, 0)
    # Up to here and no further: what others put meanwhile is not what was asked to go.
    before = store.end().tail
    for name in _names(queue):
        queue.group(name, create=False).seek(before)
    if store.capabilities.gaps:
        ends = [info.end for info in store.segments() if info.end is not None]
        notes.write(store.sidecar, notes.PURGED, {"end": max(ends, default=0)})
    store.trim(min([before, *_unresolved(store)]))
    free_consumed(queue)
    return unread


def purged(store: Store) -> int:
    """The end of the last message that a purge took, where offsets have gaps: there the head also
    moves past the end of a segment that was read, and does not tell one from the other."""
    end = (notes.read(store.sidecar, notes.PURGED) or {}).get("end")
    return end if isinstance(end, int) else 0
