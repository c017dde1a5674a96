"""Folders that someone else made, or changed: nobody hangs, nothing outside is touched."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import Empty, FormatError, GroupError, PenstockError, Queue, StorageError, _core
from penstock.disk import files
from penstock.engine import intents, orphans
from penstock.engine.value_folder import ValueFolder
from penstock.formats import registry
from penstock.kombu.state import State
from penstock.sidecar import groups, sinks

FORMATS = list(registry.MODULES)
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


def made(folder: Path, format: str, count: int = 40) -> Path:
    path = folder / ("q.bin" if format == "vqs" else "q")
    size: dict[str, Any] = {"max_bytes": 1 << 20} if format == "vqs" else {"segment_bytes": 16384}
    with Queue(path, format=format, durability="process", **size) as queue:
        group = queue.group("default")
        queue.group("side", ack="auto")
        for number in range(count):
            queue.put(b"%06d" % number + b"y" * 900)
        for message in group.get_many(4):
            message.ack()
    return path


def use(path: Path) -> list[str]:
    """What a program does with a queue; the names of the errors that it meets."""

    def live() -> None:
        with Queue(path, create=False) as queue:
            queue.put(b"999999")
            queue.get(0).ack()
            queue.group("new").get_many(100)
            queue.sync()
            queue.trim("latest")
            queue.group("new").delete()
            queue.put_many([b"z" * 900] * 20)

    def look() -> None:
        with Queue(path, create=False, read_only=True) as queue:
            list(queue.scan(tolerant=True))

    def repair() -> None:
        with Queue(path, create=False) as queue:
            queue.repair()

    met = []
    for work in (look, live, repair):
        try:
            work()
        except (PenstockError, Empty) as error:
            met.append(type(error).__name__)
    return met


def copy(source: Path, target: Path) -> None:
    """Holes stay holes: a group's table is mostly one."""
    asked = ["cp", "-a", "--sparse=always", str(source), str(target)]
    subprocess.run(asked, check=True, timeout=60)


def tree(path: Path) -> dict[str, str]:
    found = [path, *sorted(path.rglob("*"))]
    return {
        str(one): hashlib.sha256(files.read_start(one, 1 << 20)).hexdigest()
        if one.is_file()
        else "folder"
        for one in found
    }


# ── owners ─────────────────────────────────────────────────────────────────────────────────────


@needs_root
@pytest.mark.parametrize("format", FORMATS)
def test_what_root_makes_in_a_queue_belongs_to_its_owner(tmp_path: Path, format: str) -> None:
    path = made(tmp_path, format, 4)
    for one in [path, files_beside(path), *files_beside(path).rglob("*"), *path.rglob("*")]:
        os.chown(one, NOBODY, NOBODY)
    with Queue(path) as queue:
        for _ in range(60):
            queue.put(b"r" * 900)
        queue.group("side2").get(0).ack()
    found = [path, files_beside(path), *files_beside(path).rglob("*"), *path.rglob("*")]
    assert {(one.stat().st_uid, one.stat().st_gid) for one in found} == {(NOBODY, NOBODY)}
    assert {one.stat().st_mode & 0o777 for one in found} <= {0o600, 0o700}


@needs_root
def test_what_root_locks_its_owner_can_lock_too(tmp_path: Path) -> None:
    path = made(tmp_path, "penstock", 1)
    sidecar = path / ".penstock"
    os.chown(path, NOBODY, NOBODY)
    for folder in [one for one in [sidecar, *sidecar.rglob("*")] if one.is_dir()]:
        os.chown(folder, NOBODY, NOBODY)
    before = {one for one in path.rglob("*") if one.is_file()}
    umask = os.umask(0o777)
    try:
        with sinks.SinkFiles(sidecar, "app").held():
            os.close(groups.open_query_lock(sidecar / "groups" / "side"))
        assert ValueFolder(path / "counters").incr("done") == 1
        with State(path).changing():
            pass
    finally:
        os.umask(umask)
    new = {one for one in path.rglob("*") if one.is_file()} - before
    assert {one.name for one in new} == {"app.lock", "spark.lock", "done", "exchanges.lock"}
    assert {(one.stat().st_uid, one.stat().st_gid) for one in new} == {(NOBODY, NOBODY)}
    assert {one.stat().st_mode & 0o777 for one in new} == {0o600}


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder"])
def test_nothing_is_locked_that_is_no_file(tmp_path: Path, kind: str) -> None:
    outside, path = tmp_path / "outside", tmp_path / "app.lock"
    if kind == "a link":
        path.symlink_to(outside)
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(StorageError, match=re.escape(str(path))):
        _core.open_or_create(path)
    assert not outside.exists()


def files_beside(path: Path) -> Path:
    return path / ".penstock" if path.is_dir() else path.with_name(path.name + ".penstock")


def test_a_folder_that_its_group_writes_to_gets_files_that_it_can_write_to(tmp_path: Path) -> None:
    path = tmp_path / "q"
    path.mkdir()
    path.chmod(0o2770)
    with Queue(path) as queue:
        queue.put(b"x")
        queue.group("g")
    modes = {one.stat().st_mode & 0o777 for one in path.rglob("*") if one.is_file()}
    assert modes == {0o660}
    assert {one.stat().st_mode & 0o777 for one in path.rglob("*") if one.is_dir()} == {0o770}


def test_the_umask_gives_nobody_more_and_nobody_less(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made(tmp_path / "open", "penstock", 4)
        os.umask(0o777)
        made(tmp_path / "shut", "penstock", 4)
    finally:
        os.umask(before)
    for one in tmp_path.rglob("*"):
        assert one.stat().st_mode & 0o777 == (0o700 if one.is_dir() else 0o600), one


# ── who may write there ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", FORMATS)
def test_a_queue_that_everyone_may_write_to_is_refused_unless_told(
    tmp_path: Path, format: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = made(tmp_path, format)
    path.chmod(0o777)
    with pytest.raises(StorageError, match=r"every user.*chmod o-w.*trust_others"):
        Queue(path)
    with Queue(path, read_only=True) as queue:
        assert len(list(queue.scan()))
    assert "every user" in caplog.text
    with Queue(path, trust_others=True) as queue:
        queue.put(b"x")


@needs_root
def test_a_queue_of_another_user_is_refused_unless_told(tmp_path: Path) -> None:
    # As the one who is not root: in a child, since there is no way back.
    path = made(tmp_path, "penstock")
    for one in [tmp_path, *tmp_path.rglob("*")]:
        one.chmod(0o2770 if one.is_dir() else 0o660)
        os.chown(one, 4711, NOBODY)
    above = tmp_path
    while not above.stat().st_mode & 0o001 and above != above.parent:
        above.chmod(above.stat().st_mode | 0o001)
        above = above.parent
    code = (
        "import os, sys, penstock, penstock.engine.queue\n"
        "from penstock.formats import registry\n"
        "for format in registry.MODULES: registry.format_class(format)\n"
        "import json, logging\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: penstock.Queue(sys.argv[1])\n"
        "except penstock.StorageError as error: print(error)\n"
        "penstock.Queue(sys.argv[1], trust_others=True).put(b'x')\n"
    )
    asked = [sys.executable, "-c", code, str(path)]
    ran = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert "belongs to user 4711" in ran.stdout, ran.stderr
    assert ran.returncode == 0, ran.stderr


# ── what is no file ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", FORMATS)
def test_a_pipe_in_place_of_any_file_makes_nobody_wait(tmp_path: Path, format: str) -> None:
    path = made(tmp_path / "base", format, 4)
    for victim in [one for one in (tmp_path / "base").rglob("*") if one.is_file()]:
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        copy(tmp_path / "base", run)
        target = run / victim.relative_to(tmp_path / "base")
        target.unlink()
        os.mkfifo(target)
        use(run / path.name)


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a link"])
def test_what_is_no_table_keeps_no_group_of_a_dead_process_from_its_sync(
    tmp_path: Path, kind: str
) -> None:
    """The maintenance thread looks at groups that nobody here has open."""
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put_many([b"a", b"b"])
        pid = os.fork()
        if pid == 0:
            other = Queue(tmp_path / "q", durability="process")
            other.group("strange")
            other.group("theirs").get_many(2)[0].ack()
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        table = tmp_path / "q" / ".penstock" / "groups" / "strange" / "table"
        table.unlink()
        pipe = None
        if kind == "a folder":
            table.mkdir()
        elif kind == "a link":
            table.symlink_to(__file__)
        else:
            os.mkfifo(table)
            pipe = os.open(table, os.O_RDWR)  # Else who opens it waits for ever.
            os.write(pipe, bytes(4096))
        upkeep = _core.Upkeep(queue.store.need_writer(), True)
        assert upkeep.stuck_groups() == ["strange"]
        stuck = upkeep.stuck_groups()
        assert sorted(stuck) == ["strange", "theirs"]
        with suppress(PenstockError):
            orphans.sync(queue, ["strange", "theirs"])
        looks = [upkeep.stuck_groups() for _ in range(2)]
        assert looks == [["strange"], ["strange"]], "the other one is synced"
        if pipe is not None:
            os.close(pipe)


@pytest.mark.parametrize("text", ["{}\n{}\n", "[1]\n3\n", "[" * 100_000, "", "\xff"])
def test_a_note_of_a_sink_that_is_none_keeps_nobody_from_the_queue(
    tmp_path: Path, text: str
) -> None:
    path = made(tmp_path, "penstock", 4)
    note = path / ".penstock" / "sinks" / "app.intent"
    note.parent.mkdir(exist_ok=True)
    note.write_text(text)
    with Queue(path, create=False) as queue:
        queue.put(b"x")
        assert queue.purge() == 1
        assert intents.open_notes(queue.store.sidecar) == []


@pytest.mark.parametrize("first", ["-9", "1e300", "null", '"x"', "[]", str(1 << 70)])
def test_who_commits_over_a_strange_note_is_told(tmp_path: Path, first: str) -> None:
    with Queue(tmp_path / "q") as queue:
        note = queue.store.sidecar / "sinks" / "app.intent"
        note.parent.mkdir()
        note.write_text(
            f'{{"app": "app", "batch": 1}}\n{{"first": {first}, "end": 9, "check": 5}}\n'
        )
        with pytest.raises(FormatError, match=r"app\.intent"):
            intents.Ledger(queue.store, "app").commit(1, None)


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a link"])
def test_what_is_no_file_in_place_of_a_note_is_told(tmp_path: Path, kind: str) -> None:
    note = tmp_path / "app.intent"
    if kind == "a folder":
        note.mkdir()
    elif kind == "a link":
        note.symlink_to(__file__)
    else:
        os.mkfifo(note)
        pipe = os.open(note, os.O_RDWR)
        os.write(pipe, b"{}\n")
    with pytest.raises(OSError, match=r"app\.intent"):
        intents.Note.load(note)
    if kind == "a pipe":
        os.close(pipe)


def test_a_file_is_read_only_if_it_is_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(__file__)
    with pytest.raises(StorageError, match="no ordinary file"):
        files.read_bytes(tmp_path / "pipe")
    with pytest.raises(OSError, match="symbolic"):
        files.read_bytes(tmp_path / "link")


# ── links ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", FORMATS)
def test_no_link_inside_a_queue_is_written_through(tmp_path: Path, format: str) -> None:
    path = made(tmp_path / "base", format)
    for victim in sorted((tmp_path / "base").rglob("*")):
        if victim == path and victim.is_dir():
            continue  # The queue's own name may be a link: see below.
        run, outside = tmp_path / "run", tmp_path / "outside"
        for folder in (run, outside):
            shutil.rmtree(folder, ignore_errors=True)
        copy(tmp_path / "base", run)
        outside.mkdir()
        target = run / victim.relative_to(tmp_path / "base")
        target.rename(outside / victim.name)
        target.symlink_to(outside / victim.name)
        before = tree(outside)
        use(run / path.name)
        assert tree(outside) == before, victim


def planted_hard_links(tmp_path: Path, path: Path, mode: int) -> Iterator[tuple[Path, list[str]]]:
    """Each file of the queue in turn has a second name outside; yields that, and what whoever uses
    the queue met."""
    base = tmp_path / "base"
    for victim in sorted(one for one in base.rglob("*") if one.is_file()):
        run, outside = tmp_path / "run", tmp_path / "outside"
        for folder in (run, outside):
            shutil.rmtree(folder, ignore_errors=True)
        copy(base, run)
        for folder in (run, *(one for one in run.rglob("*") if one.is_dir())):
            folder.chmod(mode)
        outside.mkdir()
        target = run / victim.relative_to(base)
        target.rename(outside / victim.name)
        os.link(outside / victim.name, target)
        before = tree(outside)
        met = use(run / path.name)
        if mode != 0o700:
            assert tree(outside) == before, victim
        yield victim, met


@pytest.mark.parametrize("format", FORMATS)
def test_no_second_name_of_a_file_is_written_to_where_others_can_make_one(
    tmp_path: Path, format: str
) -> None:
    path = made(tmp_path / "base", format)
    refused = [met for _, met in planted_hard_links(tmp_path, path, 0o770) if met]
    assert len(refused) > 2
    assert {name for met in refused for name in met} <= {"StorageError", "GroupError"}


@pytest.mark.parametrize("format", FORMATS)
def test_a_queue_of_ours_alone_may_have_been_copied_by_links(tmp_path: Path, format: str) -> None:
    path = made(tmp_path / "base", format)
    assert [met for _, met in planted_hard_links(tmp_path, path, 0o700) if met] == []


@pytest.mark.parametrize("format", FORMATS)
def test_who_opens_a_queue_that_was_copied_by_links_is_warned(
    tmp_path: Path, format: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = made(tmp_path / "base", format, 4)
    subprocess.run(["cp", "-al", tmp_path / "base", tmp_path / "linked"], check=True)
    for copied in (path, tmp_path / "linked" / path.name):
        caplog.clear()
        Queue(copied, create=False).close()
        assert f"{copied}: its files have second names" in caplog.text
    shutil.rmtree(tmp_path / "linked")
    caplog.clear()
    Queue(path, create=False).close()
    assert "second names" not in caplog.text


@needs_root
def test_root_writes_to_no_second_name_in_a_folder_of_someone_else(tmp_path: Path) -> None:
    path = made(tmp_path, "penstock")
    for one in [path, *path.rglob("*")]:
        os.chown(one, NOBODY, NOBODY)
    os.link(path / ".penstock" / "control", tmp_path / "victim")
    with pytest.raises(StorageError, match=r"control: this file has a second name.*cp -p"):
        Queue(path)


def test_the_name_of_a_queue_itself_may_be_a_link(tmp_path: Path) -> None:
    made(tmp_path / "base", "penstock")
    (tmp_path / "link").symlink_to(tmp_path / "base" / "q")
    with Queue(tmp_path / "link", create=False) as queue:
        queue.put(b"x")
        assert queue.verify().is_ok


# ── what files and callers say ─────────────────────────────────────────────────────────────────

HOSTILE: tuple[Any, ...] = (
    {"visibility_s": "x"}, {"visibility_s": float("nan")}, {"window": -1}, {"tags": "a" * 5000},
    {"tags": None}, {"ack": "bogus"}, {"ack": None}, {"max_receives": 1 << 70}, {"dialect": 5},
    [], "text", None,
)  # fmt: skip


def test_no_value_in_a_group_s_file_ends_in_anything_but_an_error_of_ours(tmp_path: Path) -> None:
    path = made(tmp_path, "penstock")
    file = path / ".penstock" / "groups" / "default" / "group.json"
    usual = json.loads(file.read_text())
    del usual["check"]
    texts = [json.dumps(usual | one if isinstance(one, dict) else one) for one in HOSTILE]
    for text in [*texts, '{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "", "\0" * 4096]:
        file.write_text(text)
        with Queue(path) as queue, suppress(GroupError):
            queue.group("default").get(0).nack()


NAMES: tuple[Any, ...] = (
    "..", "../x", "a/b", "a\0b", "a\nb", ".hidden", "", "x" * 81, "x" * 300, "é", "a\\b", "~",
    "$HOME", "%s", "..%2f", "a b", "\ud800", "default/../../x", b"x", 5,
    *(chr(code) + "x" for code in range(48) if chr(code) != "-"),
)  # fmt: skip


def test_no_name_of_a_group_makes_a_file_elsewhere(tmp_path: Path) -> None:
    path = made(tmp_path, "penstock")
    before = set(tmp_path.rglob("*"))
    with Queue(path) as queue:
        for name in NAMES:
            with pytest.raises(PenstockError):
                queue.group(name)
            with pytest.raises(PenstockError):
                queue.group("side").rename(name)
    assert set(tmp_path.rglob("*")) - before == set()
