"""Celery with a folder as broker and result store: a worker in a thread, real files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("celery")

from celery import Celery, chain, chord, group
from celery.contrib.testing.worker import start_worker
from celery.exceptions import ChordError

import penstock
import penstock.kombu
from penstock.celery import ROOT, Backend, Chord

SOON_S = 30


def add(x: int, y: int) -> int:
    return x + y


def total(numbers: list[int]) -> int:
    return sum(numbers)


def itself(found: Any) -> Any:
    return found


def fail() -> None:
    raise ValueError("no stock")


def again(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("celery")
    found = Celery(
        "shop",
        broker=f"penstock://{folder}",
        backend=f"penstock.celery:Backend+file://{folder}",
        set_as_current=False,
    )
    found.conf.update(worker_send_task_events=True, broker_connection_retry_on_startup=True)
    found.folder = folder

    for name, work in (("add", add), ("total", total), ("same", itself), ("fail", fail)):
        found.task(work, name=name)
    found.task(again, name="again", bind=True, max_retries=2)
    with start_worker(found, perform_ping_check=False, loglevel="ERROR", shutdown_timeout=60):
        yield found
    found.backend.close()
    found.close()


def test_a_result_comes_to_the_caller(app: Any) -> None:
    assert app.tasks["add"].delay(2, 3).get(timeout=SOON_S) == 5


def test_an_error_comes_to_the_caller(app: Any) -> None:
    with pytest.raises(ValueError, match="no stock"):
        app.tasks["fail"].delay().get(timeout=SOON_S)


def test_chains_groups_and_chords_run(app: Any) -> None:
    add, total, same = (app.tasks[name] for name in ("add", "total", "same"))
    assert chain(add.s(1, 2), add.s(10))().get(timeout=SOON_S) == 13
    assert group(add.s(n, n) for n in range(5))().get(timeout=SOON_S) == [0, 2, 4, 6, 8]
    parts = [add.s(n, n) for n in range(5)]
    assert chord(parts)(total.s()).get(timeout=SOON_S) == 20
    nested = chord([group(add.s(1, 1), add.s(2, 2)), add.s(5, 5)])(same.s())
    assert sorted(nested.get(timeout=SOON_S)) == [2, 4, 10]  # Celery itself flattens it.
    with pytest.raises((ChordError, ValueError), match="no stock"):  # Whichever comes first.
        chord([add.s(1, 1), app.tasks["fail"].s()])(total.s()).get(timeout=SOON_S)


def test_retries_and_countdowns_run(app: Any) -> None:
    assert app.tasks["again"].delay().get(timeout=SOON_S) == 2
    assert app.tasks["add"].apply_async((1, 1), countdown=0.01).get(timeout=SOON_S) == 2


def test_workers_answer_remote_control(app: Any) -> None:
    (pong,) = app.control.ping(timeout=SOON_S, limit=1)
    assert list(pong.values()) == [{"ok": "pong"}]


def test_events_reach_who_listens(app: Any) -> None:
    seen: list[str] = []

    def note(event: dict[str, Any]) -> None:
        seen.append(event["type"])
        if event["type"] == "task-succeeded":
            receiver.should_stop = True

    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": note})
        with receiver.consumer_context():
            app.tasks["add"].delay(1, 1)
            for _ in receiver.consume(limit=None, timeout=SOON_S, wakeup=False):
                pass
    assert "task-received" in seen


def test_a_result_is_forgotten_and_expires(app: Any, tmp_path: Path) -> None:
    result = app.tasks["add"].delay(1, 1)
    assert result.get(timeout=SOON_S) == 2
    assert app.AsyncResult(result.id).state == "SUCCESS"
    result.forget()
    assert app.AsyncResult(result.id).state == "PENDING"
    backend = Backend(app=app, url=f"file://{tmp_path}", expires=1e-9)
    backend.set("celery-task-meta-x", b"{}")
    assert backend.get("celery-task-meta-x") is None
    backend.cleanup()
    assert list(tmp_path.glob(f"{ROOT}/??/*")) == []


def test_a_chord_s_part_that_runs_twice_counts_once(app: Any, tmp_path: Path) -> None:
    with Chord(tmp_path / "c") as chord:
        chord.put("a", b"1")
    chord.reset(2)
    with chord:
        chord.put("a", b"1")
        assert not chord.is_complete()
        chord.put("b", b"2")
        assert chord.is_complete()
        chord.finish()
        assert not chord.is_complete()
    chord.sweep(1e-9)
    assert not (tmp_path / "c").exists()


def test_no_task_id_leaves_the_folder(app: Any, tmp_path: Path) -> None:
    backend = Backend(app=app, url=f"file://{tmp_path}/results")
    for task_id in ("../../x", "/etc/passwd", "x" * 500):
        backend.store_result(task_id, 1, "SUCCESS")
        assert backend.get_result(task_id) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_waiting_for_nothing_ends_in_time(app: Any) -> None:
    from celery.exceptions import TimeoutError

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        app.AsyncResult("nobody").get(timeout=0.05)
    assert time.monotonic() - began < SOON_S


def test_tasks_can_be_looked_at_as_a_table(app: Any) -> None:
    app.tasks["add"].delay(20, 22).get(timeout=SOON_S)
    with penstock.Queue(app.folder / "celery", read_only=True) as queue:
        found = [message.json()[0] for message in queue.scan(tags="add")]
    assert [20, 22] in found


def test_the_names_that_the_package_registers_lead_somewhere() -> None:
    import tomllib
    from importlib.metadata import EntryPoint

    from kombu.transport import TRANSPORT_ALIASES

    text = Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
    points = tomllib.loads(text)["project"]["entry-points"]
    found = {
        group: EntryPoint(name, value, group).load()
        for group in ("kombu.serializers", "celery.result_backends")
        for name, value in points[group].items()
    }
    assert found["celery.result_backends"] is Backend
    assert len(found["kombu.serializers"]) == 3
    assert TRANSPORT_ALIASES["penstock"] == "penstock.kombu:Transport"
