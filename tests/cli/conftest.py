"""The command line, run in this process: what it prints, complains and answers."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from penstock import Queue
from penstock.cli import main


@dataclass(frozen=True)
class Ran:
    """One command, run."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The output as JSON Lines."""
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def one(self) -> dict[str, Any]:
        (line,) = self.lines
        return line


class Run(Protocol):
    def __call__(self, *arguments: object, stdin: bytes = b"", code: int = 0) -> Ran: ...


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command and expects an exit code."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)

    def run_one(*arguments: object, stdin: bytes = b"", code: int = 0) -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsysbinary.readouterr()
        found = main([str(argument) for argument in arguments])
        sys.stdout.flush()
        captured = capsysbinary.readouterr()
        ran = Ran(found, captured.out, captured.err.decode())
        assert found == code, f"exit code {found}: {ran.err or ran.text}"
        return ran

    return run_one


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A queue of five messages, closed; two groups, one of them with a lease gone stale."""
    path = tmp_path / "orders"
    with Queue(path) as queue:
        for number in range(5):
            tag = "eu.created" if number % 2 == 0 else "us.created"
            queue.put(b"body %d" % number, tag=tag, id=f"o-{number}", headers={"n": str(number)})
        queue.group("billing").get(0).ack()
        queue.group("audit", tags="eu.#")
    return path


def tree_hash(path: Path) -> str:
    """Names, rights, times and bytes of everything below `path`."""
    found = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        stat = file.lstat()
        found.update(f"{file} {stat.st_mode} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        if file.is_file():
            for at, data in written(file):
                found.update(f"{at}\n".encode() + data)
    return found.hexdigest()


def written(path: Path) -> Iterator[tuple[int, bytes]]:
    """The parts of a file that are no holes: a group's table is a hundred MB of nothing."""
    with path.open("rb") as stream:
        end = stream.seek(0, os.SEEK_END)
        at = 0
        while at < end:
            try:
                at = os.lseek(stream.fileno(), at, os.SEEK_DATA)
            except OSError:
                return
            hole = os.lseek(stream.fileno(), at, os.SEEK_HOLE)
            for page in range(at, hole, 4096):
                # Which zeros are a hole is the file system's business, and changes by itself.
                data = os.pread(stream.fileno(), 4096, page)
                if data.strip(b"\0"):
                    yield page, data
            at = hole


def first_segment(path: Path) -> Path:
    return min((path / "log").glob("*.seg"))


def flip(path: Path, at: int) -> None:
    """Makes one byte another one."""
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)[0]
        stream.seek(at)
        stream.write(bytes([byte ^ 0xFF]))
