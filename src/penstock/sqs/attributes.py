"""Attributes of a queue: which there are, what each may be, and which can be set.

The table is the contract; the functions check a request against it and keep what was said. Values
are text, as they travel; a queue keeps only those that were said, so that a default that changes
one day changes for every queue that left it open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.records import dataclass
from penstock.sqs import errors

MESSAGE_BYTES_MAX = 1_048_576
IN_FLIGHT_MAX = 120_000
STATEMENTS_MAX = 20
SOURCES_MAX = 10
ARN = re.compile(r"arn:aws[\w-]*:sqs:(?P<region>[\w-]+):(?P<account>\d{12}):(?P<name>[\w.-]+)")


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number in a range."""

    low: int
    high: int
    default: int | None = None


NUMBERS = {
    "DelaySeconds": Number(0, 900, 0),
    "MaximumMessageSize": Number(1024, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": Number(60, 1_209_600, 345_600),
    "ReceiveMessageWaitTimeSeconds": Number(0, 20, 0),
    "VisibilityTimeout": Number(0, 43_200, 30),
    "KmsDataKeyReusePeriodSeconds": Number(60, 86_400),
}
FLAGS = {"FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled"}
CHOICES = {
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
POLICIES = {"Policy", "RedrivePolicy", "RedriveAllowPolicy"}
"""An empty one takes it away."""
TEXTS = {"KmsMasterKeyId"}
FIFO_ONLY = {"ContentBasedDeduplication", *CHOICES}
SETTABLE = {*NUMBERS, *FLAGS, *CHOICES, *POLICIES, *TEXTS}
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
READ_ONLY = {*COUNTS, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}
EVERY = SETTABLE | READ_ONLY
FIFO_DEFAULTS = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
KMS_DEFAULTS = {"KmsDataKeyReusePeriodSeconds": "300"}


def checked(given: Mapping[str, Any], *, is_fifo: bool) -> dict[str, str]:
    """What a request sets, or a refusal. `FifoQueue` is the caller's business."""
    found = {}
    for name, value in given.items():
        if name not in SETTABLE:
            raise errors.attribute_name(name)
        if not isinstance(value, str):
            value = json.dumps(value) if isinstance(value, bool | int | dict | list) else ""
        if not is_fifo and name in FIFO_ONLY:
            if name in CHOICES:
                text = f"You can specify the {name} only when FifoQueue is set to true."
                raise errors.Refusal("InvalidAttributeName", text)
            raise errors.attribute_name(name)
        found[name] = value if name in POLICIES and not value else _checked(name, value)
    if found.get("KmsMasterKeyId") and found.get("SqsManagedSseEnabled") == "true":
        text = "You can use one type of server-side encryption (SSE) at one time. You can either"
        raise errors.Refusal("InvalidAttributeValue", f"{text} enable KMS SSE or SQS SSE.")
    return found


def _checked(name: str, value: str) -> str:
    if name in NUMBERS:
        return _number(name, value)
    if name in FLAGS:
        if value.lower() not in ("true", "false"):
            raise errors.attribute_value(name)
        return value.lower()
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise errors.attribute_value(name)
        return value
    if name in POLICIES:
        return POLICY_CHECKS[name](value)
    return value


def _number(name: str, value: str) -> str:
    limits = NUMBERS[name]
    if not re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII):
        raise errors.attribute_value(name)
    if not limits.low <= int(value) <= limits.high:
        raise errors.attribute_value(name)
    return str(int(value))


def _json_object(name: str, value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise _wrong(name, value, "Redrive policy is not a valid JSON map.") from None
    if not isinstance(found, dict):
        raise _wrong(name, value, "Redrive policy is not a valid JSON map.")
    return found


def _wrong(name: str, value: str, reason: str) -> errors.Refusal:
    return errors.invalid(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def _policy(value: str) -> str:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise errors.attribute_value("Policy")
    statements = found.get("Statement")
    if isinstance(statements, list) and len(statements) > STATEMENTS_MAX:
        text = f"{len(statements)} statements were found in the submitted policy, max allowed is"
        raise errors.Refusal("OverLimit", f"{text} {STATEMENTS_MAX}")
    return value


def _redrive_policy(value: str) -> str:
    found = _json_object("RedrivePolicy", value)
    if "maxReceiveCount" not in found:
        raise _wrong(
            "RedrivePolicy", value, "Redrive policy does not contain mandatory attribute: "
            "maxReceiveCount.",
        )  # fmt: skip
    if not found.get("deadLetterTargetArn"):
        raise _wrong(
            "RedrivePolicy", value, "Redrive policy does not contain mandatory attribute: "
            "deadLetterTargetArn.",
        )  # fmt: skip
    count = str(found["maxReceiveCount"])
    if not re.fullmatch(r"\d{1,9}", count, re.ASCII) or not 1 <= int(count) <= 1000:
        text = (
            "Invalid value for maxReceiveCount: "
            f"{count}, valid values are from 1 to 1000 both inclusive."
        )
        raise _wrong("RedrivePolicy", value, text)
    arn = found["deadLetterTargetArn"]
    if not isinstance(arn, str) or not ARN.fullmatch(arn):
        text = "Dead-letter target ARN should be fully qualified ARN."
        raise _wrong("RedrivePolicy", value, text)
    if not isinstance(found["maxReceiveCount"], str):
        return value
    return json.dumps({**found, "maxReceiveCount": int(count)}, separators=(",", ":"))


def _redrive_allow_policy(value: str) -> str:
    start = "Amazon SQS can't create the redrive allow policy"
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    permission = found.get("redrivePermission") if isinstance(found, dict) else None
    arns = found.get("sourceQueueArns") or [] if isinstance(found, dict) else None
    is_texts = isinstance(arns, list) and all(isinstance(one, str) for one in arns)
    if permission not in ("allowAll", "denyAll", "byQueue") or not is_texts or arns is None:
        text = f"{start}, as it\u2019s in an unsupported format."
        raise errors.attribute_value("RedriveAllowPolicy", text)
    if arns and permission != "byQueue":
        more = (
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."
        )
    elif permission == "byQueue" and not arns:
        more = (
            "When you specify the byQueue permission type, you must also specify one or more "
            "sourceQueueArns values."
        )
    elif len(arns) > SOURCES_MAX:
        more = f"The maximum number of source queue ARNs you can specify is {SOURCES_MAX}."
    else:
        return value
    raise _wrong("RedriveAllowPolicy", value, f"{start}. {more}")


POLICY_CHECKS = {
    "Policy": _policy,
    "RedrivePolicy": _redrive_policy,
    "RedriveAllowPolicy": _redrive_allow_policy,
}


def whole(said: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """What a queue is, the defaults of what was left open included."""
    found = {
        name: str(limits.default) for name, limits in NUMBERS.items() if limits.default is not None
    }
    if is_fifo:
        found |= FIFO_DEFAULTS
    if said.get("KmsMasterKeyId"):
        found |= KMS_DEFAULTS
    found["SqsManagedSseEnabled"] = "false" if said.get("KmsMasterKeyId") else "true"
    found |= {name: value for name, value in said.items() if value != ""}
    return found


def changed(said: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """What was said, and then changed; an empty policy takes it away."""
    found = {**said, **changes}
    scope = found.get("DeduplicationScope", FIFO_DEFAULTS["DeduplicationScope"])
    if changes.get("FifoThroughputLimit") == "perMessageGroupId" and scope == "queue":
        text = "The perMessageGroupId value is allowed only when the value for DeduplicationScope"
        raise errors.Refusal("InvalidAttributeValue", f"{text} is messageGroup.")
    if changes.get("KmsMasterKeyId"):
        found.pop("SqsManagedSseEnabled", None)  # One of the two encrypts.
    elif changes.get("SqsManagedSseEnabled") == "true":
        found.pop("KmsMasterKeyId", None)
    if not found.get("KmsMasterKeyId"):  # Then the default says nothing about the queue.
        found = {name: value for name, value in found.items() if KMS_DEFAULTS.get(name) != value}
    return {name: value for name, value in found.items() if value != ""}


def difference(known: Mapping[str, str], given: Mapping[str, str]) -> str | None:
    """The first attribute that a second CreateQueue gives another value."""
    for name in given:
        value = known.get(name, KMS_DEFAULTS.get(name, ""))
        if _normal(name, value) != _normal(name, given[name]):
            return name
    return None


def _normal(name: str, value: str) -> Any:
    """Policies say the same in whatever order they do."""
    if name not in POLICIES or not value:
        return value
    found = json.loads(value)
    if name == "RedrivePolicy":
        found["maxReceiveCount"] = str(found.get("maxReceiveCount"))
    return found


def wanted(names: Iterable[Any]) -> set[str]:
    """The attributes that a request asks for."""
    found: set[str] = set()
    for name in names:
        if name == "All":
            return set(EVERY)
        if name not in EVERY:
            raise errors.attribute_name(str(name))
        found.add(name)
    return found
