"""The order of the commands in `penstock --help`: in panels, with one short line each.

A command's own `--help` shows the whole text, which is its docstring.
"""

from __future__ import annotations

from typing import Any

import typer

PANELS: dict[str, dict[str, str]] = {
    "Messages": {
        "put": "Put messages from arguments, files or stdin.",
        "get": "Take messages for a group, print them and ack them.",
        "work": "Call a Python function for every message.",
        "serve": "Serve the queues in a folder over Amazon's SQS protocol.",
        "peek": "Print the next messages without taking them.",
        "tail": "Print the last messages; --follow waits for more.",
        "cat": "Print any range of messages without taking them.",
    },
    "Queues and groups": {
        "ls": "List the queues in a folder.",
        "info": "Show one queue: format, size, segments, groups.",
        "top": "Watch rates and lag of queues live.",
        "groups": "List, make, pause, resume and delete groups.",
        "seek": "Set where a group goes on reading.",
        "set": "Change the options of a queue or a group.",
        "show": "Show the options that a queue or a group keeps.",
        "labels": "List, set and remove labels (vqs).",
    },
    "Upkeep": {
        "move": "Send dead letters back, or messages to another queue.",
        "purge": "Ack everything for every group.",
        "trim": "Delete old segments.",
        "resize": "Give a queue of fixed size another size (vqs).",
        "verify": "Check every frame.",
        "repair": "Set damage aside so that readers can go on.",
    },
    "Files and Spark": {
        "convert": "Copy a queue to another format.",
        "export": "Write messages to JSON Lines, Parquet or Arrow.",
        "import": "Put the messages of such a file into a queue.",
        "pipeline": "Run ready Spark pipelines over queues.",
        "ship": "Copy full segments to where a cluster reads them.",
    },
    "This machine": {
        "doctor": "Check what this disk and machine can promise a queue.",
        "bench": "Measure put, get and scan on this machine.",
        "demo": "Watch a queue survive kill -9.",
        "inspect": "Show the bytes of any file, field by field.",
    },
}


def arrange(app: typer.Typer) -> None:
    """Gives every command its panel and its line, and sorts them as the table does."""
    lines = [(panel, name, text) for panel, rows in PANELS.items() for name, text in rows.items()]
    order = {name: number for number, (_, name, _) in enumerate(lines)}
    every: list[Any] = [*app.registered_commands, *app.registered_groups]
    for command in every:
        if command.name in order:
            panel, _, text = lines[order[command.name]]
            command.rich_help_panel, command.short_help = panel, text
    app.registered_commands.sort(key=lambda one: order.get(one.name or "", len(order)))
    app.registered_groups.sort(key=lambda one: order.get(one.name or "", len(order)))
