"""The header's settings are the queue's: read, honoured, changed, noticed by others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Empty, ManualClock, OptionError, Queue, UnsupportedError, _core
from penstock.formats.vqs import header, settings
from penstock.formats.vqs.structs import SETTINGS, STAGES
from tests.formats.checks import Checks
from tests.formats.vqs import files, gob
from tests.formats.vqs.files import START

SIZE = 1 << 16


@pytest.fixture(params=["doc", "stage4"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_layout(tmp_path: Path, layout: str = "doc", **options: Any) -> Queue:
    name = "q.bin" if layout == "doc" else "q"
    given: dict[str, Any] = {"max_bytes": SIZE, "durability": "process"}
    given |= options
    return Queue(tmp_path / name, format="vqs", layout=layout, **given)


def test_the_headers_settings_are_honoured(tmp_path: Path) -> None:
    clock = ManualClock()
    path = files.make(
        tmp_path / "q.bin", [gob.record(b"there")], 8192, delay_seconds=7, max_message_size=2000,
        retention_period=600, wait_seconds=3, visibility_timeout=99,
    )  # fmt: skip
    with Queue(path, clock=clock) as queue:
        assert queue.meta["wait_seconds"] == 3
        with pytest.raises(UnsupportedError, match="max_message_bytes is 2000"):
            queue.put(b"x" * 2001)
        queue.get(0)
        clock.advance(98)
        with pytest.raises(Empty):
            queue.get(0)
        clock.advance(2)
        assert queue.get(0).receives == 2
        offset = queue.put(b"late")
        assert queue.message_at(offset).headers == {"vqs.delay": "7"}
        assert queue.get_many(9) == []
        clock.advance(8)
        assert queue.get(0).body == b"late"
        assert queue.group("other").options.visibility_s == 99


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("is_most", [False, True])
def test_a_header_may_say_anything_from_nought_to_all_bits(
    tmp_path: Path, name: str, is_most: bool
) -> None:
    """Another program need not keep to the limits; no retention means that all is kept."""
    bits = 32 if name in ("max_message_size", "retention_period") else 16
    value = (1 << bits) - 1 if is_most else 0
    path = files.make(tmp_path / "q.bin", [gob.record(b"0")], 8192, **{name: value})
    with Queue(path, durability="process") as queue:
        message = queue.get(0)
        queue.put(b"1")
        queue.retain()
        message.ack()
        assert queue.meta[name] == value
        queue.sync()
        assert [message.body for message in queue.scan()] == [b"1"]


def test_changing_a_setting_changes_the_file_and_the_queue(tmp_path: Path, layout: str) -> None:
    clock = ManualClock()
    with open_layout(tmp_path, layout, clock=clock) as queue:
        group, stays = queue.group(), queue.group("own", visibility_s=5)
        queue.put(b"kept")
        queue.set_meta(delay_seconds=60, max_message_size=1024, visibility_timeout=120)
        assert group.options.visibility_s == 120
        assert stays.options.visibility_s == 5
        with pytest.raises(UnsupportedError, match="1024"):
            queue.put(b"x" * 1025)
        queue.put(b"late")
        assert [message.body for message in queue.get_many(9)] == [b"kept"]
        stage = STAGES[layout]
        found = header.parse(queue.path, stage, header.read_bytes(queue.path, stage))
        assert found.settings == {
            "delay_seconds": 60, "max_message_size": 1024, "retention_period": 345600,
            "wait_seconds": 0, "visibility_timeout": 120,
        }  # fmt: skip
        assert found.words["count"] == 2
    with Queue(queue.path) as again:
        assert again.meta["visibility_timeout"] == 120
        assert len(again) == 2


@pytest.mark.parametrize(
    "values",
    [
        {"delay_seconds": 901}, {"delay_seconds": -1}, {"retention_period": 59},
        {"wait_seconds": 21}, {"visibility_timeout": 43201}, {"max_message_size": 0},
        {"delay_seconds": "5"}, {"delay_seconds": True}, {"mask": 1},
        {"labels": {"": "x"}}, {"labels": {"n" * 129: "x"}}, {"labels": {"n": "v" * 257}},
        {"labels": {"a\0b": "x"}}, {"labels": {"a": "\0"}}, {"labels": "x"}, {"labels": ["xy"]},
        {"labels": {"\ud800": "x"}}, {"set_labels": {"a": 1}}, {"remove_labels": ["none"]},
        {"labels": {f"n{i}": "x" for i in range(51)}},
        {"labels": {f"{i:02d}" + "é" * 126: "é" * 256 for i in range(50)}},
    ],
)  # fmt: skip
def test_what_can_not_be_is_refused_and_changes_nothing(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    with open_layout(tmp_path) as queue:
        before = queue.path.read_bytes()
        with pytest.raises(OptionError):
            queue.set_meta(**values)
        assert queue.path.read_bytes() == before


def test_labels_are_set_listed_and_removed(tmp_path: Path, layout: str) -> None:
    labels = {"team": "images", "clé": "значение", "📦": "値", "empty": "", "n" * 128: "v" * 256}
    with open_layout(tmp_path, layout) as queue:
        assert queue.meta["labels"] == {}
        queue.set_meta(labels=labels)
        assert queue.meta["labels"] == labels
        queue.set_meta(labels={"team": "audio"})
        assert queue.meta["labels"] == {"team": "audio"}
    if layout == "doc":
        assert queue.path.read_bytes()[34:START] == b"team\0audio\0".ljust(16350, b"\0")
    with Queue(queue.path, read_only=True) as reader:
        assert reader.meta["labels"] == {"team": "audio"}
    with Queue(queue.path) as again:
        again.set_meta(labels={})
        assert again.meta["labels"] == {}


def test_one_label_is_set_or_removed_and_the_others_stay(tmp_path: Path, layout: str) -> None:
    with open_layout(tmp_path, layout) as queue:
        queue.set_meta(labels={"team": "images", "old": "1"})
        queue.set_meta(set_labels={"team": "audio", "new": "2"}, remove_labels=["old"])
        assert queue.meta["labels"] == {"team": "audio", "new": "2"}
        queue.set_meta(remove_labels="team")
        assert queue.meta["labels"] == {"new": "2"}


def test_labels_that_are_no_text_stay_to_the_byte(tmp_path: Path) -> None:
    path = files.make(tmp_path / "q.bin", [], 8192)
    raw = path.read_bytes()
    path.write_bytes(raw[:34] + b"a\xff\0\xfe\0".ljust(16350, b"\0") + raw[START:])
    with Queue(path) as queue:
        queue.set_meta(set_labels={"b": "c"})
    assert path.read_bytes()[34:START] == b"a\xff\0\xfe\0b\0c\0".ljust(16350, b"\0")


def test_whole_seconds_are_kept_and_parts_rounded_up(tmp_path: Path) -> None:
    with open_layout(tmp_path, delay_s=0.5, retention_age_s=90.1) as queue:
        assert (queue.meta["delay_seconds"], queue.meta["retention_period"]) == (1, 91)
        assert (queue.options.delay_s, queue.options.retention_age_s) == (1.0, 91.0)


def test_what_two_openers_change_at_once_both_counts(tmp_path: Path) -> None:
    with open_layout(tmp_path) as one, Queue(one.path, durability="process") as two:
        one.set_meta(delay_seconds=5, labels={"x": "1"})
        two.set_meta(wait_seconds=3, set_labels={"y": "2"})
        one.store.resize(START + 2 * SIZE)
        two.set_meta(visibility_timeout=7)
        two.store.resize(START + SIZE)
        for queue in (one, two):
            names = ("delay_seconds", "wait_seconds", "visibility_timeout", "ring_bytes")
            assert [queue.meta[name] for name in names] == [5, 3, 7, SIZE]
            assert queue.meta["labels"] == {"x": "1", "y": "2"}


def set_labels_there(checks: Checks, channel: Any, path: Path, name: str) -> None:
    with Queue(path, durability="process") as queue:
        channel.recv()
        for number in range(20):
            queue.set_meta(set_labels={f"{name}{number}": "x"})
        channel.send(True)


def test_processes_that_change_labels_at_once_lose_none(tmp_path: Path) -> None:
    with open_layout(tmp_path) as queue:
        there = set_labels_there
        with (
            Checks().other_process(there, queue.path, "a") as one,
            Checks().other_process(there, queue.path, "b") as two,
        ):
            for other in (one, two):
                other.tell(True)
            for number in range(4):
                queue.store.resize(START + SIZE * (1 + number % 2))
            for other in (one, two):
                other.hear()
        assert queue.meta["labels"].keys() == {f"{n}{k}" for n in "ab" for k in range(20)}


def test_labels_may_fill_their_area_to_the_last_byte(tmp_path: Path) -> None:
    """Then no empty name ends them."""
    labels = {f"n{number:02d}" + "a" * 125: "b" * 256 for number in range(42)}
    labels["rest"] = "c" * (16350 - 42 * 386 - 6)
    with open_layout(tmp_path) as queue:
        queue.set_meta(labels=labels)
        assert queue.path.read_bytes()[START - 2 : START] == b"c\0"
        assert queue.meta["labels"] == labels


def test_a_change_that_was_interrupted_is_finished(tmp_path: Path, layout: str) -> None:
    with open_layout(tmp_path, layout) as queue:
        queue.set_meta(labels={"old": "1"})
        queue.put(b"kept")
        stage, sidecar = STAGES[layout], queue.store.sidecar
    old = header.read_bytes(queue.path, stage)
    with Queue(queue.path) as queue:
        queue.set_meta(labels={"new": "2"}, wait_seconds=9)
    new = header.read_bytes(queue.path, stage)[settings.FIXED_AT :]
    _core.write_file(stage.header_path(queue.path), 0, old)
    _core.replace_file(sidecar / "header.new", new)
    with Queue(queue.path, read_only=True) as reader:
        assert reader.meta["labels"] == {"new": "2"}
    with Queue(queue.path) as again:
        assert (again.meta["labels"], again.meta["wait_seconds"]) == ({"new": "2"}, 9)
        assert [message.body for message in again.scan()] == [b"kept"]
    assert header.read_bytes(queue.path, stage)[settings.FIXED_AT :] == new


def change_there(checks: Checks, channel: Any, path: Path) -> None:
    with Queue(path, durability="process") as queue:
        queue.set_meta(max_message_size=1024, labels={"by": "the other"})
        channel.send(True)
        channel.recv()


def test_another_process_notices(tmp_path: Path) -> None:
    with open_layout(tmp_path) as queue:
        queue.put(b"x" * 2000)
        with Checks().other_process(change_there, queue.path) as other:
            other.hear()
            queue.put(b"one look at the new generation")
            with pytest.raises(UnsupportedError, match="1024"):
                queue.put(b"x" * 2000)
            assert queue.meta["labels"] == {"by": "the other"}
            other.tell(True)


def test_what_is_older_than_the_retention_period_goes_read_or_not(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_layout(tmp_path, clock=clock) as queue:
        queue.set_meta(retention_period=60)
        group = queue.group()
        queue.put(b"old")
        queue.retain()
        clock.advance(50)
        queue.put(b"young")
        queue.retain()
        assert len(queue) == 2
        clock.advance(11)
        queue.retain()
        assert [message.body for message in queue.scan()] == [b"young"]
        assert [message.body for message in group.get_many(9)] == [b"young"]
        assert queue.meta["count"] == 1


def test_ring_and_page_metrics_are_told(tmp_path: Path) -> None:
    with open_layout(tmp_path) as queue:
        queue.put(b"x")
        meta = queue.meta
        assert meta["ring_bytes"] == SIZE == meta["file_bytes"] - START
        assert meta["capacity_left"] == SIZE - queue.offsets().tail
        assert meta["page_faults"]["minor"] > 0
        assert meta["page_faults"]["major"] >= 0
