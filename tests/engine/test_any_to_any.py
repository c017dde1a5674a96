"""Every format to every other and back: the same messages, in whatever both can hold."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock import Message, Queue, UnsupportedError
from penstock.engine.convert import FIELDS, convert
from penstock.engine.convert import ConversionReport as Report
from penstock.formats.registry import MODULES
from tests.opening import small_segments

WHEN = 1_700_000_000_000_000_000
LAYOUTS: dict[str, list[str | None]] = {
    "penstock": [None],
    "zbus": ["doc000", "doc001", "flag", "corr", "crc"],
    "beats": ["0", "1", "2-released", "2-released-lz4"],
    "vqs": ["doc", "stage4"],
    "mfq": [None],
}
EVERY = [(name, layout) for name, layouts in LAYOUTS.items() for layout in layouts]
PAIRS = [(a, b) for a in LAYOUTS for b in LAYOUTS]

ORIGIN = [
    Message(b"plain"),
    Message(b"tagged", tag="eu.orders.new"),
    Message(b"named", id="order-17"),
    Message(b"keyed", key="customer-9"),
    Message(b"with headers", headers={"trace": "7", "kind": "test"}),
    Message(b"late", due_ns=WHEN + 10**18),
    Message(b"soon", due_ns=time.time_ns() + 50 * 10**9),
    Message(b"all", tag="us.x", id="o-2", key="k", headers={"a": "b"}, timestamp_ns=WHEN),
    Message(bytes(range(256)), timestamp_ns=WHEN + 5_000_000_000),
    Message(b"\xee" * 238),
    Message(b"x" * 5000),
]


def test_every_format_there_is_takes_part() -> None:
    assert set(LAYOUTS) == set(MODULES)


def make(folder: Path, name: str, format: str, layout: str | None) -> Queue:
    path = folder / (f"{name}.bin" if format == "vqs" and layout == "doc" else name)
    queue = Queue(
        path, format=format, layout=layout, durability="process", **small_segments(format, 1 << 20)
    )
    if queue.store.capabilities.deletes_consumed:
        queue.group("hold")
    return queue


def values(message: Message, lost: set[str]) -> dict[str, Any]:
    """What must be the same: times in milliseconds, headers without those that VQS adds."""
    stamp = message.timestamp_ns
    headers = {k: v for k, v in message.headers.items() if not k.startswith("vqs.")}
    found = {
        "body": message.body,
        "tag": message.tag,
        "id": message.id,
        "key": message.key,
        "headers": headers,
        "delay": message.due_ns,
        "timestamp": None if stamp is None else stamp // 1_000_000,
    }
    return {name: value for name, value in found.items() if name not in lost}


def there_and_back(
    folder: Path, one: tuple[str, str | None], two: tuple[str, str | None]
) -> tuple[Report, Report]:
    with (
        make(folder, "origin", "penstock", None) as origin,
        make(folder, "one", *one) as first,
        make(folder, "two", *two) as second,
        make(folder, "back", *one) as back,
    ):
        origin.put_many(ORIGIN)
        convert(origin, first, drop=FIELDS)
        there = convert(first, second, drop=FIELDS)
        home = convert(second, back, drop=FIELDS)
        lost = {*there.lost, *home.lost}
        assert [values(m, lost) for m in back.scan()] == [values(m, lost) for m in first.scan()]
        assert there.verified == home.verified == len(ORIGIN)
        return there, home


@pytest.mark.parametrize(("one", "two"), PAIRS, ids=lambda name: str(name))
def test_every_pair_of_formats_there_and_back(tmp_path: Path, one: str, two: str) -> None:
    there_and_back(tmp_path, (one, LAYOUTS[one][0]), (two, LAYOUTS[two][0]))


@pytest.mark.parametrize("other", EVERY, ids=lambda other: "-".join(filter(None, other)))
def test_every_layout_to_ours_and_back_loses_nothing(
    tmp_path: Path, other: tuple[str, str | None]
) -> None:
    there, home = there_and_back(tmp_path, other, ("penstock", None))
    assert there.lost == {}
    assert home.left_out == 0


@pytest.mark.parametrize("format", list(LAYOUTS))
def test_what_is_not_named_is_refused_and_nothing_written(tmp_path: Path, format: str) -> None:
    with (
        make(tmp_path, "origin", "penstock", None) as origin,
        make(tmp_path, "other", format, LAYOUTS[format][0]) as other,
    ):
        origin.put_many(ORIGIN)
        report = convert(origin, other, drop=FIELDS, dry_run=True)
        if not report.lost:
            assert convert(origin, other).verified == len(ORIGIN)
            return
        with pytest.raises(UnsupportedError, match="drop=") as refusal:
            convert(origin, other)
        assert all(name in str(refusal.value) for name in report.lost)
        assert list(other.scan()) == []
