"""Queues that the originals wrote: every frame, event, position and state as they judged them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, _core
from penstock.formats.beats import state
from penstock.formats.beats.format import BeatsFormat
from tests.formats.beats.helpers import NAMES, as_json, numbers_alike
from tests.golden_data import GoldenCase, golden_cases

CASES = golden_cases("beats")


def opened(case: GoldenCase, tmp_path: Path) -> Queue:
    return Queue(case.copy(tmp_path), read_only=True, key=case.key)


def good_frames(segment: dict[str, Any]) -> list[dict[str, Any]]:
    return [frame for frame in segment["frames"] if not frame.get("bad")]


def offset_of(segment: dict[str, Any], frame: dict[str, Any]) -> int:
    return int(Path(segment["file"]).stem) << 40 | int(frame["position"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_event_is_what_the_original_wrote(case: GoldenCase, tmp_path: Path) -> None:
    with opened(case, tmp_path) as queue:
        messages = {message.offset: message for message in queue.scan(tolerant=True)}
        for segment in case.expected["segments"]:
            for frame in good_frames(segment):
                message = messages[offset_of(segment, frame)]
                body = json.loads(message.body)
                assert numbers_alike(body) == numbers_alike(as_json(frame["fields"]))
                assert json.loads(message.headers["beats.meta"]) == as_json(frame["meta"])
                assert message.headers["beats.flags"] == str(frame["flags"])
                assert message.timestamp_ns == frame["timestamp_ns"]
                assert message.id == frame["meta"].get("_id")
                assert len(message.payload) == frame["payload_len"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_frames_have_the_sizes_and_checksums_of_the_original(
    case: GoldenCase, tmp_path: Path
) -> None:
    with opened(case, tmp_path) as queue:
        store = queue.store
        assert isinstance(store.format, BeatsFormat)
        infos = {info.path.name: info for info in store.segments()}
        for segment in case.expected["segments"]:
            if segment["file"] not in infos:
                assert "error" in segment
                continue
            info = infos[segment["file"]]
            opened_segment = store.format.segment_of(info.base)
            assert opened_segment is not None
            found = _core.beats_whole_frames(opened_segment, info.first, info.end or 0)
            expected = [
                (offset_of(segment, f), f["size"], int(f["crc32"], 16))
                for f in good_frames(segment)
            ]
            assert [frame for frame in found if frame in expected] == expected
            if "error" not in segment and "lz4_note" not in segment:
                assert found == expected
            for (offset, size, _), frame in zip(found, good_frames(segment), strict=False):
                raw = _core.beats_plain_frame(opened_segment, offset, size)[4:-8]
                assert hashlib.sha256(raw).hexdigest() == frame["payload_sha256"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_state_and_layout_are_told_right(case: GoldenCase, tmp_path: Path) -> None:
    with opened(case, tmp_path) as queue:
        known = case.expected["state"]
        found = state.read(queue.path / "state.dat")
        if "version" not in known:
            assert found is None
        else:
            assert found is not None
            assert found.pack().hex() == known["hex"]
            assert (found.segment, found.frame) == (known["segment_id"], known.get("frame_index"))
        for segment in case.expected["segments"]:
            layout = segment.get("layout", case.layout)
            number = int(Path(segment["file"]).stem)
            if "version" in segment:
                assert queue.meta["layouts"][number] == NAMES[layout]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_reader_knows_where_beats_stands(case: GoldenCase, tmp_path: Path) -> None:
    with opened(case, tmp_path) as queue:
        start = queue.store.format.groups.bookmarks()["default"]
        found = [message.offset or 0 for message in queue.scan(tolerant=True)]
    pending = case.expected["pending"]
    later = [offset for offset in found if offset >= start]
    assert [offset >> 40 for offset in later][: len(pending)] or not pending
    if pending:
        number, index = pending[0]
        segment = next(s for s in case.expected["segments"] if s["file"] == f"{number}.seg")
        assert later[0] == offset_of(segment, segment["frames"][index])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_is_pending_is_delivered(case: GoldenCase, tmp_path: Path) -> None:
    frames = {
        (int(Path(segment["file"]).stem), frame["index"]): offset_of(segment, frame)
        for segment in case.expected["segments"]
        for frame in segment["frames"]
    }
    pending = [frames[number, index] for number, index in case.expected["pending"]]
    path = case.copy(tmp_path)
    for file in path.iterdir():
        file.chmod(0o600)
    path.chmod(0o700)
    with Queue(path, key=case.key) as queue:
        found = [message.offset for message in drained(queue)]
    assert [offset for offset in found if offset in pending] == pending
    if not any("error" in s or "lz4_note" in s for s in case.expected["segments"]):
        assert found == pending


def drained(queue: Queue) -> list[_core.Message]:
    messages: list[_core.Message] = []
    while True:
        try:
            more = queue.get_many(1000)
        except OSError:
            continue  # Damage is raised once and passed.
        if not more:
            return messages
        messages += more


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_reading_changes_nothing(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with Queue(path, read_only=True, key=case.key) as queue:
        queue.verify()
        list(queue.scan(tolerant=True))
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


DAMAGED = [c for c in CASES if c.name.startswith(("corrupt", "truncated"))]
WHOLE = [c for c in CASES if c not in DAMAGED and c.name != "empty"]


@pytest.mark.parametrize("case", DAMAGED, ids=lambda case: case.id)
def test_damage_is_reported_and_frames_behind_it_are_found(
    case: GoldenCase, tmp_path: Path
) -> None:
    with opened(case, tmp_path) as queue:
        verdict = queue.verify()
        assert not verdict.is_ok
        assert all(damage.path.name == "0.seg" for damage in verdict.corrupt + verdict.torn)
        listed = sum(len(good_frames(segment)) for segment in case.expected["segments"])
        whole = 11 if case.name.startswith("corrupt") else listed
        if case.name.startswith("truncated") and listed == 1:
            whole = 9  # The original gives up at the block that is cut; its beginning has 8 more.
        assert verdict.frames == len(list(queue.scan(tolerant=True))) == whole


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.id)
def test_whole_queues_verify_clean(case: GoldenCase, tmp_path: Path) -> None:
    with opened(case, tmp_path) as queue:
        verdict = queue.verify()
    assert verdict.is_ok, verdict
    assert verdict.frames == case.expected["total_good_frames"]


def test_a_v1_queue_that_a_newer_beat_drops_comes_back_whole(tmp_path: Path) -> None:
    case = next(c for c in CASES if c.id == "v1/basic")
    with opened(case, tmp_path) as queue:
        assert len(list(queue.scan())) == 12
