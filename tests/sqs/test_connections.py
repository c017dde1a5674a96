"""HTTP as it comes over a socket: what is answered, what is refused, and who is hung up on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock.sqs
from penstock.sqs import connections
from tests.sqs.speaking import Json

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        yield connection


def all_of(connection: socket.socket) -> bytes:
    """Everything until the server hangs up."""
    found = b""
    try:
        while piece := connection.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass  # It hung up on what it had not read.
    return found


def ask(port: int, request: bytes) -> bytes:
    with connected(port) as connection:
        connection.sendall(request)
        return all_of(connection)


def test_requests_that_come_at_once_are_answered_in_order(endpoint: Any) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.CreateQueue\r\n"
    bodies = [b'{"QueueName": "ahead-%d"}' % number for number in range(5)]
    asked = [head + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies]
    asked += [HEALTH + b"Connection: close\r\n\r\n"]
    found = ask(endpoint.port, b"".join(asked))
    at = [found.index(b"/ahead-%d" % number) for number in range(5)]
    assert at == sorted(at)
    assert found.count(b"HTTP/1.1 200 OK") == 6
    assert found.endswith(b'{"status":"ok"}')


def test_very_many_requests_may_come_at_once(endpoint: Any) -> None:
    asked = (HEALTH + b"\r\n") * 3000 + HEALTH + b"Connection: close\r\n\r\n"
    with connected(endpoint.port) as connection:
        writer = threading.Thread(target=connection.sendall, args=(asked,))
        writer.start()
        found = all_of(connection)
        writer.join()
    assert found.count(b"HTTP/1.1 200 OK") == 3001


CHUNKED = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
    b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
)


def test_headers_behind_the_body_say_nothing(endpoint: Any) -> None:
    found = ask(endpoint.port, CHUNKED + b"X-Amz-Target: AmazonSQS.Fly\r\nHost: x\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("piece", [b"a: b\r\n", b"a"], ids=["many", "one"])
def test_headers_behind_the_body_are_bounded(endpoint: Any, piece: bytes) -> None:
    start = CHUNKED if b":" in piece else CHUNKED + b"a: "
    with connected(endpoint.port) as connection:
        connection.sendall(start)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(piece * 10_000_000)


def test_a_request_may_come_byte_by_byte(endpoint: Any) -> None:
    with connected(endpoint.port) as connection:
        for byte in HEALTH + b"Connection: close\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert all_of(connection).endswith(b'{"status":"ok"}')


def test_old_http_is_answered_once(endpoint: Any) -> None:
    found = ask(endpoint.port, b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert b"connection: close" in found
    assert found.endswith(b'{"status":"ok"}')


def test_whoever_would_speak_another_protocol_is_answered_in_this_one(endpoint: Any) -> None:
    found = ask(endpoint.port, HEALTH + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200 OK")
    assert found.endswith(b'{"status":"ok"}')


def test_a_head_alone_is_asked_for(endpoint: Any) -> None:
    found = ask(endpoint.port, b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert found.endswith(b"\r\n\r\n")


def test_who_waits_to_be_asked_for_the_body_is_asked(endpoint: Any) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
    with connected(endpoint.port) as connection:
        connection.sendall(head + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /health HTTP/1.1\r\n" + b"X-Padding: " + b"x" * 300_000, b"431"),
        (b"GET /" + b"x" * 300_000, b"431"),
        (b"nonsense\r\n\r\n", b"400"),
        (HEALTH + b"Host: evil.example\r\n\r\n", b"400"),
        (HEALTH + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (HEALTH + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (HEALTH + b"Content-Length: -1\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_request_ends_the_connection(
    endpoint: Any, json_client: Json, request_: bytes, status: bytes
) -> None:
    found = ask(endpoint.port, request_)
    assert not found or found.startswith(b"HTTP/1.1 " + status)
    assert json_client("ListQueues") is not None


@pytest.mark.parametrize(
    ("limit", "request_", "answer"),
    [
        ("HEAD_S_MAX", b"", b""),
        ("HEAD_S_MAX", HEALTH, b""),
        ("BODY_S_MAX", HEALTH + b"Content-Length: 10\r\n\r\n{", b"HTTP/1.1 408"),
    ],
)
def test_time_is_up_for_who_sends_nothing_more(
    root: Path, monkeypatch: pytest.MonkeyPatch, limit: str, request_: bytes, answer: bytes
) -> None:
    monkeypatch.setattr(connections, limit, -1.0)
    monkeypatch.setattr(connections, "SWEEP_S", 0.01)
    with penstock.sqs.server(root) as endpoint:
        found = ask(endpoint.port, request_)
    assert found.startswith(answer)
    assert bool(found) == bool(answer)


def test_there_are_so_many_connections_and_no_more(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 2)
    with (
        penstock.sqs.server(root) as endpoint, connected(endpoint.port), Json(endpoint.port) as one,
    ):  # fmt: skip
        assert one("ListQueues") is not None
        assert all_of_one_more(endpoint.port).startswith(b"HTTP/1.1 503")


def test_bodies_of_all_clients_together_are_bounded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ALL_BODIES_BYTES_MAX", 100_000)
    begun = HEALTH + b"Content-Length: 90000\r\n\r\n"
    whole = HEALTH + b"Connection: close\r\nContent-Length: 90000\r\n\r\n" + b"x" * 90_000
    with penstock.sqs.server(root) as endpoint, connected(endpoint.port) as first:
        for _ in range(3):  # What is answered counts no more.
            assert ask(endpoint.port, whole).startswith(b"HTTP/1.1 200 OK")
        first.sendall(begun + b"x" * 60_000)
        while not ask(endpoint.port, whole).startswith(b"HTTP/1.1 503"):
            pass  # The server has not read all of the first one's bytes.
        first.sendall(b"x" * 30_000)
        assert first.recv(100).startswith(b"HTTP/1.1 200 OK")
        assert ask(endpoint.port, whole).startswith(b"HTTP/1.1 200 OK")


def all_of_one_more(port: int) -> bytes:
    with connected(port) as connection:
        return all_of(connection)


def test_the_server_ends_with_connections_that_ask_nothing(root: Path) -> None:
    with penstock.sqs.server(root) as endpoint:
        idle = socket.create_connection(("127.0.0.1", endpoint.port), timeout=60)
        client = Json(endpoint.port)
        client("ListQueues")
    assert idle.recv(1) == b""
    idle.close()
    client.connection.close()
