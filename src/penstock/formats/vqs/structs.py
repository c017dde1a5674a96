"""The bytes of a `vqs` queue, declared once.

    <name>.bin                     layout `doc`: header, labels, then the ring from 16384 on
    <folder>/data.dat              layout `stage2`: the same places, other fields (read only)
    <folder>/{meta,data}.dat       layouts `stage3` (read only) and `stage4`: the ring has a file
                                   of its own and begins at 0
    <name>.bin.penstock/, <folder>/.penstock/      everything of ours

Little-endian. The message at offset `o` begins at byte `start + o % ring` of the ring's file and
may run past the end: it goes on at `start`.
"""

from __future__ import annotations

from pathlib import Path

from penstock.disk.structs import Field, Struct
from penstock.records import dataclass

MAGIC = b"VQS"
VERSION = 1
MARKER = 0xADDE
HEADER_BYTES = 16384
PAGE_BYTES = 4096
FILE_BYTES = 128 << 20
META_BYTES = 1 << 20
MAX_FILE_BYTES = (1 << 32) - PAGE_BYTES
"""Offsets in the header have 32 bits."""
SIDE_SPAN = 64 << 20
"""Offsets that share one file of checksums and one of keys and due times."""

HEADER = Struct(
    "vqs header", "<", 34,
    Field("magic", "3s", "VQS"),
    Field("version", "B", "1"),
    Field("capacity_left", "I", "bytes of the ring that are free"),
    Field("count", "I", "messages in the ring"),
    Field("read_offset", "I", "byte of the file where the oldest message begins"),
    Field("write_offset", "I", "byte of the file where the next message goes"),
    Field("delay_seconds", "H", "every message is held back this long"),
    Field("max_message_size", "I", "a larger body is refused"),
    Field("retention_period", "I", "seconds after which a message goes, read or not"),
    Field("wait_seconds", "H", "how long a long poll waits"),
    Field("visibility_timeout", "H", "seconds a message is hidden from others once handed out; "
          "then labels: name, zero byte, value, zero byte, up to byte 16384; an empty name ends "
          "them"),
)  # fmt: skip

LATER_HEADER = Struct(
    "vqs later header", "<", 36,
    Field("magic", "3s", "VQS"),
    Field("version", "B", "1"),
    Field("capacity_left", "I", "as above"),
    Field("count", "I", ""),
    Field("read_offset", "I", "in `stage3` and `stage4` from 0 on"),
    Field("write_offset", "I", ""),
    Field("max_message_size", "I", ""),
    Field("retention_period", "I", ""),
    Field("wait_seconds", "H", ""),
    Field("delay_seconds", "H", ""),
    Field("visibility_timeout", "H", ""),
    Field("marker", "H", "0xADDE; then labels: in `stage2` as above, later length of the name "
          "(uint16), length of the value (uint16), name, value; a length of 0 ends them"),
)  # fmt: skip

RECORD = Struct(
    "vqs record", "<", 4,
    Field("record_bytes", "I", "of the gob that follows: three type descriptors (175 bytes), then "
          "the message; in `stage2` and `stage3` it is gzipped"),
)  # fmt: skip

EXTENT = Struct(
    "vqs extent", "<", 80,
    Field("magic", "8s", "VQSINTNT"),
    Field("sequence", "Q", "the slot with the larger one counts; slots begin at 0 and 4096"),
    Field("head", "Q", "oldest kept offset"),
    Field("tail", "Q", "everything below is on the disk"),
    Field("head_number", "Q", "messages ever freed"),
    Field("next_number", "Q", "messages ever put"),
    Field("capacity_left", "I", "the header's words, from here on"),
    Field("count", "I", ""),
    Field("read_offset", "I", ""),
    Field("write_offset", "I", ""),
    Field("file_bytes", "Q", "size of the file they are for"),
    Field("exact", "I", "1: a writer at `always` has had the queue open, and nothing above the "
          "tail counts; 0: records above it count as far as they check"),
    Field("crc", "I", "CRC-32C of the bytes before it"),
)  # fmt: skip

STRUCTS = (HEADER, LATER_HEADER, RECORD, EXTENT)

WORDS = ("capacity_left", "count", "read_offset", "write_offset")
"""What changes with every message."""
WORDS_AT = 4
SETTINGS = {
    "delay_seconds": (0, 0, 900),
    "max_message_size": (262144, 1, (1 << 32) - 1),
    "retention_period": (345600, 60, 1209600),
    "wait_seconds": (0, 0, 20),
    "visibility_timeout": (30, 0, 43200),
}
"""What `set_meta` changes: the usual value of each, the least and the most that it may be."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the four layouts."""

    name: str
    header: Struct
    start: int
    """Where the ring begins in its file."""
    data: str = ""
    """The ring's file inside the folder; empty: the queue is a file."""
    meta: str = ""
    """The file with the header, where that is another one."""
    has_lengths: bool = False
    """Labels have lengths instead of zero bytes."""
    is_gzip: bool = False
    is_written: bool = False

    def data_path(self, path: Path) -> Path:
        return path / self.data if self.data else path

    def header_path(self, path: Path) -> Path:
        return path / self.meta if self.meta else self.data_path(path)


STAGES = {
    stage.name: stage
    for stage in (
        Stage("doc", HEADER, HEADER_BYTES, is_written=True),
        Stage("stage2", LATER_HEADER, HEADER_BYTES, data="data.dat", is_gzip=True),
        Stage("stage3", LATER_HEADER, 0, "data.dat", "meta.dat", has_lengths=True, is_gzip=True),
        Stage("stage4", LATER_HEADER, 0, "data.dat", "meta.dat", has_lengths=True, is_written=True),
    )
}
