"""Dead letters: messages that were handed out too often, and the way back."""

from __future__ import annotations

from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.engine import paths
from penstock.errors import GroupError, KeyNeededError, OptionError
from penstock.hints import TYPE_CHECKING, Any
from penstock.logs import logger

if TYPE_CHECKING:
    from penstock.engine.group import Group
    from penstock.engine.queue import Queue
    from penstock.options import GroupOptions

SOURCE = "penstock.source"
GROUP = "penstock.group"
OFFSET = "penstock.offset"
REASON = "penstock.reason"
RECEIVES = "penstock.receives"
OURS = (SOURCE, GROUP, OFFSET, REASON, RECEIVES)


TOLD: set[Path] = set()
"""Queues for dead letters that this process itself named, wherever they are."""


def path_of(group: Group) -> Path:
    """Where the group's dead letters go."""
    named = group.options.dead_letter or f"{group.queue.path.name}.dead"
    place = group.queue.path.parent / named
    if not _is_beside(named) and place not in TOLD and not _is_ours(place, group.queue):
        raise GroupError(
            f"{group.folder / 'group.json'}: names {named!r} for dead letters, which is not beside "
            f"the queue, and no queue of its owner is there; if it is meant, say so here: "
            f"group({group.name!r}, dead_letter={named!r})"
        )
    return place


def _is_beside(named: str) -> bool:
    return Path(named).name == named and named != ".."


def _is_ours(place: Path, queue: Queue) -> bool:
    """What a file in a folder says must not have us write just anywhere: nothing is made there,
    and only a queue of the same owner is used."""
    try:
        return place.stat().st_uid == queue.path.stat().st_uid
    except OSError:
        return False


def tell(queue: Queue, named: str | None) -> None:
    """This process itself says where dead letters go: the queue there is made now, so that others
    find it, who have this from the group's file alone."""
    if named is not None and not _is_beside(named):
        place = queue.path.parent / named
        TOLD.add(place)
        queue.dead_letters(place)


def open_at(queue: Queue, path: Path) -> Queue:
    """Opens the queue for dead letters of `queue`, or makes it: for the same users, and under the
    same key, if it has one."""
    options, kind = queue.options, type(queue)
    if not path.exists():
        files.make_folder(path, like=queue.path)
    if options.key is None:
        return kind(path, durability=options.durability, trust_others=options.trust_others)
    # Where another format's keys differ from ours, the dead letters are in that format, too.
    own = {"format": queue.store.format.name, "layout": queue.store.layout}
    like: dict[str, Any] = {} if queue.store.format.name == "penstock" else own
    try:
        return kind(
            path, durability=options.durability, trust_others=options.trust_others,
            key=options.key, **like,
        )  # fmt: skip
    except KeyNeededError as error:
        raise KeyNeededError(
            f"{error}; the dead letters of an encrypted queue go to one with the same key: move "
            f"this one away, or name another with dead_letter="
        ) from error


def refuse_own(group: Group, options: GroupOptions) -> None:
    """An error when the dead letters would go to the very queue they come from: they would come
    back, be handed out too often again, and never end."""
    named = options.dead_letter
    if named is not None and paths.is_same(group.queue.path.parent / named, group.queue.path):
        raise OptionError("dead_letter", named, "another queue than the group's own")


def bury(group: Group, message: _core.Message, reason: str | None = None) -> None:
    """Puts it to the dead letters with reason and source, then acks it.

    In this order: a crash in between leaves it in both queues, never in none.
    """
    queue = group.queue.dead_letters(path_of(group))
    headers = message.headers | {
        SOURCE: str(group.queue.path.resolve()),
        GROUP: group.name,
        OFFSET: str(message.offset),
        REASON: reason or f"handed out {message.receives} times without an ack",
        RECEIVES: str(message.receives),
    }
    _put(queue, message, headers)
    message.settle(True)  # Its lease may have run out meanwhile: then another one buries it again.


def redrive(dead: Queue, target: Queue | None = None, *, limit: int | None = None) -> int:
    """Moves dead letters back to where they came from, or to `target`; answers how many.

    Each is put there first and acked here afterwards. Without `target`, those that name no source
    stay here, and a warning says how many.
    """
    group = dead.group("redrive")
    moved = 0
    opened: dict[str, Queue] = {}
    found: list[_core.Message] = []
    homeless: list[_core.Message] = []
    try:
        while limit is None or moved < limit:
            found = group.get_many(100 if limit is None else min(100, limit - moved), 0)
            if not found:
                break
            while found:
                goal = target or _source(found[0], dead, opened)
                if goal is None:
                    homeless.append(found.pop(0))  # Kept on its lease: or it would come again.
                    continue
                _put_back(found[0], goal)
                found.pop(0).ack()
                moved += 1
    finally:
        for message in [*homeless, *found]:
            message.settle(False)
        for queue in opened.values():
            queue.close()
    if homeless:
        text = "%s: %d dead letters name no source of theirs and stay here; redrive them to a queue"
        logger("deadletter").warning(text, dead.path, len(homeless))
    return moved


def _source(message: _core.Message, dead: Queue, opened: dict[str, Queue]) -> Queue | None:
    source = message.headers.get(SOURCE)
    if source is None or not (source in opened or _sends_to(source, message, dead)):
        return None
    if source not in opened:
        options = dead.options
        opened[source] = type(dead)(
            source, create=False, key=options.key, trust_others=options.trust_others
        )
    return opened[source]


def _sends_to(source: str, message: _core.Message, dead: Queue) -> bool:
    """Whether the queue that a dead letter names is one whose dead letters come here: beside this
    one, or with a group that says so. A message alone must not have us write to any queue."""
    path, name = Path(source), message.headers.get(GROUP, "")
    if not path.is_absolute() or not files.is_name(name):
        return False
    if paths.is_same(path.parent, dead.path.parent):
        return True
    beside = path / ".penstock" if path.is_dir() else path.with_name(path.name + ".penstock")
    known = files.read_json(beside / "groups" / name / "group.json") or {}
    named = known.get("dead_letter")
    return isinstance(named, str) and paths.is_same(path.parent / named, dead.path)


def _put_back(message: _core.Message, goal: Queue) -> None:
    kept = {name: value for name, value in message.headers.items() if name not in OURS}
    _put(goal, message, kept)


def _put(queue: Queue, message: _core.Message, headers: dict[str, str]) -> None:
    """As bytes, which they are already: the queue's codec is not asked."""
    copy = _core.Message(
        message.body, tag=message.tag, id=message.id, key=message.key, headers=headers or None
    )
    queue.put_many([copy])
