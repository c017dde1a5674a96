"""Drawing: JSON Lines for programs, tables for people, progress and complaints on stderr.

Bytes of messages come from strangers: on a terminal every control character is shown, not sent.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock import _core
from penstock.errors import PenstockError
from penstock.errors import plural as plural
from penstock.formats.values import Damage

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PREVIEW_CHARS = 120
PATIENCE_S = 1.0
FILE_WIDTH = 160
NARROW = 80
"""Terminals of fewer columns show lists in place of tables that they have no room for."""


PHRASES: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"open the queue with key=": "name its key with --key-file or --key-env",
    r"create one with Queue\(path\) or": "`penstock put` creates one, or",
    r"with read_only=True you need no right to write": "commands that only look need less",
    r"open the queue with read_only=True": "only commands that change nothing work there",
    r"[Rr]ead it here with read_only=True": "Commands that only look read it",
    r"open it with read_only=True, or": "only look at it, or",
    r"trust_others=True \(`--trust-others`\)": "--trust-others",
    r"say which it is with format= and layout=": "say which it is with --format and --layout",
    r"drop=(\w+(?:,\w+)*)": lambda found: " ".join(f"--drop {one}" for one in found[1].split(",")),
}
"""What errors advise a program, and what a command line has for it."""


def said(error: Exception) -> str:
    """An error in the words of the command line."""
    text = str(error)
    if isinstance(error, PenstockError):
        for phrase, ours in PHRASES.items():
            text = re.sub(phrase, ours, text)
    if isinstance(error, OSError) and not isinstance(error, PenstockError) and error.filename:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return text


def wants_json(flag: bool | None) -> bool:
    """As asked for; else when the output is not a terminal."""
    return flag if flag is not None else not sys.stdout.isatty()


# JSON allows these in a text as they are, but many programs take some of them for the end of a
# line, terminals obey some, and what a file name has instead of UTF-8 can't be written at all.
_OBEYED = (*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
ESCAPED = {code: f"\\u{code:04x}" for code in (*_OBEYED, *range(0xD800, 0xE000))}


def emit(value: Mapping[str, Any]) -> None:
    """One object on one line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    sys.stdout.write(text.translate(ESCAPED) + "\n")


def line(text: str = "") -> None:
    """One line for people."""
    sys.stdout.write(safe(text) + "\n")


def note(text: str) -> None:
    """A remark that is no output."""
    print(safe(text), file=sys.stderr)


def error(text: str) -> None:
    """What went wrong, in one sentence."""
    print(f"penstock: {safe(text)}", file=sys.stderr)


def damage(found: Iterable[Damage], word: str = "damaged") -> int:
    """Lists damage on stderr with file and byte; how much there was."""
    listed = list(found)
    for one in listed:
        where = f"{one.path}:{one.at}"
        note(f"{word}: {where}: found {one.found}, expected {one.expected} ({one.length} bytes)")
    return len(listed)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Prints a table for people."""
    out = console()
    out.print(drawn(out, columns, rows, title))


def drawn(
    out: Console, columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = ""
) -> RenderableType:
    """A table; a column named `>x` is aligned to the right and never folded.

    On a narrow terminal that it does not fit, each row is a list of names and values.
    """
    from rich import box
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    head = Text(safe(title)) if title else None
    found = Table(title=head, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        justify: Literal["left", "right"] = "right" if right else "left"
        name = column.removeprefix(">")
        found.add_column(name, justify=justify, overflow="fold", no_wrap=right)
    texts = [["-" if cell is None else safe(str(cell)) for cell in row] for row in rows]
    for row in texts:
        found.add_row(*map(Text, row))
    wide = Measurement.get(out, out.options.update_width(FILE_WIDTH), found).maximum
    if out.width >= min(wide, NARROW):
        return found
    names = [column.removeprefix(">") for column in columns]
    width = max(map(len, names), default=0)
    blocks = [
        "\n".join(f"{name:<{width}}  {cell}" for name, cell in zip(names, row, strict=True) if cell)
        for row in texts
    ]
    return Text("\n\n".join([safe(title)] * bool(title) + blocks) + "\n")


def console() -> Console:
    """For drawing on stdout; a file is as wide as it needs to be."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else FILE_WIDTH)


def facts(pairs: Mapping[str, object]) -> None:
    """Names and values, one pair per line."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        line(f"{name:<{width}}  {value}")


def safe(text: str) -> str:
    """Text of ours with names in it that others chose: lines and tabs stay, nothing else does that
    a terminal would obey."""
    return text if text.isprintable() else "".join(map(_safe, text))


def _safe(char: str) -> str:
    return char if char in "\n\t" else printable(char)


def printable(text: str) -> str:
    """Without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def preview(body: bytes, limit: int = PREVIEW_CHARS) -> str:
    """The beginning of a body: as text where it is text, else in hex."""
    try:
        text = printable(body[: limit * 4].decode("utf-8"))
    except UnicodeDecodeError:
        text = body[: limit // 3].hex(" ")
        return f"{text} …" if len(body) > limit // 3 else text
    return f"{text[:limit]} …" if len(text) > limit else text


class _Times:
    """How this command shows times; every command that shows some sets it anew."""

    in_utc = False


def use_utc(value: bool) -> bool:
    """Shows times in UTC if `--utc` was given."""
    _Times.in_utc = value
    return value


def moment(ns: int | None, unit: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """A time with its zone: the local one, or UTC where `--utc` was given.

    `--from` and `--until` take it back as it stands here.
    """
    if ns is None:
        return "-"
    try:
        found = datetime.fromtimestamp(ns // 10**6 / 1000, UTC)
        if not _Times.in_utc:
            found = found.astimezone()
        return found.isoformat(" ", unit).replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"


def size(count: float) -> str:
    """A number of bytes as people read it: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def place(path: str | Path) -> str:
    """A path as people like it: from here on, where it is below here."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def message_line(message: _core.Message) -> str:
    """One message for people."""
    tag = printable(message.tag or "-")
    time_shown = moment(message.timestamp_ns)
    return f"{message.offset:>12}  {time_shown}  {tag:<16}  {preview(message.body)}"


class Advance(Protocol):
    """Tells how far something is."""

    def __call__(self, done: int, total: int, text: str = "") -> None:
        """`done` of `total`; a total of 0 is unknown."""


@contextmanager
def progress(label: str) -> Iterator[Advance]:
    """A progress bar on stderr, after a second, and only if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total, text="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
    task, begun, is_shown = bar.add_task(label, text=""), time.monotonic(), False

    def advance(done: int, total: int, text: str = "") -> None:
        nonlocal is_shown
        if not is_shown and time.monotonic() - begun > PATIENCE_S:
            bar.start()
            is_shown = True
        bar.update(task, completed=done, total=total or None, text=text)

    try:
        yield advance
    finally:
        if is_shown:
            bar.stop()
