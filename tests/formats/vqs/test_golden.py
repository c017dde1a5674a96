"""Files written by the original programs and by hand from the page: each is read as listed."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from penstock import CorruptError, FormatError, Message, Queue
from penstock.formats.vqs import header
from penstock.formats.vqs.structs import STAGES
from tests.formats.checks import tree_hash
from tests.golden_data import GoldenCase, golden_cases

CASES = golden_cases("vqs")
GOOD = [case for case in CASES if case.expected["error"] is None]
BAD = [case for case in CASES if case.expected["error"] is not None]
LAYOUTS = {"seed": "doc", "seed-header": "doc"}
UNREACHABLE = "tbl-distinct-bytes"
"""Its header can be read; capacity and offsets contradict each other."""

ERRORS = {
    "bad_magic": (FormatError, "bad magic"),
    "unsupported_version": (FormatError, "version 2"),
    "truncated_header": (CorruptError, "header"),
    "unterminated_tag": (CorruptError, "unterminated label"),
    "offset_out_of_range": (CorruptError, "outside the ring"),
    "record_out_of_range_or_corrupt": (CorruptError, "the records run out"),
    "capacity_mismatch": (CorruptError, "capacity"),
}


def ids(case: GoldenCase) -> str:
    return case.id


def layout_of(case: GoldenCase) -> str:
    return LAYOUTS.get(case.layout, case.layout)


def as_expected(message: Message) -> dict[str, Any]:
    """A message in the words of `expected.json`, made from our headers."""
    found: dict[str, Any] = {"attributes": {}, "system_attributes": {}, "delay_seconds": 0}
    for name, value in message.headers.items():
        if name == "vqs.delay":
            found["delay_seconds"] = int(value)
        elif name.startswith("vqs.system."):
            name = name.removeprefix("vqs.system.")
            found["system_attributes"][name] = typed("String", value)
        elif name.startswith("vqs.attr."):
            name = name.removeprefix("vqs.attr.")
            kind = message.headers.get(f"vqs.attr-type.{name}", "String")
            found["attributes"][name] = typed(kind, value)
        elif not name.startswith("vqs."):
            found["attributes"][name] = typed("String", value)
    return found | {"id": message.id or "", "body": message.body.decode()}


def typed(kind: str, value: str) -> dict[str, str]:
    return {"type": kind, "value_hex": value.encode().hex()}


@pytest.mark.parametrize("case", GOOD, ids=ids)
def test_header_and_labels_are_read(case: GoldenCase, tmp_path: Path) -> None:
    path, stage = case.copy(tmp_path), STAGES[layout_of(case)]
    found = header.parse(path, stage, header.read_bytes(path, stage))
    expected = dict(case.expected["header"])
    expected.pop("magic")
    assert {name: found.values[name] for name in expected} == expected
    labels = [[name.hex(), value.hex()] for name, value in found.labels]
    if case.expected.get("tags_unordered"):
        labels, case.expected["tags"] = sorted(labels), sorted(case.expected["tags"])
    assert labels == case.expected["tags"]


@pytest.mark.parametrize("case", [c for c in GOOD if c.name != UNREACHABLE], ids=ids)
def test_messages_offsets_and_settings_are_read_and_nothing_is_changed(
    case: GoldenCase, tmp_path: Path
) -> None:
    path = case.copy(tmp_path)
    before = tree_hash(tmp_path) if case.expected["file_size"] in (24576, 65536) else ""
    expected = case.expected
    with Queue(path, read_only=True) as queue:
        found = [as_expected(message) for message in queue.scan()]
        assert found == expected.get("messages", [])
        assert queue.store.layout == layout_of(case) or not expected["messages"]
        assert queue.meta["max_message_size"] == expected["header"]["max_message_size"]
        assert queue.meta["count"] == len(queue) == expected["header"]["count"]
        start = queue.store.format.list_segments()[0].size - queue.meta["ring_bytes"]
        for offset, name in (
            (queue.offsets().head, "read_offset"),
            (queue.offsets().tail, "write_offset"),
        ):
            assert start + offset % queue.meta["ring_bytes"] == expected["header"][name]
        assert queue.verify().is_ok
        assert queue.verify().unchecked == len(found)
    assert not before or tree_hash(tmp_path) == before


def test_the_payload_of_a_gzipped_record_is_still_gzipped(tmp_path: Path) -> None:
    case = next(c for c in GOOD if c.layout == "stage3" and c.expected.get("messages"))
    with Queue(case.copy(tmp_path), read_only=True) as queue:
        for message in queue.scan():
            assert message.body in gzip.decompress(message.payload)
            assert message.payload[:2] == b"\x1f\x8b"


@pytest.mark.parametrize("case", BAD, ids=ids)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_bad_file_is_refused_with_its_own_error_and_left_alone(
    case: GoldenCase, tmp_path: Path, read_only: bool
) -> None:
    path = case.copy(tmp_path)
    before = path.read_bytes()
    kind, text = ERRORS[case.expected["error"]]
    ways: tuple[dict[str, Any], ...] = ({}, {"format": "vqs", "layout": "doc"})
    for asked in ways:
        with (
            pytest.raises(kind, match=text),
            Queue(path, read_only=read_only, **asked) as queue,
        ):
            list(queue.scan())
    assert path.read_bytes() == before


def test_a_state_that_no_writer_reaches_shows_its_settings_and_no_messages(tmp_path: Path) -> None:
    (case,) = (case for case in GOOD if case.name == UNREACHABLE)
    path = case.copy(tmp_path)
    with Queue(path, read_only=True) as queue:
        assert queue.meta["visibility_timeout"] == 4627
        with pytest.raises(CorruptError, match="capacity"):
            list(queue.scan())
    with pytest.raises(CorruptError, match="capacity"):
        Queue(path)


@pytest.mark.parametrize("case", [c for c in GOOD if c.layout in ("stage2", "stage3")], ids=ids)
def test_stages_that_are_only_read_are_not_opened_for_writing(
    case: GoldenCase, tmp_path: Path
) -> None:
    path = case.copy(tmp_path)
    before = tree_hash(path)
    with pytest.raises(FormatError, match="only read"):
        Queue(path, layout=case.layout)
    assert tree_hash(path) == before


WRITTEN = [c for c in GOOD if layout_of(c) in ("doc", "stage4") and c.name != UNREACHABLE]


@pytest.mark.parametrize("case", WRITTEN, ids=ids)
def test_appending_keeps_every_other_byte(case: GoldenCase, tmp_path: Path) -> None:
    path, stage = case.copy(tmp_path), STAGES[layout_of(case)]
    file, head = stage.data_path(path), stage.header_path(path)
    before, before_head = file.read_bytes(), head.read_bytes()
    ring = len(before) - stage.start
    free = case.expected["header"]["capacity_left"]
    body = b"appended"
    with Queue(path, layout=stage.name, when_full="reject") as queue:
        tail, hold = queue.offsets().tail, queue.group("hold")
        if free < 300:
            return
        queue.put(body)
        end = queue.offsets().tail
        assert hold.peek(99)[-1].body == body
    after, after_head = bytearray(file.read_bytes()), bytearray(head.read_bytes())
    for offset in range(tail, end):
        at = stage.start + offset % ring
        after[at] = before[at]
    if not stage.meta:
        after[4:20] = before[4:20]
        assert after == before
    else:
        after_head[4:20] = before_head[4:20]
        assert (bytes(after), bytes(after_head)) == (before, before_head)
    found = header.parse(path, stage, header.read_bytes(path, stage)).words
    assert found["count"] == case.expected["header"]["count"] + 1
    assert found["capacity_left"] == free - (end - tail)
