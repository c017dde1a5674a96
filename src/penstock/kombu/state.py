"""Exchanges, queues and bindings: one small file in the folder, shared by all processes.

It is replaced as a whole under a lock, so a reader sees one state or the next; and it is read
again only when it has changed, which costs a publisher one `stat`.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kombu.transport.virtual.base import BrokerState, binding_key_t
from kombu.transport.virtual.exchange import STANDARD_EXCHANGE_TYPES

from penstock import _core
from penstock.disk import files
from penstock.engine import kept_files
from penstock.engine.threads import lock_file, unlock_file
from penstock.errors import FormatError

FILE, LOCK = "exchanges.json", "exchanges.lock"
ADVICE = "delete it: workers declare what they need when they start again"


class State(BrokerState):  # type: ignore[misc]  # kombu has no types
    """What kombu's channels look at, kept in a folder."""

    exchanges: dict[str, dict[str, Any]]
    bindings: dict[Any, Any]
    queue_index: defaultdict[str, set[Any]]
    is_fresh: bool
    """Whether it was looked at a moment ago."""
    queues: dict[str, dict[str, Any]]
    """What was declared: `arguments`, `auto_delete`, and which `parts` the queue has."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.queues = {}
        self._path, self._lock_path = folder / FILE, folder / LOCK
        self._seen: tuple[int, int] | None = None
        self._turn = threading.RLock()
        self._depth = 0
        self.is_fresh = False
        self.refresh()

    def refresh(self) -> None:
        """Takes over what others have changed."""
        if self.is_fresh:
            return
        try:
            found = os.stat(self._path)  # noqa: PTH116  (at each publish)
            seen = (found.st_ino, found.st_mtime_ns)
        except FileNotFoundError:
            seen = None
        if seen != self._seen and not self._depth:
            with self._turn:
                self._load()
                self._seen = seen

    def looked_up(self) -> Looked:
        """`with` it: what others change is seen when it begins, and not before it ends."""
        return Looked(self)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keeps all others from changing the state, and writes what has changed at the end."""
        with self._turn:
            if self._depth:
                yield
                return
            file = _core.open_or_create(self._lock_path)
            try:
                lock_file(file)
                self._load()
                before = self._as_json()
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                after = self._as_json()
                if after != before:
                    files.write_json(self._path, after)
                self._seen = None
            finally:
                unlock_file(file)

    # ── the file ───────────────────────────────────────────────────────────────────────────

    def _as_json(self) -> dict[str, Any]:
        plain = ("type", "durable", "auto_delete", "arguments")
        return {
            "version": 1,
            "exchanges": {
                name: {key: found.get(key) for key in plain}
                for name, found in self.exchanges.items()
            },
            "bindings": [[*key, arguments] for key, arguments in self.bindings.items()],
            "queues": {name: dict(found) for name, found in self.queues.items()},
        }

    def _load(self) -> None:
        found = kept_files.read(self._path, "exchanges and bindings", ADVICE)
        if found is None:
            found = {"version": 1, "exchanges": {}, "bindings": [], "queues": {}}
        if found.get("version") != 1:
            version = f"version {found.get('version')!r}, expected 1"
            raise FormatError(self._path, version, "use the newer penstock that wrote it")
        try:
            self._take(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(
                self._path, f"no exchanges and bindings: {error!r}", ADVICE
            ) from error

    def _take(self, found: dict[str, Any]) -> None:
        self.exchanges = {name: {**one, "table": []} for name, one in found["exchanges"].items()}
        self.queues = dict(found["queues"])
        self.bindings, self.queue_index = {}, defaultdict(set)
        for queue, exchange, routing_key, arguments in found["bindings"]:
            key = binding_key_t(queue, exchange, routing_key)
            self.bindings[key] = arguments
            self.queue_index[queue].add(key)
            if exchange in self.exchanges:
                kind = STANDARD_EXCHANGE_TYPES[self.exchanges[exchange]["type"]](None)
                meta = kind.prepare_bind(queue, exchange, routing_key, arguments)
                self.exchanges[exchange]["table"].append(meta)


class Looked:
    """See `State.looked_up`. By hand: this is done for every message."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> None:
        self._state.refresh()
        self._state.is_fresh = True

    def __exit__(self, *_: object) -> None:
        self._state.is_fresh = False
