"""A look at the shared words of a queue that others open, use and close just then."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Queue
from penstock.disk import files
from penstock.sidecar import control
from penstock.sidecar.control import CONTROL


@pytest.fixture
def sidecar(tmp_path: Path) -> Path:
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put(b"one")
    return queue.store.sidecar


def test_words_of_which_some_are_from_before_an_opening_are_read_again(
    sidecar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, usual = control.peek(sidecar), files.read_start
    looks: list[bytes] = []

    def read_torn(path: str, count: int) -> bytes:
        raw = usual(path, count)
        if not looks:  # The first words of before, the others of now.
            at = CONTROL.offset_of("durable")
            raw = raw[:at] + bytes(8) + raw[at + 8 :]
        looks.append(raw)
        return raw

    monkeypatch.setattr(files, "read_start", read_torn)
    assert control.peek(sidecar) == closed
    assert len(looks) == 2


def test_words_that_stay_wrong_do_not_count(sidecar: Path) -> None:
    with (sidecar / "control").open("r+b") as block:
        block.seek(CONTROL.offset_of("tail"))
        block.write(b"\x07")
    assert control.peek(sidecar) is None
