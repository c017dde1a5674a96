"""The bytes of a `zbus` queue, declared once, for every layout.

    <queue>/<any name>.idx             the index: 1,024 bytes of header, then 10,240 slots of 28
    <queue>/data/<base, 20 digits>.zbus   one segment ("block"): frames, nothing else
    <queue>/reader/<group>.rdx         what a group reads next, and its filter
    <queue>/reader/<group>.nak         what a group has not acked (crc, corr-abs)

Big-endian. Block `n` has slot `n % 10240`; blocks `BlockStart … BlockStart + BlockCount - 1` are
there, the last one is written to. A layout is a row of `TABLE`: which of the tables below, where
offsets and numbers count from, which filter dialect.
"""

from __future__ import annotations

from penstock.disk.structs import Field, Struct
from penstock.records import dataclass

SLOTS = 10240
HEADER_BYTES = 1024
ENTRY_BYTES = 28
INDEX_BYTES = HEADER_BYTES + SLOTS * ENTRY_BYTES
MAX_SEGMENT_BYTES = 2**31 - 1
NAK_RECORDS = 1000
NAK_WINDOW_MAX = 999

_COMMON = (
    Field(
        "mask", "i", "1 memory, 2 rpc, 4 proxy, 8 pause, 16 exclusive, 32 delete on exit, 64 ack"
    ),
    Field("updated_ms", "q", "set at creation; ordinary writes do not touch it"),
    Field("created_ms", "q", "never 0: tells this header from that of the flag layouts"),
    Field("creator", "128p"),
)
_EXTENSIONS = tuple(Field(f"ext{n}", "128p", "a text of the application") for n in (1, 2, 3, 4))
_BEGIN = (
    Field("version", "i", "1 in every layout"),
    Field("block_count", "i", "live blocks"),
    Field("block_start", "q", "number of the oldest live block"),
)
_COUNT = Field("message_count", "q", "messages ever written")
_PLACE = (
    Field("block", "q", "number of the block that is read next"),
    Field("offset", "i", "next position in it"),
    Field("filter", "128p", "tag filter; empty: everything"),
)

INDEX = Struct(
    "zbus index header", ">", 1024,
    *_BEGIN, _COUNT, Field("unused", "340x"), *_COMMON, *_EXTENSIONS,
)  # fmt: skip
INDEX_FLAG = Struct(
    "zbus index header, flag", ">", 1024,
    *_BEGIN, Field("flag", "i", "what later became the mask"), _COUNT, Field("unused", "484x"),
    *_EXTENSIONS,
)  # fmt: skip
INDEX_FLAG_LATE = Struct(
    "zbus index header, flag-late", ">", 1024,
    *_BEGIN, Field("flag", "i", "what later became the mask"), _COUNT,
    Field("created_ms", "q"), Field("unused", "476x"), *_EXTENSIONS,
)  # fmt: skip

_BASE = Field("base", "q", "offset of the block's first frame, and its file's name")
_END = Field("end", "i", "bytes used: the next frame goes here")
_CREATED = Field("created_ms", "q")
_UPDATED = Field("updated_ms", "q", "time of the last write")

ENTRY = Struct("zbus index entry", ">", 28, _CREATED, _BASE, _END, _UPDATED)
ENTRY_DOC000 = Struct("zbus index entry, doc000", ">", 28, _BASE, _CREATED, _END, _UPDATED)
ENTRY_DOC001 = Struct("zbus index entry, doc001", ">", 28, _BASE, _END, _CREATED, _UPDATED)

READER = Struct(
    "zbus reader", ">", 1024, *_PLACE, Field("unused", "224x"), *_COMMON, *_EXTENSIONS
)  # fmt: skip
READER_FLAG = Struct("zbus reader, flag", ">", 256, *_PLACE, Field("unused", "116x"))
READER_FLAG_LATE = Struct(
    "zbus reader, flag-late", ">", 256, *_PLACE, Field("flag", "i"), Field("unused", "112x")
)  # fmt: skip

_ID = Field("id", "40p", "the sender's name for it")
_NUMBER = Field("number", "q", "counted from 0; flag and doc001 from 1")
_TAG = Field("tag", "128p")
_LENGTH = Field("length", "i", "bytes of the body, which follows")
_AT = Field("offset", "q", "the frame's own place: in the block, or in the queue")

FRAME = Struct(
    "zbus frame", ">", 204,
    _AT, Field("timestamp_ms", "q"), _ID,
    Field("corr_offset", "q", "header `zbus.corr_offset`; 0: none"), _NUMBER, _TAG, _LENGTH,
)  # fmt: skip
FRAME_CRC = Struct(
    "zbus frame, crc", ">", 204,
    _AT, Field("checksum", "q", "CRC-32 of bytes 16 to 199"), _ID, Field("timestamp_ms", "q"),
    _NUMBER, _TAG, _LENGTH,
)  # fmt: skip

NAK = Struct(
    "zbus nak header", ">", 1024,
    Field("window", "i", "messages that may be out"),
    Field("timeout_ms", "q", "after this a message is handed out again"),
    Field("unused", "352x"), *_COMMON, *_EXTENSIONS,
)  # fmt: skip
_NAK_BEGIN = (
    Field("status", "b", "1: out; 0: free, whatever the rest says"),
    Field("offset", "q", "of the message, in the queue"),
)
_NAK_END = (
    Field("retries", "i", "how often it was handed out"),
    Field("updated_ms", "q", "when it was last handed out"),
)
NAK_RECORD = Struct("zbus nak record", ">", 21, *_NAK_BEGIN, *_NAK_END)
NAK_RECORD_ABS = Struct(
    "zbus nak record, corr-abs", ">", 61, *_NAK_BEGIN, Field("id", "40p"), *_NAK_END
)  # fmt: skip

STRUCTS = (
    INDEX, INDEX_FLAG, INDEX_FLAG_LATE, ENTRY, ENTRY_DOC000, ENTRY_DOC001,
    FRAME, FRAME_CRC, READER, READER_FLAG, READER_FLAG_LATE, NAK, NAK_RECORD, NAK_RECORD_ABS,
)  # fmt: skip


def pack_new(struct: Struct, now_ms: int, **values: int) -> bytes:
    """A struct as it is written first: both times are now, what is not in `values` is empty."""
    known = {"created_ms": now_ms, "updated_ms": now_ms, **values}
    fields = (field for field in struct.fields if not field.is_reserved)
    return struct.pack(**{f.name: known.get(f.name, b"" if f.is_slot else 0) for f in fields})


@dataclass(frozen=True, slots=True)
class ZbusLayout:
    """One layout: which tables, and where counting begins."""

    name: str
    index: Struct = INDEX
    entry: Struct = ENTRY
    reader: Struct = READER
    frame: Struct = FRAME
    nak_record: Struct | None = None
    is_absolute: bool = False
    """Whether the offset in a frame counts from the queue's beginning."""
    first_number: int = 0
    dialect: str = "modern"
    is_created: bool = False
    """Whether new queues may have it; the others are read and appended to."""

    @property
    def has_mask(self) -> bool:
        """Whether files begin with the common header of 1,024 bytes."""
        return self.index is INDEX


TABLE = {
    layout.name: layout
    for layout in (
        ZbusLayout("doc000", entry=ENTRY_DOC000, is_absolute=True, is_created=True),
        ZbusLayout(
            "doc001", index=INDEX_FLAG, entry=ENTRY_DOC001, reader=READER_FLAG,
            is_absolute=True, first_number=1, dialect="flag", is_created=True,
        ),
        ZbusLayout(
            "flag", index=INDEX_FLAG, reader=READER_FLAG, first_number=1, dialect="flag",
            is_created=True,
        ),
        ZbusLayout(
            "flag-late", index=INDEX_FLAG_LATE, reader=READER_FLAG_LATE, dialect="flag-late",
        ),
        ZbusLayout("corr", is_created=True),
        ZbusLayout("corr-go", dialect="flag-late"),
        ZbusLayout("corr-abs", nak_record=NAK_RECORD_ABS, is_absolute=True),
        ZbusLayout(
            "crc", frame=FRAME_CRC, nak_record=NAK_RECORD, is_absolute=True, is_created=True
        ),
    )
}  # fmt: skip
CREATED = tuple(name for name, layout in TABLE.items() if layout.is_created)
