"""What a query was to read and can't: said once for tasks, streams and shipped queues."""

from __future__ import annotations

import logging

from penstock.errors import PenstockError
from penstock.formats.values import Damage

log: logging.Logger = logging.getLogger("penstock.spark")
ADVICE = "set failOnDataLoss to false to go on without it"


class DataLoss(PenstockError, OSError):
    """What a query was to read is no longer there, or can't be read."""


def lost(text: str, *, fails: bool) -> None:
    """Something is gone: an error, or a line in the log where a query may go on without it."""
    if fails:
        raise DataLoss(f"{text}; {ADVICE}")
    log.warning("%s", text)


def sentence(damage: Damage) -> str:
    """Where it is and what is wrong."""
    return f"{damage.path}:{damage.at}: found {damage.found}, expected {damage.expected}"


def warn_of_torn(queue: str, torn: Damage) -> None:
    """Expected after a crash, and never promised to anyone: no loss, but never silence either."""
    text = "queue %s: torn: %s; %d bytes do not count"
    log.warning(text, queue, sentence(torn), torn.length)


def warn_of_unsynced(queue: str, end: int, tail: int, *, is_open: bool) -> None:
    """Messages that are there and that a power loss may still take: no query sees them."""
    after = "its writer syncs them" if is_open else "somebody opens it: nobody has the queue open"
    text = "queue %s: messages from offset %d to %d are not synced, and left out until %s"
    log.warning(text, queue, end, tail, after)
