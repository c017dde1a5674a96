"""The two-party face of an `mfq` queue, as MappedFileQueues.Stream draws it.

    with MappedFileQueue("store", segment_size=512 << 20) as queue:
        queue.producer.produce(b"bytes")
        view = queue.consumer.consume()       # the same message again until commit
        queue.consumer.commit()

One producer and one consumer, each a program of its own or both in one; either side may be an
original program. `produce`, `consume` and `commit` are words of this face alone. The consumer's
progress is `consumer.offset`, which is also the default group's cursor: use one or the other.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from penstock import _core
from penstock.engine import codecs, positions, retrying_writer
from penstock.engine.queue import Queue
from penstock.errors import CodecError, FormatError, OptionError
from penstock.options import MIB, Durability, DurabilityName
from penstock.pacing import WAIT_TIMES
from penstock.records import dataclass

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

CONSUMER_FILE = Path("offset") / "consumer.offset"


class Serializer(Protocol[T_contra]):
    """Turns your objects into bytes."""

    def serialize(self, message: T_contra) -> bytes:
        """The bytes of `message`."""


class Deserializer(Protocol[T_co]):
    """Turns bytes into your objects."""

    def deserialize(self, buffer: memoryview) -> T_co:
        """The object in `buffer`, which is gone after the call: copy what you keep."""


class _CodecSerializer:
    """A serializer and deserializer made of one of our codecs."""

    def __init__(self, codec: codecs.Codec) -> None:
        self._codec = codec

    def serialize(self, message: object) -> bytes:
        """The bytes of `message`."""
        return self._codec.encode(message)

    def deserialize(self, buffer: memoryview) -> Any:
        """The object in `buffer`."""
        return self._codec.decode(buffer.tobytes())


class JsonSerializer(_CodecSerializer):
    """JSON, compact, UTF-8."""

    def __init__(self) -> None:
        super().__init__(codecs.JsonCodec())


class CborSerializer(_CodecSerializer):
    """CBOR, by the library cbor2, which must be installed."""

    def __init__(self) -> None:
        super().__init__(codecs.CborCodec())


class MsgspecSerializer:
    """MessagePack, by the library msgspec, which must be installed.

    With a `kind` (a `msgspec.Struct`, a dataclass, a `TypedDict` …) bytes become that and nothing
    else.
    """

    def __init__(self, kind: Any = Any) -> None:
        try:
            msgspec: Any = importlib.import_module("msgspec")
        except ImportError as error:
            expected = "msgspec to be installed (pip install msgspec)"
            raise OptionError("serializer", "msgspec", expected) from error
        self._wrong = (msgspec.MsgspecError, RecursionError, TypeError, OverflowError)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def serialize(self, message: Any) -> bytes:
        """The bytes of `message`."""
        try:
            encoded: bytes = self._encode(message)
        except self._wrong as error:
            raise CodecError(f"msgspec: {error}") from error
        return encoded

    def deserialize(self, buffer: memoryview) -> Any:
        """The object in `buffer`."""
        try:
            return self._decode(buffer)
        except self._wrong as error:
            raise CodecError(f"msgspec: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class MappedFileQueueOptions:
    """Names and defaults of the original, times in seconds."""

    store_path: str | os.PathLike[str]
    """The folder of the queue."""

    segment_size: int = 64 * MIB
    """Bytes of each segment, for a new queue; an existing one keeps its own."""

    consumer_retry_interval: float = 1.0
    """How long a consumer sleeps between looks. A producer of ours ends the sleep at once."""

    consumer_spin_wait_duration: float = 0.1
    """How long it spins before it sleeps."""

    durability: DurabilityName = "interval"
    """What survives a power loss (the original: nothing is synced)."""

    def __post_init__(self) -> None:
        for name, least in (
            ("consumer_retry_interval", 1e-6),
            ("consumer_spin_wait_duration", 0.0),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= 86400.0):
                raise OptionError(name, value, f"{least:g} to 86400 seconds")


class _Opening:
    """What the native producer and consumer ask for, in a forked child once more. It refers to
    neither of them, so each is freed as soon as the program drops it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def writer(self) -> _core.Writer:
        """What appends; an error once the queue was closed."""
        self._queue.ensure_open()
        return self._queue.store.need_writer()

    def opening(self) -> tuple[_core.Shared, _core.Publish, Path]:
        """The shared words, the end, and where the consumer's progress is."""
        self._queue.ensure_open()
        store = self._queue.store
        assert store.publish is not None
        return store.need_shared(), store.publish, self._queue.path / CONSUMER_FILE

    def segment_at(self, offset: int) -> _core.Segment:
        """The segment that `offset` is in."""
        return self._queue.store.segment_at(offset)

    def follow(self) -> None:
        """Takes over what another program has produced."""
        self._queue.store.follow()


class Producer:
    """Writes objects to the queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        if isinstance(retrying_writer.writer(queue), _core.Writer):
            # One call from Python to bytes.
            self.produce = _core.MfqProducer(_Opening(queue)).produce  # type: ignore[method-assign]

    @property
    def next_offset(self) -> int:
        """Where the next message will be written."""
        return self._queue.offsets().tail

    @overload
    def produce(self, message: bytes | bytearray | memoryview) -> int: ...
    @overload
    def produce(self, message: T, serializer: Serializer[T]) -> int: ...
    def produce(self, message: object, serializer: Serializer[Any] | None = None) -> int:
        """Writes bytes, or an object through its serializer; returns the message's offset."""
        return self._queue.put(message if serializer is None else serializer.serialize(message))

    @overload
    def produce_many(self, messages: Iterable[bytes | bytearray | memoryview]) -> int | None: ...
    @overload
    def produce_many(self, messages: Iterable[T], serializer: Serializer[T]) -> int | None: ...
    def produce_many(
        self, messages: Iterable[Any], serializer: Serializer[Any] | None = None
    ) -> int | None:
        """Writes many, in order; returns the first one's offset, none when there are none.

        They become visible together; only more than half a segment goes in pieces.
        """
        if serializer is not None:
            messages = [serializer.serialize(message) for message in messages]
        return self._queue.put_many(messages)


class Consumer:
    """The reading side: the same message, or messages, until they are committed."""

    def __init__(self, queue: Queue, options: MappedFileQueueOptions) -> None:
        self._queue = queue
        self._core = _core.MfqConsumer(
            _Opening(queue), spin_s=options.consumer_spin_wait_duration,
            retry_s=options.consumer_retry_interval, wait_times=WAIT_TIMES,
            always=queue.options.durability is Durability.ALWAYS,
        )  # fmt: skip
        # One call from Python to bytes.
        self.consume = self._core.consume  # type: ignore[method-assign]
        self.commit = self._core.commit  # type: ignore[method-assign]

    @property
    def next_offset(self) -> int:
        """The next offset to consume; it may be set until the first `consume`."""
        return self._core.next_offset

    @next_offset.setter
    def next_offset(self, offset: int) -> None:
        self._core.next_offset = positions.check(self._queue.store, offset)

    @overload
    def consume(self, *, timeout: float | None = None) -> memoryview: ...
    @overload
    def consume(self, deserializer: type[bytes], *, timeout: float | None = None) -> bytes: ...
    @overload
    def consume(self, deserializer: Deserializer[T], *, timeout: float | None = None) -> T: ...
    def consume(self, deserializer: Any = None, *, timeout: float | None = None) -> Any:
        """The next message: a view of the mapped file, not copied, that ends with `commit`.

        `consume(bytes)` gives a copy that is yours, `consume(deserializer)` an object. Waits for a
        message: spins first, then looks again at intervals. `Empty` after `timeout` seconds;
        without one it waits for ever.
        """
        return self._core.consume(deserializer, timeout=timeout)

    def commit(self) -> None:
        """Marks what was consumed as done; raises `CommitError` when nothing was consumed."""
        self._core.commit()

    def sync(self) -> None:
        """Returns when the progress is on the disk."""
        self._core.sync()

    @overload
    def consume_many(self, limit: int = 1000, *, timeout: float | None = None) -> list[bytes]: ...
    @overload
    def consume_many(
        self, limit: int, deserializer: Deserializer[T], *, timeout: float | None = None
    ) -> list[T]: ...
    def consume_many(
        self,
        limit: int = 1000,
        deserializer: Deserializer[T] | None = None,
        *,
        timeout: float | None = None,
    ) -> list[bytes] | list[T]:
        """Up to `limit` messages in order, as soon as there is one, as bytes that are yours.

        Fewer may come though more are there: at the end of a segment. The same ones come again
        until `commit`, which is for all of them. Waits as `consume` does.
        """
        found = self._core.consume_many(limit, timeout=timeout)
        if deserializer is None:
            return found
        return [deserializer.deserialize(memoryview(body)) for body in found]

    def close(self) -> None:
        """Ends the view that was handed out."""
        self._core.close()


class MappedFileQueue:
    """A queue of the format with its one producer and its one consumer."""

    options: MappedFileQueueOptions
    queue: Queue

    def __init__(
        self, store_path: str | os.PathLike[str] | MappedFileQueueOptions, **options: Any
    ) -> None:
        """Opens the store, or makes it; `options` are those of `MappedFileQueueOptions`."""
        if isinstance(store_path, MappedFileQueueOptions):
            self.options = store_path
        else:
            self.options = MappedFileQueueOptions(store_path=store_path, **options)
        path = Path(self.options.store_path)
        self.queue = Queue(
            path, format="mfq", segment_bytes=self.options.segment_size,
            durability=self.options.durability,
        )  # fmt: skip
        if self.queue.store.format.name != "mfq":
            self.queue.close()
            raise FormatError(
                path, f"a queue of format {self.queue.store.format.name}", "use Queue"
            )

    @cached_property
    def producer(self) -> Producer:
        """The producer of this queue."""
        return Producer(self.queue)

    @cached_property
    def consumer(self) -> Consumer:
        """The consumer of this queue."""
        return Consumer(self.queue, self.options)

    def close(self) -> None:
        """Syncs and lets go."""
        consumer = self.__dict__.pop("consumer", None)
        if isinstance(consumer, Consumer):
            consumer.close()
            if not self.queue.is_closed and not self.queue.is_poisoned:
                consumer.sync()
        self.queue.close()

    def __enter__(self) -> MappedFileQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
