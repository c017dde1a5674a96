"""The way back of dead letters: to the queue that they came from, or to another one."""

from __future__ import annotations

from collections.abc import Callable

from penstock import _core
from penstock.disk import files
from penstock.engine import paths
from penstock.engine.deadletter import GROUP, OURS, SOURCE, copy_of
from penstock.engine.group import OpenQueue
from penstock.logs import logger


def redrive(
    dead: OpenQueue,
    target: OpenQueue | None,
    reopen: Callable[[str], OpenQueue],
    *,
    limit: int | None = None,
) -> int:
    """Moves dead letters back to where they came from, or to `target`; returns how many.

    Each is put there first and acked here afterwards. Without `target`, those that name no source
    stay here, and a warning says how many. `reopen` opens the queue that a letter names.
    """
    group = dead.group("redrive")
    moved = 0
    opened: dict[str, OpenQueue] = {}
    found: list[_core.Message] = []
    homeless: list[_core.Message] = []
    try:
        while limit is None or moved < limit:
            found = group.get_many(100 if limit is None else min(100, limit - moved), 0)
            if not found:
                break
            while found:
                goal = target or _source(found[0], dead, opened, reopen)
                if goal is None:
                    homeless.append(
                        found.pop(0)
                    )  # Its lease is kept, else this loop would get it again.
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
        text = "%s: %d messages do not say which queue they came from, and stay here; name a target"
        logger("deadletter").warning(text, dead.path, len(homeless))
    return moved


def _source(
    message: _core.Message,
    dead: OpenQueue,
    opened: dict[str, OpenQueue],
    reopen: Callable[[str], OpenQueue],
) -> OpenQueue | None:
    source = message.headers.get(SOURCE)
    if source is None or not (source in opened or _sends_to(source, message, dead)):
        return None
    if source not in opened:
        opened[source] = reopen(str(paths.from_text(source)))
    return opened[source]


def _sends_to(source: str, message: _core.Message, dead: OpenQueue) -> bool:
    """Whether the queue that a dead letter names is one whose dead letters come here: beside this
    one, or with a group that says so. A message alone must not have us write to any queue."""
    path, name = paths.from_text(source), message.headers.get(GROUP, "")
    if not path.is_absolute() or not files.is_name(name):
        return False
    if paths.is_same(path.parent, dead.path.parent):
        return True
    beside = path / ".penstock" if path.is_dir() else path.with_name(path.name + ".penstock")
    known = files.read_json(beside / "groups" / name / "group.json") or {}
    named = known.get("dead_letter")
    return isinstance(named, str) and paths.is_same(path.parent / named, dead.path)


def _put_back(message: _core.Message, goal: OpenQueue) -> None:
    kept = {name: value for name, value in message.headers.items() if name not in OURS}
    goal.put_many([copy_of(message, kept)])
