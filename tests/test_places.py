"""Our `Path` answers as `pathlib` does, and loads it only when its text is not enough."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.places import Path

NAMES = ["a", "b.c", "..", ".", "", ".x", "y.", ".z.", "d.e.f", "~", " ", "é"]
TEXTS = st.tuples(st.sampled_from(["", "/", "//", "///"]), st.lists(st.sampled_from(NAMES))).map(
    lambda found: found[0] + "/".join(found[1])
)

ASKED: dict[str, Callable[[Any], object]] = {
    "text": str,
    "repr": repr,
    "bytes": bytes,
    "fspath": os.fspath,
    "hash": hash,
    "name": lambda path: path.name,
    "stem": lambda path: path.stem,
    "suffix": lambda path: path.suffix,
    "parent": lambda path: path.parent,
    "parents": lambda path: list(path.parents),
    "parts": lambda path: path.parts,
    "absolute": lambda path: path.absolute(),
    "is absolute": lambda path: path.is_absolute(),
    "joined": lambda path: path.joinpath("g", "h"),
    "pickled": lambda path: pickle.loads(pickle.dumps(path)),
    "class": lambda path: path.__class__,
}


@pytest.mark.parametrize("asked", ASKED)
@given(text=TEXTS)
def test_a_path_answers_as_pathlib_does(asked: str, text: str) -> None:
    assert ASKED[asked](Path(text)) == ASKED[asked](pathlib.Path(text))


@given(one=TEXTS, other=TEXTS)
def test_paths_are_joined_and_compared_as_pathlib_does(one: str, other: str) -> None:
    ours, theirs = Path(one), pathlib.Path(one)
    for joined in (ours / other, ours / Path(other), ours / pathlib.Path(other), one / Path(other)):
        assert str(joined) == str(theirs / other)
    assert theirs / Path(other) == theirs / other
    for second in (Path(other), pathlib.Path(other)):
        assert (ours == second) == (theirs == pathlib.Path(other)) == (second == ours)
        assert (ours < second) == (theirs < pathlib.Path(other)) == (second > ours)
        assert (ours <= second) == (theirs <= pathlib.Path(other)) == (second >= ours)


def test_a_path_is_one_of_pathlib_to_whoever_looks(tmp_path: pathlib.Path) -> None:
    assert isinstance(Path(tmp_path), pathlib.Path)
    assert {Path(tmp_path): 1}[tmp_path] == 1
    assert Path(tmp_path) != str(tmp_path)  # type: ignore[comparison-overlap]
    with pytest.raises(TypeError):
        Path(tmp_path) / 3  # type: ignore[operator]
    with pytest.raises(AttributeError, match="no_such_thing"):
        Path(tmp_path).no_such_thing  # type: ignore[attr-defined]  # noqa: B018
    (tmp_path / "a.txt").write_text("here")
    assert Path(tmp_path, "a.txt").read_text() == "here"
    assert list(Path(tmp_path).glob("*.txt")) == [tmp_path / "a.txt"]


def test_a_path_sees_the_files_that_pathlib_sees(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    names = ["file", "folder", "link", "nowhere", "loop", "pipe", "missing", "file/below", "\0"]
    for name in names:
        ours, theirs = Path(tmp_path) / name, tmp_path / name
        for asked in ("exists", "is_dir", "is_file", "is_symlink"):
            assert getattr(ours, asked)() == getattr(theirs, asked)(), (name, asked)
    assert sorted(Path(tmp_path).iterdir()) == sorted(tmp_path.iterdir())
    link = Path(tmp_path, "link")
    assert link.stat(follow_symlinks=False).st_ino == (tmp_path / "link").lstat().st_ino
    assert link.stat() == (tmp_path / "folder").stat()


def test_the_home_of_a_user_is_found_as_pathlib_does() -> None:
    for text in ("~", "~/a", "a/~", "~root/b", "/~"):
        assert Path(text).expanduser() == pathlib.Path(text).expanduser()


@pytest.mark.usefixtures("_unmeasured")
def test_text_and_files_are_asked_without_pathlib(tmp_path: pathlib.Path) -> None:
    code = (
        "import sys; from penstock.places import Path; "
        f"path = Path({str(tmp_path)!r}) / 'a.seg'; path.name, path.stem, path.parent, str(path); "
        "path.parent.is_dir(), path.exists(), list(path.parent.iterdir()), path.absolute(); "
        "path.expanduser(), path == path.parent / 'a.seg'; "
        "assert 'pathlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
