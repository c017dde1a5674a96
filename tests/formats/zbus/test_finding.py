"""One message, by its offset and id, by its number, by its time, in every layout we create."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock import OffsetError, Queue
from penstock.formats.zbus.structs import CREATED
from tests.cli.conftest import Run, run  # noqa: F401
from tests.golden_data import GoldenCase, golden_cases


def filled(path: Path, layout: str) -> list[int]:
    """Three blocks of messages o-0 … o-59, a second apart."""
    with Queue(path, format="zbus", layout=layout, segment_bytes=16384) as queue:
        return [
            queue.put(bytes(500), id=f"o-{number}", timestamp_ns=(1_700_000_000 + number) * 10**9)
            for number in range(60)
        ]


@pytest.mark.parametrize("layout", CREATED)
def test_a_message_is_found_by_offset_and_id(layout: str, tmp_path: Path) -> None:
    offsets = filled(tmp_path / "q", layout)
    with Queue(tmp_path / "q") as queue:
        assert len(queue.store.segments()) > 2
        for number in (0, 25, 59):
            assert queue.message_at(offsets[number], id=f"o-{number}").id == f"o-{number}"
        group = queue.group("g")
        assert group.seek(offsets[40], id="o-40") == offsets[40]
        assert group.get(0).id == "o-40"
        assert queue.seek(f"offset:{offsets[7]}:o-7") == offsets[7]
        found = queue.scan(start=f"offset:{offsets[58]}:o-58")
        assert [message.id for message in found] == ["o-58", "o-59"]
        later = queue.group("later", start=f"offset:{offsets[59]}:o-59")
        assert [message.id for message in later.get_many(9)] == ["o-59"]


@pytest.mark.parametrize("layout", CREATED)
def test_another_id_is_an_error_and_nothing_changes(layout: str, tmp_path: Path) -> None:
    offsets = filled(tmp_path / "q", layout)
    with Queue(tmp_path / "q") as queue:
        group = queue.group("g")
        group.seek(offsets[10], id="o-10")
        with pytest.raises(OffsetError, match="has the id 'o-40', not 'o-41'"):
            group.seek(offsets[40], id="o-41")
        with pytest.raises(OffsetError, match="no message begins at offset"):
            group.seek(offsets[40] + 1, id="o-40")
        with pytest.raises(OffsetError, match="is outside"):
            queue.message_at(1 << 50, id="o-40")
        with pytest.raises(OffsetError, match="no message at offset"):
            group.seek(queue.offsets().tail, id="o-59")
        with pytest.raises(OffsetError, match="has the id 'o-40', not ''"):
            queue.seek(f"offset:{offsets[40]}:")
        assert group.get(0).id == "o-10"


@pytest.mark.parametrize("layout", CREATED)
def test_a_message_is_found_by_number_and_by_time(layout: str, tmp_path: Path) -> None:
    offsets = filled(tmp_path / "q", layout)
    with Queue(tmp_path / "q") as queue:
        first = queue.message_at(offsets[0]).number or 0
        group = queue.group("g")
        for number in (0, 1, 24, 25, 26, 58, 59):
            assert group.seek(f"number:{number + first}") == offsets[number]
            moment = datetime.fromtimestamp(1_700_000_000 + number, UTC)
            assert group.seek(moment) == offsets[number]
            assert group.seek(moment.isoformat()) == offsets[number]
        assert group.seek("2023-11-14T22:14:19.5") == queue.offsets().tail


@pytest.mark.parametrize(
    "case", [c for c in golden_cases("zbus") if c.name == "basic"], ids=lambda case: case.id
)
def test_every_message_of_the_originals_is_found_by_its_offset_and_id(
    case: GoldenCase, tmp_path: Path
) -> None:
    with Queue(case.copy(tmp_path), read_only=True) as queue:
        messages = list(queue.scan())
        assert messages
        for message in messages:
            assert message.offset is not None
            if message.id is not None:
                assert queue.message_at(message.offset, id=message.id).number == message.number


def test_the_command_line_seeks_by_offset_and_id(tmp_path: Path, run: Run) -> None:  # noqa: F811
    offsets = filled(tmp_path / "q", "doc000")
    with Queue(tmp_path / "q") as queue:
        queue.group("g")
    path = tmp_path / "q"
    run("seek", path, offsets[30], "--id", "o-30", "--group", "g")
    assert run("peek", path, "--group", "g", "--json").one["id"] == "o-30"
    ran = run("seek", path, offsets[30], "--id", "o-31", "--group", "g", code=2)
    assert "has the id 'o-30', not 'o-31'" in ran.err
    assert run("cat", path, "--from", f"offset:{offsets[5]}:o-5", "--limit", "1").one["id"] == "o-5"
    run("seek", path, f"offset:{offsets[5]}:o-6", "--group", "g", "--dry-run", code=2)
    assert run("peek", path, "--group", "g", "--json").one["id"] == "o-30"
