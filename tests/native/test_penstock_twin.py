"""The native frame codec against the specification read aloud, made from the same table."""

from __future__ import annotations

import shutil
import struct
import tempfile
from pathlib import Path

import google_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import ManualClock, Message, Queue, _core
from penstock.formats.penstock.structs import FRAME, HEADER_BYTES

TEXT = st.text(max_size=12)
MESSAGES = st.builds(
    lambda body, tag, id, key, time: Message(
        body, tag=tag or None, id=id or None, key=key or None, timestamp_ns=time
    ),
    st.binary(max_size=60), TEXT, TEXT, TEXT, st.integers(1, 2**62),
)  # fmt: skip


def pack_frame(message: Message, number: int, more: int = 0) -> bytes:
    """A frame without due time, compression and encryption, padding included; `more` frames of the
    same put follow."""
    key, id, tag = ((text or "").encode() for text in (message.key, message.id, message.tag))
    rest = key + id + tag + message.body
    size = FRAME.size + len(rest)
    fixed = FRAME.pack(
        size=size, crc=0, flags=bool(key) | 32 * bool(more), id_len=len(id), tag_len=len(tag),
        ext_len=len(key), number=number, timestamp_ns=message.timestamp_ns or 0, headers_len=0,
    )  # fmt: skip
    crc = google_crc32c.extend(size ^ 0xFFFFFFFF, fixed[8:] + rest)
    frame = fixed[:4] + struct.pack("<I", crc) + fixed[8:] + rest
    return frame + bytes(-size % 8)


def scan_frames(data: bytes) -> list[tuple[int, int]]:
    """`(at, number)` of every whole frame from the start, up to the first that is not."""
    at, found = 0, []
    while at + FRAME.size <= len(data):
        word = FRAME.unpack(data[at:])
        size, frame = word["size"], data[at : at + word["size"]]
        if size < FRAME.size or len(frame) < size:
            break
        if word["crc"] != google_crc32c.extend(size ^ 0xFFFFFFFF, frame[8:]) or word["flags"] & ~63:
            break
        found.append((at, word["number"]))
        at += -(-size // 8) * 8
    return found


@settings(deadline=None, max_examples=60)
@given(st.lists(MESSAGES, min_size=1, max_size=6))
def test_the_native_writer_writes_what_the_table_says(messages: list[Message]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        with Queue(folder / "q", clock=ManualClock(), durability="process") as queue:
            queue.put_many(messages)
        (file,) = (folder / "q/log").iterdir()
        last = len(messages) - 1
        frames = [pack_frame(message, n, last - n) for n, message in enumerate(messages)]
        expected = b"".join(frames)
        data = file.read_bytes()[HEADER_BYTES:]
        assert data[: len(expected)] == expected
        assert not data[len(expected) :].strip(b"\0")
    finally:
        shutil.rmtree(folder)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(MESSAGES, max_size=5), st.integers(0, 80), st.lists(st.integers(0, 400), max_size=2)
)
def test_the_native_walk_finds_what_the_twin_finds(
    messages: list[Message], cut: int, flips: list[int]
) -> None:
    data = bytearray(b"".join(pack_frame(m, n) for n, m in enumerate(messages)))
    del data[max(0, len(data) - cut) :]
    for at in flips:
        if at < len(data):
            data[at] ^= 0x10
    frames = _core.penstock_frames(bytes(16), 0)
    segment = _core.Segment.over(Path("x.seg"), 0, 0, frames, bytes(data))
    seen = _core.walk(segment, 0, len(data))
    twin = scan_frames(bytes(data))
    assert seen.frames == len(twin)
    assert seen.next_number == (twin[-1][1] + 1 if twin else None)
