"""Batch reads, by calling the reader as Spark does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock import (
    KeyNeededError,
    NoQueueError,
    OptionError,
    Queue,
    StorageError,
    UnsupportedError,
)
from penstock.formats.store import Store
from penstock.options import Compression
from penstock.spark import opening, source
from penstock.spark.loss import DataLoss
from penstock.spark.options import SourceOptions
from penstock.spark.ship import ship
from tests.spark.helpers import MESSAGE, batch, collect, drain, fill, options_of, scanned, stream

COLUMNS = ",".join(MESSAGE)
KAFKA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    "timestampType:int,headers:array<struct<key:string,value:binary>>>"
)
"""The schema of Spark's Kafka source (includeHeaders), as its documentation has it."""


def test_a_batch_equals_a_scan(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 500)
    assert batch(path, columns=COLUMNS) == scanned(path)


@pytest.mark.parametrize("size", [1, 100, 2000])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_small_splits_lose_and_repeat_nothing(
    tmp_path: Path, size: int, compression: Compression
) -> None:
    path = tmp_path / "q"
    with Queue(path, compression=compression, segment_bytes=16384) as queue:
        for first in range(0, 300, 30):
            queue.put_many([b"x" * 100 + b"%d" % n for n in range(first, first + 30)])
            queue.put(b"alone")
    given = options_of(path, columns=COLUMNS, targetPartitionBytes=size)
    reader = source.reader(given, source.schema(given))
    tasks = reader.partitions()
    assert len(tasks) > 1
    assert collect(reader, tasks) == scanned(path)


def test_a_task_opens_a_queue_once_for_all_its_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fill(tmp_path / "q", 2000, segment_bytes=16384)
    given = options_of(path, columns=COLUMNS)
    reader = source.reader(given, source.schema(given))
    (task,) = reader.partitions()
    opened, open_store = [], opening.open_store

    def counted(*args: Any, **options: Any) -> Store:
        opened.append(args)
        return open_store(*args, **options)

    monkeypatch.setattr(opening, "open_store", counted)
    assert collect(reader, [task]) == scanned(path)
    assert len(list((path / "log").iterdir())) > 10
    assert len(opened) == 1


@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["plain", "encrypted"])
def test_spans_that_follow_each_other_in_the_same_memory_keep_their_own_rows(
    tmp_path: Path, key: bytes | None
) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    sizes = (90_000, 40_000, 130_000)
    with Queue(tmp_path / "q", key=key, segment_bytes=14 << 20) as queue:
        queue.put_many([bytes([n % 251]) * sizes[n % 3] for n in range(400)])
    given = {} if key is None else {"keyFile": tmp_path / "key"}
    wanted = [bytes([n % 251]) * sizes[n % 3] for n in range(400)]
    # Whole segments, the last one shorter; then parts of them, each beginning further back.
    for size in ("64m", "5m"):
        rows = batch(tmp_path / "q", columns="body", targetPartitionBytes=size, **given)
        assert [row["body"] for row in rows] == wanted


def test_a_subset_of_columns_is_all_that_is_read(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 3)
    assert batch(path, columns="tag,queue") == [{"tag": f"t.{n}", "queue": "q"} for n in range(3)]


def test_a_list_and_a_glob_name_their_queues(tmp_path: Path) -> None:
    fill(tmp_path / "eu" / "orders", 2)
    fill(tmp_path / "us" / "orders", 1)
    found = batch(f"{tmp_path}/*/orders", columns="queue")
    assert [row["queue"] for row in found] == ["eu/orders"] * 2 + ["us/orders"]
    fill(tmp_path / "bills", 1)
    found = batch([tmp_path / "bills", tmp_path / "eu" / "orders"], columns="queue")
    assert [row["queue"] for row in found] == ["bills", "orders", "orders"]


def test_offsets_and_times_bound_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path) as queue:
        offsets = [queue.put(b"x", timestamp_ns=n * 1_000_000_000) for n in range(1, 11)]
    found = batch(path, columns="offset", startingOffsets=offsets[3], endingOffsets=offsets[6])
    assert [row["offset"] for row in found] == offsets[3:6]
    found = batch(path, columns="offset", startingTimestamp="3000", endingTimestamp="5000")
    assert [row["offset"] for row in found] == offsets[2:4]
    by_name = f'{{"q": {offsets[8]}}}'
    assert len(batch(path, columns="offset", startingOffsets=by_name)) == 2


def test_a_batch_may_begin_inside_a_compressed_frame(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, compression="lz4") as queue:
        queue.put_many([b"a" * 200] * 50)
    offsets = [row["offset"] for row in scanned(path)]
    found = batch(path, columns="offset", startingOffsets=offsets[20])
    assert [row["offset"] for row in found] == offsets[20:]


def test_the_end_of_a_beats_segment_is_where_the_next_one_begins(tmp_path: Path) -> None:
    path = tmp_path / "q"
    for body in (b"1", b"2"):
        with Queue(path, format="beats") as queue:
            queue.put(body)
    with Queue(path, read_only=True) as queue:
        end = str(queue.store.segments()[0].end)
    assert [r["body"] for r in batch(path, columns="body", startingOffsets=end)] == [b"2"]
    assert [r["body"] for r in batch(path, columns="body", endingOffsets=end)] == [b"1"]
    with Queue(path) as queue:
        assert queue.trim(int(end)) == 1


def test_only_what_is_durable_is_read(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put(b"synced")
        queue.sync()
        queue.put(b"not yet")
        assert [row["body"] for row in batch(tmp_path / "q", columns="body")] == [b"synced"]


def test_the_kafka_layout_has_kafkas_columns(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 1)
    given = options_of(path, layout="kafka")
    assert source.schema(given).simpleString() == KAFKA
    (row,) = batch(path, layout="kafka")
    assert row["value"] == b"body-0"
    assert (row["topic"], row["partition"], row["timestampType"]) == ("q", 0, 0)
    assert row["headers"] == [{"key": "n", "value": b"0"}]


def test_frames_say_where_they_are(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 2)
    first, second = batch(path, table="frames")
    assert first["position"] + first["length"] == second["position"]
    assert first["checksum_ok"] is True
    assert first["segment"].endswith(".seg")


def test_segments_and_groups_are_tables(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 20)
    with Queue(path) as queue:
        queue.group("billing").get_many(5)
    (segment,) = batch(path, table="segments")
    assert (segment["format"], segment["base"], segment["sealed"]) == ("penstock", 0, False)
    (group,) = batch(path, table="groups")
    assert (group["group"], group["lag_bytes"] > 0) == ("billing", True)


def damage(path: Path) -> tuple[Path, int]:
    """Turns a byte in the middle of a queue's only segment."""
    (segment,) = path.glob("log/*.seg")
    raw = bytearray(segment.read_bytes())
    at = raw.index(b"body-50")
    raw[at] ^= 1
    segment.write_bytes(bytes(raw))
    return segment, at


def test_damage_fails_the_query_with_file_and_byte(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    segment, _ = damage(path)
    with pytest.raises(DataLoss, match=rf"queue q: .*{segment.name}:\d+: found"):
        batch(path)


def test_damage_may_be_passed_over_and_shown(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    _, at = damage(path)
    found = batch(path, columns="body,error,position,checksum_ok", failOnDataLoss="false")
    assert len([row for row in found if row["error"] is None]) == 99
    (bad,) = [row for row in found if row["error"] is not None]
    assert bad["checksum_ok"] is False
    assert 0 <= at - bad["position"] < 200


def test_a_segment_that_was_cut_short_fails_the_query(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    given = options_of(path)
    reader = source.reader(given, source.schema(given))
    tasks = reader.partitions()
    (segment,) = path.glob("log/*.seg")
    segment.write_bytes(segment.read_bytes()[:6000])
    with pytest.raises(DataLoss, match="cut short"):
        collect(reader, tasks)


def test_a_queue_that_was_made_anew_fails_the_planned_query(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    given = options_of(path)
    reader = source.reader(given, source.schema(given))
    tasks = reader.partitions()
    path.rename(tmp_path / "old")
    fill(path, 10)
    with pytest.raises(DataLoss, match="another queue now"):
        collect(reader, tasks)


def test_an_encrypted_queue_needs_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fill(tmp_path / "q", 5, key=bytes(range(32)))
    monkeypatch.setenv("THE_KEY", bytes(range(32)).hex())
    monkeypatch.setenv("ANOTHER", "ab" * 32)
    assert len(batch(path, keyEnv="THE_KEY")) == 5
    for allowed in ("true", "false"):  # what nobody can read is no damage to pass over
        with pytest.raises(KeyNeededError, match=r"queue q: .*encrypted.*keyFile or keyEnv"):
            batch(path, failOnDataLoss=allowed)
    with pytest.raises(KeyNeededError, match=r"not the key .*keyFile or keyEnv"):
        batch(path, keyEnv="ANOTHER", failOnDataLoss="false")


def test_a_shipped_queue_needs_its_key_too(tmp_path: Path) -> None:
    path, url = fill(tmp_path / "q", 5, key=bytes(range(32))), f"memory://{tmp_path.name}/sealed"
    (tmp_path / "key").write_bytes(bytes(range(32)))
    ship(path, url, whole=True, keyFile=str(tmp_path / "key"))
    assert len(batch(url, keyFile=str(tmp_path / "key"))) == 5
    with pytest.raises(KeyNeededError, match="queue sealed"):
        batch(url, failOnDataLoss="false")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": "bodi"}, "expected some of queue, offset"),
        ({"table": "rows"}, "messages, segments, groups, frames or counts"),
        ({"startingOfsets": "1"}, "startingOffsets"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss='maybe': expected true or false"),
        ({"layout": "kafka", "table": "frames"}, "messages where layout is kafka"),
        ({"paths": "[1]"}, "a list as JSON"),
        ({"targetPartitionBytes": "much"}, "a size like 64m"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: dict[str, str], text: str) -> None:
    path = fill(tmp_path / "q", 1)
    with pytest.raises(OptionError, match=text):
        batch(path, **options)


@pytest.mark.parametrize("text", ["[/a, /b]", '["/a"', "[1]"])
def test_a_list_that_is_none_says_how_one_is_written(text: str) -> None:
    with pytest.raises(OptionError, match="a list as JSON"):
        SourceOptions.of({"path": text})


def test_a_key_that_can_t_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nokey: the key can't be read"):
        batch(fill(tmp_path / "q", 1), keyFile=str(tmp_path / "nokey"))


def test_a_table_of_the_catalogue_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="CREATE TEMPORARY VIEW"):
        batch(fill(tmp_path / "q", 1), owner="root")


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    given = options_of(fill(tmp_path / "q", 1))
    with pytest.raises(OptionError, match="tag string"):
        source.reader(given, StructType([StructField("tag", LongType())]))


def test_a_missing_path_and_an_empty_folder_say_so(tmp_path: Path) -> None:
    with pytest.raises(NoQueueError, match="nothing"):
        batch(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoQueueError, match="empty"):
        batch(tmp_path / "empty")


@pytest.mark.parametrize("table", ["messages", "segments", "groups"])
def test_a_glob_without_a_match_is_no_empty_table(tmp_path: Path, table: str) -> None:
    with pytest.raises(NoQueueError, match=r"\*: no queue is here"):
        batch(f"{tmp_path}/*", table=table)


def test_sizes_and_lists_are_read_as_people_write_them() -> None:
    given = {
        "path": "/q",
        "targetpartitionbytes": "8m",
        "columns": "tag, id",
        "retainUnread": "FALSE",
    }
    options = SourceOptions.of(given)
    assert (options.partition_bytes, options.columns, options.retain_unread) == (
        8 << 20,
        ("tag", "id"),
        False,
    )


def filtered(path: Path, *filters: object) -> tuple[list[dict[str, Any]], list[Any]]:
    from penstock.spark.pushdown import PushdownReader

    given = options_of(path, columns="offset,tag,timestamp", targetPartitionBytes=1)
    reader = PushdownReader(SourceOptions.of(given), source.schema(given))
    left = list(reader.pushFilters(list(filters)))  # type: ignore[arg-type]
    return collect(reader, reader.partitions()), left


def test_filters_on_tags_are_answered_by_the_core(tmp_path: Path) -> None:
    from pyspark.sql.datasource import EqualTo, In, StringStartsWith

    path = fill(tmp_path / "q", 30)
    rows, left = filtered(path, EqualTo(("tag",), "t.1"))
    assert ({row["tag"] for row in rows}, len(rows), left) == ({"t.1"}, 10, [])
    rows, left = filtered(path, In(("tag",), ("t.1", "t.2")))
    assert (len(rows), left) == (20, [])
    rows, left = filtered(path, StringStartsWith(("tag",), "t"))
    assert (len(rows), left) == (30, [])
    odd = EqualTo(("tag",), "t.1;t.2")
    rows, left = filtered(path, odd)
    assert (len(rows), left) == (30, [odd])


def test_filters_on_offsets_leave_tasks_out_and_go_back_to_spark(tmp_path: Path) -> None:
    from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

    path = fill(tmp_path / "q", 30)
    offsets = [row["offset"] for row in scanned(path)]
    wanted = [GreaterThanOrEqual(("offset",), 0), LessThan(("offset",), -1)]
    rows, left = filtered(path, *wanted)
    assert (rows, left) == ([], wanted)
    rows, _ = filtered(path, GreaterThanOrEqual(("offset",), offsets[-1] + 1))
    assert len(rows) in (0, 30)


def test_a_path_that_is_there_as_it_is_written_is_no_glob(tmp_path: Path) -> None:
    for name in ("a[1]", "a*", "a?", "a1", "ab"):
        fill(tmp_path / name / "q", 1, first=len(name))
    for name in ("a[1]", "a*", "a?"):
        path = tmp_path / name / "q"
        assert [(row["queue"], row["body"]) for row in batch(path)] == [
            ("q", b"body-%d" % len(name))
        ]
        assert [row["queue"] for rows in drain(stream(path))[0] for row in rows] == ["q"]
    assert {row["queue"] for row in batch(tmp_path / "a[1b]" / "q")} == {"a1/q", "ab/q"}


@pytest.mark.parametrize(("given", "what"), [
    ({"startingOffsets": '{"ordres": 0}'}, "startingOffsets='ordres': expected queues of this .*q"),
    ({"endingOffsets": '{"ordres": 0}'}, "endingOffsets='ordres'"),
    ({"startingOffsets": '{"q": {"0": 23}}'}, "a word, or JSON"),
    ({"startingOffsets": '{"q": '}, "a word, or JSON"),
    ({"endingOffsets": "sometimes"}, "endingOffsets='sometimes'"),
])  # fmt: skip
def test_an_offset_of_nothing_is_refused_by_its_option(
    tmp_path: Path, given: dict[str, str], what: str
) -> None:
    path = fill(tmp_path / "q", 3)
    with pytest.raises(OptionError, match=what):
        batch(path, **given)


def test_places_may_be_written_as_kafka_s_numbers(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 3)
    for text in ("-2", "earliest", '{"q": -2}', '{"q": "earliest"}', "{}"):
        assert len(batch(path, startingOffsets=text)) == 3
    for text in ("-1", "latest", '{"q": -1}'):
        assert len(batch(path, startingOffsets=text)) == 0
        assert len(batch(path, endingOffsets=text)) == 3


@pytest.mark.parametrize(("fields", "what"), [
    ([("tag", False)], "tag NOT NULL"), ([], "at least one column"),
    ([("tag", True), ("id", True), ("tag", True)], "each column once"),
])  # fmt: skip
def test_a_schema_that_would_give_other_rows_in_silence_is_refused(
    tmp_path: Path, fields: list[tuple[str, bool]], what: str
) -> None:
    given = options_of(fill(tmp_path / "q", 3))
    wanted = StructType([StructField(name, StringType(), null) for name, null in fields])
    for make in (source.reader, source.stream_reader):
        with pytest.raises(OptionError, match=what):
            make(given, wanted)
