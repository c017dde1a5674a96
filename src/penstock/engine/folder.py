"""A folder of queues that are called by name: what brokers of task queues share.

Names come from users and from the network, so they are never taken for paths: what is no letter,
digit, `.` or `-` is written as `_xx`, and a long name ends with its hash. A queue may have parts
(`name`, `name_p9`, …), each a queue of its own, because a log can't be read by priority.

One object per process and folder, shared by everyone who asks for it with `shared`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from penstock.disk import files
from penstock.engine.group import Group
from penstock.engine.queue import Queue
from penstock.errors import ClosedError, PenstockError
from penstock.options import MAX_IN_FLIGHT, QueueKeywords

MIB = 1 << 20
NAME_BYTES_MAX = 72
FOR_EVER_S = 4e9
PART = re.compile(r"_[pdm]\d*")
"""The end of a part's name. `safe_name` never ends so: after `_` it has two hex digits, `_` or
`h`."""
DEFAULTS: QueueKeywords = {
    # Messages that every worker is done with are deleted; those that no worker has taken stay.
    "retention_bytes": 1,
    "retain_unread_max_s": FOR_EVER_S,
    "segment_bytes": 16 * MIB,
}


def safe_name(name: str) -> str:
    """The name of a folder for a queue that is called `name`; different for different names."""
    out = []
    for byte in name.encode("utf-8", "surrogatepass"):
        letter = chr(byte)
        if letter == "_":
            out.append("__")
        elif letter.isascii() and (letter.isalnum() or letter in ".-"):
            out.append(letter)
        else:
            out.append(f"_{byte:02x}")
    if out and out[0] == ".":
        out[0] = "_2e"
    found = "".join(out)
    if not found or len(found) > NAME_BYTES_MAX:
        # `_h` can't come from a letter: after `_` stand two hex digits or another `_`.
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        cut = "".join(out[:20])
        found = f"{cut}_h{digest}"
    return found


class Jobs:
    """One queue of a folder, open, and the group that its workers share."""

    queue: Queue
    inode: int
    group: Group

    __slots__ = ("group", "inode", "queue")

    def __init__(self, queue: Queue, max_receives: int) -> None:
        """Opens the group too: without one, retention would not know that a worker waits."""
        self.queue = queue
        self.inode = queue.path.stat().st_ino
        self.group = queue.group(max_in_flight=MAX_IN_FLIGHT, max_receives=max_receives or None)


class Folder:
    """Queues by name, opened when they are first used."""

    path: Path

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[QueueKeywords]) -> None:
        """Makes the folder. `options` are for queues that are made from here."""
        self.path = Path(path).expanduser().absolute()
        files.make_folder(self.path)
        self._options: dict[str, Any] = {**DEFAULTS, **options}
        self._open: dict[tuple[str, str], Jobs] = {}
        self._lock = threading.RLock()
        self._users, self._pid = 0, os.getpid()
        self.max_receives = 0
        """Messages handed out this often go to the dead letters, `<queue>.dead`; 0: never."""

    # ── shared by a process ────────────────────────────────────────────────────────────────

    @staticmethod
    def shared(path: str | os.PathLike[str], **options: Unpack[QueueKeywords]) -> Folder:
        """The folder that this process has open already, or a new one. Give it back: `release`."""
        key = (os.getpid(), str(Path(path).expanduser().absolute()))
        with _lock:
            found = _folders.get(key)
            if found is None:
                found = _folders[key] = Folder(path, **options)
            found._users += 1
            return found

    def release(self) -> None:
        """Gives the folder back; when its last user does, the queues are closed."""
        if self._pid != os.getpid():
            return  # It is the parent's. A forked child has none of its queues open.
        with _lock:
            self._users -= 1
            if self._users > 0:
                return
            _folders.pop((self._pid, str(self.path)), None)
        self.close()

    def close(self) -> None:
        """Closes every queue."""
        with self._lock:
            for jobs in self._open.values():
                with suppress(PenstockError, OSError):
                    jobs.queue.close()
            self._open.clear()

    # ── queues ─────────────────────────────────────────────────────────────────────────────

    def path_of(self, name: str, part: str = "") -> Path:
        """Where a queue is."""
        return self.path / (safe_name(name) + (f"_{part}" if part else ""))

    def jobs(self, name: str, part: str = "") -> Jobs:
        """The queue of this name, open; made when there is none.

        Another process may have deleted it, and yet another may have made a new one: what is open
        here would be a folder without a name.
        """
        found = self._known(name, part)
        return self._opened(name, part) if found is None else found

    def _known(self, name: str, part: str) -> Jobs | None:
        found = self._open.get((name, part))
        if found is None or found.queue.is_closed:
            return None
        try:
            is_there = os.stat(found.queue.path).st_ino == found.inode  # noqa: PTH116  (each put)
        except FileNotFoundError:
            return None
        return found if is_there else None

    def _opened(self, name: str, part: str) -> Jobs:
        with self._lock:
            found = self._known(name, part)  # Another thread may have opened it meanwhile.
            if found is not None:
                return found
            self.forget(name, part)
            path = self.path_of(name, part)
            for is_last in (False, False, False, True):
                try:
                    found = Jobs(Queue(path, **self._options), self.max_receives)
                    break
                except (FileNotFoundError, ClosedError):
                    if is_last:  # The tries before failed since another process deleted the queue.
                        raise
            assert found is not None
            self._open[name, part] = found
            return found

    def forget(self, name: str, part: str = "") -> None:
        """Closes a queue of this name, if it is open here."""
        with self._lock:
            found = self._open.pop((name, part), None)
        if found is not None:
            with suppress(PenstockError, OSError):
                found.queue.close()

    def parts(self, name: str) -> list[str]:
        """The parts that a queue has."""
        whole = safe_name(name)
        found = [one for one in files.names_in(self.path) if one.startswith(whole)]
        ends = [one.removeprefix(whole) for one in found]
        return [end[1:] for end in ends if end == "" or PART.fullmatch(end)]

    def put_part(self, name: str, part: str, body: bytes) -> None:
        """Puts into a part. If it is new, consumers that sleep on the queue wake and find it."""
        is_new = part != "" and not self.exists(name, part)
        self.jobs(name, part).queue.put(body)
        if is_new:
            self.jobs(name).queue.store.need_shared().signal()

    def exists(self, name: str, part: str = "") -> bool:
        """Whether there is such a queue."""
        return self.path_of(name, part).is_dir()

    def delete(self, name: str, part: str = "") -> None:
        """Removes a queue with everything in it, also from under those who have it open."""
        self.forget(name, part)
        path = self.path_of(name, part)
        gone = self.path / f".gone-{os.urandom(8).hex()}"
        try:
            path.rename(gone)  # In one step: no process finds half a queue.
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)


class SharedFolder:
    """The folder that a process shares, opened when it is first used; a forked child opens its own.

    For objects that are made long before they are used, and are handed down to children.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[QueueKeywords]) -> None:
        self._path, self._options = path, options
        self._found: tuple[int, Folder] | None = None

    def __call__(self) -> Folder:
        """The folder, opened once in each process."""
        if self._found is None or self._found[0] != os.getpid():
            self._found = (os.getpid(), Folder.shared(self._path, **self._options))
        return self._found[1]

    def release(self) -> None:
        """Gives it back, if it was opened."""
        if self._found is not None:
            self._found[1].release()
        self._found = None


_folders: dict[tuple[int, str], Folder] = {}
_lock = threading.RLock()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # The thread that had it is not in this process.


os.register_at_fork(after_in_child=_after_fork)
