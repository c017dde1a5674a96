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
        ({"MessageBody": "x", "MessageAttributes": {"X": {"DataType": "String",
         "StringValue": "a\x01"}}}, "InvalidParameterValue",
         "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to "
         "#xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"),
        ({"MessageBody": "x", "MessageAttributes": {"aWs.x": {"DataType": "String",
         "StringValue": "a"}}}, "InvalidParameterValue",
         "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These "
         "strings are reserved for internal use."),
        ({"MessageBody": "x", "MessageAttributes": {"x" * 257: {"DataType": "String",
         "StringValue": "a"}}}, "InvalidParameterValue",
         "Message (user) attribute name must be shorter than 256 bytes."),
    ],
    ids=["empty", "large", "control character", "group", "empty attribute", "attribute",
         "reserved name", "long name"],
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


def test_an_entry_without_an_id_is_told_by_its_number(json_client: Json, make_json: Make) -> None:
    given = [*entries(1), {"MessageBody": "x"}]
    found = refusal(json_client, "SendMessageBatch", QueueUrl=make_json(), Entries=given)
    assert (found.code, found.message) == (
        "MissingParameter", "The request must contain the parameter "
        "SendMessageBatchRequestEntry.2.Id.",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"MessageBody": {}}, "Start of structure or map found where not expected."),
        ({"MessageBody": []}, "Start of list found where not expected"),
        ({"MessageBody": 1}, "NUMBER_VALUE can not be converted to a String"),
        ({"MessageBody": True}, "TRUE_VALUE can not be converted to a String"),
        ({"DelaySeconds": "soon"}, "STRING_VALUE can not be converted to an Integer"),
    ],
    ids=["structure", "list", "number", "flag", "text"],
)
def test_json_of_another_type_is_no_request(
    json_client: Json, make_json: Make, wrong: dict[str, Any], message: str
) -> None:
    url, given = make_json(), {"MessageBody": "x"} | wrong
    found = refusal(json_client, "SendMessage", QueueUrl=url, **given)
    assert (found.status, found.shape) == (400, "SerializationException")
    assert found.message == message
    batch = [{"Id": "good", "MessageBody": "x"}, {"Id": "bad", **given}]
    found = refusal(json_client, "SendMessageBatch", QueueUrl=url, Entries=batch)
    assert found.message == message
    assert json_client("ReceiveMessage", QueueUrl=url) == {}


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


UNFIT = (
    "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create the "
    "redrive allow policy, as it\u2019s in an unsupported format."
)
ALLOW = "for parameter RedriveAllowPolicy is invalid. Reason: Amazon SQS can't create the redrive"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('{"redrivePermission":"some"}', UNFIT),
        ("1", UNFIT),
        ('{"redrivePermission":"byQueue"}', 'Value {"redrivePermission":"byQueue"} '
         f"{ALLOW} allow policy. When you specify the byQueue permission type, you must also "
         "specify one or more sourceQueueArns values."),
        ('{"redrivePermission":"denyAll","sourceQueueArns":["a"]}',
         'Value {"redrivePermission":"denyAll","sourceQueueArns":["a"]} '
         f"{ALLOW} allow policy. To specify one or more source queue ARNs, you must set "
         "redrivePermission to byQueue."),
    ],
    ids=["permission", "number", "no queue", "queues"],
)  # fmt: skip
def test_who_may_send_dead_letters_is_said_clearly(
    client: Client, make: Make, given: str, message: str
) -> None:
    attributes = {"RedriveAllowPolicy": given}
    found = refusal(client, "SetQueueAttributes", QueueUrl=make(), Attributes=attributes)
    assert (found.status, found.message) == (400, message)


def test_a_page_has_one_to_a_thousand(client: Client) -> None:
    for most in (0, 1001):
        found = refusal(client, "ListQueues", MaxResults=most)
        assert (found.code, found.message) == (
            "InvalidParameterValue", "Value for parameter MaxResults is invalid. Reason: "
            "MaxResults must be an integer between 1 and 1000.",
        )  # fmt: skip


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


def test_only_fifo_queues_deduplicate(client: Client, make: Make) -> None:
    url, given = make(), {"MessageBody": "x", "MessageDeduplicationId": "d"}
    found = refusal(client, "SendMessage", QueueUrl=url, **given)
    assert (found.code, found.message) == (
        "InvalidParameterValue", "Value d for parameter MessageDeduplicationId is invalid. "
        "Reason: The request include parameter that is not valid for this queue type.",
    )  # fmt: skip


def test_a_throughput_by_group_needs_a_scope_by_group(client: Client, make: Make) -> None:
    url, given = make(FifoQueue="true"), {"FifoThroughputLimit": "perMessageGroupId"}
    found = refusal(client, "SetQueueAttributes", QueueUrl=url, Attributes=given)
    assert (found.code, found.message) == (
        "InvalidAttributeValue", "The perMessageGroupId value is allowed only when the value for "
        "DeduplicationScope is messageGroup.",
    )  # fmt: skip
    client("SetQueueAttributes", QueueUrl=url, Attributes={"DeduplicationScope": "messageGroup"})
    client("SetQueueAttributes", QueueUrl=url, Attributes=given)


def test_one_key_encrypts_a_queue(client: Client, make: Make) -> None:
    def told() -> dict[str, str]:
        names = ["SqsManagedSseEnabled", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"]
        found = client("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
        return dict(found["Attributes"])

    url, ours = make(KmsDataKeyReusePeriodSeconds="300"), {"SqsManagedSseEnabled": "true"}
    assert told() == ours
    again = {
        "QueueName": url.rpartition("/")[2],
        "Attributes": {"KmsDataKeyReusePeriodSeconds": "300"},
    }
    assert client("CreateQueue", **again)["QueueUrl"] == url
    client("SetQueueAttributes", QueueUrl=url, Attributes={"KmsMasterKeyId": "alias/k"})
    assert told() == {
        "SqsManagedSseEnabled": "false", "KmsMasterKeyId": "alias/k",
        "KmsDataKeyReusePeriodSeconds": "300",
    }  # fmt: skip
    found = refusal(
        client, "SetQueueAttributes", QueueUrl=url, Attributes=ours | {"KmsMasterKeyId": "alias/k"}
    )
    assert found.message.startswith("You can use one type of server-side encryption (SSE)")
    client("SetQueueAttributes", QueueUrl=url, Attributes={"KmsMasterKeyId": ""})
    assert told() == ours


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


def test_a_permission_is_for_an_action_that_can_be_shared(client: Client, make: Make) -> None:
    given = {"QueueUrl": make(), "Label": "L", "AWSAccountIds": ["111111111111"]}
    start = "for parameter ActionName is invalid. Reason:"
    found = refusal(client, "AddPermission", Actions=["DeleteQueue"], **given)
    assert found.message == (
        f"Value SQS:DeleteQueue {start} Only the queue owner is allowed to invoke this action."
    )
    found = refusal(client, "AddPermission", Actions=["Fly"], **given)
    wsdl = "Please refer to the appropriate WSDL for a list of valid actions. "
    assert found.message == f"Value SQS:Fly {start} {wsdl}"


def test_a_policy_has_twenty_statements(client: Client, make: Make) -> None:
    url = make()
    for at in range(20):
        client(
            "AddPermission", QueueUrl=url, Label=f"L{at}", AWSAccountIds=["111111111111"],
            Actions=["SendMessage"],
        )  # fmt: skip
    found = refusal(
        client, "AddPermission", QueueUrl=url, Label="L", AWSAccountIds=["111111111111"],
        Actions=["SendMessage"],
    )  # fmt: skip
    assert (found.status, found.code) == (403, "OverLimit")
    assert found.message == "21 Statements were found, maximum allowed is 20."


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


def test_a_queue_s_url_is_asked_about_its_queue_alone(query_client: Query, make_json: Make) -> None:
    path = "/" + make_json().split("/", 3)[3]
    status, _, body = query_client.post(b"", {}, path, "GET")
    assert (status, body) == (404, b"<UnknownOperationException/>")
    status, _, body = query_client.post(b"", {}, f"{path}?Action=ListQueues", "GET")
    assert status == 400
    assert b"The action ListQueues is not valid for this endpoint." in body
    asked = f"{path}?Action=GetQueueAttributes&AttributeName=QueueArn"
    status, _, body = query_client.post(b"", {}, asked, "GET")
    assert status == 200
    assert b"<Name>QueueArn</Name>" in body


def test_json_may_be_sent_to_a_queue_s_url(json_client: Json, make_json: Make) -> None:
    url = make_json()
    headers = {
        "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessage",
    }  # fmt: skip
    path = "/" + url.split("/", 3)[3]
    status, _, _ = json_client.post(b'{"MessageBody":"x"}', headers, path)
    assert status == 200
    (message,) = json_client("ReceiveMessage", QueueUrl=url)["Messages"]
    assert message["Body"] == "x"


def test_the_header_of_tracing_comes_with_the_message(json_client: Json, make_json: Make) -> None:
    url, trace = make_json(), "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=other"}}
    asked = {"QueueUrl": url, "MessageBody": "x"}
    json_client.raw("SendMessage", asked, **{"X-Amzn-Trace-Id": trace})
    said = asked | {"MessageSystemAttributes": system}
    json_client.raw("SendMessage", said, **{"X-Amzn-Trace-Id": trace})
    found = json_client(
        "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10,
        MessageSystemAttributeNames=["AWSTraceHeader"],
    )  # fmt: skip
    traces = [one["Attributes"]["AWSTraceHeader"] for one in found["Messages"]]
    assert traces == [trace, "Root=other"]
