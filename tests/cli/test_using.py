"""`put`, `get`, `groups`, `seek`, `move`, `purge`, `trim`, `set`, `labels`, `resize`."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock import Queue
from penstock.cli import put
from tests.cli.conftest import Run
from tests.reading import bodies_at
from tests.waiting import LONG_S, words_of


def test_put_takes_bodies_from_arguments_files_and_stdin(run: Run, tmp_path: Path) -> None:
    path, file = tmp_path / "q", tmp_path / "body.bin"
    file.write_bytes(b"\x00file")
    offsets = [line["offset"] for line in run("put", path, "one", "two").lines]
    assert offsets[0] < offsets[1]
    run("put", path, "--file", file)
    run("put", path, stdin=b"from\nstdin")
    run("put", path, "-", stdin=b"dash")
    assert bodies_at(path) == [b"one", b"two", b"\x00file", b"from\nstdin", b"dash"]


def test_put_keeps_what_belongs_to_a_message(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "q"
    run(
        "put", path, "x", "--tag", "a.b", "--id", "i", "--key", "k", "--header", "h=1=2",
        "--header", "e=", "--delay", "60",
    )  # fmt: skip
    line = run("cat", path).one
    assert (line["tag"], line["id"], line["key"]) == ("a.b", "i", "k")
    assert line["headers"] == {"h": "1=2", "e": ""}
    assert line["due_ns"] > line["timestamp_ns"]
    run("put", path, "x", "--header", "nothing", code=2)


def test_put_of_lines_makes_each_a_message(run: Run, tmp_path: Path) -> None:
    ran = run("put", tmp_path / "q", "--lines", "-", "--tag", "t", stdin=b"a\nb\n\nc")
    assert ran.one["messages"] == 4
    assert bodies_at(tmp_path / "q") == [b"a", b"b", b"", b"c"]


def test_put_of_lines_puts_each_as_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "q"
    command = [sys.executable, "-m", "penstock", "put", str(path), "--lines"]
    with Queue(path) as queue, subprocess.Popen(command, stdin=subprocess.PIPE) as running:
        assert running.stdin is not None
        for piece, whole in ((b"one\ntw", b"one"), (b"o\n", b"two"), (b"end", None)):
            running.stdin.write(piece)
            running.stdin.flush()
            if whole is not None:
                assert queue.get(timeout=LONG_S).body == whole
        running.stdin.close()
        assert running.wait(LONG_S) == 0
        assert queue.get(timeout=LONG_S).body == b"end"


def test_put_reads_no_more_than_a_body_may_have(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put, "BODY_BYTES_MAX", 1001)
    Queue(tmp_path / "q", max_message_bytes=1000).close()
    for endless in (["--file", "/dev/zero"], ["--lines", "--file", "/dev/zero"]):
        assert "1000" in run("put", tmp_path / "q", *endless, code=2).err
    assert bodies_at(tmp_path / "q") == []


def test_put_makes_no_queue_when_told_not_to(run: Run, tmp_path: Path) -> None:
    run("put", tmp_path / "q", "x", "--no-create", code=2)
    assert not (tmp_path / "q").exists()


def test_options_come_from_variables_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("put", tmp_path / "q", "x")
    monkeypatch.setenv("PENSTOCK_GROUP", "nobody")
    assert "nobody" in run("cat", tmp_path / "q", code=2).err
    monkeypatch.setenv("PENSTOCK_FORMAT", "nonsense")
    assert "nonsense" in run("cat", tmp_path / "q", code=2).err


def test_get_acks_what_it_printed(run: Run, orders: Path) -> None:
    assert run("get", orders, "--group", "billing").one["id"] == "o-1"
    assert [line["id"] for line in run("get", orders, "-g", "billing", "-n", 2).lines] == [
        "o-2",
        "o-3",
    ]
    assert run("get", orders, "--group", "billing", "--all", "--raw").out == b"body 4\n"


def test_get_without_ack_gives_the_message_back(run: Run, orders: Path) -> None:
    assert run("get", orders, "--no-ack").one["receives"] == 1
    assert run("get", orders).one["receives"] == 2


def test_get_from_an_empty_queue_is_exit_code_3(run: Run, tmp_path: Path) -> None:
    Queue(tmp_path / "q").close()
    assert "no message" in run("get", tmp_path / "q", code=3).err


def test_groups_are_made_listed_paused_and_deleted(run: Run, orders: Path) -> None:
    run("groups", "create", orders, "new", "--tags", "us.#", "--start", "latest")
    run("groups", "create", orders, "new", code=2)
    facts = {line["name"]: line for line in run("groups", "list", orders).lines}
    assert (facts["new"]["lag"], facts["new"]["tags"]) == (0, "us.#")
    assert run("groups", "lag", orders, "billing").one["lag"] == 4
    run("groups", "pause", orders, "billing")
    assert {g["name"] for g in run("groups", "list", orders).lines if g["paused"]} == {"billing"}
    run("get", orders, "--group", "billing", code=3)
    run("groups", "resume", orders, "billing")
    run("get", orders, "--group", "billing")
    run("groups", "delete", orders, "billing", "--dry-run")
    run("groups", "delete", orders, "billing")
    assert "billing" in run("groups", "delete", orders, "billing", code=2).err
    assert "billing" not in run("groups", "list", orders, "--no-json").text


def test_seek_sets_where_a_group_reads_on(run: Run, orders: Path) -> None:
    facts = run("seek", orders, "earliest", "--group", "billing").one
    assert (facts["offset"], facts["before"]) == (0, run("cat", orders).lines[1]["offset"])
    assert run("get", orders, "--group", "billing").one["id"] == "o-0"
    run("seek", orders, "number:3", "--group", "billing")
    assert run("get", orders, "--group", "billing").one["id"] == "o-3"
    run("seek", orders, "7", "--group", "billing", code=2)
    run("seek", orders, "earliest", "--group", "nobody", code=2)


def bury_one(path: Path) -> Path:
    with Queue(path) as queue:
        group = queue.group("picky", max_receives=1)
        group.get(0).nack()
        group.get(0).settle(True)
    return path.with_name(path.name + ".dead")


def test_move_sends_dead_letters_back_to_their_origin(run: Run, orders: Path) -> None:
    dead = bury_one(orders)
    assert run("move", dead, "--to-origin", "--dry-run").one["would_move"] == 1
    assert run("move", dead, "--to-origin").one["moved"] == 1
    assert bodies_at(orders)[-1] == b"body 0"
    assert run("move", dead, "--to-origin").one["moved"] == 0


def test_move_takes_any_queue_as_its_goal(run: Run, orders: Path, tmp_path: Path) -> None:
    Queue(tmp_path / "goal").close()
    assert run("move", orders, "--to", tmp_path / "goal", "--limit", 2).one["moved"] == 2
    assert bodies_at(tmp_path / "goal") == [b"body 0", b"body 1"]
    run("move", orders, code=2)
    run("move", orders, "--to", tmp_path / "nothing", code=2)


def test_purge_empties_a_queue(run: Run, orders: Path) -> None:
    assert run("purge", orders, "--dry-run").one["would_purge"] == 5
    assert run("purge", orders).one["purged"] == 5
    assert run("cat", orders).lines == []
    run("get", orders, "--group", "audit", code=3)


@pytest.fixture
def long_queue(tmp_path: Path) -> Path:
    path = tmp_path / "long"
    with Queue(path, segment_bytes=16384) as queue:
        for _ in range(60):
            queue.put(b"x" * 1000)
    return path


def test_trim_says_what_would_go_and_why_not_more(run: Run, long_queue: Path) -> None:
    segments = len(run("info", long_queue).one["segments"])
    plan = run("trim", long_queue, "--before", "latest", "--dry-run").one
    assert len(plan["segments"]) == segments - 1
    assert "newest segment" in plan["kept_because"]
    run("groups", "create", long_queue, "slow")
    held = run("trim", long_queue, "--before", "latest", "--dry-run").one
    assert held["segments"] == []
    assert "slow" in held["kept_because"]
    assert "slow" in run("trim", long_queue, "--bytes", 20000, "--no-json").text


def test_names_of_before_work_and_say_what_they_are_called_now(run: Run, long_queue: Path) -> None:
    with Queue(long_queue) as queue:
        queue.group("slow").get(0).ack()
    plan = run("trim", long_queue, "--before", "latest", "--no-hold", "--dry-run")
    assert "--retain-unread" in plan.err
    assert plan.one["segments"]
    assert "max_in_flight now" in run("set", long_queue, "--group", "slow", "window=7").err
    assert "retain_unread now" in run("set", long_queue, "hold_for_groups=false").err
    assert run("show", long_queue).one["retain_unread"] is False
    assert run("show", long_queue, "--group", "slow").one["max_in_flight"] == 7


def test_trim_deletes_whole_segments(run: Run, long_queue: Path) -> None:
    gone = run("trim", long_queue, "--bytes", 40000).one
    assert gone["reason"] == "more than 40000 bytes"
    assert not any(Path(path).exists() for path in gone["segments"])
    assert gone["segments"]
    assert run("verify", long_queue).one["ok"]
    run("trim", long_queue, "--age", "soon", code=2)


def test_set_changes_options_of_a_group(run: Run, orders: Path) -> None:
    run("set", orders, "--group", "billing", "visibility_s=5", "tags=us.#")
    with Queue(orders) as queue:
        options = queue.group("billing").options
    assert (options.visibility_s, options.tags) == (5, "us.#")
    run("set", orders, "--group", "billing", "nonsense=1", code=2)
    run("set", orders, "nonsense=1", code=2)
    run("set", orders, "nothing", code=2)


def test_set_restores_the_defaults_of_a_group(run: Run, orders: Path) -> None:
    with Queue(orders) as queue:
        before = queue.group("audit", max_receives=3, visibility_s=5, dead_letter="x", tags="us.#")
        audit = before.dead_letter_path.with_name("orders.dead")
    run(
        "set", orders, "--group", "audit", "max_receives=", "visibility_s=", "dead_letter=", "tags="
    )
    with Queue(orders) as queue:
        group = queue.group("audit")
        found = group.options
        assert (found.max_receives, found.visibility_s, found.tags) == (0, 30, "")
        assert group.dead_letter_path == audit


def test_set_keeps_nothing_that_would_lock_everyone_out(run: Run, orders: Path) -> None:
    for senseless in ("max_bytes=99999999999999999999", "codec=nonsense", "durability=5"):
        name, _, value = senseless.partition("=")
        assert f"{name}={value}: expected" in run("set", orders, senseless, code=2).err
    run("set", orders, "codec=json")
    assert run("show", orders).one["codec"] == "json"
    run("set", orders, "codec=")
    assert run("show", orders).one["codec"] is None


def test_get_waits_as_long_as_the_queue_says(run: Run, tmp_path: Path) -> None:
    with Queue(tmp_path / "ring.bin", format="vqs", max_bytes=1 << 16) as queue:
        run("get", queue.path, code=3)
        run("set", queue.path, "wait_seconds=20")
        run("get", queue.path, "--timeout", 0, code=3)
        done = threading.Event()

        def put_once_it_waits() -> None:
            while not (done.is_set() or words_of(queue.store.need_shared())["waiters"]):
                pass
            queue.put(b"awaited")

        thread = threading.Thread(target=put_once_it_waits)
        thread.start()
        try:
            assert base64.b64decode(run("get", queue.path).one["body"]) == b"awaited"
        finally:
            done.set()
            thread.join()


def test_labels_are_listed_set_and_removed(run: Run, tmp_path: Path, orders: Path) -> None:
    path = tmp_path / "ring.bin"
    with Queue(path, format="vqs", max_bytes=1 << 16) as queue:
        run("labels", "set", path, "team=images", "note=a=b")
        run("labels", "set", path, "team=audio", "empty=")
        run("set", path, "visibility_timeout=45")
        assert queue.meta["labels"] == {"team": "audio", "note": "a=b", "empty": ""}
        assert queue.meta["visibility_timeout"] == 45
    assert run("labels", "list", path).one == {"team": "audio", "note": "a=b", "empty": ""}
    run("labels", "remove", path, "note", "empty")
    assert run("labels", "list", path, "--no-json").text == "team=audio\n"
    for wrong in (["remove", path, "none"], ["set", path, "x"], ["set", path, f"{'n' * 129}=x"]):
        assert run("labels", *wrong, code=2).err
    assert "a mapping" in run("set", path, "labels=x", code=2).err
    assert run("labels", "list", path).one == {"team": "audio"}
    assert "format vqs does" in run("labels", "list", orders, code=2).err


def test_resize_is_refused_where_a_queue_has_no_fixed_size(run: Run, orders: Path) -> None:
    assert "no fixed size" in run("resize", orders, 1 << 20, code=2).err


def test_the_body_survives_the_way_out_and_in_again(run: Run, tmp_path: Path) -> None:
    body = bytes(range(256))
    run("put", tmp_path / "q", "-", stdin=body)
    assert base64.b64decode(run("get", tmp_path / "q").one["body"]) == body


def test_resize_gives_a_ring_another_size_open_or_not(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ring.bin"
    with Queue(path, format="vqs", max_bytes=1 << 16) as queue:
        queue.put(b"before")
        run("resize", path, 1 << 18)
        assert queue.meta["file_bytes"] == 1 << 18
        queue.put(b"after")
    run("resize", path, 1 << 19)
    facts = run("info", path).one
    assert (facts["meta"]["file_bytes"], facts["messages"]) == (1 << 19, 2)
    assert facts["meta"]["page_faults"].keys() == {"minor", "major"}
    assert facts["meta"]["capacity_left"] < facts["meta"]["ring_bytes"]
    assert "20480 to" in run("resize", path, 16384, code=2).err
