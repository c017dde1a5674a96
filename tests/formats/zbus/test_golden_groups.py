"""The original's readers are groups here: each reads next what it should read next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.formats.zbus.readers import nak_path
from penstock.formats.zbus.structs import NAK, NAK_RECORD_ABS
from tests.formats.zbus.golden import CASES, asked_layout, every_case
from tests.golden_data import GoldenCase

NAKS = [case for case in CASES if "naks" in case.expected]


def next_of(case: GoldenCase, reader: dict[str, Any]) -> list[int]:
    """Numbers that the reader should get; the original itself fails at some of them."""
    rows = reader.get("readsNextIntended", reader.get("readsNextAfterReopen"))
    assert isinstance(rows, list)
    return [row["messageNumber"] for row in rows]


@every_case
def test_groups_read_on_where_the_original_would(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    with Queue(path, layout=asked_layout(case), create=False) as queue:
        assert queue.groups() == sorted(case.expected["readers"])
        for name, reader in case.expected["readers"].items():
            group = queue.group(name, create=False)
            assert group.options.tags == (reader["raw"]["filter"] or "")
            owed = sum(
                r["status"] for r in case.expected.get("naks", {}).get(name, {}).get("records", [])
            )
            found = [message.number for message in group.get_many(500)]
            assert found[owed:] == next_of(case, reader)


@every_case
def test_a_group_that_was_read_to_the_end_stays_there(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    with Queue(path, layout=asked_layout(case), create=False) as queue:
        for name in queue.groups():
            for message in queue.group(name).get_many(500):
                message.ack()
    with Queue(path, create=False) as queue:
        for name in queue.groups():
            assert queue.group(name).get_many(9) == []
            assert queue.group(name).cursor == queue.offsets().tail


@pytest.mark.parametrize("case", NAKS, ids=lambda case: case.id)
def test_what_the_nak_file_says_is_out_comes_first_and_counts(
    case: GoldenCase, tmp_path: Path
) -> None:
    path = case.copy(tmp_path)
    with Queue(path, create=False) as queue:
        for name, naks in case.expected["naks"].items():
            group = queue.group(name)
            assert group.options.max_in_flight == naks["window"]
            assert group.options.visibility_s == naks["timeout"] / 1000
            out = [r for r in naks["records"] if r["status"] == 1]
            again = group.get_many(len(out))
            assert [m.offset for m in again] == sorted(r["offset"] for r in out)
            tries = {r["offset"]: r["retryCount"] + 1 for r in out}
            assert {m.offset: m.receives for m in again} == tries


@pytest.mark.parametrize("name", ["nak", "rollover"])
def test_nak_records_of_corr_abs_have_the_messages_ids(name: str, tmp_path: Path) -> None:
    case = next(c for c in CASES if c.id == f"corr-abs/{name}")
    path = case.copy(tmp_path)
    with Queue(path, create=False) as queue:
        for number in range(3):
            queue.put(b"ours", id=f"ours-{number}", tag="a.b")
        group = queue.group("fresh", max_in_flight=900)
        held = group.get_many(800)
        assert len(held) == len(case.expected["messages"]) + 3
        held.pop(0).ack()
        raw = nak_path(path, "fresh").read_bytes()
    assert len(raw) == 62_024
    found = {}
    for entry in range(1000):
        record = NAK_RECORD_ABS.unpack(raw, NAK.size + entry * NAK_RECORD_ABS.size)
        if record["status"] == 1:
            found[record["offset"]] = (record["id"].decode(), record["retries"])
    assert found == {message.offset: (message.id or "", 1) for message in held}
