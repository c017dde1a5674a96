"""Dead letters, who may send them where, and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock.sqs
from tests.sqs.speaking import Json, Refused, until

Make = Callable[..., str]


@pytest.fixture
def arn_of(json_client: Json) -> Callable[[str], str]:
    def arn_of(url: str) -> str:
        found = json_client("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])
        arn: str = found["Attributes"]["QueueArn"]
        return arn

    return arn_of


@pytest.fixture
def pair(make_json: Make, arn_of: Callable[[str], str]) -> tuple[str, str]:
    """A queue and its queue for dead letters."""
    dead = make_json()
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": "1"})
    return make_json(RedrivePolicy=policy, VisibilityTimeout="0"), dead


def receive(client: Json, url: str, **given: Any) -> list[dict[str, Any]]:
    return list(client("ReceiveMessage", QueueUrl=url, **given).get("Messages", []))


def bury(client: Json, source: str, *bodies: str) -> None:
    for body in bodies:
        client("SendMessage", QueueUrl=source, MessageBody=body)
    assert len(receive(client, source, MaxNumberOfMessages=10)) == len(bodies)
    assert receive(client, source) == []


def test_a_message_received_too_often_goes_on_counting_elsewhere(
    json_client: Json, pair: tuple[str, str], arn_of: Callable[[str], str]
) -> None:
    source, dead = pair
    attributes = {"a": {"DataType": "String", "StringValue": "x"}}
    sent = json_client(
        "SendMessage", QueueUrl=source, MessageBody="m", MessageAttributes=attributes
    )
    assert len(receive(json_client, source)) == 1
    assert receive(json_client, source) == []
    asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    (found,) = receive(json_client, dead, **asked)
    assert (found["MessageId"], found["Body"]) == (sent["MessageId"], "m")
    assert found["MessageAttributes"] == attributes
    assert found["Attributes"]["ApproximateReceiveCount"] == "2"
    assert found["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(source)


def test_a_queue_for_dead_letters_knows_its_sources(
    json_client: Json, pair: tuple[str, str]
) -> None:
    source, dead = pair
    found = json_client("ListDeadLetterSourceQueues", QueueUrl=dead)
    assert found == {"queueUrls": [source]}
    assert json_client("ListDeadLetterSourceQueues", QueueUrl=source) == {"queueUrls": []}
    json_client("SetQueueAttributes", QueueUrl=source, Attributes={"RedrivePolicy": ""})
    assert json_client("ListDeadLetterSourceQueues", QueueUrl=dead) == {"queueUrls": []}


@pytest.mark.parametrize(
    "allow",
    [
        {"redrivePermission": "denyAll"},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:us-east-1:1:x"]},
    ],
)
def test_a_queue_may_refuse_to_take_dead_letters(
    json_client: Json, make_json: Make, arn_of: Callable[[str], str], allow: dict[str, Any]
) -> None:
    dead = make_json(RedriveAllowPolicy=json.dumps(allow))
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 1})
    with pytest.raises(Refused, match="InvalidParameterValue"):
        make_json(RedrivePolicy=policy)


def test_dead_letters_of_a_fifo_queue_go_to_another(
    json_client: Json, make_json: Make, arn_of: Callable[[str], str]
) -> None:
    policy = json.dumps({"deadLetterTargetArn": arn_of(make_json()), "maxReceiveCount": 1})
    with pytest.raises(Refused, match="must be same type of queue as the source"):
        make_json(FifoQueue="true", RedrivePolicy=policy)
    dead = make_json(FifoQueue="true")
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 1})
    source = make_json(FifoQueue="true", RedrivePolicy=policy, VisibilityTimeout="0")
    for body in ("a1", "a2"):
        json_client(
            "SendMessage", QueueUrl=source, MessageBody=body, MessageGroupId="a",
            MessageDeduplicationId=body,
        )  # fmt: skip
    assert len(receive(json_client, source, MaxNumberOfMessages=10)) == 2
    assert receive(json_client, source) == []
    found = receive(json_client, dead, MaxNumberOfMessages=10)
    assert [one["Body"] for one in found] == ["a1", "a2"]


def tasks(client: Json, arn: str) -> list[dict[str, Any]]:
    return list(client("ListMessageMoveTasks", SourceArn=arn, MaxResults=10)["Results"])


def test_a_task_moves_dead_letters_back(
    json_client: Json, pair: tuple[str, str], arn_of: Callable[[str], str]
) -> None:
    source, dead = pair
    bury(json_client, source, "1", "2", "3")
    handle = json_client("StartMessageMoveTask", SourceArn=arn_of(dead))["TaskHandle"]
    assert handle
    until(lambda: tasks(json_client, arn_of(dead))[0]["Status"] == "COMPLETED")
    (task,) = tasks(json_client, arn_of(dead))
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert task["ApproximateNumberOfMessagesToMove"] == 3
    json_client("SetQueueAttributes", QueueUrl=source, Attributes={"VisibilityTimeout": "30"})
    found = receive(json_client, source, MaxNumberOfMessages=10, AttributeNames=["All"])
    assert [one["Body"] for one in found] == ["1", "2", "3"]
    assert {one["Attributes"]["ApproximateReceiveCount"] for one in found} == {"1"}
    assert receive(json_client, dead) == []


def test_a_task_may_move_to_another_queue_and_be_cancelled(
    json_client: Json, pair: tuple[str, str], make_json: Make, arn_of: Callable[[str], str]
) -> None:
    source, dead = pair
    goal = make_json()
    bury(json_client, source, *map(str, range(9)))
    given = {"SourceArn": arn_of(dead), "DestinationArn": arn_of(goal)}
    handle = json_client("StartMessageMoveTask", MaxNumberOfMessagesPerSecond=1, **given)
    with pytest.raises(Refused, match="There is already a task running"):
        json_client("StartMessageMoveTask", **given)
    json_client("CancelMessageMoveTask", TaskHandle=handle["TaskHandle"])
    until(lambda: tasks(json_client, arn_of(dead))[0]["Status"] == "CANCELLED")
    with pytest.raises(Refused, match="Only active tasks can be cancelled"):
        json_client("CancelMessageMoveTask", TaskHandle=handle["TaskHandle"])


def test_only_dead_letters_are_moved(
    json_client: Json, make_json: Make, arn_of: Callable[[str], str]
) -> None:
    with pytest.raises(Refused, match="must be configured as a Dead Letter Queue"):
        json_client("StartMessageMoveTask", SourceArn=arn_of(make_json()))
    with pytest.raises(Refused) as found:
        json_client("StartMessageMoveTask", SourceArn="arn:aws:sqs:us-east-1:123456789012:none")
    assert (found.value.status, found.value.shape) == (404, "ResourceNotFoundException")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"SourceArn": "none"}, "You must use this format to specify the SourceArn: "
         "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"),
        ({"DestinationArn": ""}, "You must use this format to specify the DestinationArn: "
         "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"),
        ({"DestinationArn": "arn:aws:sqs:us-east-1:123456789012:none"}, "The resource that you "
         "specified for the DestinationArn parameter doesn't exist."),
        ({"MaxNumberOfMessagesPerSecond": 501}, "Value for parameter MaxNumberOfMessagesPerSecond "
         "is invalid. Reason: You must enter a number that's between 1 and 500."),
    ],
    ids=["source", "goal", "no goal", "rate"],
)  # fmt: skip
def test_a_task_that_can_not_be_says_why(
    json_client: Json, pair: tuple[str, str], arn_of: Callable[[str], str],
    wrong: dict[str, Any], message: str,
) -> None:  # fmt: skip
    given = {"SourceArn": arn_of(pair[1])} | wrong
    with pytest.raises(Refused) as found:
        json_client("StartMessageMoveTask", **given)
    assert found.value.message == message


def test_a_task_moves_between_two_queues_of_one_kind(
    json_client: Json, pair: tuple[str, str], make_json: Make, arn_of: Callable[[str], str]
) -> None:
    dead = arn_of(pair[1])
    with pytest.raises(Refused, match="cannot be the same"):
        json_client("StartMessageMoveTask", SourceArn=dead, DestinationArn=dead)
    fifo = arn_of(make_json(FifoQueue="true"))
    with pytest.raises(Refused, match="must be of the same queue type"):
        json_client("StartMessageMoveTask", SourceArn=dead, DestinationArn=fifo)


def test_a_handle_that_is_none_cancels_nothing(json_client: Json) -> None:
    with pytest.raises(Refused) as found:
        json_client("CancelMessageMoveTask", TaskHandle="none")
    assert found.value.message == "Value for parameter TaskHandle is invalid."


def test_what_came_from_nowhere_is_not_moved(
    json_client: Json, pair: tuple[str, str], arn_of: Callable[[str], str]
) -> None:
    dead = pair[1]
    json_client("SendMessage", QueueUrl=dead, MessageBody="x")
    json_client("StartMessageMoveTask", SourceArn=arn_of(dead))
    until(lambda: tasks(json_client, arn_of(dead))[0]["Status"] == "FAILED")
    (task,) = tasks(json_client, arn_of(dead))
    assert task["FailureReason"] == "CouldNotDetermineMessageSource"
    assert "TaskHandle" not in task
    assert [one["Body"] for one in receive(json_client, dead)] == ["x"]


def test_a_task_goes_on_with_the_next_server(root: Path) -> None:
    arn = "arn:aws:sqs:us-east-1:123456789012:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        client("CreateQueue", QueueName="dead")
        given = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
        client("CreateQueue", QueueName="source", Attributes=given)
        bury(client, "source", "1", "2", "3")
        client("StartMessageMoveTask", SourceArn=arn, MaxNumberOfMessagesPerSecond=1)
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        until(lambda: tasks(client, arn)[0]["Status"] == "COMPLETED")
        (task,) = tasks(client, arn)
        assert task["ApproximateNumberOfMessagesToMove"] == 3
        assert {one["Body"] for one in receive(client, "source", MaxNumberOfMessages=10)} == {
            "1", "2", "3",
        }  # fmt: skip
        assert receive(client, "dead") == []
