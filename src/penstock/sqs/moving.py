"""Message move tasks: dead letters go back to where they came from, or to a queue of choice.

A task is kept in the record of the queue that it empties, so that it goes on after a restart. Each
message is on the disk at its goal before it is acked at its source: a server that dies in between
leaves it in both, never in none.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import Any

from penstock import _core
from penstock.errors import PenstockError
from penstock.logs import logger
from penstock.sqs import errors
from penstock.sqs.calls import Call
from penstock.sqs.catalog import Catalog
from penstock.sqs.commits import Commits
from penstock.sqs.queues import RECEIVES, SENT, SEQUENCE, SOURCE, SqsQueue, new_id

RATE_MAX = 500
KEPT = 10
AT_ONCE = 10
LEASE_S = 300
OURS = (RECEIVES, SENT, SEQUENCE, SOURCE)
RUNNING, CANCELLING = "RUNNING", "CANCELLING"
Task = dict[str, Any]


async def start_message_move_task(call: Call) -> dict[str, Any]:
    """Begins to move everything that is in a queue for dead letters."""
    catalog = call.endpoint.catalog
    source = _named(call, "SourceArn")
    namespace = catalog.namespace_of(source)
    if not catalog.sources_of(namespace, source.arn):
        raise errors.invalid("Source queue must be configured as a Dead Letter Queue.")
    goal = call.text("DestinationArn")
    if goal is not None:
        _check_goal(source, _named(call, "DestinationArn"))
    rate = call.integer("MaxNumberOfMessagesPerSecond")
    if rate is not None and not 1 <= rate <= RATE_MAX:
        reason = f"You must enter a number that's between 1 and {RATE_MAX}."
        raise errors.invalid(
            f"Value for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: {reason}"
        )
    if any(task["status"] in (RUNNING, CANCELLING) for task in source.record.tasks):
        raise errors.invalid(
            "There is already a task running. Only one active task is allowed for a source queue "
            "arn at a given time."
        )
    counts = source.counts()
    task: Task = {
        "id": new_id(),
        "status": RUNNING,
        "destination": goal,
        "rate": rate,
        "moved": 0,
        "to_move": counts["ApproximateNumberOfMessages"],
        "started_ms": source.clock.wall_now_ns() // 1_000_000,
        "failure": None,
    }
    source.record.tasks = [task, *source.record.tasks][:KEPT]
    catalog.keep(source)
    call.endpoint.moves.begin(source, task)
    return {"TaskHandle": _handle(source, task)}


def _check_goal(source: SqsQueue, goal: SqsQueue) -> None:
    if goal is source:
        raise errors.invalid("Source queue arn and destination queue arn cannot be the same.")
    if goal.is_fifo != source.is_fifo:
        raise errors.invalid(
            "The source queue and destination queue must be of the same queue type."
        )


async def cancel_message_move_task(call: Call) -> dict[str, Any]:
    """Ends a task; what it has moved stays moved."""
    task_id, arn = _parsed(call.required_text("TaskHandle"))
    source = call.endpoint.catalog.by_arn(arn)
    if source is None:
        raise errors.no_resource("SourceArn")
    task = next((one for one in source.record.tasks if one["id"] == task_id), None)
    if task is None:
        raise errors.Refusal("ResourceNotFoundException", "Task does not exist.")
    if task["status"] != RUNNING:
        text = "Only active tasks can be cancelled."
        raise errors.value("TaskHandle", call.required("TaskHandle"), text)
    task["status"] = CANCELLING
    call.endpoint.catalog.keep(source)
    return {"ApproximateNumberOfMessagesMoved": task["moved"]}


async def list_message_move_tasks(call: Call) -> dict[str, Any]:
    """The latest tasks of a queue, the newest first."""
    source = _named(call, "SourceArn")
    most = call.results_most(KEPT) or 1
    return {"Results": [_shown(source, task) for task in source.record.tasks[:most]]}


def _named(call: Call, name: str) -> SqsQueue:
    """The queue whose ARN the parameter says."""
    arn = call.text(name)
    if arn is None:
        raise errors.missing(name)
    if not arn.startswith("arn:") or arn.count(":") < 5:
        raise errors.no_arn(name)
    found = call.endpoint.catalog.by_arn(arn)
    if found is None:
        raise errors.no_resource(name)
    return found


def _shown(source: SqsQueue, task: Task) -> dict[str, Any]:
    shown = {
        "Status": task["status"],
        "SourceArn": source.arn,
        "ApproximateNumberOfMessagesMoved": task["moved"],
        "ApproximateNumberOfMessagesToMove": task["to_move"],
        "StartedTimestamp": task["started_ms"],
    }
    if task["status"] == RUNNING:
        shown["TaskHandle"] = _handle(source, task)
    optional = {
        "DestinationArn": task["destination"],
        "MaxNumberOfMessagesPerSecond": task["rate"],
        "FailureReason": task["failure"],
    }
    return shown | {name: value for name, value in optional.items() if value is not None}


def _handle(source: SqsQueue, task: Task) -> str:
    about = json.dumps({"taskId": task["id"], "sourceArn": source.arn})
    return base64.b64encode(about.encode()).decode()


def _parsed(handle: str) -> tuple[str, str]:
    try:
        found = json.loads(base64.b64decode(handle, validate=True))
        return str(found["taskId"]), str(found["sourceArn"])
    except (binascii.Error, ValueError, TypeError, KeyError, RecursionError):
        raise errors.invalid("Value for parameter TaskHandle is invalid.") from None


class Moves:
    """The tasks that move messages from one queue to another."""

    def __init__(self, catalog: Catalog, commits: Commits) -> None:
        """None runs yet: see `resume`."""
        self._catalog, self._commits = catalog, commits
        self._running: dict[str, asyncio.Task[None]] = {}

    def resume(self) -> None:
        """Goes on with what a server before this one had begun."""
        for source in self._catalog.with_tasks():
            for task in source.record.tasks:
                if task["status"] in (RUNNING, CANCELLING):
                    self.begin(source, task)

    def begin(self, source: SqsQueue, task: Task) -> None:
        """Starts to move the messages of `source` as `task` says."""
        running = asyncio.get_running_loop().create_task(self._run(source, task))
        self._running[source.arn] = running

    def end(self, source: SqsQueue) -> None:
        """The queue is about to be deleted."""
        running = self._running.pop(source.arn, None)
        if running is not None:
            running.cancel()

    async def close(self) -> None:
        """Ends them all; they go on with the next server."""
        running = list(self._running.values())
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, source: SqsQueue, task: Task) -> None:
        try:
            await self._move(source, task)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger("sqs").exception("moving messages of %s failed", source.name)
            task["status"], task["failure"] = "FAILED", _reason(error)
        else:
            is_cancelled = task["status"] == CANCELLING
            task["status"] = "CANCELLED" if is_cancelled else "COMPLETED"
        self._running.pop(source.arn, None)
        self._catalog.keep(source)

    async def _move(self, source: SqsQueue, task: Task) -> None:
        most = AT_ONCE if task["rate"] is None else 1
        while task["status"] == RUNNING:
            found = source.receive(most, LEASE_S)
            if not found:
                return
            touched = {self._put(source, message, task) for message in found}
            for goal in touched:
                await self._commits.wait(goal)
            for message in found:
                message.settle(True)
            await self._commits.wait(source)
            task["moved"] += len(found)
            await asyncio.sleep(0 if task["rate"] is None else 1 / task["rate"])

    def _put(self, source: SqsQueue, message: _core.Message, task: Task) -> SqsQueue:
        arn = task["destination"] or message.headers.get(SOURCE)
        goal = None if arn is None else self._catalog.by_arn(arn)
        if goal is None:
            message.settle(False)
            raise Unmovable(errors.no_queue().code if arn else "CouldNotDetermineMessageSource")
        headers = {name: one for name, one in message.headers.items() if name not in OURS}
        goal.adopt(message, headers, id=new_id())
        return goal


class Unmovable(PenstockError):
    """A message that names no queue to go back to."""


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Unmovable) else "InternalError"
