"""All actions by name: each reads its parameters, asks the engine, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.sqs import managing, moving, receiving, sending
from penstock.sqs.calls import Call

Later = asyncio.Future[dict[str, Any]] | Coroutine[Any, Any, dict[str, Any]]
"""An answer that is still to come."""
Action = Callable[[Call], dict[str, Any] | Later]

ACTIONS: dict[str, Action] = {
    "AddPermission": managing.add_permission,
    "CancelMessageMoveTask": moving.cancel_message_move_task,
    "ChangeMessageVisibility": receiving.change_message_visibility,
    "ChangeMessageVisibilityBatch": receiving.change_message_visibility_batch,
    "CreateQueue": managing.create_queue,
    "DeleteMessage": receiving.delete_message,
    "DeleteMessageBatch": receiving.delete_message_batch,
    "DeleteQueue": managing.delete_queue,
    "GetQueueAttributes": managing.get_queue_attributes,
    "GetQueueUrl": managing.get_queue_url,
    "ListDeadLetterSourceQueues": managing.list_dead_letter_source_queues,
    "ListMessageMoveTasks": moving.list_message_move_tasks,
    "ListQueueTags": managing.list_queue_tags,
    "ListQueues": managing.list_queues,
    "PurgeQueue": managing.purge_queue,
    "ReceiveMessage": receiving.receive_message,
    "RemovePermission": managing.remove_permission,
    "SendMessage": sending.send_message,
    "SendMessageBatch": sending.send_message_batch,
    "SetQueueAttributes": managing.set_queue_attributes,
    "StartMessageMoveTask": moving.start_message_move_task,
    "TagQueue": managing.tag_queue,
    "UntagQueue": managing.untag_queue,
}
