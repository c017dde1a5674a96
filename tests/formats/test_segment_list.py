"""The list of a queue's segments, while others begin new ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.formats.segment_list import SegmentList
from penstock.formats.values import NewSegment, SegmentInfo


def info(base: int, end: int | None) -> SegmentInfo:
    return SegmentInfo(Path(str(base)), base, base, end, None)


THREE = [info(0, 10), info(10, 20), info(20, None)]


@dataclass
class Words:
    segment_base: int


def test_a_listing_that_missed_a_segment_between_others_is_made_again() -> None:
    words = Words(0)

    def look() -> list[SegmentInfo]:
        if words.segment_base == 20:
            return THREE
        words.segment_base = 20  # Two have begun, and the folder showed the second one only.
        return [info(0, 20), info(20, None)]

    assert SegmentList.of(look, words).infos == THREE


def test_an_offset_is_found_in_full_segments_only() -> None:
    listed = SegmentList(THREE)
    assert listed.holding(-1) is None
    assert listed.holding(0) == THREE[0]
    assert listed.holding(19) == THREE[1]
    assert listed.holding(20) is None
    assert SegmentList().holding(0) is None


def test_those_above_an_offset_end_above_it() -> None:
    assert SegmentList(THREE).above(0) == THREE
    assert SegmentList(THREE).above(10) == THREE[1:]
    assert SegmentList(THREE).above(99) == THREE[2:]
    assert SegmentList([info(0, 5), info(10, None)]).above(7) == [info(10, None)]


def test_a_new_segment_ends_the_one_before_it() -> None:
    listed = SegmentList(THREE).followed_by(NewSegment(Path("30"), 30, 30))
    assert listed.infos == [*THREE[:2], info(20, 30), info(30, None)]
    assert listed.last_base == 30
    assert THREE[2].end is None
