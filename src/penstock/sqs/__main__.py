"""`python -m penstock.sqs ROOT`: like `penstock serve`, without the command line's packages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from penstock.errors import PenstockError
from penstock.sqs import running
from penstock.sqs.serving import DEFAULT_PORT, HOME_ACCOUNT, HOME_REGION


def main(arguments: list[str] | None = None) -> int:
    """Parses the line, and serves."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.sqs", description="Serves the queues in a folder over SQS."
    )
    parser.add_argument("root", type=Path, help="the folder of the queues")
    parser.add_argument("--host", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help=f"the port ({DEFAULT_PORT}); 0: any free one")
    parser.add_argument(
        "--also-port", type=int, action="append", help="a further port; may be given again"
    )
    parser.add_argument("--no-auth", action="store_true", help="take requests without signatures")
    parser.add_argument(
        "--relaxed", action="store_true", help="free a deleted queue's name at once"
    )
    parser.add_argument("--account", help=f"the home account ({HOME_ACCOUNT})")
    parser.add_argument("--region", help=f"the home region ({HOME_REGION})")
    parser.add_argument("--format", choices=("penstock", "vqs"), help="of new standard queues")
    parser.add_argument("--allow-host", action="append", help="a Host to serve without signatures")
    parser.add_argument("--log-requests", action="store_true", help="log every request")
    parser.add_argument("--json-logs", action="store_true", help="log as JSON, one object a line")
    said = vars(parser.parse_args(arguments))
    json_logs = said.pop("json_logs")
    said["auth"] = not said.pop("no_auth")
    said["also_ports"] = tuple(said.pop("also_port") or ())
    said["allow_hosts"] = tuple(said.pop("allow_host") or ())
    try:
        return running.run(running.options_of(said), json_logs=json_logs)
    except (PenstockError, OSError, ImportError) as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
