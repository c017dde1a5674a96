"""Values of events: what is put, read and copied is what it was, to the last bit."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, UnsupportedError, _core
from penstock.engine.convert import convert
from tests.formats.beats.helpers import CREATED, KEY, key_for, pack_frame
from tests.golden_data import golden_cases

TEXTS = ("naïve", 'a "quoted" naïve', "日本\t語", "😀 \\ 🎉", "<b>&", "\u2028\u2029", "\x00é\x1f")


def opened(path: Path, layout: str, **options: Any) -> Queue:
    return Queue(path, format="beats", layout=layout, durability="process", **options)


@pytest.mark.parametrize("layout", ["0", "1"])
def test_floats_come_back_to_the_last_bit(layout: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    floats = [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(1000)]
    floats = [value for value in floats if value - value == 0] + [0.1, 5e-324, 1e22, 1e23, 2.5e15]
    with opened(tmp_path / "q", layout) as queue:
        queue.put_many([json.dumps({"f": value}).encode() for value in floats])
        found = [json.loads(message.body)["f"] for message in queue.scan()]
    assert [struct.pack("<d", value) for value in found] == [
        struct.pack("<d", value) for value in floats
    ]


def test_layout_0_has_nothing_but_ascii_and_the_same_texts(tmp_path: Path) -> None:
    with opened(tmp_path / "q", "0") as queue:
        for text in TEXTS:
            queue.put(json.dumps({text or "k": text}, ensure_ascii=False).encode(),
                      headers={"beats.meta": json.dumps({"é": text})})  # fmt: skip
        found = list(queue.scan())
        assert [json.loads(message.body) for message in found] == [{t: t} for t in TEXTS]
        assert all(message.payload.isascii() for message in found)


@pytest.mark.parametrize("layout", ["2", "3"])
def test_the_key_of_a_message_is_not_readable_beside_an_encrypted_queue(
    layout: str, tmp_path: Path
) -> None:
    path = tmp_path / "q"
    with opened(path, layout, key=KEY) as queue:
        queue.put(b'{"n": 1}', key="SECRETKEY", headers={"beats.meta": '{"a": 2}'})
        queue.put(b"raw", key="SECRETKEY", headers={"h": "v"}, delay=0.0)
        first, second = queue.scan()
        assert (first.key, second.key) == ("SECRETKEY", "SECRETKEY")
        assert json.loads(first.headers["beats.meta"]) == {"a": 2}
        assert (second.body, second.headers) == (b"raw", {"h": "v"})
        # One key, one at a time.
        assert len(queue.get_many(9)) == 1
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if b"SECRETKEY" in file.read_bytes()]


@pytest.mark.parametrize("target", ["1", "2", "2-released", "2-released-lz4"])
def test_events_go_from_beats_to_beats_as_they_are_encoded(target: str, tmp_path: Path) -> None:
    nan, latin = b"\xfb\x7f\xf8" + bytes(6), b"\x64caf\xe9"
    payload = (
        b"\xa4\x69timestamp\x05\x65flags\x00\x64meta\xa0\x66fields"
        b"\xa3\x61a" + nan + b"\x61b" + latin + b"\x61c\x43\x00\xff\x01"
    )
    source = tmp_path / "source"
    source.mkdir()
    raw = (1).to_bytes(4, "little") * 2 + pack_frame(payload)
    (source / "0.seg").write_bytes(raw)
    copy = opened(tmp_path / "copy", target, key=key_for(target))
    with Queue(source, read_only=True) as old, copy as new:
        assert convert(old, new).verified == 1
        assert [message.payload for message in new.scan()] == [payload]


def test_a_payload_that_is_another_event_is_refused(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "q", "1") as queue,
        pytest.raises(UnsupportedError, match=r"beats\.payload"),
    ):
        queue.put(b'{"n": 1}', headers={"beats.payload": "oWFhAQ=="})


@pytest.mark.parametrize("target", CREATED)
def test_a_layout_0_spool_with_escapes_is_converted(target: str, tmp_path: Path) -> None:
    fields = b'{"m":"\\u003ca\\u003e \\u0026 \\u2028 caf\xc3\xa9","f":1e+06,"i":1}'
    payload = b'{"timestamp":5,"flags":0,"meta":{"x":"\\u003c"},"fields":' + fields + b"}"
    source = tmp_path / "source"
    source.mkdir()
    (source / "0.seg").write_bytes(bytes(4) + pack_frame(payload))
    copy = opened(tmp_path / "copy", target, key=key_for(target))
    with Queue(source, read_only=True) as old, copy as new:
        assert convert(old, new).verified == 1
        (message,) = new.scan()
    assert json.loads(message.body) == {"m": "<a> & \u2028 café", "f": 1e6, "i": 1}
    assert isinstance(json.loads(message.body)["f"], float)


@pytest.mark.parametrize("case", [c for c in golden_cases("beats") if "bad-utf8" in c.id], ids=str)
def test_texts_that_are_not_utf_8_survive_a_copy(case: Any, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    with Queue(path, read_only=True, key=KEY) as old:
        layout = "0" if case.id.startswith("v0") else "1"
        with opened(tmp_path / "copy", layout) as new:
            convert(old, new)
            found = [message.payload for message in new.scan()]
        assert found == [message.payload for message in old.scan()]


# ── streams ────────────────────────────────────────────────────────────────────────────────


def test_a_compressed_segment_is_as_long_as_its_frames(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with opened(path, "2-released-lz4") as queue:
        for number in range(300):
            queue.put(b'{"n": %d, "pad": "%s"}' % (number, b"x" * 200))
        # Also while it is open: whoever starts after a kill reads it by its length.
        assert (path / "0.seg").stat().st_size >= queue.offsets().tail & 0xFFFFFFFFFF
        assert int.from_bytes((path / "0.seg").read_bytes()[4:8], "little") == 300
        tail = queue.offsets().tail
    file = path / "0.seg"
    assert file.stat().st_size == tail & 0xFFFFFFFFFF
    assert file.stat().st_blocks * 512 < file.stat().st_size
    with Queue(path, read_only=True) as queue:
        assert queue.verify().is_ok
        assert sum(1 for _ in queue.scan()) == 300
    with file.open("ab") as more:
        more.write(b"\0\1")
    with Queue(path, read_only=True) as queue:
        assert "behind the end mark" in queue.verify().corrupt[0].found


def packed_zeros(length: int) -> bytes:
    """An LZ4 block of so many zeros, by hand: one literal, one long match, five literals."""
    match = length - 6 - 4 - 15
    return b"\x1f\0\1\0" + b"\xff" * (match // 255) + bytes([match % 255]) + b"\x50" + bytes(5)


@pytest.mark.parametrize("start", [b"", ((1 << 30) - 1).to_bytes(4, "little")])
def test_a_bomb_is_given_up_long_before_it_fills_the_memory(start: bytes, tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    block = packed_zeros(4 << 20)
    first = (len(start) | 1 << 31).to_bytes(4, "little") + start if start else b""
    stream = bytes.fromhex("04224d186470b9") + first
    stream += (len(block).to_bytes(4, "little") + block) * 256
    header = b"".join(word.to_bytes(4, "little") for word in (2, 1, 2))
    (path / "0.seg").write_bytes(header + stream)
    segment, _ = _core.beats_stream(path / "0.seg", 12, 12, data_at=12)
    assert (segment.end or 0) < 48 << 20
    with Queue(path, read_only=True) as queue:
        assert queue.verify().corrupt
