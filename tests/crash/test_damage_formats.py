"""One flipped bit, one missing byte, in the formats whose frames have no checksum of their own.

The integrity file beside the queue has one for each: never silently wrong, never silently fewer.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import PenstockError, Queue
from penstock.sidecar.control import CONTROL
from tests import counting

MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
PUT = [b"message %02d " % number * (number + 1) for number in range(6)]
RING_AT = 16384
MFQ, VQS = {"format": "mfq", "segment_bytes": 16384}, {"format": "vqs", "max_bytes": 4096}
STAGE4 = VQS | {"layout": "stage4"}


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-damage-formats-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


def make(folder: Path, options: dict[str, Any]) -> Path:
    path = folder / ("queue.bin" if options == VQS else "queue")
    with Queue(path, **options) as queue:
        queue.group("keeps-all")
        for body in PUT[:3]:
            queue.put(body)
        queue.put_many(PUT[3:])
    return path


def read(path: Path) -> tuple[list[bytes], bool]:
    """What can be read, and whether damage was reported."""
    found: list[bytes] = []
    try:
        with Queue(path, read_only=True) as queue:
            reported = not queue.verify().is_ok or bool(queue.stats()["dropped"])
            scan = queue.scan(tolerant=True)
            found += [message.body for message in scan]
            return found, reported or bool(scan.damage)
    except PenstockError:
        return found, True


def flip(path: Path, file: Path, bits: Any) -> int:
    """Flips each bit, reads, and takes it back; answers how often damage was reported."""
    before, noticed = file.read_bytes(), 0
    with file.open("r+b", buffering=0) as stream:
        for bit in bits:
            at = bit // 8
            os.pwrite(stream.fileno(), bytes([before[at] ^ (1 << bit % 8)]), at)
            found, reported = read(path)
            assert all(body in PUT for body in found), f"{file.name}, bit {bit}: wrong data"
            assert found == PUT or reported, f"{file.name}, bit {bit}: {len(found)}, no report"
            noticed += reported
            counting.count("flips")
            os.pwrite(stream.fileno(), before[at : at + 1], at)
    return noticed


def parts(path: Path, options: dict[str, Any]) -> dict[Path, range]:
    """The files with data or an end in them, and the bytes of each that say something."""
    with Queue(path, read_only=True) as queue:
        tail = queue.offsets().tail
    if options == MFQ:
        log = path / "commitlog" / f"{0:020d}"
        return {log: range(tail), path / "offset" / "producer.offset": range(8)}
    if options == VQS:
        return {path: range(RING_AT, RING_AT + tail)}
    return {path / "data.dat": range(tail)}


@pytest.mark.parametrize("options", [MFQ, VQS, STAGE4], ids=["mfq", "vqs", "stage4"])
def test_a_flipped_bit_is_never_silent(folder: Path, options: dict[str, Any]) -> None:
    path, rng = make(folder, options), random.Random(11)
    for file, used in parts(path, options).items():
        bits = range(used.start * 8, used.stop * 8)
        chosen = rng.sample(bits, min(200, len(bits)))
        assert flip(path, file, chosen) == len(chosen), "each bit counts"


@pytest.mark.slow
@pytest.mark.parametrize("options", [MFQ, VQS, STAGE4], ids=["mfq", "vqs", "stage4"])
def test_no_flipped_bit_is_silent(folder: Path, options: dict[str, Any]) -> None:
    path = make(folder, options)
    for file, used in parts(path, options).items():
        flip(path, file, range(used.start * 8, used.stop * 8))


def test_a_flipped_bit_of_a_header_that_we_closed_changes_no_message(folder: Path) -> None:
    """The words follow from our own; magic and settings are what they say they are."""
    path = make(folder, VQS)
    flip(path, path, range(34 * 8))


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [MFQ, VQS, STAGE4], ids=["mfq", "vqs", "stage4"])
def test_a_file_cut_at_any_byte_is_never_silently_shorter(
    folder: Path, options: dict[str, Any], step: int
) -> None:
    path = make(folder, options)
    for file, used in parts(path, options).items():
        whole = file.read_bytes()
        for size in range(used.stop, max(used.start - 40, -1), -step):
            os.truncate(file, size)
            found, reported = read(path)
            assert found == PUT[: len(found)]
            assert found == PUT or reported, f"{file.name} cut at {size}: {len(found)}, no report"
        file.write_bytes(whole)
    assert read(path) == (PUT, False)


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "mfq"])
@pytest.mark.parametrize("tail", [1 << 40, 1 << 62])
def test_a_scan_up_to_a_tail_that_can_not_be_ends_soon(
    tmp_path: Path, format: str, tail: int
) -> None:
    with Queue(tmp_path / "q", format=format, durability="process") as queue:
        for number in range(30):
            queue.put(b'{"n": %d}' % number)
        true, control = queue.offsets().tail, tmp_path / "q" / ".penstock" / "control"
        try:
            store_tail(control, tail)
            with Queue(tmp_path / "q", read_only=True) as reader:
                assert len([*reader.scan(tolerant=True)]) == 30
            assert len([*queue.scan(tolerant=True)]) == 30
        finally:
            store_tail(control, true)


def store_tail(control: Path, tail: int) -> None:
    with control.open("r+b") as stream:
        stream.seek(CONTROL.offset_of("tail"))
        stream.write(CONTROL.pack_field("tail", tail))
