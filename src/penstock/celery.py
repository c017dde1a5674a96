"""Celery's results in a folder: one file per result, and a queue that tells who waits.

    app.conf.result_backend = "penstock+file:///var/lib/jobs"

A result is a small file that takes its place at once, so a reader sees all of it or nothing.
Whoever stores one also puts it into a queue of news; a process that waits sleeps on that queue and
reads each result as it comes, however many it waits for. Results may be in the broker's folder: no
queue's name can be one of theirs.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from celery.backends.asynchronous import AsyncBackendMixin, BaseResultConsumer
from celery.backends.base import BaseKeyValueStoreBackend
from celery.exceptions import ImproperlyConfigured
from kombu.utils.encoding import bytes_to_str, ensure_bytes

from penstock import _core
from penstock.disk import files
from penstock.engine.bell import Bell, Inbox
from penstock.engine.folder import MIB, Folder, safe_name
from penstock.engine.group import Group
from penstock.errors import PenstockError

ROOT = "_results"
"""No queue's folder is called so: after `_` stand two hex digits, or what `safe_name` says."""
NEWS = "news"
NEWS_BYTES, NEWS_AGE_S = 64 * MIB, 300.0
SHARDS = 256
SWEEP_EVERY = 256
"""So many results are stored between two looks at a shard for expired ones."""


class News(BaseResultConsumer):  # type: ignore[misc]  # Celery has no types
    """Results as they come, for a process that waits for some."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """Nothing is waited for yet."""
        super().__init__(*args, **keywords)
        self._wanted: dict[str, str] = {}
        """Task ids by key."""
        self._forget()

    def _forget(self) -> None:
        self._turn = threading.RLock()
        self._group: Group | None = None
        self._bell: Bell | None = None
        self._inbox: Inbox | None = None

    def on_after_fork(self) -> None:
        """In a child: it waits for nothing yet."""
        self._wanted.clear()
        self._forget()

    def start(self, initial_task_id: str, **_: Any) -> None:
        """From now on nothing is missed."""
        self.consume_from(initial_task_id)

    def consume_from(self, task_id: str) -> None:
        """This result is waited for."""
        with self._turn:
            if self._group is None:
                folder = self.backend.folder
                self._bell = Bell()
                self._inbox = Inbox(folder, self._bell, NEWS, "")
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
        if self._read() or self._bell is None:
            if self._bell is None and timeout:
                time.sleep(timeout)
            return
        self._bell.wait(timeout)
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
        """Waits no more."""
        with self._turn:
            if self._inbox is not None:
                self._inbox.close()
            if self._group is not None:
                with suppress(PenstockError, OSError):
                    self._group.close()
            if self._bell is not None:
                self._bell.close()
            self._group = self._inbox = self._bell = None


class Backend(BaseKeyValueStoreBackend, AsyncBackendMixin):  # type: ignore[misc]
    """Results of tasks, groups and chords."""

    ResultConsumer = News
    implements_incr = True
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
        self._is_synced = "durability=always" in parts.query
        self._folder: tuple[int, Folder] | None = None
        self._stored = os.getpid()  # Processes that start together sweep different shards.
        self.result_consumer = self.ResultConsumer(
            self, self.app, self.accept, self._pending_results, self._pending_messages
        )

    @property
    def folder(self) -> Folder:
        """Where results are; a forked child opens its own."""
        if self._folder is None or self._folder[0] != os.getpid():
            news: Any = {"durability": "process", "retention_bytes": NEWS_BYTES}
            news |= {"retention_age_s": NEWS_AGE_S, "retain_unread_max_s": NEWS_AGE_S}
            found = Folder.shared(Path(self._path).expanduser() / ROOT, **news)
            self._folder = (os.getpid(), found)
        return self._folder[1]

    def key_of(self, task_id: str) -> str:
        """The key of a result, as text."""
        return str(bytes_to_str(self.get_key_for_task(task_id)))

    def _file_of(self, key: Any) -> Path:
        name = safe_name(bytes_to_str(key))
        return self.folder.path / f"{zlib.crc32(name.encode()) % SHARDS:02x}" / name

    # ── what Celery's key-value backends need ──────────────────────────────────────────────

    def get(self, key: Any) -> bytes | None:
        """What is stored there; none when nothing is, or its time is over."""
        try:
            with files.reading(self._file_of(key)) as stream:
                if self._is_old(os.fstat(stream.fileno()).st_mtime):
                    return None
                return stream.read() or None  # Empty: the power went before it was written.
        except FileNotFoundError:
            return None

    def mget(self, keys: list[Any]) -> list[bytes | None]:
        """Several at once."""
        return [self.get(key) for key in keys]

    def set(self, key: Any, value: Any) -> None:
        """Stores, and tells who waits."""
        path, body = self._file_of(key), ensure_bytes(value)
        try:
            _core.replace_file(path, body, synced=self._is_synced)
        except FileNotFoundError:
            files.make_folder(path.parent)
            _core.replace_file(path, body, synced=self._is_synced)
        text = str(bytes_to_str(key))
        if text.startswith(bytes_to_str(self.task_keyprefix)):
            self.folder.jobs(NEWS).queue.put(body, id=text)
        self._stored += 1
        if self._stored % SWEEP_EVERY == 0:
            self._sweep(self._stored // SWEEP_EVERY % SHARDS)

    def delete(self, key: Any) -> None:
        """Forgets it."""
        with suppress(FileNotFoundError):
            self._file_of(key).unlink()

    def incr(self, key: Any) -> int:
        """Counts, with everyone else: answers this one's number."""
        path = self._file_of(key)
        files.make_folder(path.parent)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = int(os.pread(file, 32, 0) or b"0") + 1
            os.pwrite(file, b"%d" % number, 0)
            return number
        finally:
            os.close(file)

    def expire(self, key: Any, value: Any) -> None:
        """Nothing: a file's age says it."""

    # ── expiry ─────────────────────────────────────────────────────────────────────────────

    def _is_old(self, stored_at: float) -> bool:
        return bool(self.expires) and stored_at < time.time() - self.expires

    def _sweep(self, shard: int) -> None:
        folder = self.folder.path / f"{shard:02x}"
        for name in files.names_in(folder):
            with suppress(FileNotFoundError):
                if self._is_old((folder / name).stat().st_mtime):
                    (folder / name).unlink()

    def cleanup(self) -> None:
        """Deletes everything that has expired; `celery beat` calls it, nobody has to."""
        for shard in range(SHARDS):
            self._sweep(shard)

    # ── as a value ─────────────────────────────────────────────────────────────────────────

    def as_uri(self, include_password: bool = False) -> str:
        """The URL."""
        return f"penstock+{self.url}"

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Travels as its URL."""
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})
