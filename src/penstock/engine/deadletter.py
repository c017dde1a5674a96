"""Dead letters: messages that were handed out too often, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock import _core

if TYPE_CHECKING:
    from penstock.engine.group import Group
    from penstock.engine.queue import Queue

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
    queue.put(message.body, tag=message.tag, id=message.id, key=message.key, headers=headers)
    message.settle(True)  # Its lease may have run out meanwhile: then another one buries it again.


def redrive(dead: Queue, target: Queue | None = None, *, limit: int | None = None) -> int:
    """Moves dead letters back to where they came from, or to `target`; answers how many.

    Each is put there first and acked here afterwards.
    """
    group = dead.group("redrive")
    moved = 0
    opened: dict[str, Queue] = {}
    try:
        while limit is None or moved < limit:
            found = group.get_many(min(100, (limit or moved + 100) - moved), 0)
            if not found:
                break
            for message in found:
                headers = message.headers
                goal = target
                if goal is None:
                    source = headers.get(SOURCE)
                    if source is None:
                        message.nack()
                        continue
                    if source not in opened:
                        opened[source] = type(dead)(source, create=False)
                    goal = opened[source]
                kept = {name: value for name, value in headers.items() if name not in OURS}
                goal.put(
                    message.body, tag=message.tag, id=message.id, key=message.key,
                    headers=kept or None,
                )  # fmt: skip
                message.ack()
                moved += 1
    finally:
        for queue in opened.values():
            queue.close()
    return moved
