"""Actions about queues themselves: making, finding, changing, emptying and removing them."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from penstock.sqs import attributes, errors
from penstock.sqs.calls import Call
from penstock.sqs.catalog import Namespace, check_name
from penstock.sqs.queues import SqsQueue

PAGE_MAX = 1000
PURGE_S = 60
TAGS_MAX = 50


async def create_queue(call: Call) -> dict[str, Any]:
    """Makes a queue; the same again answers the same."""
    name = call.parameters.get("QueueName")
    if name is None:
        raise errors.missing("QueueName")
    name = check_name(name)
    given = call.mapping("Attributes")
    is_fifo = _is_fifo(name, given)
    said = attributes.checked(given, is_fifo=is_fifo)
    tags = _checked_tags(call.parameters.get("tags") or call.parameters.get("Tags") or {})
    if len(tags) > TAGS_MAX:
        raise errors.invalid(f"Too many tags added for queue {name}.")
    call.endpoint.catalog.create(call.namespace, name, attributes.changed({}, said), tags)
    return {"QueueUrl": call.url_of(call.namespace, name)}


def _is_fifo(name: str, given: dict[str, Any]) -> bool:
    flag = given.get("FifoQueue")
    if flag is not None and str(flag).lower() == "true":
        if not name.endswith(".fifo"):
            text = "The name of a FIFO queue can only include alphanumeric characters, hyphens, or"
            text = f"{text} underscores, must end with .fifo suffix and be 1 to 80 in length."
            raise errors.invalid(text)
        return True
    if flag is not None and not name.endswith(".fifo"):
        raise errors.attribute_name("FifoQueue")
    if name.endswith(".fifo"):
        raise errors.invalid(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    return False


async def get_queue_url(call: Call) -> dict[str, Any]:
    """Answers the URL of a queue."""
    name = call.required_text("QueueName")
    namespace = call.namespace
    owner = call.text("QueueOwnerAWSAccountId")
    if owner:
        namespace = Namespace(owner, namespace.region)
    if call.endpoint.catalog.record_of(namespace, name) is None:
        call.endpoint.catalog.find(namespace, name)
    return {"QueueUrl": call.url_of(namespace, name)}


async def list_queues(call: Call) -> dict[str, Any]:
    """Every queue, or those whose names begin alike, a page at a time."""
    prefix = call.text("QueueNamePrefix") or ""
    names = [
        name for name in call.endpoint.catalog.names(call.namespace) if name.startswith(prefix)
    ]
    return _page(call, names, "QueueUrls")


async def list_dead_letter_source_queues(call: Call) -> dict[str, Any]:
    """The queues whose dead letters go here."""
    queue = call.queue()
    namespace = call.endpoint.catalog.namespace_of(queue)
    return _page(
        call, call.endpoint.catalog.sources_of(namespace, queue.arn), "queueUrls", always=True
    )


def _page(call: Call, names: list[str], field: str, *, always: bool = False) -> dict[str, Any]:
    most = call.results_most(PAGE_MAX)
    after = _after(call.text("NextToken"))
    names = [name for name in names if name > after]
    shown = names[: most or PAGE_MAX]
    urls = [call.url_of(call.namespace, name) for name in shown]
    answer: dict[str, Any] = {field: urls} if urls or always else {}
    if most is not None and len(names) > len(shown):
        # The name itself: a queue made or deleted between two pages moves no other one.
        answer["NextToken"] = base64.b64encode(shown[-1].encode()).decode()
    return answer


def _after(token: str | None) -> str:
    if not token:
        return ""
    try:
        return base64.b64decode(token, validate=True).decode()
    except (binascii.Error, ValueError):
        raise errors.invalid("Invalid or expired next token.") from None


async def delete_queue(call: Call) -> dict[str, Any]:
    """Removes a queue and everything in it."""
    queue = call.queue()
    call.endpoint.drop(queue)
    return {}


async def purge_queue(call: Call) -> dict[str, Any]:
    """Empties a queue, at most once a minute."""
    queue = call.queue()
    now_s = queue.clock.wall_now_ns() / 1e9
    if now_s - queue.record.purged_s < PURGE_S:
        text = f"Only one PurgeQueue operation on {queue.name} is allowed every {PURGE_S} seconds."
        raise errors.Refusal("PurgeQueueInProgress", text)
    queue.record.purged_s = now_s
    queue.purge()
    call.endpoint.catalog.keep(queue)
    return await call.committed(queue, {})


async def get_queue_attributes(call: Call) -> dict[str, Any]:
    """Those that were asked for."""
    queue = call.queue()
    names = attributes.wanted(call.strings("AttributeNames"))
    if not names:
        return {}
    found = {name: value for name, value in _all(call, queue, names).items() if name in names}
    return {"Attributes": found} if found else {}


def _all(call: Call, queue: SqsQueue, names: set[str]) -> dict[str, str]:
    found = dict(queue.attributes)
    found["QueueArn"] = queue.arn
    found["CreatedTimestamp"] = str(queue.record.created_s)
    found["LastModifiedTimestamp"] = str(queue.record.modified_s)
    if not names.isdisjoint(attributes.COUNTS):
        found |= {name: str(count) for name, count in queue.counts().items()}
    return found


async def set_queue_attributes(call: Call) -> dict[str, Any]:
    """Changes the attributes of a queue that the call names."""
    queue = call.queue()
    given = call.mapping("Attributes")
    if not given:
        raise errors.missing("Attribute.Name")
    if (flag := given.get("FifoQueue")) is not None:
        if not queue.is_fifo:
            raise errors.attribute_name("FifoQueue")
        if str(flag).lower() != "true":
            raise errors.attribute_value("FifoQueue", "Modifying queue type is not supported.")
    said = attributes.checked(given, is_fifo=queue.is_fifo)
    call.endpoint.catalog.change(queue, said)
    return {}


# ── tags ───────────────────────────────────────────────────────────────────────────────────────


async def tag_queue(call: Call) -> dict[str, Any]:
    """Adds tags, or changes them."""
    queue = call.queue()
    given = call.required("Tags")
    if given == {}:
        raise errors.missing("Tags")
    tags = queue.record.tags | _checked_tags(given)
    if len(tags) > TAGS_MAX:
        raise errors.invalid(f"Too many tags added for queue {queue.name}.")
    queue.record.tags = tags
    call.endpoint.catalog.keep(queue)
    return {}


async def untag_queue(call: Call) -> dict[str, Any]:
    """Removes tags from a queue."""
    queue = call.queue()
    keys = call.strings("TagKeys")
    if not keys:
        raise errors.invalid("Tag keys must be between 1 and 128 characters in length.")
    queue.record.tags = {key: one for key, one in queue.record.tags.items() if key not in keys}
    call.endpoint.catalog.keep(queue)
    return {}


async def list_queue_tags(call: Call) -> dict[str, Any]:
    """Every tag of a queue."""
    tags = call.queue().record.tags
    return {"Tags": tags} if tags else {}


def _checked_tags(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise errors.Refusal("SerializationException", "Tags must be a map.")
    for key, value in given.items():
        if not isinstance(value, str) or not 1 <= len(key) <= 128:
            raise errors.invalid("Tag keys must be between 1 and 128 characters in length.")
        if len(value) > 256:
            raise errors.invalid("Tag values must be between 0 and 256 characters in length.")
    return dict(given)


# ── permissions: kept in the queue's policy, and not enforced ──────────────────────────────────

ACTIONS_MAX = 7
SHARABLE = {
    "*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility",
    "GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues", "PurgeQueue",
    "SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch",
    "StartMessageMoveTask", "CancelMessageMoveTask", "ListMessageMoveTasks",
}  # fmt: skip
OWNERS = {
    "AddPermission", "CreateQueue", "DeleteQueue", "ListQueueTags", "ListQueues",
    "RemovePermission", "SetQueueAttributes", "TagQueue", "UntagQueue",
}  # fmt: skip
NO_ACTION = "Please refer to the appropriate WSDL for a list of valid actions. "
"""With a blank at its end, as it comes from Amazon."""


async def add_permission(call: Call) -> dict[str, Any]:
    """Adds a statement to the queue's policy."""
    queue = call.queue()
    label = call.required_text("Label")
    accounts, actions = call.strings("AWSAccountIds"), call.strings("Actions")
    if not actions:
        raise errors.missing("Actions")
    if not accounts:
        raise errors.value("PrincipalId", "[]", "Unable to verify.")
    if len(actions) > ACTIONS_MAX:
        text = f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}."
        raise errors.Refusal("OverLimit", text)
    for action in actions:
        if action not in SHARABLE:
            is_known = action in OWNERS
            text = (
                "Only the queue owner is allowed to invoke this action." if is_known else NO_ACTION
            )
            raise errors.value("ActionName", f"SQS:{action}", text)
    policy = _policy(queue)
    if any(one.get("Sid") == label for one in policy["Statement"]):
        raise errors.value("Label", label, "Already exists.")
    if (count := len(policy["Statement"]) + 1) > attributes.STATEMENTS_MAX:
        text = f"{count} Statements were found, maximum allowed is {attributes.STATEMENTS_MAX}."
        raise errors.Refusal("OverLimit", text)
    principals = [f"arn:aws:iam::{account}:root" for account in accounts]
    names = [f"SQS:{action}" for action in actions]
    policy["Statement"].append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
            "Action": names[0] if len(names) == 1 else names,
            "Resource": queue.arn,
        }
    )
    call.endpoint.catalog.change(queue, {"Policy": json.dumps(policy)})
    return {}


async def remove_permission(call: Call) -> dict[str, Any]:
    """Takes a statement away; the last one takes the policy with it."""
    queue = call.queue()
    label = call.required_text("Label")
    policy = _policy(queue)
    kept = [one for one in policy["Statement"] if one.get("Sid") != label]
    if len(kept) == len(policy["Statement"]):
        raise errors.value("Label", label, "can't find label.")
    policy["Statement"] = kept
    call.endpoint.catalog.change(queue, {"Policy": json.dumps(policy) if kept else ""})
    return {}


def _policy(queue: SqsQueue) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(queue.attributes.get("Policy", "{}"))
    found = {"Version": "2008-10-17", "Id": f"{queue.arn}/SQSDefaultPolicy"} | known
    statements = found.get("Statement", [])
    found["Statement"] = statements if isinstance(statements, list) else [statements]
    return found
