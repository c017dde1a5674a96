"""The server is killed while clients send, receive and delete: what it answered, it keeps."""

from __future__ import annotations

import http.client
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.sqs.speaking import Json, Refused

pytestmark = pytest.mark.crash
CLIENTS = 4


class Log:
    """What clients were told, and what they asked and were not told."""

    def __init__(self) -> None:
        self.sent: dict[str, list[int]] = {}
        """By group, the numbers whose send was answered, in order."""
        self.asked: set[str] = set()
        self.deleted: set[str] = set()
        self.maybe_deleted: set[str] = set()
        self.received_after_delete: list[str] = []
        self.lock = threading.Lock()


def serve(root: Path) -> tuple[subprocess.Popen[str], int]:
    line = [sys.executable, "-m", "penstock.sqs", str(root), "--port", "0", "--no-auth"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for text in process.stdout:
        if "AWS_ENDPOINT_URL_SQS" in text:
            return process, int(text.rpartition(":")[2])
    raise AssertionError("it ended")


def produce(port: int, group: str, log: Log, first: int) -> None:
    with Json(port) as client:
        for number in range(first, first + 10_000):
            body = f"{group}-{number}"
            log.asked.add(body)
            try:
                # Twice: the second one is a duplicate, whichever server it reaches.
                for _ in range(2):
                    client(
                        "SendMessage", QueueUrl="q.fifo", MessageBody=body, MessageGroupId=group,
                        MessageDeduplicationId=body,
                    )  # fmt: skip
            except (OSError, http.client.HTTPException, Refused):
                return
            log.sent.setdefault(group, []).append(number)


def consume(port: int, log: Log) -> None:
    with Json(port) as client:
        while True:
            try:
                answer = client(
                    "ReceiveMessage", QueueUrl="q.fifo", MaxNumberOfMessages=10,
                    VisibilityTimeout=1, WaitTimeSeconds=1,
                )  # fmt: skip
                for message in answer.get("Messages", []):
                    settle(client, message, log)
            except (OSError, http.client.HTTPException):
                return


def settle(client: Json, message: dict[str, Any], log: Log) -> None:
    body = message["Body"]
    with log.lock:
        if body in log.deleted:
            log.received_after_delete.append(body)
        log.maybe_deleted.add(body)
    try:
        client("DeleteMessage", QueueUrl="q.fifo", ReceiptHandle=message["ReceiptHandle"])
    except Refused:
        return  # Its lease had run out.
    with log.lock:
        log.deleted.add(body)


def one_life(root: Path, log: Log, length: int) -> None:
    """Starts the server, lets clients work, and kills it when it has answered `length` sends."""
    process, port = serve(root)
    with Json(port) as client:
        client("CreateQueue", QueueName="q.fifo", Attributes={"FifoQueue": "true"})
    before = sum(map(len, log.sent.values()))
    groups = [f"g{at}" for at in range(CLIENTS)]
    jobs = [
        threading.Thread(target=produce, args=(port, group, log, next_number(log, group)))
        for group in groups
    ]
    jobs += [threading.Thread(target=consume, args=(port, log)) for _ in range(2)]
    for job in jobs:
        job.start()
    while sum(map(len, log.sent.values())) - before < length and any(j.is_alive() for j in jobs):
        jobs[0].join(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    for job in jobs:
        job.join(60)


def next_number(log: Log, group: str) -> int:
    """Behind everything that was asked: a send that got no answer may be there or not."""
    known = [int(body.partition("-")[2]) for body in log.asked if body.startswith(f"{group}-")]
    return max(known, default=-1) + 1


def what_is_left(root: Path) -> list[str]:
    process, port = serve(root)
    left: list[str] = []
    try:
        with Json(port) as client:
            while True:
                answer = client(
                    "ReceiveMessage", QueueUrl="q.fifo", MaxNumberOfMessages=10,
                    WaitTimeSeconds=2, VisibilityTimeout=600,
                )  # fmt: skip
                found = answer.get("Messages", [])
                if not found:
                    return left
                left += [message["Body"] for message in found]
                entries = [
                    {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]}
                    for at, message in enumerate(found)
                ]
                client("DeleteMessageBatch", QueueUrl="q.fifo", Entries=entries)
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lives", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_or_comes_back(root: Path, lives: int) -> None:
    log, random_ = Log(), random.Random(lives)
    for _ in range(lives):
        one_life(root, log, random_.randrange(5, 40))
    left = what_is_left(root)
    acked = {f"{group}-{number}" for group, numbers in log.sent.items() for number in numbers}
    assert log.received_after_delete == []
    assert len(left) == len(set(left)), "a duplicate was kept"
    assert not set(left) & log.deleted, "a deleted message came back"
    assert acked <= set(left) | log.maybe_deleted, "an acknowledged message is gone"
    assert set(left) <= log.asked
    for group in log.sent:
        numbers = [int(body.partition("-")[2]) for body in left if body.startswith(f"{group}-")]
        assert numbers == sorted(numbers), "the order of a group is lost"
