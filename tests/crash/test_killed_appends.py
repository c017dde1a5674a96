"""A process is killed while it puts a list, at any byte of what it writes, and nobody else has the
queue open: the list is there whole or not at all, and what is left of it is neither told of as
damage nor found again after the next kill."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.sidecar.control import CONTROL
from tests.copies import copy_as_killed
from tests.opening import path_for, small_segments
from tests.reading import bodies

KINDS: dict[str, dict[str, Any]] = {
    "penstock": {},
    "penstock-lz4": {"compression": "lz4"},
    "penstock-key": {"key": bytes(32)},
    "zbus-doc000": {"layout": "doc000"},
    "zbus-flag": {"layout": "flag"},
    "zbus-crc": {"layout": "crc"},
    "beats-0": {"layout": "0"},
    "beats-1": {"layout": "1"},
    "beats-2": {"layout": "2", "key": bytes(16)},
    "beats-3": {"layout": "3", "key": bytes(16)},
    "beats-2-released-lz4": {"layout": "2-released-lz4"},
    "vqs-doc": {"layout": "doc", "max_bytes": 1 << 16},
    "vqs-stage4": {"layout": "stage4", "max_bytes": 1 << 16},
    "mfq": {},
}
FIRST = [b"%d " % number + bytes([65 + number]) * 90 for number in range(5)]
LIST = [random.Random(number).randbytes(70 + number) for number in range(4)]
STEP = 29
"""Bytes from one kill to the next; a prime, so that they meet every part of a frame."""


class Killed:
    """Folders of a queue before a list was put and after it, and what lies between them."""

    def __init__(self, folder: Path, kind: str, durability: str) -> None:
        self.folder, format = folder, kind.partition("-")[0]
        self.options = {"format": format, "durability": durability} | KINDS[kind]
        self.options |= small_segments(format, 1 << 16)
        self.is_shown_by_first_word = format == "penstock" or (format, durability) == (
            "beats", "always",
        )  # fmt: skip
        self.path = path_for(folder / "left", format)
        with penstock.Queue(path_for(folder / "open", format), **self.options) as queue:
            queue.put_many(FIRST)
            copy_as_killed(folder / "open", folder / "before")
            queue.put_many(LIST)
            copy_as_killed(folder / "open", folder / "after")
        words = CONTROL.unpack(self._control("after").read_bytes())
        self.announced = {
            "reserved_end": words["tail"], "reserved_number": words["next_number"]
        }  # fmt: skip
        self.file = max(self._files("after"), key=lambda file: len(self._written(file)))
        self.places = self._written(self.file)

    def _files(self, name: str) -> list[Path]:
        root = self.folder / name
        found = [file.relative_to(root) for file in root.rglob("*") if file.is_file()]
        outside = {"control", "table", "journal", "index"}
        return [file for file in found if file.name not in outside and "extras" not in file.parts]

    def _control(self, name: str) -> Path:
        return next((self.folder / name).rglob("control"))

    def _read(self, name: str, file: Path) -> bytes:
        path = self.folder / name / file
        return path.read_bytes() if path.exists() else b""

    def _written(self, file: Path) -> range:
        """The bytes of `file` that the list was put to: behind all that was there before."""
        old, new = self._read("before", file), self._read("after", file)
        begin, end = len(old.rstrip(b"\0")), len(new.rstrip(b"\0"))
        return range(begin, max(begin, end))

    def left_after(self, count: int, *, is_shown: bool = True) -> Path:
        """The queue as it is left when `count` bytes of the list were written. Where the first size
        word is what shows it, that one is stored last."""
        shutil.rmtree(self.folder / "left", ignore_errors=True)
        copy_as_killed(self.folder / "before", self.folder / "left")
        old, new = self._read("before", self.file), self._read("after", self.file)
        begin, end = self.places.start, self.places.start + count
        part = new[begin:end]
        if self.is_shown_by_first_word and (count < len(self.places) or not is_shown):
            part = bytes(4) + part[4:]
        (self.folder / "left" / self.file).write_bytes(old[:begin].ljust(begin) + part + old[end:])
        with self._control("left").open("r+b") as stream:
            for name, value in self.announced.items():
                stream.seek(CONTROL.offset_of(name))
                stream.write(CONTROL.pack_field(name, value))
        return self.path

    def found(self) -> list[bytes]:
        """Every message; nothing is told of as damaged or dropped."""
        with penstock.Queue(self.path, create=False, **self.options) as queue:
            assert queue.stats()["dropped"] == []
            assert queue.verify().is_ok
            return bodies(queue)


@pytest.mark.parametrize("durability", ["process", "always"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_list_whose_put_was_killed_is_there_whole_or_not_at_all(
    tmp_path: Path, kind: str, durability: str
) -> None:
    killed = Killed(tmp_path, kind, durability)
    most = len(killed.places)
    assert most > sum(map(len, LIST)) / 2
    for count in (*range(1, most, STEP), most):
        killed.left_after(count)
        found = killed.found()
        assert found in (FIRST, FIRST + LIST), f"{count} of {most} bytes"
        assert found == FIRST or count > most - 8, f"{count} of {most} bytes"
    if killed.is_shown_by_first_word:
        killed.left_after(most, is_shown=False)
        assert killed.found() == FIRST


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_put_left_is_not_found_after_the_next_kill(tmp_path: Path, kind: str) -> None:
    killed = Killed(tmp_path, kind, "process")
    path = killed.left_after(len(killed.places) * 3 // 4)
    with penstock.Queue(path, create=False, **killed.options) as queue:
        queue.put(b"new")
        copy_as_killed(tmp_path / "left", tmp_path / "again")
    shutil.rmtree(tmp_path / "left")
    (tmp_path / "again").rename(tmp_path / "left")
    assert killed.found() == [*FIRST, b"new"]
