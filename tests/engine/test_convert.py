"""Copies between queues: nothing is lost without being named, and everything is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import CorruptError, Message, OptionError, Queue, UnsupportedError
from penstock.engine import convert as converting
from penstock.engine import retention
from penstock.engine.convert import ConvertError, Progress, convert
from penstock.formats import registry
from tests.opening import open_queue, path_for

MESSAGES = [
    Message(b"one", tag="eu.orders", id="o-1", key="k", headers={"a": "1"}),
    Message(b"two", timestamp_ns=1_700_000_000_123_456_789),
    Message(b"", id="empty"),
    Message(b"x" * 70_000, tag="us"),
]


@pytest.fixture
def source(tmp_path: Path) -> Queue:
    queue = Queue(tmp_path / "source")
    queue.put_many(MESSAGES)
    return queue


def fields(message: Message) -> tuple[object, ...]:
    values = (message.body, message.tag, message.id, message.key, message.timestamp_ns)
    return (*values, message.headers, message.number)


def test_a_copy_holds_every_field(tmp_path: Path, source: Queue) -> None:
    with Queue(tmp_path / "target") as target:
        report = convert(source, target)
        assert [fields(m) for m in target.scan()] == [fields(m) for m in source.scan()]
    assert (report.messages, report.verified, report.lost) == (4, 4, {})
    assert report.bytes == sum(map(len, MESSAGES))


def test_a_copy_goes_behind_what_is_there(tmp_path: Path, source: Queue) -> None:
    with Queue(tmp_path / "target") as target:
        target.put(b"before")
        report = convert(source, target)
        assert [m.body for m in target.scan()] == [b"before", *(m.body for m in source.scan())]
    assert report.renumbered == 4


def test_what_does_not_fit_is_refused_before_a_byte_is_written(
    tmp_path: Path, source: Queue
) -> None:
    with Queue(tmp_path / "target", max_message_bytes=1000) as target:
        with pytest.raises(
            UnsupportedError, match=r"body \(1 message, first at offset \d+\).*drop=body"
        ):
            convert(source, target)
        assert len(target) == 0


def test_a_message_that_fits_nowhere_is_left_out_when_asked(tmp_path: Path, source: Queue) -> None:
    with Queue(tmp_path / "target", max_message_bytes=1000) as target:
        report = convert(source, target, drop=["body"])
        assert [m.body for m in target.scan()] == [b"one", b"two", b""]
    assert (report.left_out, report.lost, report.verified) == (1, {"body": 1}, 3)


def test_a_dry_run_writes_nothing(tmp_path: Path, source: Queue) -> None:
    with Queue(tmp_path / "target") as target:
        assert convert(source, target, dry_run=True).messages == 0
        assert len(target) == 0


def test_an_unknown_field_to_drop_is_an_error(tmp_path: Path, source: Queue) -> None:
    with Queue(tmp_path / "target") as target, pytest.raises(OptionError, match="some of tag, id"):
        convert(source, target, drop=["color"])


def test_a_range_and_tags_choose_what_is_copied(tmp_path: Path, source: Queue) -> None:
    with Queue(tmp_path / "target") as target:
        assert convert(source, target, start="number:1", tags="us").messages == 1
        assert [m.tag for m in target.scan()] == ["us"]


def test_progress_goes_through_all_three_phases(
    tmp_path: Path, source: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "BATCH_MESSAGES", 3)
    seen: list[Progress] = []
    with Queue(tmp_path / "target") as target:
        convert(source, target, on_progress=seen.append)
    phases = [(step.phase, step.messages) for step in seen]
    assert phases == [(name, n) for name in ("check", "copy", "verify") for n in (3, 4)]
    assert all(step.offset == step.end for step in seen[1::2])


def test_a_copy_that_differs_is_noticed(tmp_path: Path, source: Queue) -> None:
    with Queue(tmp_path / "target") as target:

        def forge(step: Progress) -> None:
            if (step.phase, step.offset) == ("copy", step.end):
                work = [m.body for m in target.scan()]
                assert len(work) == 4
                source.store.need_writer()
                segment = source.store.segment_at(0)
                at = segment.read(0, 1 << 16).index(b"two")
                segment.store(at, b"tWo")

        with pytest.raises((ConvertError, CorruptError)):
            convert(source, target, on_progress=forge)


def test_damage_in_the_source_stops_or_is_reported(tmp_path: Path, source: Queue) -> None:
    segment = source.store.segment_at(0)
    segment.store(segment.read(0, 1 << 16).index(b"two"), b"tWo")
    with Queue(tmp_path / "target") as target:
        with pytest.raises(CorruptError):
            convert(source, target)
        report = convert(source, target, tolerant=True)
        assert (report.verified, len(report.damage)) == (3, 1)
        assert report.as_dict()["damage"][0]["path"].endswith(".seg")


@pytest.mark.parametrize("format", registry.MODULES)
def test_a_queue_whose_consumers_free_messages_between_the_passes_is_copied(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "BATCH_MESSAGES", 10)
    path, size = path_for(tmp_path, format), {"max_bytes": 1 << 18} if format == "vqs" else {}
    with open_queue(path, format=format, **size) as queue:
        for number in range(60):
            queue.put(b"%2d" % number + bytes(1500))
        group = queue.group(ack="auto", start="earliest")

        def use_some(step: Progress) -> None:
            if step.phase != "verify" and step.offset == step.end:
                last = group.get_many(25)[-1].offset or 0
                if not retention.free_consumed(queue):
                    queue.trim(last)

        with Queue(tmp_path / "copy") as copy:
            report = convert(path, copy, on_progress=use_some)
            numbers = [int(message.body[:2]) for message in copy.scan()]
    assert numbers == list(range(60 - len(numbers), 60))
    assert 35 <= len(numbers) < 60
    assert report.verified + report.gone == report.messages == len(numbers)
    assert min(report.gone, report.verified) > 0
