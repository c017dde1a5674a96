"""Small values by key, one file each: results of tasks, counters, progress.

A value takes its place at once, so a reader sees all of one or nothing. What is older than
`expires_s` is not there any more, and is deleted little by little by those who store.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.engine import threads
from penstock.engine.folder import safe_name

SHARDS = 256
SWEEP_EVERY = 256
"""After this many values were stored, one shard is searched for old ones."""


class ValueFolder:
    """A folder of values."""

    path: Path
    expires_s: float | None

    def __init__(self, path: Path, *, expires_s: float | None = None, synced: bool = False) -> None:
        """Makes nothing yet. With `synced` a stored value survives the power too."""
        self.path, self.expires_s, self._is_synced = path, expires_s, synced
        self._stored = os.getpid()  # Processes that start together sweep different shards.

    def _file_of(self, key: str) -> Path:
        name = safe_name(key)
        return self.path / f"{zlib.crc32(name.encode()) % SHARDS:02x}" / name

    def get(self, key: str) -> bytes | None:
        """What is stored there; none when nothing is, or its time is over."""
        try:
            with files.reading(self._file_of(key)) as stream:
                if self._is_old(os.fstat(stream.fileno()).st_mtime):
                    return None
                return stream.read() or None  # Empty: the power went before it was written.
        except FileNotFoundError:
            return None

    def has(self, key: str) -> bool:
        """Whether there is something."""
        try:
            found = self._file_of(key).stat()
        except FileNotFoundError:
            return False
        return found.st_size > 0 and not self._is_old(found.st_mtime)

    def set(self, key: str, value: bytes) -> None:
        """Stores a value under a key."""
        path = self._file_of(key)
        try:
            _core.replace_file(path, value, synced=self._is_synced)
        except FileNotFoundError:
            files.make_folder(path.parent)
            _core.replace_file(path, value, synced=self._is_synced)
        self._stored += 1
        if self._stored % SWEEP_EVERY == 0:
            self._sweep(self._stored // SWEEP_EVERY % SHARDS)

    def pop(self, key: str) -> bytes | None:
        """Takes it away: of several who ask at once, one gets it."""
        path = self._file_of(key)
        mine = path.with_name(f"{path.name}.{os.urandom(8).hex()}-{os.getpid():x}.tmp")
        try:
            path.rename(mine)
        except FileNotFoundError:
            return None
        is_old, value = self._is_old(mine.stat().st_mtime), mine.read_bytes()
        mine.unlink()
        return None if is_old else value or None

    def add(self, key: str, value: bytes) -> bool:
        """Stores where nothing is; false where there is something."""
        path = self._file_of(key)
        files.make_folder(path.parent)
        turn = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            threads.lock_file(turn)  # Of several who ask at once, one stores.
            if self.has(key):
                return False
            _core.replace_file(path, value, synced=self._is_synced)
            return True
        finally:
            threads.unlock_file(turn)

    def incr(self, key: str, by: int = 1) -> int:
        """Counts, with everyone else: returns the new number."""
        path = self._file_of(key)
        files.make_folder(path.parent)
        file = _core.open_or_create(path)
        try:
            threads.lock_file(file)
            number = int(os.pread(file, 32, 0) or b"0") + by
            os.pwrite(file, b"%-24d" % number, 0)
            return number
        finally:
            threads.unlock_file(file)

    def delete(self, key: str) -> bool:
        """Forgets it; false when there was nothing."""
        try:
            self._file_of(key).unlink()
        except FileNotFoundError:
            return False
        return True

    def values(self) -> Iterator[bytes]:
        """Everything that is there, in no order."""
        for path in self.path.glob("??/*"):
            if not files.is_temporary(path.name):
                with suppress(FileNotFoundError):
                    if not self._is_old(path.stat().st_mtime):
                        yield path.read_bytes()

    def clear(self) -> None:
        """Forgets every value."""
        for path in self.path.glob("??/*"):
            path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Deletes everything that is old."""
        for shard in range(SHARDS):
            self._sweep(shard)

    def _sweep(self, shard: int) -> None:
        folder = self.path / f"{shard:02x}"
        for name in files.names_in(folder):
            with suppress(FileNotFoundError):
                if self._is_old((folder / name).stat().st_mtime):
                    (folder / name).unlink()

    def _is_old(self, stored_at: float) -> bool:
        return bool(self.expires_s) and stored_at < time.time() - float(self.expires_s or 0)
