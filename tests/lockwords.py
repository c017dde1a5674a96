"""The append lock, as another opener would hold it: its name in the control block."""

from __future__ import annotations

from pathlib import Path

from penstock import Queue
from penstock.sidecar.control import CONTROL


def hold_append_lock(queue: Queue) -> None:
    """From now on this opening seems to be in the middle of an append."""
    _set(queue, queue.store.need_shared().owner)


def give_append_lock(queue: Queue) -> None:
    """It is done. Whoever sleeps looks again in a moment."""
    _set(queue, 0)


def set_control(path: Path, **words: int) -> None:
    """Stores words of the control block of the queue at `path`, which no process has open."""
    with (path / ".penstock/control").open("r+b") as block:
        for name, value in words.items():
            block.seek(CONTROL.offset_of(name))
            block.write(CONTROL.pack_field(name, value))


def _set(queue: Queue, name: int) -> None:
    with (queue.store.sidecar / "control").open("r+b", buffering=0) as block:
        block.seek(CONTROL.offset_of("lock"))
        block.write(name.to_bytes(4, "little"))
