"""A server that is asked nonsense for a long time has no more memory than after a short time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

GROWN_MAX_BYTES = 8 << 20
AT_ONCE = 50
ROUND = 400
"""Requests of each kind. Every one is another: whatever is remembered of it would add up."""


@pytest.fixture
def served(root: Path) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server that verifies signatures."""
    line = [sys.executable, "-m", "penstock.sqs", str(root), "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        port = next(int(one.rpartition(":")[2]) for one in lines if "AWS_ENDPOINT_URL" in one)
        yield port, process.pid
        process.kill()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def request(body: bytes, *lines: bytes, path: bytes = b"/") -> bytes:
    head = [b"POST " + path + b" HTTP/1.1", b"Host: localhost", *lines]
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"", body])


def signed(name: bytes, body: bytes, path: bytes = b"/") -> bytes:
    """As if: who signs so is not known here."""
    return request(
        body, b"X-Amz-Date: 20260101T000000Z", b"X-Amz-Target: AmazonSQS.SendMessage",
        b"Authorization: AWS4-HMAC-SHA256 Credential=%b/20260101/us-east-1/sqs/aws4_request, "
        b"SignedHeaders=host;x-amz-date, Signature=00" % name, path=path,
    )  # fmt: skip


def nonsense(number: int) -> list[bytes]:
    name = b"n%d" % number + b"x" * 2000
    return [
        signed(name, b'{"QueueUrl":"http://localhost/123456789012/%b"}' % name),
        signed(b"k", b"{" * 5000, path=b"/" + name),
        request(b"", b"X-%b: 1" % name),
        request(b"Action=SendMessage&%b.1.%b=2" % (name, name), path=b"/?" + name),
        request(b"\xff" * 5000, b"Content-Type: application/x-amz-json-1.0"),
        request(b"", b"X-Amz-Date: " + name, b"Authorization: " + name),
    ]


def ask(port: int, first: int, count: int) -> None:
    for start in range(first, first + count, AT_ONCE):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            asked = [one for at in range(start, start + AT_ONCE) for one in nonsense(at)]
            for one in asked:
                connection.sendall(one)
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 4")
            connection.sendall(asked[1][:-10])  # And hangs up in the middle of a body.


@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_nonsense_leaves_nothing_behind(served: tuple[int, int], rounds: int) -> None:
    port, pid = served
    ask(port, 0, ROUND * 3)  # What is remembered of the last so many is there by now.
    before = resident_bytes(pid)
    ask(port, 1_000_000, ROUND * rounds)
    assert resident_bytes(pid) - before < GROWN_MAX_BYTES
