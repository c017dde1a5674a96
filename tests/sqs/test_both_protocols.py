"""What every client may rely on, in either protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import ManualClock
from tests.sqs.speaking import Json, Query, Refused

Client = Json | Query
Make = Callable[..., str]


def bodies(answer: dict[str, Any]) -> list[str]:
    return [message["Body"] for message in answer.get("Messages", [])]


def test_a_message_is_sent_received_and_deleted(client: Client, make: Make) -> None:
    url = make()
    sent = client("SendMessage", QueueUrl=url, MessageBody="grüße \r\n<&>")
    (found,) = client("ReceiveMessage", QueueUrl=url)["Messages"]
    assert found["Body"] == "grüße \r\n<&>"
    assert (found["MessageId"], found["MD5OfBody"]) == (
        sent["MessageId"], sent["MD5OfMessageBody"],
    )  # fmt: skip
    assert client("DeleteMessage", QueueUrl=url, ReceiptHandle=found["ReceiptHandle"]) == {}
    assert client("ReceiveMessage", QueueUrl=url) == {}


def test_the_same_queue_again_is_the_same_queue(client: Client, make: Make) -> None:
    url = make(VisibilityTimeout="40")
    name = url.rpartition("/")[2]
    same = client("CreateQueue", QueueName=name, Attributes={"VisibilityTimeout": "40"})
    assert same == {"QueueUrl": url}
    with pytest.raises(Refused) as refused:
        client("CreateQueue", QueueName=name, Attributes={"VisibilityTimeout": "41"})
    assert (refused.value.status, refused.value.code) == (400, "QueueAlreadyExists")
    assert refused.value.message == (
        "A queue already exists with the same name and a different value for attribute "
        "VisibilityTimeout"
    )
    assert client("GetQueueUrl", QueueName=name) == {"QueueUrl": url}


def test_queue_urls_have_the_host_that_the_client_used(client: Client, make: Make) -> None:
    assert make().startswith(f"http://127.0.0.1:{client.connection.port}/123456789012/q")


def test_a_bare_name_is_a_queue_url_too(client: Client, make: Make) -> None:
    url = make()
    client("SendMessage", QueueUrl=url.rpartition("/")[2], MessageBody="x")
    assert bodies(client("ReceiveMessage", QueueUrl=url)) == ["x"]


def test_a_batch_fails_entry_by_entry(client: Client, make: Make) -> None:
    url = make()
    entries = [{"Id": "good", "MessageBody": "x"}, {"Id": "bad", "MessageBody": "a\x01b"}]
    answer = client("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["good"]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["SenderFault"]) == ("bad", True)
    assert failed["Code"] == "InvalidMessageContents"
    assert bodies(client("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)) == ["x"]


def test_ten_are_received_and_deleted_together(client: Client, make: Make) -> None:
    url = make()
    entries = [{"Id": str(at), "MessageBody": f"m{at}"} for at in range(10)]
    client("SendMessageBatch", QueueUrl=url, Entries=entries)
    found = client("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in found] == [f"m{at}" for at in range(10)]
    acks = [
        {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]}
        for at, message in enumerate(found)
    ]
    acks[3] = {"Id": "wrong", "ReceiptHandle": "x"}
    answer = client("DeleteMessageBatch", QueueUrl=url, Entries=acks)
    assert len(answer["Successful"]) == 9
    assert answer["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"


def test_message_attributes_come_back_as_they_were_asked_for(client: Client, make: Make) -> None:
    url = make()
    attributes = {
        "city": {"DataType": "String", "StringValue": "Köln"},
        "size": {"DataType": "Number.int", "StringValue": "17"},
        "raw": {"DataType": "Binary", "BinaryValue": "aGVsbG8="},
        "a.b": {"DataType": "String", "StringValue": "1"},
    }
    sent = client("SendMessage", QueueUrl=url, MessageBody="x", MessageAttributes=attributes)

    def received(*names: str) -> dict[str, Any]:
        given = {"MessageAttributeNames": list(names)} if names else {}
        (found,) = client("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0, **given)["Messages"]
        return dict(found)

    assert received("All")["MessageAttributes"] == attributes
    assert received(".*")["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert received("city")["MessageAttributes"].keys() == {"city"}
    assert received("a.*")["MessageAttributes"].keys() == {"a.b"}
    assert received("city")["MD5OfMessageAttributes"] != sent["MD5OfMessageAttributes"]
    assert "MessageAttributes" not in received("none", "%&")
    assert "MD5OfMessageAttributes" not in received()


def test_system_attributes_tell_where_a_message_has_been(
    client: Client, make: Make, clock: ManualClock
) -> None:
    url = make()
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988"}}
    sent = client("SendMessage", QueueUrl=url, MessageBody="x", MessageSystemAttributes=trace)
    assert len(sent["MD5OfMessageSystemAttributes"]) == 32
    sent_ms = str(int(clock.wall() * 1000))
    client("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0)
    clock.advance(5)
    asked = {"MessageSystemAttributeNames": ["All"]}
    (found,) = client("ReceiveMessage", QueueUrl=url, **asked)["Messages"]
    assert found["Attributes"]["ApproximateReceiveCount"] == "2"
    assert found["Attributes"]["SentTimestamp"] == sent_ms
    assert found["Attributes"]["ApproximateFirstReceiveTimestamp"] == sent_ms
    assert found["Attributes"]["AWSTraceHeader"] == "Root=1-5759e988"


def test_visibility_ends_and_can_be_changed(client: Client, make: Make, clock: ManualClock) -> None:
    url = make(VisibilityTimeout="30")
    client("SendMessage", QueueUrl=url, MessageBody="x")
    (found,) = client("ReceiveMessage", QueueUrl=url)["Messages"]
    handle = {"QueueUrl": url, "ReceiptHandle": found["ReceiptHandle"]}
    client("ChangeMessageVisibility", VisibilityTimeout=100, **handle)
    clock.advance(31)
    assert client("ReceiveMessage", QueueUrl=url) == {}
    client("ChangeMessageVisibility", VisibilityTimeout=0, **handle)
    assert bodies(client("ReceiveMessage", QueueUrl=url)) == ["x"]


def test_a_handle_whose_time_is_over_hides_nothing(
    client: Client, make: Make, clock: ManualClock
) -> None:
    url = make(VisibilityTimeout="10")
    client("SendMessage", QueueUrl=url, MessageBody="x")
    (message,) = client("ReceiveMessage", QueueUrl=url)["Messages"]
    clock.advance(11)
    given = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    client("ChangeMessageVisibility", VisibilityTimeout=100, **given)
    assert len(client("ReceiveMessage", QueueUrl=url)["Messages"]) == 1


def test_an_attempt_id_means_nothing_to_a_standard_queue(client: Client, make: Make) -> None:
    url = make()
    client("SendMessage", QueueUrl=url, MessageBody="x")
    asked = {"QueueUrl": url, "ReceiveRequestAttemptId": "one"}
    assert len(client("ReceiveMessage", **asked)["Messages"]) == 1
    assert client("ReceiveMessage", **asked) == {}


def test_an_old_handle_still_deletes_and_deleting_twice_is_fine(client: Client, make: Make) -> None:
    url = make()
    client("SendMessage", QueueUrl=url, MessageBody="x")
    (first,) = client("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0)["Messages"]
    (second,) = client("ReceiveMessage", QueueUrl=url)["Messages"]
    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    for _ in range(2):
        client("DeleteMessage", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    with pytest.raises(Refused) as refused:
        client(
            "ChangeMessageVisibility", QueueUrl=url, VisibilityTimeout=1,
            ReceiptHandle=second["ReceiptHandle"],
        )  # fmt: skip
    assert refused.value.code == "InvalidParameterValue"


def test_counts_tell_visible_leased_and_delayed(
    client: Client, make: Make, clock: ManualClock
) -> None:
    url = make()
    for delay in (0, 0, 60):
        client("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=delay)
    client("ReceiveMessage", QueueUrl=url)

    def counts() -> list[str]:
        found = client("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
        kinds = ("", "NotVisible", "Delayed")
        return [found[f"ApproximateNumberOfMessages{kind}"] for kind in kinds]

    assert counts() == ["1", "1", "1"]
    clock.advance(61)
    assert len(bodies(client("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10))) == 3
    assert counts() == ["0", "3", "0"]


def test_a_queue_is_purged_and_deleted(client: Client, make: Make) -> None:
    url = make()
    client("SendMessage", QueueUrl=url, MessageBody="x")
    assert client("PurgeQueue", QueueUrl=url) == {}
    assert client("ReceiveMessage", QueueUrl=url) == {}
    assert client("DeleteQueue", QueueUrl=url) == {}
    with pytest.raises(Refused) as refused:
        client("ReceiveMessage", QueueUrl=url)
    assert refused.value.code == "AWS.SimpleQueueService.NonExistentQueue"


def test_tags_are_kept_and_taken_away(client: Client, make: Make) -> None:
    url = make()
    assert client("ListQueueTags", QueueUrl=url) == {}
    client("TagQueue", QueueUrl=url, Tags={"team": "a", "cost": ""})
    client("UntagQueue", QueueUrl=url, TagKeys=["team", "none"])
    assert client("ListQueueTags", QueueUrl=url) == {"Tags": {"cost": ""}}


def test_attributes_change_and_only_those_asked_for_are_told(client: Client, make: Make) -> None:
    url = make()
    client("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "7"})
    asked = {"AttributeNames": ["DelaySeconds", "QueueArn"]}
    found = client("GetQueueAttributes", QueueUrl=url, **asked)["Attributes"]
    name = url.rpartition("/")[2]
    arn = f"arn:aws:sqs:us-east-1:123456789012:{name}"
    assert found == {"DelaySeconds": "7", "QueueArn": arn}
    assert client("GetQueueAttributes", QueueUrl=url) == {}


def test_permissions_become_a_policy(client: Client, make: Make) -> None:
    import json

    url = make()
    client(
        "AddPermission", QueueUrl=url, Label="crawl", AWSAccountIds=["111111111111"],
        Actions=["ReceiveMessage"],
    )  # fmt: skip
    asked = {"AttributeNames": ["Policy"]}
    found = client("GetQueueAttributes", QueueUrl=url, **asked)["Attributes"]["Policy"]
    assert json.loads(found)["Statement"][0]["Action"] == "SQS:ReceiveMessage"
    assert json.loads(found)["Version"] == "2008-10-17"
    with pytest.raises(Refused, match="can't find label"):
        client("RemovePermission", QueueUrl=url, Label="none")
    client("RemovePermission", QueueUrl=url, Label="crawl")
    assert client("GetQueueAttributes", QueueUrl=url, **asked) == {}
