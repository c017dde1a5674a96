"""The bytes of a Beats disk queue, declared once.

    <queue>/<id>.seg      segments, id in decimal from 0 on: a header, then frames
    <queue>/state.dat     the first event that was not acked
    <queue>/.penstock/    what the originals never look at

Little-endian. Everything that the queue counts (offsets, `state.dat`) is in plain frame bytes plus
the header without the IV, the *logical position*. Our offset of a frame is `id << 40 | position`.

Order of the three codings: version 3 packs each event, frames it, encrypts the frames; the stream
layouts frame the events, pack all frames as one LZ4 stream, encrypt the stream.
"""

from __future__ import annotations

from functools import cached_property

from penstock.disk.structs import Field, Struct
from penstock.records import dataclass

POSITION_BITS = 40
POSITION_MASK = (1 << POSITION_BITS) - 1
MAX_ID = (1 << 23) - 1
IV_BYTES = 16
KEY_BYTES = 16
FRAME_BYTES = 12

HEADER_PLAIN = Struct(
    "beats segment header 0, 2, 3", "<", 4,
    Field("version", "I", "0; 2 and 3 as documented, an IV of 16 bytes follows"),
)  # fmt: skip

HEADER_COUNTED = Struct(
    "beats segment header 1", "<", 8,
    Field("version", "I", "1"),
    Field("frames", "I", "0 while the segment is open"),
)  # fmt: skip

HEADER_RELEASED = Struct(
    "beats segment header 2 as released", "<", 12,
    Field("version", "I", "2"),
    Field("frames", "I", "0 while the segment is open"),
    Field("options", "I", "1 encrypted (an IV of 16 bytes follows), 2 LZ4 stream, 4 protobuf"),
)  # fmt: skip

FRAME_HEAD = Struct(
    "beats frame head", "<", 4,
    Field("size", "I", "the whole frame: payload and 12; then the payload"),
)  # fmt: skip

FRAME_FOOT = Struct(
    "beats frame foot", "<", 8,
    Field("crc", "I", "CRC-32 (IEEE) of the size word and the payload"),
    Field("size", "I", "the size again"),
)  # fmt: skip

STATE_0 = Struct(
    "beats state.dat 0", "<", 20,
    Field("version", "I", "0"),
    Field("segment", "Q", "segment id"),
    Field("position", "Q", "counted from the end of the segment's 4-byte header"),
)  # fmt: skip

STATE_1 = Struct(
    "beats state.dat 1", "<", 28,
    Field("version", "I", "1"),
    Field("segment", "Q", "segment id"),
    Field("position", "Q", "logical position of the first event that was not acked"),
    Field("frame", "Q", "its index in the segment; 0: the position is not looked at"),
)  # fmt: skip

MACS = Struct(
    "beats macs", "<", 64,
    Field("magic", "8s", "BEATSMAC"),
    Field("version", "I", "1"),
    Field("pad", "4x", ""),
    Field("segment", "Q", "segment id"),
    Field("frames", "Q", "how many have a tag; 0 while the segment is open"),
    Field("closing", "32s", "HMAC-SHA256 over the last tag, segment and frames; zeros while open; "
          "then a tag of 32 bytes per frame: HMAC-SHA256 over the tag before it, the segment id, "
          "the frame's index, the IV and the frame as it is on the disk"),
)  # fmt: skip

STRUCTS = (
    MACS,
    HEADER_PLAIN, HEADER_COUNTED, HEADER_RELEASED, FRAME_HEAD, FRAME_FOOT, STATE_0, STATE_1,
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One layout of a segment. There are few, and every roll asks them: so what they answer is
    computed once."""

    name: str
    version: int
    header: Struct
    encoding: str = "cbor"
    options: int = 0
    is_encrypted: bool = False
    is_packed: bool = False
    """Each event is an LZ4 block."""
    is_stream: bool = False
    """All frames are one LZ4 stream."""

    @cached_property
    def header_bytes(self) -> int:
        """The logical position of the first frame."""
        return self.header.size

    @cached_property
    def data_at(self) -> int:
        """The byte of the file where frames (or the stream) begin."""
        return self.header.size + (IV_BYTES if self.is_encrypted else 0)

    @cached_property
    def is_counted(self) -> bool:
        """Whether the header has the number of frames."""
        return self.header is not HEADER_PLAIN

    def base(self, segment_id: int) -> int:
        """Offset of the first frame of a segment."""
        return segment_id << POSITION_BITS | self.header_bytes

    @cached_property
    def new_header(self) -> bytes:
        """The header of a segment without frames, without the IV."""
        return self.pack_header()

    def pack_header(self, frames: int = 0) -> bytes:
        """The header without the IV."""
        values = {"version": self.version, "frames": frames, "options": self.options}
        names = [field.name for field in self.header.fields]
        return self.header.pack(**{name: values[name] for name in names})


_PLAIN, _RELEASED = HEADER_PLAIN, HEADER_RELEASED
KINDS = {
    kind.name: kind
    for kind in (
        Kind("0", 0, _PLAIN, encoding="json"),
        Kind("1", 1, HEADER_COUNTED),
        Kind("2", 2, _PLAIN, is_encrypted=True),
        Kind("3", 3, _PLAIN, is_encrypted=True, is_packed=True),
        Kind("3-stream", 3, _PLAIN, is_encrypted=True, is_stream=True),
        Kind("2-released", 2, _RELEASED),
        Kind("2-released-lz4", 2, _RELEASED, options=2, is_stream=True),
        Kind("2-released-aes", 2, _RELEASED, options=1, is_encrypted=True),
        Kind("2-released-aes-lz4", 2, _RELEASED, options=3, is_encrypted=True, is_stream=True),
    )
}

CREATED = ("1", "0", "2", "3", "2-released", "2-released-lz4")
GOES_ON_AS = {"3-stream": "3", "2-released-aes": "2", "2-released-aes-lz4": "3"}
"""Layouts that are read only: appending goes on in one that is as confidential."""
