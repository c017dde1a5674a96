"""What a crash, a power cut or a stranger leaves: read as far as it is whole, or a clear error."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock import CorruptError, FormatError, ManualClock, Queue, StorageError
from penstock.sidecar.control import CONTROL
from tests.copies import copy_as_killed, copy_open
from tests.formats.mfq.twin import Twin

PUT = [b"first", b"second one", b"the third", b"x" * 238, b"last"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    twin = Twin(tmp_path / "store", 1024)
    for body in PUT:
        twin.produce(body)
    return tmp_path / "store"


def segment(path: Path) -> Path:
    return path / "commitlog" / f"{0:020d}"


def read(path: Path) -> list[bytes]:
    with Queue(path, create=False, read_only=True) as queue:
        return [message.body for message in queue.scan()]


def test_what_never_reached_the_disk_ends_the_queue_at_every_byte(store: Path) -> None:
    twin = Twin(store)
    ends = [offset + len(body) + 5 for offset, body in twin.messages()]
    whole = segment(store).read_bytes()
    for cut in range(ends[-1]):
        segment(store).write_bytes(whole[:cut].ljust(len(whole), b"\0"))
        with Queue(store, create=False, read_only=True) as queue:
            found = [message.body for message in queue.scan()]
            kept = sum(end <= cut for end in ends)
            # A zero where a zero belongs is no loss.
            assert found[:kept] == PUT[:kept]
            assert len(found) <= kept + 1
            assert queue.stats()["dropped"] or found == PUT


def test_a_torn_tail_is_set_back_with_a_warning_and_a_count(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    twin = Twin(store)
    offsets = [offset for offset, _ in twin.messages()]
    twin.set("consumer.offset", twin.get("producer.offset"))
    twin._write(offsets[3] + 100, bytes(500))
    with caplog.at_level(logging.WARNING), Queue(store, create=False) as queue:
        assert [message.body for message in queue.scan()] == PUT[:3]
        (dropped,) = queue.stats()["dropped"]
        assert (dropped["path"], dropped["at"]) == (str(segment(store)), offsets[3])
        assert queue.put(b"goes on") == offsets[3]
    assert "producer.offset set back" in caplog.text
    assert twin.get("consumer.offset") == offsets[3]
    assert read(store) == [*PUT[:3], b"goes on"]


def test_a_segment_behind_the_end_is_set_aside(store: Path) -> None:
    stray = store / "commitlog" / f"{900:020d}"
    stray.write_bytes(bytes(1024))
    assert read(store) == PUT
    with Queue(store, create=False) as queue:
        queue.put(b"more")
    assert not stray.exists()
    assert [body for _, body in Twin(store).messages()] == [*PUT, b"more"]


def test_a_newest_file_without_bytes_never_came_to_be(store: Path) -> None:
    end = Twin(store).get("producer.offset")
    (store / "commitlog" / f"{end:020d}").touch()
    assert read(store) == PUT
    with Queue(store, create=False) as queue:
        queue.put(b"more")
    assert read(store) == [*PUT, b"more"]


@pytest.mark.parametrize("name", ["readme.txt", "5", "0" * 21, "0000000000000000000x"])
def test_a_file_that_is_no_segment_is_an_error_that_names_it(store: Path, name: str) -> None:
    (store / "commitlog" / name).write_bytes(bytes(1024))
    with pytest.raises(FormatError, match=rf"{name}.*20 digits"):
        read(store)


def test_a_segment_of_another_size_is_an_error(store: Path) -> None:
    end = Twin(store).get("producer.offset")
    (store / "commitlog" / f"{end:020d}").write_bytes(bytes(1000))
    with pytest.raises(FormatError, match=r"1000 bytes.*1024"):
        read(store)


def test_a_consumer_ahead_of_its_producer_is_an_error(store: Path) -> None:
    twin = Twin(store)
    twin.set("consumer.offset", twin.get("producer.offset") + 1)
    with pytest.raises(CorruptError, match=r"consumer\.offset.*at most the producer's"):
        read(store)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("producer.offset", -1, "0 or more"),
        ("consumer.offset", -5, "0 or more"),
        ("producer.offset", 1 << 40, ""),
    ],
)
def test_an_offset_that_can_t_be_is_an_error_or_set_back(
    store: Path, name: str, value: int, what: str
) -> None:
    Twin(store).set(name, value)
    if what:
        with pytest.raises(CorruptError, match=what):
            read(store)
    else:
        assert read(store) == PUT


def test_a_producer_behind_what_was_synced_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q"
    with Queue(path, format="mfq", segment_bytes=16384) as queue:
        queue.put_many(PUT)
        tail = queue.offsets().tail
    Twin(path).set("producer.offset", 10)
    assert read(path) == PUT
    with Queue(path, read_only=True) as queue:
        (damage,) = queue.verify().corrupt
        assert damage.path.name == "producer.offset"
        assert damage.found == "offset 10"
    with caplog.at_level(logging.WARNING), Queue(path, create=False) as queue:
        assert queue.put(b"more") == tail
    assert "producer.offset says 10" in caplog.text
    assert read(path) == [*PUT, b"more"]


def test_what_readers_were_shown_before_a_kill_stays(tmp_path: Path) -> None:
    """At `always` producer.offset comes after the sync: someone may be killed in between."""
    path, cut = tmp_path / "q", tmp_path / "cut"
    with Queue(path, format="mfq", segment_bytes=16384, durability="always") as queue:
        queue.put(b"synced")
        synced = queue.offsets().tail
        queue.put(b"shown")
        copy_as_killed(path, cut)
    Twin(cut).set("producer.offset", synced)
    with (cut / ".penstock" / "control").open("r+b") as stream:
        for word in ("durable", "publishing", "published"):
            stream.seek(CONTROL.offset_of(word))
            stream.write(synced.to_bytes(8, "little"))
    assert read(cut) == [b"synced", b"shown"]
    with Queue(cut, create=False) as again:
        assert [message.body for message in again.scan()] == [b"synced", b"shown"]
        assert again.stats()["dropped"] == []
        assert Twin(cut).get("producer.offset") == again.offsets().tail == synced + 10


def test_an_empty_file_among_the_segments_of_others_is_an_error(store: Path) -> None:
    for base in (300, 900):
        (store / "commitlog" / f"{base:020d}").write_bytes(bytes(0 if base == 300 else 1024))
    with pytest.raises(FormatError, match="has 0 bytes"):
        read(store)


def test_an_offset_file_cut_short_is_an_error(store: Path) -> None:
    (store / "offset" / "producer.offset").write_bytes(b"\1\2\3")
    with pytest.raises(CorruptError, match="3 bytes"):
        read(store)


def test_segments_that_are_gone_are_an_error(store: Path) -> None:
    segment(store).unlink()
    with pytest.raises(CorruptError, match="there is no segment"):
        read(store)


def test_damage_in_the_middle_is_reported_and_passed_over(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", format="mfq", segment_bytes=16384) as queue:
        offsets = [queue.put(bytes([n]) * 100) for n in range(10)]
    twin = Twin(tmp_path / "q")
    twin._write(offsets[4] + 50, b"!")
    with Queue(tmp_path / "q", create=False, read_only=True) as queue:
        with pytest.raises(CorruptError, match="checksum"):
            list(queue.scan())
        scan = queue.scan(tolerant=True)
        assert [m.offset for m in scan] == [o for o in offsets if o != offsets[4]]
        assert [damage.at for damage in scan.damage] == [offsets[4]]
        assert not queue.verify().is_ok


def test_a_power_cut_that_kept_the_consumer_s_page_alone_is_recovered(tmp_path: Path) -> None:
    clock = ManualClock()
    queue = Queue(tmp_path / "q", format="mfq", segment_bytes=16384, clock=clock)
    for n in range(5):
        queue.put(b"%d" % n)
    copy_open(tmp_path / "q", tmp_path / "cut")
    queue.close()
    twin = Twin(tmp_path / "cut")
    twin.set("consumer.offset", 10_000)
    clock.restart()
    with Queue(tmp_path / "cut", create=False, clock=clock) as again:
        assert [m.body for m in again.scan()] == [b"0", b"1", b"2", b"3", b"4"]
        assert twin.get("consumer.offset") == again.offsets().tail


def test_a_folder_that_can_t_be_written_says_so(store: Path) -> None:
    (store / ".penstock").write_text("in the way")
    with pytest.raises((StorageError, OSError)):
        Queue(store, create=False)


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0xEE, 0xFF])
def test_no_byte_that_is_changed_breaks_the_reader(store: Path, value: int) -> None:
    whole = segment(store).read_bytes()
    for at in range(Twin(store).get("producer.offset")):
        segment(store).write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        with Queue(store, create=False, read_only=True) as queue:
            found = [message.body for message in queue.scan(tolerant=True)]
        assert len(found) <= len(PUT) + 2
