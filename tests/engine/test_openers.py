"""Who has a queue open: others who see another boot id, forked children, interrupted openers."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from penstock import ClosedError, Empty, Group, Queue, StorageError
from penstock.clock import ManualClock
from penstock.sidecar.control import CONTROL, peek
from penstock.sidecar.groups import TABLE
from tests import lockwords
from tests.formats.checks import alarm
from tests.opening import small_segments
from tests.reading import bodies
from tests.waiting import LONG_S, sleeps_on_a_shared_word, words_of

FORMATS = ["penstock", "zbus", "beats", "vqs", "mfq"]
OFD_SETLK = 37
SLEEPERS = 1 << 31


def queue_of(path: Path, format: str = "penstock", **options: object) -> Queue:
    name = "queue.bin" if format == "vqs" else "queue"
    return Queue(path / name, format=format, **{"durability": "process"} | options)  # type: ignore[arg-type]


def other_boot() -> ManualClock:
    """The clock of a container that sees another boot id than its neighbour."""
    clock = ManualClock()
    clock.restart()
    return clock


@contextmanager
def opening_lock(sidecar: Path) -> Iterator[int]:
    """Someone else is opening the queue."""
    descriptor = os.open(sidecar / "lock", os.O_RDWR)
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0)
    fcntl.fcntl(descriptor, OFD_SETLK, lock)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def in_child(work: Callable[[], object]) -> str:
    """What `work` answers in a forked child, or what it raises there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


@contextmanager
def idle_child(*inherited: int) -> Iterator[None]:
    """A forked child that lives until the block ends, and has nothing to do with any queue."""
    ready, say_ready = os.pipe()
    over, say_over = os.pipe()
    child = os.fork()
    if child == 0:
        for descriptor in (*inherited, say_over):
            os.close(descriptor)
        os.write(say_ready, b"x")
        os.read(over, 1)
        os._exit(0)
    os.read(ready, 1)
    try:
        yield
    finally:
        for descriptor in (ready, say_ready, over, say_over):
            os.close(descriptor)
        os.waitpid(child, 0)


# ── who is alone ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", FORMATS)
def test_an_opener_with_another_boot_id_recovers_nothing_under_the_others(
    tmp_path: Path, format: str
) -> None:
    first = queue_of(tmp_path, format, clock=ManualClock())
    first.put_many([b"1", b"2"])
    lockwords.hold_append_lock(first)
    second = queue_of(tmp_path, format, clock=other_boot())
    assert not second.store.was_first
    assert words_of(first.store.need_shared())["lock"]  # It is in the middle of an append.
    lockwords.give_append_lock(first)
    second.put(b"3")
    first.put(b"4")
    assert bodies(first) == bodies(second) == [b"1", b"2", b"3", b"4"]
    second.close()
    first.close()


@pytest.mark.parametrize("format", FORMATS)
def test_an_opener_with_another_boot_id_leaves_leases_to_their_holders(
    tmp_path: Path, format: str
) -> None:
    with queue_of(tmp_path, format, clock=ManualClock()) as first:
        first.put_many([b"1", b"2"])
        held = first.group("g", ack="lease").get(0)
        with queue_of(tmp_path, format, clock=other_boot()) as second:
            group = second.group("g")
            assert group.get(0).body == b"2"
            with pytest.raises(Empty):
                group.get(0)
        held.ack()


def test_nobody_joins_by_a_control_block_that_says_nothing(tmp_path: Path) -> None:
    with queue_of(tmp_path) as queue:
        queue.put(b"1")
        block = queue.store.sidecar / "control"
        kept = block.read_bytes()
        block.write_bytes(bytes(len(kept)))
        with pytest.raises(StorageError, match="other processes have the queue open"):
            queue_of(tmp_path)
        block.write_bytes(kept)


# ── the opening lock ───────────────────────────────────────────────────────────────────────────


def open_it(queue: Queue) -> object:
    return Queue(queue.path)


def open_a_group(queue: Queue) -> object:
    return queue.group("new")


def close_it(queue: Queue) -> None:
    queue.close()


@pytest.mark.parametrize("work", [open_it, open_a_group, close_it])
def test_a_wait_for_the_opening_lock_is_ended_by_a_signal(
    tmp_path: Path, work: Callable[[Queue], object]
) -> None:
    queue = queue_of(tmp_path)
    queue.put(b"1")
    with (
        opening_lock(queue.store.sidecar),
        pytest.raises(KeyboardInterrupt),
        alarm(0.05),
    ):
        work(queue)
    with queue_of(tmp_path) as later:  # Nothing was left locked.
        assert bodies(later) == [b"1"]
        later.group("another")
    queue.close()


def test_an_exception_while_the_opening_lock_is_held_gives_it_back(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with queue_of(tmp_path) as queue:
        with pytest.raises(KeyboardInterrupt):
            queue.store.need_shared().alone(fail)
        with opening_lock(queue.store.sidecar):
            pass


def test_closing_beside_a_frozen_holder_is_ended_by_a_signal(tmp_path: Path) -> None:
    with queue_of(tmp_path) as frozen:
        queue = queue_of(tmp_path, durability="interval", sync_interval_s=3600.0)
        queue.put(b"1")
        lockwords.hold_append_lock(frozen)
        with pytest.raises(KeyboardInterrupt), alarm(0.05):
            queue.close()
        assert queue.is_closed
        lockwords.give_append_lock(frozen)
        assert frozen.store.need_shared().alone(frozen.store.need_shared().is_alone)
        assert bodies(frozen) == [b"1"]


def test_one_ctrl_c_ends_a_close_of_which_every_step_would_wait(tmp_path: Path) -> None:
    with queue_of(tmp_path, "vqs", max_bytes=65536) as frozen:
        queue = queue_of(tmp_path, "vqs", max_bytes=65536, durability="always")
        group = queue.group("g")
        for number in range(4):
            queue.put(b"%d" % number)
        group.get(0).ack()
        lockwords.hold_append_lock(frozen)
        waits = []

        def interrupted() -> None:
            waits.append("free")
            raise KeyboardInterrupt

        queue._free_consumed = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            queue.close()  # A second wait would never end.
        assert waits == ["free"]
        assert queue.is_closed
        with pytest.raises(ClosedError):
            group.get(0)
        lockwords.give_append_lock(frozen)
        assert frozen.store.need_shared().alone(frozen.store.need_shared().is_alone)
        assert bodies(frozen)[-3:] == [b"1", b"2", b"3"]


def test_one_ctrl_c_keeps_the_later_steps_of_a_close_from_being_begun(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    begun = []

    def interrupted() -> None:
        begun.append("first")
        raise KeyboardInterrupt

    steps = (interrupted, lambda: begun.append("later"))
    queue._closing_steps = lambda: steps  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(KeyboardInterrupt):
        queue.close()
    assert begun == ["first"]
    assert queue.is_closed


def test_an_error_in_one_step_of_a_close_keeps_no_other_from_being_done(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    group = queue.group("g")
    queue.put(b"1")
    met = []

    def fail() -> None:
        met.append("free")
        raise StorageError(queue.path, "no luck")

    queue._free_consumed = fail  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="no luck"):
        queue.close()
    assert met == ["free"]
    with pytest.raises(ClosedError):
        group.get(0)
    words = peek(queue.store.sidecar)
    assert words is not None
    assert words.is_clean


@pytest.mark.parametrize("lock", lockwords.LOCKS)
@pytest.mark.parametrize("format", FORMATS)
def test_the_slot_stays_until_the_last_thread_is_done(
    tmp_path: Path, format: str, lock: str
) -> None:
    """Or others would inherit the lock that the thread has, and work under it at once."""
    with queue_of(tmp_path, format) as other:
        queue = queue_of(tmp_path, format)
        group = queue.group("g")
        lockwords.hold(queue, lock)  # As a thread in the middle of an append has it.
        closing = threading.Thread(target=queue.store.drop)
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
        assert not other.store.need_shared().is_alone()
        lockwords.give(queue, lock)
        closing.join(LONG_S)
        assert other.store.need_shared().is_alone()
        assert group.name == "g"  # It was open all the while.


# ── forks ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ack", ["auto", "lease"])
def test_what_was_bound_before_a_fork_does_nothing_in_the_child(
    tmp_path: Path, ack: Literal["auto", "lease"]
) -> None:
    with queue_of(tmp_path) as queue:
        queue.put_many([b"1", b"2", b"3"])
        group = queue.group("g", ack=ack)
        put, put_many, get, get_many = queue.put, queue.put_many, group.get, group.get_many
        message = group.get(0)
        assert in_child(lambda: put(b"no")).startswith("ClosedError: the queue was opened before")
        assert in_child(lambda: get(0)).startswith("ClosedError: the queue was opened before")
        assert in_child(lambda: get_many(2)).startswith("ClosedError: the queue was opened before")
        if ack == "lease":
            assert in_child(message.ack).startswith("ClosedError: the queue was opened before")
        assert in_child(lambda: put_many([b"4"])).isdigit()  # The queue's own: the child's opening.
        assert in_child(lambda: queue.put(b"5")).isdigit()
        assert bodies(queue) == [b"1", b"2", b"3", b"4", b"5"]
        assert group.get(0).body == b"2"


def test_a_fork_while_another_thread_puts_leaves_the_child_no_lock_to_wait_for(
    tmp_path: Path,
) -> None:
    with queue_of(tmp_path) as queue, queue_of(tmp_path) as holder:
        put = queue.put
        lockwords.hold_append_lock(holder)
        thread = threading.Thread(target=put, args=(b"waits",))
        thread.start()
        while not words_of(queue.store.need_shared())["lock"] & SLEEPERS:
            thread.join(0.001)
        with alarm(LONG_S):
            assert in_child(lambda: put(b"no")).startswith("ClosedError")
        lockwords.give_append_lock(holder)
        thread.join(LONG_S)
        assert bodies(queue) == [b"waits"]


def test_a_child_forked_while_a_thread_opens_does_not_keep_the_opening_alive(
    tmp_path: Path,
) -> None:
    queue_of(tmp_path).close()
    opened: list[Queue] = []
    with ExitStack() as until_the_end:
        with opening_lock(tmp_path / "queue/.penstock") as ours:
            thread = threading.Thread(target=lambda: opened.append(queue_of(tmp_path)))
            thread.start()
            while not _descriptors():
                thread.join(0.001)  # It has the lock file open, and waits for us.
            until_the_end.enter_context(idle_child(ours))
        thread.join(LONG_S)
        opened[0].store.need_shared().abandon()  # As if the parent were killed.
        with queue_of(tmp_path) as later:
            assert later.store.was_first


def _descriptors() -> list[Path]:
    # The test has the lock file open itself, once.
    found = [entry for entry in Path("/proc/self/fd").iterdir() if "lock" in _link(entry)]
    return found[1:]


def _link(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        return ""


def test_a_child_forked_from_a_broadcast_does_not_keep_its_group(tmp_path: Path) -> None:
    with queue_of(tmp_path) as queue:
        group = queue.broadcast()
        seat = group._seat
        assert seat is not None
        with idle_child():
            seat.close()
            assert _is_free(group.folder)


def _is_free(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
    return True


# ── the append lock and the interpreter lock ───────────────────────────────────────────────────


def put(queue: Queue, group: Group) -> object:
    return queue.put(b"waits")


def put_several(queue: Queue, group: Group) -> object:
    return queue.put_many([b"waits", b"too"])


def get(queue: Queue, group: Group) -> object:
    return group.get(0)


def look_on(queue: Queue, group: Group) -> object:
    return group.stats()


def ack_what_was_got(queue: Queue, group: Group) -> object:
    return group.ack_at(0)


def go_on_elsewhere(queue: Queue, group: Group) -> object:
    return group.seek("latest")


def sync_the_group(queue: Queue, group: Group) -> object:
    group.core.sync()
    return None


WAITS = [
    ("append", put), ("append", put_several), ("group", get), ("group", look_on),
    ("group", ack_what_was_got), ("group", go_on_elsewhere), ("sync of the group", sync_the_group),
]  # fmt: skip


@pytest.mark.parametrize(("lock", "work"), WAITS, ids=[work.__name__ for _, work in WAITS])
@pytest.mark.parametrize("format", FORMATS)
def test_who_waits_for_the_interpreter_does_not_hold_a_lock(
    tmp_path: Path, format: str, lock: str, work: Callable[[Queue, Group], object]
) -> None:
    """Or a neighbour in a long call would stall every other process."""
    with queue_of(tmp_path, format) as queue, queue_of(tmp_path, format) as holder:
        queue.put_many([b"1", b"2"])
        group = queue.group("g")
        group.get(0)
        lockwords.hold(holder, lock)
        thread = threading.Thread(target=work, args=(queue, group))
        thread.start()
        path, at = lockwords.place_of(queue, lock)
        with path.open("r+b") as file:
            block = mmap.mmap(file.fileno(), 4096)
        word, python = ctypes.c_uint32.from_buffer(block, at), ctypes.PyDLL(None)
        # Who waits for a turn at a sync sleeps on the count of those that have ended.
        ended = ctypes.c_uint32.from_buffer(block, TABLE.offset_of("syncs_ended"))
        is_turn = work is sync_the_group
        while not (sleeps_on_a_shared_word(thread) if is_turn else word.value & SLEEPERS):
            assert thread.is_alive(), "it took no lock"
            thread.join(0.001)
        before = sys.getswitchinterval()
        sys.setswitchinterval(1000.0)
        try:
            word.value = 0
            ended.value += is_turn
            for slept_on in (word, ended):  # A futex, woken without letting go.
                python.syscall(202, ctypes.byref(slept_on), 1, 1)
            held = [word.value for _ in range(100_000)]
        finally:
            sys.setswitchinterval(before)
        # A sync needs no interpreter: it takes the lock and gives it back meanwhile.
        is_kept = all(held) if is_turn else any(held)
        thread.join(LONG_S)
        assert not thread.is_alive()
        assert not is_kept, "it holds the lock and waits for the interpreter"
        del word, ended, slept_on
        block.close()


@pytest.mark.parametrize("format", ["zbus", "beats", "vqs", "mfq"])
def test_who_syncs_under_the_append_lock_needs_no_interpreter(tmp_path: Path, format: str) -> None:
    """A key that the format has no place for is synced before anyone sees the message: meanwhile
    the threads of its process go on."""
    with queue_of(tmp_path, format, durability="always") as queue:
        queue.put(b"{}", key="k")
        with queue_of(tmp_path, format) as holder:
            # Who waits long for the lock asks for signals, with the interpreter: then once more.
            assert any(_puts_without_the_interpreter(queue, holder) for _ in range(20))


def _puts_without_the_interpreter(queue: Queue, holder: Queue) -> bool:
    """Whether a put gets on while another thread has the interpreter and does not let it go."""
    lockwords.hold_append_lock(holder)
    thread = threading.Thread(target=queue.put, args=(b"{}",), kwargs={"key": "k"})
    thread.start()
    with (queue.store.sidecar / "control").open("r+b") as file:
        block = mmap.mmap(file.fileno(), 4096)
    lock = ctypes.c_uint32.from_buffer(block, CONTROL.offset_of("lock"))
    tail = ctypes.c_uint64.from_buffer(block, CONTROL.offset_of("tail"))
    while not lock.value & SLEEPERS:
        thread.join(0.001)
    before, python = tail.value, ctypes.PyDLL(None)
    interval, end = sys.getswitchinterval(), time.monotonic() + 0.2
    sys.setswitchinterval(1000.0)
    try:
        lock.value = 0
        python.syscall(202, ctypes.byref(lock), 1, 1)  # A futex, woken without letting go.
        while tail.value == before and time.monotonic() < end:
            pass
        is_put = tail.value > before
    finally:
        sys.setswitchinterval(interval)
    thread.join(LONG_S)
    del lock, tail
    block.close()
    return is_put


def puts(queue: Queue, group: Group) -> object:
    return queue.put(b"x" * 600)


def syncs(queue: Queue, group: Group) -> None:
    queue.sync()


def trims(queue: Queue, group: Group) -> object:
    return queue.trim(queue.offsets().tail)


def opens_a_group(queue: Queue, group: Group) -> object:
    return queue.group(f"g{os.urandom(4).hex()}")


def gets_and_acks(queue: Queue, group: Group) -> None:
    queue.put(b"for it")
    group.get(0).ack()


def gets_and_gives_back(queue: Queue, group: Group) -> None:
    queue.put(b"for it")
    group.get(0).nack()


def goes_elsewhere(queue: Queue, group: Group) -> object:
    return group.seek("earliest")


def begins_a_journal(queue: Queue, group: Group) -> None:
    group.core.checkpoint()


INTERRUPTED = [
    puts, syncs, trims, opens_a_group, gets_and_acks, gets_and_gives_back, goes_elsewhere,
    begins_a_journal,
]  # fmt: skip


@pytest.mark.parametrize("work", INTERRUPTED)
@pytest.mark.parametrize("format", FORMATS)
def test_a_signal_that_raises_at_any_moment_leaves_no_lock_behind(
    tmp_path: Path, format: str, work: Callable[[Queue, Group], object]
) -> None:
    """Every function call of these is a moment."""
    with queue_of(tmp_path, format, **small_segments(format)) as queue:
        group = queue.group("g")
        _interrupt_everywhere(queue, lambda: work(queue, group))
        with queue_of(tmp_path, format) as other, alarm(LONG_S):
            other.put(b"goes on")
            other.group("more")
            other.group("g").stats()


def _interrupt_everywhere(queue: Queue, work: Callable[[], object], most: int = 60) -> None:
    class Interrupt(Exception):
        pass

    def raise_it(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        for moment in range(most):
            left = moment

            def look(_: object, event: str, __: object) -> None:
                nonlocal left
                # Where Python looks at signals: not right before a call, where `with` has left its
                # block and is about to give a lock back.
                if event not in ("call", "c_return"):
                    return
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGUSR1)

            sys.setprofile(look)
            try:
                try:
                    work()
                finally:
                    left = 0
                    sys.setprofile(None)
            except (Interrupt, Empty):
                pass
            until, pause = time.monotonic() + LONG_S, threading.Event()
            for lock in lockwords.LOCKS:  # A maintenance thread may have one for a moment.
                while lockwords.is_held(queue, lock) and time.monotonic() < until:
                    pause.wait(0.001)
                assert not lockwords.is_held(queue, lock)
            with opening_lock(queue.store.sidecar):
                pass
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_closed_queue_says_so(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    put = queue.put
    queue.close()
    with pytest.raises(ClosedError, match="the queue was closed"):
        put(b"x")
