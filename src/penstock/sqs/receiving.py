"""ReceiveMessage, and what is done about a message that was received."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from penstock import _core
from penstock.logs import logger
from penstock.sqs import attributes, digests, errors
from penstock.sqs.batches import batch, entries_of, results
from penstock.sqs.calls import Call, as_integer, as_text
from penstock.sqs.queues import (
    ATTRIBUTES,
    DEDUPLICATION,
    GROUP,
    SENDER,
    SOURCE,
    SYSTEM,
    TRACE,
    SqsQueue,
)
from penstock.sqs.waiters import Waiter

WAIT_MAX_S = 20
VISIBILITY_MAX_S = 43_200
SYSTEM_NAMES = {
    "All", "SenderId", "SentTimestamp", "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp", "SequenceNumber", "MessageDeduplicationId",
    "MessageGroupId", "AWSTraceHeader", "DeadLetterQueueSourceArn",
}  # fmt: skip

WRONG = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""How a value that is read turns out not to be what was written."""
Later = dict[str, Any] | Coroutine[Any, Any, dict[str, Any]] | asyncio.Future[dict[str, Any]]


def receive_message(call: Call) -> Later:
    """Up to ten messages; waits for the first one if asked to."""
    queue = call.queue()
    count = call.integer_in("MaxNumberOfMessages", 1, 10, "Must be between 1 and 10, if provided.")
    wait_s = call.integer_in(
        "WaitTimeSeconds", 0, WAIT_MAX_S, f"Must be >= 0 and <= {WAIT_MAX_S}, if provided."
    )
    visibility_s = _visibility(call.parameters)
    attempt_id = call.text("ReceiveRequestAttemptId") if queue.is_fifo else None
    system = _system_names(call)
    if queue.is_over_limit():
        raise errors.Refusal("OverLimit", "Too many messages are in flight.")
    if wait_s is None:
        wait_s = queue.numbers["ReceiveMessageWaitTimeSeconds"]
    names = call.strings("MessageAttributeNames")

    def answer(found: list[_core.Message]) -> Later:
        if attempt_id:
            queue.note_attempt(attempt_id, found)
        if not found:
            return {}
        now_ms = queue.clock.wall_now_ns() // 1_000_000
        shown = {"Messages": [_shown(queue, one, now_ms, system, names) for one in found]}
        # Nobody sees what a power cut could still take back.
        return shown if queue.is_durable(found) else call.committed(queue, shown)

    known = queue.attempt(attempt_id, visibility_s) if attempt_id else None
    if known is not None:
        return answer(known)
    if not queue.waiting:
        found = queue.receive(count or 1, visibility_s)
        if found or wait_s == 0:
            return answer(found)
    wait = partial(call.endpoint.waiters.wait, queue, count or 1, visibility_s, wait_s)
    return _awaited(wait, answer)


async def _awaited(
    wait: Callable[[], Waiter], answer: Callable[[list[_core.Message]], Later]
) -> Any:
    waiter = wait()  # Here: a task that is cancelled before it begins must leave no waiter behind.
    try:
        found = await waiter.future
    except asyncio.CancelledError:
        waiter.give_back()  # The client has hung up.
        raise
    finally:
        waiter.leave()
    later = answer(found)
    return later if isinstance(later, dict) else await later


def _visibility(given: dict[str, Any]) -> int | None:
    found = as_integer(given.get("VisibilityTimeout"))
    if found is not None and not 0 <= found <= VISIBILITY_MAX_S:
        reason = f"VisibilityTimeout must be an integer between 0 and {VISIBILITY_MAX_S}."
        raise errors.value("VisibilityTimeout", found, reason)
    return found


def _system_names(call: Call) -> set[str]:
    names = set(call.strings("AttributeNames", "MessageSystemAttributeNames"))
    for name in names - SYSTEM_NAMES - attributes.EVERY:  # Older models list those of queues too.
        raise errors.attribute_name(name)
    return names


def _shown(
    queue: SqsQueue, message: _core.Message, now_ms: int, system: set[str], names: list[str]
) -> dict[str, Any]:
    """A message as its receiver sees it."""
    first_ms = queue.note_received(message, now_ms)
    body = message.body
    shown: dict[str, Any] = {
        "MessageId": queue.id_of(message),
        "ReceiptHandle": queue.handle(message),
        "MD5OfBody": digests.body_digest(body),
        "Body": body.decode("utf-8", "backslashreplace"),
    }
    if not system and not names:
        return shown
    headers = message.headers
    if system:
        about = _about(queue, message, headers, first_ms)
        is_all = "All" in system
        shown["Attributes"] = {
            name: value for name, value in about.items() if is_all or name in system
        }
    if names and ATTRIBUTES in headers:
        try:
            chosen = digests.chosen(json.loads(headers[ATTRIBUTES]), names)
            digest = digests.digest(chosen) if chosen else ""
        except WRONG as error:
            _leave_out(queue, message, ATTRIBUTES, error)
        else:
            if chosen:
                shown["MessageAttributes"] = chosen
                shown["MD5OfMessageAttributes"] = digest
    return shown


def _leave_out(queue: SqsQueue, message: _core.Message, name: str, error: Exception) -> None:
    """Programs of this host may have put anything there. That must not keep the messages back that
    are received together with it."""
    text = "%s: header %s of the message at %s is not as the endpoint writes it: %s; it is left out"
    logger("sqs").warning(text, queue.name, name, message.offset, error)


def _about(
    queue: SqsQueue, message: _core.Message, headers: dict[str, str], first_ms: int
) -> dict[str, str]:
    about = {
        "SenderId": headers.get(SENDER, "AIDAPENSTOCK"),
        "SentTimestamp": str(queue.sent_ms(message)),
        "ApproximateReceiveCount": str(queue.receives_of(message)),
        "ApproximateFirstReceiveTimestamp": str(first_ms),
    }
    if queue.is_fifo:
        about["SequenceNumber"] = queue.sequence_of(message)
        about["MessageGroupId"] = message.key or ""
    if GROUP in headers:
        about["MessageGroupId"] = headers[GROUP]
    if DEDUPLICATION in headers:
        about["MessageDeduplicationId"] = headers[DEDUPLICATION]
    if SYSTEM in headers:
        try:
            about["AWSTraceHeader"] = str(json.loads(headers[SYSTEM])[digests.TRACE]["StringValue"])
        except WRONG as error:
            _leave_out(queue, message, SYSTEM, error)
    elif TRACE in headers:
        about["AWSTraceHeader"] = headers[TRACE]
    if SOURCE in headers:
        about["DeadLetterQueueSourceArn"] = headers[SOURCE]
    return about


def delete_message(call: Call) -> Later:
    """The message is done."""
    queue = call.queue()
    queue.delete(_handle(call.parameters))
    return call.committed(queue, {})


def delete_message_batch(call: Call) -> Later:
    """Up to ten are done."""
    queue = call.queue()
    entries = entries_of(call, "DeleteMessageBatchRequestEntry")
    answer = _each(entries, lambda entry: queue.delete(_handle(entry)))
    return call.committed(queue, answer)


def _each(entries: list[dict[str, Any]], one: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    done, failed = batch(entries, one)
    return results([{"Id": entry_id} for entry_id, _ in done], failed)


def change_message_visibility(call: Call) -> dict[str, Any]:
    """A message comes back later, or sooner."""
    queue = call.queue()
    _change(queue, call.parameters)
    call.endpoint.waiters.look(queue)
    return {}


def change_message_visibility_batch(call: Call) -> dict[str, Any]:
    """Changes for how long up to ten messages stay hidden."""
    queue = call.queue()
    entries = entries_of(call, "ChangeMessageVisibilityBatchRequestEntry")

    answer = _each(entries, lambda entry: _change(queue, entry))
    call.endpoint.waiters.look(queue)
    return answer


def _change(queue: SqsQueue, given: dict[str, Any]) -> None:
    handle = _handle(given)
    seconds = _visibility(given)
    if seconds is None:
        raise errors.missing("VisibilityTimeout")
    queue.change_visibility(handle, seconds)


def _handle(given: dict[str, Any]) -> str:
    found = as_text(given.get("ReceiptHandle"))
    if not found:
        raise errors.missing("ReceiptHandle")
    return found
