"""Which layout a folder has. `Version` is 1 in all of them, so the bytes themselves must tell."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.errors import CorruptError, FormatError
from penstock.formats.zbus import index, structs
from penstock.formats.zbus.structs import FRAME, INDEX_BYTES, TABLE, ZbusLayout
from penstock.records import replace
from penstock.sidecar import notes

PRE_RELEASE_BYTES = 205824
HEAD_BYTES = FRAME.size
ORDERS = {"code": structs.ENTRY, "doc000": structs.ENTRY_DOC000, "doc001": structs.ENTRY_DOC001}
"""Entry orders in the order in which they are tried; the originals wrote the first one only."""


def recorded(folder: Path) -> ZbusLayout | None:
    """The queue's layout, and how it counts, as `.penstock/` remembers it."""
    known = notes.read(folder / ".penstock", notes.ZBUS) or {}
    layout, first_number = str(known.get("layout")), known.get("first_number", 0)
    if layout not in TABLE or type(first_number) is not int or not 0 <= first_number < 1 << 31:
        return None
    return replace(
        TABLE[layout], is_absolute=bool(known.get("absolute")), first_number=first_number,
        dialect=str(known.get("dialect", "modern")),
    )  # fmt: skip


def sniff(folder: Path) -> str | None:
    """The layout's name; none when this is no zbus queue."""
    path = index.find(folder)
    if path is None or not ((folder / "data").is_dir() or is_unused(files.read_bytes(path))):
        return None
    size = path.stat().st_size
    if size == PRE_RELEASE_BYTES:
        raise FormatError(
            path, f"an index of {size} bytes, as zbus snapshots before January 2017 wrote it",
            "that layout was never released and is not supported",
        )  # fmt: skip
    if size != INDEX_BYTES:
        return None
    return (recorded(folder) or examine(folder, None)).name


def examine(folder: Path, wanted: str | None) -> ZbusLayout:
    """The layout by its bytes, counting as its frames do; `wanted` decides what they leave open and
    must not contradict them."""
    path = index.find(folder)
    assert path is not None
    raw = files.read_bytes(path)
    (version,) = struct.unpack_from(">i", raw)
    if version != 1:
        raise FormatError(path, f"version {version}", "zbus wrote version 1 only", at=0)
    era = header_era(path, raw)
    order = entry_order(folder, path, raw)
    seen = f"header of era {era}, entries in {order} order"
    if order == "doc000" and era == "mask":
        name = "doc000"
    elif order == "doc001" and era == "flag":
        name = "doc001"
    elif order in ("code", ""):
        name = _code_layout(folder, path, era, wanted)
    else:
        raise FormatError(path, seen, "no layout of zbus has both; say which with layout=")
    if wanted is not None:
        if order or TABLE[wanted].index is not TABLE[name].index:
            _check_wanted(path, name, wanted, seen)
        name = wanted
    layout = TABLE[name]
    found = index.read(path, layout)
    absolute = _offset_base(found)
    number = _first_number(found) if not layout.has_mask else None
    return replace(
        layout, is_absolute=layout.is_absolute if absolute is None else absolute,
        first_number=layout.first_number if number is None else number,
    )  # fmt: skip


def _check_wanted(path: Path, name: str, wanted: str, seen: str) -> None:
    same = ("index", "entry", "frame")
    if any(getattr(TABLE[name], part) is not getattr(TABLE[wanted], part) for part in same):
        advice = f"{wanted} has other tables; leave layout= out or say {name}"
        raise FormatError(path, f"{seen}: that is layout {name}, not {wanted}", advice)


def header_era(path: Path, raw: bytes) -> str:
    """`mask` (common header), `flag-late` or `flag`."""
    (created,) = struct.unpack_from(">q", raw, 376)
    if created != 0:
        if any(raw[24:32]):
            (count,) = struct.unpack_from(">q", raw, 20)
            raise FormatError(
                path, f"bytes 24 to 31 are {raw[24:32].hex(' ')}: a snapshot of four days in April "
                f"2017 (637bd13f) that wrote its count over itself; the true count is {count}",
                "it was never released and is not supported",
            )  # fmt: skip
        return "mask"
    (late,) = struct.unpack_from(">q", raw, 28)
    return "flag-late" if late != 0 else "flag"


def is_unused(raw: bytes) -> bool:
    """Whether nothing was queued yet: a consumer came first, or a producer was killed at
    its first block. There is no block then, or an empty one; their folder may be missing."""
    if len(raw) != INDEX_BYTES:
        return False
    version, count, start, *_ = struct.unpack_from(">iiq", raw)
    (created,) = struct.unpack_from(">q", raw, 376)
    (messages,) = struct.unpack_from(">q", raw, 16 if created else 20)
    words = [table.unpack(raw, index.slot_at(0)) for table in ORDERS.values()]
    is_empty = any(word["base"] == word["end"] == 0 for word in words)
    return version == 1 and count in (0, 1) and start == messages == 0 and is_empty


def entry_order(folder: Path, path: Path, raw: bytes) -> str:
    """In which order the last block's entry has its fields, judged by what they can be; nothing can
    be said where no block was ever entered."""
    entered = raw[index.slot_at(0) : index.slot_at(1)]
    if is_unused(raw) and not any(entered):
        return ""
    count, start = struct.unpack_from(">iq", raw, 4)
    if not 0 < count <= structs.SLOTS or start < 0:
        raise CorruptError(
            path, 4, f"block count {count}, block start {start}", "1 to 10240 blocks"
        )
    tried = []
    for number in range(start + count - 1, start - 1, -1):
        at = index.slot_at(number)
        if not any(raw[at : at + structs.ENTRY_BYTES]):
            continue  # Counted, and then the machine stopped.
        for name, table in ORDERS.items():
            word = table.unpack(raw, at)
            times = (word["created_ms"], word["updated_ms"])
            plausible = all(10**12 <= time <= 10**14 for time in times) and word["base"] >= 0
            # A creation that was cut short leaves an index whose empty first block has no file.
            is_new = word["base"] == word["end"] == 0
            is_there = is_new or index.block_path(folder, word["base"]).exists()
            if plausible and word["end"] >= 0 and is_there:
                return name
            tried.append(f"{name}: base {word['base']}, end {word['end']}, created {times[0]}")
        if number < start + count - 2:
            break
    seen = "; ".join(tried[:3]) or "nothing but zeros"
    text = f"no entry order fits the last block ({seen})"
    raise FormatError(path, text, "check that the folder data/ is complete")


def _code_layout(folder: Path, path: Path, era: str, wanted: str | None) -> str:
    """The layouts whose entries are in the order that zbus itself wrote."""
    if era != "mask":
        return era
    found = index.read(path, TABLE["corr"])
    for _, head in _first_heads(found):
        (check,) = struct.unpack_from(">Q", head, 8)
        if check == _core.crc32(head[16:200]):
            return "crc"
        has_61 = any(size == 62024 for size in _nak_sizes(folder))
        return "corr-abs" if _offset_base(found) or has_61 else "corr"
    sizes = _nak_sizes(folder)
    if 62024 in sizes:
        return "corr-abs"
    if 22024 in sizes or wanted is None:
        return "crc"  # Empty: nothing tells corr from crc, and crc is what was written last.
    return wanted if wanted in ("corr", "corr-go", "corr-abs") else "crc"


def _nak_sizes(folder: Path) -> set[int]:
    return {path.stat().st_size for path in (folder / "reader").glob("*.nak")}


def first_head(block: index.Block) -> bytes | None:
    """The fixed part of a block's first frame."""
    if block.end < HEAD_BYTES:
        return None
    head = files.read_if_there(block.path, HEAD_BYTES)
    return head if head is not None and len(head) == HEAD_BYTES else None


def _first_heads(found: index.Index) -> Iterator[tuple[index.Block, bytes]]:
    return ((block, head) for block in found.blocks if (head := first_head(block)) is not None)


def _offset_base(found: index.Index) -> bool | None:
    """Whether frames name their place in the queue; none when only the first block is there."""
    for block, head in _first_heads(found):
        (offset,) = struct.unpack_from(">q", head)
        if block.base > 0 and offset in (0, block.base):
            return bool(offset == block.base)
    return None


def _first_number(found: index.Index) -> int | None:
    """1 or 0, by the first frame of block 0."""
    head = first_head(found.blocks[0]) if found.blocks and found.blocks[0].number == 0 else None
    if head is not None and (number := FRAME.unpack_field("number", head)) in (0, 1):
        return int(number)
    last = _last_number(found.blocks)
    return None if last is None else int(last == found.message_count)


def _last_number(blocks: tuple[index.Block, ...]) -> int | None:
    """The number of the last frame there is, by the lengths of those before it."""
    for block in reversed(blocks):
        raw = (files.read_if_there(block.path) or b"")[: block.end]
        at, number = 0, None
        while at + HEAD_BYTES <= len(raw):
            length = FRAME.unpack_field("length", raw, at)
            if length < 0:
                break
            number = int(FRAME.unpack_field("number", raw, at))
            at += HEAD_BYTES + length
        if number is not None:
            return number
    return None
