"""Small files that take another one's place: what is left when that did not end well."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Queue, StorageError, _core
from penstock.disk import files
from tests.crash.killing import in_a_small_process


def test_each_replacement_has_a_temporary_name_of_its_own_and_leaves_none(tmp_path: Path) -> None:
    for value in (b"one", b"two"):
        _core.replace_file(tmp_path / "file", value)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", value)]


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
