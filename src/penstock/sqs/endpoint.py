"""The endpoint: a request comes in, an answer goes out. Everything runs on one event loop.

The interface is RSGI. What a request costs before an action sees it is bounded: its body has a
largest size and a time in which it must have come.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from penstock.errors import ClosedError, Full, PenstockError
from penstock.logs import logger
from penstock.records import dataclass
from penstock.sqs import auth, wire
from penstock.sqs.actions import ACTIONS
from penstock.sqs.calls import QUEUE_PATH, Call
from penstock.sqs.catalog import ACCOUNT, REGION, Catalog, Place
from penstock.sqs.commits import Commits
from penstock.sqs.errors import Refusal, no_queue
from penstock.sqs.moving import Moves
from penstock.sqs.queues import SqsQueue, new_id
from penstock.sqs.waiters import Waiters

BODY_BYTES_MAX = 8 << 20
"""A megabyte of message, each byte of it escaped, and what stands around it."""
BODY_S_MAX = 30.0
UPKEEP_S = 30.0


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call."""

    verifier: auth.Verifier | None
    """None: nobody signs, and then only programs of this host may call."""
    hosts: frozenset[str] = frozenset(auth.LOCAL)


class Endpoint:
    """One root folder, served."""

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
        self._access_log = logger("sqs.access") if log_requests else None
        self._upkeep = loop.create_task(self._keep_up())
        self.moves.resume()

    # ── requests ───────────────────────────────────────────────────────────────────────────

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        """Answers one request."""
        began = time.perf_counter()
        request_id = new_id()
        if scope.path == "/health" and scope.method == "GET":
            answer = self._health()
            action = "-"
        else:
            answer, action = await self._answered(scope, proto, request_id)
        proto.response_bytes(answer.status, answer.headers, answer.body)
        if self._access_log is not None:
            self._access_log.info(
                "%s %s %s %d %.1f ms",
                scope.client, scope.method, action, answer.status,
                (time.perf_counter() - began) * 1e3,
                extra={
                    "client": scope.client, "action": action, "status": answer.status,
                    "request_id": request_id, "seconds": time.perf_counter() - began,
                },
            )  # fmt: skip

    async def _answered(self, scope: Any, proto: Any, request_id: str) -> tuple[wire.Answer, str]:
        headers = dict(scope.headers.items())
        target = headers.get("x-amz-target") or ""
        is_json = bool(target) or "json" in (headers.get("content-type") or "")
        protocol, action = (wire.JSON if is_json else wire.QUERY), "-"
        try:
            body = await self._body(headers, proto)
            caller = self._caller(scope, headers, body)
            parameters, action = _parameters(scope, body, target if is_json else None)
            work = ACTIONS.get(action)
            if work is None:
                raise _no_action(action, is_json)
            call = Call(
                self, action, parameters, self._place(caller),
                f"{scope.scheme}://{headers.get('host') or scope.server}", caller.sender,
                proto.client_disconnect,
            )  # fmt: skip
            return protocol.success(action, await work(call), request_id), action
        except Refusal as refusal:
            return protocol.refusal(refusal, request_id), action
        except ClosedError:
            return protocol.refusal(no_queue(), request_id), action
        except Exception as error:
            return protocol.refusal(_failure(error, action), request_id), action

    async def _body(self, headers: dict[str, str], proto: Any) -> bytes:
        length = headers.get("content-length")
        if length is not None and (not length.isdecimal() or int(length) > BODY_BYTES_MAX):
            raise _too_large()
        try:
            async with asyncio.timeout(BODY_S_MAX):
                if length is not None:
                    found: bytes = await proto()
                    return found
                whole = bytearray()
                async for chunk in proto:
                    whole += chunk
                    if len(whole) > BODY_BYTES_MAX:
                        raise _too_large()
                return bytes(whole)
        except TimeoutError:
            raise Refusal("RequestTimeout", "The request body did not come in time.") from None

    def _caller(self, scope: Any, headers: dict[str, str], body: bytes) -> auth.Caller:
        query = scope.query_string
        if self.access.verifier is None:
            auth.check_local(headers, self.access.hosts)
            return auth.claimed(headers, query)
        url = f"http://{headers.get('host')}{scope.path}" + (f"?{query}" if query else "")
        signed = auth.Signed(scope.method, url, headers, body)
        now = datetime.fromtimestamp(self.catalog.clock.wall_now_ns() / 1e9, UTC)
        return self.access.verifier.verify(signed, now)

    def _place(self, caller: auth.Caller) -> Place:
        """Account and region of the caller. A key of twelve digits is an account by itself."""
        home = self.catalog.home
        region = caller.region if caller.region and REGION.fullmatch(caller.region) else home.region
        is_account = self.access.verifier is None and ACCOUNT.fullmatch(caller.access_key)
        return Place(caller.access_key if is_account else home.account, region)

    def _health(self) -> wire.Answer:
        poisoned = [queue.name for queue in self.catalog.opened() if queue.store.is_poisoned]
        headers = [("content-type", "application/json")]
        if poisoned:
            return wire.Answer(503, headers, b'{"status":"a sync has failed"}')
        return wire.Answer(200, headers, b'{"status":"ok"}')

    # ── life ───────────────────────────────────────────────────────────────────────────────

    def drop(self, queue: SqsQueue) -> None:
        """Deletes a queue; whoever waits for it is told."""
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
                except PenstockError as error:
                    if not queue.store.is_closed:
                        logger("sqs").warning("%s: nothing is freed: %s", queue.name, error)

    async def close(self) -> None:
        """Answers no more; everything is synced."""
        self._upkeep.cancel()
        await asyncio.gather(self._upkeep, return_exceptions=True)
        await self.moves.close()
        for queue in self.catalog.opened():
            self.waiters.forget(queue, Refusal("ServiceUnavailable", "The server is stopping."))
        await asyncio.to_thread(self.commits.close)
        self.catalog.close()


def _parameters(scope: Any, body: bytes, target: str | None) -> tuple[dict[str, Any], str]:
    """What was asked, and with which parameters."""
    if target is not None:
        return wire.from_json(body), target.removeprefix(wire.TARGET)
    flat = wire.from_form(scope.query_string)
    if body:
        try:
            flat |= wire.from_form(body.decode())
        except UnicodeDecodeError:
            raise Refusal("SerializationException", "The request body is no UTF-8.") from None
    action = str(flat.get("Action", ""))
    parameters = wire.from_query(flat)
    if "QueueUrl" not in parameters and QUEUE_PATH.fullmatch(scope.path):
        parameters["QueueUrl"] = scope.path
    return parameters, action


def _no_action(action: str, is_json: bool) -> Refusal:
    if is_json:
        return Refusal("UnknownOperationException", f"The operation {action!r} is not known.")
    if not action:
        return Refusal(
            "MissingRequiredParameterException", "The request must contain the parameter Action."
        )
    return Refusal("InvalidAction", f"The action {action} is not valid for this endpoint.")


def _too_large() -> Refusal:
    return Refusal("RequestEntityTooLarge", f"A request has at most {BODY_BYTES_MAX} bytes.")


def _failure(error: Exception, action: str) -> Refusal:
    if isinstance(error, Full | OSError):
        logger("sqs").error("%s: %s", action, error)
        return Refusal("ServiceUnavailable", "The queue can't be written to at the moment.")
    logger("sqs").exception("%s failed", action, exc_info=error)
    return Refusal("InternalFailure", "The request failed because of an unknown error.")
