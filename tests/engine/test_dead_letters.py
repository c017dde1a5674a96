"""Dead letters go where they should, under the key they should, and nowhere else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock import Empty, GroupError, KeyNeededError, Queue
from penstock.engine import deadletter
from penstock.formats.registry import MODULES
from tests.opening import path_for

KEYS = {"penstock": (None, bytes(range(32))), "beats": ("3", bytes(range(16)))}


def bury(queue: Queue, body: bytes = b"SECRETBODY", **options: str) -> None:
    """Hands one message out once too often."""
    queue.put(body)
    group = queue.group("g", max_receives=1, **options)  # type: ignore[arg-type]
    group.get(0).nack()
    with pytest.raises(Empty):
        group.get(0)


def holding(folder: Path, mark: bytes) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file() and mark in one.read_bytes()]


@pytest.mark.parametrize("format", KEYS)
def test_dead_letters_of_an_encrypted_queue_are_under_its_key(tmp_path: Path, format: str) -> None:
    layout, key = KEYS[format]
    with Queue(tmp_path / "q", format=format, layout=layout, key=key) as queue:
        bury(queue)
    assert not holding(tmp_path, b"SECRETBODY")
    with Queue(tmp_path / "q.dead", key=key, create=False) as dead:
        assert [message.body for message in dead.scan()] == [b"SECRETBODY"]
        assert dead.redrive() == 1
    with Queue(tmp_path / "q", key=key, create=False) as queue:
        assert queue.group("again").get(0).body == b"SECRETBODY"


def test_dead_letters_of_an_encrypted_queue_do_not_go_to_a_plain_one(tmp_path: Path) -> None:
    Queue(tmp_path / "q.dead").close()
    with Queue(tmp_path / "q", key=bytes(32)) as queue:
        queue.put(b"SECRETBODY")
        group = queue.group("g", max_receives=1)
        group.get(0).nack()
        with pytest.raises(KeyNeededError, match="same key"):
            group.get(0)
    assert not holding(tmp_path, b"SECRETBODY")


def name_in_file(path: Path, named: str) -> None:
    """As someone would who gives us a folder."""
    file = path / ".penstock" / "groups" / "g" / "group.json"
    known = json.loads(file.read_text()) | {"max_receives": 1, "dead_letter": named}
    known.pop("check", None)
    file.write_text(json.dumps(known))


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_file_in_the_queue_has_nothing_made_elsewhere(tmp_path: Path, is_relative: bool) -> None:
    path, elsewhere = tmp_path / "given" / "q", tmp_path / "elsewhere" / "a"
    with Queue(path) as queue:
        queue.put(b"x")
        queue.group("g")
    name_in_file(path, "../elsewhere/a" if is_relative else str(elsewhere))
    with Queue(path) as queue:
        group = queue.group("g")
        group.get(0).nack()
        with pytest.raises(GroupError, match=r"group\.json: names .*If you mean it, name it"):
            group.get(0)
    assert not elsewhere.parent.exists()


def test_what_the_program_itself_names_is_made_and_then_known_to_others(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "q", tmp_path / "elsewhere" / "a"
    with Queue(path) as queue:
        bury(queue, b"one", dead_letter=str(elsewhere))
    deadletter.TOLD.clear()  # As in another process.
    with Queue(path) as queue:
        bury(queue, b"two")
    with Queue(elsewhere, create=False) as dead:
        assert [message.body for message in dead.scan()] == [b"one", b"two"]
        assert dead.redrive() == 2  # The group over there says that they come here.


def test_a_dead_letter_alone_opens_no_queue(tmp_path: Path) -> None:
    victim = tmp_path / "victim" / "q"
    Queue(victim).close()
    with Queue(tmp_path / "given" / "q.dead") as dead:
        headers = {"penstock.source": str(victim), "penstock.group": "g"}
        dead.put(b"planted", headers=headers)
        assert dead.redrive() == 0
        assert len(dead) == 1
    with Queue(victim, create=False) as queue:
        assert len(queue) == 0


@pytest.mark.parametrize("format", MODULES)
def test_dead_letters_of_a_queue_whose_name_is_not_utf8_find_their_way_back(
    tmp_path: Path, format: str
) -> None:
    path = path_for(tmp_path / os.fsdecode(b"sp\xe9cial"), format)
    path.parent.mkdir()
    with Queue(path, format=format) as queue:
        queue.put(b'{"n":1}')
        group = queue.group("g", max_receives=1)
        group.get(timeout=0).nack()
        assert group.get_many(1) == []
    with Queue(f"{path}.dead", create=False) as dead:
        assert dead.peek()[0].headers["penstock.source"].endswith(f"sp%E9cial/{path.name}")
        assert dead.redrive() == 1
    with Queue(path) as queue:
        assert queue.group("g").get(timeout=0).body == b'{"n":1}'


def test_a_reason_that_is_not_utf8_buries_all_the_same(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        queue.put(b"one")
        group = queue.group("g")
        group.dead_letter(group.get(timeout=0), "no file " + os.fsdecode(b"\xff"))
    with Queue(tmp_path / "q.dead", create=False) as dead:
        assert dead.peek()[0].headers["penstock.reason"] == r"no file \udcff"
