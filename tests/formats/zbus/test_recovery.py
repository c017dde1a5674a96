"""What a crash leaves behind is dropped, counted and reported; what was written stays."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from penstock import CorruptError, PoisonedError, Queue, _core
from penstock.formats.zbus.index import slot_at
from penstock.formats.zbus.structs import TABLE
from penstock.sidecar.control import CONTROL
from tests.copies import copy_as_killed
from tests.reading import bodies

LAYOUTS = ("doc000", "doc001", "flag", "corr", "crc")
BLOCK_0 = "data/00000000000000000000.zbus"


def make(path: Path, layout: str, bodies: list[bytes], **options: Any) -> Path:
    with Queue(path, format="zbus", layout=layout, durability="process", **options) as queue:
        for number, body in enumerate(bodies):
            queue.put(body, id=f"id-{number}", tag="t")
    return path


def forget(path: Path) -> Path:
    """As an original program would have left it."""
    shutil.rmtree(path / ".penstock")
    return path


def poke(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(raw)


def set_end(path: Path, layout: str, block: int, end: int) -> None:
    at = slot_at(block) + TABLE[layout].entry.offset_of("end")
    poke(next(path.glob("*.idx")), at, struct.pack(">i", end))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_last_block_cut_at_any_byte_keeps_every_whole_message(
    layout: str, tmp_path: Path
) -> None:
    source = forget(make(tmp_path / "mq", layout, [b"one", b"", b"three"]))
    whole = (source / BLOCK_0).read_bytes()
    ends = [207, 411, 620]
    assert len(whole) == ends[-1]
    for size in range(len(whole)):
        path = source
        (path / BLOCK_0).write_bytes(whole[:size])
        kept = [b"one", b"", b"three"][: sum(end <= size for end in ends)]
        # Without a frame nothing tells a layout with CorrOffset from crc any more.
        options: dict[str, Any] = {"layout": layout} if size < 204 else {}
        with Queue(path, read_only=True, **options) as queue:
            assert bodies(queue) == kept
            assert queue.store.dropped
        if size % 40:
            continue
        path = Path(shutil.copytree(source, tmp_path / str(size)))
        with Queue(path, create=False, **options) as queue:
            queue.put(b"after")
            assert bodies(queue) == [*kept, b"after"]
        with Queue(path, read_only=True) as queue:
            assert queue.verify().is_ok
            # Without any frame the index is the only one who knows how far numbers got.
            first = TABLE[layout].first_number
            numbers = [first + n for n in range(len(kept) + 1)] if kept else [first + 3]
            assert [message.number for message in queue.scan()] == numbers


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_count_is_rebuilt_from_the_last_frame(layout: str, tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", layout, [b"one", b"two"]))
    at = TABLE[layout].index.offset_of("message_count")
    poke(path / "mq.idx", at, struct.pack(">q", 1))
    with Queue(path, create=False) as queue:
        assert [damage.found for damage in queue.store.dropped] == ["message count 1"]
        queue.put(b"three")
        assert queue.meta["message_count"] == 3
        numbers = [message.number for message in queue.scan()]
    assert len(set(numbers)) == 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_behind_a_block_that_is_damaged_throughout_are_new(
    layout: str, tmp_path: Path
) -> None:
    path = forget(make(tmp_path / "mq", layout, [b"x" * 20_000] * 3, segment_bytes=16384))
    _, second, third = sorted((path / "data").iterdir())
    second.write_bytes(b"\xff" * second.stat().st_size)
    third.write_bytes(third.read_bytes()[:100])
    with Queue(path, create=False, layout=layout) as queue:
        queue.put(b"new")
        found = queue.scan(tolerant=True)
        first = TABLE[layout].first_number
        assert [message.number for message in found] == [first, first + 3]
        assert {damage.path for damage in queue.verify().corrupt} == {second}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_end_word_behind_the_data_hides_what_was_not_published(
    layout: str, tmp_path: Path
) -> None:
    path = forget(make(tmp_path / "mq", layout, [b"one", b"two"]))
    set_end(path, layout, 0, 207)
    with Queue(path, create=False) as queue:
        assert bodies(queue) == [b"one"]
        found = [damage.found for damage in queue.store.dropped]
        assert "stray bytes after the end" in found
        queue.put(b"new")
        assert bodies(queue) == [b"one", b"new"]
    assert (path / BLOCK_0).stat().st_size == 414


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_readers_were_shown_before_a_kill_stays(layout: str, tmp_path: Path) -> None:
    """At `always` the index's words come after the sync: someone may be killed in between."""
    path, cut = tmp_path / "mq", tmp_path / "cut"
    with Queue(path, format="zbus", layout=layout, durability="always") as queue:
        queue.put(b"synced", id="id-0", tag="t")
        synced = queue.offsets().tail
        index = (path / "mq.idx").read_bytes()
        queue.put(b"shown", id="id-1", tag="t")
        copy_as_killed(path, cut)
    (cut / "mq.idx").rename(cut / "cut.idx").write_bytes(index)
    for word in ("durable", "publishing", "published"):
        at = CONTROL.offset_of(word)
        poke(cut / ".penstock" / "control", at, synced.to_bytes(8, "little"))
    with Queue(cut, read_only=True) as queue:
        assert bodies(queue) == [b"synced", b"shown"]
    with Queue(cut, create=False) as queue:
        assert queue.store.dropped == ()
        assert queue.meta["message_count"] == 2
        queue.put(b"after")
        numbers = [message.number for message in queue.scan()]
        assert bodies(queue) == [b"synced", b"shown", b"after"]
    assert numbers == [TABLE[layout].first_number + n for n in range(3)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_block_that_was_counted_and_never_entered_is_taken_back(
    layout: str, tmp_path: Path
) -> None:
    path = forget(make(tmp_path / "mq", layout, [b"one", b"two"]))
    poke(path / "mq.idx", 4, struct.pack(">i", 2))
    with Queue(path, read_only=True) as queue:
        assert bodies(queue) == [b"one", b"two"]
        assert [damage.found for damage in queue.verify().torn] == ["an entry of zeros"]
    with Queue(path, create=False) as queue:
        queue.put(b"three")
        assert queue.meta["block_count"] == 1
        assert bodies(queue) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_last_block_is_the_end_and_is_written_to(layout: str, tmp_path: Path) -> None:
    path = make(tmp_path / "mq", layout, [b"one"])
    with Queue(path) as queue:
        queue.store.roll(0, 0)
    with Queue(forget(path), create=False) as queue:
        assert queue.meta["block_count"] == 2
        assert [m.body for m in queue.get_many(9)] == [b"one"]
        assert queue.get_many(9) == []
        queue.put(b"two")
        assert [(m.body, m.number) for m in queue.scan()] == [
            (b"one", TABLE[layout].first_number),
            (b"two", TABLE[layout].first_number + 1),
        ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_block_file_that_is_gone_is_reported_and_passed_over(layout: str, tmp_path: Path) -> None:
    big = [b"%d" % n * 20_000 for n in range(4)]
    path = make(tmp_path / "mq", layout, big, segment_bytes=16384)
    gone = path / "data" / f"{2 * 20_204:020d}.zbus"
    gone.unlink()
    with Queue(path, create=False, segment_bytes=16384) as queue:
        with pytest.raises(CorruptError, match=gone.name) as error:
            bodies(queue)
        assert error.value.at == 0
        scan = queue.scan(tolerant=True)
        assert [message.body for message in scan] == [big[0], big[1], big[3]]
        assert [damage.path for damage in scan.damage] == [gone]
        assert [damage.path for damage in queue.verify().corrupt] == [gone]
    assert not gone.exists()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_last_block_file_that_is_gone_is_never_made_anew(layout: str, tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", layout, [b"x" * 20_000] * 2, segment_bytes=16384))
    gone = path / "data" / f"{20_204:020d}.zbus"
    gone.unlink()
    with Queue(path, create=False, layout=layout) as queue:
        assert [d.found for d in queue.store.dropped] == ["no file"]
        queue.put(b"after")
        found = list(queue.scan(tolerant=True))
        assert [(m.offset, m.body) for m in found] == [(0, b"x" * 20_000), (40_408, b"after")]
        assert [m.number for m in found] == [TABLE[layout].first_number + n for n in (0, 2)]
    assert not gone.exists()


def test_damage_inside_a_foreign_last_block_is_not_its_end(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "crc", [b"one", b"two", b"three"]))
    poke(path / BLOCK_0, 207 + 70, b"\xff")
    with Queue(path, create=False) as queue:
        assert len(queue) == 3
        with pytest.raises(CorruptError, match="checksum"):
            bodies(queue)
        assert [m.body for m in queue.scan(tolerant=True)] == [b"one", b"three"]
        queue.put(b"four")
        assert [m.body for m in queue.scan(tolerant=True)] == [b"one", b"three", b"four"]


def test_zeros_that_an_end_word_was_ahead_of_are_dropped(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "corr", [b"one", b"two"]))
    raw = (path / BLOCK_0).read_bytes()
    (path / BLOCK_0).write_bytes(raw[:207] + bytes(207))
    with Queue(path, create=False) as queue:
        assert bodies(queue) == [b"one"]
        assert queue.store.dropped
        assert queue.put(b"two again") == 207
        assert bodies(queue) == [b"one", b"two again"]


def test_a_last_block_of_nothing_but_zeros_is_empty(tmp_path: Path) -> None:
    path = make(tmp_path / "mq", "corr", [b"x"])
    (path / BLOCK_0).write_bytes(bytes(205))
    with Queue(forget(path), create=False, layout="corr") as queue:
        assert bodies(queue) == []
        assert queue.offsets().tail == 0


def test_an_entry_whose_end_is_behind_the_next_block_is_reported(tmp_path: Path) -> None:
    path = make(tmp_path / "mq", "corr", [b"x" * 20_000] * 3, segment_bytes=16384)
    set_end(path, "corr", 0, 204)
    with Queue(path, read_only=True) as queue:
        assert len(bodies(queue)) == 3
        assert ["ends at 204" in d.found for d in queue.verify().corrupt] == [True]


def test_a_failed_sync_writes_what_was_not_synced_elsewhere(tmp_path: Path) -> None:
    for layout in ("corr", "crc"):
        path = tmp_path / layout
        queue = Queue(path, format="zbus", layout=layout, durability="process")
        queue.put(b"synced")
        queue.sync()
        queue.put(b"in doubt")
        queue.put(b"in doubt too")
        _core.fail_syncs(5)
        try:
            with pytest.raises(PoisonedError):
                queue.sync()
        finally:
            _core.fail_syncs(0)
        with pytest.raises(PoisonedError):
            queue.put(b"never")
        queue.close()
        (last,) = (path / "data").iterdir()
        before = last.stat().st_ino
        with last.open("rb"), Queue(path, create=False) as queue:
            assert bodies(queue) == [b"synced", b"in doubt", b"in doubt too"]
            assert last.stat().st_ino != before
            queue.put(b"again")
            assert queue.verify().is_ok
        with Queue(path, read_only=True) as queue:
            assert bodies(queue) == [b"synced", b"in doubt", b"in doubt too", b"again"]
            assert len({m.number for m in queue.scan()}) == 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_zbus_program_wrote_since_we_closed_it_is_seen_by_readers_too(
    layout: str, tmp_path: Path
) -> None:
    path = make(tmp_path / "mq", layout, [b"one"])
    later = Path(shutil.copytree(path, tmp_path / "later"))
    with Queue(later, create=False) as queue:
        queue.put(b"two")
    shutil.copytree(path / ".penstock", forget(later) / ".penstock")  # What we knew before.
    with Queue(later, read_only=True) as queue:
        assert bodies(queue) == [b"one", b"two"]
        assert queue.verify().is_ok
        assert queue.verify().unchecked == 1
