"""Options that a queue keeps: whoever opens it has the same limits."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock import Durability, FormatError, Full, OptionError, Queue, StandardQueue
from penstock.disk import files
from penstock.formats.registry import format_class
from penstock.options import MIB
from tests.opening import path_for

FORMATS = ("penstock", "zbus", "beats", "vqs", "mfq")


def honoured(format: str, options: dict[str, Any]) -> dict[str, Any]:
    """Those that the format does not refuse."""
    refused = format_class(format).refused
    return {name: value for name, value in options.items() if name not in refused}


@pytest.mark.parametrize("format", FORMATS)
def test_a_plain_opening_has_the_limits_that_the_queue_was_made_with(
    tmp_path: Path, format: str
) -> None:
    path = path_for(tmp_path, format)
    retention = honoured(format, {"retention_age_s": 3600, "retention_bytes": 2 * MIB})
    Queue(
        path, format=format, max_bytes=MIB, when_full="reject", delay_s=1, durability="process",
        retain_unread=False, **retention,
    ).close()  # fmt: skip
    for read_only in (False, True):
        with Queue(path, read_only=read_only) as queue:
            found = queue.options
            assert found.max_bytes in (MIB, MIB - 4096)  # The header of vqs is in the file too.
            assert (found.when_full, found.delay_s) == ("reject", 1)
            assert {name: getattr(found, name) for name in retention} == retention
            assert (found.durability, found.retain_unread) == (Durability.PROCESS, False)


def test_a_full_queue_is_full_for_whoever_opens_it(tmp_path: Path) -> None:
    Queue(tmp_path / "q", max_bytes=32 << 10, when_full="reject").close()
    with Queue(tmp_path / "q") as queue:
        queue.put_many([bytes(1000)] * 25)
        queue.put_many([bytes(1000)] * 5)
        with pytest.raises(Full):
            queue.put_many([bytes(1000)] * 5)


def test_a_codec_is_kept_by_its_name(tmp_path: Path) -> None:
    with StandardQueue(tmp_path / "q") as tasks:
        tasks.put({"n": 1})
    with Queue(tmp_path / "q") as queue:
        assert queue.get(timeout=0).value == {"n": 1}
        queue.put({"n": 2})
    with Queue(tmp_path / "q", codec="bytes") as queue:
        queue.put(b'{"n":3}')
        assert [message.value for message in queue.scan()][1:] == [b'{"n":2}', b'{"n":3}']


def test_what_an_opening_says_applies_to_it_alone_and_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Queue(tmp_path / "q", max_bytes=MIB, durability="always").close()
    for _ in range(2):
        with Queue(tmp_path / "q", max_bytes=2 * MIB, durability="always") as queue:
            assert queue.options.max_bytes == 2 * MIB
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "max_bytes=2097152 applies to this opening alone; the queue keeps 1048576" in said[0]
    assert "durability" not in said[0]
    with Queue(tmp_path / "q") as queue:
        assert queue.options.max_bytes == MIB


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_kept_changes_for_openings_from_then_on(tmp_path: Path, format: str) -> None:
    path = path_for(tmp_path, format)
    with Queue(path, format=format) as queue:
        retention = honoured(format, {"retention_age_s": 60})
        queue.set_options(delay_s=7, when_full="drop-oldest", **retention)
        queue.set_options(when_full=None)
    with Queue(path) as queue:
        found = queue.options
        assert (found.delay_s, found.when_full) == (7, "block")
        assert {name: getattr(found, name) for name in retention} == retention
        with pytest.raises(OptionError, match="when_full"):
            queue.set_options(when_full="never")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="one of durability"):
            queue.set_options(key=bytes(32))


def test_a_key_and_a_codec_of_ones_own_are_never_written(tmp_path: Path) -> None:
    class Upper:
        def encode(self, value: str) -> bytes:
            return value.upper().encode()

        def decode(self, body: bytes) -> str:
            return body.decode()

    Queue(tmp_path / "q", key=bytes(32), codec=Upper(), delay_s=1).close()
    file = tmp_path / "q" / ".penstock" / "options.json"
    assert json.loads(file.read_text()).keys() == {"check", "delay_s"}
    assert files.read_json(file) == {"delay_s": 1}


def test_a_queue_made_plainly_keeps_nothing(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        assert queue.kept_options == {}
    assert not (tmp_path / "q" / ".penstock" / "options.json").exists()


def test_options_that_can_not_be_read_are_an_error_not_no_limit(tmp_path: Path) -> None:
    Queue(tmp_path / "q", max_bytes=MIB).close()
    file = tmp_path / "q" / ".penstock" / "options.json"
    file.write_text(file.read_text()[:5])
    for read_only in (False, True):
        with pytest.raises(FormatError, match="options"):
            Queue(tmp_path / "q", read_only=read_only)


def test_options_of_a_newer_penstock_are_passed_over(tmp_path: Path) -> None:
    Queue(tmp_path / "q", max_bytes=MIB).close()
    file = tmp_path / "q" / ".penstock" / "options.json"
    kept = files.read_json(file)
    assert kept is not None
    files.write_json(file, kept | {"colour": "blue"})
    with Queue(tmp_path / "q") as queue:
        assert queue.kept_options == {"max_bytes": MIB}
        queue.set_options(delay_s=1)
    assert files.read_json(file) == {"max_bytes": MIB, "delay_s": 1, "colour": "blue"}


def test_a_handle_that_travels_says_only_what_was_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Queue(tmp_path / "q", max_bytes=MIB).close()
    caplog.set_level(logging.INFO, "penstock")
    with Queue(tmp_path / "q") as queue, pickle.loads(pickle.dumps(queue)) as other:
        assert other.options.max_bytes == MIB
    assert caplog.text == ""


def test_dead_letters_and_redrive_leave_bodies_as_they_are(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", codec="json") as queue:
        queue.put({"n": 1})
        group = queue.group("g", max_receives=1)
        group.get(timeout=0).nack()
        assert group.get_many(1) == []
        with Queue(tmp_path / "q.dead") as dead:
            assert dead.redrive() == 1
        assert [message.value for message in queue.scan()] == [{"n": 1}, {"n": 1}]


SENSELESS = [
    ("codec", "nonsense"), ("codec", 5), ("codec", ["json"]), ("codec", dict),
    ("durability", 5), ("durability", ["always"]), ("max_bytes", 1 << 64),
    ("retain_unread_max_s", float("nan")), ("retain_unread_max_s", -5),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value"), SENSELESS)
def test_what_no_opening_could_use_is_not_kept(tmp_path: Path, option: str, value: Any) -> None:
    with Queue(tmp_path / "q", max_bytes=MIB) as queue:
        with pytest.raises(OptionError, match=f"^{option}="):
            queue.set_options(**{option: value})
        assert queue.kept_options == {"max_bytes": MIB}
    Queue(tmp_path / "q").close()


def test_a_codec_is_kept_until_it_is_set_to_none(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", codec="json") as queue:
        queue.set_options(codec="str")
        assert queue.kept_options == {"codec": "str"}
        queue.set_options(codec=None)
        assert queue.kept_options == {}


@pytest.mark.parametrize(("option", "value"), [("max_bytes", 1 << 64), ("codec", "nonsense")])
def test_an_option_in_the_file_that_no_opening_can_use_is_an_error_whose_advice_helps(
    tmp_path: Path, option: str, value: object
) -> None:
    Queue(tmp_path / "q", max_bytes=MIB).close()
    file = tmp_path / "q" / ".penstock" / "options.json"
    files.write_json(file, {option: value})
    with pytest.raises(FormatError, match=rf"options\.json: .* {option}=.*; delete this file"):
        Queue(tmp_path / "q")
    file.unlink()
    with Queue(tmp_path / "q") as queue:
        queue.set_options(max_bytes=MIB)
        assert queue.kept_options == {"max_bytes": MIB}
