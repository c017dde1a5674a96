"""Every queue that the original programs wrote is read as they meant it, and not changed."""

from __future__ import annotations

from pathlib import Path

from penstock import Queue
from tests.formats.checks import tree_hash
from tests.formats.zbus.golden import (
    as_expected,
    asked_layout,
    every_case,
    expected_messages,
    wanted_layout,
)
from tests.golden_data import GoldenCase


def read_only(case: GoldenCase, path: Path) -> Queue:
    return Queue(path, layout=asked_layout(case), read_only=True)


@every_case
def test_messages_are_those_of_the_original(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    with read_only(case, path) as queue:
        found = [as_expected(message) for message in queue.scan()]
        assert found == expected_messages(case)
        assert len(queue) == len(found)


@every_case
def test_the_layout_is_recognised(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    with Queue(path, read_only=True) as queue:
        wanted = wanted_layout(case)
        if case.name == "empty" and case.layout in ("corr", "corr-abs"):
            wanted = "crc"  # Nothing tells them apart; the caller may.
        elif case.layout == "corr-abs" and case.name != "nak":
            later = [b for b in case.expected["blocks"] if b["baseOffset"] and b["endOffset"]]
            wanted = "corr-abs" if later else "corr"  # In block 0 both count alike.
        assert queue.store.layout == wanted
        assert queue.store.format.name == "zbus"


@every_case
def test_reading_changes_no_byte(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    before = tree_hash(path)
    with read_only(case, path) as queue:
        list(queue.scan())
        queue.verify()
        queue.stats()
        assert queue.meta
    assert tree_hash(path) == before


@every_case
def test_index_and_blocks_are_those_of_the_original(case: GoldenCase, tmp_path: Path) -> None:
    path, expected = case.copy(tmp_path), case.expected["index"]
    with read_only(case, path) as queue:
        meta = queue.meta
        assert meta["message_count"] == expected["messageCount"]
        assert meta["block_count"] == expected["blockCount"]
        assert meta["block_start"] == expected["blockStart"]
        assert meta["mask"] == expected.get("mask", expected.get("flag", 0))
        assert [meta[f"ext{n}"] for n in (1, 2, 3, 4)] == expected["ext"]
        for ours, theirs in (("creator", "creator"), ("created_ms", "createdTime")):
            assert meta.get(ours) == expected.get(theirs)
        assert meta.get("updated_ms") == expected.get("updatedTime")
        blocks = [
            (b["blockNumber"], b["baseOffset"], b["endOffset"], b["createdTime"], b["updatedTime"])
            for b in case.expected["blocks"]
        ]
        index = getattr(queue.store.format, "index")()  # noqa: B009  (not part of every format)
        assert [
            (b.number, b.base, b.end, b.created_ms, b.updated_ms) for b in index.blocks
        ] == blocks
        ends = [*(b[1] for b in blocks[1:]), None]
        infos = queue.store.segments()
        assert [(info.base, info.end) for info in infos] == [
            (block[1], end) for block, end in zip(blocks, ends, strict=True)
        ]


@every_case
def test_verify_finds_only_what_the_case_is_about(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    with read_only(case, path) as queue:
        verdict = queue.verify()
        assert verdict.corrupt == []
        assert verdict.messages == verdict.unchecked == len(case.expected["messages"])
        assert [d.found for d in verdict.torn] == (
            ["stray bytes after the end"] if case.name == "torn" else []
        )
