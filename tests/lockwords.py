"""Locks as another opener would hold them: its name in their words."""

from __future__ import annotations

from pathlib import Path

from penstock import Queue
from penstock.disk import files
from penstock.sidecar.control import CONTROL
from penstock.sidecar.groups import TABLE


def hold_append_lock(queue: Queue) -> None:
    """From now on this opening seems to be in the middle of an append."""
    _set(queue, queue.store.need_shared().owner)


def give_append_lock(queue: Queue) -> None:
    """It is done. Whoever sleeps looks again in a moment."""
    _set(queue, 0)


LOCKS = ["append", "sync", "group", "sync of the group"]
"""Every lock word of a queue that has a group `g`."""


def place_of(queue: Queue, lock: str) -> tuple[Path, int]:
    """The file of a lock word, and its byte there."""
    if lock in ("append", "sync"):
        name = "lock" if lock == "append" else "sync_lock"
        return queue.store.sidecar / "control", CONTROL.offset_of(name)
    name = "lock" if lock == "group" else "sync_lock"
    return queue.store.sidecar / "groups" / "g" / "table", TABLE.offset_of(name)


def hold(queue: Queue, lock: str) -> None:
    """From now on this opening seems to be in the middle of what it does under that lock."""
    _store(*place_of(queue, lock), queue.store.need_shared().owner)


def give(queue: Queue, lock: str) -> None:
    """It is done. Whoever sleeps looks again in a moment."""
    _store(*place_of(queue, lock), 0)


def is_held(queue: Queue, lock: str) -> bool:
    """Whether any opening has it. Where there is no group `g`, nobody has its locks."""
    path, at = place_of(queue, lock)
    return path.exists() and any(files.read_start(path, at + 4)[at:])


def set_control(path: Path, **words: int) -> None:
    """Stores words of the control block of the queue at `path`, which no process has open."""
    with (path / ".penstock/control").open("r+b") as block:
        for name, value in words.items():
            block.seek(CONTROL.offset_of(name))
            block.write(CONTROL.pack_field(name, value))


def _set(queue: Queue, name: int) -> None:
    _store(*place_of(queue, "append"), name)


def _store(path: Path, at: int, name: int) -> None:
    with path.open("r+b", buffering=0) as block:
        block.seek(at)
        block.write(name.to_bytes(4, "little"))
