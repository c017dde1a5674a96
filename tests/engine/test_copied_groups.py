"""Groups of a queue that is copied: each goes on where it stood, in the target's own offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Message, Queue
from penstock.engine.convert import FIELDS, convert
from penstock.engine.convert import ConversionReport as Report

FORMATS = {"penstock": "q", "zbus": "q", "beats": "q", "vqs": "q.bin", "mfq": "q"}
BODIES = [b"message %02d" % number for number in range(20)]


@pytest.fixture
def source(tmp_path: Path) -> Queue:
    queue = Queue(tmp_path / "source", durability="process")
    queue.put_many([Message(body, tag=f"t.{n % 2}") for n, body in enumerate(BODIES)])
    return queue


def take(queue: Queue, name: str, count: int) -> list[Message]:
    found = queue.group(name).get_many(count)
    for message in found:
        message.ack()
    return found


def copy(tmp_path: Path, source: Queue, format: str, groups: bool | None = None) -> Report:
    path = tmp_path / "target" / FORMATS[format]
    with Queue(path, format=format, durability="process") as target:
        return convert(source, target, drop=FIELDS, groups=groups)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_goes_on_where_the_groups_stood(
    tmp_path: Path, source: Queue, format: str
) -> None:
    take(source, "default", 12)
    take(source, "slow", 7)
    take(source, "done", 20)
    source.group("new")
    report = copy(tmp_path, source, format, groups=True)
    assert set(report.groups.cursors) == {"default", "slow", "done", "new"}
    assert (report.groups.left, report.groups.again) == ({}, {})
    with Queue(tmp_path / "target" / FORMATS[format], create=False) as target:
        for name, count in (("default", 12), ("slow", 7), ("done", 20), ("new", 0)):
            found = [message.body for message in target.group(name).get_many(99)]
            assert found == BODIES[count:], name


def test_the_default_group_of_mfq_is_its_consumer(tmp_path: Path, source: Queue) -> None:
    take(source, "default", 3)
    report = copy(tmp_path, source, "mfq")
    raw = (tmp_path / "target/q/offset/consumer.offset").read_bytes()
    assert int.from_bytes(raw, "little") == report.groups.cursors["default"] == 3 * 15


@pytest.mark.parametrize("format", ["vqs", "beats"])
def test_no_message_of_a_copy_is_deleted_unasked(
    tmp_path: Path, source: Queue, format: str
) -> None:
    take(source, "default", 12)
    report = copy(tmp_path, source, format)
    assert report.groups.cursors == {}
    assert "deletes what every group has acked" in report.groups.left["default"]
    with Queue(tmp_path / "target" / FORMATS[format], read_only=True) as target:
        assert [message.body for message in target.scan()] == BODIES


def test_what_was_acked_ahead_of_the_cursor_comes_again_and_is_counted(
    tmp_path: Path, source: Queue
) -> None:
    held = source.group().get_many(6)
    for message in (held[0], held[2], held[3], held[5]):
        message.ack()
    report = copy(tmp_path, source, "penstock")
    assert report.groups.again == {"default": 3}
    with Queue(tmp_path / "target/q") as target:
        assert [message.body for message in target.get_many(99)] == BODIES[1:]


def test_groups_that_can_t_go_are_named_with_the_reason(tmp_path: Path, source: Queue) -> None:
    source.group("filtered", tags="t.1")
    source.group("there")
    only = source.broadcast()
    with Queue(tmp_path / "target", format="mfq", durability="process") as target:
        target.group("there")
        report = convert(source, target, drop=FIELDS)
        assert target.groups() == ["there"]
    assert "has no tags" in report.groups.left["filtered"]
    assert "of this name" in report.groups.left["there"]
    assert "one consumer" in report.groups.left[only.name]
    assert report.as_dict()["groups"]["left"].keys() == report.groups.left.keys()


def test_a_filter_and_a_range_still_find_the_place(tmp_path: Path, source: Queue) -> None:
    take(source, "default", 7)
    source.group("odd", tags="t.1", visibility_s=5, ack="lease")
    take(source, "odd", 3)
    with Queue(tmp_path / "target", durability="process") as target:
        target.put(b"before")
        convert(source, target, start="number:2", tags="t.1")
        assert [m.body for m in target.get_many(99)] == BODIES[7::2]
        odd = target.group("odd")
        assert [m.body for m in odd.get_many(99)] == BODIES[7::2]
        assert (odd.options.tags, odd.options.visibility_s) == ("t.1", 5)


def test_groups_stay_behind_when_told_to_and_in_a_dry_run(tmp_path: Path, source: Queue) -> None:
    take(source, "default", 3)
    with Queue(tmp_path / "target", durability="process") as target:
        assert convert(source, target, dry_run=True).groups.cursors == {}
        assert convert(source, target, groups=False).groups.cursors == {}
        assert target.groups() == []


def test_groups_of_a_queue_that_is_only_read_are_carried(tmp_path: Path, source: Queue) -> None:
    take(source, "default", 5)
    source.close()
    with Queue(tmp_path / "source", read_only=True) as reader:
        copy(tmp_path, reader, "zbus")
    with Queue(tmp_path / "target/q", create=False) as target:
        assert [message.body for message in target.get_many(99)] == BODIES[5:]
