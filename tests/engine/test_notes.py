"""The small JSON files of the sidecar: one wrong bit is told, and no value in them is trusted."""

from __future__ import annotations

import json
import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import CorruptError, Empty, FormatError, OptionError, PenstockError, Queue
from penstock.disk import files
from penstock.formats import registry
from penstock.sidecar import notes, sinks
from tests.disk.test_strangers import copy

FORMATS = list(registry.MODULES)
STRANGE: tuple[Any, ...] = (
    None, -1, 1 << 70, 1e300, "x", "\ud800", [], [[1, "x"]], {}, [{"segment": 5}],
)  # fmt: skip


def put_some(path: Path, format: str) -> Path:
    """A queue that has noted whatever its format notes, a repair among it."""
    size: dict[str, Any] = {"max_bytes": 1 << 17} if format == "vqs" else {"segment_bytes": 16384}
    with Queue(path, format=format, durability="process", **size) as queue:
        queue.put_many([b"%04d" % number * 70 for number in range(40)])
        for message in queue.group("default", max_receives=2).get_many(9):
            message.ack()
        if format != "vqs":
            queue.set_options(max_message_bytes=100_000)
    found = [file for file in [path, *path.rglob("*")] if file.is_file()]
    segment = next(file for file in found if b"0015" * 20 in file.read_bytes())
    spoil(segment, b"0015" * 20, 5)
    with Queue(path, create=False) as queue:
        queue.repair()
        queue.purge()
        queue.put(b"after")
    return path


def spoil(file: Path, text: bytes, at: int, mask: int = 1) -> None:
    """Flips bits behind the first place where `text` stands."""
    raw = bytearray(file.read_bytes())
    raw[raw.index(text) + at] ^= mask
    file.write_bytes(raw)


def use(path: Path) -> None:
    with Queue(path, create=False, read_only=True) as queue:
        list(queue.scan(tolerant=True))
        queue.verify()
    with Queue(path, create=False) as queue:
        queue.put(b"x")
        queue.group("default").get_many(5)
        queue.group("default").stats()
        queue.retain()
        queue.trim("latest")


def notes_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*.json") if file.is_file())


@pytest.mark.parametrize("format", FORMATS)
def test_no_value_in_a_note_ends_in_anything_but_an_error_of_ours(
    tmp_path: Path, format: str
) -> None:
    path = put_some(tmp_path / "base" / "q", format)
    kept = notes_of(tmp_path / "base")
    assert len(kept) >= 3
    for note in kept:
        value = files.read_json(note)
        assert value is not None
        strange = [value | {name: one} for name in value for one in STRANGE]
        if note.name == notes.KNOWN_DAMAGE:
            entry = value["set_aside"][0]
            strange += [
                value | {"set_aside": [entry | {name: one}]} for name in entry for one in STRANGE
            ]
        for one in (*strange, *({name: 5} for name in value), [], "text"):
            run = tmp_path / "run"
            shutil.rmtree(run, ignore_errors=True)
            copy(tmp_path / "base", run)
            (run / note.relative_to(tmp_path / "base")).write_text(json.dumps(one))
            with suppress(PenstockError, Empty):
                use(run / path.name)


def test_a_wrong_bit_in_what_a_queue_keeps_is_told(tmp_path: Path) -> None:
    """Else retention could delete what it should keep."""
    path = tmp_path / "q"
    Queue(path, retention_bytes=1 << 30).close()
    spoil(path / ".penstock" / notes.OPTIONS, b"1073741824", 0, 0x04)
    with pytest.raises(FormatError, match=r"options\.json"):
        Queue(path)


def test_a_wrong_bit_in_what_a_repair_set_aside_hides_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q"
    with Queue(path) as queue:
        queue.put_many([b"%04d" % number * 70 for number in range(20)])
    spoil(next((path / "log").iterdir()), b"0015" * 20, 5)
    with Queue(path) as queue:
        queue.repair()
        assert len(list(queue.scan())) == 19
    known = json.loads((path / ".penstock" / notes.KNOWN_DAMAGE).read_text())
    last = b"%d" % known["set_aside"][0]["last"]
    spoil(path / ".penstock" / notes.KNOWN_DAMAGE, b'"last": ' + last, 8)
    with Queue(path) as queue, pytest.raises(CorruptError):
        list(queue.scan())
    assert "known-damage.json" in caplog.text


def test_a_wrong_bit_in_the_number_of_a_batch_puts_no_batch_twice(tmp_path: Path) -> None:
    Queue(tmp_path / "q").close()
    ledger = sinks.SinkFiles(tmp_path / "q" / ".penstock", "app")
    files.make_folder(ledger.ledger.parent)
    assert ledger.last == -1
    ledger.record(7, 0, 64)
    assert ledger.last == 7
    spoil(ledger.ledger, b'"batch": 7', 9)
    with pytest.raises(FormatError, match=r"app\.json.*batch"):
        _ = ledger.last


@pytest.mark.parametrize("format", FORMATS)
def test_no_wrong_bit_in_a_note_is_silent(
    tmp_path: Path, format: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = put_some(tmp_path / "base" / "q", format)
    for note in notes_of(tmp_path / "base"):
        raw = note.read_bytes()
        before = files.read_json(note)
        for bit in range(0, len(raw) * 8, 5):
            spoiled = bytearray(raw)
            spoiled[bit // 8] ^= 1 << bit % 8
            note.write_bytes(spoiled)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                found = files.read_json(note)
            known = {} if found is None else {n: v for n, v in found.items() if n in (before or {})}
            assert found is None or known == before, (note, bit)
        note.write_bytes(raw)
    use(path)


@pytest.mark.parametrize("text", ["\ud800", "a" * 5000])
def test_tags_that_no_message_can_have_are_refused(tmp_path: Path, text: str) -> None:
    with Queue(tmp_path / "q") as queue, pytest.raises(OptionError, match="tags"):
        queue.group("g", tags=text)


@pytest.mark.parametrize("text", ["\ud800", "a\0b", ""])
def test_a_path_that_no_file_can_have_is_no_place_for_dead_letters(
    tmp_path: Path, text: str
) -> None:
    with Queue(tmp_path / "q") as queue, pytest.raises(OptionError, match="dead_letter"):
        queue.group("g", dead_letter=text)
