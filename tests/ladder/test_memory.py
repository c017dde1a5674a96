"""Memory runs out: at any question for it, and at any limit of the process. The call is an error,
the process lives on, and nothing that was put is lost."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Empty, PenstockError, Queue, _core
from penstock.formats import registry
from tests import counting
from tests.ladder.means import MEMORY

VARIANTS: dict[str, dict[str, Any]] = {
    "penstock": {"segment_bytes": 1 << 20},
    "penstock lz4": {"format": "penstock", "compression": "lz4", "segment_bytes": 1 << 20},
    "penstock key": {"format": "penstock", "key": bytes(32), "segment_bytes": 1 << 20},
    "zbus": {"segment_bytes": 1 << 20},
    "beats": {"segment_bytes": 1 << 20},
    "beats 3": {"format": "beats", "layout": "3", "key": bytes(16), "segment_bytes": 1 << 20},
    "vqs": {"max_bytes": 1 << 20},
    "mfq": {"segment_bytes": 1 << 20},
}
LARGE = 12 << 20
HANGS_S = 30.0
STEPS, PARTS = 40, 20
"""Limits to a mebibyte in the slow test, and the parts that it comes in."""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-memory-{os.getpid()}"
    path.mkdir()
    yield path
    for one in sorted(path.rglob("*"), reverse=True):
        one.rmdir() if one.is_dir() else one.unlink()
    path.rmdir()


class Use:
    """A queue that is used while memory is short: what came of it."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self.queue = Queue(path, durability="process", **options)
        self.group = self.queue.group("default")
        self.put: list[bytes] = []
        self.acked: list[bytes] = []
        self.refusals = 0

    def attempt(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Empty:
            return None
        except (PenstockError, MemoryError):
            self.refusals += 1
            return None

    def put_one(self, body: bytes, **more: Any) -> None:
        if self.attempt(lambda: self.queue.put(body, **more)) is not None:
            self.put.append(body)

    def take(self) -> None:
        message = self.attempt(lambda: self.group.get(0))
        body = None if message is None else self.attempt(lambda: message.body)
        if body is not None and message is not None:
            message.ack()
            self.acked.append(body)

    def all(self, has_keys: bool) -> None:
        for number in range(3):
            self.put_one(b'{"n":%d}' % number, **({"key": f"k{number}"} if has_keys else {}))
        batch = [b'{"batch":%d}' % number for number in range(2)]
        if self.attempt(lambda: self.queue.put_many(batch)) is not None:
            self.put += batch
        self.take()
        self.take()
        self.attempt(lambda: [message.body for message in self.queue.scan()])

    def rest(self) -> list[bytes]:
        """With memory again: what is still to be had."""
        return [message.body for message in self.group.get_many(100)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_memory_that_is_refused_at_any_question_costs_no_message(
    folder: Path, variant: str
) -> None:
    options = {"format": variant} | VARIANTS[variant]
    name = "q.bin" if options["format"] == "vqs" else "q"
    for nth in range(200):
        use = Use(folder / f"{nth}{name}", options)
        _core.refuse_memory(nth)
        try:
            use.all(has_keys=options["format"] != "mfq")
        finally:
            has_come = _core.refuse_memory(-1)
        held = set(use.put) - set(use.acked)
        found = use.rest()
        use.queue.close()
        # What was handed out and not read is leased: it comes when the lease is over.
        assert len(held - set(found)) <= use.refusals, f"question {nth}"
        with Queue(folder / f"{nth}{name}", create=False, **options) as again:
            assert again.verify().is_ok
            left = {message.body for message in again.group("default").get_many(100)}
        assert held - set(found) <= left, f"question {nth}"
        if not has_come:
            break
        counting.count("refused allocations")
    assert 3 < nth < 199


def in_child(work: Callable[[], None]) -> int:
    """How a process ends that runs `work`; hanging ends it by a signal, and anything but an error
    that a caller may expect, such as a panic, by a status."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with contextlib.suppress(MemoryError, PenstockError):
                work()
            status = 0
        os._exit(status)
    handle = os.pidfd_open(child)
    # `poll`: `select` refuses a number above 1023, and this process may have many files open.
    ending = select.poll()
    ending.register(handle, select.POLLIN)
    has_ended = ending.poll(HANGS_S * 1000)
    os.close(handle)
    if not has_ended:
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def with_little(path: Path, format: str, mebibytes: float) -> None:
    """Large messages with this much of address space left."""
    large = 200 << 10 if format == "vqs" else LARGE
    use = Use(
        path, {"format": format} | ({} if format == "vqs" else {"max_message_bytes": 64 << 20})
    )
    body, small = bytes(large), bytes(large // 12)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(mebibytes * (1 << 20))
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    use.put_one(body)
    use.attempt(lambda: use.queue.put_many([small] * 8))
    use.take()
    use.attempt(lambda: [message.body for message in use.group.get_many(10)])
    use.attempt(lambda: [len(message.body) for message in use.queue.scan()])


def sweep(folder: Path, format: str, limits: list[float]) -> None:
    registry.format_class(format)
    ends = {}
    for number, mebibytes in enumerate(limits):
        path = folder / f"{number}q.bin"
        status = in_child(lambda path=path, left=mebibytes: with_little(path, format, left))  # type: ignore[misc]
        counting.count("limits")
        if status:
            ends[mebibytes] = status
        for one in sorted([path, *path.rglob("*")], reverse=True):
            if one.is_file():
                one.unlink()
    assert ends == {}, "ended by a signal, or by no error of ours"


@pytest.mark.parametrize("format", registry.MODULES)
def test_a_process_with_little_memory_left_lives_on(folder: Path, format: str) -> None:
    sweep(folder, format, [0.5, 8, 13.5, 26, 30])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("format", registry.MODULES)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_process_with_any_little_memory_lives_on(folder: Path, format: str, part: int) -> None:
    # Each part takes every twentieth limit, and all formats do one part before any does the next.
    sweep(folder, format, [step / STEPS for step in range(part, 100 * STEPS, PARTS)])
