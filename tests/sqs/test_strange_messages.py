"""Messages that a program of this host put with headers of the endpoint's own: whatever they say, a
receive hands out all messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Queue
from tests.sqs.speaking import Json, Query

Make = Callable[..., str]
STRANGE: dict[str, list[str]] = {
    "sqs.attributes": [
        "no json", "7", "[]", '"text"', '{"a": 1}', '{"a": {"DataType": "Number"}}',
        '{"a": {"DataType": "String", "StringValue": 7}}', "[" * 100_000,
        '{"a": {"DataType": "Binary", "BinaryValue": "="}}',
    ],
    "sqs.system": ["no json", "{}", "[]", '{"AWSTraceHeader": 7}', '{"AWSTraceHeader": {}}'],
    "sqs.receives": ["many", "-5", "9" * 5000, "٣"],
    "sqs.sent": ["yesterday", "", "9" * 5000],
    "sqs.sender": ["\0", ""],
    "sqs.trace": ["\0\x0b"],
    "sqs.source": ["\n\0"],
    "sqs.group": ["\0"],
    "sqs.deduplication": ["\x1b[2J"],
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_header_keeps_no_other_message_back(
    endpoint: Any, client: Json | Query, make: Make, name: str
) -> None:
    for value in STRANGE[name]:
        url = make()
        with Queue(endpoint.options.root / url.rpartition("/")[2]) as queue:
            queue.put(b"before")
            queue.put(b"strange", headers={name: value})
            queue.put(b"after")
        found = client(
            "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10,
            MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"],
        )["Messages"]  # fmt: skip
        assert [one["Body"] for one in found] == ["before", "strange", "after"], value[:40]
        assert {one["Attributes"]["ApproximateReceiveCount"] for one in found} == {"1"}


def test_a_strange_message_may_die(endpoint: Any, client: Json | Query, make: Make) -> None:
    dead = make()
    asked = client("GetQueueAttributes", QueueUrl=dead, AttributeNames=["QueueArn"])
    arn = asked["Attributes"]["QueueArn"]
    url = make(RedrivePolicy=f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "1"}}')
    with Queue(endpoint.options.root / url.rpartition("/")[2]) as queue:
        queue.put(b"strange", headers={"sqs.sent": "yesterday", "sqs.receives": "many"})
    for _ in range(2):
        client("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0)
    (found,) = client("ReceiveMessage", QueueUrl=dead)["Messages"]
    assert found["Body"] == "strange"
