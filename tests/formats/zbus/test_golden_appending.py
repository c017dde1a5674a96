"""What an original wrote goes on in its own layout, and no byte changes that need not."""

from __future__ import annotations

from pathlib import Path

from penstock import Queue
from penstock.formats.zbus import structs
from penstock.formats.zbus.index import slot_at
from penstock.formats.zbus.structs import TABLE
from tests.formats.zbus.golden import (
    as_expected,
    asked_layout,
    every_case,
    expected_messages,
    files_of,
)
from tests.golden_data import GoldenCase


def may_move(layout: str, case: GoldenCase) -> list[range]:
    """Bytes of the index that an append changes: the count, and the last block's entry."""
    table, blocks = TABLE[layout], case.expected["blocks"]
    count = table.index.offset_of("message_count")
    last = slot_at(blocks[-1]["blockNumber"])
    moved = [range(count, count + 8), range(last, last + structs.ENTRY_BYTES)]
    if blocks[-1]["endOffset"] >= 4096:  # The cases with a low limit roll here.
        following = slot_at(blocks[-1]["blockNumber"] + 1)
        moved += [range(4, 8), range(following, following + structs.ENTRY_BYTES)]
    return moved


@every_case
def test_appended_messages_follow_the_old_ones(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    with Queue(path, layout=asked_layout(case), create=False) as queue:
        layout = queue.store.layout
        for number in range(3):
            queue.put(b"new %d" % number, tag="new", id=f"id-{number}")
    with Queue(path, read_only=True) as queue:
        assert queue.store.layout == layout
        found = list(queue.scan())
        old = expected_messages(case)
        assert [as_expected(message) for message in found[:-3]] == old
        assert [(m.body, m.tag, m.id) for m in found[-3:]] == [
            (b"new %d" % n, "new", f"id-{n}") for n in range(3)
        ]
        numbers = [message.number or 0 for message in found[-4:]]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert queue.meta["message_count"] == case.expected["index"]["messageCount"] + 3
        verdict = queue.verify()
        assert verdict.is_ok
        assert verdict.unchecked == len(old)


@every_case
def test_old_bytes_stay_where_they_are(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    before = files_of(path)
    with Queue(path, layout=asked_layout(case), create=False) as queue:
        layout = queue.store.layout
        queue.put(b"one more")
    after = files_of(path)
    moved = may_move(layout, case)
    for name, old in before.items():
        new = after[name]
        if name.endswith(".idx"):
            assert len(new) == len(old)
            changed = [at for at in range(len(old)) if old[at] != new[at]]
            assert [at for at in changed if not any(at in part for part in moved)] == []
        elif name.endswith(".zbus"):
            last = case.expected["blocks"][-1]
            end = last["endOffset"] if name == last["file"] else len(old)
            assert new[:end] == old[:end]
        else:
            assert new == old


@every_case
def test_a_block_file_is_as_long_as_its_entry_says(case: GoldenCase, tmp_path: Path) -> None:
    path = case.copy(tmp_path)
    with Queue(path, layout=asked_layout(case), create=False) as queue:
        queue.put(b"one more")
    with Queue(path, read_only=True) as queue:
        index = getattr(queue.store.format, "index")()  # noqa: B009  (not part of every store)
        for block in index.blocks:
            assert (path / "data" / f"{block.base:020d}.zbus").stat().st_size == block.end
