"""The bytes of a `penstock` queue, declared once.

    <queue>/log/<base offset, 20 digits>.seg     one 4 KiB header page, then frames
    <queue>/.penstock/                           control block, groups, options
    <queue>/.penstock/index                      what full segments say about themselves: a hint

Little-endian. Frames begin at multiples of 8; the message at logical offset `o` of the segment
with base `b` begins at byte `4096 + o - b` of the file.
"""

from __future__ import annotations

from penstock.disk.structs import Field, Struct

HEADER_BYTES = 4096
KEY_CHECK_AT = 96
SUMMARY_AT = 2048
MAGIC = b"PENSTOCK"
VERSION = 1
ENCRYPTED = 1
COMPRESSED = 2
SEALED_WORD = b"\xff\xff\xff\xff\x00\x00\x00\x00"

HEADER = Struct(
    "segment header", "<", 96,
    Field("magic", "8s", "PENSTOCK"),
    Field("version", "I", "1"),
    Field("flags", "I", "1 encrypted, 2 compressed frames may occur; others are refused"),
    Field("queue_id", "16s", "the queue, drawn when it was made"),
    Field("base", "Q", "offset of the first frame; also the file's name"),
    Field("base_number", "Q", "number of the first message"),
    Field("created_ns", "q", "wall time"),
    Field("segment_bytes", "Q", "size of the file"),
    Field("previous", "I", "CRC-32C of the header before this one's, and of where it ended"),
    Field("pad", "4x", ""),
    Field("salt", "16s", "drawn per segment; the segment's key is derived with it"),
    Field("reserved", "4x", ""),
    Field("crc", "I", "CRC-32C of the bytes before it"),
)  # fmt: skip

KEY_CHECK = Struct(
    "key check", "<", 24,
    Field("magic", "8s", "KEYCHK01; zeros where nothing is encrypted, or made before it"),
    Field("check", "16s", "what only the queue's key makes of the segment header before it"),
)  # fmt: skip

SUMMARY = Struct(
    "segment summary", "<", 80,
    Field("magic", "8s", "SEALED01; zeros while the segment is written to"),
    Field("end", "Q", "offset after the last frame"),
    Field("next_number", "Q", "number after the last message's"),
    Field("frames", "Q", "whole frames"),
    Field("messages", "Q", "messages in them"),
    Field("first_ns", "q", "smallest timestamp"),
    Field("last_ns", "q", "largest timestamp"),
    Field("checksum", "I", "CRC-32C of all frames"),
    Field("tags_bytes", "H", "bytes of tags after this summary, each ended by a zero byte"),
    Field("more_tags", "H", "1: there were more than fit"),
    Field("tag_count", "I", "tags that follow"),
    Field("corrupt", "I", "frames that did not check when it was sealed"),
    Field("reserved", "4x", ""),
    Field("crc", "I", "CRC-32C of this summary (crc as 0) and the tags"),
)  # fmt: skip

FRAME = Struct(
    "frame", "<", 36,
    Field("size", "I", "the whole frame without padding; 0: nothing here yet; all ones: sealed"),
    Field("crc", "I", "CRC-32C from byte 8 on, begun with the size in its register"),
    Field("flags", "H", "1 key, 2 due, 4 producer, 8 compressed, 16 encrypted, 32 the put goes on"),
    Field("id_len", "H", ""),
    Field("tag_len", "H", ""),
    Field("ext_len", "H", ""),
    Field("number", "Q", "counted from 0"),
    Field("timestamp_ns", "q", "ns since 1970"),
    Field("headers_len", "I", "then extension, id, tag, headers, body"),
)  # fmt: skip

INDEX_ENTRY = Struct(
    "segment index entry", "<", 64,
    Field("check", "I", "CRC-32C of the queue id and of the bytes behind this field"),
    Field("pad", "4x", ""),
    Field("base", "Q", "which segment"),
    Field("end", "Q", "offset after its last frame"),
    Field("base_number", "Q", "number of its first message"),
    Field("next_number", "Q", "number after its last message's"),
    Field("messages", "Q", "messages in it"),
    Field("first_ns", "q", "smallest timestamp"),
    Field("last_ns", "q", "largest timestamp"),
)  # fmt: skip

STRUCTS = (HEADER, KEY_CHECK, SUMMARY, FRAME, INDEX_ENTRY)
