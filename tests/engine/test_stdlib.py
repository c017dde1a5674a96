"""The face of `queue.Queue`: what the standard library promises, between threads and processes."""

from __future__ import annotations

import logging
import logging.handlers
import multiprocessing
import os
import pickle
import queue as standard
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.waiting import until_it_waits


@pytest.fixture
def tasks(tmp_path: Path) -> penstock.StandardQueue:
    return penstock.StandardQueue(tmp_path / "q")


def test_items_come_out_as_they_went_in_first_in_first_out(tasks: penstock.StandardQueue) -> None:
    for item in ({"a": 1}, [1, None], "text", 7):
        tasks.put(item)
    assert [tasks.get() for _ in range(4)] == [{"a": 1}, [1, None], "text", 7]


def test_errors_are_those_of_the_standard_library(tmp_path: Path) -> None:
    tasks = penstock.StandardQueue(tmp_path / "q", maxsize=1)
    with pytest.raises(standard.Empty):
        tasks.get_nowait()
    with pytest.raises(standard.Empty):
        tasks.get(timeout=0.01)
    tasks.put(1)
    with pytest.raises(standard.Full):
        tasks.put_nowait(2)
    with pytest.raises(standard.Full):
        tasks.put(2, timeout=0.01)


def test_a_handle_that_is_dropped_gives_back_what_it_had_not_marked_done(tmp_path: Path) -> None:
    tasks = penstock.StandardQueue(tmp_path / "q")
    for item in range(5):
        tasks.put(item)
    tasks.get()
    tasks.task_done()
    assert [tasks.get(), tasks.get()] == [1, 2]
    tasks = penstock.StandardQueue(tmp_path / "q")
    assert tasks.qsize() == 4
    assert sorted(tasks.get() for _ in range(4)) == [1, 2, 3, 4]


@pytest.mark.parametrize("call", ["put", "get"])
def test_a_negative_timeout_is_refused(tasks: penstock.StandardQueue, call: str) -> None:
    with pytest.raises(ValueError, match="non-negative"):
        tasks.put(1, timeout=-1) if call == "put" else tasks.get(timeout=-1)


def test_qsize_empty_and_full_count_what_waits(tmp_path: Path) -> None:
    tasks = penstock.StandardQueue(tmp_path / "q", maxsize=2)
    assert (tasks.qsize(), tasks.empty(), tasks.full()) == (0, True, False)
    tasks.put(1)
    tasks.put(2)
    assert (tasks.qsize(), tasks.empty(), tasks.full()) == (2, False, True)
    tasks.get()
    assert (tasks.qsize(), tasks.full()) == (1, False)


def test_a_put_into_a_full_queue_waits_for_a_get(tmp_path: Path) -> None:
    tasks = penstock.StandardQueue(tmp_path / "q", maxsize=1)
    tasks.put(1)
    thread = threading.Thread(target=tasks.put, args=(2,))
    thread.start()
    until_it_waits(thread, tasks.queue, "room_wanted")
    assert tasks.get() == 1
    thread.join(60)
    assert tasks.get() == 2


def test_maxsize_is_never_exceeded_by_many_threads(tmp_path: Path) -> None:
    tasks = penstock.StandardQueue(tmp_path / "q", maxsize=5)
    refused: list[int] = []

    def put_some() -> None:
        for number in range(5):
            try:
                tasks.put_nowait(number)
            except standard.Full:
                refused.append(number)

    threads = [threading.Thread(target=put_some) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tasks.qsize(), len(refused)) == (5, 35)


def test_task_done_more_often_than_items_were_taken_is_an_error(
    tasks: penstock.StandardQueue,
) -> None:
    tasks.put(1)
    tasks.get()
    tasks.task_done()
    with pytest.raises(ValueError, match="too many times"):
        tasks.task_done()


def test_join_returns_when_every_item_is_done(tasks: penstock.StandardQueue) -> None:
    for number in range(3):
        tasks.put(number)
    joined = threading.Thread(target=tasks.join)
    joined.start()
    for _ in range(3):
        assert joined.is_alive()
        tasks.get()
        tasks.task_done()
    joined.join(60)
    assert not joined.is_alive()
    assert tasks.unfinished == 0


def test_join_returns_at_once_when_nothing_was_put(tasks: penstock.StandardQueue) -> None:
    tasks.join()


def test_each_thread_marks_its_own_items_done(tasks: penstock.StandardQueue) -> None:
    tasks.put("slow")
    tasks.put("quick")
    assert tasks.get() == "slow"

    def quick() -> None:
        assert tasks.get() == "quick"
        tasks.task_done()

    thread = threading.Thread(target=quick)
    thread.start()
    thread.join()
    tasks.close()
    again = penstock.StandardQueue(tasks.queue.path)
    assert again.get() == "slow"
    with pytest.raises(standard.Empty):
        again.get_nowait()


def test_what_was_not_done_comes_again_after_a_restart(tmp_path: Path) -> None:
    with penstock.StandardQueue(tmp_path / "q") as tasks:
        tasks.put("a")
        tasks.put("b")
        tasks.get()
        tasks.get()
        tasks.task_done()
    with penstock.StandardQueue(tmp_path / "q") as tasks:
        assert tasks.get() == "b"


def test_with_ack_auto_a_get_is_final(tmp_path: Path) -> None:
    with penstock.StandardQueue(tmp_path / "q", ack="auto") as tasks:
        tasks.put("a")
        assert tasks.get() == "a"
        tasks.task_done()
        tasks.join()
    with penstock.StandardQueue(tmp_path / "q", ack="auto") as tasks:
        assert tasks.empty()


def test_one_group_has_one_way_of_acking(tmp_path: Path) -> None:
    penstock.StandardQueue(tmp_path / "q").close()
    with pytest.raises(penstock.GroupError, match="ack"):
        penstock.StandardQueue(tmp_path / "q", ack="auto")


def work(tasks: penstock.StandardQueue, results: penstock.StandardQueue) -> None:
    while True:
        item = tasks.get(timeout=60)
        if item is not None:
            results.put(item * 2)
        tasks.task_done()
        if item is None:
            return


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_share_the_work_and_join_waits_for_them(tmp_path: Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    tasks = penstock.StandardQueue(tmp_path / "tasks")
    results = penstock.StandardQueue(tmp_path / "results", ack="auto")
    workers = [context.Process(target=work, args=(tasks, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for item in [*range(50), None, None]:
        tasks.put(item)
    tasks.join()
    assert sorted(results.get(timeout=0) for _ in range(50)) == [n * 2 for n in range(50)]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0


def take_and_hang(tasks: penstock.StandardQueue) -> None:
    tasks.get(timeout=60)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.crash
def test_the_item_of_a_killed_worker_goes_to_another(tasks: penstock.StandardQueue) -> None:
    tasks.put("precious")
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=take_and_hang, args=(tasks,))
    worker.start()
    worker.join()
    assert tasks.get(timeout=30) == "precious"


def test_a_handle_can_be_copied_to_another_process(tasks: penstock.StandardQueue) -> None:
    tasks.put("a")
    copy = pickle.loads(pickle.dumps(tasks))
    assert copy.get(timeout=0) == "a"
    copy.close()


@pytest.fixture
def logger() -> logging.Logger:
    return logging.Logger("test")


def test_log_records_travel_by_queue_handler_and_listener(
    tmp_path: Path, logger: logging.Logger
) -> None:
    records = penstock.StandardQueue(tmp_path / "log", codec="logrecord")
    logger.addHandler(logging.handlers.QueueHandler(records))
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(self.format(record))

    listener = logging.handlers.QueueListener(records, Keep())
    listener.start()
    logger.warning("hello %s", "world")
    try:
        raise KeyError("gone")
    except KeyError:
        logger.exception("failed")
    listener.stop()
    assert seen[0] == "hello world"
    assert "KeyError: 'gone'" in seen[1]
    assert records.unfinished == 0


# What users of persist-queue rely on, in our words.


def test_an_item_given_back_comes_again_and_an_acked_one_never(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", codec="json") as queue:
        queue.put({"n": 1})
        message = queue.get(0)
        message.nack()
        again = queue.get(0)
        assert again.value == {"n": 1}
        again.ack()
        with pytest.raises(standard.Empty):
            queue.get(0)


def test_unacked_items_come_again_after_a_crash_of_the_consumer(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        queue = penstock.Queue(tmp_path / "q", codec="str")
        queue.put("a")
        queue.get(0)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    with penstock.Queue(tmp_path / "q", codec="str") as queue:
        assert queue.get(10).value == "a"


def test_peeking_takes_nothing(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", codec="str") as queue:
        queue.put_many(["a", "b"])
        assert [m.value for m in queue.peek(2)] == ["a", "b"]
        assert [m.value for m in queue.get_many(2)] == ["a", "b"]


def test_order_and_count_survive_reopening(tmp_path: Path) -> None:
    for item in range(5):
        with penstock.StandardQueue(tmp_path / "q", ack="auto") as tasks:
            tasks.put(item)
    with penstock.StandardQueue(tmp_path / "q", ack="auto") as tasks:
        assert tasks.qsize() == 5
        assert [tasks.get() for _ in range(5)] == list(range(5))


def test_a_body_that_is_no_item_is_an_error_and_the_next_one_is_fine(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as raw:
        raw.put_many([b"{no json", b'"fine"'])
    with penstock.StandardQueue(tmp_path / "q") as tasks:
        with pytest.raises(penstock.CodecError):
            tasks.get(timeout=0)
        assert tasks.get(timeout=0) == "fine"


def test_many_threads_lose_and_double_nothing(tasks: penstock.StandardQueue) -> None:
    seen: list[int] = []

    def consume() -> None:
        while (item := tasks.get()) is not None:
            seen.append(item)
            tasks.task_done()

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1000):
        tasks.put(number)
    for _ in threads:
        tasks.put(None)
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1000))


def test_after_a_shutdown_what_is_there_is_taken_and_no_more(
    tasks: penstock.StandardQueue,
) -> None:
    tasks.put(1)
    tasks.shutdown()
    with pytest.raises(penstock.ShutDown):
        tasks.put(2)
    assert tasks.get() == 1
    for block in (True, False):
        with pytest.raises(penstock.ShutDown):
            tasks.get(block=block)


def test_an_immediate_shutdown_leaves_what_waits_for_the_next_opening(tmp_path: Path) -> None:
    with penstock.StandardQueue(tmp_path / "q") as tasks:
        tasks.put(1)
        tasks.shutdown(immediate=True)
        with pytest.raises(penstock.ShutDown):
            tasks.get()
        tasks.join()
    with penstock.StandardQueue(tmp_path / "q") as tasks:
        assert tasks.get_nowait() == 1


@pytest.mark.parametrize("verb", ["get", "put"])
def test_a_shutdown_ends_the_waits_of_other_threads(tmp_path: Path, verb: str) -> None:
    tasks = penstock.StandardQueue(tmp_path / "q", maxsize=1)
    if verb == "put":
        tasks.put(1)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            tasks.get() if verb == "get" else tasks.put(2)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until_it_waits(thread, tasks.queue, "waiters" if verb == "get" else "room_wanted")
    tasks.shutdown()
    thread.join()
    assert [type(error) for error in caught] == [penstock.ShutDown]


def test_the_name_of_before_is_there_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="StandardQueue"):
        assert penstock.DropIn is penstock.StandardQueue


@pytest.mark.parametrize("name", ["LifoQueue", "PriorityQueue"])
def test_what_can_not_be_honest_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(AttributeError, match="a queue on disk is a log"):
        getattr(penstock, name)
