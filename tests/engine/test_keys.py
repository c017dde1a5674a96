"""Encrypted queues: the key is proved before anything is read, written or called damage."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest

from penstock import CorruptError, KeyNeededError, OptionError, Queue, _core
from penstock.engine.repair import repair
from penstock.formats.penstock import segments, structs
from penstock.options import QueueOptions
from penstock.sidecar import control

RIGHT, WRONG = bytes(range(32)), b"W" * 32


def filled(path: Path, count: int = 4, **options: Any) -> Path:
    with Queue(path, key=RIGHT, **options) as queue:
        for number in range(count):
            queue.put(b"pay %05d EUR to A" % number, tag="SECRETTAG")
    return path


def bytes_of(path: Path) -> dict[str, str]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def forget_key_check(path: Path) -> None:
    """As segments were before there was a check in them."""
    for file in (path / "log").glob("*.seg"):
        with file.open("r+b") as stream:
            stream.seek(structs.KEY_CHECK_AT)
            stream.write(bytes(structs.KEY_CHECK.size))


@pytest.mark.parametrize("is_old", [False, True])
def test_a_wrong_key_is_refused_by_every_opening_and_writes_no_byte(
    tmp_path: Path, is_old: bool
) -> None:
    path = filled(tmp_path / "q")
    if is_old:
        forget_key_check(path)
    before = bytes_of(path)
    for open_it in (
        lambda: Queue(path, key=WRONG),
        lambda: Queue(path, key=WRONG, create=False),
        lambda: Queue(path, key=WRONG, read_only=True),
        lambda: repair(path, options=QueueOptions(key=WRONG)),
    ):
        with pytest.raises(KeyNeededError, match="not the key"):
            open_it()
    assert bytes_of(path) == before
    with Queue(path, key=RIGHT) as queue:
        assert [message.body[-1:] for message in queue.scan()] == [b"A"] * 4
        assert queue.verify().is_ok


def test_a_key_check_that_rots_locks_nobody_out(tmp_path: Path) -> None:
    path = filled(tmp_path / "q", 200, segment_bytes=16384)
    first = min((path / "log").glob("*.seg"))
    with first.open("r+b") as stream:
        stream.seek(structs.KEY_CHECK_AT + 8)
        stream.write(b"\xff" * 16)
    with Queue(path, key=RIGHT) as queue:
        assert len(list(queue.scan())) == 200
        assert [damage.path for damage in queue.verify().corrupt] == [first]
    with pytest.raises(KeyNeededError):
        Queue(path, key=WRONG)


def test_a_header_changed_by_someone_without_the_key_is_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "q", 200, segment_bytes=16384)
    first = min((path / "log").glob("*.seg"))
    header = segments.Header.unpack(segments.read_page(first), first)
    raw = segments.Header(
        header.queue_id, header.base, 7, header.flags, header.salt, header.created_ns,
        header.segment_bytes, header.previous,
    ).pack()[: structs.HEADER.size]  # fmt: skip
    with first.open("r+b") as stream:
        stream.write(raw)
    with Queue(path, key=RIGHT, read_only=True) as queue:
        assert any(damage.path == first for damage in queue.verify().corrupt)


def plain_frame(path: Path, number: int) -> bytes:
    """A frame as an unencrypted queue has it, made without any key."""
    with Queue(path) as queue:
        for _ in range(number + 1):
            queue.put(b"pay 99999 EUR to M")
        last = [message.offset or 0 for message in queue.scan()][-1]
    raw = min((path / "log").glob("*.seg")).read_bytes()[structs.HEADER_BYTES + last :]
    return raw[: struct.unpack_from("<I", raw)[0]]


def plant(path: Path, other: Path) -> None:
    """Puts a plain frame behind the last encrypted one, and has the control block count it."""
    end = Queue(path, key=RIGHT, read_only=True).offsets()
    frame = plain_frame(other, 4)
    tail = end.tail + -(-len(frame) // 8) * 8
    segment = min((path / "log").glob("*.seg"))
    with segment.open("r+b") as stream:
        stream.seek(structs.HEADER_BYTES + end.tail)
        stream.write(frame)

    block = path / ".penstock" / "control"
    raw = bytearray(block.read_bytes())
    words = (tail, 5, end.segment_base, end.head, end.head_number, tail)
    at = control.CONTROL.offset_of
    struct.pack_into("<QQ", raw, at("tail"), tail, 5)
    struct.pack_into("<Q", raw, at("durable"), tail)
    struct.pack_into("<I", raw, at("clean"), control.clean_check(*words))
    block.write_bytes(raw)


def test_a_frame_in_plain_text_among_encrypted_ones_is_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "q")
    plant(path, tmp_path / "other")
    with Queue(path, key=RIGHT) as queue:
        scan = queue.scan(tolerant=True)
        assert not [m for m in scan if b"99999" in m.body]
        assert not queue.verify().is_ok
        group = queue.group("g")
        assert len(group.get_many(4)) == 4
        with pytest.raises(CorruptError, match="plain text"):
            group.get(0)
        with pytest.raises(CorruptError, match="plain text"):
            list(queue.scan())


def test_a_whole_segment_in_plain_text_is_not_taken_for_one_of_an_encrypted_queue(
    tmp_path: Path,
) -> None:
    path = filled(tmp_path / "q", 200, segment_bytes=16384)
    victim = sorted((path / "log").glob("*.seg"))[1]
    header = segments.Header.unpack(segments.read_page(victim), victim)
    raw = segments.Header(
        header.queue_id, header.base, header.base_number, 0, header.salt, header.created_ns,
        header.segment_bytes, header.previous,
    ).pack()  # fmt: skip
    with victim.open("r+b") as stream:
        stream.write(raw)
        stream.write(plain_frame(tmp_path / "other", 4))
    with Queue(path, key=RIGHT, read_only=True) as queue:
        assert not [m for m in queue.scan(tolerant=True) if b"99999" in m.body]
        assert any(damage.path == victim for damage in queue.verify().corrupt)


def test_full_segments_of_an_encrypted_queue_name_no_tag(tmp_path: Path) -> None:
    path = filled(tmp_path / "q", 200, segment_bytes=16384)
    assert len(list((path / "log").glob("*.seg"))) > 1
    assert not [f for f in path.rglob("*") if f.is_file() and b"SECRETTAG" in f.read_bytes()]


def test_no_error_shows_a_key(tmp_path: Path) -> None:
    for options in ({"kye": RIGHT}, {"key": b"SECRETKEY"}, {"key": "SECRETKEY" * 4}):
        with pytest.raises(OptionError) as caught:
            Queue(tmp_path / "q", **options)
        assert "SECRET" not in str(caught.value)
        assert repr(RIGHT)[2:20] not in str(caught.value)
    with Queue(tmp_path / "q", key=RIGHT) as queue:
        assert repr(RIGHT)[2:20] not in repr(queue) + repr(queue.options)


def test_the_key_check_is_these_bytes() -> None:
    check = _core.penstock_key_check(RIGHT, bytes(16), 0, bytes(16), b"header")
    assert check.hex() == "880abf7a79c39e42e66feb649b2d9f5d"
