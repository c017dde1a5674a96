"""The AWS command line against the endpoint that the environment names. Run by itself."""

from __future__ import annotations

import json
import subprocess
from typing import Any


def aws(line: str, *words: str) -> Any:
    command = [*line.split(), *words, "--output", "json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(text) if text.strip() else {}


def main() -> None:
    queue = aws("aws sqs create-queue --queue-name orders")["QueueUrl"]
    aws("aws sqs send-message", "--queue-url", queue, "--message-body", "hello")
    (found,) = aws("aws sqs receive-message", "--queue-url", queue)["Messages"]
    assert found["Body"] == "hello"
    handle = found["ReceiptHandle"]
    aws("aws sqs delete-message", "--queue-url", queue, "--receipt-handle", handle)
    assert aws("aws sqs receive-message", "--queue-url", queue) == {}
    aws("aws sqs delete-queue", "--queue-url", queue)
    print("aws sqs: every call answered as expected")


if __name__ == "__main__":
    main()
