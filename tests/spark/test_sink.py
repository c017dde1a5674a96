"""The sink, by calling the writer as Spark does: staging, commits that come twice, kills."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock import FormatError, OptionError, PenstockError, Queue, UnsupportedError, _core
from penstock.spark import sink, staging
from tests.spark.helpers import batch_writer, bodies, options_of, schema_of, stream_writer, table


def test_a_batch_write_puts_all_rows(tmp_path: Path) -> None:
    writer = batch_writer(tmp_path / "q")
    first = writer.write(iter([table(b"a", b"b")]))
    second = writer.write(iter([table(b"c")]))
    assert not (tmp_path / "q" / "log").exists()
    writer.commit([first, second, None])
    assert sorted(bodies(tmp_path / "q")) == [b"a", b"b", b"c"]
    assert not list((tmp_path / "q").rglob("*.arrow"))


def test_a_batch_with_a_version_is_written_once(tmp_path: Path) -> None:
    for _ in range(2):
        writer = batch_writer(tmp_path / "q", txnAppId="load", txnVersion=7)
        writer.commit([writer.write(iter([table(b"a")]))])
    assert bodies(tmp_path / "q") == [b"a"]
    writer = batch_writer(tmp_path / "q", txnAppId="load", txnVersion=8)
    writer.commit([writer.write(iter([table(b"b")]))])
    assert bodies(tmp_path / "q") == [b"a", b"b"]


def test_a_repeated_micro_batch_is_put_once(tmp_path: Path) -> None:
    path = tmp_path / "q"
    writer = stream_writer(path)
    writer.commit([writer.write(iter([table(b"a")]))], 0)
    again = stream_writer(path)
    staged = again.write(iter([table(b"a")]))
    again.commit([staged], 0)
    again.abort([staged], 0)
    again.commit([again.write(iter([table(b"b")]))], 1)
    assert bodies(path) == [b"a", b"b"]


def test_a_task_that_ran_twice_counts_once(tmp_path: Path) -> None:
    writer = stream_writer(tmp_path / "q")
    writer.write(iter([table(b"a")]))
    staged = writer.write(iter([table(b"a")]))
    writer.commit([staged], 0)
    assert bodies(tmp_path / "q") == [b"a"]
    assert not list((tmp_path / "q").rglob("*.arrow"))


def test_an_empty_micro_batch_is_fine(tmp_path: Path) -> None:
    writer = stream_writer(tmp_path / "q")
    writer.commit([writer.write(iter([])), None], 0)
    assert bodies(tmp_path / "q") == []


def test_others_may_put_while_batches_are_committed(tmp_path: Path) -> None:
    path = tmp_path / "q"
    writer = stream_writer(path)
    with Queue(path) as queue:
        for number in range(5):
            queue.put(b"other")
            writer.commit([writer.write(iter([table(b"%d" % number)]))], number)
        assert queue.verify().is_ok
    assert bodies(path) == [x for n in range(5) for x in (b"other", b"%d" % n)]


def test_staged_rows_of_an_encrypted_queue_are_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "ab" * 32)
    writer = stream_writer(tmp_path / "q", keyEnv="THE_KEY")
    staged = writer.write(iter([table(b"a secret body")]))
    assert isinstance(staged, staging.Staged)
    assert b"secret" not in Path(staged.path).read_bytes()
    writer.commit([staged], 0)
    assert bodies(tmp_path / "q", key=bytes.fromhex("ab" * 32)) == [b"a secret body"]


def test_staged_rows_may_lie_anywhere_that_fsspec_knows(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    writer = stream_writer(tmp_path / "q", stagingDir="memory://staging")
    writer.commit([writer.write(iter([table(b"a")]))], 0)
    assert bodies(tmp_path / "q") == [b"a"]


def test_rows_are_synced_once_in_the_queue_and_not_where_they_are_staged(tmp_path: Path) -> None:
    Queue(tmp_path / "q").close()
    writer = stream_writer(tmp_path / "q")
    _core.take_effects()
    _core.record_effects(True)
    try:
        staged = writer.write(iter([table(b"a" * 100_000)]))
        in_the_task = _core.take_effects()
        writer.commit([staged], 0)
        committed = _core.take_effects()
    finally:
        _core.record_effects(False)
    assert not [effect for effect in in_the_task if effect[0] == "sync"]
    assert [effect for effect in committed if effect[0] == "sync"]
    assert bodies(tmp_path / "q") == [b"a" * 100_000]


def test_damaged_staging_is_refused(tmp_path: Path) -> None:
    writer = stream_writer(tmp_path / "q")
    staged = writer.write(iter([table(b"a")]))
    assert isinstance(staged, staging.Staged)
    path = Path(staged.path)
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(OSError, match=path.name):
        writer.commit([staged], 0)
    assert not (tmp_path / "q").joinpath("log").exists() or bodies(tmp_path / "q") == []


def test_the_query_id_names_the_ledger(tmp_path: Path) -> None:
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')
    given = options_of(tmp_path / "q", checkpointLocation=f"file:{tmp_path}/ck")
    writer = sink.stream_writer(given, schema_of("body binary"), overwrite=False)
    assert writer.options.app == "11111111-2222-3333-4444-555555555555"


def test_a_stream_that_nobody_can_recognise_is_refused(tmp_path: Path) -> None:
    given = options_of(tmp_path / "q", checkpointLocation="s3://bucket/ck")
    with pytest.raises(OptionError, match="txnAppId"):
        sink.stream_writer(given, schema_of("body binary"), overwrite=False)
    given["delivery"] = "at-least-once"
    writer = sink.stream_writer(given, schema_of("body binary"), overwrite=False)
    for _ in range(2):
        writer.commit([writer.write(iter([table(b"a")]))], 0)
    assert bodies(tmp_path / "q") == [b"a", b"a"]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("value binary", "no column body"),
        ("body binary,colour string", "no place for column colour"),
        ("body long", "column body is bigint"),
    ],
)
def test_columns_that_no_message_has_are_refused(tmp_path: Path, columns: str, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        sink.writer(options_of(tmp_path / "q"), schema_of(columns), overwrite=False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"create": "no"}, "create='no': expected true or false"),
        ({"route": "1"}, "route='1': expected true or false"),
        ({"txnAppId": "a", "txnVersion": "x"}, "txnVersion='x': expected a number"),
        ({"txnAppId": "a"}, "both txnAppId and txnVersion"),
        ({"delivery": "twice"}, "exactly-once or at-least-once"),
        ({"stagingdirr": "x"}, "one of .*stagingDir"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        batch_writer(tmp_path / "q", **options)
    assert not (tmp_path / "q").exists()


def test_a_row_without_a_body_is_refused_and_no_empty_message(tmp_path: Path) -> None:
    writer = batch_writer(tmp_path / "q")
    row = pa.RecordBatch.from_pydict({"body": pa.array([b"a", None], pa.binary())})
    with pytest.raises(UnsupportedError, match=r"a row has no body .*coalesce"):
        writer.write(iter([row]))


def test_rows_for_a_file_are_not_staged_where_the_file_will_be(tmp_path: Path) -> None:
    for path, more in ((tmp_path / "jobs", {}), (tmp_path / "later", {"queueLayout": "stage4"})):
        writer = batch_writer(path, queueFormat="vqs", **more)
        writer.commit([writer.write(iter([table(b"a")]))])
        assert bodies(path) == [b"a"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["jobs", "jobs.penstock", "later"]


def routed(path: Path, *rows: tuple[str | None, bytes]) -> pa.RecordBatch:
    names = pa.array([name for name, _ in rows], pa.string())
    return pa.RecordBatch.from_pydict({"queue": names, "body": [body for _, body in rows]})


def test_rows_may_name_the_queue_that_they_go_to(tmp_path: Path) -> None:
    given = options_of(tmp_path, txnAppId="app", route="true")
    rows = routed(tmp_path, ("eu", b"a"), ("us", b"b"), ("eu", b"c"))
    for _ in range(2):
        writer = sink.stream_writer(given, schema_of("queue string,body binary"), overwrite=False)
        writer.commit([writer.write(iter([rows]))], 0)
    assert bodies(tmp_path / "eu") == [b"a", b"c"]
    assert bodies(tmp_path / "us") == [b"b"]
    assert not list(tmp_path.rglob("*.arrow"))


def test_a_routed_batch_lands_once_though_it_died_between_two_queues(tmp_path: Path) -> None:
    given = options_of(tmp_path, txnAppId="app", route="true")
    rows = routed(tmp_path, ("eu", b"a"), ("us", b"b"))
    writer = sink.stream_writer(given, schema_of("queue string,body binary"), overwrite=False)
    staged = writer.write(iter([rows]))
    writer._put_one("eu", "app", 0, False, lambda: pa.table({"body": [b"a"]}))
    writer.commit([staged], 0)
    assert (bodies(tmp_path / "eu"), bodies(tmp_path / "us")) == ([b"a"], [b"b"])


@pytest.mark.parametrize("name", ["../out", "", None, "a/b"])
def test_a_row_can_t_leave_the_folder_of_queues(tmp_path: Path, name: str | None) -> None:
    given = options_of(tmp_path / "all", txnAppId="app", route="true")
    writer = sink.stream_writer(given, schema_of("queue string,body binary"), overwrite=False)
    staged = writer.write(iter([routed(tmp_path, ("eu", b"a"), (name, b"b"))]))
    with pytest.raises(UnsupportedError, match="a row goes to queue"):
        writer.commit([staged], 0)
    assert not (tmp_path / "all" / "eu").exists()


def test_routing_needs_a_column_that_says_where(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="needs a column queue"):
        sink.writer(options_of(tmp_path, route="true"), schema_of("body binary"), overwrite=False)


def test_a_payload_stands_for_a_body_that_is_not_there(tmp_path: Path) -> None:
    for names in (["payload"], ["payload", "body"]):
        path = tmp_path / "-".join(names)
        schema = schema_of(",".join(f"{name} binary" for name in names))
        writer = sink.writer(options_of(path), schema, overwrite=False)
        row = pa.RecordBatch.from_pydict({name: [name.encode()] for name in names})
        writer.commit([writer.write(iter([row]))])
        assert bodies(path) == [names[-1].encode()]


def test_a_queue_is_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="append"):
        sink.writer(options_of(tmp_path / "q"), schema_of("body binary"), overwrite=True)


def test_a_url_is_no_place_for_a_queue(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="local disk"):
        sink.writer(options_of("s3://bucket/q"), schema_of("body binary"), overwrite=False)


@pytest.mark.parametrize(("given", "what"), [
    ({"create": "false"}, "no queue is here"),
    ({"queueFormat": "nothing"}, "format='nothing'"),
    ({"queueLayout": "9"}, "queueLayout='9'"),
    ({"route": "true", "create": "false"}, "no queue is here"),
])  # fmt: skip
def test_what_is_refused_leaves_nothing_behind(
    tmp_path: Path, given: dict[str, str], what: str
) -> None:
    schema = schema_of("body binary, queue string")
    with pytest.raises(PenstockError, match=what):
        sink.writer(options_of(tmp_path / "q", **given), schema, overwrite=False)
    assert not (tmp_path / "q").exists()


def test_no_row_is_staged_in_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("Dear Sir")
    with pytest.raises(FormatError, match=r"one\.txt"):
        batch_writer(tmp_path / "letters")
    Queue(tmp_path / "q").close()
    given = options_of(tmp_path / "q", route="true")
    with pytest.raises(OptionError, match="a queue is there"):
        sink.writer(given, schema_of("body binary, queue string"), overwrite=False)


def test_a_job_that_failed_leaves_no_folder(tmp_path: Path) -> None:
    Queue(tmp_path / "q", format="beats").close()
    writer = batch_writer(tmp_path / "q")
    staged = writer.write(iter([table(b"a", tag="beats has no place for it")]))
    with pytest.raises(UnsupportedError, match="no place for a tag"):
        writer.commit([staged])
    writer.abort([staged])
    assert list((tmp_path / "q" / ".penstock" / "staging").iterdir()) == []
    assert bodies(tmp_path / "q") == []
