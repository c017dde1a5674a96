"""A scan is a table for all who speak Arrow's C stream; its rows are those of the messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import MissingExtraError, OptionError, Queue, Scan

Row = tuple[Any, ...]
COLUMNS = ["offset", "number", "timestamp_ns", "id", "key", "tag", "body"]


@pytest.fixture(params=["plain", "compressed", "encrypted"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "compressed": {"compression": "lz4"},
        "encrypted": {"key": bytes(range(32))},
    }
    options = kinds[request.param]
    with Queue(tmp_path / "q", segment_bytes=64 << 10, **options) as queue:
        for number in range(500):
            tag = None if number % 7 == 0 else f"eu.shop{number % 3}"
            key = f"k{number % 5}" if number % 2 else None
            queue.put(b"body %d" % number * 20, tag=tag, id=f"m-{number}", key=key)
        queue.put_many([b"", b"\xff\x00", b"x" * 5000])
        yield queue


def rows_of(queue: Queue) -> list[Row]:
    return [(m.offset, m.number, m.timestamp_ns, m.id, m.key, m.tag, m.body) for m in queue.scan()]


def by_pyarrow(scan: Scan) -> list[Row]:
    return [tuple(row.values()) for row in pa.table(scan).to_pylist()]


def by_polars(scan: Scan) -> list[Row]:
    import polars as pl  # Each of these takes long to load, and every run collects the tests.

    return list(pl.DataFrame(scan).iter_rows())


def by_duckdb(scan: Scan) -> list[Row]:
    import duckdb

    return duckdb.connect().execute("select * from scan").fetchall()


def by_pandas(scan: Scan) -> list[Row]:
    frame = pa.table(scan).to_pandas()
    missing_as_none = frame.astype(object).where(frame.notna(), None)
    return [tuple(row) for row in missing_as_none.itertuples(index=False)]


@pytest.mark.parametrize("read", [by_pyarrow, by_polars, by_duckdb, by_pandas])
def test_every_reader_sees_the_rows_of_the_messages(
    queue: Queue, read: Callable[[Scan], list[Row]]
) -> None:
    assert read(queue.scan(columns=COLUMNS)) == rows_of(queue)


def test_bodies_alone_are_those_of_the_messages(queue: Queue) -> None:
    bodies = pa.table(queue.scan(columns=["body"]))["body"].to_pylist()
    assert bodies == [message.body for message in queue.scan()]
    assert pa.table(queue.scan(columns=["body"], tags="eu.#")).num_rows < len(bodies)


def test_bodies_of_every_length_come_as_they_were_put(tmp_path: Path) -> None:
    bodies = [bytes([length % 251]) * length for length in range(400)]
    with Queue(tmp_path / "q") as queue:
        queue.put_many([*bodies, *reversed(bodies)])
        found = pa.table(queue.scan(columns=["body"]))["body"].to_pylist()
    assert found == [*bodies, *reversed(bodies)]


def test_bodies_alone_come_in_the_same_batches_as_with_their_offsets(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put_many([b"%d" % number for number in range(70_000)])
        queue.put_many([bytes([number]) * 700_000 for number in range(1, 9)])
        alone, whole = (
            pa.RecordBatchReader.from_stream(queue.scan(columns=columns)).read_all().to_batches()
            for columns in (["body"], ["offset", "body"])
        )
        assert len(alone) > 3
        assert [len(one) for one in alone] == [len(one) for one in whole]
        assert [one["body"] for one in alone] == [one["body"] for one in whole]


@pytest.mark.parametrize("columns", [["body"], ["offset", "body"]])
def test_damage_among_bodies_ends_the_table_with_an_error(
    tmp_path: Path, columns: list[str]
) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put_many([b"message %03d" % number for number in range(100)])
        (segment,) = (tmp_path / "q" / "log").glob("*.seg")
        at = segment.read_bytes().index(b"message 050")
        with segment.open("r+b") as stream:
            stream.seek(at)
            stream.write(b"M")
        with pytest.raises(pa.ArrowException, match="checksum"):
            pa.table(queue.scan(columns=columns))


def test_tags_are_filtered_inside_the_scan(queue: Queue) -> None:
    table = pa.table(queue.scan(tags="*.shop1;*.shop2", columns=["tag"]))
    assert set(table["tag"].to_pylist()) == {"eu.shop1", "eu.shop2"}


def test_headers_arrive_as_a_map(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"x", headers={"a": "1", "b": "2"})
        assert pa.table(queue.scan(columns=["headers"]))["headers"].to_pylist() == [
            [("a", "1"), ("b", "2")]
        ]


def test_an_unknown_column_is_refused_by_name(queue: Queue) -> None:
    with pytest.raises(OptionError, match="colour"):
        pa.table(queue.scan(columns=["colour"]))


def test_a_table_that_was_read_can_be_put_again(queue: Queue, tmp_path: Path) -> None:
    table = pa.table(queue.scan(columns=["body", "tag", "id", "key", "timestamp_ns"]))
    with Queue(tmp_path / "copy") as copy:
        copy.put_many(table)
        assert [row[2:] for row in rows_of(copy)] == [row[2:] for row in rows_of(queue)]


def test_a_polars_frame_goes_in_as_it_came_out(tmp_path: Path) -> None:
    with Queue(tmp_path / "a") as one, Queue(tmp_path / "b") as other:
        one.put(b"plain")
        one.put(b"full", tag="t", id="i", key="k", headers={"a": "1", "b": "2"})
        frame = one.to_polars()
        assert frame.height == 2
        other.put_many(frame)
        assert rows_of(other) == rows_of(one)
        assert [m.headers for m in other.scan()] == [{}, {"a": "1", "b": "2"}]
        import polars as pl

        other.put_many(pl.DataFrame({"body": ["text"]}, schema={"body": pl.String}))
        assert other.to_polars(start="number:2")["body"].to_list() == [b"text"]


def test_a_pandas_frame_is_made_of_a_scan_and_taken(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put_many([b"a", b"b"], tag="t")
        frame = queue.to_pandas(columns=["tag", "body"], tags="t")
        assert frame.to_dict("list") == {"tag": ["t", "t"], "body": [b"a", b"b"]}
        queue.put_many(frame)
        assert len(queue) == 4


def test_a_notebook_shows_a_queue_and_its_oldest_messages_as_text(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"<script>", tag="<b>")
        queue.put_many([b"x"] * 9)
        assert [message.body for message in queue.head(2)] == [b"<script>", b"x"]
        assert len(queue.head()) == 5
        assert queue.head(0) == []
        with pytest.raises(OptionError, match="count=-1"):
            queue.head(-1)
        shown = queue._repr_html_()
        assert shown.count("<tr>") == 6
        assert "&lt;script&gt;" in shown
        assert "<script>" not in shown
        assert "10 messages" in shown
        assert queue.lag == 10
    assert "closed" in queue._repr_html_()


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with Queue(tmp_path / "q") as queue, pytest.raises(MissingExtraError, match="pip install pol"):
        queue.to_polars()
