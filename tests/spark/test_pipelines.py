"""The ready pipelines, each through Spark, on small queues."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock import FormatError, NoQueueError, OptionError, Queue, UnsupportedError
from penstock.spark import pipelines
from penstock.spark.cursors import sync
from penstock.spark.pipelines import Request, convert, report, templates
from penstock.spark.pipelines import bodies as silver_bodies
from penstock.spark.pipelines.convert import compared
from tests.spark.helpers import bodies, fill, scanned, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FACTS: dict[str, Any] = {
    "messages": 1, "bytes": 2, "first": None, "last": None, "corrupt": 0, "unchecked": 0,
    "damage": [], "gaps": [], "duplicates": [], "queues": [], "ok": True, "hours": [], "tags": [],
}  # fmt: skip


def run(
    spark: SparkSession, tmp_path: Path, name: str, *sources: Path, **rest: Any
) -> dict[str, Any]:
    request = Request([str(source) for source in sources], **rest)
    return pipelines.run(spark, name, request, str(tmp_path / "runs"))


def events(path: Path, rows: list[tuple[str, bytes]]) -> Path:
    with Queue(path) as queue:
        for id, body in rows:
            queue.put(body, id=id, tag="event", timestamp_ns=1_760_000_000_000_000_000)
    return path


@pytest.mark.spark
def test_bronze_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    path, lake = fill(tmp_path / "q", 50), tmp_path / "lake"
    first = run(spark, tmp_path, "bronze", path, to=str(lake), source_options={"group": "bronze"})
    fill(path, 20, first=50)
    second = run(spark, tmp_path, "bronze", path, to=str(lake), source_options={"group": "bronze"})
    assert (first["rows"], second["rows"], second["outcome"]) == (50, 20, "done")
    assert first["bytes"] > second["bytes"] > 20 * len("body-00")
    rows = spark.read.parquet(str(lake)).orderBy("offset").collect()
    assert [bytes(row.body) for row in rows] == bodies(path)
    record = json.loads((tmp_path / "runs" / f"{second['id']}.json").read_text())
    assert record["rows"] == 20
    checkpoint = lake / "_checkpoints" / "bronze"
    assert sync(str(path), checkpoint, "bronze") == {
        "q": Queue(path, read_only=True).offsets().tail
    }


@pytest.mark.spark
def test_silver_types_each_id_once_and_buries_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    good = [(f"e{n}", b'{"n": %d, "who": "x%d"}' % (n, n)) for n in range(10)]
    bad = [("b1", b"not json"), ("b2", b"\xff\xfe"), ("b3", b'{"n": "text"}')]
    path = events(tmp_path / "q", [*good, *good[:4], *bad])
    done = run(
        spark, tmp_path, "silver", path, to=str(tmp_path / "silver"), schema="n long, who string"
    )
    assert (done["result"]["good"], done["result"]["bad"]) == (10, 3)
    rows = spark.read.parquet(str(tmp_path / "silver")).orderBy("n").collect()
    assert [(row.n, row.who, row.id) for row in rows] == [(n, f"x{n}", f"e{n}") for n in range(10)]
    dead = scanned(tmp_path / "silver.dead")
    assert {row["id"] for row in dead} == {"b1", "b2", "b3"}
    assert all("penstock.reason" in row["headers"] for row in dead)


@pytest.mark.spark
def test_silver_reads_cbor_and_finds_the_columns_itself_but_only_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    import cbor2

    def more(*found: Any) -> Path:
        return events(
            tmp_path / "q", [(f"e{n}", cbor2.dumps({"id": n, "ok": True})) for n in found]
        )

    def silver() -> dict[str, Any]:
        done = run(spark, tmp_path, "silver", tmp_path / "q", to=str(tmp_path / "s"),
                   schema="infer", decode="cbor")  # fmt: skip
        assert done["result"]["schema"] == "`id` bigint, `ok` boolean"
        return done

    more(0, 1, 2)
    silver()
    more(3, "text")
    assert (silver()["result"]["good"], len(bodies(tmp_path / "s.dead"))) == (1, 1)
    rows = spark.read.parquet(str(tmp_path / "s")).where("ok").orderBy("id").collect()
    # A field that is called like a column of the message keeps its name.
    assert [(row.id, row.message_id) for row in rows] == [(n, f"e{n}") for n in range(4)]
    # Dead letters are counted by the query, so those of a new checkpoint are none of the old one.
    query = json.loads((tmp_path / "s" / "_checkpoints" / "silver" / "metadata").read_text())["id"]
    assert (tmp_path / "s.dead" / ".penstock" / "sinks" / f"silver-{query}.json").exists()


@pytest.mark.spark
def test_a_rollup_counts_per_tag_and_minute(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path) as queue:
        for second in range(60, 240, 10):
            queue.put(b"12345", tag="a" if second % 20 else "b", timestamp_ns=second * 10**9)
    run(spark, tmp_path, "rollup", path, to=str(tmp_path / "r"))
    rows = spark.read.parquet(str(tmp_path / "r")).collect()
    assert {(row.tag, row.messages, row.bytes) for row in rows} == {("a", 3, 15), ("b", 3, 15)}
    assert len(rows) == 6


@pytest.mark.spark
def test_a_replay_keeps_order_and_happens_once(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 60)
    options = {"txnAppId": "replay", "txnVersion": "1"}
    chosen = {"tags": "t.1", "minPartitions": "3"}
    for _ in range(2):
        done = run(spark, tmp_path, "replay", path, to=str(tmp_path / "again"), options=options,
                   source_options=chosen)  # fmt: skip
    assert done["rows"] == 20
    assert bodies(tmp_path / "again") == [b for n, b in enumerate(bodies(path)) if n % 3 == 1]


@pytest.mark.spark
def test_an_audit_finds_damage_gaps_and_duplicates(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 100)
    clean = run(spark, tmp_path, "audit", path, to=str(tmp_path / "report"))
    assert clean["result"]["ok"] is True
    with Queue(path) as queue:
        queue.put(b"again", id="id-5")
    (segment,) = path.glob("log/*.seg")
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"body-50")] ^= 1
    segment.write_bytes(bytes(raw))
    found = run(spark, tmp_path, "audit", path, to=str(tmp_path / "report"))
    result = found["result"]
    assert (result["ok"], result["corrupt"], found["outcome"]) == (False, 1, "found faults")
    assert result["gaps"][0]["number"] == 51
    assert result["duplicates"][0]["id"] == "id-5"
    page = (tmp_path / "report" / "audit.html").read_text()
    assert "<svg" in page
    assert "something is wrong" in page


@pytest.mark.spark
def test_a_conversion_is_compared(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 40)
    done = run(spark, tmp_path, "convert", path, to=str(tmp_path / "copy"),
               options={"queueFormat": "penstock"})  # fmt: skip
    assert (done["rows"], done["result"]["ok"]) == (40, True)
    assert done["result"]["times"] == "ns"
    assert bodies(tmp_path / "copy") == bodies(path)


@pytest.mark.spark
def test_a_copy_in_another_order_or_at_another_time_is_not_equal(
    spark: SparkSession, tmp_path: Path
) -> None:
    def copy(name: str, rows: list[tuple[bytes, int]], tasks: int) -> Any:
        with Queue(tmp_path / name) as queue:
            for body, at in rows:
                queue.put(body, timestamp_ns=at)
        frame = spark.read.format("penstock").option("minPartitions", str(tasks))
        return compared(frame.option("columns", "body,timestamp_ns").load(str(tmp_path / name)),
                        ["body", "timestamp_ns"])  # fmt: skip

    rows = [(b"%d" % n, 1_760_000_000_000_000_001 + n) for n in range(50)]
    same, other = copy("a", rows, 1), copy("b", rows, 7)
    assert same == other
    assert all(one != two for one, two in zip(same, copy("c", rows[::-1], 3), strict=True))
    rounded = copy("d", [(body, at // 10**6 * 10**6) for body, at in rows], 2)
    assert [one == two for one, two in zip(same, rounded, strict=True)] == [False, True]


@pytest.mark.spark
def test_a_queue_that_is_written_to_is_converted_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copied = fill(tmp_path / "q", 40), convert.compared
    monkeypatch.setattr(convert, "compared", lambda f, c: fill(path, 5) and copied(f, c))
    done = run(spark, tmp_path, "convert", path, to=str(tmp_path / "z"),
               options={"queueFormat": "zbus", "drop": "headers"})  # fmt: skip
    assert (done["rows"], done["result"]["times"]) == (40, "ms")


@pytest.mark.spark
def test_compaction_moves_full_segments_and_trims(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, segment_bytes=1 << 18) as queue:
        for number in range(2000):
            queue.put(b"%06d" % number + bytes(1000))
    before = bodies(path)
    done = run(spark, tmp_path, "compact", path, to=str(tmp_path / "cold"), trim=True)
    (one,) = done["result"]["queues"]
    assert one["trimmed"] > 0
    cold = spark.read.parquet(str(tmp_path / "cold" / "q")).orderBy("offset").collect()
    assert [bytes(row.body) for row in cold] + bodies(path) == before
    again = run(spark, tmp_path, "compact", path, to=str(tmp_path / "cold"))
    assert again["rows"] == 0
    (state,) = (tmp_path / "cold" / "_penstock").glob("*.json")
    state.write_text(state.read_text()[:-9])
    with pytest.raises(FormatError, match="no place that was reached"):
        run(spark, tmp_path, "compact", path, to=str(tmp_path / "cold"))


@pytest.mark.spark
def test_lag_lists_every_group(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    with Queue(path) as queue:
        group = queue.group("slow")
        for message in group.get_many(4):
            message.ack()
    (one,) = run(spark, tmp_path, "lag", path)["result"]["groups"]
    assert (one["group"], one["lag"]) == ("slow", 6)


def test_a_dry_run_reads_no_message_and_writes_nothing(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    request = Request([str(path)], to=str(tmp_path / "lake"), dry_run=True)
    done = pipelines.run(None, "bronze", request, str(tmp_path / "runs"))  # type: ignore[arg-type]
    assert done["outcome"] == "dry run"
    assert done["result"]["queues"][0]["queue"] == "q"
    assert not (tmp_path / "lake").exists()


def dry(name: str, *sources: Path, **rest: Any) -> dict[str, Any]:
    """What a dry run says; Spark is not even there."""
    request = Request([str(source) for source in sources], dry_run=True, **rest)
    found: dict[str, Any] = pipelines.pipeline(name)(None, request, None)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("name", ["bronze", "silver", "rollup", "compact", "audit", "lag"])
@pytest.mark.parametrize("place", ["q", "q/lake", "other"])
def test_no_table_is_written_over_or_into_a_queue(tmp_path: Path, name: str, place: str) -> None:
    fill(tmp_path / "other", 1)
    with pytest.raises(OptionError, match=r"apart from the queue .*q$|a queue is there"):
        dry(name, fill(tmp_path / "q", 3), to=str(tmp_path / place), schema="n long")


@pytest.mark.parametrize("name", ["rollup", "compact"])
def test_what_replaces_a_folder_does_not_replace_the_one_around_the_queue(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(OptionError, match="apart from the queue"):
        dry(name, fill(tmp_path / "q", 3), to=str(tmp_path))


@pytest.mark.parametrize("name", ["silver", "rollup", "compact", "lag"])
def test_a_table_is_no_queue(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match="a format of tables"):
        dry(name, fill(tmp_path / "q", 1), to=str(tmp_path / "t"), schema="n long",
            format="penstock")  # fmt: skip


@pytest.mark.parametrize("name", ["bronze", "silver", "rollup", "replay", "audit", "compact"])
def test_a_glob_of_nothing_is_no_finished_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoQueueError, match=r"\*: no queue is here"):
        dry(name, tmp_path / "*", to=str(tmp_path / "to"), schema="n long")


def test_a_dry_run_says_what_is_left_and_what_the_options_choose(tmp_path: Path) -> None:
    path = fill(tmp_path / "q", 10)
    offsets = [row["offset"] for row in scanned(path)]
    end = Queue(path, read_only=True).offsets().tail
    chosen = {"startingOffsets": str(offsets[4]), "endingOffsets": str(offsets[6])}
    (one,) = dry("rollup", path, to=str(tmp_path / "r"), source_options=chosen)["queues"]
    assert (one["first"], one["last"]) == (offsets[4], offsets[6])
    checkpoint = tmp_path / "lake" / "_checkpoints" / "bronze"
    for folder in ("commits", "offsets"):
        (checkpoint / folder).mkdir(parents=True)
    at = stream(path).latestOffset(stream(path).initialOffset(), ReadMaxRows(7))
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(at)}")
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    (one,) = dry("bronze", path, to=str(tmp_path / "lake"))["queues"]
    assert (one["first"], one["last"]) == (offsets[7], end)


def test_a_conversion_begins_with_an_empty_queue_and_known_columns(tmp_path: Path) -> None:
    path, other = fill(tmp_path / "q", 3), fill(tmp_path / "other", 2)
    request = Request([str(path)], to=str(other), options={"queueFormat": "penstock"})
    with pytest.raises(UnsupportedError, match="a queue with messages is here"):
        pipelines.run(None, "convert", request, str(tmp_path / "runs"))  # type: ignore[arg-type]
    assert len(bodies(other)) == 2
    with pytest.raises(OptionError, match=r"drop='tga': expected some of tag, id"):
        dry("convert", path, to=str(tmp_path / "new"), options={"drop": "tga"})


@pytest.mark.spark
def test_bronze_may_be_a_queue_whose_checkpoint_lies_beside_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = fill(tmp_path / "q", 20)
    for rows in (20, 0):
        done = run(spark, tmp_path, "bronze", path, to=str(tmp_path / "copy"), format="penstock")
        assert done["rows"] == rows
    assert bodies(tmp_path / "copy") == bodies(path)
    assert (tmp_path / "copy_checkpoints" / "bronze" / "commits").is_dir()


def test_a_conversion_that_would_lose_the_times_is_refused_and_leaves_a_record(
    tmp_path: Path,
) -> None:
    request = Request([str(fill(tmp_path / "q", 1))], to=str(tmp_path / "m"),
                      options={"queueFormat": "mfq", "drop": "tag,id,key,headers"})  # fmt: skip
    with pytest.raises(UnsupportedError, match="drop=timestamp_ns"):
        pipelines.run(None, "convert", request, str(tmp_path / "runs"))  # type: ignore[arg-type]
    assert not (tmp_path / "m").exists()
    (record,) = (json.loads(p.read_text()) for p in (tmp_path / "runs").iterdir())
    assert record["outcome"] == "failed"
    assert "drop=timestamp_ns" in record["error"]


def test_a_request_without_a_target_is_refused_and_is_no_run(tmp_path: Path) -> None:
    request = Request([str(fill(tmp_path / "q", 1))])
    with pytest.raises(OptionError, match="where the result goes"):
        pipelines.run(None, "bronze", request, str(tmp_path / "runs"))  # type: ignore[arg-type]
    assert not (tmp_path / "runs").exists()


def test_a_run_that_was_killed_is_found_as_running(tmp_path: Path) -> None:
    with pipelines.Run("bronze", Request([]), str(tmp_path)) as record:
        assert json.loads(record.path.read_text())["outcome"] == "running"
    assert json.loads(record.path.read_text())["outcome"] == "done"


def test_a_page_shows_strange_tags_as_text() -> None:
    page = report.html(FACTS | {"tags": [{"tag": "<script>$x", "messages": 1, "bytes": 2}]})
    assert "<script>" not in page


def test_cbor_from_anyone_has_limits() -> None:
    bodies = [b"\xd8\x23\x66(a+)+$", b"\xd8\x1c\x81\xd8\x1d\x00", b"\x81" * 100 + b"\x01", b"\x01"]
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    (read,) = silver_bodies._cbor_to_json(iter([batch]))
    assert read.column("_text").to_pylist() == [None, None, None, "1"]


def test_what_decodes_cbor_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silver_bodies, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match="pip install cbor2"):
        silver_bodies.with_text(None, "cbor")  # type: ignore[arg-type]


def test_an_hour_s_bar_begins_at_its_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(report, "svg", lambda figure: str(drawn.append(figure)))  # type: ignore[func-returns-value]
    hour = datetime(2026, 11, 15, 10)
    report.html(FACTS | {"hours": [{"hour": hour, "messages": 3, "bytes": 9}]})
    (bar,) = drawn[0].axes[0].patches
    assert bar.get_x() == drawn[0].axes[0].xaxis.convert_units(hour)


def test_a_template_is_written_once(tmp_path: Path) -> None:
    written = templates.write(tmp_path / "p", "/data/orders")
    compile((tmp_path / "p" / "transformations" / "tables.py").read_text(), "tables", "exec")
    assert len(written) == 2
    with pytest.raises(OSError, match="there already"):
        templates.write(tmp_path / "p", "/data/orders")
