"""Running an endpoint from the command line: what it says, and how it ends."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.sqs.serving import JsonLines, Server, ServerOptions


def run(options: ServerOptions, *, json_logs: bool = False) -> int:
    """Serves until SIGTERM or Ctrl-C; answers the exit code."""
    _log_to_stderr(json_logs)
    server = Server(options)
    server.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.ask_to_stop())
    print(_greeting(server), flush=True)
    server.wait()
    return 0


def _log_to_stderr(json_logs: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    usual = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonLines() if json_logs else usual)
    log = logging.getLogger("penstock")
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def _greeting(server: Server) -> str:
    options = server.client_options
    return f"""\
penstock: SQS endpoint at {server.url}, queues in {Path(server.options.root).resolve()}

    export AWS_ENDPOINT_URL_SQS={options["endpoint_url"]}
    export AWS_DEFAULT_REGION={options["region_name"]}
    export AWS_ACCESS_KEY_ID={options["aws_access_key_id"]}
    export AWS_SECRET_ACCESS_KEY={options["aws_secret_access_key"]}
"""


def options_of(given: dict[str, Any]) -> ServerOptions:
    """Options from a command line; what was not said is left to their defaults."""
    return ServerOptions(**{name: value for name, value in given.items() if value is not None})
