"""The list of a queue's segments, while others begin new ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.formats.segment_list import FORGOTTEN, SegmentList
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

    assert list(SegmentList.of(look, lambda: words.segment_base)) == THREE


def test_an_offset_is_found_in_full_segments_only() -> None:
    listed = SegmentList(THREE)
    assert listed.holding(-1) is None
    assert listed.holding(0) == THREE[0]
    assert listed.holding(19) == THREE[1]
    assert listed.holding(20) is None
    assert SegmentList().holding(0) is None


def test_those_above_an_offset_end_above_it() -> None:
    assert list(SegmentList(THREE).above(0)) == THREE
    assert list(SegmentList(THREE).above(10)) == THREE[1:]
    assert list(SegmentList(THREE).above(99)) == THREE[2:]
    assert list(SegmentList([info(0, 5), info(10, None)]).above(7)) == [info(10, None)]


def test_those_below_an_offset_end_at_or_before_it_and_the_last_one_is_never_among_them() -> None:
    assert SegmentList(THREE).below(9) == []
    assert SegmentList(THREE).below(10) == THREE[:1]
    assert SegmentList([info(0, 10), info(10, 20)]).below(99) == [info(0, 10)]


def test_a_segment_is_found_by_where_it_begins_or_what_it_reaches() -> None:
    listed = SegmentList(THREE)
    assert [listed.at(base) for base in (0, 10, 20, 15)] == [*THREE, None]
    assert [listed.beginning(base) for base in (0, 1, 20, 21)] == [*THREE, None]
    assert [listed.reaching(offset) for offset in (-5, 9, 10, 99)] == [
        THREE[0], THREE[0], THREE[1], THREE[2]
    ]  # fmt: skip
    assert SegmentList().reaching(0) is SegmentList().at(0) is None


def test_it_is_a_sequence() -> None:
    listed = SegmentList(THREE)
    assert (len(listed), listed[0], listed[-1], listed[:-1]) == (3, THREE[0], THREE[2], THREE[:2])
    assert list(reversed(listed)) == THREE[::-1]
    with pytest.raises(IndexError):
        SegmentList()[-1]


def test_a_new_segment_ends_the_one_before_it() -> None:
    listed = SegmentList(THREE, as_of=20)
    longer = listed.followed_by(NewSegment(Path("30"), 30, 30), 28)
    assert list(longer) == [*THREE[:2], info(20, 28), info(30, None)]
    assert longer.last_base == longer.as_of == 30
    assert list(listed) == THREE
    other = listed.followed_by(NewSegment(Path("40"), 40, 40), 40)
    assert list(other) == [*THREE[:2], info(20, 40), info(40, None)]
    assert list(longer)[2] == info(20, 28)


def test_what_was_trimmed_leaves_a_list_that_went_on_meanwhile() -> None:
    longer = SegmentList(THREE).followed_by(NewSegment(Path("30"), 30, 30), 30)
    assert list(longer.without(THREE[:2])) == [info(20, 30), info(30, None)]
    assert longer.without(THREE[:2]).without(THREE[:1])[0] == info(20, 30)


def test_a_list_that_only_others_trim_does_not_grow_for_ever() -> None:
    listed = SegmentList([info(0, None)])
    for base in range(10, 10_000, 10):
        listed = listed.followed_by(NewSegment(Path(str(base)), base, base), base, head=base - 10)
    assert len(listed) < 3 * FORGOTTEN
    assert listed[-2:] == [info(9980, 9990), info(9990, None)]


def test_the_oldest_go_until_the_rest_is_small_enough() -> None:
    sized = [replace(one, known_size=size) for one, size in zip(THREE, (5, 7, 11), strict=True)]
    listed = SegmentList(sized)
    assert (listed.bytes_above(0), listed.bytes_above(10), listed.bytes_above(20)) == (23, 18, 11)
    for most, count in ((23, 0), (22, 1), (18, 1), (17, 2), (0, 2)):
        assert listed.beyond(most, 0) == sized[:count], most
    assert listed.beyond(17, 10) == sized[1:2]


def test_a_listing_ends_however_fast_others_begin_segments() -> None:
    class Words:
        segment_base = 0

    words = Words()

    def look() -> list[SegmentInfo]:
        words.segment_base += 10  # Each time one has begun when the folder was listed.
        bases = range(0, words.segment_base + 1, 10)
        return [info(base, base + 10) for base in bases[:-1]] + [info(bases[-1], None)]

    found = SegmentList.of(look, lambda: words.segment_base)
    assert found.as_of == found[-1].base == words.segment_base - 10
    assert found[-1].end is None
    assert [one.base for one in found] == list(range(0, words.segment_base, 10))
