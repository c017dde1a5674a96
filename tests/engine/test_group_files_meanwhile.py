"""Looking at the files of a group while the process that uses it changes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.disk import files
from penstock.sidecar import groups
from tests.opening import open_queue


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A group that has read two of three messages, its table gone with the machine."""
    with open_queue(tmp_path / "q") as queue:
        queue.put_many([b"one", b"two", b"three"])
        queue.group("g").get_many(2)
        folder = queue.store.sidecar / "groups" / "g"
    (folder / "table").unlink()
    return folder


def change_before_the_first_look(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], *, is_open: bool
) -> None:
    """Another process is at it just before a file is opened, or once it is open."""
    reading, seen = files.reading, list[Path]()

    def read(path: Path) -> Any:
        is_first = not seen
        seen.append(path)
        if is_first and not is_open:
            change(path)
        stream = reading(path)
        if is_first and is_open:
            change(path)
        return stream

    monkeypatch.setattr(files, "reading", read)


def next_one(journal: Path) -> Path:
    return journal.with_name(f"journal-{groups.number_of(journal) + 1:06d}")


def test_a_journal_that_gets_another_name_before_it_is_opened_is_looked_for_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (journal,) = folder.glob("journal-*")

    def follow(path: Path) -> None:
        next_one(path).touch()
        path.unlink()

    change_before_the_first_look(monkeypatch, follow, is_open=False)
    assert groups.peek(folder, 0) is not None
    assert not journal.exists()


def test_a_journal_that_is_replaced_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(path: Path) -> None:
        shutil.copy2(path, copy := path.with_name("copy"))
        copy.replace(path)

    change_before_the_first_look(monkeypatch, replace, is_open=True)
    found = groups.peek(folder, 0)
    assert found is not None
    assert len(found.outstanding) == 2
