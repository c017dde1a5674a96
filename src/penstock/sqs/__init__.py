"""An SQS endpoint: Amazon's protocol, penstock's queues.

    penstock serve queues/                          on the command line
    python -m penstock.sqs queues/                  the same

    with penstock.sqs.server() as endpoint:         in a test
        sqs = boto3.client("sqs", **endpoint.client_options)

Needs `pip install 'penstock[sqs]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.sqs.serving import Server as Server
    from penstock.sqs.serving import ServerOptions as ServerOptions
    from penstock.sqs.serving import server as server

__all__ = ["Server", "ServerOptions", "server"]


def __getattr__(name: str) -> Any:
    # When it is asked for: pytest loads the fixture, and with it this package, in every run.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.sqs import serving

    return getattr(serving, name)
