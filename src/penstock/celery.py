"""Celery's results in a folder: one file per result, and a queue that tells who waits.

    app.conf.result_backend = "penstock+file:///var/lib/jobs"

A result is a small file that takes its place at once, so a reader sees all of it or nothing.
Whoever stores one also puts it into a queue of news; a process that waits sleeps on that queue and
reads each result as it comes, however many it waits for. Results may be in the broker's folder: no
queue's name can be one of theirs.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from celery.backends.asynchronous import AsyncBackendMixin, BaseResultConsumer
from celery.backends.base import BaseKeyValueStoreBackend
from celery.exceptions import ImproperlyConfigured
from kombu.utils.encoding import bytes_to_str, ensure_bytes

from penstock.engine.bell import Bell, Inbox
from penstock.engine.folder import MIB, Folder
from penstock.engine.group import Group
from penstock.engine.shelf import Shelf
from penstock.errors import PenstockError

ROOT = "_results"
"""No queue's folder is called so: after `_` stand two hex digits, or what `safe_name` says."""
NEWS = "news"
NEWS_BYTES, NEWS_AGE_S = 64 * MIB, 300.0


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
        self._folder: tuple[int, Folder] | None = None
        self.shelf = Shelf(
            Path(self._path).expanduser().absolute() / ROOT,
            expires_s=self.expires,
            synced="durability=always" in parts.query,
        )
        self.result_consumer = self.ResultConsumer(
            self, self.app, self.accept, self._pending_results, self._pending_messages
        )

    @property
    def folder(self) -> Folder:
        """Where results are; a forked child opens its own."""
        if self._folder is None or self._folder[0] != os.getpid():
            news: Any = {"durability": "process", "retention_bytes": NEWS_BYTES}
            news |= {"retention_age_s": NEWS_AGE_S, "retain_unread_max_s": NEWS_AGE_S}
            found = Folder.shared(self.shelf.path, **news)
            self._folder = (os.getpid(), found)
        return self._folder[1]

    def key_of(self, task_id: str) -> str:
        """The key of a result, as text."""
        return str(bytes_to_str(self.get_key_for_task(task_id)))

    # ── what Celery's key-value backends need ──────────────────────────────────────────────

    def get(self, key: Any) -> bytes | None:
        """What is stored there; none when nothing is, or its time is over."""
        return self.shelf.get(bytes_to_str(key))

    def mget(self, keys: list[Any]) -> list[bytes | None]:
        """Several at once."""
        return [self.get(key) for key in keys]

    def set(self, key: Any, value: Any) -> None:
        """Stores, and tells who waits."""
        name, body = bytes_to_str(key), ensure_bytes(value)
        self.shelf.set(name, body)
        if name.startswith(bytes_to_str(self.task_keyprefix)):
            self.folder.jobs(NEWS).queue.put(body, id=name)

    def delete(self, key: Any) -> None:
        """Forgets it."""
        self.shelf.delete(bytes_to_str(key))

    def incr(self, key: Any) -> int:
        """Counts, with everyone else: answers this one's number."""
        return self.shelf.incr(bytes_to_str(key))

    def expire(self, key: Any, value: Any) -> None:
        """Nothing: a file's age says it."""

    def cleanup(self) -> None:
        """Deletes everything that has expired; `celery beat` calls it, nobody has to."""
        self.shelf.sweep()

    # ── as a value ─────────────────────────────────────────────────────────────────────────

    def as_uri(self, include_password: bool = False) -> str:
        """The URL."""
        return f"penstock+{self.url}"

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Travels as its URL."""
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})
