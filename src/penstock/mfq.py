"""The face of MappedFileQueues.Stream: one producer and one consumer on a store of format `mfq`.

    from penstock.mfq import MappedFileQueue

    with MappedFileQueue("store", segment_size=512 << 20) as queue:
        queue.producer.produce(b"bytes")
        view = queue.consumer.consume()
        queue.consumer.commit()

The names are those of the original program, not the ones of `Queue`.
"""

from penstock.engine.mfq import (
    CborSerializer,
    Consumer,
    Deserializer,
    JsonSerializer,
    MappedFileQueue,
    MappedFileQueueOptions,
    MsgspecSerializer,
    Producer,
    Serializer,
)
from penstock.errors import CommitError

__all__ = [
    "CborSerializer",
    "CommitError",
    "Consumer",
    "Deserializer",
    "JsonSerializer",
    "MappedFileQueue",
    "MappedFileQueueOptions",
    "MsgspecSerializer",
    "Producer",
    "Serializer",
]
