"""Export and import: what goes out comes back the same."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import FormatError, Message, OptionError, Queue, UnsupportedError
from penstock.engine import exchange
from penstock.engine.convert import FIELDS, Progress, convert
from tests.opening import small_segments

MESSAGES = [
    Message(b"\x00\xffbytes", tag="eu.orders", id="o-1", key="k", headers={"a": "1", "ü": "ö"}),
    Message(b"", timestamp_ns=1_700_000_000_123_456_789),
    Message(b"later", due_ns=4_000_000_000_000_000_000),
    Message(b"x" * 70_000, tag="us"),
]


def fields(message: Message) -> tuple[object, ...]:
    return (
        message.body,
        message.tag,
        message.id,
        message.key,
        message.headers,
        message.timestamp_ns,
        message.due_ns,
    )


@pytest.fixture
def source(tmp_path: Path) -> Queue:
    queue = Queue(tmp_path / "source")
    queue.put_many(MESSAGES)
    return queue


@pytest.mark.parametrize("kind", exchange.KINDS)
def test_what_is_exported_comes_back_the_same(tmp_path: Path, source: Queue, kind: str) -> None:
    file = tmp_path / f"file.{kind}"
    out = exchange.export(source, file)
    with Queue(tmp_path / "target") as target:
        back = exchange.import_(file, target)
        assert out.messages == back.messages == len(MESSAGES)
        assert out.bytes == back.bytes == sum(map(len, MESSAGES))
        assert [fields(m) for m in target.scan()] == [fields(m) for m in source.scan()]


@pytest.mark.parametrize("kind", exchange.KINDS)
@pytest.mark.parametrize("format", ["zbus", "beats", "vqs", "mfq"])
def test_every_format_comes_back_the_same_from_every_kind_of_file(
    tmp_path: Path, source: Queue, kind: str, format: str
) -> None:
    """The fields that the format holds, the due time and the key among them: those lie beside."""
    names = ["one.bin", "two.bin"] if format == "vqs" else ["one", "two"]
    first, second = (
        Queue(
            tmp_path / name, format=format, durability="process", **small_segments(format, 1 << 18)
        )
        for name in names
    )
    with first, second:
        for queue in (first, second):
            queue.group("hold")
        convert(source, first, drop=FIELDS)
        file = tmp_path / f"file.{kind}"
        out = exchange.export(first, file)
        assert exchange.import_(file, second).messages == out.messages >= 3
        assert [fields(m) for m in second.scan()] == [fields(m) for m in first.scan()]
        held = {message.due_ns for message in second.scan()}
        assert 4_000_000_000_000_000_000 in held


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_table_has_these_columns(tmp_path: Path, source: Queue, kind: str) -> None:
    exchange.export(source, tmp_path / f"file.{kind}")
    with (tmp_path / f"file.{kind}").open("rb") as stream:
        read = pq.read_table if kind == "parquet" else lambda s: pa.ipc.open_stream(s).read_all()
        table = read(stream)
    assert tuple(table.schema.names) == exchange.COLUMNS
    assert table.schema.field("due").type == pa.timestamp("ns", "UTC")
    assert table.column("due").null_count == len(MESSAGES) - 1


def test_a_table_is_put_with_its_due_times(tmp_path: Path, source: Queue) -> None:
    table = pa.table(source.scan(columns=exchange.COLUMNS))
    with Queue(tmp_path / "target") as target:
        target.put_many(table)
        assert [fields(m) for m in target.scan()] == [fields(m) for m in source.scan()]


@pytest.mark.parametrize("column", ["tag", "id", "headers", "timestamp", "due"])
def test_a_table_with_a_column_of_another_type_is_refused(tmp_path: Path, column: str) -> None:
    table = pa.table({"body": [b"x"], column: [1.5]})
    pq.write_table(table, tmp_path / "odd.parquet")
    with Queue(tmp_path / "q") as queue:
        with pytest.raises(UnsupportedError, match="row"):
            exchange.import_(tmp_path / "odd.parquet", queue)
        assert len(queue) == 0


def test_an_unknown_field_to_drop_is_an_error(tmp_path: Path, source: Queue) -> None:
    exchange.export(source, tmp_path / "f.jsonl")
    with Queue(tmp_path / "target") as target:
        with pytest.raises(OptionError, match="some of tag, id"):
            exchange.import_(tmp_path / "f.jsonl", target, drop=["color"])
        assert len(target) == 0


def test_a_line_is_the_object_of_the_contract(source: Queue) -> None:
    stream = io.BytesIO()
    exchange.export(source, stream, kind="jsonl")
    first, second, *_ = [json.loads(line) for line in stream.getvalue().splitlines()]
    names = ["offset", "number", "timestamp_ns", "id", "tag", "headers", "body"]
    assert list(first) == [*names, "key"]
    assert list(second) == names
    assert (second["id"], second["tag"], second["headers"], second["body"]) == (None,) * 3 + ("",)
    assert base64.b64decode(first["body"]) == b"\x00\xffbytes"
    assert first["headers"] == {"a": "1", "ü": "ö"}


def test_a_range_and_tags_choose_what_is_exported(source: Queue) -> None:
    stream = io.BytesIO()
    done = exchange.export(source, stream, kind="jsonl", start="number:1", tags="us")
    assert done.messages == 1
    assert json.loads(stream.getvalue())["number"] == 3


def test_progress_ends_at_the_end(tmp_path: Path, source: Queue) -> None:
    seen: list[Progress] = []
    exchange.export(source, tmp_path / "f.jsonl", on_progress=seen.append)
    assert (seen[-1].offset, seen[-1].messages) == (seen[-1].end, len(MESSAGES))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "line 2 is not JSON"),
        (b"[" * 100_000, "line 2 is not JSON"),
        (b"[]", "line 2: not an object"),
        (b'{"body": 1}', "line 2: not an object"),
        (b'{"body": "?"}', "line 2"),
        (b'{"body": "", "tag": 1}', "line 2"),
        (b'{"body": "", "timestamp_ns": 1e400}', "line 2"),
    ],
)
def test_a_line_that_is_no_message_is_refused(tmp_path: Path, line: bytes, why: str) -> None:
    stream = io.BytesIO(b'{"body": ""}\n' + line + b"\n")
    with Queue(tmp_path / "q") as queue, pytest.raises(UnsupportedError, match=why):
        exchange.import_(stream, queue, kind="jsonl")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, kind: str) -> None:
    with Queue(tmp_path / "q") as queue, pytest.raises(FormatError):
        exchange.import_(io.BytesIO(b"no table at all"), queue, kind=kind)


def test_a_file_without_a_known_suffix_needs_its_kind(tmp_path: Path, source: Queue) -> None:
    with pytest.raises(OptionError, match="jsonl, parquet or arrow"):
        exchange.export(source, tmp_path / "file.csv")


@pytest.mark.parametrize("kind", exchange.KINDS)
def test_what_the_queue_can_t_hold_is_refused_before_anything_is_put(
    tmp_path: Path, source: Queue, kind: str
) -> None:
    source.put_many([b"more"] * 2000)
    source.put(b"", tag="last")
    file = tmp_path / f"file.{kind}"
    exchange.export(source, file)
    with Queue(tmp_path / "target", format="mfq", segment_bytes=1 << 20) as target:
        with pytest.raises(UnsupportedError, match=r"tag \(3 messages.*drop=tag,id") as refusal:
            exchange.import_(file, target, drop=["timestamp"])
        assert "body (2 messages, first at message 1)" in str(refusal.value)
        assert target.offsets().tail == 0
        done = exchange.import_(file, target, drop=FIELDS)
        assert done.lost == {"timestamp": 2005, "tag": 3, "id": 1, "headers": 1, "body": 2}
        assert (done.messages, done.left_out) == (2003, 2)
        found = list(target.scan())
        assert [m.body for m in found] == [m.body for m in source.scan() if m.body]
        assert [found[0].key, found[1].due_ns] == ["k", MESSAGES[2].due_ns]


def test_a_stream_that_can_t_be_read_twice_is_checked_as_it_comes(
    tmp_path: Path, source: Queue
) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    file = tmp_path / "f.jsonl"
    exchange.export(source, file)
    with Queue(tmp_path / "target", format="mfq", segment_bytes=1 << 20) as target:
        with pytest.raises(UnsupportedError, match="timestamp"):
            exchange.import_(Pipe(file.read_bytes()), target, kind="jsonl")
        stream = Pipe(file.read_bytes())
        assert exchange.import_(stream, target, kind="jsonl", drop=FIELDS).messages == 3


def test_fields_that_fit_are_kept_whatever_may_be_left_out(tmp_path: Path, source: Queue) -> None:
    exchange.export(source, tmp_path / "f.jsonl")
    with Queue(tmp_path / "target") as target:
        assert exchange.import_(tmp_path / "f.jsonl", target, drop=FIELDS).lost == {}
        assert [fields(m) for m in target.scan()] == [fields(m) for m in source.scan()]
