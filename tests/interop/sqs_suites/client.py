"""Every kind of call once, with the botocore of this environment: `client.py PROTOCOL`.

Run by itself, with nothing of penstock installed, and the endpoint in the environment.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import boto3


def main(protocol: str) -> None:
    sqs = boto3.client("sqs", endpoint_url=os.environ["AWS_ENDPOINT_URL_SQS"])
    assert sqs.meta.service_model.metadata["protocol"] == protocol
    queue = sqs.create_queue(
        QueueName=f"client-{protocol}", Attributes={"VisibilityTimeout": "5"}, tags={"a": "b"}
    )["QueueUrl"]
    attributes = {
        "raw": {"DataType": "Binary", "BinaryValue": b"\0\1"},
        "city": {"DataType": "String", "StringValue": "Köln"},
    }
    body = "grüße <&> \r\n"
    sent = sqs.send_message(QueueUrl=queue, MessageBody=body, MessageAttributes=attributes)
    asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    (found,) = sqs.receive_message(QueueUrl=queue, **asked)["Messages"]
    assert (found["Body"], found["MessageAttributes"]) == (body, attributes)
    assert found["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert found["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=found["ReceiptHandle"])
    batches(sqs, queue)
    queues(sqs, queue)
    dead_letters(sqs, protocol)
    print(f"{protocol}: every call answered as expected")


def batches(sqs: Any, queue: str) -> None:
    entries = [{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "\x01"}]
    answer = sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["a"]
    assert answer["Failed"][0]["Code"] == "InvalidMessageContents"
    (found,) = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    handle = {"Id": "1", "ReceiptHandle": found["ReceiptHandle"]}
    for done in (
        sqs.change_message_visibility_batch(
            QueueUrl=queue, Entries=[{**handle, "VisibilityTimeout": 30}]
        ),
        sqs.delete_message_batch(QueueUrl=queue, Entries=[handle]),
    ):
        assert [one["Id"] for one in done["Successful"]] == ["1"]


def queues(sqs: Any, queue: str) -> None:
    def call(name: str, **given: Any) -> Any:
        return getattr(sqs, name)(QueueUrl=queue, **given)

    call("set_queue_attributes", Attributes={"DelaySeconds": "1"})
    found = call("get_queue_attributes", AttributeNames=["All"])["Attributes"]
    assert found["DelaySeconds"] == "1"
    call("tag_queue", Tags={"q": "w"})
    call("untag_queue", TagKeys=["a"])
    assert call("list_queue_tags")["Tags"] == {"q": "w"}
    call("add_permission", Label="l", AWSAccountIds=["111111111111"], Actions=["SendMessage"])
    call("remove_permission", Label="l")
    call("purge_queue")
    name = queue.rpartition("/")[2]
    assert sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [queue]
    call("delete_queue")
    code = ""
    try:
        sqs.get_queue_url(QueueName=name)
    except sqs.exceptions.QueueDoesNotExist as error:
        code = error.response["Error"]["Code"]
    assert code == "AWS.SimpleQueueService.NonExistentQueue"


def dead_letters(sqs: Any, protocol: str) -> None:
    create = sqs.create_queue
    dead = create(QueueName=f"dead-{protocol}")["QueueUrl"]
    asked = {"QueueUrl": dead, "AttributeNames": ["QueueArn"]}
    arn = sqs.get_queue_attributes(**asked)["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    source = create(QueueName=f"source-{protocol}", Attributes={"RedrivePolicy": policy})
    found = sqs.list_dead_letter_source_queues(QueueUrl=dead)
    assert found["queueUrls"] == [source["QueueUrl"]]


if __name__ == "__main__":
    main(*sys.argv[1:])
