"""kombu, and so Celery, without a broker: a folder of queues is the broker.

    import penstock.kombu                                # gives the short name to kombu
    app = Celery("shop", broker="penstock:///var/lib/jobs")

A kombu queue is a penstock queue under the folder: acks are acks of leases, so what a killed worker
had goes to another one as soon as that is noticed; the visibility timeout is the lease's; an ETA is
a delay. A queue has a part for each priority that is used, and one for what is delayed: a log gives
space back in order, and what waits for next week must not hold the rest. Exchanges and bindings are
one small file that all processes share, so direct, topic and fan-out exchanges work between them.
"""

from __future__ import annotations

from penstock.engine import optional_packages

with optional_packages.needed("kombu", "celery", "the broker for kombu and Celery"):
    from penstock.kombu.channel import Channel, Message, QoS
    from penstock.kombu.transport import Transport

__all__ = ["Channel", "Message", "QoS", "Transport"]
