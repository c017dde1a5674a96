"""The endpoint: a request comes in, an answer goes out. Everything runs on one event loop.

Most requests are answered in the very call that brings them; those that change something wait for
a sync that they share (`Commits`), and a receive may wait for a message.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock.errors import ClosedError, Full, PenstockError
from penstock.logs import logger
from penstock.records import dataclass
from penstock.sqs import auth, wire
from penstock.sqs.actions import ACTIONS, Later
from penstock.sqs.calls import QUEUE_PATH, Call
from penstock.sqs.catalog import ACCOUNT, REGION, Catalog, Namespace
from penstock.sqs.commits import Commits
from penstock.sqs.connections import Connection, Request
from penstock.sqs.errors import Refusal, no_queue
from penstock.sqs.moving import Moves
from penstock.sqs.queues import SqsQueue, new_id
from penstock.sqs.waiters import Waiters

UPKEEP_S = 30.0
NAMESPACES_MAX = 1000
TRACE_MAX = 1024
"""So much of a trace header is kept with every message that comes with it."""


@dataclass(frozen=True, slots=True)
class Access:
    """Which clients may call the endpoint."""

    verifier: auth.Verifier | None
    """None: nobody signs, and then only programs of this host may call."""
    hosts: frozenset[str] = frozenset(auth.LOCAL)


class Exchange:
    """A request and its answer, as the log tells them."""

    __slots__ = ("action", "began_s", "id", "protocol")

    def __init__(self, protocol: wire.Protocol, request_id: str, action: str = "-") -> None:
        """Notes when the request began: now."""
        self.protocol: wire.Protocol = protocol
        self.id: str = request_id
        self.action: str = action
        self.began_s: float = time.perf_counter()

    def refusal(self, error: BaseException) -> wire.Answer:
        """What the client is told about an error."""
        if isinstance(error, ClosedError):
            error = no_queue()
        elif not isinstance(error, Refusal):
            error = _failure(error, self.action)
        return self.protocol.refusal(error, self.id)


class Endpoint:
    """Serves the queues of one root folder."""

    catalog: Catalog
    access: Access
    commits: Commits
    waiters: Waiters
    moves: Moves

    def __init__(self, catalog: Catalog, access: Access, *, log_requests: bool = False) -> None:
        """Needs the running event loop."""
        loop = asyncio.get_running_loop()
        self.catalog, self.access = catalog, access
        self.commits, self.waiters = Commits(loop), Waiters(loop)
        self.moves = Moves(catalog, self.commits)
        self._namespaces: dict[auth.Caller, Namespace] = {}
        """The account and region of the callers that came last."""
        self._access_log = logger("sqs.access") if log_requests else None
        self._upkeep = loop.create_task(self._keep_up())
        self.moves.resume()

    # ── requests ───────────────────────────────────────────────────────────────────────────

    def __call__(self, request: Request, connection: Connection) -> None:
        """Answers one request, now or later."""
        if request.path == "/health" and request.method == "GET":
            self._send(connection, request, Exchange(wire.JSON, "-", "-"), self._health())
            return
        target = request.headers.get("x-amz-target") or ""
        is_json = bool(target) or "json" in (request.headers.get("content-type") or "")
        exchange = Exchange(wire.JSON if is_json else wire.QUERY, new_id())
        try:
            caller = self._caller(request)
            parameters, exchange.action = _parameters(request, target if is_json else None)
            work = ACTIONS.get(exchange.action)
            if work is None or _is_elsewhere(exchange.action, request, is_json):
                raise _no_action(exchange.action, is_json)
            found = work(
                Call(
                    self, exchange.action, parameters, self._namespace(caller),
                    f"http://{request.headers.get('host')}", caller.sender,
                    request.headers.get("x-amzn-trace-id", "")[:TRACE_MAX],
                )
            )  # fmt: skip
            if isinstance(found, dict):
                answer = exchange.protocol.success(exchange.action, found, exchange.id)
            else:
                self._answer_later(connection, request, exchange, found)
                return
        except Exception as error:
            answer = exchange.refusal(error)
        self._send(connection, request, exchange, answer)

    def _answer_later(
        self, connection: Connection, request: Request, exchange: Exchange, found: Later
    ) -> None:
        def done(work: asyncio.Future[dict[str, Any]]) -> None:
            if work.cancelled():
                return  # The client has hung up.
            error = work.exception()
            if error is None:
                answer = exchange.protocol.success(exchange.action, work.result(), exchange.id)
            else:
                answer = exchange.refusal(error)
            self._send(connection, request, exchange, answer)

        connection.work = asyncio.ensure_future(found)
        connection.work.add_done_callback(done)

    def _send(
        self, connection: Connection, request: Request, exchange: Exchange, answer: wire.Answer
    ) -> None:
        connection.answer(answer.status, answer.headers, answer.body)
        if self._access_log is not None:
            seconds = time.perf_counter() - exchange.began_s
            self._access_log.info(
                "%s %s %s %d %.1f ms",
                request.client, request.method, exchange.action, answer.status, seconds * 1e3,
                extra={
                    "client": request.client, "action": exchange.action, "status": answer.status,
                    "request_id": exchange.id, "seconds": seconds,
                },
            )  # fmt: skip

    def _caller(self, request: Request) -> auth.Caller:
        if self.access.verifier is None:
            auth.check_local(request.headers, self.access.hosts)
            return auth.claimed(request.headers, request.query)
        return self.access.verifier.verify(request, self.catalog.clock.wall_now_ns() / 1e9)

    def _namespace(self, caller: auth.Caller) -> Namespace:
        """Account and region of the caller. A key of twelve digits is an account by itself."""
        known = self._namespaces.get(caller)
        if known is None:
            if len(self._namespaces) >= NAMESPACES_MAX:
                self._namespaces.clear()
            known = self._namespaces[caller] = self._namespace_of(caller)
        return known

    def _namespace_of(self, caller: auth.Caller) -> Namespace:
        home = self.catalog.home
        region = caller.region if caller.region and REGION.fullmatch(caller.region) else home.region
        is_account = self.access.verifier is None and ACCOUNT.fullmatch(caller.access_key)
        return Namespace(caller.access_key if is_account else home.account, region)

    def _health(self) -> wire.Answer:
        poisoned = [queue.name for queue in self.catalog.opened() if queue.store.is_poisoned]
        headers = [("content-type", "application/json")]
        if poisoned:
            return wire.Answer(503, headers, b'{"status":"a sync has failed"}')
        return wire.Answer(200, headers, b'{"status":"ok"}')

    # ── life ───────────────────────────────────────────────────────────────────────────────

    def drop(self, queue: SqsQueue) -> None:
        """Deletes a queue; receives that wait for its messages end with an error."""
        self.moves.end(queue)
        self.waiters.forget(queue, no_queue())
        self.catalog.delete(queue)

    async def _keep_up(self) -> None:
        """Frees what everyone is done with, now and then."""
        while True:
            await asyncio.sleep(UPKEEP_S)
            for queue in self.catalog.opened():
                try:
                    queue.forget_done()
                    await asyncio.to_thread(queue.trim)
                    self.catalog.keep_received(queue)
                except PenstockError as error:
                    if not queue.store.is_closed:
                        logger("sqs").warning("%s: nothing is freed: %s", queue.name, error)

    def stop_waiting(self) -> None:
        """Nobody waits for a message any more: the server ends."""
        for queue in self.catalog.opened():
            self.waiters.forget(queue, Refusal("ServiceUnavailable", "The server is stopping."))

    async def close(self) -> None:
        """Answers no more; everything is synced."""
        self._upkeep.cancel()
        await asyncio.gather(self._upkeep, return_exceptions=True)
        await self.moves.close()
        self.stop_waiting()
        await self.commits.close()
        self.catalog.close()


def _parameters(request: Request, target: str | None) -> tuple[dict[str, Any], str]:
    """What was asked, and with which parameters."""
    if target is not None:
        parameters = wire.from_json(request.body)
        if not parameters.get("QueueUrl") and QUEUE_PATH.fullmatch(request.path):
            parameters["QueueUrl"] = request.path
        return parameters, target.removeprefix(wire.TARGET)
    flat = wire.from_form(request.query)
    if request.body:
        try:
            flat |= wire.from_form(request.body.decode())
        except UnicodeDecodeError:
            raise Refusal("SerializationException", "The request body is not UTF-8.") from None
    action = str(flat.get("Action", ""))
    parameters = wire.from_query(flat)
    if "QueueUrl" not in parameters and QUEUE_PATH.fullmatch(request.path):
        parameters["QueueUrl"] = request.path
    return parameters, action


def _is_elsewhere(action: str, request: Request, is_json: bool) -> bool:
    """Whether the action is asked of a queue's URL although it is about no queue."""
    is_none = action in ("CreateQueue", "ListQueues")
    return is_none and not is_json and QUEUE_PATH.fullmatch(request.path) is not None


def _no_action(action: str, is_json: bool) -> Refusal:
    if is_json:
        return Refusal("UnknownOperationException", f"The operation {action!r} is not known.")
    if not action:
        return Refusal("NoAction", "The request must contain the parameter Action.")
    return Refusal("InvalidAction", f"The action {action} is not valid for this endpoint.")


def _failure(error: BaseException, action: str) -> Refusal:
    if isinstance(error, Full | OSError):
        logger("sqs").error("%s: %s", action, error)
        return Refusal("ServiceUnavailable", "The queue can't be written to at the moment.")
    logger("sqs").exception("%s failed", action, exc_info=error)
    return Refusal("InternalFailure", "The request failed because of an unknown error.")
