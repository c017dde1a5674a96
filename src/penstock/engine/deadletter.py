"""Dead letters: messages that were handed out too often, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock import _core
from penstock.engine import paths
from penstock.errors import OptionError
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


def path_of(group: Group) -> Path:
    """Where the group's dead letters go."""
    named = group.options.dead_letter or f"{group.queue.path.name}.dead"
    return group.queue.path.parent / named


def refuse_own(group: Group, options: GroupOptions) -> None:
    """An error when the dead letters would go to the very queue they come from: they would come
    back, be handed out too often again, and never end."""
    named = options.dead_letter
    if named is not None and paths.is_same(group.queue.path.parent / named, group.queue.path):
        raise OptionError("dead_letter", named, "another queue than the group's own")


def bury(group: Group, message: _core.Message) -> None:
    """Puts it to the dead letters with reason and source, then acks it.

    In this order: a crash in between leaves it in both queues, never in none.
    """
    queue = group.queue.dead_letters(path_of(group))
    headers = message.headers | {
        SOURCE: str(group.queue.path.resolve()),
        GROUP: group.name,
        OFFSET: str(message.offset),
        REASON: f"handed out {message.receives} times without an ack",
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
                goal = target or _source(found[0], type(dead), opened)
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
        text = "%s: %d dead letters name no source and stay here; redrive them to a queue"
        logger("deadletter").warning(text, dead.path, len(homeless))
    return moved


def _source(message: _core.Message, kind: type[Queue], opened: dict[str, Queue]) -> Queue | None:
    source = message.headers.get(SOURCE)
    if source is not None and source not in opened:
        opened[source] = kind(source, create=False)
    return None if source is None else opened[source]


def _put_back(message: _core.Message, goal: Queue) -> None:
    kept = {name: value for name, value in message.headers.items() if name not in OURS}
    _put(goal, message, kept)


def _put(queue: Queue, message: _core.Message, headers: dict[str, str]) -> None:
    """As bytes, which they are already: the queue's codec is not asked."""
    copy = _core.Message(
        message.body, tag=message.tag, id=message.id, key=message.key, headers=headers or None
    )
    queue.put_many([copy])
