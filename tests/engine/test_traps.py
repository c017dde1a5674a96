"""What users stumble into in their first hour: each is an error with advice, or simply works."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow
import pytest

import penstock
from penstock import (
    AsyncQueue,
    ClosedError,
    CorruptError,
    Empty,
    Group,
    Message,
    NoQueueError,
    OptionError,
    PoisonedError,
    Queue,
    StorageError,
    UnsupportedError,
)
from penstock.engine import exchange, mfq, paths
from penstock.errors import MissingExtraError
from penstock.options import OLD_GROUP, OLD_QUEUE, QueueOptions
from tests.opening import path_for, small_segments

FORMATS = ("penstock", "zbus", "beats", "vqs", "mfq")


def test_the_key_of_a_beats_queue_may_be_said_in_hex_digits(tmp_path: Path) -> None:
    key, path = bytes(range(16)), tmp_path / "q"
    with Queue(path, format="beats", key=key.hex().encode()) as made:
        made.put(b'{"a": 1}')
    with Queue(path, key=key) as opened:
        assert opened.get().json() == {"a": 1}


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    found = Queue(tmp_path / "q")
    found.put_many([b"a", b"b", b"c"])
    return found


# Paths


@pytest.mark.parametrize("format", FORMATS)
def test_a_queue_opened_by_a_relative_path_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name = path_for(tmp_path, format).name
    queue = Queue(name, format=format, **small_segments(format, 1 << 16))
    queue.put_many([b"1", b"2"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    late = queue.group("late")
    late.get(timeout=0).ack()
    for _ in range(100):
        queue.put(bytes(1000))
    queue.close()
    assert list(elsewhere.iterdir()) == []
    with Queue(tmp_path / name, format=format) as again:
        assert again.path == tmp_path / name
        assert again.group("late").lag == 101


def test_an_async_queue_is_where_its_path_was_when_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert penstock.AsyncQueue("q").path == tmp_path / "q"


def test_the_home_folder_is_expanded_as_in_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with Queue("~/q") as queue:
        assert queue.path == tmp_path / "q"
    assert not (tmp_path / "~").exists()


def test_a_name_that_begins_with_a_tilde_is_said_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Queue("./~x") as queue:
        assert queue.path == tmp_path / "~x"


def test_a_path_in_a_folder_that_was_deleted_is_one_of_our_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(OptionError, match="path='q': expected an absolute path"):
        Queue("q")


@pytest.mark.parametrize("name", ["dangling", "dangling/q", "file/q", "n" * 256])
def test_a_place_where_no_folder_can_be_made_says_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"move that away|move the file away|choose a shorter"):
        Queue(tmp_path / name)


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("s3://bucket/q", "local"),
        (Path("s3://bucket/q"), "local"),
        ("file:///var/q", "'/var/q'"),
        (":memory:", "/dev/shm"),
        ("", "folder"),
        ("a\0b", "no NUL"),
        ("a\ud800b", "no lone surrogate"),
        ("~nobody-of-this-name/q", "home folder"),
    ],
)
def test_what_is_no_path_is_refused_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | Path, advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=advice):
        Queue(path)
    assert list(tmp_path.iterdir()) == []


# The same queue twice


def test_a_queue_is_not_moved_or_converted_to_itself(queue: Queue, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(queue.path)
    for other in (queue, Queue(queue.path), Queue(link)):
        with pytest.raises(UnsupportedError, match="itself"):
            queue.redrive(other)
        with pytest.raises(UnsupportedError, match="itself"):
            penstock.convert(queue, other)
    assert len(queue) == 3


def test_a_group_does_not_bury_in_its_own_queue(queue: Queue) -> None:
    for name in ("q", str(queue.path), "../" + queue.path.parent.name + "/q"):
        with pytest.raises(OptionError, match="dead_letter"):
            queue.group("workers", max_receives=1, dead_letter=name)
    group = queue.group("workers", max_receives=1, dead_letter="q.dead")
    with pytest.raises(OptionError, match="dead_letter"):
        group.configure(dead_letter="q")


def test_redrive_wants_an_open_queue(queue: Queue, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"redrive\(Queue\(path\)\)"):
        queue.redrive(str(tmp_path / "other"))  # type: ignore[arg-type]


# Reading


def test_a_scan_is_read_as_often_as_one_likes(queue: Queue) -> None:
    scan = queue.scan()
    assert [len(list(scan)) for _ in range(3)] == [3, 3, 3]
    half = iter(scan)
    next(half)
    assert [message.body for message in scan] == [b"a", b"b", b"c"]
    assert [message.body for message in half] == [b"b", b"c"]


def test_tables_are_made_of_a_scan_again_and_of_the_queue_itself(queue: Queue) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    scan = queue.scan()
    queue.put(b"later")
    assert [pyarrow.table(scan).num_rows for _ in range(2)] == [3, 3]
    assert pyarrow.table(queue).num_rows == 4


def test_duckdb_reads_a_scan_twice_in_one_statement(queue: Queue) -> None:
    duckdb = pytest.importorskip("duckdb")
    scan = queue.scan()
    text = 'select count(*) from scan a join scan b on a."offset" = b."offset"'
    assert duckdb.sql(text).fetchall() == [(3,)]
    assert duckdb.sql("select count(*) from queue").fetchall() == [(3,)]
    assert scan is not None


def test_damage_is_told_of_the_latest_reading_alone(queue: Queue) -> None:
    scan = queue.scan(tolerant=True)
    list(scan)
    list(scan)
    assert scan.damage == []


@pytest.mark.parametrize("of", [lambda queue: queue, lambda queue: queue.group("other")])
def test_in_does_not_take_messages(queue: Queue, of: Callable[[Queue], Any]) -> None:
    with pytest.raises(TypeError):
        b"b" in of(queue)  # noqa: B015
    assert queue.lag == 3


def test_counts_below_zero_are_refused(queue: Queue) -> None:
    assert queue.peek(0) == queue.get_many(0) == []
    for call in (queue.peek, queue.get_many):
        with pytest.raises(OptionError, match="count=-1"):
            call(-1)
    assert queue.lag == 3


def test_a_delay_below_zero_is_one_of_our_errors(queue: Queue) -> None:
    for delay in (-1.0, float("nan"), 1e10):
        with pytest.raises(OptionError, match="delay="):
            queue.put(b"x", delay=delay)


@pytest.mark.parametrize("format", FORMATS)
def test_a_layout_that_the_format_does_not_have_is_refused(tmp_path: Path, format: str) -> None:
    path = path_for(tmp_path, format)
    Queue(path, format=format).close()
    for read_only in (True, False):
        with pytest.raises(OptionError, match="layout='9'"):
            Queue(path, layout="9", read_only=read_only)


@pytest.mark.parametrize("format", FORMATS)
def test_a_queue_that_is_deleted_while_it_is_open_says_so(tmp_path: Path, format: str) -> None:
    path = path_for(tmp_path / "folder", format)
    path.parent.mkdir()
    queue = Queue(path, format=format)
    queue.put(b"one")
    queue.sync()
    shutil.rmtree(path.parent)
    with suppress(PoisonedError):
        queue.put(b"two")
    with pytest.raises(PoisonedError, match="deleted while it was open") as told:
        queue.sync()
    assert told.value.path == path
    with pytest.raises(PoisonedError, match="deleted while it was open"):
        queue.put(b"three")


# Errors


@pytest.mark.parametrize(
    "error",
    [
        OptionError("max_bytes", "1", "a whole number"),
        NoQueueError("orders"),
        CorruptError("orders", 17, "an end", "a frame"),
        StorageError("orders", "No space left on device", 28),
        MissingExtraError("pyarrow", "arrow", "a table"),
        PoisonedError(Path("orders/.penstock"), "a sync failed"),
        Empty(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_whole_from_another_process(error: Exception) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
    for name in ("errno", "name"):
        assert getattr(back, name, None) == getattr(error, name, None)


# Options


def test_a_misspelt_option_names_the_one_that_was_meant(queue: Queue, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="expected max_bytes"):
        Queue(tmp_path / "new", max_byte=1)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="expected visibility_s"):
        queue.group("g", visiblity_s=1)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="expected max_in_flight"):
        queue.group("g").configure(max_inflight=1)  # type: ignore[call-arg]
    assert not (tmp_path / "new").exists()


def test_a_place_of_the_wrong_type_is_one_of_our_errors(queue: Queue) -> None:
    with pytest.raises(OptionError, match=r"start=1\.5: expected an offset"):
        queue.scan(start=1.5)  # type: ignore[arg-type]


def test_an_option_of_the_wrong_type_is_one_of_our_errors(queue: Queue, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="max_bytes='1': expected a whole number"):
        Queue(tmp_path / "new", max_bytes="1")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="visibility_s='1': expected a number"):
        queue.group("g", visibility_s="1")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="key='…'"):
        Queue(tmp_path / "new", key="secret")  # type: ignore[arg-type]


# Methods stay methods


class Loud(Queue):
    taken: list[bytes]

    def put(self, body: Any, **values: Any) -> int:
        return super().put(b"[" + body + b"]", **values)

    def get(self, *values: Any, **more: Any) -> Message:
        message = super().get(*values, **more)
        self.taken.append(message.body)
        return message


def test_a_subclass_has_its_own_put_and_get(tmp_path: Path) -> None:
    with Loud(tmp_path / "q") as queue:
        queue.taken = []
        for body in (b"x", b"y"):
            queue.put(body)
            queue.get(timeout=0).ack()
        assert queue.taken == [b"[x]", b"[y]"]


def test_a_patched_class_is_honoured(tmp_path: Path) -> None:
    with mock.patch.object(Queue, "put", return_value=7), Queue(tmp_path / "q") as queue:
        assert queue.put(b"x") == 7
    with mock.patch.object(Group, "get", return_value="patched"), Queue(tmp_path / "q") as queue:
        assert {str(found) for found in (queue.group().get(), queue.get(), queue.get())} == {
            "patched"
        }


def test_what_nobody_overrides_is_the_native_method(queue: Queue) -> None:
    queue.get(timeout=0)
    assert {type(vars(queue)[name]).__name__ for name in ("put", "get")} == {
        "builtin_function_or_method"
    }


# Files


def test_an_export_that_fails_leaves_what_was_there(queue: Queue, tmp_path: Path) -> None:
    for kind in ("jsonl", "parquet", "arrow"):
        file = tmp_path / f"out.{kind}"
        file.write_bytes(b"precious")
        with (
            mock.patch.dict(sys.modules, {"pyarrow": None}),
            mock.patch.object(exchange, "as_line", side_effect=OSError("no more")),
            pytest.raises((OSError, penstock.MissingExtraError)),
        ):
            penstock.export(queue, file)
        assert file.read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.arrow",
        "out.jsonl",
        "out.parquet",
        "q",
    ]


def test_an_export_takes_the_place_of_a_file_and_keeps_its_rights(
    queue: Queue, tmp_path: Path
) -> None:
    file, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to(file)
    penstock.export(queue.path, link)
    assert link.is_symlink()
    assert (file.stat().st_mode & 0o777, len(file.read_bytes().splitlines())) == (0o640, 3)


def test_a_missing_library_is_named_with_what_to_install(queue: Queue, tmp_path: Path) -> None:
    with (
        mock.patch.dict(sys.modules, {"pyarrow": None}),
        pytest.raises(penstock.MissingExtraError, match=r"pip install 'penstock\[arrow\]'"),
    ):
        penstock.export(queue, tmp_path / "out.parquet")


def test_an_import_of_nothing_makes_no_queue(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        penstock.import_(tmp_path / "nosuch.jsonl", tmp_path / "made")
    with pytest.raises(OptionError, match="kind"):
        penstock.import_(tmp_path / "nosuch.csv", tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_files_and_queues_are_named_by_path(queue: Queue, tmp_path: Path) -> None:
    queue.close()
    assert penstock.export(tmp_path / "q", tmp_path / "f.jsonl").messages == 3
    assert penstock.import_(tmp_path / "f.jsonl", tmp_path / "copy").messages == 3
    report = penstock.convert(tmp_path / "copy", tmp_path / "zbus", format="zbus")
    assert report.verified == 3
    assert penstock.convert(tmp_path / "copy", tmp_path / "never", dry_run=True).messages == 0
    assert not (tmp_path / "never").exists()


def test_a_table_with_a_column_that_no_message_has_is_refused(queue: Queue) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for data in (
        pyarrow.table({"body": [b"1"], "tags": ["lost"]}),
        pyarrow.record_batch({"body": [b"1"], "tags": ["lost"]}),
    ):
        with pytest.raises(UnsupportedError, match="no message has: tags; it takes body, tag"):
            queue.put_many(data)
    assert len(queue) == 3
    queue.put_many(queue.scan())  # With offset and number, which the queue gives anew.
    assert len(queue) == 6


# The end of a program


def test_a_daemon_thread_that_waits_at_exit_says_nothing(tmp_path: Path) -> None:
    program = f"""
        import threading, penstock
        tasks = penstock.StandardQueue({str(tmp_path / "d")!r})
        plain = penstock.Queue({str(tmp_path / "q")!r})

        def work():
            while True:
                tasks.get()
                tasks.task_done()

        for target in (work, plain.get):
            threading.Thread(target=target, daemon=True).start()
        for item in range(30):
            tasks.put(item)
        tasks.join()
        print("All work completed")
    """
    run = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "All work completed\n", "")


def test_links_and_missing_paths_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert paths.is_same(tmp_path / "a", tmp_path / "link")
    assert paths.is_same(tmp_path / "b", tmp_path / "a" / ".." / "b")
    assert not paths.is_same(tmp_path / "a", tmp_path / "b")


def test_names_of_before_warn_and_work(queue: Queue) -> None:
    with pytest.warns(DeprecationWarning, match="put_timeout"), queue.patience(0):
        assert queue.put_timeout_s == 0
    with pytest.warns(DeprecationWarning, match=r"AsyncQueue\.queue"), pytest.raises(ClosedError):
        penstock.AsyncQueue(queue.path).need_open()
    with pytest.warns(DeprecationWarning, match=r"Queue\.offsets\(\)"):
        assert queue.end() == queue.offsets()
    with pytest.warns(DeprecationWarning, match=r"penstock\.UnsupportedError"):
        assert penstock.RefusedError is penstock.UnsupportedError


@pytest.mark.parametrize(("old", "new"), OLD_QUEUE.items())
def test_options_of_a_queue_have_their_names_of_before_for_a_release(
    tmp_path: Path, old: str, new: str
) -> None:
    value = not getattr(QueueOptions(), new) if new != "retain_unread_max_s" else 7.0
    given: dict[str, Any] = {old: value}
    if old == "seal":
        given |= {"format": "beats", "layout": "2", "key": bytes(16)}
    if old == "integrity":
        given |= {"format": "zbus"}  # Frames of our own format have their checksums inside.
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now") as warned:
        queue = Queue(tmp_path / "q", **given)
    assert [one.filename for one in warned] == [__file__], "the line that has to change"
    assert getattr(queue.options, new) == value
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now"):
        assert getattr(queue.options, old) == value
    queue.close()


@pytest.mark.parametrize(("old", "new"), OLD_GROUP.items())
def test_options_of_a_group_have_their_names_of_before_for_a_release(
    queue: Queue, old: str, new: str
) -> None:
    value = 7 if new == "max_in_flight" else False
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now"):
        group = queue.group("g", **{old: value})  # type: ignore[arg-type]
    assert getattr(group.options, new) == value
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now"):
        group.configure(**{old: value})  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now"):
        assert getattr(group.options, old) == value


def test_files_with_the_names_of_before_are_read(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", retain_unread=False, max_bytes=1 << 30) as queue:
        queue.group("g", max_in_flight=7, native_cursor=False)
    for name, words in (
        ("options.json", {"retain_unread": "hold_for_groups"}),
        ("groups/g/group.json", {"max_in_flight": "window", "native_cursor": "mirrored"}),
    ):
        file = tmp_path / "q" / ".penstock" / name
        known = json.loads(file.read_text())
        known.pop("check", None)
        file.write_text(json.dumps({words.get(key, key): known[key] for key in known}))
    with Queue(tmp_path / "q") as queue:
        found = queue.group("g").options
        assert not queue.options.retain_unread
        assert (found.max_in_flight, found.native_cursor) == (7, False)


# Timeouts


WRONG_TIMEOUTS = (-1.0, float("nan"), float("inf"))


@pytest.mark.parametrize("timeout", WRONG_TIMEOUTS)
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_timeout_that_nobody_can_wait_for_is_refused_and_takes_nothing(
    tmp_path: Path, timeout: float, is_empty: bool
) -> None:
    with Queue(tmp_path / "q") as queue:
        if not is_empty:
            queue.put(b"a")
        auto = queue.group("auto", ack="auto")
        calls: list[Callable[[], object]] = [
            lambda: queue.get(timeout), lambda: queue.group().get(timeout),
            lambda: queue.get_many(1, timeout), lambda: auto.get_bodies(1, timeout),
            lambda: next(queue.group().messages(timeout)),
            lambda: queue.put_timeout(timeout).__enter__(),
        ]  # fmt: skip
        for call in calls * 2:  # The second time `queue.get` is the native one.
            with pytest.raises(OptionError, match=r"timeout=.*: expected a number of seconds"):
                call()
        assert (queue.group().lag, auto.lag) == ((0, 0) if is_empty else (1, 1))


@pytest.mark.parametrize("timeout", WRONG_TIMEOUTS)
def test_asyncio_and_mfq_refuse_such_a_timeout_too(tmp_path: Path, timeout: float) -> None:
    async def get() -> None:
        async with penstock.AsyncQueue(tmp_path / "q") as queue:
            await queue.put(b"a")
            await queue.get(timeout)

    with pytest.raises(OptionError, match="timeout="):
        asyncio.run(get())
    with mfq.MappedFileQueue(tmp_path / "m") as both:
        both.producer.produce(b"a")
        for consume in (both.consumer.consume, both.consumer.consume_many):
            with pytest.raises(OptionError, match="timeout="):
                consume(timeout=timeout)


def test_a_queue_with_a_negative_put_timeout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="put_timeout_s=-1"):
        Queue(tmp_path / "q", put_timeout_s=-1)


@pytest.mark.parametrize("headers", [{"tries": 1}, {1: "tries"}])
def test_a_header_that_is_no_text_is_refused_and_shown(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        with pytest.raises(TypeError, match=r"headers are text to text; found .*tries"):
            queue.put(b"x", headers=headers)
        assert len(queue) == 0


def test_an_option_that_does_not_exist_is_named_with_the_one_that_was_meant(queue: Queue) -> None:
    with pytest.raises(OptionError, match="no option 'visibility': expected visibility_s"):
        queue.group("g", visibility=3)  # type: ignore[call-arg]


def test_columns_of_a_scan_are_a_list_of_names_that_there_are(queue: Queue) -> None:
    with pytest.raises(OptionError, match=r"columns='body': expected a list of names"):
        queue.scan(columns="body")
    with pytest.raises(OptionError, match=r"columns='bodi'"):
        queue.scan(columns=["offset", "bodi"])


def test_an_export_that_can_not_be_written_names_the_file_that_was_asked_for(queue: Queue) -> None:
    with pytest.raises(OSError, match=r"/proc/made\.jsonl") as refusal:
        penstock.export(queue, "/proc/made.jsonl")
    assert ".tmp" not in str(refusal.value)


# What is no text, no count, and no list


def test_a_text_that_utf8_can_not_hold_is_one_of_our_errors_and_named(queue: Queue) -> None:
    lone = os.fsdecode(b"\xff")  # As a file may be called.
    for name in ("tag", "id", "key"):
        with pytest.raises(OptionError, match=f"^{name}='.udcff': expected text"):
            queue.put(b"x", **{name: lone})  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=f"^{name}='.udcff': expected text"):
            Message(b"x", **{name: lone})  # type: ignore[arg-type]
    for headers in ({"path": lone}, {lone: "path"}):
        with pytest.raises(OptionError, match=r"^headers='.udcff': expected text"):
            queue.put(b"x", headers=headers)
    for items in ([b"x"], pyarrow.array([b"x"])):
        with pytest.raises(OptionError, match=r"^tag='.udcff': expected text"):
            queue.put_many(items, tag=lone)
    for tags in (lone, None, b"eu.*", ["eu.*"]):
        with pytest.raises(OptionError, match=r"^tags=.*: expected text"):
            queue.scan(tags=tags)  # type: ignore[arg-type]
    assert len(queue) == 3


def test_a_scan_with_a_dialect_that_there_is_not_is_one_of_our_errors(queue: Queue) -> None:
    with pytest.raises(OptionError, match=r"^dialect='perl': expected modern, flag or flag-late"):
        queue.scan(dialect="perl")  # type: ignore[arg-type]


def test_a_count_is_a_whole_number_however_great(queue: Queue) -> None:
    for call in (queue.peek, queue.head):
        assert len(call(1 << 64)) == 3
        with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
            call(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("one", [b"abc", "abc", bytearray(b"abc"), {"n": 1}])
def test_many_are_not_the_letters_or_keys_of_one(tmp_path: Path, one: Any) -> None:
    async def put_with_asyncio() -> None:
        async with AsyncQueue(tmp_path / "q", codec="json") as queue:
            await queue.put_many(one)

    with Queue(tmp_path / "q", codec="json") as queue:
        expected = f"not {type(one).__name__}; put.. takes one"
        with pytest.raises(TypeError, match=expected):
            queue.put_many(one)
        with pytest.raises(TypeError, match=expected):
            asyncio.run(put_with_asyncio())
        assert len(queue) == 0


def test_a_message_has_a_body_of_anything_that_has_bytes_and_goes_to_put_many(queue: Queue) -> None:
    message = Message(memoryview(b"x"), tag="t")
    with pytest.raises(TypeError, match=r"put_many.. takes messages"):
        queue.put(message)
    queue.put_many([message])
    assert [(found.body, found.tag) for found in queue.peek(9)][-1] == (b"x", "t")


def test_what_stays_in_its_process_says_what_to_send_instead(queue: Queue) -> None:
    group = queue.group("billing")
    message = group.get(timeout=0)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"send its body, and its receipt, .*group\.ack"):
            copied(message)
        with pytest.raises(TypeError, match=r"send the queue, .*queue\.group\('billing'\)"):
            copied(group)
    there: Queue = pickle.loads(pickle.dumps(queue))
    with there:
        assert message.receipt is not None
        there.group("billing").ack(message.receipt)
    assert group.stats()["leased"] == 0


@pytest.mark.parametrize("loop", [iter, lambda group: group.messages(0)])
def test_a_loop_that_is_left_after_its_queue_was_closed_says_nothing(
    queue: Queue, loop: Callable[[Any], Iterator[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    inside = loop(queue.group("billing"))
    assert next(inside).body == b"a"
    queue.close()
    del inside
    assert said == []
    with Queue(queue.path) as again:
        assert [found.body for found in again.group("billing").get_many(9)] == [b"a", b"b", b"c"]


def test_a_long_value_is_shown_in_part(queue: Queue) -> None:
    with pytest.raises(OptionError, match=r"^tags='x{199}…: expected") as met:
        queue.scan(tags="x" * 1_000_000)
    assert met.value.value == "x" * 1_000_000
