"""Tamper-evident segments: every edit, exchange, and cut is noticed; bytes stay as they are."""

from __future__ import annotations

import hashlib
import hmac
import shutil
from pathlib import Path

import pytest

from penstock import OptionError, Queue, _core
from penstock.engine import retention
from tests.formats.beats.helpers import KEY, event, pack_frame


@pytest.fixture(params=["2", "3"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two tamper-evident, closed segments."""
    for number in range(2):
        with tamper_evident(tmp_path / "q", request.param) as queue:
            for index in range(10):
                queue.put(event(10 * number + index))
            queue.put_many([event(100), event(101)])
    return tmp_path / "q"


def tamper_evident(path: Path, layout: str | None = None) -> Queue:
    return Queue(path, format="beats", layout=layout, key=KEY, tamper_evident=True)


def faults(path: Path) -> list[str]:
    with Queue(path, read_only=True, key=KEY, tamper_evident=True) as queue:
        return [damage.found for damage in queue.verify().corrupt]


def flip(file: Path, at: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[at] ^= 1
    file.write_bytes(raw)


def test_what_nobody_touched_verifies(path: Path) -> None:
    assert faults(path) == []
    with tamper_evident(path) as queue:
        queue.put(event(1))
        assert queue.verify().is_ok


def test_the_tags_are_what_the_document_says(path: Path) -> None:
    raw = (path / "1.seg").read_bytes()
    tags = (path / "1.seg.mac").read_bytes()
    plain = _core.beats_crypt(KEY, raw[4:20], raw[20:])
    size = int.from_bytes(plain[:4], "little")
    extracted = hmac.digest(bytes(32), KEY, hashlib.sha256)
    key = hmac.digest(extracted, b"penstock beats seal 1\x01", hashlib.sha256)
    number = (1).to_bytes(8, "little")
    first = bytes(32) + number + bytes(8) + raw[4:20] + raw[20 : 20 + size]
    assert tags[64:96] == hmac.digest(key, first, hashlib.sha256)
    assert (
        tags[:32].hex()
        == (
            b"BEATSMAC" + bytes([1, 0, 0, 0, 0, 0, 0, 0]) + number + (12).to_bytes(8, "little")
        ).hex()
    )
    closing = b"closed" + tags[-32:] + number + (12).to_bytes(8, "little")
    assert tags[32:64] == hmac.digest(key, closing, hashlib.sha256)


def test_a_forged_frame_with_a_right_checksum_is_noticed(path: Path) -> None:
    # Counter mode is malleable: who knows a plain text can write another one of its length.
    file = path / "0.seg"
    raw = file.read_bytes()
    plain = bytearray(_core.beats_crypt(KEY, raw[4:20], raw[20:]))
    size = int.from_bytes(plain[:4], "little")
    payload = bytearray(plain[4 : size - 8])
    payload[-1] ^= 1
    plain[:size] = pack_frame(bytes(payload))
    file.write_bytes(raw[:20] + _core.beats_crypt(KEY, raw[4:20], bytes(plain)))
    assert any("frame 0 that does not match its tag" in fault for fault in faults(path))


@pytest.mark.parametrize("what", ["0.seg", "0.seg.mac"])
def test_exchanged_files_are_noticed(path: Path, what: str) -> None:
    shutil.copy(path / what, path / "kept")
    shutil.copy(path / what.replace("0", "1", 1), path / what)
    shutil.move(path / "kept", path / what.replace("0", "1", 1))
    assert any("tag" in fault for fault in faults(path))


def test_segments_exchanged_with_their_tags_are_noticed(path: Path) -> None:
    for name in ("seg", "seg.mac"):
        (path / f"0.{name}").rename(path / "kept")
        (path / f"1.{name}").rename(path / f"0.{name}")
        (path / "kept").rename(path / f"1.{name}")
    assert any("frame 0 that does not match its tag" in fault for fault in faults(path))


def test_a_cut_of_both_files_is_noticed(path: Path) -> None:
    raw = (path / "0.seg").read_bytes()
    plain = _core.beats_crypt(KEY, raw[4:20], raw[20:])
    size = int.from_bytes(plain[:4], "little")
    (path / "0.seg").write_bytes(raw[: 20 + size])
    tags = (path / "0.seg.mac").read_bytes()
    (path / "0.seg.mac").write_bytes(tags[:96])
    assert any("fewer than the closing tag says" in fault for fault in faults(path))


def test_every_changed_byte_of_the_tags_is_noticed(path: Path) -> None:
    size = (path / "0.seg.mac").stat().st_size
    for at in [0, 8, 24, 30, 40, 63, 64, 100, size - 1]:
        flip(path / "0.seg.mac", at)
        assert faults(path), at
        flip(path / "0.seg.mac", at)
    assert faults(path) == []


def test_missing_tags_are_noticed_where_they_are_wanted(path: Path) -> None:
    (path / "0.seg.mac").unlink()
    assert any("no tags" in fault for fault in faults(path))
    with Queue(path, read_only=True, key=KEY) as queue:
        assert queue.verify().is_ok


def test_the_segment_is_the_same_with_and_without_tags(path: Path) -> None:
    (path / "0.seg.mac").unlink()
    with Queue(path, read_only=True, key=KEY) as queue:
        assert len(list(queue.scan())) == 24


def test_the_tags_go_with_its_segment(path: Path) -> None:
    with tamper_evident(path) as queue:
        for message in queue.get_many(99):
            message.ack()
        retention.free_consumed(queue)
    assert not (path / "0.seg").exists()
    assert not (path / "0.seg.mac").exists()


def test_only_encrypted_layouts_are_tamper_evident(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="encrypted"):
        Queue(tmp_path / "q", format="beats", tamper_evident=True)
