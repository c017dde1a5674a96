"""Small files that take another one's place: what is left when that did not end well."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Queue, StorageError, _core
from penstock.disk import files
from tests.crash.killing import in_a_small_process
from tests.ladder import means

CLONE_NEWPID = 0x20000000


def test_each_replacement_has_a_temporary_name_of_its_own_and_leaves_none(tmp_path: Path) -> None:
    for value in (b"one", b"two"):
        _core.replace_file(tmp_path / "file", value)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", value)]


def name_by_a_fork(folder: Path) -> str:
    """The temporary name that a child uses which has number 1, as the first one of a container."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).unshare(CLONE_NEWPID)
        grandchild = os.fork()
        if grandchild == 0:
            _core.record_effects(True)
            _core.replace_file(folder / "file", b"child")
            created = next(str(one[1]) for one in _core.take_effects() if one[0] == "create")
            os.write(write, created.encode())
        else:
            os.waitpid(grandchild, 0)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        return pipe.read()


def test_two_forks_with_the_same_number_have_temporary_names_of_their_own(tmp_path: Path) -> None:
    try:
        means.need_namespaces("--pid", "--fork")
    except means.NotRun as missing:
        pytest.skip(str(missing))
    _core.replace_file(tmp_path / "file", b"parent")  # What there is of chance here is inherited.
    one, two = name_by_a_fork(tmp_path), name_by_a_fork(tmp_path)
    assert ".1-" in one
    assert ".1-" in two
    assert one != two


def replace_on_a_full_disk(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with pytest.raises(StorageError, match="too large"):
        _core.replace_file(folder / "file", bytes(1000))


def test_a_replacement_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    in_a_small_process(replace_on_a_full_disk, tmp_path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_what_a_dead_process_left_half_replaced_goes_when_the_queue_is_opened(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q"
    with Queue(path) as queue:
        queue.put(b"kept")
        queue.group("g")
    sidecar = path / ".penstock"
    left = [path, sidecar, sidecar / "groups" / "g"]
    for folder in left:
        (folder / f"file.json.{os.getpid():x}-2a.tmp").write_bytes(b"half")
    (path / "mine.tmp").write_bytes(b"somebody else's")
    with Queue(path) as queue:
        assert [message.body for message in queue.scan()] == [b"kept"]
    assert sorted(path.rglob("*.tmp")) == [path / "mine.tmp"]


def test_the_name_of_every_new_folder_is_synced_after_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, Path]] = []

    def noting(name: str) -> Callable[..., None]:
        usual = getattr(_core, name)

        def act(path: Path, *more: object) -> None:
            done.append((name, path))
            usual(path, *more)

        return act

    for name in ("make_folder", "sync_folder"):
        monkeypatch.setattr(_core, name, noting(name))
    files.make_folder(tmp_path / "a" / "b" / "c")
    made = [path for name, path in done if name == "make_folder"]
    assert made == [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    for path in made:
        after = done[done.index(("make_folder", path)) :]
        assert ("sync_folder", path.parent) in after
