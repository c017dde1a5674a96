"""Long poll: a receive that waits, and what ends the wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import ManualClock, Queue
from tests.sqs.speaking import Json, Refused, until
from tests.waiting import words_of

Make = Callable[..., str]


@contextmanager
def waiting(endpoint: Any, url: str, **given: Any) -> Iterator[list[Any]]:
    """A receive in a thread of its own; what it got is in the list when the block is left."""
    got: list[Any] = []

    def receive() -> None:
        with Json(endpoint.port) as client:
            try:
                got.append(client("ReceiveMessage", QueueUrl=url, **given))
            except Refused as refused:
                got.append(refused)

    thread = threading.Thread(target=receive)
    thread.start()
    name = url.rpartition("/")[2]
    with Json(endpoint.port) as client:
        until(lambda: client("ListQueues") is not None and is_waited_for(endpoint, name))
    try:
        yield got
    finally:
        thread.join(60)
    assert not thread.is_alive()


def is_waited_for(endpoint: Any, name: str) -> bool:
    with Queue(endpoint.options.root / name, create=False) as queue:
        return bool(words_of(queue.store.need_shared())["waiters"])


def test_a_message_ends_the_wait(endpoint: Any, json_client: Json, make_json: Make) -> None:
    url = make_json()
    with waiting(endpoint, url, WaitTimeSeconds=20) as got:
        json_client("SendMessage", QueueUrl=url, MessageBody="x")
    assert got[0]["Messages"][0]["Body"] == "x"


def test_the_queue_may_say_how_long_to_wait(
    endpoint: Any, json_client: Json, make_json: Make
) -> None:
    url = make_json(ReceiveMessageWaitTimeSeconds="20")
    assert json_client("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=0) == {}
    with waiting(endpoint, url) as got:
        json_client("SendMessage", QueueUrl=url, MessageBody="x")
    assert got[0]["Messages"][0]["Body"] == "x"


def test_time_ends_the_wait_with_nothing(
    endpoint: Any, make_json: Make, clock: ManualClock
) -> None:
    url = make_json()
    with waiting(endpoint, url, WaitTimeSeconds=20) as got:
        clock.advance(21)
    assert got == [{}]


def test_a_lease_or_a_delay_that_ends_is_noticed(
    endpoint: Any, json_client: Json, make_json: Make, clock: ManualClock
) -> None:
    url = make_json()
    json_client("SendMessage", QueueUrl=url, MessageBody="later", DelaySeconds=10)
    with waiting(endpoint, url, WaitTimeSeconds=20) as got:
        clock.advance(11)
    assert got[0]["Messages"][0]["Body"] == "later"


def test_a_put_of_another_program_ends_the_wait(endpoint: Any, make_json: Make) -> None:
    url = make_json()
    with (
        Queue(endpoint.options.root / url.rpartition("/")[2]) as queue,
        waiting(endpoint, url, WaitTimeSeconds=20) as got,
    ):
        queue.put(b"from elsewhere")
    assert got[0]["Messages"][0]["Body"] == "from elsewhere"


def test_a_deleted_queue_ends_the_wait(endpoint: Any, json_client: Json, make_json: Make) -> None:
    url = make_json()
    with waiting(endpoint, url, WaitTimeSeconds=20) as got:
        json_client("DeleteQueue", QueueUrl=url)
    assert isinstance(got[0], Refused)
    assert got[0].shape == "QueueDoesNotExist"


def test_who_hung_up_takes_no_message(endpoint: Any, json_client: Json, make_json: Make) -> None:
    url = make_json()
    name = url.rpartition("/")[2]
    client = Json(endpoint.port)
    body = b'{"QueueUrl": "%s", "WaitTimeSeconds": 20}' % url.encode()
    headers = {"X-Amz-Target": "AmazonSQS.ReceiveMessage", "Host": "localhost"}
    client.connection.request("POST", "/", body, headers)
    until(lambda: json_client("ListQueues") is not None and is_waited_for(endpoint, name))
    client.connection.close()
    until(lambda: json_client("ListQueues") is not None and not is_waited_for(endpoint, name))
    json_client("SendMessage", QueueUrl=url, MessageBody="x")
    assert len(json_client("ReceiveMessage", QueueUrl=url)["Messages"]) == 1


@pytest.mark.parametrize("count", [20])
def test_many_may_wait_and_each_gets_one(
    endpoint: Any, json_client: Json, make_json: Make, count: int
) -> None:
    url = make_json()
    got: list[str] = []

    def receive() -> None:
        with Json(endpoint.port) as client:
            answer = client("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)
            got.extend(message["Body"] for message in answer["Messages"])

    threads = [threading.Thread(target=receive) for _ in range(count)]
    for thread in threads:
        thread.start()
    for number in range(count):
        json_client("SendMessage", QueueUrl=url, MessageBody=str(number))
    for thread in threads:
        thread.join(60)
    assert sorted(got, key=int) == [str(number) for number in range(count)]
