"""What the endpoint keeps beside the queues, damaged: an error that names the file, and nothing is
written over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock.sqs
from penstock import FormatError, PenstockError
from penstock.engine import kept_files
from penstock.sqs import __main__ as command
from tests.sqs.speaking import Json, Refused

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "one bit": lambda raw: raw[:30] + bytes([raw[30] ^ 1]) + raw[31:],
    "cut": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"",
    "zeros": lambda raw: bytes(len(raw)),
    "a list": lambda raw: b"[]",
    "other names": lambda raw: b'{"key": "a"}',
    "no text": lambda raw: b'{"access_key": 1, "secret_key": null, "attributes": 7}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_key_pair_is_an_error_and_stays(
    root: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with penstock.sqs.server(root, auth=True):
        pass
    path = root / ".sqs" / "credentials.json"
    raw = DAMAGES[damage](path.read_bytes())
    path.write_bytes(raw)
    serving = penstock.sqs.server(root, auth=True)
    with pytest.raises(FormatError, match=r"no key pair.*restore it, or delete it") as found:
        serving.__enter__()
    assert found.value.path == path
    assert path.read_bytes() == raw
    assert command.main([str(root), "--port", "0"]) == 2
    assert str(path) in capsys.readouterr().err
    path.unlink()
    with penstock.sqs.server(root, auth=True) as endpoint:
        assert endpoint.credentials is not None


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_secret_that_is_cut_is_an_error(root: Path, size: int) -> None:
    with penstock.sqs.server(root):
        pass
    path = root / ".sqs" / "secret"
    path.write_bytes(path.read_bytes()[:size].ljust(size, b"x"))
    serving = penstock.sqs.server(root)
    with pytest.raises(FormatError, match=f"{size} bytes where the secret"):
        serving.__enter__()
    assert path.stat().st_size == size


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_queue_whose_record_is_damaged_is_not_served_and_keeps_its_files(
    root: Path, damage: str
) -> None:
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        client("CreateQueue", QueueName="other")
        url = client("CreateQueue", QueueName="hurt", Attributes={"VisibilityTimeout": "7"})
        client("SendMessage", MessageBody="kept", **url)
    (path,) = (root / ".sqs").rglob("hurt.json")
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        for action, said in {
            "CreateQueue": {"QueueName": "hurt"},
            "GetQueueUrl": {"QueueName": "hurt"},
            "ReceiveMessage": url,
            "DeleteQueue": url,
        }.items():
            with pytest.raises(Refused, match="'hurt' is damaged") as found:
                client(action, **said)
            assert (found.value.status, found.value.code) == (500, "InternalFailure")
        (listed,) = client("ListQueues")["QueueUrls"]
        assert listed.endswith("/other")
    assert path.read_bytes() == DAMAGES[damage](whole)
    path.write_bytes(whole)
    with penstock.sqs.server(root) as endpoint, Json(endpoint.port) as client:
        asked = {"AttributeNames": ["VisibilityTimeout"], **url}
        assert client("GetQueueAttributes", **asked)["Attributes"] == {"VisibilityTimeout": "7"}
        assert client("ReceiveMessage", **url)["Messages"][0]["Body"] == "kept"


def test_a_file_that_counts_is_missing_only_where_nothing_is(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert kept_files.read(path, "place", "restore it") is None
    path.write_text('{"next": 1')
    with pytest.raises(FormatError, match=r"no place: it is damaged.*; restore it"):
        kept_files.read(path, "place", "restore it")
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises((PenstockError, OSError)):
        kept_files.read(path, "place", "restore it")
