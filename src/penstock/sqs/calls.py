"""A request as an action sees it: who calls, about which queue, with which parameters."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from penstock.records import dataclass
from penstock.sqs import errors
from penstock.sqs.catalog import Catalog, Namespace
from penstock.sqs.commits import Commits
from penstock.sqs.queues import SqsQueue
from penstock.sqs.waiters import Waiters

URL_MAX = 300
"""Longer ones are not remembered."""
QUEUE_PATH = re.compile(r"/(?P<account>\d{12})/(?P<name>[^/]+)", re.ASCII)


class Mover(Protocol):
    """Who runs message move tasks."""

    def begin(self, source: SqsQueue, task: dict[str, Any]) -> None:
        """Starts to move the messages of `source` as `task` says."""


class Service(Protocol):
    """What an action may use of the endpoint."""

    catalog: Catalog
    commits: Commits
    waiters: Waiters

    @property
    def moves(self) -> Mover:
        """Who runs message move tasks."""

    def drop(self, queue: SqsQueue) -> None:
        """Deletes a queue; receives that wait for its messages end with an error."""


@dataclass(slots=True)
class Call:
    """One call of an action."""

    endpoint: Service
    action: str
    parameters: dict[str, Any]
    namespace: Namespace
    base_url: str
    """Queue URLs begin with it: scheme and host as the client wrote them."""
    sender: str
    trace: str = ""
    """The header of Amazon's tracing, if the client sent one."""

    # ── parameters ─────────────────────────────────────────────────────────────────────────

    def required(self, name: str) -> Any:
        """A parameter that has to be there."""
        found = self.parameters.get(name)
        if found is None or found == "":
            raise errors.missing(name)
        return found

    def required_text(self, name: str) -> str:
        """A parameter that must be there and must be text."""
        self.required(name)
        return self.text(name) or ""

    def text(self, name: str) -> str | None:
        """A parameter that is text, if it is there."""
        return as_text(self.parameters.get(name))

    def strings(self, *names: str) -> list[str]:
        """Parameters that are lists of text, one after the other."""
        found: list[str] = []
        for name in names:
            given = self.parameters.get(name) or []
            if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
                raise errors.Refusal("SerializationException", f"{name} must be a list of strings.")
            found += given
        return found

    def mapping(self, name: str) -> dict[str, Any]:
        """A parameter that is a map; empty when it is not there."""
        found = self.parameters.get(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise errors.Refusal("SerializationException", f"{name} must be a map.")
        return found

    def integer(self, name: str) -> int | None:
        """A parameter that is a whole number, if it is there."""
        return as_integer(self.parameters.get(name))

    def integer_in(self, name: str, low: int, high: int, reason: str) -> int | None:
        """The same, and within limits."""
        found = self.integer(name)
        if found is not None and not low <= found <= high:
            raise errors.value(name, found, reason)
        return found

    def results_most(self, high: int) -> int | None:
        """How many results are wanted at most, if it is said."""
        found = self.integer("MaxResults")
        if found is not None and not 1 <= found <= high:
            reason = f"MaxResults must be an integer between 1 and {high}."
            raise errors.invalid(f"Value for parameter MaxResults is invalid. Reason: {reason}")
        return found

    # ── the queue ──────────────────────────────────────────────────────────────────────────

    def queue(self) -> SqsQueue:
        """The queue that `QueueUrl` names."""
        namespace, name = self.queue_name()
        return self.endpoint.catalog.find(namespace, name)

    def queue_name(self) -> tuple[Namespace, str]:
        """Account, region and name of it. A bare name is a queue of the caller's."""
        url = self.required_text("QueueUrl")
        if "/" not in url:
            return self.namespace, url
        account, name = (_parts if len(url) <= URL_MAX else _parts.__wrapped__)(url)
        if account == self.namespace.account:
            return self.namespace, name
        return Namespace(account, self.namespace.region), name

    def url_of(self, namespace: Namespace, name: str) -> str:
        """A queue's URL for this client."""
        return f"{self.base_url}/{namespace.account}/{name}"

    def committed(self, queue: SqsQueue, answer: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        """The answer, as soon as what was done to `queue` is on the disk."""
        return self.endpoint.commits.wait(queue, answer)


@lru_cache(maxsize=4096)
def _parts(url: str) -> tuple[str, str]:
    """Account and name in a queue's URL. Clients ask for the same few again and again."""
    match = QUEUE_PATH.fullmatch(unquote(urlsplit(url).path))
    if match is None:
        raise errors.no_queue()
    return match["account"], match["name"]


def as_text(found: Any) -> str | None:
    """Returns `found` if it is text or missing; refuses anything else."""
    if found is None or isinstance(found, str):
        return found
    raise errors.wrong_type(found, "a String")


def as_integer(found: Any) -> int | None:
    """A whole number, or a refusal. JSON clients may write it as text."""
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    if isinstance(found, str) and re.fullmatch(r"[+-]?\d{1,18}", found, re.ASCII):
        return int(found)
    raise errors.wrong_type(found, "an Integer")
