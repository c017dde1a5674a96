"""What the Beats tests share: a Python twin of the format, and golden values as messages."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

KEY = bytes.fromhex("00112233445566778899aabbccddeeff")
CREATED = ("0", "1", "2", "3", "2-released", "2-released-lz4")
ENCRYPTED = ("2", "3")
NAMES = {
    "v0": "0", "v1": "1", "v2-seed": "2", "v3-seed": "3", "v3-stream": "3-stream",
    "v2-rel": "2-released", "v2-rel-lz4": "2-released-lz4", "v2-rel-aes": "2-released-aes",
    "v2-rel-aes-lz4": "2-released-aes-lz4",
}  # fmt: skip


def key_for(layout: str) -> bytes | None:
    return KEY if layout in ENCRYPTED else None


def event(number: int, **more: object) -> bytes:
    return json.dumps({"message": f"event {number}", "n": number} | more).encode()


def pack_frame(payload: bytes) -> bytes:
    """The specification read aloud."""
    size = (len(payload) + 12).to_bytes(4, "little")
    return size + payload + zlib.crc32(size + payload).to_bytes(4, "little") + size


def whole_frames(plain: bytes) -> list[tuple[int, bytes]]:
    """Every whole frame, also behind damage: where it begins, and its payload."""
    found, at = [], 0
    while at + 12 < len(plain):
        size = int.from_bytes(plain[at : at + 4], "little")
        frame = plain[at : at + size]
        if 12 < size == len(frame) and frame == pack_frame(frame[4:-8]):
            found.append((at, frame[4:-8]))
            at += size
        else:
            at += 1
    return found


def as_json(value: Any) -> Any:
    """A golden value as a message shows it: bytes in base64, what is no UTF-8 with U+FFFD."""
    if isinstance(value, dict):
        if set(value) == {"$bytes"}:
            return base64.b64encode(bytes.fromhex(value["$bytes"])).decode()
        if set(value) == {"$text_hex"}:
            return bytes.fromhex(value["$text_hex"]).decode(errors="replace")
        return {name: as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def numbers_alike(value: object) -> str:
    """Equal JSON texts for equal values, floats told from integers."""
    return json.dumps(value, sort_keys=True)
