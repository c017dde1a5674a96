"""Segments as a kill leaves them: what was put is there, what was never whole is set aside, and
what a Beat did under our names costs nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Queue, StorageError, _core
from penstock.disk import files
from penstock.formats.beats import state
from penstock.formats.beats.queue_files import BeatsFiles
from penstock.sidecar import plain_copies
from tests.copies import copy_as_killed
from tests.formats.beats.helpers import KEY, event
from tests.opening import open_queue

STREAM = "2-released-lz4"


def numbers(queue: Queue) -> list[int]:
    return [json.loads(message.body)["n"] for message in queue.scan(tolerant=True)]


def killed(
    folder: Path, layout: str, count: int = 3, work: Callable[[Queue], object] = lambda queue: None
) -> Path:
    with open_queue(folder / "q", format="beats", layout=layout) as queue:
        for number in range(count):
            queue.put(event(number))
        work(queue)
        return copy_as_killed(folder / "q", folder / "killed")


def plain_copy(path: Path) -> Path:
    return plain_copies.path_of(path / ".penstock", 0)


def test_half_a_frame_at_the_end_of_a_plain_copy_is_set_aside(tmp_path: Path) -> None:
    path = killed(tmp_path, STREAM)
    with plain_copy(path).open("ab") as stream:
        stream.write(b"\x40\0\0\0half")
    with Queue(path) as queue:
        assert numbers(queue) == [0, 1, 2]
        assert [damage.length for damage in queue.store.dropped] == [8]
        queue.put(event(3))
    assert [file.read_bytes() for file in (path / ".penstock" / "quarantine").iterdir()] == [
        b"\x40\0\0\0half"
    ]


def test_a_plain_copy_that_is_damaged_costs_nothing_that_the_stream_has(tmp_path: Path) -> None:
    path = killed(tmp_path, STREAM)
    raw = bytearray(plain_copy(path).read_bytes())
    second = 12 + int.from_bytes(raw[12:16], "little")
    raw[second : second + 4] = bytes(4)
    plain_copy(path).write_bytes(raw)
    with Queue(path) as queue:
        assert set(numbers(queue)) == {0, 1, 2}


@pytest.mark.parametrize(("acked", "left"), [(0, [0, 1, 2]), (3, [])])
def test_what_was_not_acked_goes_on_behind_the_segment_of_a_beat(
    acked: int, left: list[int], tmp_path: Path
) -> None:
    def ack(queue: Queue) -> None:
        for message in queue.get_many(acked) if acked else []:
            message.ack()

    path = killed(tmp_path, STREAM, work=ack)
    with open_queue(tmp_path / "other", format="beats", layout=STREAM) as queue:
        queue.put(event(77))
    shutil.copy2(tmp_path / "other" / "0.seg", path / "0.seg")
    with Queue(path) as queue:
        assert numbers(queue) == [77, *left]


@pytest.mark.parametrize("size", [0, 13, 2**31 - 1])
def test_a_plain_copy_that_is_damaged_goes_behind_the_segment_of_a_beat_as_it_is(
    size: int, tmp_path: Path
) -> None:
    path = killed(tmp_path, STREAM)
    raw = bytearray(plain_copy(path).read_bytes())
    second = 12 + int.from_bytes(raw[12:16], "little")
    raw[second : second + 4] = size.to_bytes(4, "little")
    plain_copy(path).write_bytes(raw)
    with open_queue(tmp_path / "other", format="beats", layout=STREAM) as queue:
        queue.put(event(77))
    shutil.copy2(tmp_path / "other" / "0.seg", path / "0.seg")
    with Queue(path) as queue:
        assert numbers(queue) == [77, 0, 2]
        assert [damage.path.name for damage in queue.verify().corrupt] == ["1.seg"]


def test_an_empty_last_file_is_damage_if_events_were_in_it(tmp_path: Path) -> None:
    def begin_another(queue: Queue) -> None:
        queue.store.roll(queue.offsets().segment_base, 0)
        queue.put(event(3))

    path = killed(tmp_path, "1", work=begin_another)
    (path / "1.seg").write_bytes(b"")
    with Queue(path, read_only=True) as queue:
        assert [damage.path.name for damage in queue.verify().torn] == ["1.seg"]


def test_an_empty_last_file_is_damage_if_we_left_events_in_it(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with open_queue(path, format="beats", layout="1") as queue:
        queue.put(event(0))
        queue.store.roll(queue.offsets().segment_base, 0)
        queue.put(event(1))
    (path / "1.seg").write_bytes(b"")
    with Queue(path, read_only=True) as queue:
        assert [damage.path.name for damage in queue.verify().torn] == ["1.seg"]
        assert numbers(queue) == [0]


def test_bytes_of_an_append_that_died_go_when_the_segment_is_closed(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q", format="beats", layout="1") as queue:
        queue.put(event(0))
        with (tmp_path / "q" / "0.seg").open("ab") as stream:
            stream.write(b"never counted")
        queue.store.roll(queue.offsets().segment_base, 0)
        queue.put(event(1))
        assert numbers(queue) == [0, 1]
        assert b"never counted" not in (tmp_path / "q" / "0.seg").read_bytes()
    with Queue(tmp_path / "q", read_only=True) as queue:
        assert queue.verify().is_ok


def test_a_stream_whose_copy_another_process_has_closed_is_left_as_it_is(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q", format="beats", layout=STREAM) as queue:
        queue.put(event(0))
        plain_copy(tmp_path / "q").unlink()
        queue.store.roll(queue.offsets().segment_base, 0)
        queue.put(event(1))
        assert numbers(queue) == [0, 1]


def test_a_copy_that_is_lost_while_its_stream_is_closed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = files.read_bytes

    def lose(path: Path) -> bytes:
        if path.suffix == ".plain":
            path.unlink()
        return read(path)

    with open_queue(tmp_path / "q", format="beats", layout=STREAM) as queue:
        queue.put(event(0))
        with monkeypatch.context() as patch:
            patch.setattr(files, "read_bytes", lose)
            with pytest.raises((StorageError, FileNotFoundError), match="plain"):
                queue.store.roll(queue.offsets().segment_base, 0)


def test_a_segment_that_is_deleted_while_it_is_open_can_still_be_followed(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q", format="beats", layout="1") as queue:
        queue.put(event(0))
        (tmp_path / "q" / "0.seg").unlink()
        queue.store.roll(queue.offsets().segment_base, 0)
        offset = queue.put(event(1))
        assert [json.loads(m.body)["n"] for m in queue.scan(start=offset)] == [1]


def test_a_place_that_an_older_beat_has_written_is_followed_and_made_ours(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with open_queue(path, format="beats", layout="1") as queue:
        for number in range(3):
            queue.put(event(number))
        offsets = [message.offset for message in queue.scan()]
    (path / "state.dat").write_bytes(state.StateFile.at(0, offsets[2] or 0, 0).pack())
    with Queue(path) as queue:
        assert json.loads(queue.get(0).body)["n"] == 2
    assert (path / "state.dat").stat().st_size == 28


def test_a_queue_whose_state_was_deleted_while_it_was_open_closes_all_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q"
    with open_queue(path, format="beats", layout="1") as queue:
        queue.put(event(0))
        (path / "state.dat").unlink()
    with Queue(path) as queue:
        assert numbers(queue) == [0]


def test_every_segment_that_is_gone_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with open_queue(path, format="beats", layout="1") as queue:
        queue.put(event(0))
    (path / "0.seg").unlink()
    with Queue(path) as queue:
        assert [damage.path.name for damage in queue.store.dropped] == ["0.seg"]
        queue.put(event(1))
        assert numbers(queue) == [1]


def test_a_segment_that_can_not_be_read_is_no_reason_to_look_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"

    def gone(files: BeatsFiles, number: int) -> list[int]:
        raise FileNotFoundError(number)

    with open_queue(path, format="beats", layout="1") as queue:
        queue.put(event(0))
        queue.get(0).ack()
        monkeypatch.setattr(BeatsFiles, "frame_offsets", gone)
        with pytest.raises(FileNotFoundError):
            queue.store.format.groups.bookmarks()
        monkeypatch.undo()


def test_no_key_is_refused_for_a_segment_that_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, frames = tmp_path / "q", _core.beats_frames
    with open_queue(path, format="beats", layout="2", key=KEY) as queue:
        queue.put(event(0))

    def deleted_first(*words: object, **more: object) -> object:
        (path / "0.seg").unlink(missing_ok=True)
        return frames(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(_core, "beats_frames", deleted_first)
    with Queue(path, read_only=True, key=bytes(16)) as queue:
        assert numbers(queue) == []
