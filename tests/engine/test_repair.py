"""Repair sets damage aside: whole messages stay, readers go on, the note of what was lost stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import ClosedError, CorruptError, KeyNeededError, Queue, StorageError
from penstock.engine.repair import repair
from penstock.options import QueueOptions
from penstock.sidecar import damage, notes
from tests.reading import bodies_at, bodies_of

HEADER_BYTES = 4096


def segment_files(path: Path) -> list[Path]:
    return sorted((path / "log").glob("*.seg"))


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 0xFF]))


def position(segment: Path, offset: int) -> int:
    return HEADER_BYTES + offset - int(segment.stem)


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, list[int]]:
    """A queue of ten messages; the body of the fourth is wrong."""
    path = tmp_path / "q"
    with Queue(path) as queue:
        offsets = [queue.put(b"body %d" % number) for number in range(10)]
    segment = segment_files(path)[0]
    flip(segment, position(segment, offsets[3]) + 38)
    return path, offsets


WHOLE = [b"body %d" % number for number in range(10) if number != 3]


def test_damage_is_reported_until_it_is_repaired(damaged: tuple[Path, list[int]]) -> None:
    path, _ = damaged
    with pytest.raises(CorruptError):
        bodies_at(path)
    repair(path)
    assert bodies_at(path) == WHOLE


def test_a_group_reads_on_after_a_repair_without_an_error(damaged: tuple[Path, list[int]]) -> None:
    path, _ = damaged
    repair(path)
    with Queue(path) as queue:
        got = [message.body for message in queue.group("all").messages(0)]
        auto = [m.body for m in queue.group("auto", ack="auto").get_many(20)]
    assert got == WHOLE
    assert auto == WHOLE


def test_verify_is_content_after_a_repair_and_the_note_stays(
    damaged: tuple[Path, list[int]],
) -> None:
    path, offsets = damaged
    repair(path)
    with Queue(path, read_only=True) as queue:
        assert queue.verify().is_ok
        (entry,) = damage.load(queue.store.sidecar, queue.store.identity)
    assert (entry.first, entry.last) == (offsets[3], offsets[4])
    copy = (path / ".penstock" / "quarantine" / entry.copy).read_bytes()
    segment = segment_files(path)[0].read_bytes()
    assert copy == segment[entry.at : entry.at + entry.length]


def test_a_dry_run_says_the_same_and_changes_nothing(damaged: tuple[Path, list[int]]) -> None:
    path, offsets = damaged
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    report = repair(path, dry_run=True)
    assert [(e.first, e.last) for e in report.set_aside] == [(offsets[3], offsets[4])]
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_repaired_queue_takes_more_messages_at_the_old_tail(
    damaged: tuple[Path, list[int]],
) -> None:
    path, _ = damaged
    with Queue(path, read_only=True) as queue:
        tail = queue.offsets().tail
    repair(path)
    with Queue(path) as queue:
        assert queue.put(b"after") == tail
    assert bodies_at(path) == [*WHOLE, b"after"]


def test_a_second_repair_finds_nothing_to_do(damaged: tuple[Path, list[int]]) -> None:
    path, _ = damaged
    assert not repair(path).is_clean
    assert repair(path).is_clean


def test_several_ranges_are_kept_apart_over_several_repairs(
    damaged: tuple[Path, list[int]],
) -> None:
    path, offsets = damaged
    repair(path)
    segment = segment_files(path)[0]
    flip(segment, position(segment, offsets[7]))
    repair(path)
    assert bodies_at(path) == [body for body in WHOLE if body != b"body 7"]
    with Queue(path, read_only=True) as queue:
        assert len(queue.store.set_aside) == 2


def test_a_damaged_end_is_set_aside_up_to_the_tail(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path) as queue:
        offsets = [queue.put(b"body %d" % number) for number in range(3)]
    flip(segment_files(path)[0], position(segment_files(path)[0], offsets[2]) + 38)
    repair(path)
    assert bodies_at(path) == [b"body 0", b"body 1"]
    with Queue(path) as queue:
        queue.put(b"next")
    assert bodies_at(path) == [b"body 0", b"body 1", b"next"]


def many_segments(path: Path, key: bytes | None = None) -> list[int]:
    with Queue(path, segment_bytes=16384, key=key) as queue:
        return [queue.put(b"x" * 1000) for _ in range(60)]


def test_a_damaged_header_is_read_past_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "q"
    many_segments(path)
    second = segment_files(path)[1]
    flip(second, 20)
    with pytest.raises(CorruptError):
        bodies_at(path)
    with Queue(path, read_only=True) as queue:
        scan = queue.scan(tolerant=True)
        assert len(list(scan)) == 60
        assert [damage.path for damage in scan.damage] == [second]
        assert not queue.verify().is_ok
    report = repair(path)
    assert [damage.path for damage in report.rebuilt] == [second]
    assert len(bodies_at(path)) == 60
    with Queue(path, read_only=True) as queue:
        assert queue.verify().is_ok


def test_the_header_of_the_last_segment_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "q"
    many_segments(path)
    flip(segment_files(path)[-1], 3)
    with pytest.raises((CorruptError, ValueError)):
        Queue(path)
    repair(path)
    assert len(bodies_at(path)) == 60


def test_a_segment_whose_key_is_lost_with_its_header_is_set_aside_whole(tmp_path: Path) -> None:
    path, key = tmp_path / "q", b"k" * 32
    many_segments(path, key=key)
    second = segment_files(path)[1]
    flip(second, 80)
    repair(path, options=QueueOptions(key=key))
    with Queue(path, read_only=True, key=key) as queue:
        found = [message.offset for message in queue.scan()]
        assert queue.verify().is_ok
    first, after = int(second.stem), int(segment_files(path)[2].stem)
    assert found
    assert not [offset for offset in found if offset is not None and first <= offset < after]


def test_nothing_is_called_damage_without_the_key(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, key=b"k" * 32) as queue:
        offset = queue.put(b"secret")
    flip(segment_files(path)[0], position(segment_files(path)[0], offset) + 40)
    with Queue(path, read_only=True) as queue:
        for look in (queue.verify, lambda: list(queue.scan(tolerant=True))):
            with pytest.raises(KeyNeededError):
                look()
    with pytest.raises(KeyNeededError):
        repair(path)
    with pytest.raises(KeyNeededError):
        Queue(path)
    with Queue(path, key=b"k" * 32) as queue:
        assert not queue.verify().is_ok


def test_a_queue_that_someone_has_open_is_not_repaired(damaged: tuple[Path, list[int]]) -> None:
    path, _ = damaged
    with Queue(path), pytest.raises(StorageError, match="open"):
        repair(path)


def test_a_note_of_another_queue_at_the_same_path_counts_for_nothing(
    damaged: tuple[Path, list[int]],
) -> None:
    path, _ = damaged
    repair(path)
    assert damage.load(path / ".penstock", "another") == ()


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2}', '{"version": 1, "set_aside": [3]}'])
def test_a_note_that_makes_no_sense_counts_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / notes.KNOWN_DAMAGE).write_text(text)
    assert damage.load(tmp_path, "x") == ()


def test_a_queue_repairs_itself_and_goes_on(damaged: tuple[Path, list[int]]) -> None:
    path, offsets = damaged
    with Queue(path) as queue:
        assert len(queue.repair(dry_run=True).set_aside) == 1
        assert not queue.verify().is_ok
        report = queue.repair()
        assert [entry.first for entry in report.set_aside] == [offsets[3]]
        assert queue.verify().is_ok
        queue.put(b"after")
        assert [message.body for message in queue.get_many(20)] == [*WHOLE, b"after"]


def test_a_queue_that_others_have_open_is_not_repaired_and_stays_usable(
    damaged: tuple[Path, list[int]],
) -> None:
    path, _ = damaged
    with Queue(path), Queue(path) as queue:
        with pytest.raises(StorageError, match="another process has the queue open"):
            queue.repair()
        queue.put(b"after")


def test_a_queue_open_for_reading_only_says_what_a_repair_would_do(
    damaged: tuple[Path, list[int]],
) -> None:
    path, _ = damaged
    with Queue(path, read_only=True) as queue:
        assert len(queue.repair(dry_run=True).set_aside) == 1
        with pytest.raises(ClosedError):
            queue.repair()


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "mfq"])
def test_a_segment_that_is_gone_is_accepted_as_lost(
    tmp_path: Path, format: str, which: int
) -> None:
    """The note goes on saying so. What is put then is read, also where the queue is shorter now."""
    path = tmp_path / "q"
    with Queue(path, format=format, segment_bytes=16384, durability="process") as queue:
        for number in range(60):
            queue.put(b'{"n":%d,"text":"%s"}' % (number, b"x" * 1000))
        whole = bodies_of(queue.scan())
        gone = [info.path for info in queue.store.segments(fresh=True) if info.path.exists()][which]
    gone.unlink()
    with Queue(path, read_only=True) as queue:
        assert len(queue.verify().corrupt) == 1
    assert len(repair(path, dry_run=True).set_aside) == 1
    assert repair(path).set_aside
    with Queue(path, read_only=True) as queue:
        assert queue.verify().is_ok
        left = bodies_of(queue.scan())
    assert 0 < len(left) < 60
    assert left == [body for body in whole if body in left]
    for number in range(3):
        with Queue(path, durability="always") as queue:
            left.append(b'{"n":%d}' % (100 + number))
            queue.put(left[-1])
            assert bodies_of(queue.scan()) == left
    with Queue(path) as queue:
        assert bodies_of(queue.get_many(100)) == left
        assert queue.verify().is_ok
        assert damage.load(queue.store.sidecar, queue.store.identity)
    assert repair(path).is_clean
