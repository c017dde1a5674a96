"""Files that are prepared where the disk has little left, or has lost what they were to replace."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from penstock import StorageError, _core
from penstock.sidecar import prepared

PAGE = 4096


def give_at_most(monkeypatch: pytest.MonkeyPatch, quota: int, error: int) -> None:
    """A quota of which the file system says nothing."""
    create = _core.create_file

    def within(path: Path, size: int, **more: Any) -> None:
        if size > quota:  # The native call leaves no file that it could not fill.
            raise StorageError(path, "no room", error)
        create(path, size, **more)

    monkeypatch.setattr(_core, "create_file", within)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_is_halved_until_the_quota_lets_it_be(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_at_most(monkeypatch, 5 * PAGE, error)
    path = tmp_path / "new"
    assert prepared.make_fitting(path, 16 * PAGE, PAGE, PAGE) == 4 * PAGE
    assert path.stat().st_size == 4 * PAGE


def test_a_quota_below_what_is_needed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_at_most(monkeypatch, PAGE, errno.EDQUOT)
    with pytest.raises(StorageError, match="no room"):
        prepared.make_fitting(tmp_path / "new", 16 * PAGE, 2 * PAGE, PAGE)


def test_a_disk_that_fails_is_not_asked_for_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_at_most(monkeypatch, PAGE, errno.EIO)
    with pytest.raises(StorageError):
        prepared.make_fitting(tmp_path / "new", 16 * PAGE, PAGE, PAGE)


def test_a_file_that_is_gone_is_not_written_anew(tmp_path: Path) -> None:
    prepared.copy_anew(tmp_path, tmp_path / "gone.seg")
    assert list(tmp_path.iterdir()) == []
