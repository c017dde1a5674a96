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
    root: Annotated[Path, typer.Argument(help="The folder of the queues; made when missing.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0: any that is free.")] = 9324,
    also_port: Annotated[
        list[int] | None, typer.Option(help="A further port; may be given again.")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Take requests without signatures, on loopback only.")
    ] = False,
    relaxed: Annotated[
        bool, typer.Option("--relaxed", help="A deleted queue's name is free again at once.")
    ] = False,
    account: Annotated[str, typer.Option(help="The account of the queues in ROOT.")] = (
        "123456789012"
    ),
    region: Annotated[str, typer.Option(help="The region of the queues in ROOT.")] = "us-east-1",
    format: Annotated[
        str, typer.Option(help="What new standard queues are kept in: penstock or vqs.")
    ] = "penstock",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A Host header to serve without signatures.")
    ] = None,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log every request to stderr.")
    ] = False,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Log as JSON, one object a line.")
    ] = False,
) -> int:
    """Serves the queues in a folder to any client of Amazon SQS.

    Prints the address and the key pair to sign with. Ends, with everything synced, on SIGTERM or
    Ctrl-C. Needs penstock[sqs].
    """
    from penstock.sqs import ServerOptions, running

    options = ServerOptions(
        root=root, host=host, port=port, auth=not no_auth, relaxed=relaxed, account=account,
        region=region, format=format, allow_hosts=tuple(allow_host or ()),
        log_requests=log_requests, also_ports=tuple(also_port or ()),
    )  # fmt: skip
    return running.run(options, json_logs=json_logs)
