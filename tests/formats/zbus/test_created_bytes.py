"""New queues byte for byte: the two printed pages, and the layouts that zbus itself wrote."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, OptionError, Queue

NOW_S = 1_700_000_000.0
NOW = 1_700_000_000_000
LAYOUTS = ("doc000", "doc001", "flag", "corr", "crc")


def slot(text: bytes, size: int) -> bytes:
    return (bytes([len(text)]) + text).ljust(size, b"\0")


def frame(
    layout: str, at: int, number: int, id: bytes, tag: bytes, body: bytes, corr: int
) -> bytes:
    """A DiskMessage as the pages print it, and as the last release wrote it (crc)."""
    number += 1 if layout in ("doc001", "flag") else 0
    rest = struct.pack(">q", number) + slot(tag, 128)
    if layout == "crc":
        covered = slot(id, 40) + struct.pack(">q", NOW) + rest
        head = struct.pack(">qq", at, zlib.crc32(covered)) + covered
    else:
        head = struct.pack(">qq", at, NOW) + slot(id, 40) + struct.pack(">q", corr) + rest
    return head + struct.pack(">i", len(body)) + body


def entry(layout: str, base: int, end: int) -> bytes:
    """0_baseOffset | createdTs | endOffset | updatedTs, and the two other orders."""
    if layout == "doc000":
        return struct.pack(">qqiq", base, NOW, end, NOW)
    if layout == "doc001":
        return struct.pack(">qiqq", base, end, NOW, NOW)
    return struct.pack(">qqiq", NOW, base, end, NOW)


def index(layout: str, count: int, entries: list[bytes]) -> bytes:
    """Version, BlockCount, BlockStart, (Flag,) MessageCount; then mask, times, creator, Ext1-4."""
    head = struct.pack(">iiq", 1, len(entries), 0)
    if layout in ("doc001", "flag"):
        head += struct.pack(">iq", 0, count)
    else:
        head = (head + struct.pack(">q", count)).ljust(364, b"\0")
        head += struct.pack(">iqq", 0, NOW, NOW)
    return (head.ljust(1024, b"\0") + b"".join(entries)).ljust(287744, b"\0")


def make(path: Path, layout: str, **options: Any) -> Queue:
    clock = ManualClock(NOW_S)
    return Queue(path, format="zbus", layout=layout, clock=clock, durability="process", **options)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_queue_has_one_empty_block(layout: str, tmp_path: Path) -> None:
    make(tmp_path / "mq", layout).close()
    found = sorted(p.relative_to(tmp_path / "mq").as_posix() for p in (tmp_path / "mq").iterdir())
    assert found == [".penstock", "data", "mq.idx", "reader"]
    assert (tmp_path / "mq" / "mq.idx").read_bytes() == index(layout, 0, [entry(layout, 0, 0)])
    assert (tmp_path / "mq/data/00000000000000000000.zbus").read_bytes() == b""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_messages_and_the_index_that_counts_them(layout: str, tmp_path: Path) -> None:
    corr = 0 if layout == "crc" else 77
    headers = {"zbus.corr_offset": "77"} if corr else None
    with make(tmp_path / "mq", layout) as queue:
        queue.put(b"hello", id="id-1", tag="eu.orders", headers=headers)
        queue.put(b"")
    first = frame(layout, 0, 0, b"id-1", b"eu.orders", b"hello", corr)
    second = frame(layout, 209, 1, b"", b"", b"", 0)
    assert (tmp_path / "mq/data/00000000000000000000.zbus").read_bytes() == first + second
    assert len(first + second) == 413
    assert (tmp_path / "mq/mq.idx").read_bytes() == index(layout, 2, [entry(layout, 0, 413)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_second_block_begins_once_the_limit_is_passed(layout: str, tmp_path: Path) -> None:
    body = b"x" * 9796  # A frame of 10,000 bytes: the second one runs past the limit of 16 KiB.
    with make(tmp_path / "mq", layout, segment_bytes=16384) as queue:
        for _ in range(3):
            queue.put(body)
    place = 0 if layout in ("flag", "corr") else 20000
    third = frame(layout, place, 2, b"", b"", body, 0)
    assert (tmp_path / "mq/data/00000000000000020000.zbus").read_bytes() == third
    entries = [entry(layout, 0, 20000), entry(layout, 20000, 10000)]
    assert (tmp_path / "mq/mq.idx").read_bytes() == index(layout, 3, entries)
    assert (tmp_path / "mq/data/00000000000000000000.zbus").stat().st_size == 20000


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_reader_file_with_its_filter(layout: str, tmp_path: Path) -> None:
    with make(tmp_path / "mq", layout) as queue:
        group = queue.group("billing", tags="eu.#")
        queue.put(b"one", tag="eu.a")
        queue.put(b"two", tag="eu.b")
        group.get(0).ack()
    raw = (tmp_path / "mq/reader/billing.rdx").read_bytes()
    place = struct.pack(">qi", 0, 207) + slot(b"eu.#", 128)
    if layout in ("doc001", "flag"):
        assert raw == place.ljust(256, b"\0")
    else:
        common = struct.pack(">iqq", 0, NOW, NOW)
        assert raw == (place.ljust(364, b"\0") + common).ljust(1024, b"\0")


def test_doc000_is_what_a_new_zbus_queue_has(tmp_path: Path) -> None:
    with Queue(tmp_path / "mq", format="zbus") as queue:
        assert queue.store.layout == "doc000"


@pytest.mark.parametrize("layout", ["flag-late", "corr-go", "corr-abs", "2", "penstock"])
def test_a_layout_that_is_only_read_is_not_created(layout: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="doc000, doc001, flag, corr or crc"):
        Queue(tmp_path / "mq", format="zbus", layout=layout)
