"""Where a queue is: what a user wrote as its path, made absolute once, when the queue is opened.

A path that stayed relative would name another folder after `os.chdir`: groups and segments would
be made there while the messages are here.
"""

from __future__ import annotations

import os

from penstock.errors import OptionError, UnsupportedError
from penstock.places import Path

SCHEME = r"(?s)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/{1,3}(?P<rest>.*)\Z"


def absolute(path: str | os.PathLike[str]) -> Path:
    """The folder or file that `path` names now; an error for what names none.

    `~` is the user's home, as in a shell. Links are not followed: the queue keeps its name.
    """
    text = os.fspath(path)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if not text:
        raise OptionError("path", text, "the path of a folder, or of a .bin file for format vqs")
    if text == ":memory:":
        advice = "a folder: a queue is files. One in memory alone is Queue('/dev/shm/NAME')"
        raise OptionError("path", text, advice)
    _refuse_url(text)
    if "\0" in text or not _has_bytes(text):
        raise OptionError("path", text, "a name that a file can have: no NUL, no lone surrogate")
    try:
        # `./~x` is a file called `~x`, as in a shell; a `Path` no longer has the dot.
        found = Path(text).expanduser() if text.startswith("~") else Path(text)
        return found.absolute()
    except RuntimeError as error:
        raise OptionError("path", text, f"a home folder that is known ({error})") from error
    except FileNotFoundError as error:
        expected = "an absolute path, because this program's current folder was deleted"
        raise OptionError("path", text, expected) from error


def _has_bytes(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _refuse_url(text: str) -> None:
    if ":/" not in text:
        return
    import re

    found = re.match(SCHEME, text)
    if found is None:
        return
    if found["scheme"].lower() == "file":
        raise OptionError("path", text, f"a path, not a URL: '/{found['rest'].lstrip('/')}'")
    raise OptionError(
        "path", text,
        "a path on a local disk, not a URL: a queue needs locks and memory mapping. Use a local "
        "folder; `penstock ship` copies its segments elsewhere",
    )  # fmt: skip


def as_text(path: Path) -> str:
    """The path as text that a message can hold: a `file://` URL if the path is not UTF-8."""
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        from urllib.parse import quote

        return "file://" + quote(os.fsencode(path))
    return text


def from_text(text: str) -> Path:
    """The path that `as_text` made a text of."""
    if not text.startswith("file://"):
        return Path(text)
    from urllib.parse import unquote_to_bytes

    return Path(os.fsdecode(unquote_to_bytes(text.removeprefix("file://"))))


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths name one queue, through links too; both may be missing."""
    try:
        return one.samefile(other)
    except OSError:
        return one.resolve() == other.resolve()


def refuse_same(source: Path, target: Path, verb: str) -> None:
    """An error when a queue would be read and written at a time: it would never end, or double."""
    if is_same(source, target):
        raise UnsupportedError(f"{source}: can't {verb} a queue to itself; name another target")
