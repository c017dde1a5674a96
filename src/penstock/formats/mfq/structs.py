"""The bytes of an `mfq` queue, declared once.

    <queue>/commitlog/<base offset, 20 digits>   segments, all of one size, zeros where unused
    <queue>/offset/producer.offset               the next offset to write
    <queue>/offset/consumer.offset               the next offset to consume

Little-endian. The message at logical offset `o` of the segment with base `b` begins at byte
`o - b` of the file. A frame that does not fit into what is left begins the next segment; the bytes
left over do not count. With six or more of them the first is 0xEE, which readers must not rely on:
the length word of a frame may begin with the same byte. A segment has ended where the next one's
name says.
"""

from __future__ import annotations

from penstock.disk.structs import Field, Struct

SEGMENT_END = b"\xee"
SMALLEST_FRAME_BYTES = 6
MAX_PAYLOAD_BYTES = 0xFFFFFF

FRAME = Struct(
    "mfq frame header", "<", 4,
    Field("length", "i", "bytes of the payload, 1 to 0xFFFFFF; 0: nothing here yet"),
)  # fmt: skip

FRAME_END = Struct(
    "mfq frame end", "<", 1,
    Field("marker", "B", "0xFF, behind the payload"),
)  # fmt: skip

OFFSET = Struct(
    "mfq offset file", "<", 8,
    Field("offset", "q", "the next offset to write, or to consume"),
)  # fmt: skip

STRUCTS = (FRAME, FRAME_END, OFFSET)
