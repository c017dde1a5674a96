"""`get`: messages out of a queue, as a member of a group."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from penstock import _core
from penstock.cli import show
from penstock.cli.opening import GroupName, Json, OldCount, QueueAt, Tags, Utc, command
from penstock.engine.exchange import as_object
from penstock.errors import Empty


def register(app: typer.Typer) -> None:
    """Adds `penstock get`."""
    command(
        app,
        "get",
        "penstock get orders",
        "penstock get orders --group billing --limit 10 --timeout 5 --json",
        "penstock get orders --no-ack",
        "penstock get orders --all --raw > bodies.txt",
        "penstock get orders --group audit --follow",
    )(get)


def get(
    at: QueueAt,
    group: GroupName = "default",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Take at most this many messages.")
    ] = 1,
    count: OldCount = None,
    all: Annotated[bool, typer.Option("--all", help="Take everything that is there.")] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Take everything that is there, then wait for more."),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(help="Wait this many seconds for the first message; with --follow, for each."),
    ] = None,
    ack: Annotated[
        bool, typer.Option(help="Ack the messages once they are printed; --no-ack gives them back.")
    ] = True,
    tags: Tags = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="Print only the bodies, each followed by a newline.")
    ] = False,
    utc: Utc = False,
    json: Json = None,
) -> None:
    """Take messages for a group, print them, and then ack them.

    Exit code 3 means that no message came in time.
    """
    most = count or limit
    with at.writing() as queue:
        options: dict[str, Any] = {"tags": tags} if tags else {}
        members, held, got = queue.group(group, **options), [], 0
        patience = timeout
        if timeout is None and not follow:
            patience = queue.meta.get("wait_seconds", 0)  # As the queue says (vqs).
        all = all or follow
        while all or got < most:
            wanted = 100 if all else min(100, most - got)
            found = members.get_many(wanted, patience if follow or got == 0 else 0)
            if not found:
                break
            for message in found:
                print_message(message, json=json, raw=raw)
                got += 1
                if not ack:
                    held.append(message)
            sys.stdout.flush()  # Printed first, acked afterwards: a crash in between repeats it.
            for message in found if ack else []:
                message.settle(True)
        for message in held:
            message.settle(False)
        if got == 0:
            raise Empty("no message came in time")


def print_message(
    message: _core.Message, *, json: bool | None, raw: bool = False, payload: bool = False
) -> None:
    """As bytes, as an object, or for people."""
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(message.body + b"\n")
        sys.stdout.buffer.flush()
    elif show.wants_json(json):
        show.emit(object_of(message, payload=payload))
    else:
        show.line(show.message_line(message))


def object_of(message: _core.Message, *, payload: bool = False) -> dict[str, Any]:
    """The message as `cat --json` prints it: with its text too, where the body is UTF-8."""
    item = as_object(message)
    with suppress(UnicodeDecodeError):
        item["text"] = message.body.decode()
    if message.receives:
        item["receives"] = message.receives
    if payload:
        import base64

        item["payload"] = base64.b64encode(message.payload).decode("ascii")
    return item
