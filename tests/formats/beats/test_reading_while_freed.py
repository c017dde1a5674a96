"""Reading while another process frees what was read: its files vanish between two looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Queue
from penstock.formats.beats import segments, state
from penstock.formats.beats.groups import BeatsGroups
from penstock.formats.beats.queue_files import BeatsFiles
from tests.formats.beats.helpers import CREATED, event, key_for


def test_a_segment_that_is_freed_while_we_look_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(tmp_path / "q", format="beats") as queue:
        queue.put_many([b"a", b"b"])
    listed = segments.listed

    def one_more(folder: Path) -> list[tuple[int, int]]:
        real = listed(folder)
        return [(real[0][0] - 1, 1), *real]

    monkeypatch.setattr(segments, "listed", one_more)
    with Queue(tmp_path / "q", read_only=True) as queue:
        assert [message.body for message in queue.scan()] == [b"a", b"b"]
        assert queue.verify().is_ok


@pytest.mark.parametrize("layout", CREATED)
def test_the_place_of_a_group_is_found_while_its_segment_is_freed(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = tmp_path / "q", key_for(layout)
    with Queue(path, format="beats", layout=layout, key=key, segment_bytes=65536) as queue:
        group = queue.group()
        for number in range(3):
            queue.put(event(number, text="x" * 40_000))  # A segment each.
        group.get().ack()
        begins_of, oldest = BeatsFiles.frame_offsets, segments.listed(path)[0][0]

        def freed_first(files: BeatsFiles, number: int) -> list[int]:
            if number == oldest:
                segments.path_of(path, number).unlink(missing_ok=True)
            return begins_of(files, number)

        monkeypatch.setattr(BeatsFiles, "frame_offsets", freed_first)
        assert queue.groups() == ["default"]
        assert queue.store.format.groups.bookmarks()["default"] <= group.cursor


def test_what_is_put_while_a_place_is_looked_for_lies_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    with Queue(path, format="beats") as queue:
        queue.put(event(0))
        queue.get().ack()
    with Queue(path) as queue:
        first = queue.offsets().tail
        state_file = state.StateFile.at(1, first, 0)
        numbers_of = BeatsFiles.segment_numbers

        def then_puts(files: BeatsFiles) -> list[int]:
            found = numbers_of(files)
            if queue.offsets().tail == first:
                queue.put(event(1))
            return found

        monkeypatch.setattr(BeatsFiles, "segment_numbers", then_puts)
        groups = queue.store.format.groups
        assert isinstance(groups, BeatsGroups)
        assert groups.offset_of(state_file) == first
        monkeypatch.undo()
