"""Celery's results in a folder: one file per result, and a queue that tells who waits.

    app.conf.result_backend = "penstock+file:///var/lib/jobs"

A result is a small file that takes its place at once, so a reader sees all of it or nothing.
The process that stores one also puts it into a queue of news; a process that waits sleeps on that
queue and reads each result as it comes, however many it waits for. Results may be in the broker's
folder: no queue's name can be one of theirs.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from penstock import _core
from penstock.disk import files
from penstock.engine import optional_packages
from penstock.engine.folder import MIB, SharedFolder, safe_name
from penstock.engine.group import Group
from penstock.engine.threads import lock_file, unlock_file
from penstock.engine.value_folder import ValueFolder
from penstock.engine.wait_many import Inbox, QueuePoll
from penstock.errors import PenstockError

with optional_packages.needed("celery", "celery", "the result backend for Celery"):
    from celery import states
    from celery.canvas import maybe_signature
    from celery.exceptions import ChordError, ImproperlyConfigured
    from celery.result import GroupResult, allow_join_result
    from celery.utils.functional import _regen
    from kombu.utils.encoding import bytes_to_str, ensure_bytes

if TYPE_CHECKING:  # Celery ships no types.
    from penstock.hints import Untyped

    class BaseResultConsumer(Untyped):
        """Waits for results."""

        def on_state_change(self, meta: Any, message: Any) -> None:
            """Called when the state of a task has changed."""

    class BaseKeyValueStoreBackend(Untyped):
        """Keeps results by key."""

        def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any: ...

    class AsyncBackendMixin(Untyped):
        """Has results pushed to those who wait."""
else:
    from celery.backends.asynchronous import AsyncBackendMixin, BaseResultConsumer
    from celery.backends.base import BaseKeyValueStoreBackend

ROOT = "_results"
"""No queue's folder is called so: after `_` stand two hex digits, or what `safe_name` says."""
NEWS = "news"
SWEEP_CHORDS_EVERY = 64
NEWS_BYTES, NEWS_AGE_S = 64 * MIB, 300.0


class News(BaseResultConsumer):
    """Results as they come, for a process that waits for some."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._wanted: dict[str, str] = {}
        """Task ids by key."""
        self._forget()

    def _forget(self) -> None:
        self._turn = threading.RLock()
        self._group: Group | None = None
        self._queue_poll: QueuePoll | None = None
        self._inbox: Inbox | None = None

    def on_after_fork(self) -> None:
        """In a child: it waits for nothing yet."""
        self._wanted.clear()
        self._forget()

    def start(self, initial_task_id: str, **_: Any) -> None:
        """Begins to read news, so that no result is missed from now on."""
        self.consume_from(initial_task_id)

    def consume_from(self, task_id: str) -> None:
        """This result is waited for."""
        with self._turn:
            if self._group is None:
                folder = self.backend.folder()
                self._queue_poll = QueuePoll()
                self._inbox = Inbox(folder, self._queue_poll, NEWS, "")
                queue = self._inbox.jobs().queue
                self._group = queue.broadcast(start="latest", ack="auto")
                self._inbox.arm()
            self._wanted[self.backend.key_of(task_id)] = task_id

    def cancel_for(self, task_id: str) -> None:
        """Nobody waits for it any more."""
        self._wanted.pop(self.backend.key_of(task_id), None)

    def on_wait_for_pending(self, result: Any, **keywords: Any) -> None:
        """What is there already is not news."""
        for meta in result._iter_meta(**keywords):
            if meta is not None:
                self.on_state_change(meta, None)

    def drain_events(self, timeout: float | None = None) -> None:
        """Sleeps until results come, at most `timeout` seconds, and hands them on."""
        if self._read() or self._queue_poll is None:
            if self._queue_poll is None and timeout:
                time.sleep(timeout)
            return
        self._queue_poll.wait(timeout)
        if not self._read():
            # A process that was stopped for minutes may have missed news: the files have it all.
            for task_id in list(self._wanted.values()):
                meta = self.backend._get_task_meta_for(task_id)
                if meta["status"] != "PENDING":
                    self.on_state_change(meta, None)

    def _read(self) -> bool:
        with self._turn:
            found = [] if self._group is None else self._group.get_many(1000, 0)
        for message in found:
            if message.id in self._wanted:
                self.on_state_change(self.backend.decode_result(message.body), message)
        return bool(found)

    def on_state_change(self, meta: dict[str, Any], message: Any) -> None:
        """Hands a result to those who wait for it."""
        super().on_state_change(meta, message)
        if meta["status"] in ("SUCCESS", "FAILURE", "REVOKED"):
            self.cancel_for(meta["task_id"])

    def stop(self) -> None:
        """Stops waiting for results, and closes the files."""
        with self._turn:
            if self._inbox is not None:
                self._inbox.close()
            if self._group is not None:
                with suppress(PenstockError, OSError):
                    self._group.close()
            if self._queue_poll is not None:
                self._queue_poll.close()
            self._group = self._inbox = self._queue_poll = None


class Chord:
    """The parts of one chord that are done: a file each, under a lock.

    The kernel gives the lock back when its holder is killed. By then the holder may have sent the
    body without saying so: then it is sent again, when Celery runs that part again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def __enter__(self) -> Self:
        files.make_folder(self._path)
        self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        lock_file(self._lock)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            unlock_file(self._lock)

    def reset(self, size: int) -> None:
        """It begins: nothing of an earlier run counts."""
        with self:
            if (self._path / "done").exists():
                for name in files.names_in(self._path):
                    (self._path / name).unlink()
            _core.replace_file(self._path / "size", b"%d" % size, synced=False)

    def add_one(self) -> None:
        """Counts one more part that is expected."""
        with self:
            count = int(files.read_bytes(self._path / "size"))
            _core.replace_file(self._path / "size", b"%d" % (count + 1), synced=False)

    def put(self, task_id: str, part: bytes) -> None:
        """Keeps what a part answered; once for each task, however often it is run."""
        _core.replace_file(self._path / f"part-{safe_name(task_id)}", part, synced=False)

    def parts(self) -> list[bytes]:
        """What the parts answered."""
        return [files.read_bytes(path) for path in self._path.glob("part-*")]

    def is_complete(self) -> bool:
        """Whether all parts are there and nobody has sent the body."""
        names = files.names_in(self._path)
        if "size" not in names or "done" in names:
            return False
        count = sum(1 for one in names if one.startswith("part-") and not one.endswith(".tmp"))
        return count >= int(files.read_bytes(self._path / "size"))

    def finish(self) -> None:
        """The body is sent."""
        _core.replace_file(self._path / "done", b"", synced=False)
        for path in self._path.glob("part-*"):
            path.unlink()

    def sweep(self, expires_s: float | None) -> None:
        """Deletes chords that have not changed for as long as results are kept."""
        limit = time.time() - (expires_s or float("inf"))
        for name in files.names_in(self._path.parent):
            with suppress(FileNotFoundError):
                if (self._path.parent / name).stat().st_mtime < limit:
                    shutil.rmtree(self._path.parent / name, ignore_errors=True)


class Backend(BaseKeyValueStoreBackend, AsyncBackendMixin):
    """Results of tasks, groups and chords."""

    ResultConsumer = News
    values: ValueFolder
    folder: SharedFolder
    result_consumer: News
    supports_autoexpire = True
    supports_native_join = True
    persistent = True

    def __init__(self, url: str | None = None, **keywords: Any) -> None:
        """Opens nothing yet: Celery makes it also where no result is ever asked for."""
        super().__init__(**keywords)
        parts = urlsplit(url or "")
        self._path = unquote(parts.netloc + parts.path)
        if not self._path:
            raise ImproperlyConfigured(
                f"result_backend {url!r} names no folder; write penstock+file:///var/lib/jobs"
            )
        self.url = url
        self._chords_begun = 0
        self.values = ValueFolder(
            Path(self._path).expanduser().absolute() / ROOT,
            expires_s=self.expires,
            synced="durability=always" in parts.query,
        )
        self.folder = SharedFolder(
            self.values.path, durability="process", retention_bytes=NEWS_BYTES,
            retention_age_s=NEWS_AGE_S, retain_unread_max_s=NEWS_AGE_S,
        )  # fmt: skip
        self.result_consumer = self.ResultConsumer(
            self, self.app, self.accept, self._pending_results, self._pending_messages
        )

    def key_of(self, task_id: str) -> str:
        """The key of a result, as text."""
        return str(bytes_to_str(self.get_key_for_task(task_id)))

    # ── what Celery's key-value backends need ──────────────────────────────────────────────

    def get(self, key: Any) -> bytes | None:
        """What is stored there; none when nothing is, or its time is over."""
        return self.values.get(bytes_to_str(key))

    def mget(self, keys: list[Any]) -> list[bytes | None]:
        """The values of several keys, in their order."""
        return [self.get(key) for key in keys]

    def set(self, key: Any, value: Any) -> None:
        """Stores, and tells who waits."""
        name, body = bytes_to_str(key), ensure_bytes(value)
        self.values.set(name, body)
        if name.startswith(bytes_to_str(self.task_keyprefix)):
            self.folder().jobs(NEWS).queue.put(body, id=name)

    def delete(self, key: Any) -> None:
        """Removes the value of a key."""
        self.values.delete(bytes_to_str(key))

    def expire(self, key: Any, value: Any) -> None:
        """Nothing: a file's age says it."""

    def close(self) -> None:
        """Waits for no result any more, and closes the queue of news."""
        self.result_consumer.stop()
        self.folder.release()

    def cleanup(self) -> None:
        """Deletes everything that has expired; `celery beat` calls it, nobody has to."""
        self.values.sweep()
        self._chord("any").sweep(self.expires)

    # ── chords ─────────────────────────────────────────────────────────────────────────────

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """A chord begins, or begins again, that has so many parts."""
        chord = self._chord(group_id)
        chord.reset(chord_size)
        self._chords_begun += 1
        if self._chords_begun % SWEEP_CHORDS_EVERY == 0:
            chord.sweep(self.expires)

    def add_to_chord(self, group_id: str, result: Any) -> None:
        """It has one more."""
        self._chord(group_id).add_one()

    def apply_chord(self, header_result_args: Any, body: Any, **_: Any) -> None:
        """A header that has groups in it is kept: its results go on in the same structure."""
        if not isinstance(header_result_args[1], _regen):
            header = self.app.GroupResult(*header_result_args)
            if any(isinstance(one, GroupResult) for one in header.results):
                header.save(backend=self)

    def on_chord_part_return(self, request: Any, state: str, result: Any, **_: Any) -> None:
        """Notes that a part is done; the worker that finishes the last one sends the body."""
        if not request.group or not request.id:
            return
        index = float("inf") if request.group_index is None else request.group_index
        part = [index, request.id, state, self.encode_result(result, state)]
        with self._chord(request.group) as chord:
            chord.put(request.id, ensure_bytes(self.encode(part)))
            if not chord.is_complete():
                return
            body = maybe_signature(request.chord, app=self.app)
            try:
                body.delay(self._chord_results(request.group, chord))
            except Exception as error:
                told = error if isinstance(error, ChordError) else ChordError(f"{error!r}")
                self.chord_error_from_stack(body, told)
            chord.finish()

    def _chord_results(self, group_id: str, chord: Chord) -> list[Any]:
        header = GroupResult.restore(group_id, backend=self, app=self.app)
        if header is not None:
            header.on_ready()
            with allow_join_result():
                found = header.join_native(timeout=self.app.conf.result_chord_join_timeout)
            return list(found)
        parts = sorted((self.decode(part) for part in chord.parts()), key=itemgetter(0))
        return [self._part_value(task_id, state, value) for _, task_id, state, value in parts]

    def _part_value(self, task_id: str, state: str, value: Any) -> Any:
        if state in states.EXCEPTION_STATES:
            value = self.exception_to_python(value)
        if state in states.PROPAGATE_STATES:
            raise ChordError(f"Dependency {task_id} raised {value!r}") from value
        return value

    def _chord(self, group_id: str) -> Chord:
        return Chord(self.values.path / "chords" / safe_name(group_id))

    # ── as a value ─────────────────────────────────────────────────────────────────────────

    def as_uri(self, include_password: bool = False) -> str:
        """The URL that names these results."""
        return f"penstock+{self.url}"

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})
