"""The AWS command line against the endpoint: `command.py URL`. Run by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def aws(url: str, *words: str) -> Any:
    command = ["aws", "sqs", *words, "--endpoint-url", url, "--output", "json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(text) if text.strip() else {}


def main(url: str) -> None:
    queue = aws(url, "create-queue", "--queue-name", "command")["QueueUrl"]
    aws(url, "send-message", "--queue-url", queue, "--message-body", "hello")
    (found,) = aws(url, "receive-message", "--queue-url", queue)["Messages"]
    assert found["Body"] == "hello"
    handle = found["ReceiptHandle"]
    aws(url, "delete-message", "--queue-url", queue, "--receipt-handle", handle)
    assert aws(url, "receive-message", "--queue-url", queue) == {}
    aws(url, "delete-queue", "--queue-url", queue)
    print("aws sqs: every call answered as expected")


if __name__ == "__main__":
    main(sys.argv[1])
