"""Early acks as Celery describes them: a message is acked just before its task runs.

Celery's workers ack a little later than that. A child of the prefork pool begins a task and tells
its parent, and the parent acks when its event loop turns the next time. If the parent is killed in
between, another worker runs the task again. Workers on a folder get one step more. It acks a task
before the prefork pool gets it, which is when a child is free to run it. Other pools run tasks in
the worker's own process, and may line them up: there it acks when the task's turn has come.

`Transport` imports this module in programs that use Celery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.signals import worker_init
from kombu.log import get_logger

if TYPE_CHECKING:  # Celery ships no types.
    from penstock.hints import Untyped as Step
else:
    from celery.bootsteps import Step

LOGGER = get_logger("celery.worker.request")
"""Celery's own says what is wrong with an ack, as ever."""


class AckFirst(Step):
    """A step of a worker's start, after its pool is there and before anything is consumed."""

    requires: tuple[str, ...] = ("celery.worker.components:Pool",)

    def include_if(self, worker: Any) -> bool:
        """Only for brokers that are folders: `Message.ack_log_error` may be called twice there."""
        found: str = worker.app.connection_for_read().get_transport_cls().driver_type
        return found == "penstock"

    def create(self, worker: Any) -> None:
        """Puts the ack into the pool's way to run a task."""
        run, is_child_free = worker.pool.apply_async, worker.pool.uses_semaphore

        def ack_and_run(*args: Any, accept_callback: Any, **options: Any) -> Any:
            request = accept_callback.__self__

            def accepted(*told: Any) -> None:
                ack(request)
                accept_callback(*told)

            if is_child_free:
                ack(request)
                return run(*args, accept_callback=accept_callback, **options)
            return run(*args, accept_callback=accepted, **options)

        worker.pool.apply_async = ack_and_run


def ack(request: Any) -> None:
    """Acks at once, not when the worker's loop turns."""
    if not request.task.acks_late:
        request.message.ack_log_error(LOGGER, request.connection_errors)


def add_step(sender: Any, **_: Any) -> None:
    """Called for each worker that starts."""
    sender.app.steps["worker"].add(AckFirst)


worker_init.connect(add_step, dispatch_uid="penstock.early_acks")
