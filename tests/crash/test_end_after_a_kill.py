"""Where a queue ends after a kill is found from its last frames, however many lie before them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, _core
from penstock.formats.past import NEAR_BYTES
from tests.copies import copy_as_killed
from tests.reading import bodies

MIB = 1 << 20


def counting(walk: Callable[..., _core.Walked], lengths: list[int]) -> Callable[..., _core.Walked]:
    """A walk that notes how many bytes it has gone."""

    def counted(segment: _core.Segment, start: int, limit: int, **how: Any) -> _core.Walked:
        seen = walk(segment, start, limit, **how)
        lengths.append(seen.end - start)
        return seen

    return counted


@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "vqs", "mfq"])
def test_opening_after_a_kill_walks_no_more_of_a_full_segment_than_of_an_empty_one(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size: dict[str, Any] = (
        {"max_bytes": 16 * MIB} if format == "vqs" else {"segment_bytes": 16 * MIB}
    )
    with Queue(tmp_path / "open" / "q", format=format, durability="process", **size) as queue:
        for _ in range(12):
            queue.put_many([bytes(1000)] * 1000)
        copy_as_killed(tmp_path / "open", tmp_path / "left")
    lengths: list[int] = []
    monkeypatch.setattr(_core, "walk", counting(_core.walk, lengths))
    with Queue(tmp_path / "left" / "q", create=False, durability="process") as queue:
        assert sum(lengths) <= 2 * NEAR_BYTES[0]
        assert sum(1 for _ in queue.scan()) == 12_000


@pytest.mark.parametrize("size", [NEAR_BYTES[0] + 1000, NEAR_BYTES[1] + 1000])
@pytest.mark.parametrize("format", ["penstock", "zbus", "beats", "mfq"])
def test_a_last_message_that_is_longer_than_what_is_looked_at_first_is_the_end(
    tmp_path: Path, format: str, size: int
) -> None:
    given: dict[str, Any] = {"durability": "process", "segment_bytes": 16 * MIB}
    with Queue(tmp_path / "open" / "q", format=format, **given) as queue:
        queue.put_many([b"first", bytes(size)])
        end = queue.offsets()
        copy_as_killed(tmp_path / "open", tmp_path / "left")
    with Queue(tmp_path / "left" / "q", create=False, durability="process") as queue:
        found = queue.offsets()
        queue.put(b"new")
        assert [len(body) for body in bodies(queue)] == [5, size, 3]
    # Beats ends the segment, so the next message is in another one.
    assert format == "beats" or (found.tail, found.next_number) == (end.tail, end.next_number)
