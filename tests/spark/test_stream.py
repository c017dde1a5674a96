"""Streams, by calling the reader as Spark does: beginnings, limits, restarts, losses."""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock import GroupError, OptionError, Queue
from penstock.spark import follow, source
from penstock.spark.loss import DataLoss
from penstock.spark.offsets import Offsets, Position
from penstock.spark.options import SourceOptions
from penstock.spark.stream import StreamReader, UnlimitedReader
from tests.spark.helpers import batch, drain, fill, scanned, stream

TWO = ReadMaxRows(2)


def flat(batches: list[list[dict[str, object]]]) -> list[object]:
    return [row["body"] for rows in batches for row in rows]


def expected(path: Path) -> list[object]:
    return [row["body"] for row in scanned(path)]


def test_a_stream_gives_everything_once(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    reader = stream(path)
    batches, at = drain(reader)
    assert flat(batches) == expected(path)
    fill(path, 50, first=100)
    more, _ = drain(reader, at)
    assert flat(batches) + flat(more) == expected(path)


def test_row_limits_cut_micro_batches_at_frames(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    batches, _ = drain(stream(path, maxOffsetsPerTrigger=30, targetPartitionBytes=200))
    assert [len(rows) for rows in batches] == [30, 30, 30, 10]
    assert flat(batches) == expected(path)


def test_byte_limits_cut_micro_batches_and_always_move_on(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 20)
    batches, _ = drain(stream(path, maxBytesPerTrigger=1))
    assert [len(rows) for rows in batches] == [1] * 20
    batches, _ = drain(stream(path, maxBytesPerTrigger="1k"))
    assert 1 < len(batches) < 20
    assert flat(batches) == expected(path)


def test_limits_reach_across_segments(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, segment_bytes=1 << 18) as queue:
        for number in range(3000):
            queue.put(b"%d" % number + bytes(1000))
        assert len(queue.store.segments(fresh=True)) > 1
    batches, _ = drain(stream(path, maxOffsetsPerTrigger=700))
    assert [len(rows) for rows in batches] == [700, 700, 700, 700, 200]
    assert flat(batches) == expected(path)


def test_read_all_overrules_the_options(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    batches, _ = drain(stream(path, maxOffsetsPerTrigger=30), limit=ReadAllAvailable())
    assert [len(rows) for rows in batches] == [100]


def test_available_now_stops_at_what_was_there(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    reader = stream(path, maxOffsetsPerTrigger=4)
    reader.prepareForTriggerAvailableNow()
    fill(path, 10, first=10)
    batches, at = drain(reader)
    assert len(flat(batches)) == 10
    later = stream(path)
    assert len(flat(drain(later, at)[0])) == 10


def test_several_queues_share_the_limit_and_a_new_one_joins(tmp_path: Path) -> None:
    fill(tmp_path / "a", 50)
    fill(tmp_path / "b", 10)
    reader = stream(f"{tmp_path}/*", maxOffsetsPerTrigger=20)
    batches, at = drain(reader)
    assert max(len(rows) for rows in batches) <= 20
    assert len(flat(batches)) == 60
    fill(tmp_path / "c", 5)
    more, at = drain(reader, at)
    assert [{row["queue"] for row in rows} for rows in more] == [set(), {"c"}]
    assert sorted(at["q"]) == ["a", "b", "c"]


def test_a_queue_that_joins_begins_at_its_first_message_wherever_the_others_began(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "a", 5)
    reader = stream(f"{tmp_path}/*", group="g", startingOffsets="latest")
    at = reader.initialOffset()
    fill(tmp_path / "b", 7)
    batches, _ = drain(reader, at)
    assert len(flat(batches)) == 7
    reader.stop()


def test_retention_before_a_joined_queue_was_read_is_no_silence(tmp_path: Path) -> None:
    fill(tmp_path / "a", 5)
    _, at = drain(stream(f"{tmp_path}/*"))
    fill(tmp_path / "b", 7)
    joined = stream(f"{tmp_path}/*").latestOffset(at, ReadAllAvailable())
    trimmed(tmp_path / "b")
    again = stream(f"{tmp_path}/*")
    assert again.partitions(at, joined) == []
    with pytest.raises(DataLoss, match="queue b: retention removed offsets 0 to"):
        again.latestOffset(joined, ReadAllAvailable())


@pytest.mark.parametrize(
    ("option", "value"),
    [("endingOffsets", "7"), ("endingTimestamp", "2026-11-01"), ("view", "pending")],
)
def test_what_ends_a_batch_is_no_option_of_a_stream(
    tmp_path: Path, option: str, value: str
) -> None:
    with pytest.raises(OptionError, match=option):
        stream(fill(tmp_path / "q", 1), **{option: value})


def test_a_micro_batch_waits_for_enough_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("penstock.spark.stream.time.monotonic", lambda: now[0])
    path = fill(tmp_path / "q", 5)
    reader = stream(path, minOffsetsPerTrigger=10, maxTriggerDelay="60s")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    now[0] = 61.0
    assert reader.latestOffset(start, ReadAllAvailable()) != start
    fill(path, 5, first=5)
    reader = stream(path, minOffsetsPerTrigger=10)
    assert reader.latestOffset(start, ReadAllAvailable()) != start


@pytest.mark.parametrize("most", [{"maxOffsetsPerTrigger": 4}, {"maxBytesPerTrigger": 300}])
def test_a_micro_batch_that_is_as_large_as_it_may_be_does_not_wait(
    tmp_path: Path, most: dict[str, int]
) -> None:
    path = fill(tmp_path / "q", 20)
    batches, _ = drain(stream(path, minOffsetsPerTrigger=10, **most))
    assert len(batches) > 3
    assert len(flat(batches)) > 10


def test_a_limit_may_be_larger_than_any_queue(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 3)
    for option in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
        assert len(flat(drain(stream(path, **{option: 10**20}))[0])) == 3


def test_partitions_of_a_repeated_batch_are_the_same(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 40)
    reader = stream(path, targetPartitionBytes=300)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(25))
    fill(path, 40, first=40)
    again = stream(path, targetPartitionBytes=300)
    assert reader.partitions(start, end) == again.partitions(start, end)


def test_offsets_are_text_with_fixed_order_and_a_version() -> None:
    offsets = Offsets({"b": Position("2", 7), "a": Position("1", 3)})
    assert list(offsets.json()["q"]) == ["a", "b"]
    assert Offsets.from_json(offsets.json()) == offsets
    with pytest.raises(ValueError, match="version 2"):
        Offsets.from_json({"v": 2, "q": {}})


@pytest.mark.parametrize("format", ["penstock", "beats"])
def test_planning_costs_the_same_for_few_segments_and_for_many(tmp_path: Path, format: str) -> None:
    costs = []
    for count in (10, 400):
        path = tmp_path / f"q{count}"
        with Queue(path, format=format, segment_bytes=16384, durability="process") as queue:
            for _ in range(count):
                queue.put(bytes(11_000))
        reader = stream(path, **({"group": "plan"} if format == "beats" else {}))
        start = reader.initialOffset()
        for follower in reader._followers.values():
            follower.queue.sync()  # its maintenance thread looks once for what was read before.
        start["q"][path.name]["next"] = Queue(path, read_only=True).store.segments()[-3].base
        before = own_reads()
        reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        costs.append([after - was for was, after in zip(before, own_reads(), strict=True)])
        reader.stop()
    (few_calls, few_bytes), (many_calls, many_bytes) = costs
    assert many_calls <= 2 * few_calls
    assert many_bytes <= 2 * few_bytes


def test_a_small_micro_batch_takes_few_steps_of_ours(tmp_path: Path, no_collection: None) -> None:
    path = fill(tmp_path / "q", 1000)
    reader = stream(path, group="g")
    start, rounds = reader.initialOffset(), list[list[tuple[str, str]]]()
    # The first one also opens what the later ones find open, and the first objects of a class are
    # made without a constructor of its own.
    for first in range(1000, 1400, 10):
        calls = list[tuple[str, str]]()
        rounds.append(calls)
        fill(path, 10, first=first)

        def note(frame: FrameType, event: str, _: object) -> None:
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            # `places` stands in for `pathlib`, whose calls are not ours either.
            if event == "call" and "penstock" in file and not file.endswith("/places.py"):
                calls.append((file, name))  # noqa: B023  (of this round)

        sys.setprofile(note)
        try:
            end = reader.latestOffset(start, ReadAllAvailable())
            for partition in reader.partitions(start, end):
                list(reader.read(partition))
            reader.commit(end)
        finally:
            sys.setprofile(None)
        start = end
    reader.stop()
    last = rounds[-1]
    assert last == rounds[-2] == rounds[-3], "the steps are not steady: chance would decide"
    assert len(last) <= 340
    assert sum(one[0] != other[0] for one, other in pairwise(last)) <= 157, "changes of file"


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Garbage that tests before this one left would be finalized in the middle of its steps."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_queue_made_anew_between_two_micro_batches_is_noticed(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    reader = stream(path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    shutil.rmtree(path)
    fill(path, 10)
    with pytest.raises(DataLoss, match="made anew"):
        reader.latestOffset(end, ReadAllAvailable())


# PySpark before 4.2


def unlimited(path: Path, **options: object) -> UnlimitedReader:
    texts = {name: str(value) for name, value in options.items()}
    given = SourceOptions.of({"path": str(path), **texts})
    return UnlimitedReader(given, source.schema({"path": str(path)}))


def test_an_older_spark_gets_all_there_is_once(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    reader = unlimited(path, group="g")
    start, rows = reader.initialOffset(), []
    for first in (10, 15):
        end = reader.latestOffset()
        rows += [b for p in reader.partitions(start, end) for b in reader.read(p)]
        reader.commit(end)
        start = end
        fill(path, 5, first=first)
    reader.stop()
    assert sum(batch.num_rows for batch in rows) == 15


def test_an_older_spark_hears_of_a_queue_that_is_gone_or_made_anew(tmp_path: Path) -> None:
    path, other = fill(tmp_path / "q1", 10), fill(tmp_path / "q2", 10)
    reader = unlimited(tmp_path / "q*")
    start = reader.latestOffset()
    shutil.rmtree(other)
    with pytest.raises(DataLoss, match="q2: it is gone"):
        reader.partitions(start, reader.latestOffset())
    fill(other, 10)
    with pytest.raises(DataLoss, match="was made anew"):
        reader.partitions(start, reader.latestOffset())
    assert path.exists()


def test_limits_are_refused_where_spark_has_none(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    with pytest.raises(OptionError, match=r"maxOffsetsPerTrigger.*PySpark 4\.2"):
        unlimited(path, maxOffsetsPerTrigger=10)


def own_reads() -> tuple[int, int]:
    """Read calls and bytes of this process, so far."""
    words = dict(line.split(":") for line in Path("/proc/self/io").read_text().splitlines())
    return int(words["syscr"]), int(words["rchar"])


def test_listing_segments_asks_for_no_file_s_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fill(tmp_path / "q", 3)
    store = Queue(path, read_only=True).store
    monkeypatch.setattr(Path, "stat", None)
    (info,) = store.segments(fresh=True)
    monkeypatch.undo()
    assert info.size == info.path.stat().st_size


# The group that follows


def test_latest_needs_a_group_that_remembers_it(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    with pytest.raises(OptionError, match="group"):
        stream(path, startingOffsets="latest")
    reader = stream(path, startingOffsets="latest", group="g")
    start = reader.initialOffset()
    fill(path, 3, first=10)
    assert reader.initialOffset() == start
    reader.stop()
    # The driver dies before batch 0 is done: the new one must begin at the same place.
    again = stream(path, startingOffsets="latest", group="g")
    assert again.initialOffset() == start
    batches, _ = drain(again, start)
    assert flat(batches) == [b"body-10", b"body-11", b"body-12"]
    again.stop()


@pytest.mark.parametrize("text", ['{"q": "latest"}', '{"q": -1}', '{"q": "group"}', "-1", "3d"])
def test_a_place_that_moves_needs_a_group_also_in_json(tmp_path: Path, text: str) -> None:
    path = fill(tmp_path / "q", 10)
    with pytest.raises(OptionError, match="a group with it"):
        stream(path, startingOffsets=text)
    reader = stream(path, group="g", startingOffsets=text)
    start = reader.initialOffset()
    fill(path, 5, first=10)
    assert stream_again(reader, path, text).initialOffset() == start


def stream_again(reader: StreamReader, path: Path, text: str) -> StreamReader:
    reader.stop()
    return stream(path, group="g", startingOffsets=text)


def test_a_stream_refuses_the_place_of_a_queue_that_is_not_there(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    with pytest.raises(OptionError, match="ordres"):
        stream(path, startingOffsets='{"ordres": 0}').initialOffset()


def test_a_new_checkpoint_obeys_its_start_or_goes_on_where_the_group_is(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    first = stream(path, group="g")
    drain(first)
    first.stop()
    fill(path, 2, first=10)
    second = stream(path, group="g", startingOffsets="group")
    assert len(flat(drain(second)[0])) == 2
    second.stop()
    third = stream(path, group="g", startingOffsets="earliest")
    assert len(flat(drain(third)[0])) == 12
    third.stop()


def test_the_cursor_follows_commits_and_never_leads(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    reader = stream(path, group="g", maxOffsetsPerTrigger=4)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))
    assert batch(path, table="groups")[0]["lag"] == 10
    # Asking for the next batch with `end` as its start says that the first one was committed,
    # also when Spark never says so: the last batch of an AvailableNow run.
    reader.latestOffset(end, ReadMaxRows(4))
    assert batch(path, table="groups")[0]["lag"] == 6
    reader.stop()


def test_a_second_query_on_the_same_group_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PATIENCE_S", 0.0)
    path = fill(tmp_path / "q", 1)
    first = stream(path, group="g")
    first.initialOffset()
    with pytest.raises(GroupError, match="another query follows"):
        stream(path, group="g").initialOffset()
    first.stop()
    second = stream(path, group="g")
    second.initialOffset()
    second.stop()


def test_retention_waits_for_the_group_that_follows(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, segment_bytes=1 << 18) as queue:
        for _ in range(1500):
            queue.put(bytes(1000))
        queue.sync()
        reader = stream(path, group="g", maxOffsetsPerTrigger=1200)
        start = reader.initialOffset()
        assert queue.trim("latest", dry_run=True) == 0
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        reader.commit(end)
        assert queue.trim("latest", dry_run=True) > 0
        reader.stop()


# What goes away


def trimmed(path: Path) -> int:
    """Rolls and trims, so that the head moves; answers the new head."""
    with Queue(path, segment_bytes=1 << 18) as queue:
        for _ in range(1500):
            queue.put(bytes(1000))
        queue.trim("latest")
        return queue.offsets().head


def test_a_trimmed_queue_fails_the_stream_and_says_what_went(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    reader = stream(path)
    start = reader.initialOffset()
    head = trimmed(path)
    with pytest.raises(DataLoss, match=f"retention removed offsets 0 to {head}"):
        reader.latestOffset(start, ReadAllAvailable())
    lenient = stream(path, failOnDataLoss="false")
    batches, _ = drain(lenient, start)
    assert flat(batches) == expected(path)


def test_a_queue_made_anew_under_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    _, at = drain(stream(path))
    shutil.rmtree(path)
    fill(path, 20)
    with pytest.raises(DataLoss, match="was made anew"):
        stream(path).latestOffset(at, ReadAllAvailable())
    batches, _ = drain(stream(path, failOnDataLoss="false"), at)
    assert len(flat(batches)) == 20


def test_a_queue_that_lost_its_end_is_noticed(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    shutil.copytree(path, tmp_path / "backup")
    fill(path, 10, first=10)
    _, at = drain(stream(path))
    shutil.rmtree(path)
    (tmp_path / "backup").rename(path)
    with pytest.raises(DataLoss, match="restored from a copy"):
        stream(path).latestOffset(at, ReadAllAvailable())


def test_a_vanished_queue_is_data_loss(tmp_path: Path) -> None:
    fill(tmp_path / "a", 5)
    fill(tmp_path / "b", 5)
    reader = stream(f"{tmp_path}/*")
    _, at = drain(reader)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(DataLoss, match="queue a: it is gone"):
        reader.latestOffset(at, ReadAllAvailable())
    lenient = stream(f"{tmp_path}/*", failOnDataLoss="false")
    assert lenient.latestOffset(at, ReadAllAvailable()) == at


def test_a_beats_queue_that_was_read_to_its_end_goes_on_in_its_next_segment(tmp_path: Path) -> None:
    path, at, seen = tmp_path / "q", None, []
    for first in range(0, 40, 10):
        with Queue(path, format="beats") as queue:
            for number in range(first, first + 10):
                queue.put(b"%d" % number)
        reader = stream(path, group="g", maxOffsetsPerTrigger=4)
        reader.prepareForTriggerAvailableNow()
        batches, at = drain(reader, at)
        # The segment is read, closed and deleted, and the stream is asked again.
        assert drain(reader, at) == ([], at)
        reader.stop()
        seen += flat(batches)
    assert seen == [b"%d" % number for number in range(40)]


@pytest.mark.parametrize("is_read", [True, False])
def test_a_purge_is_told_from_the_freeing_of_what_was_read(tmp_path: Path, is_read: bool) -> None:
    path = tmp_path / "q"
    for _ in range(2):
        with Queue(path, format="beats") as queue:
            queue.put_many([b"a", b"b"])
    reader = stream(path, group="g", maxOffsetsPerTrigger=2)
    at = drain(reader)[1] if is_read else reader.latestOffset(reader.initialOffset(), TWO)
    reader.stop()
    with Queue(path) as queue:
        queue.purge()
        queue.put(b"later")
    reader = stream(path, group="g")
    if is_read:
        assert flat(drain(reader, at)[0]) == [b"later"]
    else:
        with pytest.raises(DataLoss, match=r"queue q: .* or a purge did"):
            reader.latestOffset(at, ReadAllAvailable())
        lenient = stream(path, group="h", failOnDataLoss="false")
        lenient.initialOffset()
        assert flat(drain(lenient, at)[0]) == [b"later"]
        lenient.stop()
    reader.stop()


def test_a_beats_queue_whose_group_was_away_may_have_lost_something(tmp_path: Path) -> None:
    path = tmp_path / "q"
    for _ in range(2):
        with Queue(path, format="beats") as queue:
            queue.put(b"a")
    reader = stream(path, group="g")
    _, at = drain(reader)
    reader.stop()
    with Queue(path) as queue:
        queue.group("g").delete()
        queue.put(b"nobody waits for this")
        for message in queue.group("other").get_many(9):
            message.ack()
    reader = stream(path, group="g")
    for _ in range(2):
        with pytest.raises(DataLoss, match=r"queue q: group 'g' was deleted"):
            reader.latestOffset(at, ReadAllAvailable())
    reader.stop()


def test_a_stream_begins_where_a_queue_begins_whose_first_messages_are_just_being_freed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q"
    with Queue(path, format="beats", segment_bytes=65536) as queue:
        queue.put_many([b"%02d" % number * 5000 for number in range(20)])
        queue.sync()
        reader = stream(path, group="g")
        (seen,) = reader._queues()
        group = queue.group("other")
        for message in group.get_many(15):
            message.ack()
        queue.sync()
        assert queue.offsets().head > seen.head
        assert reader._begin(seen).next == queue.offsets().head
        found = [bytes(row["body"])[:2] for rows in drain(reader)[0] for row in rows]
        assert found == [b"15", b"16", b"17", b"18", b"19"]
        reader.stop()
