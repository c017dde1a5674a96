"""What the endpoint refuses, with Amazon's codes and texts: clients branch on them. Whatever is
refused changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sqs.speaking import Json, Query, Refused

Make = Callable[..., str]
ALL_ACTIONS = ["SendMessage"] * 8
LONG = "k" * 129


def refused(client: Json | Query, action: str, **parameters: Any) -> Refused:
    with pytest.raises(Refused) as found:
        client(action, **parameters)
    assert found.value.status == (403 if found.value.code == "OverLimit" else 400)
    return found.value


@pytest.mark.parametrize(
    ("parameters", "code", "text"),
    [
        ({}, "MissingParameter", "QueueName"),
        (
            {"QueueName": "plain", "Attributes": {"FifoQueue": "true"}},
            "InvalidParameterValue", "must end with .fifo suffix",
        ),
        (
            {"QueueName": "plain", "Attributes": {"FifoQueue": "false"}},
            "InvalidAttributeName", "FifoQueue",
        ),
        (
            {"QueueName": "plain.fifo"},
            "InvalidParameterValue", "Can only include alphanumeric characters",
        ),
        (
            {"QueueName": "plain", "tags": {f"t{n}": "v" for n in range(51)}},
            "InvalidParameterValue", "Too many tags added for queue plain.",
        ),
        (
            {"QueueName": "plain", "tags": {LONG: "v"}},
            "InvalidParameterValue", "Tag keys must be between 1 and 128 characters",
        ),
        (
            {"QueueName": "plain", "tags": {"t": "v" * 257}},
            "InvalidParameterValue", "Tag values must be between 0 and 256 characters",
        ),
    ],
)  # fmt: skip
def test_a_queue_that_can_t_be_made_is_refused(
    client: Json | Query, parameters: dict[str, Any], code: str, text: str
) -> None:
    found = refused(client, "CreateQueue", **parameters)
    assert (found.code, text in found.message) == (code, True), found
    missing = refused(client, "GetQueueUrl", QueueName="plain")
    assert missing.code == "AWS.SimpleQueueService.NonExistentQueue"


@pytest.mark.parametrize(
    ("action", "parameters", "code", "text"),
    [
        ("SendMessage", {}, "MissingParameter", "MessageBody"),
        ("SendMessage", {"MessageBody": "m", "DelaySeconds": 901},
         "InvalidParameterValue", "DelaySeconds must be >= 0 and <= 900."),
        ("SendMessage", {"MessageBody": "m", "MessageGroupId": "two words"},
         "InvalidParameterValue", "alphanumeric and punctuation characters"),
        ("SendMessage", {"MessageBody": "m", "MessageDeduplicationId": "d"},
         "InvalidParameterValue", "MessageDeduplicationId"),
        ("SendMessage", {"MessageBody": "m" * 1025}, "InvalidParameterValue", "shorter than 1024"),
        ("ReceiveMessage", {"VisibilityTimeout": 43201},
         "InvalidParameterValue", "between 0 and 43200"),
        ("ReceiveMessage", {"AttributeNames": ["Colour"]}, "InvalidAttributeName", "Colour"),
        ("DeleteMessage", {}, "MissingParameter", "ReceiptHandle"),
        ("ChangeMessageVisibility", {"ReceiptHandle": "r"}, "MissingParameter",
         "VisibilityTimeout"),
        ("SetQueueAttributes", {}, "MissingParameter", "Attribute.Name"),
        ("SetQueueAttributes", {"Attributes": {"FifoQueue": "true"}}, "InvalidAttributeName",
         "FifoQueue"),
        ("TagQueue", {"Tags": {f"t{n}": "v" for n in range(51)}},
         "InvalidParameterValue", "Too many tags"),
        ("UntagQueue", {}, "InvalidParameterValue", "Tag keys must be between 1 and 128"),
        ("AddPermission", {"Label": "l", "AWSAccountIds": ["1"]}, "MissingParameter", "Actions"),
        ("AddPermission", {"Label": "l", "Actions": ["SendMessage"]},
         "InvalidParameterValue", "Unable to verify"),
        ("AddPermission", {"Label": "l", "AWSAccountIds": ["1"], "Actions": ALL_ACTIONS},
         "OverLimit", "8 Actions were found, maximum allowed is 7."),
        ("AddPermission", {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["TagQueue"]},
         "InvalidParameterValue", "Only the queue owner is allowed"),
        ("AddPermission", {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["Dance"]},
         "InvalidParameterValue", "Please refer to the appropriate WSDL"),
    ],
)  # fmt: skip
def test_what_a_queue_can_t_do_is_refused(
    client: Json | Query,
    make: Make,
    action: str,
    parameters: dict[str, Any],
    code: str,
    text: str,
) -> None:
    url = make(MaximumMessageSize="1024")
    before = client("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    found = refused(client, action, QueueUrl=url, **parameters)
    assert (found.code, text in found.message) == (code, True), found
    assert client("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"]) == before
    assert client("ListQueueTags", QueueUrl=url) == {}


@pytest.mark.parametrize(
    ("parameters", "code", "text"),
    [
        ({"MessageBody": "m"}, "MissingParameter", "MessageGroupId"),
        ({"MessageBody": "m", "MessageGroupId": "g"}, "InvalidParameterValue",
         "ContentBasedDeduplication"),
        ({"MessageBody": "m", "MessageGroupId": "g", "MessageDeduplicationId": "d",
          "DelaySeconds": 5}, "InvalidParameterValue", "DelaySeconds"),
    ],
)  # fmt: skip
def test_what_a_fifo_queue_can_t_take_is_refused(
    client: Json | Query, make: Make, parameters: dict[str, Any], code: str, text: str
) -> None:
    url = make(FifoQueue="true")
    found = refused(client, "SendMessage", QueueUrl=url, **parameters)
    assert (found.code, text in found.message) == (code, True), found
    assert client("ReceiveMessage", QueueUrl=url).get("Messages") is None


def test_a_fifo_queue_stays_one(client: Json | Query, make: Make) -> None:
    url = make(FifoQueue="true")
    found = refused(client, "SetQueueAttributes", QueueUrl=url, Attributes={"FifoQueue": "false"})
    assert "Modifying queue type is not supported." in found.message


def test_an_entry_without_a_group_fails_the_whole_batch(client: Json | Query, make: Make) -> None:
    url = make(FifoQueue="true", ContentBasedDeduplication="true")
    entries = [
        {"Id": "1", "MessageBody": "m", "MessageGroupId": "g"},
        {"Id": "2", "MessageBody": "m"},
    ]
    found = refused(client, "SendMessageBatch", QueueUrl=url, Entries=entries)
    assert "must contain the parameter MessageGroupId" in found.message
    assert client("ReceiveMessage", QueueUrl=url).get("Messages") is None


def test_a_label_of_a_permission_is_given_once(client: Json | Query, make: Make) -> None:
    url = make()
    given = {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]}
    client("AddPermission", QueueUrl=url, **given)
    assert "Already exists." in refused(client, "AddPermission", QueueUrl=url, **given).message


@pytest.mark.parametrize(
    ("action", "parameters", "text"),
    [
        ("TagQueue", {"Tags": ["a"]}, "Tags must be a map."),
        ("CreateQueue", {"QueueName": "q", "Attributes": ["a"]}, "Attributes must be a map."),
        ("UntagQueue", {"TagKeys": [1]}, "TagKeys must be a list of strings."),
        ("SendMessage", {"MessageBody": 1}, "a String"),
        ("SendMessage", {"MessageBody": "m", "DelaySeconds": "soon"}, "an Integer"),
        ("ListQueues", {"MaxResults": 1001}, "between 1 and 1000"),
    ],
)
def test_parameters_of_another_type_are_refused(
    json_client: Json, make_json: Make, action: str, parameters: dict[str, Any], text: str
) -> None:
    """Forms have text alone: there is no such case."""
    found = refused(json_client, action, QueueUrl=make_json(), **parameters)
    assert text in found.message
