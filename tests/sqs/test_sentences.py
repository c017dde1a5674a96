"""Refusals: code, status and sentence are Amazon's own, as its clients have recorded them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sqs.speaking import Json, Query, Refused

Client = Json | Query
Make = Callable[..., str]
QUEUE = "AWS.SimpleQueueService."


def refusal(client: Client, action: str, **parameters: Any) -> Refused:
    with pytest.raises(Refused) as found:
        client(action, **parameters)
    return found.value


def test_an_unknown_queue_is_told_in_the_words_of_each_protocol(
    json_client: Json, query_client: Query
) -> None:
    found = refusal(json_client, "GetQueueUrl", QueueName="none")
    assert (found.status, found.shape) == (400, "QueueDoesNotExist")
    assert found.code == f"{QUEUE}NonExistentQueue"
    assert found.message == "The specified queue does not exist."
    found = refusal(query_client, "GetQueueUrl", QueueName="none")
    assert found.message == "The specified queue does not exist for this wsdl version."


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"MaxNumberOfMessages": 11}, "Value 11 for parameter MaxNumberOfMessages is invalid. "
         "Reason: Must be between 1 and 10, if provided."),
        ({"MaxNumberOfMessages": 0}, "Value 0 for parameter MaxNumberOfMessages is invalid. "
         "Reason: Must be between 1 and 10, if provided."),
        ({"WaitTimeSeconds": 21}, "Value 21 for parameter WaitTimeSeconds is invalid. "
         "Reason: Must be >= 0 and <= 20, if provided."),
        ({"WaitTimeSeconds": -1}, "Value -1 for parameter WaitTimeSeconds is invalid. "
         "Reason: Must be >= 0 and <= 20, if provided."),
    ],
)  # fmt: skip
def test_a_receive_out_of_limits_says_which(
    client: Client, make: Make, parameters: dict[str, int], message: str
) -> None:
    found = refusal(client, "ReceiveMessage", QueueUrl=make(), **parameters)
    assert (found.status, found.code, found.message) == (400, "InvalidParameterValue", message)


@pytest.mark.parametrize(
    ("parameters", "code", "message"),
    [
        ({"MessageBody": ""}, "MissingParameter",
         "The request must contain the parameter MessageBody."),
        ({"MessageBody": "x" * 1025}, "InvalidParameterValue",
         "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."),
        ({"MessageBody": "a\x01"}, "InvalidMessageContents",
         "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to "
         "#xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"),
        ({"MessageBody": "x", "MessageGroupId": "ü"}, "InvalidParameterValue",
         "Value ü for parameter MessageGroupId is invalid. Reason: MessageGroupId can only "
         "include alphanumeric and punctuation characters. 1 to 128 in length."),
        ({"MessageBody": "x", "MessageAttributes": {"X": {"DataType": "String",
         "StringValue": ""}}}, "InvalidParameterValue",
         "Message (user) attribute 'X' must contain a non-empty value of type 'String'."),
    ],
    ids=["empty", "large", "control character", "group", "empty attribute"],
)  # fmt: skip
def test_a_message_that_can_not_be_says_why(
    client: Client, make: Make, parameters: dict[str, Any], code: str, message: str
) -> None:
    url = make(MaximumMessageSize="1024")
    found = refusal(client, "SendMessage", QueueUrl=url, **parameters)
    assert (found.status, found.code, found.message) == (400, code, message)


def test_attributes_count_towards_the_size_of_a_message(client: Client, make: Make) -> None:
    url = make(MaximumMessageSize="1024")
    attributes = {"ab": {"DataType": "String", "StringValue": "x" * 10}}
    fits = "x" * (1024 - 2 - 6 - 10)
    client("SendMessage", QueueUrl=url, MessageBody=fits, MessageAttributes=attributes)
    found = refusal(
        client, "SendMessage", QueueUrl=url, MessageBody=fits + "x", MessageAttributes=attributes
    )
    assert "Message must be shorter than 1024 bytes" in found.message


def entries(count: int, size: int = 1) -> list[dict[str, str]]:
    return [{"Id": f"i{at}", "MessageBody": "x" * size} for at in range(count)]


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (entries(0), "EmptyBatchRequest",
         "There should be at least one SendMessageBatchRequestEntry in the request."),
        (entries(20), "TooManyEntriesInBatchRequest",
         "Maximum number of entries per request are 10. You have sent 20."),
        (entries(1) * 2, "BatchEntryIdsNotDistinct", "Id i0 repeated."),
        ([{"Id": "a b", "MessageBody": "x"}], "InvalidBatchEntryId",
         "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
         "It can be at most 80 letters long."),
        (entries(2, 600_000), "BatchRequestTooLong",
         "Batch requests cannot be longer than 1048576 bytes. You have sent 1200000 bytes."),
    ],
    ids=["empty", "many", "same", "id", "long"],
)  # fmt: skip
def test_a_batch_that_can_not_be_fails_as_a_whole(
    client: Client, make: Make, given: list[dict[str, str]], code: str, message: str
) -> None:
    found = refusal(client, "SendMessageBatch", QueueUrl=make(), Entries=given)
    assert (found.status, found.code, found.message) == (400, QUEUE + code, message)


def test_a_handle_that_nobody_gave_out_is_no_handle(client: Client, make: Make) -> None:
    url = make()
    found = refusal(client, "DeleteMessage", QueueUrl=url, ReceiptHandle="x")
    assert (found.status, found.code) == (400, "ReceiptHandleIsInvalid")
    assert found.message == 'The input receipt handle "x" is not a valid receipt handle.'
    other = make()
    client("SendMessage", QueueUrl=other, MessageBody="x")
    (message,) = client("ReceiveMessage", QueueUrl=other)["Messages"]
    found = refusal(client, "DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert found.code == "ReceiptHandleIsInvalid"


@pytest.mark.parametrize(
    ("attributes", "code", "message"),
    [
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue",
         "Invalid value for the parameter VisibilityTimeout."),
        ({"Wrong": "1"}, "InvalidAttributeName", "Unknown Attribute Wrong."),
        ({"QueueArn": "x"}, "InvalidAttributeName", "Unknown Attribute QueueArn."),
        ({"FifoQueue": "true"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName",
         "Unknown Attribute ContentBasedDeduplication."),
        ({"DeduplicationScope": "queue"}, "InvalidAttributeName",
         "You can specify the DeduplicationScope only when FifoQueue is set to true."),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else None,
)  # fmt: skip
def test_attributes_that_can_not_be_say_why(
    client: Client, make: Make, attributes: dict[str, str], code: str, message: str
) -> None:
    found = refusal(client, "SetQueueAttributes", QueueUrl=make(), Attributes=attributes)
    assert (found.status, found.code, found.message) == (400, code, message)


def test_a_fifo_queue_stays_one(client: Client, make: Make) -> None:
    url = make(FifoQueue="true")
    found = refusal(client, "SetQueueAttributes", QueueUrl=url, Attributes={"FifoQueue": "false"})
    assert found.code == "InvalidAttributeValue"
    assert found.message == (
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    )


@pytest.mark.parametrize(
    ("parameters", "code", "message"),
    [
        ({"MessageDeduplicationId": "d"}, "MissingParameter",
         "The request must contain the parameter MessageGroupId."),
        ({"MessageGroupId": "g"}, "InvalidParameterValue",
         "The queue should either have ContentBasedDeduplication enabled or "
         "MessageDeduplicationId provided explicitly"),
        ({"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 2},
         "InvalidParameterValue", "Value 2 for parameter DelaySeconds is invalid. Reason: The "
         "request include parameter that is not valid for this queue type."),
    ],
    ids=["group", "deduplication", "delay"],
)  # fmt: skip
def test_a_fifo_message_needs_its_ids(
    client: Client, make: Make, parameters: dict[str, Any], code: str, message: str
) -> None:
    url = make(FifoQueue="true")
    found = refusal(client, "SendMessage", QueueUrl=url, MessageBody="x", **parameters)
    assert (found.status, found.code, found.message) == (400, code, message)


def test_a_second_purge_has_to_wait(client: Client, make: Make) -> None:
    url = make()
    name = url.rpartition("/")[2]
    client("PurgeQueue", QueueUrl=url)
    found = refusal(client, "PurgeQueue", QueueUrl=url)
    assert (found.status, found.code) == (403, f"{QUEUE}PurgeQueueInProgress")
    assert found.message == (
        f"Only one PurgeQueue operation on {name} is allowed every 60 seconds."
    )


def test_a_label_is_added_once(client: Client, make: Make) -> None:
    given = {
        "QueueUrl": make(), "Label": "L", "AWSAccountIds": ["111111111111"],
        "Actions": ["SendMessage"],
    }  # fmt: skip
    client("AddPermission", **given)
    found = refusal(client, "AddPermission", **given)
    assert found.message == "Value L for parameter Label is invalid. Reason: Already exists."


@pytest.mark.parametrize("name", ["", "a b", "../up", "x" * 81, "ü", "a.b", ".fifo", "a/b"])
def test_a_name_that_is_none_makes_no_queue(client: Client, name: str) -> None:
    found = refusal(client, "CreateQueue", QueueName=name)
    assert found.code == "InvalidParameterValue"
    assert found.message == (
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    )


def test_an_action_that_there_is_not_is_told(json_client: Json, query_client: Query) -> None:
    assert refusal(json_client, "Fly").shape == "UnknownOperationException"
    found = refusal(query_client, "Fly")
    assert (found.code, found.message) == (
        "InvalidAction", "The action Fly is not valid for this endpoint.",
    )  # fmt: skip
