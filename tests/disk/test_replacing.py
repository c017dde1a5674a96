"""Small files that take another one's place: what is left when that did not end well."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from penstock import Queue, StorageError, _core
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
