"""Dramatiq, taskiq and Huey on a folder."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock


def test_dramatiq_runs_delays_retries_and_buries(tmp_path: Path) -> None:
    dramatiq = pytest.importorskip("dramatiq")
    from penstock.dramatiq import PenstockBroker

    broker = PenstockBroker(tmp_path / "jobs", middleware=[])
    broker.add_middleware(dramatiq.middleware.Retries(min_backoff=1, max_backoff=1))
    done: list[int] = []

    def note(number: int) -> None:
        done.append(number)

    def fail() -> None:
        raise ValueError("no stock")

    worker = dramatiq.Worker(broker, worker_timeout=20, worker_threads=2)
    note_actor = dramatiq.actor(note, broker=broker)
    fail_actor = dramatiq.actor(fail, broker=broker, max_retries=1, queue_name="risky")
    worker.start()
    try:
        note_actor.send(1)
        note_actor.send_with_options(args=(2,), delay=10)
        fail_actor.send()
        broker.join("default", interval=5, timeout=20_000)
        broker.join("risky", interval=5, timeout=20_000)
        worker.join()
    finally:
        worker.stop()
        broker.close()
    assert sorted(done) == [1, 2]
    with penstock.Queue(tmp_path / "jobs" / "risky.XQ", read_only=True) as dead:
        (letter,) = dead.scan()
        assert letter.tag == "fail"
        assert "gave up" in letter.headers["penstock.reason"]


def test_dramatiq_hands_out_no_more_than_its_prefetch(tmp_path: Path) -> None:
    dramatiq = pytest.importorskip("dramatiq")
    from penstock.dramatiq import PenstockBroker

    broker = PenstockBroker(tmp_path / "jobs", middleware=[])
    broker.declare_queue("q")
    for number in range(3):
        broker.enqueue(dramatiq.Message("q", "a", (number,), {}, {}))
    consumer: Any = broker.consume("q", prefetch=2, timeout=1)
    first, second = next(consumer), next(consumer)
    assert (first.args, second.args, next(consumer)) == ((0,), (1,), None)
    consumer.requeue([first])
    consumer.ack(second)
    assert {next(consumer).args[0], next(consumer).args[0]} == {0, 2}
    with pytest.raises(dramatiq.errors.QueueNotFound):
        broker.consume("nowhere")
    broker.flush_all()
    broker.close()


@pytest.mark.parametrize("body", [b"no json", b"\xff", b"7", b"[]", b"{}", b"[" * 100_000])
def test_what_is_no_message_of_dramatiq_s_goes_to_the_dead_letters(
    tmp_path: Path, body: bytes
) -> None:
    dramatiq = pytest.importorskip("dramatiq")
    from penstock.dramatiq import PenstockBroker

    broker = PenstockBroker(tmp_path / "jobs", middleware=[])
    broker.declare_queue("q")
    consumer: Any = broker.consume("q", prefetch=2, timeout=1)
    with penstock.Queue(tmp_path / "jobs" / "q") as queue:
        queue.put(body)
    broker.enqueue(dramatiq.Message("q", "a", (1,), {}, {}))
    assert next(consumer) is None
    assert next(consumer).args == (1,)
    with penstock.Queue(tmp_path / "jobs" / "q.XQ", read_only=True) as dead:
        (letter,) = dead.scan()
        assert letter.body == body
        assert "no message of Dramatiq's" in letter.headers["penstock.reason"]
    consumer.close()
    broker.close()


def test_taskiq_runs_and_answers(tmp_path: Path) -> None:
    pytest.importorskip("taskiq")
    from taskiq.api import run_receiver_task

    from penstock.taskiq import PenstockBroker, PenstockResults

    async def main() -> Any:
        results = PenstockResults(tmp_path / "jobs")
        broker = PenstockBroker(tmp_path / "jobs").with_result_backend(results)

        async def add(x: int, y: int) -> int:
            return x + y

        task = broker.register_task(add, task_name="add")
        await broker.startup()
        receiver = asyncio.create_task(run_receiver_task(broker))
        sent = await task.kiq(2, 3)
        delayed = await task.kicker().with_labels(delay=0.01).kiq(4, 5)
        found = [
            (await one.wait_result(check_interval=0.01, timeout=20)).return_value
            for one in (sent, delayed)
        ]
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)
        await broker.shutdown()
        return found

    assert asyncio.run(main()) == [5, 9]


def test_taskiq_keeps_results_until_they_are_read_or_old(tmp_path: Path) -> None:
    pytest.importorskip("taskiq")
    from taskiq import TaskiqResult
    from taskiq.exceptions import ResultGetError

    from penstock.taskiq import PenstockResults

    async def main() -> None:
        results = PenstockResults(tmp_path, keep_results=False)
        value = TaskiqResult(is_err=False, return_value=7, execution_time=0.1, log="said")
        await results.set_result("../x", value)
        assert await results.is_result_ready("../x")
        assert (await results.get_result("../x")).return_value == 7
        with pytest.raises(ResultGetError):
            await results.get_result("../x")

    asyncio.run(main())
    assert {path.name for path in tmp_path.iterdir()} == {"_taskiq"}


def test_huey_runs_by_priority_and_schedule(tmp_path: Path) -> None:
    pytest.importorskip("huey")
    from penstock.huey import PenstockHuey

    huey = PenstockHuey("shop", path=tmp_path, read_timeout=0)
    done: list[int] = []
    task = huey.task()(done.append)
    for number, priority in ((0, None), (1, 50), (2, -1), (3, 50)):
        task(number, **({} if priority is None else {"priority": priority}))
    assert huey.pending_count() == 4
    while (found := huey.dequeue()) is not None:
        huey.execute(found)
    assert done == [1, 3, 0, 2]
    task.schedule((9,), delay=3600)
    huey.execute(huey.dequeue())  # Not yet: it goes to the schedule.
    assert huey.scheduled_count() == 1
    soon = datetime.now() + timedelta(hours=2)
    assert len(huey.read_schedule(soon)) == 1
    assert huey.scheduled_count() == 0
    huey.storage.close()


def test_huey_stores_locks_and_counts(tmp_path: Path) -> None:
    pytest.importorskip("huey")
    from huey.constants import EmptyData

    from penstock.huey import PenstockStorage

    storage = PenstockStorage("shop", path=tmp_path)
    storage.put_data("k" * 200, b"v")
    assert storage.result_items() == {"k" * 200: b"v"}
    assert [storage.put_if_empty("lock", b"1"), storage.put_if_empty("lock", b"2")] == [True, False]
    assert (storage.pop_data("lock"), storage.pop_data("lock")) == (b"1", EmptyData)
    assert (storage.incr("n"), storage.incr("n", 5)) == (1, 6)
    storage.flush_all()
    assert storage.result_store_size() == 0
    storage.close()
