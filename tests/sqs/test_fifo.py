"""FIFO queues: order inside a group, deduplication, attempts to receive."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from penstock import ManualClock
from tests.sqs.speaking import Json, Refused

Make = Callable[..., str]


@pytest.fixture
def url(make_json: Make) -> str:
    return make_json(FifoQueue="true", ContentBasedDeduplication="true")


@pytest.fixture
def send(json_client: Json, url: str) -> Callable[..., dict[str, Any]]:
    def send(name: str, **more: str) -> dict[str, Any]:
        given = {"QueueUrl": url, "MessageBody": name, "MessageGroupId": name[0]} | more
        return dict(json_client("SendMessage", **given))

    return send


@pytest.fixture
def receive(json_client: Json, url: str) -> Callable[..., list[dict[str, Any]]]:
    def receive(**given: Any) -> list[dict[str, Any]]:
        asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "AttributeNames": ["All"]} | given
        return list(json_client("ReceiveMessage", **asked).get("Messages", []))

    return receive


Send = Callable[..., dict[str, Any]]
Receive = Callable[..., list[dict[str, Any]]]


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def test_one_group_is_drained_before_the_next(send: Send, receive: Receive) -> None:
    for name in ("a1", "b1", "a2", "b2"):
        send(name)
    assert bodies(receive()) == ["a1", "a2", "b1", "b2"]


def test_a_group_that_is_out_yields_nothing_until_all_are_deleted(
    send: Send, receive: Receive, json_client: Json, url: str
) -> None:
    for name in ("a1", "a2", "a3"):
        send(name)
    first, second = receive(MaxNumberOfMessages=2)
    json_client("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert receive() == []
    json_client("DeleteMessage", QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    assert bodies(receive()) == ["a3"]


def test_a_lease_that_ran_out_brings_the_group_back_in_order(
    send: Send, receive: Receive, clock: ManualClock, json_client: Json, url: str
) -> None:
    for name in ("a1", "a2"):
        send(name)
    first, _ = receive()
    clock.advance(31)
    with pytest.raises(Refused, match="The receipt handle has expired"):
        json_client("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    again = receive()
    assert bodies(again) == ["a1", "a2"]
    assert again[0]["Attributes"]["ApproximateReceiveCount"] == "2"


def test_extending_one_hides_it_and_those_behind_it(
    send: Send, receive: Receive, clock: ManualClock, json_client: Json, url: str
) -> None:
    for name in ("a1", "a2", "a3"):
        send(name)
    _, second, _ = receive()
    json_client(
        "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=second["ReceiptHandle"],
        VisibilityTimeout=100,
    )  # fmt: skip
    clock.advance(31)
    assert bodies(receive()) == ["a1"]


def test_sequence_numbers_have_twenty_digits_and_grow(send: Send, receive: Receive) -> None:
    numbers = [send(name)["SequenceNumber"] for name in ("a1", "b1", "a2")]
    assert numbers == sorted(numbers)
    assert all(len(number) == 20 for number in numbers)
    shown = {message["Body"]: message["Attributes"]["SequenceNumber"] for message in receive()}
    assert shown == dict(zip(("a1", "b1", "a2"), numbers, strict=True))


def test_the_same_again_is_told_the_same_and_kept_once(
    send: Send, receive: Receive, clock: ManualClock, json_client: Json, url: str
) -> None:
    first = send("a1")
    assert send("a1") == first
    (found,) = receive()
    assert found["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"a1").hexdigest()
    json_client("DeleteMessage", QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    clock.advance(299)
    assert send("a1") == first
    assert receive() == []
    clock.advance(2)
    assert send("a1") != first
    assert bodies(receive()) == ["a1"]


def test_an_id_of_ones_own_goes_before_the_body(send: Send, receive: Receive) -> None:
    send("a1", MessageDeduplicationId="x")
    send("a2", MessageDeduplicationId="x")
    send("a1", MessageDeduplicationId="y")
    assert bodies(receive()) == ["a1", "a1"]


def test_groups_deduplicate_by_themselves_if_the_queue_was_made_so(
    json_client: Json, make_json: Make
) -> None:
    url = make_json(
        FifoQueue="true", DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
    )  # fmt: skip
    for group in ("a", "b", "a"):
        json_client(
            "SendMessage", QueueUrl=url, MessageBody="x", MessageGroupId=group,
            MessageDeduplicationId="same",
        )  # fmt: skip
    found = json_client("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert len(found) == 2


def test_an_attempt_is_repeated_with_the_same_messages_and_handles(
    send: Send, receive: Receive, json_client: Json, url: str
) -> None:
    assert receive(ReceiveRequestAttemptId="t") == []
    send("a1")
    first = receive(ReceiveRequestAttemptId="t")
    assert bodies(first) == ["a1"]
    again = receive(ReceiveRequestAttemptId="t")
    assert [one["ReceiptHandle"] for one in again] == [one["ReceiptHandle"] for one in first]
    json_client("DeleteMessage", QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"])
    assert receive(ReceiveRequestAttemptId="t") == []


def test_a_queue_that_delays_delays_in_order(
    json_client: Json, make_json: Make, clock: ManualClock
) -> None:
    url = make_json(FifoQueue="true", ContentBasedDeduplication="true", DelaySeconds="10")
    for body in ("a1", "a2"):
        json_client(
            "SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId="a", DelaySeconds=0
        )
    assert json_client("ReceiveMessage", QueueUrl=url) == {}
    clock.advance(11)
    found = json_client("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert bodies(found) == ["a1", "a2"]


def test_a_group_that_is_given_back_comes_after_the_others(
    send: Send, receive: Receive, json_client: Json, url: str
) -> None:
    for name in ("a1", "a2", "b1", "c1"):
        send(name)
    (first,) = receive(MaxNumberOfMessages=1)
    given = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    json_client("ChangeMessageVisibility", **given, VisibilityTimeout=0)
    asked = {"QueueUrl": url, "AttributeNames": ["All"]}
    counts = json_client("GetQueueAttributes", **asked)["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == "4"
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"
    again = receive()
    assert bodies(again) == ["b1", "c1", "a1", "a2"]
    assert again[2]["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_group_at_the_back_does_not_wait_for_what_comes_later(
    send: Send, receive: Receive, json_client: Json, url: str
) -> None:
    for name in ("a1", "b1"):
        send(name)
    (first,) = receive(MaxNumberOfMessages=1)
    given = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    json_client("ChangeMessageVisibility", **given, VisibilityTimeout=0)
    send("c1")
    got = [receive(MaxNumberOfMessages=1)[0]["Body"] for _ in range(3)]
    assert got == ["b1", "a1", "c1"]


def test_a_group_at_the_back_with_nobody_else_comes_at_once(
    send: Send, receive: Receive, json_client: Json, url: str
) -> None:
    send("a1")
    for _ in range(3):
        (found,) = receive()
        given = {"QueueUrl": url, "ReceiptHandle": found["ReceiptHandle"]}
        json_client("ChangeMessageVisibility", **given, VisibilityTimeout=0)
    assert bodies(receive()) == ["a1"]


def test_a_queue_with_a_group_at_the_back_is_deleted(
    send: Send, receive: Receive, json_client: Json, url: str
) -> None:
    for name in ("a1", "b1"):
        send(name)
    (first,) = receive(MaxNumberOfMessages=1)
    given = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    json_client("ChangeMessageVisibility", **given, VisibilityTimeout=0)
    assert json_client("DeleteQueue", QueueUrl=url) == {}
