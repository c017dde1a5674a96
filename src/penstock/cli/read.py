"""`cat`, `peek`, `tail`: looking at messages. None is taken."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer

from penstock import _core
from penstock.cli import complete, opening, show
from penstock.cli.opening import Json, OldCount, QueueAt, Tags, Utc, command
from penstock.cli.take import print_message
from penstock.engine import overview, positions
from penstock.engine.queue import Queue
from penstock.engine.table import Scan, remaining
from penstock.engine.verifying import around
from penstock.errors import OptionError
from penstock.options import GroupOptions, check_count

POLL_S = (0.005, 0.1)

Filter = Callable[[Iterable[_core.Message]], Iterator[_core.Message]]

From = Annotated[
    str,
    typer.Option("--from", "--since", metavar="WHERE", help=f"Begin here: {opening.Where}."),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        "--until",
        metavar="WHERE",
        help="Stop before this place; `now` is the end of the queue.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="WHERE", help="Stop before this place; `now` is the end of the queue."
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=0, help="Print at most this many messages.")
]
MaybeGroup = Annotated[
    str | None,
    opening.option(
        "--group",
        "-g",
        variable="PENSTOCK_GROUP",
        complete=complete.groups,
        help="Only messages that this group has not acked yet.",
    ),
]
Grep = Annotated[
    str,
    typer.Option(
        "--grep", metavar="REGEX", help="Only messages whose body matches this regular expression."
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands that read without taking."""
    command(
        app,
        "cat",
        "penstock cat orders --json | jq -r '.body | @base64d'",
        "penstock cat orders --since 3d --until now --tags 'eu.#'",
        "penstock cat orders --grep '\"user\": 17,'",
        "penstock cat orders --from number:1000 --limit 10",
        "penstock cat /var/lib/filebeat/diskqueue --key-file key.hex",
    )(cat)
    command(app, "peek", "penstock peek orders", "penstock peek orders --group billing --limit 5")(
        peek
    )
    command(
        app,
        "tail",
        "penstock tail orders",
        "penstock tail orders -n 100 --json",
        "penstock tail orders --follow --tags 'eu.*'",
        "penstock tail orders --group audit",
    )(tail)


def cat(
    at: QueueAt,
    start: From = "earliest",
    end: To = None,
    group: MaybeGroup = None,
    tags: Tags = "",
    grep: Grep = "",
    limit: Limit = None,
    payload: Annotated[
        bool,
        typer.Option(
            "--payload", help="Also print the bytes inside the frame, as they are on disk."
        ),
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print only the bodies, each followed by a newline.")
    ] = False,
    utc: Utc = False,
    json: Json = None,
) -> int:
    """Print messages without taking them; changes nothing.

    Every whole message is printed, even after damage. Damage is described on stderr, and the exit
    code is then 1. With --json each message is an object on a line of its own: offset, number,
    timestamp_ns, id, tag, headers and body (in base64); text if the body is UTF-8; key and due_ns
    if the message has them.
    """
    wanted = matching(grep)
    with at.reading() as queue:
        reader = _Reader(queue, start, end, group, tags)
        for count, message in enumerate(wanted(reader), 1):
            if limit is not None and count > limit:
                break
            print_message(message, json=json, raw=raw, payload=payload)
            if count == limit:
                break
        sys.stdout.flush()
        return 1 if reader.report() else 0


def matching(pattern: str) -> Filter:
    """A filter on bodies; an empty pattern lets every message through."""
    if not pattern:
        return iter
    try:
        found = re.compile(pattern.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise OptionError("--grep", pattern, f"a regular expression: {error}") from error
    return lambda messages: (one for one in messages if found.search(one.body))


class _Reader:
    """A tolerant scan of a range, or of what a group has still to do."""

    def __init__(
        self, queue: Queue, start: str, end: str | None, group: str | None, tags: str
    ) -> None:
        self.queue, self.group = queue, group
        store, dialect = queue.store, GroupOptions().dialect
        if group is not None:
            options = overview.options_of(queue.store, group)
            tags, dialect = tags or options.tags, options.dialect
            self.at = overview.progress(queue.store, group)
        if group is not None and start == "earliest":
            first = max(self.at.cursor, store.end().head)
        else:
            first = positions.resolve(store, start, name="start")
        last = store.end().tail
        if end is not None and end != "now":
            last = positions.resolve(store, str(end), name="end")
        self.tags, self.dialect = tags, dialect
        self.scan = Scan(store, first, last, tags=tags, dialect=dialect, tolerant=True)

    def __iter__(self) -> Iterator[_core.Message]:
        for message in self.scan:
            offset = message.offset or 0
            if self.group is None or offset >= self.at.next or offset in self.at.outstanding:
                yield message

    def report(self) -> int:
        """Lists damage; how much there was."""
        seen = {(damage.path, damage.at) for damage in self.scan.damage}
        verdict = around(self.queue.store)
        lost = [damage for damage in verdict.corrupt if (damage.path, damage.at) not in seen]
        return show.damage([*self.scan.damage, *lost]) + show.damage(verdict.torn, "torn")


def peek(
    at: QueueAt,
    group: MaybeGroup = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Print at most this many messages.")
    ] = 1,
    count: OldCount = None,
    tags: Tags = "",
    grep: Grep = "",
    utc: Utc = False,
    json: Json = None,
) -> int:
    """Print the next messages of a group, or the oldest, without taking them; changes nothing."""
    return cat(at, group=group, tags=tags, grep=grep, limit=count or limit, json=json)


def tail(
    at: QueueAt,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Print this many of the last messages.")
    ] = 10,
    count: OldCount = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new messages as they come.")
    ] = False,
    group: MaybeGroup = None,
    tags: Tags = "",
    grep: Grep = "",
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="With --follow: stop when no message came for this many seconds."),
    ] = None,
    utc: Utc = False,
    json: Json = None,
) -> int:
    """Print the last messages, and with --follow new ones as they come; changes nothing.

    With --group only messages that the group has not acked yet. `penstock get` takes messages.
    """
    wanted, last = matching(grep), check_count(limit if count is None else count)
    with at.reading() as queue:
        # Nothing says how far back the last messages that pass a filter are.
        is_filtered = bool(tags or grep) or group is not None
        start = "earliest" if is_filtered else _back(queue, last)
        reader = _Reader(queue, start, None, group, tags)
        for message in deque(wanted(reader), maxlen=last):
            print_message(message, json=json)
        sys.stdout.flush()
        found = reader.report()
        if follow:
            _follow(queue, reader, wanted, timeout, json)
    return 1 if found else 0


def _back(queue: Queue, count: int) -> str:
    """Where the last `count` messages begin, or earlier."""
    end = queue.offsets()
    if not queue.store.capabilities.numbers or end.next_number <= count:
        return "earliest"
    return f"number:{end.next_number - count}"


def _follow(
    queue: Queue, reader: _Reader, wanted: Filter, timeout: float | None, json: bool | None
) -> None:
    """A reader does not write, so no writer wakes it: it looks again, ever more slowly."""
    at, nap, idle = reader.scan.end, POLL_S[0], 0.0
    while timeout is None or idle < timeout:
        end = queue.offsets().tail
        if end == at:
            time.sleep(nap)
            idle, nap = idle + nap, min(nap * 2, POLL_S[1])
            continue
        fresh = remaining(queue.store, at, end, tags=reader.tags, dialect=reader.dialect)
        for message in wanted(fresh):
            print_message(message, json=json)
        sys.stdout.flush()
        at, nap, idle = end, POLL_S[0], 0.0
