"""Damaged, cut, forged and wild segments: nothing crashes, hangs or is lost in silence."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from penstock import CorruptError, KeyNeededError, Queue, _core
from penstock.engine.repair import repair
from penstock.options import QueueOptions
from tests.formats.beats.helpers import (
    CREATED,
    KEY,
    NAMES,
    event,
    key_for,
    pack_frame,
    whole_frames,
)
from tests.golden_data import GoldenCase, golden_cases

BY_ID = {case.id: case for case in golden_cases("beats")}
LAYOUTS = sorted(NAMES)


def read(path: Path, key: bytes | None) -> tuple[dict[int, bytes], bool]:
    """Payloads by offset, and whether anything was reported."""
    try:
        with Queue(path, read_only=True, key=key) as queue:
            scan = queue.scan(tolerant=True)
            found = {message.offset or 0: message.payload for message in scan}
            verdict = queue.verify()
            return found, not verdict.is_ok or bool(scan.damage)
    except (KeyNeededError, ValueError, OSError):
        return {}, True


@pytest.mark.parametrize("layout", ["0", "1", "2", "3", "2-released"])
def test_frames_before_and_behind_damage_are_read_and_repaired(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "q"
    key = key_for(layout)
    with Queue(path, format="beats", layout=layout, key=key) as queue:
        offsets = [queue.put(event(number)) for number in range(20)]
    file = path / "0.seg"
    raw = bytearray(file.read_bytes())
    position = (offsets[7] & 0xFFFFFF) + (16 if key else 0)
    raw[position + 6] ^= 0x40
    file.write_bytes(raw)
    kept = [offset for number, offset in enumerate(offsets) if number != 7]
    with Queue(path, read_only=True, key=key) as queue:
        scan = queue.scan(tolerant=True)
        assert [message.offset for message in scan] == kept
        assert [(damage.path.name, damage.length) for damage in scan.damage] == [
            ("0.seg", offsets[8] - offsets[7])
        ]
        with pytest.raises(CorruptError, match=r"0\.seg:"):
            list(queue.scan())
    report = repair(path, options=QueueOptions(key=key))
    assert [(entry.at, entry.length) for entry in report.set_aside] == [
        (position, offsets[8] - offsets[7])
    ]
    copy = path / ".penstock" / "quarantine" / report.set_aside[0].copy
    assert copy.read_bytes() == raw[position : position + offsets[8] - offsets[7]]
    with Queue(path, key=key) as queue:
        assert queue.verify().is_ok
        assert [message.offset for message in queue.get_many(99)] == kept


@pytest.mark.parametrize(
    "case", [c for c in BY_ID.values() if c.name.startswith(("corr", "trunc"))]
)
def test_a_repaired_queue_of_the_originals_verifies_clean(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    path.chmod(0o700)
    for file in path.iterdir():
        file.chmod(0o600)
    options = QueueOptions(key=case.key)
    assert not repair(path, options=options).is_clean
    with Queue(path, read_only=True, key=case.key) as queue:
        assert queue.verify().is_ok, queue.verify()
        assert len(list(queue.scan())) >= len(case.expected["pending"])
    assert repair(path, options=options).is_clean


@pytest.mark.parametrize("layout", ["v1/truncated-count0", "v2-rel-aes/truncated-count0"])
def test_a_torn_end_is_torn_and_not_corrupt(layout: str, tmp_path: Path) -> None:
    case = BY_ID[layout]
    with Queue(case.copy(tmp_path), read_only=True, key=case.key) as queue:
        verdict = queue.verify()
    assert verdict.corrupt == []
    assert len(verdict.torn) == 1


@pytest.mark.parametrize(
    "name", ["v2-rel-lz4/truncated", "v3-stream/corrupt-crc", "v2-rel-aes-lz4/truncated-count0"]
)
def test_a_damaged_stream_is_reported_and_repaired(name: str, tmp_path: Path) -> None:
    case = BY_ID[name]
    path = case.copy(tmp_path)
    path.chmod(0o700)
    for file in path.iterdir():
        file.chmod(0o600)
    repair(path, options=QueueOptions(key=case.key))
    with Queue(path, read_only=True, key=case.key) as queue:
        assert queue.verify().is_ok, queue.verify()
        assert len(list(queue.scan())) >= len(case.expected["pending"])
    assert list((path / ".penstock" / "quarantine").iterdir())


@pytest.mark.parametrize("spot", ["block", "size"])
def test_frames_behind_a_broken_block_come_back_by_repair(spot: str, tmp_path: Path) -> None:
    path = tmp_path / "q"
    pads = [os.urandom(40).hex() for _ in range(30)]
    with Queue(path, format="beats", layout="2-released-lz4") as queue:
        for batch in range(3):
            queue.put_many([event(10 * batch + n, pad=pads[10 * batch + n]) for n in range(10)])
    raw = bytearray((path / "0.seg").read_bytes())
    second = 19 + 4 + int.from_bytes(raw[19:23], "little")
    if spot == "size":
        raw[second + 2] ^= 0xFF
    else:
        raw[second + 4 : second + 40] = b"\xff" * 36
    (path / "0.seg").write_bytes(raw)
    with Queue(path, read_only=True) as queue:
        scan = queue.scan(tolerant=True)
        # A block whose size alone is wrong still gives all that it has.
        kept = list(range(20 if spot == "size" else 10))
        assert [json.loads(m.body)["n"] for m in scan] == kept
        assert [damage.at for damage in scan.damage] == [second]
    report = repair(path)
    assert report.brought_back == 10
    with Queue(path, read_only=True) as queue:
        assert queue.verify().is_ok
        found = [json.loads(m.body)["n"] for m in queue.scan()]
    assert found == [*kept, *range(20, 30)]
    assert repair(path).is_clean


@pytest.mark.parametrize("layout", CREATED)
def test_a_segment_that_is_cut_anywhere_is_repaired_for_good(layout: str, tmp_path: Path) -> None:
    """Opening the repaired queue makes a stream longer, and its cut block then unpacks to more."""
    source, path, key = tmp_path / "source", tmp_path / "q", key_for(layout)
    with Queue(source, format="beats", layout=layout, key=key) as queue:
        for number in range(3):
            queue.put(event(number, text="x" * 500))
        queue.put(event(3, text=random.Random(3).randbytes(60).hex()))
    with Queue(source, key=key) as queue:
        queue.put(event(4))
    raw, options = (source / "0.seg").read_bytes(), QueueOptions(key=key)
    step = 3 if layout == "2-released-lz4" else len(raw) // 12
    last = 0
    for length in range(0, len(raw.rstrip(b"\0")), step):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(source, path)
        (path / "0.seg").write_bytes(raw[:length])
        repair(path, options=options)
        for is_reader in (True, False):
            with Queue(path, read_only=is_reader, key=key) as queue:
                assert queue.verify().is_ok, length
                found = [json.loads(message.body)["n"] for message in queue.scan()]
        assert found == [*range(len(found) - 1), 4]
        assert repair(path, options=options).is_clean, length
        last = max(last, len(found))
    assert last > 2


# ── keys ───────────────────────────────────────────────────────────────────────────────────


ENCRYPTED = [name for name in LAYOUTS if BY_ID[f"{name}/basic"].key]


@pytest.mark.parametrize("layout", ENCRYPTED)
@pytest.mark.parametrize("key", [None, bytes(16), bytes(32)])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_wrong_or_missing_key_is_an_error_and_touches_nothing(
    layout: str, key: bytes | None, read_only: bool, tmp_path: Path
) -> None:
    case = BY_ID[f"{layout}/basic"]
    path = case.copy(tmp_path)
    path.chmod(0o700)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(KeyNeededError, match="key"):
        Queue(path, key=key, read_only=read_only)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_a_key_may_be_given_as_hex_digits(tmp_path: Path) -> None:
    case = BY_ID["v2-seed/basic"]
    with Queue(case.copy(tmp_path), read_only=True, key=KEY.hex().encode()) as queue:
        assert len(list(queue.scan())) == 12


# ── bombs ──────────────────────────────────────────────────────────────────────────────────


HEAD = bytes.fromhex("a4 69 74696d657374616d70 00 65 666c616773 00 64 6d657461 a0 66 6669656c6473")


def events_of(path: Path, *payloads: bytes) -> Path:
    """A queue of version 1 with these payloads, whatever they are."""
    path.mkdir()
    frames = b"".join(map(pack_frame, payloads))
    (path / "0.seg").write_bytes(bytes.fromhex("0100000000000000") + frames)
    return path


@pytest.mark.parametrize(
    "fields",
    [
        b"\xa1\x61a" + b"\x81" * 100_000 + b"\x01",
        b"\xa1\x61a" * 100_000 + b"\x01",
        b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xa1\x61a\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xa1\x61a\x7b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xa1\x61a\x5b\x00\x00\x00\x7f\xff\xff\xff\xff",
        b"\xa1\x61a\x1c",
        b"\xa1\x61a",
        b"\x80",
        b"",
        b"\xc0" * 100_000,
        b"\xbf\x61a\x01",
    ],
)
def test_an_event_that_is_no_event_is_damage_of_its_own_frame_alone(
    fields: bytes, tmp_path: Path
) -> None:
    good = HEAD + b"\xa0"
    path = events_of(tmp_path / "q", good, HEAD + fields, good)
    with Queue(path, read_only=True) as queue:
        scan = queue.scan(tolerant=True)
        assert len(list(scan)) == 2
        assert len(scan.damage) == 1
        assert "event" in scan.damage[0].found
        assert len(queue.verify().corrupt) == 1
    with Queue(path) as queue:
        seen = 0
        for _ in range(4):
            try:
                seen += len(queue.get_many(9))
            except CorruptError:
                continue
        assert seen == 2


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (b"\xbf\x61a\x9f\x01\x02\xff\xff", {"a": [1, 2]}),
        (b"\xa1\x61a\xf9\x3c\x00", {"a": 1.0}),
        (b"\xa1\x61a\xc1\x1a\x00\x00\x00\x05", {"a": 5}),
        (b"\xa1\x61a\xf7", {"a": None}),
        (b"\xa1\x05\x01", {"5": 1}),
        (b"\xa1\x61a\x18\x01", {"a": 1}),
        (b"\xa1\x61a\x3b\xff\xff\xff\xff\xff\xff\xff\xff", {"a": -(2**64)}),
        (b"\xa1\x61a\x43abc", {"a": "YWJj"}),
        (b"\xf6", {}),
    ],
)
def test_what_other_writers_of_cbor_may_write_is_read(
    fields: bytes, expected: object, tmp_path: Path
) -> None:
    with Queue(events_of(tmp_path / "q", HEAD + fields), read_only=True) as queue:
        assert json.loads(next(iter(queue.scan())).body) == expected


@pytest.mark.parametrize("size", [0, 1, 12, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 30])
def test_a_wild_size_costs_no_more_than_its_bytes(size: int, tmp_path: Path) -> None:
    good = pack_frame(HEAD + b"\xa0")
    path = events_of(tmp_path / "q")
    with (path / "0.seg").open("ab") as file:
        file.write(good + size.to_bytes(4, "little") * 5 + good)
    with Queue(path, read_only=True) as queue:
        scan = queue.scan(tolerant=True)
        assert len(list(scan)) == 2
        assert len(scan.damage) == 1


def test_bytes_that_look_like_frames_everywhere_do_not_hang(tmp_path: Path) -> None:
    path = events_of(tmp_path / "q")
    size = 1 << 20
    with (path / "0.seg").open("ab") as file:
        file.write(size.to_bytes(4, "little") * (size // 2))
    with Queue(path, read_only=True) as queue:
        assert list(queue.scan(tolerant=True)) == []
        assert not queue.verify().is_ok


def test_bytes_that_look_like_blocks_everywhere_do_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    stream = bytes.fromhex("04224d186470b9") + b"\x00\x00\x01\x00" * (1 << 18)
    (path / "0.seg").write_bytes(bytes.fromhex("020000000000000002000000") + stream)
    with Queue(path, read_only=True) as queue:
        assert list(queue.scan(tolerant=True)) == []
    assert repair(path).brought_back == 0


def test_an_lz4_bomb_in_an_event_is_bounded(tmp_path: Path) -> None:
    # One literal, then one match of 255 bytes per byte of the block: 255 times its size.
    bomb = b"\x1fa\x01\x00" + b"\xff" * (2 << 20) + b"\x00\x50aaaaa"
    path = tmp_path / "q"
    path.mkdir()
    iv = bytes(16)
    frames = pack_frame(bomb) + pack_frame(bomb[:20])
    (path / "0.seg").write_bytes(bytes([3, 0, 0, 0]) + iv + _core.beats_crypt(KEY, iv, frames))
    with Queue(path, read_only=True, key=KEY) as queue:
        scan = queue.scan(tolerant=True)
        assert list(scan) == []
        assert len(scan.damage) == 2


def test_an_lz4_bomb_in_a_stream_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    block = b"\x1fa\x01\x00" + b"\xff" * (1 << 16) + b"\x00\x50aaaaa"
    stream = bytes.fromhex("04224d186470b9") + len(block).to_bytes(4, "little") + block
    (path / "0.seg").write_bytes(bytes.fromhex("020000000000000002000000") + stream)
    with Queue(path, read_only=True) as queue:
        scan = queue.scan(tolerant=True)
        assert list(scan) == []
        assert len(scan.damage) == 1


def peak_bytes() -> int:
    """The most memory that this process has had since the peak began anew."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@pytest.mark.parametrize("size", [0, (1 << 30) - 1, 100 << 20, 1000], ids=lambda n: f"says-{n}")
def test_a_gigabyte_in_a_small_stream_takes_little_memory(tmp_path: Path, size: int) -> None:
    """Zeros behind a frame that says how long it is: no reason to unpack them all."""
    path = tmp_path / "q"
    path.mkdir()
    zeros = b"\x1f\x00\x01\x00" + b"\xff" * 16_000 + b"\x00\x50" + bytes(5)
    first = (4 | 1 << 31).to_bytes(4, "little") + size.to_bytes(4, "little")
    blocks = first + 256 * (len(zeros).to_bytes(4, "little") + zeros)
    stream = bytes.fromhex("04224d186470b9") + blocks
    (path / "0.seg").write_bytes(bytes.fromhex("020000000000000002000000") + stream)
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
    before = peak_bytes()
    with Queue(path, read_only=True) as queue:
        scan = queue.scan(tolerant=True)
        assert list(scan) == []
        assert len(scan.damage) == 1
    assert peak_bytes() - before < 300 << 20


def test_random_bytes_are_refused_or_reported(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    for seed in range(60):
        noise = random.Random(seed).randbytes(seed * 13)
        version = bytes([seed % 4, 0, 0, 0])
        (path / "0.seg").write_bytes(version + noise)
        found, reported = read(path, KEY if seed % 2 else None)
        assert found == {}
        assert reported or len(noise) in (0, 4, 8, 16)


def test_a_link_in_place_of_a_segment_is_not_followed(tmp_path: Path) -> None:
    path = events_of(tmp_path / "q", HEAD + b"\xa0")
    os.rename(path / "0.seg", tmp_path / "elsewhere")  # noqa: PTH104
    (path / "0.seg").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        Queue(path, read_only=True)


def test_the_twin_finds_the_same_frames_as_the_core(tmp_path: Path) -> None:
    case = BY_ID["v1/corrupt-length"]
    path = case.copy(tmp_path)
    raw = (path / "0.seg").read_bytes()
    with Queue(path, read_only=True) as queue:
        found = [(m.offset, m.payload) for m in queue.scan(tolerant=True)]
    assert found == [(at + 8, payload) for at, payload in whole_frames(raw[8:])]


def test_a_last_frame_that_a_crash_cut_short_is_told_from_damage(tmp_path: Path) -> None:
    """A Beat that died leaves a segment without a count; its next run begins another one."""
    path = tmp_path / "q"
    for number in range(2):
        with Queue(path, format="beats", layout="1") as queue:
            queue.put_many([event(10 * number), event(10 * number + 1)])
    with Queue(path, read_only=True) as queue:
        first, last = queue.store.segments()
        offset = list(queue.scan())[1].offset
        for info in (first, last):
            segment = queue.store.open_whole(info, writable=False)
            assert queue.store.format.torn_end(info, segment) == []
    raw = first.path.read_bytes()
    first.path.write_bytes(raw[:4] + bytes(4) + raw[8:-3])
    with Queue(path, read_only=True) as queue:
        info = queue.store.segments()[0]
        (torn,) = queue.store.format.torn_end(info, queue.store.open_whole(info, writable=False))
        assert (torn.path, torn.offset) == (first.path, offset)
        assert torn.at + torn.length == first.path.stat().st_size
