"""The server itself: starting, stopping, who it listens to, what it says."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.sqs
from penstock import Queue
from penstock.errors import OptionError, PenstockError
from penstock.sqs import attributes
from penstock.sqs.auth import Credentials
from penstock.sqs.connections import Request
from tests.sqs.speaking import Json, Query, Refused

PAIR = Credentials("AKIAEXAMPLE", "secret")


def test_a_program_gets_an_endpoint_without_choosing_a_port() -> None:
    with penstock.sqs.server() as endpoint:
        sqs = boto3.client("sqs", **endpoint.client_options)
        url = sqs.create_queue(QueueName="orders", tags={"team": "a"})["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="hello")
        found = sqs.receive_message(QueueUrl=url)["Messages"]
        assert [message["Body"] for message in found] == ["hello"]
        with pytest.raises(sqs.exceptions.QueueDoesNotExist) as refused:
            sqs.get_queue_url(QueueName="none")
        code = refused.value.response["Error"]["Code"]
        assert code == "AWS.SimpleQueueService.NonExistentQueue"
        sqs.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", endpoint.port))


def test_queues_and_messages_are_there_after_a_restart(root: Path) -> None:
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "3600"}
        url = client("CreateQueue", QueueName="a.fifo", Attributes=attributes)["QueueUrl"]
        client("TagQueue", QueueUrl=url, Tags={"k": "v"})
        given = {"QueueUrl": url, "MessageGroupId": "g"}
        for name in ("1", "2", "3"):
            sent = client("SendMessage", MessageBody=name, MessageDeduplicationId=name, **given)
        (held,) = client("ReceiveMessage", QueueUrl=url)["Messages"]
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        url = client("GetQueueUrl", QueueName="a.fifo")["QueueUrl"]
        assert client("ListQueueTags", QueueUrl=url) == {"Tags": {"k": "v"}}
        given["QueueUrl"] = url
        again = client("SendMessage", MessageBody="3", MessageDeduplicationId="3", **given)
        assert again == sent  # The window of deduplication is kept.
        assert client("ReceiveMessage", QueueUrl=url) == {}  # So is the lease.
        client("DeleteMessage", QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])
        found = client("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert [message["Body"] for message in found] == ["2", "3"]


def test_programs_of_this_host_use_the_same_queue(root: Path) -> None:
    with Queue(root / "orders", durability="always") as queue:
        queue.put(b"from a program", id="o-1")
        with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
            (url,) = client("ListQueues")["QueueUrls"]
            (found,) = client("ReceiveMessage", QueueUrl=url)["Messages"]
            assert (found["Body"], found["MessageId"]) == ("from a program", "o-1")
            client("SendMessage", QueueUrl=url, MessageBody="from a client")
            assert queue.get(timeout=0).body == b"from a client"


def test_a_queue_of_the_endpoint_is_as_durable_as_any_other_to_a_program(root: Path) -> None:
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        client("CreateQueue", QueueName="q")
    with Queue(root / "q") as queue:
        assert queue.options.durability.value == "interval"


def test_messages_that_are_held_back_are_counted_after_a_restart(root: Path) -> None:
    for _ in range(2):
        with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
            url = client("CreateQueue", QueueName="q")["QueueUrl"]
            client("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=900)
            client("ReceiveMessage", QueueUrl=url)
            client("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=900)
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        found = client("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert found["ApproximateNumberOfMessagesDelayed"] == "4"
        assert found["ApproximateNumberOfMessages"] == "0"


def test_when_a_message_was_first_received_is_known_after_a_restart(root: Path) -> None:
    clock = penstock.ManualClock()
    shown: list[dict[str, str]] = []
    for _ in range(3):
        with (
            penstock.sqs.server(root, clock=clock) as endpoint, Json(endpoint.port) as client,
        ):  # fmt: skip
            url = client("CreateQueue", QueueName="q")["QueueUrl"]
            if not shown:
                client("SendMessage", QueueUrl=url, MessageBody="x")
            asked = {"QueueUrl": url, "AttributeNames": ["All"], "VisibilityTimeout": 5}
            (found,) = client("ReceiveMessage", **asked)["Messages"]
            shown.append(found["Attributes"])
            clock.advance(10)
    assert len({one["ApproximateFirstReceiveTimestamp"] for one in shown}) == 1
    assert [one["ApproximateReceiveCount"] for one in shown] == ["1", "2", "3"]


def test_a_file_about_receives_that_is_broken_keeps_no_queue_from_opening(root: Path) -> None:
    for _ in range(2):
        with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
            url = client("CreateQueue", QueueName="q")["QueueUrl"]
            client("SendMessage", QueueUrl=url, MessageBody="x")
            assert client("ReceiveMessage", QueueUrl=url)["Messages"]
        path = root / ".sqs/123456789012/us-east-1/q.received.json"
        path.write_text('{"a": 1, "7": "x"}')


def test_no_message_is_away_for_more_than_twelve_hours(root: Path) -> None:
    clock = penstock.ManualClock()
    with penstock.sqs.server(root, clock=clock) as endpoint, Json(endpoint.port) as client:
        url = client("CreateQueue", QueueName="q")["QueueUrl"]
        client("SendMessage", QueueUrl=url, MessageBody="x")
        asked = {"QueueUrl": url, "VisibilityTimeout": 7200}
        (found,) = client("ReceiveMessage", **asked)["Messages"]
        change = {"QueueUrl": url, "ReceiptHandle": found["ReceiptHandle"]}
        clock.advance(3600)
        with pytest.raises(Refused, match="beyond the limit"):
            client("ChangeMessageVisibility", **change, VisibilityTimeout=39_601)
        client("ChangeMessageVisibility", **change, VisibilityTimeout=39_600)
        clock.advance(39_601)
        (again,) = client("ReceiveMessage", **asked)["Messages"]
        change["ReceiptHandle"] = again["ReceiptHandle"]
        client("ChangeMessageVisibility", **change, VisibilityTimeout=43_200)


def test_queues_may_be_kept_as_vqs_does(root: Path) -> None:
    clock = penstock.ManualClock()
    attributes = {"city": {"DataType": "String", "StringValue": "Köln"}}
    for life in range(2):
        running = penstock.sqs.server(root, format="vqs", clock=clock)
        with running as endpoint, Json(endpoint.port) as client:
            url = client("CreateQueue", QueueName="q")["QueueUrl"]
            fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
            ordered = client("CreateQueue", QueueName="q.fifo", Attributes=fifo)["QueueUrl"]
            client("SendMessage", QueueUrl=ordered, MessageBody="x", MessageGroupId="g")
            if life == 0:
                given = {"QueueUrl": url, "MessageBody": "hello", "MessageAttributes": attributes}
                client("SendMessage", **given)
                client("SendMessage", QueueUrl=url, MessageBody="later", DelaySeconds=60)
            asked = {"QueueUrl": url, "AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
            counts = client("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
            assert counts["Attributes"]["ApproximateNumberOfMessagesDelayed"] == "1"
            found = client("ReceiveMessage", **asked, MaxNumberOfMessages=10)["Messages"]
            assert [one["Body"] for one in found] == ["hello"]
            assert found[0]["MessageAttributes"] == attributes
            assert found[0]["Attributes"]["ApproximateReceiveCount"] == str(life + 1)
            assert found[0]["Attributes"]["SentTimestamp"] == "1700000000000"
            clock.advance(31)
    handle = {"QueueUrl": url, "ReceiptHandle": found[0]["ReceiptHandle"]}
    with penstock.sqs.server(root, clock=clock) as endpoint, Json(endpoint.port) as client:
        client("DeleteMessage", **handle)
        found = client("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert [one["Body"] for one in found] == ["later"]
        assert len(client("ReceiveMessage", QueueUrl=ordered)["Messages"]) == 1
    assert (root / "q" / "data.dat").exists()
    with Queue(root / "q", create=False) as queue:
        assert queue.store.format.name == "vqs"


def test_regions_and_accounts_have_queues_of_their_own(root: Path) -> None:
    with penstock.sqs.server(root) as endpoint:
        port = endpoint.port
        with (
            Json(port) as home, Json(port, region="eu-west-1") as far,
            Query(port, key="111111111111") as other,
        ):  # fmt: skip
            urls = [one("CreateQueue", QueueName="q")["QueueUrl"] for one in (home, far, other)]
            home("SendMessage", QueueUrl=urls[0], MessageBody="x")
            assert far("ReceiveMessage", QueueUrl=urls[1]) == {}
            assert urls[2].endswith("/111111111111/q")
            assert other("ListQueues") == {"QueueUrls": [urls[2]]}
    assert sorted(path.name for path in root.iterdir()) == [".sqs", "q"]


def test_queues_are_listed_in_pages() -> None:
    with penstock.sqs.server() as endpoint, Json(endpoint.port) as client:
        for name in ("a1", "a2", "a3", "b"):
            client("CreateQueue", QueueName=name)
        first = client("ListQueues", QueueNamePrefix="a", MaxResults=2)
        rest = client("ListQueues", QueueNamePrefix="a", MaxResults=2, NextToken=first["NextToken"])
        names = [url[-2:] for url in first["QueueUrls"] + rest["QueueUrls"]]
        assert (names, "NextToken" in rest) == (["a1", "a2", "a3"], False)


def test_a_deleted_name_is_blocked_for_a_minute(root: Path) -> None:
    clock = penstock.ManualClock()
    running = penstock.sqs.server(root, relaxed=False, clock=clock)
    with running as endpoint, Json(endpoint.port) as client:
        url = client("CreateQueue", QueueName="q")["QueueUrl"]
        client("SendMessage", QueueUrl=url, MessageBody="x")
        client("DeleteQueue", QueueUrl=url)
        with pytest.raises(Refused) as refused:
            client("CreateQueue", QueueName="q")
        assert refused.value.code == "AWS.SimpleQueueService.QueueDeletedRecently"
        clock.advance(61)
        client("CreateQueue", QueueName="q")
        assert client("ReceiveMessage", QueueUrl=url) == {}


def test_a_second_server_on_the_same_folder_is_refused(root: Path) -> None:
    with penstock.sqs.server(root), pytest.raises(PenstockError, match="another server has it"):
        penstock.sqs.server(root).__enter__()


def test_a_port_that_is_taken_is_an_error(root: Path, tmp_path: Path) -> None:
    with penstock.sqs.server(root) as endpoint, pytest.raises(OSError, match="in use") as found:
        penstock.sqs.server(tmp_path / "other", port=endpoint.port).__enter__()
    assert str(found.value) == (
        f"127.0.0.1:{endpoint.port} is in use: stop who listens there, or choose another port"
    )


def test_further_ports_answer_too(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        other = free.getsockname()[1]
    with penstock.sqs.server(root, also_ports=(other,)) as endpoint:
        assert endpoint.port != other
        with Json(endpoint.port) as client, Json(other) as further:
            client("CreateQueue", QueueName="q")
            found = further("GetQueueUrl", QueueName="q")["QueueUrl"]
    assert found == f"http://127.0.0.1:{other}/123456789012/q"


def test_a_host_that_is_not_here_is_an_error(root: Path) -> None:
    text = "192.0.2.1:0 is no address of this machine"
    with pytest.raises(PenstockError, match=text):
        penstock.sqs.server(root, host="192.0.2.1", auth=True).__enter__()


def test_a_file_is_no_folder_of_queues(root: Path) -> None:
    root.write_text("")
    with pytest.raises(PenstockError, match="is a file; the queues need a folder"):
        penstock.sqs.server(root).__enter__()


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"}, {"account": "12"}, {"region": "../x"}, {"port": 70000},
        {"format": "mfq"}, {"also_ports": (0,)},
    ],
)  # fmt: skip
def test_options_that_can_not_be_are_refused(root: Path, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        penstock.sqs.server(root, **options).__enter__()


def test_health_is_told_without_a_signature(root: Path) -> None:
    with penstock.sqs.server(root, auth=True) as endpoint:
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, {"status": "ok"})
        connection.close()


def test_every_request_is_logged_if_asked_for(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.sqs.access")
    with penstock.sqs.server(root, log_requests=True) as endpoint, Json(endpoint.port) as client:
        client("ListQueues")
    (record,) = (one for one in caplog.records if one.name == "penstock.sqs.access")
    assert (vars(record)["action"], vars(record)["status"]) == ("ListQueues", 200)


def test_so_many_are_in_flight_and_no_more(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "IN_FLIGHT_MAX", 3)
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        client("CreateQueue", QueueName="q")
        client("CreateQueue", QueueName="q.fifo", Attributes={"FifoQueue": "true"})
        for number in map(str, range(5)):
            ids = {"MessageGroupId": number, "MessageDeduplicationId": number}
            client("SendMessage", QueueUrl="q", MessageBody=number)
            client("SendMessage", QueueUrl="q.fifo", MessageBody=number, **ids)
        found = [client("ReceiveMessage", QueueUrl="q")["Messages"][0] for _ in range(3)]
        with pytest.raises(Refused, match="Too many messages are in flight") as refused:
            client("ReceiveMessage", QueueUrl="q")
        assert (refused.value.status, refused.value.code) == (403, "OverLimit")
        client("DeleteMessage", QueueUrl="q", ReceiptHandle=found[0]["ReceiptHandle"])
        assert client("ReceiveMessage", QueueUrl="q")["Messages"]
        asked = {"QueueUrl": "q.fifo", "MaxNumberOfMessages": 10}
        assert len(client("ReceiveMessage", **asked)["Messages"]) == 3
        assert client("ReceiveMessage", **asked) == {}


# ── signatures ─────────────────────────────────────────────────────────────────────────────────


def test_clients_that_sign_are_served_and_others_are_not(root: Path) -> None:
    with penstock.sqs.server(root, auth=True) as endpoint:
        sqs = boto3.client("sqs", **endpoint.client_options)
        url = sqs.create_queue(QueueName="q")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="grüße" * 100)
        sqs.close()
        wrong = endpoint.client_options | {"aws_secret_access_key": "other"}
        unknown = endpoint.client_options | {"aws_access_key_id": "AKIAOTHER"}
        for options, code in ((wrong, "SignatureDoesNotMatch"), (unknown, "InvalidClientTokenId")):
            sqs = boto3.client("sqs", **options)
            with pytest.raises(sqs.exceptions.ClientError) as refused:
                sqs.list_queues()
            assert refused.value.response["Error"]["Code"] == code
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
            sqs.close()
        with Json(endpoint.port) as client:
            client.authorization = ""
            with pytest.raises(Refused) as found:
                client("ListQueues")
        assert found.value.code == "MissingAuthenticationToken"


def test_a_key_pair_is_made_once_and_kept_for_its_owner(root: Path) -> None:
    with penstock.sqs.server(root, auth=True) as endpoint:
        first = endpoint.credentials
    with penstock.sqs.server(root, auth=True) as endpoint:
        assert endpoint.credentials == first
    path = root / ".sqs" / "credentials.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert first is not None
    assert first.secret_key not in repr(first)


def signed(body: bytes, *, at: str = "20231114T221320Z", url: str = "http://h/") -> dict[str, str]:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials as Pair

    request: Any = AWSRequest("POST", url, data=body, headers={"Host": "h", "X-Amz-Date": at})
    request.context["timestamp"] = at
    signer: Any = SigV4Auth(Pair(PAIR.access_key, PAIR.secret_key), "sqs", "us-east-1")
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    signer._inject_signature_to_request(request, signature)
    return {name.lower(): value for name, value in request.headers.items()}


def verify(headers: dict[str, str], body: bytes, late_s: float = 0.0, path: str = "/") -> str:
    from penstock.sqs.auth import Verifier
    from penstock.sqs.errors import Refusal

    verifier = Verifier({PAIR.access_key: PAIR.secret_key})
    request = Request("POST", path, "", headers, body, "", False)
    try:
        return verifier.verify(request, 1_700_000_000 + late_s).access_key
    except Refusal as refusal:
        return f"{refusal.code}: {refusal.message}"


def test_a_signature_covers_the_body_and_the_time() -> None:
    headers = signed(b"body")
    assert verify(headers, b"body") == PAIR.access_key
    assert verify(headers, b"bodY").startswith("SignatureDoesNotMatch")
    assert verify(headers, b"body", 899) == PAIR.access_key
    assert "Signature expired" in verify(headers, b"body", 901)
    assert "not yet current" in verify(headers, b"body", -901)
    later = headers | {"x-amz-date": "20231114T221321Z"}
    assert verify(later, b"body").startswith("SignatureDoesNotMatch")
    claimed = headers | {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    assert verify(claimed, b"other").startswith("SignatureDoesNotMatch")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorization", "AWS4-HMAC-SHA256 nonsense"),
        ("authorization", "Basic eDp5"),
        ("x-amz-date", "yesterday"),
        ("host", "evil"),
    ],
)
def test_a_signature_that_is_none_is_refused(name: str, value: str) -> None:
    assert ": " in verify(signed(b"") | {name: value}, b"")


@settings(max_examples=50)
@given(body=st.binary(max_size=50), path=st.sampled_from(["/", "/123456789012/q", "/a%20b", "//"]))
def test_what_is_computed_here_is_what_the_client_s_signer_computes(body: bytes, path: str) -> None:
    from penstock.sqs import auth

    headers = signed(body, url=f"http://h{path}")
    request = Request("POST", path, "", headers, body, "", False)
    start, _, signature = headers["authorization"].rpartition("Signature=")
    claim, at = auth._claim(start), headers["x-amz-date"]
    digest = hashlib.sha256(body).hexdigest()
    assert auth._signature(request, claim, at, PAIR.secret_key, "") == signature
    quick = auth._quick_signature(request, claim, at, PAIR.secret_key, digest)
    assert quick == signature or not auth.PLAIN_PATH.fullmatch(path)
    assert verify(headers, body, path=path) == PAIR.access_key


def presigned(seconds: int, **parameters: str) -> str:
    """A URL that does something for whoever has it."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials as Pair

    url = f"http://h/123456789012/q?{urlencode(parameters)}"
    request: Any = AWSRequest("GET", url, headers={"Host": "h"})
    pair = Pair(PAIR.access_key, PAIR.secret_key)
    SigV4QueryAuth(pair, "sqs", "us-east-1", expires=seconds).add_auth(request)
    return str(request.url).removeprefix("http://h")


def test_a_url_may_carry_its_signature(root: Path) -> None:
    with penstock.sqs.server(root, auth=True, credentials=PAIR) as endpoint:
        sqs = boto3.client("sqs", **endpoint.client_options)
        sqs.create_queue(QueueName="q")
        sqs.close()
        with Query(endpoint.port) as client:
            client.authorization = ""
            host = {"Host": "h"}

            def get(url: str) -> tuple[int, bytes]:
                status, _, body = client.post(b"", host, url, "GET")
                return status, body

            url = presigned(60, Action="SendMessage", MessageBody="grüße & co")
            assert get(url)[0] == 200
            assert "grüße &amp; co" in get(presigned(60, Action="ReceiveMessage"))[1].decode()
            status, body = get(url.replace("co", "cu"))
            assert (status, b"SignatureDoesNotMatch" in body) == (403, True)
            status, body = get(presigned(-10, Action="ReceiveMessage"))
            assert (status, b"X-Amz-Expires" in body) == (400, True)


def test_a_url_with_a_signature_expires() -> None:
    from penstock.sqs import auth
    from penstock.sqs.errors import Refusal

    url = presigned(60, Action="ReceiveMessage")
    path, _, query = url.partition("?")
    at = auth._seconds(dict(parse_qsl(query))["X-Amz-Date"])
    request = Request("GET", path, query, {"host": "h"}, b"", "", False)
    verifier = auth.Verifier({PAIR.access_key: PAIR.secret_key})
    assert verifier.verify(request, at + 59).access_key == PAIR.access_key
    with pytest.raises(Refusal, match="Signature expired"):
        verifier.verify(request, at + 61)


def test_a_signature_must_cover_the_host() -> None:
    headers = signed(b"")
    headers["authorization"] = headers["authorization"].replace("host;", "")
    assert "'Host'" in verify(headers, b"")


# ── the command ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def served(root: Path) -> Any:
    """`python -m penstock.sqs` as a process; answers it and the lines that it printed."""
    running: list[subprocess.Popen[str]] = []

    def serve(*options: str) -> tuple[subprocess.Popen[str], dict[str, str]]:
        line = [sys.executable, "-m", "penstock.sqs", str(root), "--port", "0", *options]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        shown: dict[str, str] = {}
        for text in process.stdout:
            if text.strip().startswith("export "):
                name, _, value = text.strip().removeprefix("export ").partition("=")
                shown[name] = value
            if "AWS_SECRET_ACCESS_KEY" in shown:
                return process, shown
        raise AssertionError("it ended")

    yield serve
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_what_the_command_prints_is_all_that_a_client_needs(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, shown = served()
    for name, value in shown.items():
        monkeypatch.setenv(name, value)
    sqs = boto3.session.Session().client("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_queue_that_could_not_be_made_can_be_made_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.engine.group import Group

    given = {"QueueName": "q", "Attributes": {"VisibilityTimeout": "5"}}
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        with monkeypatch.context() as patch:
            patch.setattr(Group, "_open_alone", lambda _: 1 / 0)
            with pytest.raises(Refused, match="unknown error"):
                client("CreateQueue", **given)
        client("CreateQueue", **given)
