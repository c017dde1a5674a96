"""The transcripts of docs/cli.md: run as they stand, on a terminal, and compared.

A block begins with ```console; in it `$ ` begins a command and what follows is what the terminal
shows. `…` stands for anything. Blocks share one folder, from the page's first to its last.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COLUMNS = 80
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A command and what it should show."""

    command: str
    shown: str


def steps(text: str) -> Iterator[Step]:
    """Every command of a page, in order."""
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield Step(command, shown)


def show(command: str, folder: Path, columns: int = COLUMNS) -> str:
    """What a terminal shows for a command, without trailing blanks and empty lines around."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    here = str(Path(sys.executable).parent)
    environment = {
        "PATH": f"{here}:/usr/bin:/bin",
        "HOME": str(folder),
        "NO_COLOR": "1",
        "TERM": "dumb",
        "COLUMNS": str(columns),
        "LINES": "50",  # Without it rich takes every dumb terminal for 80 columns.
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # The sources that the tests import.
    }
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=slave, stderr=slave,
    ):  # fmt: skip
        os.close(slave)
        seen = b""
        while piece := _read(master):
            seen += piece
    os.close(master)
    text = seen.decode().replace("\r\n", "\n")
    lines = [line.rstrip() for line in text.split("\n")]
    return "\n".join(lines).strip("\n")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:
        return b""  # The other side was closed.


def matches(expected: str, found: str) -> bool:
    """Whether the terminal shows what the page says."""
    parts = map(re.escape, expected.strip("\n").split("…"))
    return re.fullmatch(".*?".join(parts), found, re.DOTALL) is not None
