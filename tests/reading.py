"""What is in a queue, as the tests compare it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock import Message, Queue


def bodies(queue: Queue) -> list[bytes]:
    """The body of every message in an open queue."""
    return [message.body for message in queue.scan()]


def bodies_at(path: Path, **options: Any) -> list[bytes]:
    """The body of every message in the queue at `path`, which stays as it is."""
    with Queue(path, read_only=True, **options) as queue:
        return bodies(queue)


def bodies_of(messages: Iterable[Message]) -> list[bytes]:
    """The body of each."""
    return [message.body for message in messages]
