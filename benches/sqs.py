"""The SQS endpoint under load: 32 connections that keep asking, messages of 1 KiB, on the disk.

The driver is a process of its own and speaks JSON over plain sockets: client libraries take longer
for a request than the server. With `--endpoint URL` it drives another server instead, for a
comparison in the same hour:

    python -m benches.sqs --endpoint http://127.0.0.1:9325
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from benches.harness import Row, scratch

CONNECTIONS = 32
BODY = "x" * 1024
BATCH = 10
GOALS = {"send": 10_000, "receive and delete": 5_000, "send, 10 at once": 50_000}
"""Messages a second, durable, on two cores that the driver shares."""


class Connection:
    """One connection that is kept."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    async def open(self) -> None:
        opened = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        self.reader, self.writer = opened

    async def call(self, action: str, **parameters: Any) -> Any:
        body = json.dumps(parameters).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: AmazonSQS.{action}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        (length,) = (int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        text = await self.reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{action}: {text[:200]!r}")
        return json.loads(text)


Work = Callable[[Connection], Awaitable[int]]


async def rate(connections: list[Connection], messages: int, work: Work) -> float:
    """Messages a second, when every connection does `work` until all are done."""
    done = 0

    async def worker(connection: Connection) -> None:
        nonlocal done
        while done < messages:
            count = await work(connection)
            if count == 0:
                return
            done += count

    began = time.perf_counter()
    await asyncio.gather(*map(worker, connections))
    return done / (time.perf_counter() - began)


async def drive(url: str, messages: int) -> dict[str, float]:
    """A figure for each kind of work."""
    at = urlsplit(url)
    connections = [Connection(at.hostname or "", at.port or 80) for _ in range(CONNECTIONS)]
    for connection in connections:
        await connection.open()
    queue = (await connections[0].call("CreateQueue", QueueName="bench"))["QueueUrl"]
    many = [{"Id": str(number), "MessageBody": BODY} for number in range(BATCH)]

    async def send(connection: Connection) -> int:
        await connection.call("SendMessage", QueueUrl=queue, MessageBody=BODY)
        return 1

    async def send_many(connection: Connection) -> int:
        await connection.call("SendMessageBatch", QueueUrl=queue, Entries=many)
        return BATCH

    async def receive(connection: Connection) -> int:
        found = (await connection.call("ReceiveMessage", QueueUrl=queue)).get("Messages", [])
        for message in found:
            handle = message["ReceiptHandle"]
            await connection.call("DeleteMessage", QueueUrl=queue, ReceiptHandle=handle)
        return len(found)

    async def receive_many(connection: Connection) -> int:
        answer = await connection.call("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=BATCH)
        found = answer.get("Messages", [])
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
            for number, message in enumerate(found)
        ]
        if entries:
            await connection.call("DeleteMessageBatch", QueueUrl=queue, Entries=entries)
        return len(found)

    figures = {}
    kinds = {
        "send": send, "receive and delete": receive, "send, 10 at once": send_many,
        "receive and delete, 10 at once": receive_many,
    }  # fmt: skip
    for case, work in kinds.items():
        figures[case] = await rate(connections, messages, work)
    for connection in connections:
        connection.writer.close()
    return figures


def run(quick: bool) -> Iterator[Row]:
    """A row for each kind of work."""
    import penstock.sqs

    messages = 2_000 if quick else 20_000
    with scratch() as folder, penstock.sqs.server(folder) as endpoint:
        command = [sys.executable, "-m", "benches.sqs", "--endpoint", endpoint.url]
        ran = subprocess.run(
            [*command, "--messages", str(messages)], check=True, capture_output=True, text=True
        )
    for case, found in json.loads(ran.stdout).items():
        yield Row(case=case, ours=found, unit="msg/s", goal=GOALS.get(case))


def main(arguments: list[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="python -m benches.sqs", description=__doc__)
    parser.add_argument("--endpoint", required=True, help="the server to drive, without signatures")
    parser.add_argument("--messages", type=int, default=20_000, help="how many of each kind")
    chosen = parser.parse_args(arguments)
    print(json.dumps(asyncio.run(drive(chosen.endpoint, chosen.messages))))


if __name__ == "__main__":
    main(sys.argv[1:])
