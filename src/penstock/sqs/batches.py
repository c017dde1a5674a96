"""Batches: what fails the whole request, and what fails one entry of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.sqs import errors
from penstock.sqs.calls import Call

T = TypeVar("T")
Entry = dict[str, Any]
ENTRIES_MAX = 10
ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


def entries_of(call: Call, kind: str) -> list[dict[str, Any]]:
    """The entries of a batch, or a refusal of all of it."""
    entries = call.parameters.get("Entries")
    if not entries:
        text = f"There should be at least one {kind} in the request."
        raise errors.Refusal("EmptyBatchRequest", text)
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise errors.Refusal("SerializationException", "Entries must be a list of structures.")
    if len(entries) > ENTRIES_MAX:
        text = f"Maximum number of entries per request are {ENTRIES_MAX}."
        raise errors.Refusal(
            "TooManyEntriesInBatchRequest", f"{text} You have sent {len(entries)}."
        )
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        entry_id = entry.get("Id")
        if entry_id is None:
            raise errors.missing(f"{kind}.{number}.Id")
        if not isinstance(entry_id, str) or not ENTRY_ID.fullmatch(entry_id):
            raise errors.Refusal(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
        if entry_id in seen:
            raise errors.Refusal("BatchEntryIdsNotDistinct", f"Id {entry_id} repeated.")
        seen.add(entry_id)
    return entries


def batch(
    entries: list[Entry], one: Callable[[Entry], T]
) -> tuple[list[tuple[str, T]], list[Entry]]:
    """Does `one` for each entry: what came of it, by id, and what is told of those refused."""
    done, failed = [], []
    for entry in entries:
        try:
            done.append((entry["Id"], one(entry)))
        except errors.Refusal as refusal:
            if refusal.shape == "SerializationException":
                raise  # It is no request, so none of it is done.
            failed.append(
                {
                    "Id": entry["Id"],
                    "SenderFault": refusal.fault == errors.SENDER,
                    "Code": refusal.code,
                    "Message": refusal.message,
                }
            )
    return done, failed


def results(done: list[Entry], failed: list[Entry]) -> Entry:
    """The answer to a batch."""
    return ({"Successful": done} if done else {}) | ({"Failed": failed} if failed else {})
