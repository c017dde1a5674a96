"""Bytes that nobody meant well: a clear error, bounded memory, nothing changed."""

from __future__ import annotations

import contextlib
import gzip
import random
import resource
import struct
from pathlib import Path

import pytest

from penstock import CorruptError, FormatError, PenstockError, Queue
from tests.formats.vqs import gob
from tests.formats.vqs.files import START, make
from tests.reading import bodies_at

RING = 8192


def refused(path: Path, match: str = "found") -> None:
    before = path.read_bytes()
    with pytest.raises((CorruptError, FormatError), match=match), Queue(path) as queue:
        list(queue.scan())
    with pytest.raises((CorruptError, FormatError), match=match):
        bodies_at(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 2**32 - 1), ("count", 0), ("count", 3), ("capacity_left", 2**32 - 4),
        ("capacity_left", 0), ("read_offset", START + RING + 1), ("write_offset", 2**32 - 1),
        ("write_offset", START - 1), ("read_offset", 0), ("write_offset", START + 7),
    ],
)  # fmt: skip
def test_words_that_contradict_the_records_are_refused(
    tmp_path: Path, field: str, value: int
) -> None:
    records = [gob.record(b"one"), gob.record(b"two")]
    refused(make(tmp_path / "q.bin", records, RING, **{field: value}))


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + payload


HUGE = b"\xf8" + b"\xff" * 8
VALUE = gob.sint(65)
BOMBS = {
    "nothing": b"\0",
    "a length past the record": gob.types() + HUGE,
    "a body past the record": gob.types() + gob.message(VALUE + b"\x02" + HUGE),
    "a map of 2**64 entries": gob.types() + gob.message(VALUE + b"\x03" + HUGE),
    "a field past the struct": gob.types() + gob.message(VALUE + b"\x09\x01"),
    "a delta that overflows": gob.types() + gob.message(VALUE + b"\x01\x00" + HUGE),
    "a type that was not described": gob.message(gob.sint(99) + b"\0"),
    "two values": gob.types() + 2 * gob.message(VALUE + gob.value_of(b"x")),
    "bytes behind the value": gob.types() + gob.message(VALUE + gob.value_of(b"x") + b"!"),
    "the types twice": gob.types(64) * 2 + gob.message(gob.sint(64) + gob.value_of(b"x")),
    "only types": gob.types(),
    "attributes without end": gob.types()
    + gob.message(VALUE + b"\x03" + gob.uint(65537) + bytes(2 * 65537) + b"\x01\0\0"),
    "a struct of 2**64 fields": gob.message(gob.sint(-65) + b"\x03\x02" + HUGE),
    "a number of nine bytes": b"\xf7" + bytes(9),
    "a thousand types": b"".join(
        gob.message(gob.sint(-n) + b"\x02\x02" + gob.sint(n) + b"\0\0") for n in range(100, 1100)
    ),
}


def self_referring() -> bytes:
    """A message with one more field, of a slice of itself, a thousand deep."""
    common = b"\x01" + gob.text(b"Message") + b"\x01" + gob.sint(65) + b"\x00"
    fields = gob.field_type(b"Body", 6) + gob.field_type(b"More", 66)
    struct = gob.sint(-65) + b"\x03\x01" + common + b"\x01\x02" + fields + b"\0\0"
    loop = gob.sint(-66) + b"\x02\x02" + gob.sint(66) + b"\0\0"
    deep = b"\x01" * 1000 + b"\x00"
    return gob.message(struct) + gob.message(loop) + gob.message(VALUE + b"\x02" + deep + b"\0")


BOMBS["a type inside itself, too deep"] = self_referring()


@pytest.mark.parametrize("name", BOMBS)
def test_a_gob_bomb_is_refused(tmp_path: Path, name: str) -> None:
    refused(make(tmp_path / "q.bin", [framed(BOMBS[name])], 32 * RING), "no record")


def test_a_field_that_we_do_not_know_is_passed_over(tmp_path: Path) -> None:
    common = b"\x01" + gob.text(b"Message") + b"\x01" + gob.sint(65) + b"\x00"
    names = ((b"New", 67), (b"Flag", 1), (b"Body", 6), (b"Ratio", 4))
    fields = b"".join(gob.field_type(name, kind) for name, kind in names)
    struct = gob.sint(-65) + b"\x03\x01" + common + b"\x01\x04" + fields + b"\0\0"
    extra = gob.sint(-67) + b"\x04\x02" + gob.sint(6) + b"\x01" + gob.sint(5) + b"\0\0"
    value = struct_value([b"\x01" + gob.text(b"k") + gob.text(b"v"), b"\x01", gob.text(b"body")])
    record = gob.message(struct) + gob.message(extra) + gob.message(VALUE + value)
    assert bodies_at(make(tmp_path / "q.bin", [framed(record)], RING)) == [b"body"]


def struct_value(fields: list[bytes]) -> bytes:
    return b"".join(b"\x01" + field for field in fields) + b"\0"


def stage2(path: Path, record: bytes) -> Path:
    path.mkdir()
    used = 4 + len(record)
    head = struct.pack("<5IIIHHHH", 0x01535156, 49152 - used, 1, START, START + used,
                       262144, 345600, 0, 0, 30, 0xADDE)  # fmt: skip
    raw = head.ljust(START, b"\0") + len(record).to_bytes(4, "little") + record
    (path / "data.dat").write_bytes(raw.ljust(65536, b"\0"))
    return path


def test_a_gzip_bomb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(300 << 20), 9)[:40000]
    packed = gzip.compress(gzip.compress(bytes(1 << 10)) * 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number, record in enumerate((bomb, packed, b"\x1f\x8b not gzip", b"")):
        with pytest.raises((CorruptError, FormatError)):
            bodies_at(stage2(tmp_path / str(number), record))
    many = gob.message(VALUE + b"\x03" + gob.uint(10 << 20) + bytes(20 << 20) + b"\x01\0\0")
    with pytest.raises(CorruptError, match="attributes"):
        bodies_at(stage2(tmp_path / "many", gzip.compress(gob.types() + many, 9)))
    big = gzip.compress(bytes(40 << 20), 9)
    with pytest.raises(CorruptError):
        bodies_at(stage2(tmp_path / "big", big[:45000]))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10


def test_random_bytes_never_crash_a_reader(tmp_path: Path) -> None:
    rng = random.Random(20261115)
    good = gob.record(b"body", "id", {"a": ("Number", b"1")}, {"s": ("String", b"2")}, 3)
    for number in range(1500):
        raw = bytearray(good if number % 3 else rng.randbytes(len(good)))
        for _ in range(rng.randrange(1, 6)):
            raw[rng.randrange(4, len(raw))] = rng.randrange(256)
        path = make(tmp_path / "q.bin", [good[:4] + raw[4:]], 4096)
        with contextlib.suppress(PenstockError):
            bodies_at(path)


def test_a_file_cut_at_every_byte_is_refused(tmp_path: Path) -> None:
    whole = make(tmp_path / "q.bin", [gob.record(b"one"), gob.record(b"two")], 4096).read_bytes()
    path = tmp_path / "cut.bin"
    points = {*range(0, 40), *range(40, len(whole), 97), START - 1, START, START + 1}
    for size in sorted(points):
        path.write_bytes(whole[:size])
        with pytest.raises((CorruptError, FormatError)):
            bodies_at(path)
        with pytest.raises((CorruptError, FormatError)):
            Queue(path)
        assert path.read_bytes() == whole[:size]
