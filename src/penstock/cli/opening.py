"""What the commands share: their common options, and how they open queues.

Keys come from a file (`--key-file`, also `/dev/fd/N`) or a variable (`--key-env`), never from the
command line itself, where every user of the machine could read them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

from penstock.cli import complete, show
from penstock.engine.queue import Queue
from penstock.errors import OptionError, PenstockError
from penstock.options import key_from

EXIT_CODES = (
    "Exit codes: 0 done; 1 damage was found; 2 it can't be done (the reason is on stderr); "
    "3 nothing came in time; 4 the queue is full; 130 interrupted."
)

Work = Callable[..., int | None]

VARIABLES = {
    "PENSTOCK_FORMAT": "`--format` of every command",
    "PENSTOCK_LAYOUT": "`--layout` of every command",
    "PENSTOCK_KEY_FILE": "`--key-file` of every command",
    "PENSTOCK_KEY_ENV": "`--key-env` of every command",
    "PENSTOCK_JSON": "`--json` (1) or `--no-json` (0) of every command",
    "PENSTOCK_GROUP": "`--group` of `get`, `cat`, `peek`, `tail`, `seek` and `work`",
    "PENSTOCK_DURABILITY": "`--durability` of `put`",
    "PENSTOCK_DEBUG": "1: an error that penstock did not expect is printed with its traceback",
    "PENSTOCK_ALLOW_NETWORK": "1: queues may be on network file systems, at your risk",
}
"""Every variable that is read; no other one changes what a command does."""


OPENING = "How to open the queue"
"""The panel of `--help` for what most commands ask and few people need."""


def option(
    *names: str,
    variable: str | None = None,
    complete: Callable[..., Any] | None = None,
    panel: str | None = None,
    help: str,
) -> Any:
    """An option of several commands. Its variable is in the table of the docs, not in `--help`."""
    assert variable is None or variable in VARIABLES
    return typer.Option(
        *names,
        envvar=variable,
        show_envvar=False,
        autocompletion=complete,
        rich_help_panel=panel,
        help=help,
    )


def named_path(text: str) -> Path:
    """The path of a queue. An empty word, such as an unset variable, is not this folder."""
    if not text:
        raise typer.BadParameter("it is empty, and so names no queue")
    return Path(text)


Format = Annotated[
    str | None,
    option(
        "--format",
        variable="PENSTOCK_FORMAT",
        complete=complete.formats,
        panel=OPENING,
        help="The format of the queue, if its files do not show it.",
    ),
]
Json = Annotated[
    bool | None,
    option(
        "--json/--no-json",
        variable="PENSTOCK_JSON",
        help="Print JSON Lines; the default when the output is not a terminal.",
    ),
]
GroupName = Annotated[
    str,
    option(
        "--group",
        "-g",
        variable="PENSTOCK_GROUP",
        complete=complete.groups,
        help="The name of the group.",
    ),
]
OldCount = Annotated[
    int | None, typer.Option("--count", hidden=True, help="The old name of --limit.")
]
Utc = Annotated[
    bool,
    typer.Option("--utc", callback=show.use_utc, help="Show times in UTC instead of local time."),
]
Tags = Annotated[
    str, typer.Option("--tags", help="Only messages with these tags, such as 'eu.*;us.#'.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
]
Where = (
    "earliest, latest, an offset, offset:N:ID, number:N, a time like 2026-11-01T12:00, "
    "or an age like 3d"
)


@dataclasses.dataclass(frozen=True, slots=True)
class QueueAt:
    """A queue as the command line names it. A command that has one takes all of these options."""

    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            autocompletion=complete.queues,
            parser=named_path,
            help="The queue: a folder, or a .bin file (vqs).",
        ),
    ]
    format: Format = None
    layout: Annotated[
        str | None,
        option(
            "--layout",
            variable="PENSTOCK_LAYOUT",
            panel=OPENING,
            help="The layout of the queue, if its files do not show it.",
        ),
    ] = None
    key_file: Annotated[
        str | None,
        option(
            "--key-file",
            variable="PENSTOCK_KEY_FILE",
            panel=OPENING,
            help="A file with the queue's key, as raw bytes or hex digits; /dev/fd/N works too.",
        ),
    ] = None
    key_env: Annotated[
        str | None,
        option(
            "--key-env",
            variable="PENSTOCK_KEY_ENV",
            panel=OPENING,
            help="The name of an environment variable that holds the queue's key.",
        ),
    ] = None
    trust_others: Annotated[
        bool,
        option(
            "--trust-others",
            panel=OPENING,
            help="Also write to a queue that another user owns or that every user may write to.",
        ),
    ] = False

    @property
    def key(self) -> bytes | None:
        """The key that the queue is encrypted with."""
        return key_from(file=self.key_file, env=self.key_env)

    def reading(self, **options: Any) -> Queue:
        """Opens it without changing anything."""
        return self._open(read_only=True, **options)

    def writing(self, *, create: bool = False, **options: Any) -> Queue:
        """Opens it for use; only some commands make a new one."""
        return self._open(create=create, **options)

    @property
    def opening(self) -> dict[str, Any]:
        """What `Queue` is told besides the path."""
        return {
            "format": self.format, "layout": self.layout, "key": self.key,
            "trust_others": self.trust_others,
        }  # fmt: skip

    def _open(self, **options: Any) -> Queue:
        # Commands put and print bytes, whatever codec the queue keeps for programs.
        return Queue(self.path, **self.opening, **{"codec": "bytes"} | options)


def pairs(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Texts like `name=value`; none where the option was not given."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(option, text, "a name, = and a value, such as k=v")
        found[name] = value
    return found


def family(app: typer.Typer, name: str, about: str) -> typer.Typer:
    """Commands under a common name."""
    found = typer.Typer(help=about, no_args_is_help=True, epilog=EXIT_CODES)
    app.add_typer(found, name=name)
    return found


def command(app: typer.Typer, name: str, *examples: str) -> Callable[[Work], None]:
    """Registers a command with its examples and the exit codes under its help."""
    shown = [f"[dim]$[/dim] {escape(example)}" for example in examples]
    epilog = "\n\n".join(["Examples:", *shown, EXIT_CODES])

    def add(work: Work) -> None:
        asked = _asked(work)

        @functools.wraps(work)
        def run(**options: object) -> None:
            given = dict(options)
            try:
                code = work(**_given(work, options))
                sys.stdout.flush()
            except BrokenPipeError:
                # The reader of our output has closed it: what is still buffered is dropped.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return
            except OptionError as error:
                raise typed(error, asked, given) from error
            if code:
                raise typer.Exit(code)

        run.__signature__ = asked  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in asked.parameters.values()}
        paragraphs = inspect.getdoc(work) or ""
        text = "\n\n".join(" ".join(part.split()) for part in paragraphs.split("\n\n"))
        app.command(name, help=escape(text), epilog=epilog)(run)

    return add


def check_streams() -> None:
    """Refuses to begin where the outcome could not be told: a program may be started without some
    of the three standard streams."""
    if missing("stderr"):
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if missing("stdout"):
        raise PenstockError("standard output is closed; send it to /dev/null to see nothing of it")


def missing(stream: str) -> bool:
    """Whether the program was started without this stream."""
    return getattr(sys, stream) is None


def standard_input() -> BufferedReader:
    """What is piped or typed."""
    if missing("stdin"):
        raise PenstockError("standard input is closed, and the messages were to come from there")
    return cast("BufferedReader", sys.stdin.buffer)


BOOLEANS = ("0", "1", "false", "true", "no", "yes", "off", "on", "")


def check_variables() -> None:
    """Refuses a value that the parser would refuse in the name of a flag that nobody typed."""
    value = os.environ.get("PENSTOCK_JSON", "")
    if value.lower() not in BOOLEANS:
        found = OptionError("PENSTOCK_JSON", value, "1 or 0")
        found.args = (f"PENSTOCK_JSON={value}: expected 1 or 0",)
        raise found


typed_words: list[str] = []
"""The arguments of the command that runs, for errors that speak of them."""

FLAGS = {"key": "key_file", "retention_age_s": "age"}
"""Options whose parameter has another name, and another value."""


def typed(error: OptionError, asked: inspect.Signature, given: dict[str, Any]) -> OptionError:
    """The error with what was typed, where something was, for the option of ours."""
    name = error.name
    meant = _meant(error, given)
    if name == "option" and meant == name:
        return error  # One that does not exist: the error says so in words of its own.
    if meant in asked.parameters:
        name = _typed_name(asked.parameters[meant])
    found = OptionError(name, error.value, error.expected)
    is_typed = name.startswith("--") or name.isupper()
    # A key is not shown, but its file is. A path has lost what it was typed as: `s3://bucket`.
    value = given.get(meant) if error.value == "…" and given.get(meant) else error.value
    value = next((word for word in typed_words if word and str(Path(word)) == str(value)), value)
    shown = f"{name}{' ' if is_typed else '='}{value}" if str(value) else name
    found.args = (f"{shown}: expected {error.expected}",)
    return found


def _meant(error: OptionError, given: dict[str, Any]) -> str:
    """The parameter that an error is about: the one of its name, unless another has its value."""

    def has_value(name: str) -> bool:
        found = given.get(name)
        many = found if isinstance(found, list | tuple) else [found]
        return str(error.value) in map(str, many)

    name = FLAGS.get(error.name, error.name.removesuffix("_s"))
    if name == "key_file" and given.get("key_env") is not None:
        name = "key_env"
    others = [other for other in given if has_value(other)]
    return name if has_value(name) or len(others) != 1 else others[0]


def _typed_name(parameter: inspect.Parameter) -> str:
    """The flag that was typed, of those that a parameter has; the name of an argument."""
    marks = getattr(parameter.annotation, "__metadata__", ())
    for mark in marks:
        if isinstance(mark, typer.models.ArgumentInfo):
            return mark.metavar or parameter.name.upper()
    # Beside a type, typer has the first of an option's names where its default would be.
    names = [name for mark in marks for name in (mark.default, *(mark.param_decls or ()))]
    flags = [name for name in names if str(name).startswith("--")]
    said = {word.partition("=")[0] for word in typed_words}
    variables = [str(mark.envvar) for mark in marks if getattr(mark, "envvar", None)]
    candidates = [flag for flag in flags if flag in said]
    candidates += [name for name in variables if os.environ.get(name)]
    return next(iter([*candidates, *flags]), f"--{parameter.name.replace('_', '-')}")


def _asked(work: Work) -> inspect.Signature:
    """What the command line asks for: where the queue is in its place, the rest of it last."""
    own = inspect.signature(work, eval_str=True)
    for one in own.parameters.values():
        for mark in getattr(one.annotation, "__metadata__", ()):
            if isinstance(mark, typer.models.ArgumentInfo) and mark.metavar is None:
                mark.metavar = one.name.upper()  # As `--help` and errors write all the others.
    path, *rest = inspect.signature(QueueAt, eval_str=True).parameters.values()
    found = [path if one.annotation is QueueAt else one for one in own.parameters.values()]
    return own.replace(parameters=[*found, *rest] if path in found else found)


def _given(work: Work, options: dict[str, Any]) -> dict[str, Any]:
    """What the command line has, as the command takes it."""
    parts = [field.name for field in dataclasses.fields(QueueAt)]
    for one in inspect.signature(work, eval_str=True).parameters.values():
        if one.annotation is QueueAt:
            options[one.name] = QueueAt(**{part: options.pop(part) for part in parts})
    return options
