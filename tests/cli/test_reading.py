"""`cat`, `peek`, `tail`, `ls`, `info`, `top`: looking, and changing nothing by it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Queue
from tests.cli.conftest import Run, first_segment, flip, tree_hash

FIELDS = {"offset", "number", "timestamp_ns", "id", "tag", "headers", "body"}


def test_cat_prints_one_object_per_message_with_the_fields_of_the_contract(
    run: Run, orders: Path
) -> None:
    lines = run("cat", orders, "--json").lines
    assert [set(line) for line in lines] == [FIELDS | {"text"}] * 5
    first = lines[0]
    assert (first["offset"], first["number"], first["id"]) == (0, 0, "o-0")
    assert (first["tag"], first["headers"]) == ("eu.created", {"n": "0"})
    assert base64.b64decode(first["body"]) == b"body 0"
    assert isinstance(first["timestamp_ns"], int)


def test_cat_prints_null_for_what_a_message_has_not(run: Run, tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"")
    line = run("cat", tmp_path / "q", "--json").one
    assert (line["id"], line["tag"], line["headers"], line["body"]) == (None, None, None, "")


@pytest.mark.parametrize(
    "command",
    [
        ["cat", "--json"],
        ["cat", "--no-json"],
        ["cat", "--group", "billing"],
        ["peek"],
        ["peek", "--group", "audit"],
        ["tail", "-n", "2"],
        ["tail", "--follow", "--timeout", "0"],
        ["info", "--json"],
        ["info", "--no-json"],
        ["verify", "--json"],
        ["verify", "--no-json"],
        ["repair", "--dry-run"],
        ["trim", "--before", "latest", "--dry-run"],
        ["purge", "--dry-run"],
        ["groups", "list"],
        ["groups", "lag"],
        ["seek", "latest", "--group", "billing", "--dry-run"],
        ["move", "--to-origin", "--dry-run"],
        ["top", "--once"],
        ["export", "-"],
        ["doctor", "--no-measure"],
    ],
)
def test_what_only_looks_changes_nothing(run: Run, orders: Path, command: list[str]) -> None:
    words = command[:2] if command[0] == "groups" else command[:1]
    before = tree_hash(orders)
    run(*words, orders, *command[len(words) :])
    assert tree_hash(orders) == before


def test_cat_of_a_queue_in_use_changes_nothing(run: Run, orders: Path) -> None:
    with Queue(orders) as queue:
        queue.put(b"more")
        queue.sync()
        before = tree_hash(orders / "log")
        assert len(run("cat", orders).lines) == 6
        assert tree_hash(orders / "log") == before


def test_cat_prints_every_whole_message_behind_damage_and_exits_1(run: Run, orders: Path) -> None:
    offset = run("cat", orders).lines[2]["offset"]
    flip(first_segment(orders), 4096 + offset + 40)
    ran = run("cat", orders, "--json", code=1)
    assert [line["id"] for line in ran.lines] == ["o-0", "o-1", "o-3", "o-4"]
    assert f"{first_segment(orders)}:{4096 + offset}" in ran.err


def test_cat_takes_a_range_a_filter_and_a_limit(run: Run, orders: Path) -> None:
    lines = run("cat", orders).lines
    second = lines[1]["offset"]

    def ids(*arguments: object) -> list[str]:
        return [line["id"] for line in run("cat", orders, *arguments).lines]

    assert ids("--from", second, "--to", lines[3]["offset"]) == ["o-1", "o-2"]
    assert ids("--from", "number:3") == ["o-3", "o-4"]
    assert ids("--tags", "us.*") == ["o-1", "o-3"]
    assert ids("--limit", 2) == ["o-0", "o-1"]
    assert ids("--limit", 0) == []
    assert ids("--since", "1h", "--until", "now") == ["o-0", "o-1", "o-2", "o-3", "o-4"]
    assert ids("--since", "latest") == []


def test_cat_for_a_group_prints_what_it_has_still_to_do(run: Run, orders: Path) -> None:
    def ids(group: str) -> list[str]:
        return [line["id"] for line in run("cat", orders, "--group", group).lines]

    assert ids("billing") == ["o-1", "o-2", "o-3", "o-4"]
    assert ids("audit") == ["o-0", "o-2", "o-4"]


def test_cat_for_a_group_leaves_out_what_was_acked_out_of_order(run: Run, orders: Path) -> None:
    with Queue(orders) as queue:
        first, second, third = queue.group("billing").get_many(3)
        second.ack()
        lines = run("cat", orders, "--group", "billing").lines
        assert first.receives == third.receives == 1
    assert [line["id"] for line in lines] == ["o-1", "o-3", "o-4"]


def test_cat_shows_payloads_and_raw_bodies_when_asked(run: Run, orders: Path) -> None:
    line = run("cat", orders, "--payload", "--limit", 1).one
    assert b"body 0" in base64.b64decode(line["payload"])
    assert run("cat", orders, "--raw", "--limit", 2).out == b"body 0\nbody 1\n"


def test_cat_for_people_never_sends_control_characters(run: Run, tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"\x1b[2Jgone\x07", tag="a\x1bb")
        queue.put(b"\xff\xfe\x00")
    text = run("cat", tmp_path / "q", "--no-json").text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "ff fe 00" in text


def test_an_encrypted_queue_is_read_with_its_key_from_a_file_descriptor_or_variable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, path = bytes(range(32)), tmp_path / "q"
    with Queue(path, key=key) as queue:
        queue.put(b"secret")
    file = tmp_path / "key.hex"
    file.write_text(key.hex() + "\n")
    assert run("cat", path, "--raw", "--key-file", file).out == b"secret\n"
    with file.open("rb") as stream:
        assert run("cat", path, "--raw", "--key-file", f"/dev/fd/{stream.fileno()}").out
    monkeypatch.setenv("ORDERS_KEY", key.hex())
    assert run("cat", path, "--raw", "--key-env", "ORDERS_KEY").out == b"secret\n"
    run("cat", path, "--key-env", "NO_SUCH_VARIABLE", code=2)
    assert b"secret" not in run("cat", path, "--raw", code=2).out


def test_peek_shows_the_next_message_of_a_group(run: Run, orders: Path) -> None:
    assert run("peek", orders, "--group", "billing").one["id"] == "o-1"
    assert run("peek", orders).one["id"] == "o-0"


def test_tail_prints_the_last_messages(run: Run, orders: Path) -> None:
    assert [line["id"] for line in run("tail", orders, "-n", 2).lines] == ["o-3", "o-4"]


def test_tail_follows_what_another_process_puts(orders: Path) -> None:
    command = [sys.executable, "-m", "penstock", "tail", str(orders), "-n", "0", "--follow"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        # Until it follows, what is put counts as old: so it is put until some of it is seen.
        with Queue(orders) as queue:
            os.set_blocking(process.stdout.fileno(), False)
            line = b""
            while not line.endswith(b"\n"):
                queue.put(b"new")
                line += process.stdout.read(1 << 16) or b""
        process.terminate()
    assert json.loads(line.splitlines()[0])["body"] == base64.b64encode(b"new").decode()


def test_info_has_the_fields_of_the_contract(run: Run, orders: Path) -> None:
    info = run("info", orders, "--json").one
    assert (info["format"], info["layout"]) == ("penstock", "1")
    assert (info["head"], info["messages"]) == (0, 5)
    assert info["bytes"] == info["tail"]
    assert [segment["base"] for segment in info["segments"]] == [0]
    groups = {group["name"]: group for group in info["groups"]}
    assert groups["billing"]["lag"] == 4
    assert groups["audit"]["tags"] == "eu.#"


def test_info_counts_whole_messages_of_a_damaged_queue(run: Run, orders: Path) -> None:
    flip(first_segment(orders), 4096 + 40)
    assert run("info", orders, "--json").one["messages"] == 4


def test_ls_finds_queues_and_not_their_insides(run: Run, orders: Path, tmp_path: Path) -> None:
    Queue(tmp_path / "deep" / "other").close()
    found = run("ls", tmp_path).lines
    assert [Path(line["path"]).name for line in found] == ["other", "orders"]
    assert "orders" in run("ls", tmp_path, "--no-json").text
    run("ls", tmp_path / "nothing", code=2)


def test_top_looks_once_at_queues_or_at_a_folder_of_them(
    run: Run, orders: Path, tmp_path: Path
) -> None:
    rows = run("top", tmp_path, "--once").lines
    assert [row["group"] for row in rows] == [None, "audit", "billing"]
    assert rows[0]["messages"] == 5
    assert "billing" in run("top", orders, "--once", "--no-json").text
    run("top", tmp_path / "nothing", "--once", code=2)


def test_a_missing_queue_is_a_sentence_and_exit_code_2(run: Run, tmp_path: Path) -> None:
    for command in ("cat", "info", "verify", "get", "tail"):
        ran = run(command, tmp_path / "nothing", code=2)
        assert "no queue is here" in ran.err
    assert not (tmp_path / "nothing").exists()


def test_output_ends_quietly_when_nobody_reads_it(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put_many([b"x" * 100] * 20_000)
    command = f"{sys.executable} -m penstock cat {tmp_path / 'q'} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
