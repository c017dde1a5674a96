"""Huey without Redis or SQLite: tasks in queues of a folder, everything else in small files.

    from penstock.huey import PenstockHuey
    huey = PenstockHuey("shop", path="/var/lib/jobs")

Workers sleep until a task comes. Huey knows no acks: a task is gone from the storage as soon as a
worker has it, so a worker that is killed loses the task that it was running, and no other.
"""

from __future__ import annotations

import os
import struct
import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from penstock import _core
from penstock.disk import files
from penstock.engine import optional_packages
from penstock.engine.folder import SharedFolder, safe_name
from penstock.engine.group import Group
from penstock.engine.value_folder import ValueFolder
from penstock.engine.wait_many import PartsInbox
from penstock.options import QueueKeywords

with optional_packages.needed("huey", "huey", "the storage for Huey"):
    from huey.constants import EmptyData

if TYPE_CHECKING:  # Huey ships no types.
    from penstock.hints import Untyped

    class BaseStorage(Untyped):
        """Keeps tasks and results."""

    class Huey(Untyped):
        """The task queue itself."""
else:
    from huey.api import Huey
    from huey.storage import BaseStorage

TASKS = "tasks"
LENGTH = struct.Struct("<I")


class PenstockStorage(BaseStorage):
    """What Huey keeps, in a folder. `options` are those of `penstock.Queue`."""

    blocking = True

    def __init__(
        self,
        name: str = "huey",
        path: str | os.PathLike[str] = "huey",
        read_timeout: float = 1.0,
        **options: Unpack[QueueKeywords],
    ) -> None:
        super().__init__(name)
        self._root = Path(path).expanduser().absolute() / safe_name(name)
        self._timeout_s = read_timeout
        self._results = ValueFolder(self._root / "data")
        self._counters = ValueFolder(self._root / "counters")
        self._schedule = self._root / "schedule"
        self._folder = SharedFolder(self._root / "queues", **options)
        self._own = threading.local()

    def close(self) -> None:
        """Closes the queues."""
        self._folder.release()

    # ── tasks ──────────────────────────────────────────────────────────────────────────────

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Puts a task: higher priorities come first."""
        level = int(priority or 0)
        part = "" if level == 0 else f"{'p' if level > 0 else 'm'}{abs(level)}"
        self._folder().put_part(TASKS, part, data)

    def _inbox(self) -> PartsInbox:
        """The tasks, as this thread waits for them."""
        folder, found = self._folder(), getattr(self._own, "inbox", None)
        if found is None or found.folder is not folder:
            found = self._own.inbox = PartsInbox(folder, TASKS, level_of)
        return found

    def _groups(self) -> list[Group]:
        return [inbox.jobs().group for inbox in self._inbox().inboxes()]

    def dequeue(self) -> bytes | None:
        """The next task; none when none comes in time."""
        found = self._inbox().get_in(self._timeout_s or 0.0, 60.0)
        if found is None:
            return None
        found.ack()
        return found.body

    def queue_size(self) -> int:
        """How many tasks wait."""
        return sum(group.lag for group in self._groups())

    def enqueued_items(self, limit: int | None = None) -> list[bytes]:
        """The next tasks, which stay."""
        found = [one.body for group in self._groups() for one in group.peek(limit or group.lag)]
        return found[:limit]

    def flush_queue(self) -> None:
        """Drops all tasks that wait in the queue."""
        for inbox in self._inbox().inboxes():
            inbox.jobs().queue.purge()

    # ── the schedule: a file per task, named by its time ───────────────────────────────────

    def _planned(self) -> list[Path]:
        names = [one for one in files.names_in(self._schedule) if not files.is_temporary(one)]
        return [self._schedule / name for name in sorted(names)]

    def add_to_schedule(self, data: bytes, ts: datetime) -> None:
        """Keeps a task for later."""
        files.make_folder(self._schedule)
        name = f"{int(ts.timestamp() * 1e6):020d}-{os.urandom(8).hex()}"
        _core.replace_file(self._schedule / name, data, synced=False)

    def read_schedule(self, ts: datetime) -> list[bytes]:
        """Takes what is due; of several who ask at once, each task goes to one."""
        limit, found = f"{int(ts.timestamp() * 1e6):020d}~", []
        for path in self._planned():
            if path.name > limit:
                break
            try:
                data = path.read_bytes()
                path.unlink()
            except FileNotFoundError:
                continue
            found.append(data)
        return found

    def schedule_size(self) -> int:
        """How many tasks are kept for later."""
        return len(self._planned())

    def scheduled_items(self, limit: int | None = None) -> list[bytes]:
        """Those that are due next, which stay."""
        return [path.read_bytes() for path in self._planned()[:limit]]

    def flush_schedule(self) -> None:
        """Drops all tasks that wait for their time."""
        for path in self._planned():
            path.unlink(missing_ok=True)

    # ── results, locks, counters ───────────────────────────────────────────────────────────

    def put_data(self, key: Any, value: bytes, is_result: bool = False) -> None:
        """Stores a value under its key."""
        self._results.set(text(key), packed(key, value))

    def peek_data(self, key: Any) -> Any:
        """A value, which stays."""
        return value_of(self._results.get(text(key)))

    def pop_data(self, key: Any) -> Any:
        """A value, which goes."""
        return value_of(self._results.pop(text(key)))

    def has_data_for_key(self, key: Any) -> bool:
        """Whether there is a value."""
        return self._results.has(text(key))

    def put_if_empty(self, key: Any, value: bytes, ttl: int | None = None) -> bool:
        """Stores where nothing is."""
        if ttl is not None:
            raise NotImplementedError("ttl is not supported by this storage.")
        return self._results.add(text(key), packed(key, value))

    def incr(self, key: Any, amount: int = 1) -> int:
        """Adds to a counter, and returns what it is then."""
        return self._counters.incr(text(key), amount)

    def delete_counter(self, key: Any) -> None:
        """Forgets a counter."""
        self._counters.delete(text(key))

    def result_store_size(self) -> int:
        """How many values there are."""
        return sum(1 for _ in self._results.values())

    def result_items(self) -> dict[str, bytes]:
        """All keys, each with its value."""
        return dict(unpacked(raw) for raw in self._results.values())

    def flush_results(self) -> None:
        """Forgets all values."""
        self._results.clear()

    def flush_counters(self) -> None:
        """Forgets all counters."""
        self._counters.clear()


def level_of(part: str) -> int:
    """The priority of a part."""
    return 0 if not part else int(part[1:]) * (1 if part[0] == "p" else -1)


def text(key: Any) -> str:
    """Keys are text or bytes, and the same either way."""
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)


def packed(key: Any, value: bytes) -> bytes:
    """A value with its key before it: the file's name may be a hash."""
    name = text(key).encode("utf-8", "surrogateescape")
    return LENGTH.pack(len(name)) + name + value


def unpacked(raw: bytes) -> tuple[str, bytes]:
    """The key and the value that `packed` has put together."""
    end = LENGTH.size + LENGTH.unpack_from(raw)[0]
    return raw[LENGTH.size : end].decode("utf-8", "surrogateescape"), raw[end:]


def value_of(raw: bytes | None) -> Any:
    """The value, or Huey's word for none."""
    return EmptyData if raw is None else unpacked(raw)[1]


class PenstockHuey(Huey):
    """Huey on a folder: `PenstockHuey("name", path="/var/lib/jobs")`."""

    storage_class = PenstockStorage


__all__ = ["PenstockHuey", "PenstockStorage"]
