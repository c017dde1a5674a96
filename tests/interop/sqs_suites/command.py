"""The AWS command line against the endpoint that the environment names. Run by itself."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any


def aws(line: str, *words: str) -> Any:
    command = [*os.path.expandvars(line).split(), *words, "--output", "json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(text) if text.strip() else {}


def call(action: str, *words: str) -> Any:
    return aws(f"aws sqs {action} --endpoint-url $AWS_ENDPOINT_URL_SQS", *words)


def main() -> None:
    line = "aws sqs create-queue --queue-name orders --endpoint-url $AWS_ENDPOINT_URL_SQS"
    queue = aws(line)["QueueUrl"]
    call("send-message", "--queue-url", queue, "--message-body", "hello")
    (found,) = call("receive-message", "--queue-url", queue)["Messages"]
    assert found["Body"] == "hello"
    handle = found["ReceiptHandle"]
    call("delete-message", "--queue-url", queue, "--receipt-handle", handle)
    assert call("receive-message", "--queue-url", queue) == {}
    call("delete-queue", "--queue-url", queue)
    print("aws sqs: every call answered as expected")


if __name__ == "__main__":
    main()
