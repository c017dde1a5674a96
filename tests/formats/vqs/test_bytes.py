"""What we write is, byte for byte, the page's header and the later program's record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import FormatError, Full, Queue, UnsupportedError
from penstock.options import DurabilityName
from tests.formats.vqs import gob
from tests.formats.vqs.files import START, header, make, read, ring_of
from tests.reading import bodies_at

NEW = bytes.fromhex("56515301 00c0ff07 00000000 00400000 00400000 0000 00000400 00460500 0000 1e00")
PAGE = 4096


def test_a_new_file_is_the_one_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "jobs.bin"
    Queue(path, format="vqs").close()
    assert path.stat().st_size == 128 << 20
    with path.open("rb") as stream:
        assert stream.read(START) == NEW.ljust(START, b"\0")
        while piece := stream.read(1 << 22):
            assert not any(piece)
    assert path.stat().st_blocks * 512 >= path.stat().st_size  # fallocated, not sparse
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_new_stage_four_has_its_two_files(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    Queue(path, format="vqs", layout="stage4").close()
    assert (path / "meta.dat").stat().st_size == 1 << 20
    assert (path / "data.dat").stat().st_size == 128 << 20
    head = "56515301 00000008 00000000 00000000 00000000 00000400 00460500 0000 0000 1e00 dead"
    assert (path / "meta.dat").read_bytes() == bytes.fromhex(head).ljust(1 << 20, b"\0")


def test_records_are_those_of_an_encoder_written_from_the_description(tmp_path: Path) -> None:
    path = tmp_path / "q.bin"
    binary = bytes(range(256))
    cases: list[tuple[bytes, dict[str, Any], bytes]] = [
        (b"hello", {"id": "0b5f"}, gob.record(b"hello", "0b5f")),
        (b"", {}, gob.record(b"")),
        (binary * 300, {}, gob.record(binary * 300)),
        (b"a", {"headers": {"k": "v"}}, gob.record(b"a", attributes={"k": ("String", b"v")})),
        (
            b"n",
            {"headers": {"vqs.attr.n": "42", "vqs.attr-type.n": "Number"}},
            gob.record(b"n", attributes={"n": ("Number", b"42")}),
        ),
        (
            b"s",
            {"headers": {"vqs.attr64.b": "AAH/", "vqs.system.AWSTraceHeader": "Root=1"}},
            gob.record(
                b"s",
                attributes={"b": ("Binary", b"\x00\x01\xff")},
                system={"AWSTraceHeader": ("String", b"Root=1")},
            ),
        ),
        (b"d", {"delay": 4.2}, gob.record(b"d", delay=5)),
        (b"w", {"headers": {"vqs.delay": "300"}}, gob.record(b"w", delay=300)),
        (b"v", {"headers": {"vqs.delay": "300"}, "delay": 4.2}, gob.record(b"v", delay=300)),
    ]
    with Queue(path, format="vqs", max_bytes=1 << 18) as queue:
        for body, options, _ in cases:
            queue.put(body, **options)
        expected = b"".join(record for *_, record in cases)
    assert ring_of(path) == expected.ljust(1 << 18, b"\0")
    found = header(path)
    assert found["count"] == len(cases)
    assert found["capacity_left"] == (1 << 18) - len(expected)
    assert found["write_offset"] == START + len(expected)
    assert found["read_offset"] == START
    for message, (body, options, _) in zip(read(path), cases, strict=True):
        assert message.body == body
        if "headers" in options:
            assert message.headers == options["headers"]


@pytest.mark.parametrize(
    "headers",
    [
        {"weight": "17", "vqs.attr-type.weight": "Number"}, {"vqs.system-type.x": "Number"},
        {"weight": "17", "vqs.attr.weight": "18"}, {"weight": "17", "vqs.attr64.weight": "AAAA"},
        {"vqs.attr.b": "1", "vqs.attr64.b": "AAAA"}, {"vqs.system.b": "1", "vqs.system64.b": ""},
    ],
)  # fmt: skip
def test_a_header_that_would_be_lost_is_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    with Queue(tmp_path / "q.bin", format="vqs", max_bytes=1 << 16) as queue:
        with pytest.raises(UnsupportedError, match="header"):
            queue.put(b"x", headers=headers)
        assert queue.offsets().tail == 0
        queue.put(b"x", headers={"b": "1", "vqs.system.b": "2", "vqs.attr.vqs.b": "3"})
        assert len(next(iter(queue.scan())).headers) == 3


@pytest.mark.parametrize("header_name", ["vqs.other", "vqs.attr64.x", "vqs.delay"])
def test_headers_that_mean_nothing_are_refused(tmp_path: Path, header_name: str) -> None:
    with Queue(tmp_path / "q.bin", format="vqs", max_bytes=1 << 16) as queue:
        with pytest.raises(UnsupportedError, match="vqs"):
            queue.put(b"x", headers={header_name: "no base64, no number"})
        assert queue.offsets().tail == 0


def test_the_payload_is_the_record_also_when_the_ring_has_gone_on(tmp_path: Path) -> None:
    plain, full = gob.record(b"one", "id"), gob.record(b"two", attributes={"a": ("Number", b"1")})
    path = make(tmp_path / "q.bin", [plain, full], PAGE)
    assert [message.payload for message in read(path)] == [plain[4:], full[4:]]
    with Queue(path, durability="process") as queue:
        table = pa.table(queue.scan(columns=["payload"]))
        assert table.column("payload").to_pylist() == [plain[4:], full[4:]]
        held = queue.get_many(2)
        for message in held:
            message.ack()
        for _ in range(50):
            queue.put(b"x" * 300)
            queue.get(0).ack()
        assert [message.payload for message in held] == [plain[4:], full[4:]]
        assert [message.body for message in held] == [b"one", b"two"]


@pytest.mark.parametrize("first", [64, 65, 70, 8000])
def test_type_ids_are_taken_from_the_stream(tmp_path: Path, first: int) -> None:
    records = [gob.record(b"one", "1", {"a": ("Number", b"7")}, first=first), gob.record(b"two")]
    path = make(tmp_path / "q.bin", records, 8192)
    one, two = read(path)
    assert (one.body, one.id, two.body) == (b"one", "1", b"two")
    assert one.headers == {"vqs.attr-type.a": "Number", "vqs.attr.a": "7"}


@pytest.mark.parametrize("before_end", range(9))
def test_a_record_may_wrap_anywhere_also_inside_its_length(tmp_path: Path, before_end: int) -> None:
    """The second record begins this many bytes before the end of the ring: read, and written."""
    first, second, third = gob.record(b"a" * 100), gob.record(b"b" * 150), gob.record(b"c" * 30)
    at = 2 * PAGE - before_end - len(first)
    path = make(tmp_path / "hand.bin", [first, second, third], 2 * PAGE, at)
    expected = [b"a" * 100, b"b" * 150, b"c" * 30]
    assert bodies_at(path) == expected
    ours = make(tmp_path / "ours.bin", [], 2 * PAGE, at)
    with Queue(ours, when_full="reject") as queue:
        for body in expected:
            queue.put(body)
        assert [message.body for message in queue.get_many(9)] == expected
    assert ring_of(ours) == ring_of(path)
    assert header(ours) == header(path)


@pytest.mark.parametrize("durability", ["process", "interval", "always"])
def test_many_laps_of_one_page_at_every_level(tmp_path: Path, durability: DurabilityName) -> None:
    path = tmp_path / "q.bin"
    random_ = random.Random(7)
    with Queue(path, format="vqs", max_bytes=PAGE, durability=durability) as queue:
        group = queue.group()
        for number in range(120):
            put = [b"%03d" % number + random_.randbytes(random_.randrange(900)) for _ in range(3)]
            queue.put_many(put)
            found = group.get_many(9)
            assert [message.body for message in found] == put
            for message in found:
                message.ack()
        assert queue.offsets().tail > 40 * PAGE
        assert queue.verify().is_ok
    found_header = header(path)
    assert found_header["count"] == 0
    assert found_header["capacity_left"] == PAGE
    assert found_header["read_offset"] == found_header["write_offset"]


def test_the_ring_fills_to_the_last_byte_and_no_further(tmp_path: Path) -> None:
    """The original counts the length only after it has looked whether the record fits."""
    overhead = len(gob.record(b"x" * 200)) - 200
    path = tmp_path / "q.bin"
    with Queue(path, format="vqs", max_bytes=PAGE, when_full="reject") as queue:
        queue.group()
        queue.put(b"x" * (PAGE // 2 - overhead - 2))
        left = header_left(queue)
        for spare in (1, 2, 3, 4):
            with pytest.raises(Full):
                queue.put(b"y" * (left - overhead - 2 + spare))
        queue.put(b"y" * (left - overhead - 2))
        assert header_left(queue) == 0
        assert [len(message.body) for message in queue.get_many(9)][1:] == [left - overhead - 2]
    found = header(path)
    assert (found["capacity_left"], found["count"]) == (0, 2)
    assert found["read_offset"] == found["write_offset"] == START
    assert len(bodies_at(path)) == 2


def header_left(queue: Queue) -> int:
    left: int = queue.meta["capacity_left"]
    return left


def test_a_body_larger_than_the_ring_is_refused_and_says_so(tmp_path: Path) -> None:
    with Queue(tmp_path / "q.bin", format="vqs", max_bytes=PAGE) as queue:
        with pytest.raises(UnsupportedError, match="never fit"):
            queue.put(b"x" * PAGE)
        assert queue.put(b"x") == 0


def test_an_odd_ring_is_read_and_not_written(tmp_path: Path) -> None:
    """One byte more than a record: it can't be mapped twice in a row."""
    record = gob.record(b"only")
    for at in (0, 1, 5, len(record)):
        path = make(tmp_path / f"{at}.bin", [record], len(record) + 1, at)
        before = path.read_bytes()
        assert bodies_at(path) == [b"only"]
        with pytest.raises(FormatError, match="multiple of 4096"):
            Queue(path)
        assert path.read_bytes() == before
