"""kombu on a folder: what a broker must do, between connections and processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kombu")

from kombu import Connection, Consumer, Exchange, Producer, Queue

import penstock
import penstock.kombu
from penstock.engine.folder import safe_name

JOBS = Queue("jobs", Exchange("jobs", "direct"), routing_key="jobs")
NOT_THERE_S = 0.0
SOON_S = 20.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"penstock://{tmp_path}/broker"


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with Connection(url) as found:
        yield found


def put(connection: Any, body: Any, queue: Any = JOBS, **keywords: Any) -> None:
    with Producer(connection.channel()) as producer:
        declare = [queue]
        producer.publish(
            body, exchange=queue.exchange, routing_key=queue.routing_key, declare=declare,
            **keywords,
        )  # fmt: skip


def take(channel: Any, queue: Any = JOBS, no_ack: bool = False) -> Any:
    return queue(channel).get(no_ack=no_ack)


def test_what_one_connection_publishes_another_gets(url: str) -> None:
    with Connection(url) as first, Connection(url) as second:
        put(first, {"order": 17})
        message = take(second.channel())
        assert message.payload == {"order": 17}
        message.ack()
        assert take(second.channel()) is None


def test_a_body_in_the_queue_is_what_was_serialized(connection: Any, tmp_path: Path) -> None:
    put(connection, {"order": 17}, headers={"id": "t-1", "task": "shop.pay"})
    with penstock.Queue(tmp_path / "broker" / "jobs", read_only=True) as queue:
        (message,) = queue.scan()
        assert (message.json(), message.id, message.tag) == ({"order": 17}, "t-1", "shop.pay")


def test_bodies_that_are_no_text_come_back_as_they_were(connection: Any) -> None:
    put(connection, b"\xff\x00", content_type="application/data", content_encoding="binary")
    assert take(connection.channel(), no_ack=True).body == b"\xff\x00"


def test_remote_control_comes_before_tasks(url: str) -> None:
    """A task that was revoked before it was sent must not run."""
    control = Queue("control", Exchange("control", "fanout"), auto_delete=True)
    seen: list[str] = []

    def note(body: str, message: Any) -> None:
        seen.append(body)
        if not message.acknowledged:
            message.ack()

    with Connection(url) as sender, Connection(url) as worker:
        tasks, orders = worker.channel(), worker.channel()
        with (
            Consumer(tasks, [JOBS], callbacks=[note]),
            Consumer(orders, [control], callbacks=[note], no_ack=True),
        ):
            for _ in range(4):  # Queues take turns: it must not depend on whose turn it is.
                put(sender, "task")
                put(sender, "task")
                put(sender, "revoke", control)
                for _ in range(3):
                    worker.drain_events(timeout=SOON_S)
    assert seen == ["revoke", "task", "task"] * 4


def test_a_rejected_message_is_gone_and_a_requeued_one_comes_again(connection: Any) -> None:
    put(connection, 1)
    channel = connection.channel()
    take(channel).requeue()
    again = take(channel)
    assert again.delivery_info["redelivered"]
    again.reject()
    assert take(channel) is None


def test_what_a_closed_channel_had_goes_to_others(connection: Any) -> None:
    put(connection, 1)
    with connection.channel() as channel:
        assert take(channel) is not None
        assert take(connection.channel()) is None
    assert take(connection.channel()) is not None


def test_a_consumer_gets_no_more_than_its_prefetch_count(connection: Any) -> None:
    for number in range(3):
        put(connection, number)
    got: list[Any] = []
    channel = connection.channel()
    with Consumer(channel, [JOBS], on_message=got.append) as consumer:
        consumer.qos(prefetch_count=2)
        connection.drain_events(timeout=SOON_S)
        connection.drain_events(timeout=SOON_S)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=NOT_THERE_S)
        got[0].ack()
        connection.drain_events(timeout=SOON_S)
    assert [message.payload for message in got] == [0, 1, 2]


def test_an_ack_while_the_prefetch_count_is_looked_at_is_seen(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread acks after the look, and before the consumer has said that it is full."""
    put(connection, 1)
    put(connection, 2)
    got: list[Any] = []
    channel = connection.channel()
    with Consumer(channel, [JOBS], on_message=got.append) as consumer:
        consumer.qos(prefetch_count=1)
        connection.drain_events(timeout=SOON_S)
        looks = type(channel.qos).can_consume

        def look(qos: Any) -> Any:
            found = looks(qos)
            if not found:
                got[0].ack()
            return found

        monkeypatch.setattr(type(channel.qos), "can_consume", look)
        connection.drain_events(timeout=NOT_THERE_S)
    assert [message.payload for message in got] == [1, 2]


def test_an_ack_of_several_acks_all_before_it(connection: Any) -> None:
    channel = connection.channel()
    for number in range(3):
        put(connection, number)
    found = [take(channel) for _ in range(3)]
    channel.basic_ack(found[1].delivery_tag, multiple=True)
    channel.close()
    assert take(connection.channel()).payload == 2


def test_a_sleeping_consumer_is_woken_by_a_put(connection: Any, url: str) -> None:
    got: list[Any] = []
    consumer = Consumer(connection.channel(), [JOBS], on_message=got.append, no_ack=True)
    with consumer, Connection(url) as other:
        thread = threading.Thread(target=put, args=(other, "late"))
        thread.start()
        connection.drain_events(timeout=SOON_S)
        thread.join()
    assert [message.payload for message in got] == ["late"]


def test_high_priorities_come_first_also_when_they_are_new(connection: Any) -> None:
    for priority in (0, 3, 9, 3):
        put(connection, priority, priority=priority)
    channel = connection.channel()
    assert [take(channel, no_ack=True).payload for _ in range(4)] == [9, 3, 3, 0]


def test_messages_whose_time_is_over_are_not_delivered(connection: Any) -> None:
    put(connection, "old", expiration=0)
    put(connection, "new", expiration=1000)
    assert take(connection.channel(), no_ack=True).payload == "new"
    brief = Queue("brief", JOBS.exchange, routing_key="brief", message_ttl=0)
    put(connection, "old", brief)
    assert take(connection.channel(), brief) is None


def test_an_eta_is_a_delay_and_purge_takes_it_too(connection: Any) -> None:
    put(connection, "later", headers={"eta": "2100-01-01T00:00:00+00:00"})
    put(connection, "past", headers={"eta": "2000-01-01T00:00:00"})
    channel = connection.channel()
    assert take(channel, no_ack=True).payload == "past"
    assert take(channel) is None
    assert JOBS(channel).purge() == 1
    assert JOBS(channel).queue_declare().message_count == 0


def test_purge_leaves_what_a_worker_has(connection: Any) -> None:
    for number in range(3):
        put(connection, number)
    channel = connection.channel()
    held = take(channel)
    assert JOBS(channel).purge() == 2
    held.requeue()
    assert take(channel).payload == 0


def test_sizes_count_what_nobody_has(connection: Any) -> None:
    for number in range(3):
        put(connection, number, priority=number)
    channel = connection.channel()
    take(channel)
    assert JOBS(channel).queue_declare(passive=True).message_count == 2


def test_fan_out_reaches_every_queue_of_every_process(url: str) -> None:
    exchange = Exchange("news", "fanout")
    queues = [Queue(name, exchange) for name in ("a", "b")]
    with Connection(url) as first, Connection(url) as second:
        for connection, queue in zip((first, second), queues, strict=True):
            queue(connection.channel()).declare()
        put(first, "news", queues[0])
        for connection, queue in zip((first, second), queues, strict=True):
            assert take(connection.channel(), queue).payload == "news"


def test_topic_bindings_of_one_process_route_what_another_publishes(url: str) -> None:
    exchange = Exchange("events", "topic")
    wanted = Queue("tasks", exchange, routing_key="task.#")
    with Connection(url) as first, Connection(url) as second:
        wanted(first.channel()).declare()
        producer = Producer(second.channel())
        for key in ("worker.online", "task.sent", "task.a.b"):
            producer.publish(key, exchange=exchange, routing_key=key, declare=[exchange])
        channel = first.channel()
        assert [take(channel, wanted).payload for _ in range(2)] == ["task.sent", "task.a.b"]
        wanted(channel).unbind_from(exchange, "task.#")
        producer.publish("x", exchange=exchange, routing_key="task.x")
        assert take(channel, wanted) is None


def test_a_deleted_queue_that_is_made_again_is_found_by_its_publishers(url: str) -> None:
    with Connection(url) as first, Connection(url) as second:
        put(first, 1)
        put(second, 2)
        JOBS(second.channel()).delete()
        JOBS(second.channel()).declare()
        put(first, 3)
        assert take(second.channel()).payload == 3


def test_an_answer_to_someone_who_has_gone_makes_no_queue(connection: Any, tmp_path: Path) -> None:
    Producer(connection.channel()).publish("late", routing_key="gone", delivery_mode=1)
    assert not (tmp_path / "broker" / "gone").exists()


def test_a_queue_for_one_consumer_goes_with_it(connection: Any, tmp_path: Path) -> None:
    own = Queue("own", Exchange("x", "fanout"), auto_delete=True)
    with Consumer(connection.channel(), [own], on_message=print):
        assert (tmp_path / "broker" / "own").exists()
    assert not (tmp_path / "broker" / "own").exists()


def test_a_queue_whose_consumers_were_killed_goes_after_its_time(
    connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(penstock.kombu.transport, "SWEEP_S", 0.0)
    Queue("left", Exchange("x", "fanout"), expires=0.0)(connection.channel()).declare()
    with (
        Consumer(connection.channel(), [JOBS], on_message=print),
        pytest.raises(socket.timeout),
    ):
        connection.drain_events(timeout=NOT_THERE_S)
    assert not (tmp_path / "broker" / "left").exists()


@pytest.mark.parametrize(
    "name", ["../../etc", "/etc/passwd", "..", ".hidden", "a/b", "ü@host", "x" * 300, "_p9", "\0"]
)
def test_no_name_leaves_the_folder(connection: Any, tmp_path: Path, name: str) -> None:
    hostile = Queue(name, Exchange(name, "direct"), routing_key=name)
    put(connection, 1, hostile)
    assert take(connection.channel(), hostile).payload == 1
    assert {path.name for path in tmp_path.iterdir()} == {"broker"}
    assert (tmp_path / "broker" / safe_name(name)).is_dir()


def test_different_names_have_different_folders() -> None:
    names = ["a_p1", "a", "a__p1", "a@", "a_40", "A", "x" * 100, "x" * 101, "_", "__", ".", ""]
    assert len({safe_name(name) for name in names}) == len(names)


KILLED = """
import sys
import penstock.kombu
from kombu import Connection
channel = Connection(sys.argv[1]).channel()
assert channel.basic_get("jobs").body
print("has it", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_had_comes_to_a_sleeping_one(connection: Any, url: str) -> None:
    put(connection, "precious")
    command = [sys.executable, "-c", KILLED, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"has it\n"
        got: list[Any] = []
        with Consumer(connection.channel(), [JOBS], on_message=got.append):
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=NOT_THERE_S)
            os.kill(worker.pid, signal.SIGKILL)
            connection.drain_events(timeout=SOON_S)
    assert got[0].payload == "precious"
    assert got[0].delivery_info["redelivered"]


def test_a_lease_that_ran_out_goes_on_and_its_late_ack_is_no_error(url: str) -> None:
    options = {"visibility_timeout": 0.01}
    with Connection(url, transport_options=options) as connection:
        put(connection, 1)
        first = take(connection.channel())
        got: list[Any] = []
        with Consumer(connection.channel(), [JOBS], on_message=got.append):
            connection.drain_events(timeout=SOON_S)
        first.ack()
    assert got[0].payload == 1


DECIMAL = '{"__type__": "decimal", "__value__": "many"}'


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"kombu": "["}, {"kombu": "[]"}, {"expires": "soon"}, {"kombu": "[" * 100_000},
        {"kombu": f'{{"headers": {DECIMAL}}}'},
    ],
)  # fmt: skip
def test_what_is_no_message_of_kombu_s_goes_to_the_dead_letters(
    connection: Any, tmp_path: Path, headers: dict[str, str]
) -> None:
    JOBS(connection.channel()).declare()
    with penstock.Queue(tmp_path / "broker" / "jobs") as queue:
        queue.put(b"by hand", headers=headers)
    put(connection, "next")
    assert take(connection.channel()).payload == "next"
    with penstock.Queue(tmp_path / "broker" / "jobs.dead", read_only=True) as dead:
        assert [message.body for message in dead.scan()] == [b"by hand"]


def test_what_was_handed_out_too_often_goes_to_the_dead_letters(url: str, tmp_path: Path) -> None:
    with Connection(url, transport_options={"max_receives": 2}) as connection:
        put(connection, "poison")
        channel = connection.channel()
        for _ in range(2):
            take(channel).requeue()
        assert take(channel) is None
    with penstock.Queue(tmp_path / "broker" / "jobs.dead") as dead:
        assert dead.redrive() == 1
    with Connection(url) as connection:
        assert take(connection.channel()).payload == "poison"


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 2}', "{"])
def test_a_file_of_bindings_that_is_damaged_is_said(url: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "exchanges.json").write_text(text)
    with pytest.raises(penstock.FormatError, match=r"exchanges\.json"):
        Connection(url).transport.establish_connection()


def test_a_url_without_a_folder_is_refused() -> None:
    with pytest.raises(penstock.OptionError, match="penstock:///var/lib/jobs"):
        Connection("penstock://").channel()


def test_options_come_from_the_url_too(tmp_path: Path) -> None:
    with Connection(f"penstock://{tmp_path}/b?durability=always") as connection:
        put(connection, 1)
    with penstock.Queue(tmp_path / "b" / "jobs") as queue:
        assert queue.options.durability is penstock.Durability.ALWAYS


def test_kombu_s_event_loop_delivers_and_sleeps(connection: Any, url: str) -> None:
    from kombu.asynchronous import Hub

    hub, got = Hub(), []
    connection.register_with_event_loop(hub)

    def receive(message: Any) -> None:
        got.append(message.payload)
        message.ack()

    with Consumer(connection.channel(), [JOBS], on_message=receive) as consumer:
        consumer.qos(prefetch_count=1)
        with Connection(url) as other:
            for number in range(40):
                put(other, number)
            while len(got) < 40:
                hub.run_once()
            put(other, "last", headers={"eta": "2000-01-01T00:00:00"})
            while got[-1] != "last":
                hub.run_once()
    hub.close()
    assert got[:40] == list(range(40))
