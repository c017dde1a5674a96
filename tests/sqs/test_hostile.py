"""Requests that no client of good will sends: the right refusal, and the server goes on."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.sqs
from penstock.sqs.actions import ACTIONS
from penstock.sqs.connections import BODY_BYTES_MAX
from tests.sqs.speaking import Json, Query, Refused

Make = Callable[..., str]


def is_alive(client: Json) -> bool:
    return client.post(b"", {}, "/health", "GET")[0] == 200


@pytest.fixture(scope="module")
def form(endpoint: Any) -> Iterator[Query]:
    with Query(endpoint.port) as form:
        yield form


# ── web pages ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "rebound.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": ""},
    ],
)
def test_a_form_on_a_web_page_changes_nothing(form: Query, headers: dict[str, str]) -> None:
    usual = {"Content-Type": "application/x-www-form-urlencoded"}
    status, _, body = form.post(b"Action=CreateQueue&QueueName=evil", usual | headers)
    assert (status, b"AccessDenied" in body) == (403, True)
    with pytest.raises(Refused):
        form("GetQueueUrl", QueueName="evil")


def test_a_host_that_was_allowed_is_served(root: Path) -> None:
    running = penstock.sqs.server(root, allow_hosts=("queue.test",))
    with running as endpoint, Json(endpoint.port) as client:
        assert client.raw("ListQueues", {}, Host="queue.test:80")[0] == 200
        assert client.raw("ListQueues", {}, Host="other.test")[0] == 403


# ── names ──────────────────────────────────────────────────────────────────────────────────────

NAMES = [
    "..", ".", "../..", "%2e%2e", "a/../../b", "/etc", "\0", "a\0b", "nul", ".sqs", ".sqs/secret",
    ".penstock", "a" * 300, "ü", "a.fifo/..", "..fifo", "\u202e", "~", "a\n",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leaves_the_root(json_client: Json, endpoint: Any, name: str) -> None:
    root = endpoint.options.root

    def tree() -> list[Path]:
        above = sorted(root.parent.iterdir())
        return above + sorted(path for path in root.rglob("*") if ".penstock" not in path.parts)

    before = tree()
    for url in (name, f"http://h/123456789012/{quote(name)}", f"http://h/{quote(name)}/q"):
        for action in ("DeleteQueue", "PurgeQueue", "ReceiveMessage"):
            with pytest.raises(Refused):
                json_client(action, QueueUrl=url)
    if name != "nul":
        with pytest.raises(Refused):
            json_client("CreateQueue", QueueName=name)
    assert tree() == before


def test_regions_and_accounts_leave_no_root_either(endpoint: Any) -> None:
    for region, key in (("../../x", "test"), ("us-east-1", "../../../x"), ("", "%00")):
        with Json(endpoint.port, region=region, key=key) as client:
            client("ListQueues")
    folder = endpoint.options.root / ".sqs"
    assert {path.name for path in folder.iterdir()} <= {"secret", "trash", "123456789012"}


# ── bodies ─────────────────────────────────────────────────────────────────────────────────────


def raw_answer(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        return connection.recv(1 << 16)


HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"


def test_a_body_that_says_it_is_huge_is_not_read(endpoint: Any, json_client: Json) -> None:
    length = b"Content-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1)
    assert b" 413 " in raw_answer(endpoint.port, HEAD + length).partition(b"\r\n")[0]
    assert is_alive(json_client)


def test_a_body_in_chunks_has_the_same_limit(endpoint: Any, json_client: Json) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    piece = b"x" * (1 << 20)
    headers = {"X-Amz-Target": "AmazonSQS.ListQueues", "Host": "localhost"}
    try:
        connection.request("POST", "/", iter([piece] * 12), headers, encode_chunked=True)
        assert connection.getresponse().status == 413
    except OSError:
        pass  # It hung up while we were still sending.
    finally:
        connection.close()
    assert is_alive(json_client)


def test_bodies_that_never_come_keep_nobody_else_waiting(endpoint: Any, json_client: Json) -> None:
    slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(50)]
    for connection in slow:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    assert is_alive(json_client)
    assert json_client("ListQueues") is not None
    for connection in slow:
        connection.close()
    assert is_alive(json_client)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 100_000,
        b'{"QueueUrl": {"a": 1}}', b'{"QueueUrl": 7}', b'{"QueueName": ["x"]}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_refused(json_client: Json, body: bytes) -> None:
    for action in ("CreateQueue", "SendMessage", "ReceiveMessage"):
        headers = {"X-Amz-Target": f"AmazonSQS.{action}"}
        status, found, text = json_client.post(body, headers)
        assert status == 400
        assert json.loads(text)["__type"]
        assert found["x-amzn-query-error"].endswith(";Sender")


# ── anything at all ────────────────────────────────────────────────────────────────────────────

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20),
    st.sampled_from(["All", "true", "arn:aws:sqs:us-east-1:123456789012:fuzz", "AAAA", "0"]),
)  # fmt: skip
NAMES_OF_PARTS = st.text(max_size=5) | st.sampled_from(["Id", "MessageBody", "DataType"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES_OF_PARTS, inner, max_size=3),
    max_leaves=6,
)
PARAMETERS = st.sampled_from(
    [
        "QueueUrl", "QueueName", "Attributes", "AttributeNames", "MessageBody", "Entries", "Tags",
        "tags", "TagKeys", "ReceiptHandle", "VisibilityTimeout", "MaxNumberOfMessages",
        "MessageAttributes", "MessageSystemAttributes", "DelaySeconds", "MessageGroupId",
        "MessageDeduplicationId", "Label", "AWSAccountIds", "Actions", "SourceArn", "TaskHandle",
        "DestinationArn", "MaxResults", "NextToken", "QueueNamePrefix", "MessageAttributeNames",
        "MessageSystemAttributeNames", "ReceiveRequestAttemptId", "MaxNumberOfMessagesPerSecond",
    ]
)  # fmt: skip


@settings(max_examples=150)
@given(
    action=st.sampled_from(sorted(ACTIONS)), parameters=st.dictionaries(PARAMETERS, VALUES),
    has_queue=st.booleans(),
)  # fmt: skip
def test_whatever_json_says_the_answer_is_a_refusal_or_a_result(
    json_client: Json, action: str, parameters: dict[str, Any], has_queue: bool
) -> None:
    json_client("CreateQueue", QueueName="fuzz")
    if has_queue:
        parameters["QueueUrl"] = "fuzz"
    parameters["WaitTimeSeconds"] = 0
    status, headers, body = json_client.raw(action, parameters)
    assert status in (200, 400, 403, 404), body
    assert isinstance(json.loads(body), dict)
    assert headers["x-amzn-requestid"]


FIELDS = st.text("ABCDEabcde.0123456789NameValueKey", max_size=30) | PARAMETERS
FORMS = st.dictionaries(
    FIELDS | st.builds(lambda name, rest: f"{name}.{rest}", PARAMETERS, FIELDS),
    st.text(max_size=20), max_size=6,
)  # fmt: skip


@settings(max_examples=150)
@given(action=st.sampled_from(sorted(ACTIONS)), fields=FORMS, has_queue=st.booleans())
def test_whatever_a_form_says_the_answer_is_a_refusal_or_a_result(
    query_client: Query, action: str, fields: dict[str, str], has_queue: bool
) -> None:
    from urllib.parse import urlencode
    from xml.etree import ElementTree

    query_client("CreateQueue", QueueName="fuzz")
    flat = fields | ({"QueueUrl": "fuzz"} if has_queue else {})
    flat |= {"Action": action, "WaitTimeSeconds": "0"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, _, body = query_client.post(urlencode(flat).encode(), form)
    assert status in (200, 400, 403, 404), body
    assert ElementTree.fromstring(body).tag.endswith("Response")


@settings(max_examples=60)
@given(raw=st.binary(max_size=200))
def test_bytes_that_are_no_http_harm_nobody(endpoint: Any, json_client: Json, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=60) as connection:
        connection.sendall(raw)
    assert is_alive(json_client)
