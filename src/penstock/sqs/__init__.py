"""An SQS endpoint: Amazon's protocol, penstock's queues.

    penstock serve queues/                          on the command line
    python -m penstock.sqs queues/                  the same

    with penstock.sqs.server() as endpoint:         in a test
        sqs = boto3.client("sqs", **endpoint.client_options)

Needs `pip install 'penstock[sqs]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import MissingExtraError

if TYPE_CHECKING:
    from penstock.sqs.serving import Server as Server
    from penstock.sqs.serving import ServerOptions as ServerOptions
    from penstock.sqs.serving import server as server

__all__ = ["Server", "ServerOptions", "server"]

LIBRARIES = ("httptools", "uvloop", "msgspec", "botocore")
"""What the endpoint needs besides penstock."""


def __getattr__(name: str) -> Any:
    # When it is asked for: pytest loads the fixture, and with it this package, in every run.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from penstock.sqs import serving
    except ModuleNotFoundError as error:
        if error.name not in LIBRARIES:
            raise
        raise MissingExtraError(error.name, "sqs", "the SQS endpoint") from error
    return getattr(serving, name)
