"""SendMessage and SendMessageBatch: what a message may be, and what its sender is told."""

from __future__ import annotations

import re
from asyncio import Future
from typing import Any

from penstock.sqs import attributes, digests, errors
from penstock.sqs.batches import batch, entries_of, results
from penstock.sqs.calls import Call, as_integer, as_text
from penstock.sqs.queues import DELAY_MAX_S, Outgoing, Sent, SqsQueue

GROUP_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}", re.ASCII)


def send_message(call: Call) -> Future[dict[str, Any]]:
    """Appends one message."""
    queue = call.queue()
    outgoing = outgoing_of(call, queue, call.parameters)
    _check_size(queue, outgoing)
    (sent,) = queue.send([outgoing])
    return call.committed(queue, _answer(sent, outgoing))


def send_message_batch(call: Call) -> dict[str, Any] | Future[dict[str, Any]]:
    """Appends up to ten; each is accepted or refused by itself."""
    queue = call.queue()
    entries = entries_of(call, "SendMessageBatchRequestEntry")
    if queue.is_fifo:
        for entry in entries:
            _check_ids(queue, entry)

    def one(entry: dict[str, Any]) -> Outgoing:
        outgoing = outgoing_of(call, queue, entry, is_batch=True)
        _check_size(queue, outgoing)
        return outgoing

    accepted, failed = batch(entries, one)
    total = sum(_size(outgoing) for _, outgoing in accepted)
    if failed:
        refused = {one["Id"] for one in failed}
        total += sum(_claimed_size(entry) for entry in entries if entry["Id"] in refused)
    if total > attributes.MESSAGE_BYTES_MAX:
        text = f"Batch requests cannot be longer than {attributes.MESSAGE_BYTES_MAX} bytes."
        raise errors.Refusal("BatchRequestTooLong", f"{text} You have sent {total} bytes.")
    if not accepted:
        return results([], failed)
    sent = queue.send([outgoing for _, outgoing in accepted])
    done = [
        {"Id": entry_id, **_answer(told, outgoing)}
        for (entry_id, outgoing), told in zip(accepted, sent, strict=True)
    ]
    return call.committed(queue, results(done, failed))


def outgoing_of(
    call: Call, queue: SqsQueue, given: dict[str, Any], *, is_batch: bool = False
) -> Outgoing:
    """The message in a request, or in an entry of a batch, checked."""
    body = as_text(given.get("MessageBody"))
    if not body:
        raise errors.missing("MessageBody")
    outgoing = Outgoing(
        body=digests.fit(body),
        attributes=digests.checked(given.get("MessageAttributes")),
        system=digests.checked_system(given.get("MessageSystemAttributes")),
        trace=call.trace,
        delay_s=_delay(queue, given),
        group=_id("MessageGroupId", given),
        deduplication=_id("MessageDeduplicationId", given),
        sender=call.sender,
    )
    if queue.is_fifo:
        _check_fifo(queue, outgoing)
    elif outgoing.deduplication is not None and not is_batch:  # moto's tests send it in batches.
        raise errors.not_this_kind("MessageDeduplicationId", outgoing.deduplication)
    return outgoing


def _check_ids(queue: SqsQueue, entry: dict[str, Any]) -> None:
    """An entry that lacks an id fails the whole batch: order could not be kept without it."""
    if not entry.get("MessageGroupId"):
        raise errors.invalid("The request must contain the parameter MessageGroupId.")
    if not entry.get("MessageDeduplicationId"):
        queue.check_deduplicates()


def _check_fifo(queue: SqsQueue, outgoing: Outgoing) -> None:
    if outgoing.group is None:
        raise errors.missing("MessageGroupId")
    if outgoing.deduplication is None:
        queue.check_deduplicates()
    if outgoing.delay_s:
        raise errors.not_this_kind("DelaySeconds", outgoing.delay_s)


def _delay(queue: SqsQueue, given: dict[str, Any]) -> int | None:
    found = as_integer(given.get("DelaySeconds"))
    if found is not None and not 0 <= found <= DELAY_MAX_S:
        reason = f"DelaySeconds must be >= 0 and <= {DELAY_MAX_S}."
        raise errors.value("DelaySeconds", found, reason)
    return found


def _id(name: str, given: dict[str, Any]) -> str | None:
    found = as_text(given.get(name))
    if found is None:
        return None
    if not GROUP_ID.fullmatch(found):
        text = (
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        )
        raise errors.value(name, found, text)
    return found


def _check_size(queue: SqsQueue, outgoing: Outgoing) -> None:
    most = queue.numbers["MaximumMessageSize"]
    if _size(outgoing) > most:
        text = f"One or more parameters are invalid. Reason: Message must be shorter than {most}"
        raise errors.invalid(f"{text} bytes.")


def _size(outgoing: Outgoing) -> int:
    return len(outgoing.body) + digests.size(outgoing.attributes)


def _claimed_size(entry: dict[str, Any]) -> int:
    """What an entry counts towards the size of its batch, although it is refused by itself."""
    body, given = entry.get("MessageBody"), entry.get("MessageAttributes")
    total = len(body.encode(errors="replace")) if isinstance(body, str) else 0
    try:
        return total + digests.size(digests.checked(given))
    except errors.Refusal:
        return total


def _answer(sent: Sent, outgoing: Outgoing) -> dict[str, Any]:
    answer = {"MessageId": sent.id, "MD5OfMessageBody": digests.body_digest(outgoing.body)}
    if outgoing.attributes:
        answer["MD5OfMessageAttributes"] = digests.digest(outgoing.attributes)
    if outgoing.system:
        answer["MD5OfMessageSystemAttributes"] = digests.digest(outgoing.system)
    if sent.sequence:
        answer["SequenceNumber"] = sent.sequence
    return answer
