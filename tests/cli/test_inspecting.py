"""`penstock inspect` names the struct at every byte of every file that a queue is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from tests.cli.conftest import Run

FORMATS: dict[str, dict[str, Any]] = {
    "penstock": {}, "zbus-doc000": {"segment_bytes": 16384}, "zbus-flag": {}, "zbus-crc": {},
    "beats-0": {}, "beats-1": {}, "beats-2-released-lz4": {}, "mfq": {},
    "vqs-doc": {"max_bytes": 16384}, "vqs-stage4": {"max_bytes": 16384},
}  # fmt: skip


def made(path: Path, kind: str) -> list[Path]:
    """The files of a queue that was used."""
    format, _, layout = kind.partition("-")
    options = {"durability": "process", **FORMATS[kind], "layout": layout or None}
    with Queue(path, format=format, **options) as queue:
        group = queue.group()
        for number in range(3):
            queue.put(b'{"n": %d, "text": "%s"}' % (number, b"x" * 3000))
        group.get().ack()
        group.get()
        queue.sync()
    folder = path if path.is_dir() else path.parent
    return [
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(".penstock" in part for part in file.parts)
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_file_of_a_queue_begins_with_a_struct_that_is_named(
    kind: str, run: Run, tmp_path: Path
) -> None:
    name = "q.bin" if kind == "vqs-doc" else "q"
    files = made(tmp_path / name, kind)
    assert files
    named = {file.suffix: run("inspect", file).lines[0]["layout"] for file in files}
    assert all(named.values())


@pytest.mark.parametrize("kind", ["beats-1", "penstock"])
def test_a_file_that_is_cut_anywhere_is_shown_as_far_as_it_goes(
    kind: str, run: Run, tmp_path: Path
) -> None:
    for file in made(tmp_path / "q", kind):
        whole = file.read_bytes()
        for size in (100, 1000, 5000):
            file.write_bytes(whole[:size])
            assert run("inspect", file).lines[0]["at"] == 0
