"""`serve`: the queues in a folder, over Amazon's SQS protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.opening import command


def register(app: typer.Typer) -> None:
    """Adds `penstock serve`."""
    command(
        app,
        "serve",
        "penstock serve queues/",
        "penstock serve queues/ --no-auth --relaxed --port 9324",
        "penstock serve queues/ --host 0.0.0.0 --log-requests --json-logs",
    )(serve)


def serve(
    root: Annotated[
        Path, typer.Argument(help="The folder that holds the queues; created if missing.")
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 means any free one.")] = 9324,
    also_port: Annotated[
        list[int] | None,
        typer.Option(help="Another port to listen on; give the option once for each."),
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth", help="Accept requests without a signature; only on loopback addresses."
        ),
    ] = False,
    relaxed: Annotated[
        bool, typer.Option("--relaxed", help="Free the name of a deleted queue at once.")
    ] = False,
    account: Annotated[str, typer.Option(help="The account of the queues in ROOT.")] = (
        "123456789012"
    ),
    region: Annotated[str, typer.Option(help="The region of the queues in ROOT.")] = "us-east-1",
    format: Annotated[
        str, typer.Option(help="The format of new standard queues: penstock or vqs.")
    ] = "penstock",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="With --no-auth: also serve requests for this host name."),
    ] = None,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log every request to stderr.")
    ] = False,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Log as JSON, one object per line.")
    ] = False,
) -> int:
    """Serve the queues in a folder to any client of Amazon SQS.

    Prints the address and the key pair that clients sign with. On SIGTERM or Ctrl-C it syncs
    everything and ends. Needs pip install 'penstock[sqs]'.
    """
    from penstock.sqs import ServerOptions, running

    options = ServerOptions(
        root=root, host=host, port=port, auth=not no_auth, relaxed=relaxed, account=account,
        region=region, format=format, allow_hosts=tuple(allow_host or ()),
        log_requests=log_requests, also_ports=tuple(also_port or ()),
    )  # fmt: skip
    return running.run(options, json_logs=json_logs)
