"""The live ring: what is given back and when, another size, other programs, crashes, damage."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import CorruptError, ManualClock, OptionError, Queue, _core
from penstock.formats.vqs import extent, resize, settings
from penstock.sidecar import notes
from penstock.sidecar.control import CONTROL
from tests import lockwords, opening
from tests.formats.checks import Checks
from tests.formats.vqs import files, gob
from tests.formats.vqs.files import START, header, make
from tests.reading import bodies_at

PAGE = 4096
SIZE = 4 * PAGE


open_queue = functools.partial(opening.open_queue, format="vqs", max_bytes=SIZE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.bin"


def numbered(first: int, last: int, size: int = 200) -> list[bytes]:
    return [b"%06d" % number + b"." * size for number in range(first, last)]


def test_the_head_is_the_lowest_cursor_of_all_groups(path: Path) -> None:
    with open_queue(path) as queue:
        fast, slow = queue.group("fast"), queue.group("slow")
        offsets = [queue.put(body) for body in numbered(0, 10)]
        for message in fast.get_many(10):
            message.ack()
        out = slow.get_many(10)
        for message in out[1:5]:
            message.ack()
        queue.sync()
        assert (queue.offsets().head, header(path)["count"]) == (offsets[0], 10)
        out[0].ack()
        queue.sync()
        assert (queue.offsets().head, header(path)["count"]) == (offsets[5], 5)
        assert header(path)["read_offset"] == START + offsets[5]
    assert bodies_at(path) == numbered(5, 10)


def test_a_message_stays_whole_when_its_space_is_used_again(path: Path) -> None:
    with open_queue(path) as queue:
        held = []
        for number in range(300):
            queue.put(numbered(number, number + 1)[0])
            message = queue.get(0)
            message.ack()
            held.append(message)
        assert queue.offsets().tail > 4 * SIZE
        assert [message.body for message in held] == numbered(0, 300)


def test_a_scan_beside_a_busy_ring_never_sees_bytes_of_a_later_lap(path: Path) -> None:
    stop = threading.Event()
    seen: list[bytes] = []
    with open_queue(path, when_full="block") as queue:
        group = queue.group(ack="auto")

        def turn() -> None:
            number = 0
            while not stop.is_set():
                queue.put_many(numbered(number, number + 20))
                group.get_many(20)
                number += 20

        thread = threading.Thread(target=turn)
        thread.start()
        while queue.offsets().tail < 12 * SIZE or not seen:
            for message in queue.scan():
                assert message.body[6:] == b"." * 200
                seen.append(message.body)
        stop.set()
        thread.join()
        assert queue.offsets().tail > 10 * SIZE
    assert seen


def test_drop_oldest_gives_up_what_nobody_has_read(path: Path) -> None:
    with open_queue(path, when_full="drop-oldest") as queue:
        group = queue.group()
        for body in numbered(0, 200):
            queue.put(body)
        kept = [message.body for message in group.get_many(999)]
        assert kept == numbered(200 - len(kept), 200)
        assert 10 < len(kept) < 60
        assert header(path)["count"] == len(kept)


# ── another size ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", ["doc", "stage4"])
@pytest.mark.parametrize("size", [2 * PAGE, 3 * PAGE, 64 * PAGE])
def test_resizing_keeps_messages_offsets_leases_and_settings(
    tmp_path: Path, layout: str, size: int
) -> None:
    path = tmp_path / ("q.bin" if layout == "doc" else "q")
    with open_queue(path, layout=layout) as queue:
        for number in range(40):
            queue.put(numbered(number, number + 1)[0], key="k" if number > 36 else None)
            if number < 35:
                queue.get(0).ack()
        queue.set_meta(labels={"a": "b"}, wait_seconds=4)
        held = queue.get(0)
        queue.sync()
        before = [(message.offset, message.body, message.key) for message in queue.scan()]
        start = START if layout == "doc" else 0
        queue.store.resize(start + size)
        assert queue.meta["ring_bytes"] == size
        assert [(m.offset, m.body, m.key) for m in queue.scan()][-5:] == before[-5:]
        held.ack()
        assert queue.get(0).body == numbered(36, 37)[0]
        queue.put(b"after")
        assert queue.verify().is_ok
        assert queue.meta["labels"] == {"a": "b"}
    with Queue(path) as again:
        assert [m.body for m in again.scan()][-1] == b"after"
        assert (again.meta["ring_bytes"], again.meta["wait_seconds"]) == (size, 4)
        assert again.verify().unchecked == 0


def test_a_ring_is_not_made_smaller_than_what_it_holds(path: Path) -> None:
    with open_queue(path) as queue:
        queue.put_many(numbered(0, 30))
        before = path.read_bytes()
        for size in (START + PAGE, START, 1, 1 << 33):
            with pytest.raises(OptionError, match=r"file_bytes.*(in use|to \d+ bytes)"):
                queue.store.resize(size)
        assert path.read_bytes() == before
        assert len(queue) == 30


def put_and_get(checks: Checks, channel: Any, path: Path) -> None:
    with open_queue(path) as queue:
        queue.put(b"before")
        channel.send(queue.get(5).body)
        channel.recv()
        queue.put_many([b"x" * 3000] * 8)
        channel.send([len(message.body) for message in queue.get_many(99)])


def test_other_processes_go_on_in_the_new_file(path: Path) -> None:
    with open_queue(path) as queue, Checks().other_process(put_and_get, path) as other:
        assert other.hear() == b"before"
        queue.store.resize(START + 16 * PAGE)
        other.tell(True)
        assert other.hear() == [3000] * 8
        assert other.end() == 0
        assert [len(message.body) for message in queue.scan()] == [6, *[3000] * 8]
    assert path.stat().st_size == START + 16 * PAGE


def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(path) as queue, open_queue(path) as other:
        put = numbered(0, 100)
        for body in put:
            other.put(body)
            other.get(0).ack()
        sides = other.store.format.side_files

        def replace_first() -> dict[str, Any]:
            monkeypatch.setattr(other.store.format, "side_files", sides)
            queue.store.resize(START + 7 * PAGE)
            return sides()

        monkeypatch.setattr(other.store.format, "side_files", replace_first)
        queue.store.resize(START + 3 * PAGE)
        for body in put:
            for putter, getter in ((other, queue), (queue, other)):
                putter.put(body)
                message = getter.get(0)
                assert message.body == body
                message.ack()
        assert queue.verify().is_ok


def turn_there(checks: Checks, channel: Any, path: Path) -> None:
    with open_queue(path, when_full="block") as queue:
        group = queue.group("there", ack="auto")
        channel.send(True)
        number = 0
        while not number or not channel.poll():
            put = numbered(number, number + 5)
            queue.put_many(put)
            assert [message.body for message in group.get_many(5)] == put
            number += 5
        channel.send(number)


def test_another_process_puts_and_gets_while_the_size_changes(path: Path) -> None:
    with open_queue(path) as queue, Checks().other_process(turn_there, path) as other:
        other.hear()
        for number in range(40):
            with contextlib.suppress(OptionError):  # More is in use just now.
                queue.store.resize(START + (4 + number % 5) * PAGE)
            list(queue.scan())
        other.tell(True)
        assert other.hear() > 0
        assert other.end() == 0
        assert queue.verify().is_ok


def test_puts_and_acks_go_on_while_a_ring_is_copied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(path) as queue:
        group = queue.group("g")
        queue.put_many(numbered(0, 5))
        usual = resize.copy_ring

        def copy_meanwhile(*parts: Any) -> None:
            usual(*parts)
            group.get(0).ack()
            queue.put_many(numbered(5, 8))
            queue.sync()

        monkeypatch.setattr(resize, "copy_ring", copy_meanwhile)
        queue.store.resize(START + 16 * PAGE)
        queue.put_many(numbered(8, 9))
        assert [message.body for message in queue.scan()] == numbered(1, 9)
        assert [message.body for message in group.get_many(9)] == numbered(1, 9)
        assert queue.verify().is_ok
    assert bodies_at(path) == numbered(1, 9)


def test_a_put_goes_on_while_settings_are_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_queue(path) as queue:
        usual = settings.change

        def change_meanwhile(*parts: Any) -> None:
            queue.put(b"before")
            usual(*parts)
            queue.put(b"after")

        monkeypatch.setattr(settings, "change", change_meanwhile)
        queue.set_meta(delay_seconds=3)
        assert queue.meta["delay_seconds"] == 3
        assert [message.body for message in queue.scan()] == [b"before", b"after"]
    assert bodies_at(path) == [b"before", b"after"]


class DiesAfterTheRename:
    """`VqsHeader.replace` up to the rename, by somebody who then dies with the append lock."""

    def __init__(self, queue: Queue, channel: Any) -> None:
        self.queue, self.channel = queue, channel

    def replace(self, segment: _core.Segment, fresh: Path, ring: int, copied: int) -> None:
        lockwords.hold_append_lock(self.queue)
        with (self.queue.store.sidecar / "control").open("r+b", buffering=0) as block:
            block.seek(CONTROL.offset_of("reserved_end"))
            block.write((copied + 1).to_bytes(8, "little"))
        fresh.rename(segment.path)
        self.channel.send(True)
        os._exit(1)


def die_after_the_rename(checks: Checks, channel: Any, path: Path) -> None:
    queue = open_queue(path)
    format: Any = queue.store.format
    format.vqs = DiesAfterTheRename(queue, channel)
    queue.store.resize(START + 16 * PAGE)


def recorded(work: Callable[[], object]) -> list[str]:
    """The kinds of what `work` does to files."""
    _core.take_effects()
    _core.record_effects(True)
    try:
        work()
    finally:
        _core.record_effects(False)
    return [str(effect[0]) for effect in _core.take_effects()]


def test_whoever_dies_between_rename_and_telling_loses_nothing(path: Path) -> None:
    with open_queue(path) as queue:
        queue.put(b"one")
        with Checks().other_process(die_after_the_rename, path) as other:
            other.hear()
            other.end()
        with_put = recorded(lambda: queue.put(b"two"))
        with_sync = recorded(queue.sync)
        assert [message.body for message in queue.scan()] == [b"one", b"two"]
        assert queue.meta["ring_bytes"] == 16 * PAGE
    assert not any("sync" in kind for kind in with_put), (
        "nobody waits for a disk with the lock held"
    )
    assert "sync_folder" in with_sync, "or the new name may be lost, with what was put behind it"
    assert bodies_at(path) == [b"one", b"two"]


# ── other programs ─────────────────────────────────────────────────────────────────────────


def test_a_file_that_another_program_changed_is_taken_over(path: Path) -> None:
    with open_queue(path, max_bytes=2 * PAGE) as queue:
        queue.group()
        queue.put_many([b"ours"] * 3)
        tail = queue.offsets().tail
    make(path, [gob.record(b"theirs"), gob.record(b"too")], 2 * PAGE, at=300)
    with Queue(path, read_only=True) as reader:
        assert [message.body for message in reader.scan()] == [b"theirs", b"too"]
    with Queue(path) as queue:
        assert queue.offsets().head >= tail
        assert [message.body for message in queue.get_many(9)] == [b"theirs", b"too"]
        assert queue.verify().is_ok
        queue.put(b"ours again")
    assert bodies_at(path) == [b"theirs", b"too", b"ours again"]


def test_the_copy_of_a_file_without_its_sidecar_is_whole(path: Path) -> None:
    with open_queue(path) as queue:
        queue.group("hold")
        queue.put_many(numbered(0, 5))
        queue.get_many(3)[0].ack()
    copy = path.with_name("copy.bin")
    copy.write_bytes(path.read_bytes())
    assert bodies_at(copy) == numbered(0, 5)


# ── crashes and damage ─────────────────────────────────────────────────────────────────────


def test_a_torn_header_is_made_anew_after_a_kill(path: Path) -> None:
    with Checks().other_process(die_with_messages, path) as other:
        put = other.hear()
        other.end()
    tear(path)
    assert bodies_at(path) == put
    with open_queue(path) as queue:
        assert [message.body for message in queue.scan()] == put
    assert header(path)["count"] == 20


def tear(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.seek(6)
        stream.write(b"\xff" * 11)


def test_a_reader_that_stays_open_sees_what_came_and_went_meanwhile(path: Path) -> None:
    with open_queue(path) as queue:
        queue.group("hold")
        queue.put(b"0")
    with Queue(path, read_only=True) as reader:
        for number in range(1, 4):
            with Queue(path) as queue:
                queue.put(b"%d" % number)
            assert [int(message.body) for message in reader.scan()] == [*range(number + 1)]
            assert (len(reader), reader.meta["count"]) == (number + 1, number + 1)
        with Queue(path) as queue:
            queue.store.resize(START + 2 * SIZE)
            assert len(list(reader.scan())) == 4
            queue.group("hold").get(0).ack()
            queue.put(b"4")
        assert [message.body for message in reader.scan()] == [b"1", b"2", b"3", b"4"]
        assert reader.meta["ring_bytes"] == 2 * SIZE


def die_with_messages(checks: Checks, channel: Any, path: Path) -> None:
    queue = open_queue(path)
    queue.put_many(numbered(0, 20))
    channel.send(numbered(0, 20))
    os._exit(1)


def sync_and_die(checks: Checks, channel: Any, path: Path) -> None:
    queue = open_queue(path, durability="interval", sync_interval_s=3600, checksums=False)
    queue.put_many(numbered(0, 5))
    queue.sync()
    channel.send(True)
    channel.recv()
    queue.put_many(numbered(5, 8))
    channel.send(True)
    os._exit(1)


def test_after_a_power_loss_the_extent_on_disk_says_where_the_ring_ends(path: Path) -> None:
    with Checks().other_process(sync_and_die, path) as other:
        other.hear()
        image = path.read_bytes()
        other.tell(True)
        other.hear()
        other.end()
    path.write_bytes(image)
    tear(path)
    clock = ManualClock()  # Another boot: only what was synced counts.
    with Queue(path, read_only=True, clock=clock) as reader:
        assert [message.body for message in reader.scan()] == numbered(0, 5)
    with Queue(path, clock=clock) as again:
        assert [message.body for message in again.scan()] == numbered(0, 5)
        assert again.stats()["dropped"]
        again.put(b"next")
    assert header(path)["count"] == 6


def test_who_joins_at_always_makes_the_end_exact(path: Path, tmp_path: Path) -> None:
    """What others put below `always` is kept as far as it checks, which may be half a list; from
    when someone is there who may put one at `always` it is not."""
    clock, found = ManualClock(), []
    with open_queue(path, clock=clock) as queue:
        for number, level in enumerate(("process", "always", "process")):
            with open_queue(path, clock=clock, durability=level):
                queue.put_many(numbered(2 * number, 2 * number + 2))
                left = tmp_path / str(number)
                shutil.copytree(path.parent, left, ignore=shutil.ignore_patterns("[0-9]"))
            later = ManualClock()  # Another boot.
            with Queue(left / path.name, read_only=True, clock=later) as reader:
                found.append(len(list(reader.scan())))
    assert found == [2, 2, 4]


def test_a_torn_extent_leaves_the_one_before(path: Path, tmp_path: Path) -> None:
    with open_queue(path, durability="always") as queue:
        known = set()
        for body in (b"one", b"two"):
            queue.put(body)
            file = queue.store.sidecar / notes.RING_EXTENT
            newest = extent.read(queue.store.sidecar)
            assert newest is not None
            known.add((newest.sequence, newest.end.tail))
        assert newest is not None
        for slot in extent.SLOTS:
            raw = bytearray(file.read_bytes())
            raw[slot + 30] ^= 1
            torn = tmp_path / "torn"
            torn.mkdir(exist_ok=True)
            (torn / notes.RING_EXTENT).write_bytes(raw)
            kept = extent.read(torn)
            assert kept is not None
            assert kept.sequence >= newest.sequence - 1
            assert kept.end.tail <= newest.end.tail, "what it says was never so"
            assert (kept.sequence, kept.end.tail) in known


def test_no_flipped_bit_goes_unnoticed(path: Path) -> None:
    put = [b"%04d some bytes to flip" % number for number in range(6)]
    with open_queue(path, max_bytes=PAGE) as queue:
        queue.group("hold")
        queue.put_many(put)
        tail = queue.offsets().tail
    whole = path.read_bytes()
    for position in range(START, START + tail, 3):
        raw = bytearray(whole)
        raw[position] ^= 1 << position % 8
        path.write_bytes(raw)
        with Queue(path, read_only=True) as queue:
            found = [message.body for message in queue.scan(tolerant=True)]
            assert not queue.verify().is_ok
            assert set(found) < set(put)
            with pytest.raises(CorruptError):
                list(queue.scan())


def test_truncation_below_what_is_there_is_refused_or_reported(path: Path) -> None:
    with open_queue(path) as queue:
        queue.group("hold")
        queue.put_many(numbered(0, 5))
    whole = path.read_bytes()
    for size in (0, 3, 33, START - 1, START, START + 1, START + PAGE - 1):
        path.write_bytes(whole[:size])
        with pytest.raises((CorruptError, ValueError)):
            files.read(path)


def test_who_only_reads_follows_a_ring_to_another_size(path: Path) -> None:
    with open_queue(path) as queue, Queue(path, read_only=True) as reader:
        queue.put_many(numbered(0, 5))
        assert [message.body for message in reader.scan()] == numbered(0, 5)
        queue.store.resize(START + 2 * SIZE)
        queue.put_many(numbered(5, 60))
        assert [message.body for message in reader.scan()] == numbered(0, 60)
        assert reader.meta["ring_bytes"] == 2 * SIZE
