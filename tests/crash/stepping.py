"""For tests of death in the middle of an operation: a child is run one machine instruction at a
time, and each state of a group's files that it passes through is kept. To die there is to leave
exactly these files: a killed process loses no store to a shared mapping.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.sidecar.groups import TABLE

TRACEME, SINGLESTEP = 0, 9
MAX_ENTRIES, ENTRIES = 1 << 20, 512
MOST_STEPS = 400_000
JOURNAL_BYTES = 48 << 10
"""These tests write no more."""
AREAS = [(0, 4096)]
"""Where the table keeps what it knows about its first entries: header, entries, order, deadlines,
ready, keys. Everything else is empty in these tests."""
at = 4096
for size, slots in ((96, 1), (8, 1), (4, 1), (4, 1), (16, 2)):
    AREAS.append((at, ENTRIES * slots * size))
    at += MAX_ENTRIES * slots * size
TABLE_BYTES = at
LOCK, FREE = TABLE.offset_of("lock"), bytes(4)
LIBC = ctypes.CDLL(None, use_errno=True)  # Once: half a million steps are made with it.
LIBC.ptrace.argtypes = [ctypes.c_long] * 4
LIBC.ptrace.restype = ctypes.c_long


def ptrace(request: int, pid: int) -> None:
    if LIBC.ptrace(request, pid, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def need_stepping() -> None:
    """Skips, with the reason, where a process may not be run step by step."""
    if platform.machine() != "x86_64":
        pytest.skip("single steps are tried on x86-64 alone")
    pid = os.fork()
    if pid == 0:
        try:
            ptrace(TRACEME, 0)
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        pytest.skip("ptrace is not allowed here")


@dataclass(frozen=True)
class Image:
    """The files of a group at one instant."""

    table: tuple[bytes, ...]
    files: dict[str, bytes]

    def restore(self, folder: Path) -> None:
        """Puts the files back, under everyone's mappings."""
        with (folder / "table").open("r+b") as file:
            for (start, _), content in zip(AREAS, self.table, strict=True):
                file.seek(start)
                file.write(content)
        for path in folder.glob("journal-*"):
            path.unlink()
        (folder / "spare").unlink(missing_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


class Watch:
    """Sees whether anything in a group's folder has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with (folder / "table").open("r+b") as file:
            if file.seek(0, os.SEEK_END) < TABLE_BYTES:
                file.truncate(TABLE_BYTES)
            self.table = mmap.mmap(file.fileno(), 0)
        self.journals: dict[str, mmap.mmap | bytes] = {}
        self.seen: tuple[tuple[bytes, ...], dict[str, bytes], int] | None = None
        self.list_journals()

    def areas(self) -> tuple[bytes, ...]:
        return tuple(self.table[start : start + size] for start, size in AREAS)

    def is_locked(self) -> bool:
        return self.table[LOCK : LOCK + 4] != FREE

    def list_journals(self) -> None:
        self.journals.clear()
        for path in [*self.folder.glob("journal-*"), *self.folder.glob("spare")]:
            with path.open("rb") as file:
                has_bytes = os.fstat(file.fileno()).st_size > 0
                memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if has_bytes else b""
                self.journals[path.name] = memory

    def state(self) -> tuple[tuple[bytes, ...], dict[str, bytes], int]:
        journals = {name: memory[:JOURNAL_BYTES] for name, memory in self.journals.items()}
        return self.areas(), journals, os.stat(self.folder).st_mtime_ns  # noqa: PTH116

    def image(self) -> Image | None:
        """The files as they are, if they are not as they were."""
        if self.state() == self.seen:
            return None
        self.list_journals()
        self.seen = self.state()
        return Image(*self.seen[:2])


def images(folder: Path, work: Callable[[Callable[[], None]], None]) -> list[Image]:
    """Runs `work(ready)` in a child; step by step from `ready()` on, until the group's lock was
    taken and given back. Answers every state while it was held."""
    pid = os.fork()
    if pid == 0:
        try:
            ptrace(TRACEME, 0)
            work(lambda: os.kill(os.getpid(), signal.SIGSTOP))
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSTOPPED(status), "the child did not get as far as its operation"
    watch, found, was_locked = Watch(folder), [], False
    try:
        for _ in range(MOST_STEPS):
            ptrace(SINGLESTEP, pid)
            _, status = os.waitpid(pid, 0)
            assert os.WIFSTOPPED(status), "the child ended without giving the lock back"
            if watch.is_locked():
                was_locked = True
                found += [image] if (image := watch.image()) else []
            elif was_locked:
                return found
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    raise AssertionError(f"no end after {MOST_STEPS} steps")
