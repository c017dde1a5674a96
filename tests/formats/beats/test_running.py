"""Nobody writes to a queue while a Beat has it open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Queue, UnsupportedError
from penstock.disk import open_elsewhere

HOLD = "import sys; file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); input()"


@contextmanager
def another_program(path: Path, mode: str) -> Iterator[int]:
    """A program that is not ours and has the file open."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"open\n"
        yield program.pid


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Queue(tmp_path / "q", format="beats") as queue:
        queue.put(b'{"n":1}')
    return tmp_path / "q"


def test_a_queue_that_a_beat_has_open_is_not_opened_for_writing(path: Path) -> None:
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    with (
        another_program(path / "state.dat", "r+b") as beat,
        pytest.raises(UnsupportedError, match=rf"process {beat} \(python.*\) has this queue open"),
    ):
        Queue(path)
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()} == before
    with Queue(path) as queue:
        queue.put(b'{"n":2}')
        assert len(queue) == 2


def test_a_queue_that_a_beat_has_open_is_read(path: Path) -> None:
    with (
        another_program(path / "state.dat", "r+b"),
        Queue(path, read_only=True) as queue,
    ):
        assert len(list(queue.scan())) == 1


def test_a_program_that_reads_keeps_nobody_from_writing(path: Path) -> None:
    with another_program(path / "state.dat", "rb"), Queue(path) as queue:
        queue.put(b'{"n":2}')


def test_a_beat_that_can_t_be_seen_is_refused_without_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_elsewhere, "writers", lambda path: iter(()))
    with (
        another_program(path / "state.dat", "r+b"),
        pytest.raises(UnsupportedError, match="a process that can't be seen from here"),
    ):
        Queue(path)


def test_a_group_that_outlived_its_queue_keeps_nobody_from_writing(path: Path) -> None:
    queue = Queue(path)
    group = queue.group("default")
    assert group.get() is not None
    queue.close()
    with Queue(path) as again:
        again.put(b'{"n":2}')
    assert group.name == "default"
