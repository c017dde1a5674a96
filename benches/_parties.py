"""Ways from one process to another, each as a sender and a receiver of bytes.

A party is made here, its sender is opened in the other process and its receiver in this one.
`receive(spinning)` gives a function that waits until a message is there and returns its bytes;
`None` waits as it does by default.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import itertools
import multiprocessing
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import penstock
from penstock.engine.mfq import MappedFileQueue

CONTEXT = multiprocessing.get_context("spawn")
Send = Callable[[bytes], object]
Receive = Callable[[], bytes]
SendMany = Callable[[list[bytes]], object]
ReceiveMany = Callable[[], int]
MANY = 1000
SEGMENT_BYTES = 256 << 20


def load(name: str) -> Any:
    """A library that need not be there, and has no types."""
    return importlib.import_module(name)


class Party:
    """One way; `stack` closes what it opens."""

    name: str
    needs: str = ""
    """The library, where it is not ours or Python's."""

    def __init__(self, folder: Path) -> None:
        self.address: Any = folder / type(self).__name__

    @classmethod
    def missing(cls) -> str:
        """Why it can't take part; empty when it can."""
        if cls.needs and importlib.util.find_spec(cls.needs) is None:
            return f"{cls.name} is left out: {cls.needs} is not installed (benches/against)"
        return ""

    def send(self, stack: ExitStack) -> Send:
        raise NotImplementedError

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        raise NotImplementedError

    has_lists: bool = False
    """Whether it has calls for many messages at once."""

    def send_many(self, stack: ExitStack) -> SendMany:
        raise NotImplementedError

    def receive_many(self, stack: ExitStack) -> ReceiveMany:
        """Takes up to a thousand, each as bytes; answers how many."""
        raise NotImplementedError


class Face(Party):
    """The two-party face of mfq."""

    name = "mfq face"

    def _open(self, stack: ExitStack, spinning: bool | None = None) -> MappedFileQueue:
        spin = {None: 0.1, True: 10.0, False: 0.0}[spinning]
        return stack.enter_context(
            MappedFileQueue(
                self.address, segment_size=SEGMENT_BYTES, consumer_spin_wait_duration=spin
            )
        )

    def send(self, stack: ExitStack) -> Send:
        return self._open(stack).producer.produce

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        consumer = self._open(stack, spinning).consumer
        consume, commit = consumer.consume, consumer.commit

        def receive() -> bytes:
            body = consume(bytes)
            commit()
            return body

        return receive

    has_lists = True

    def send_many(self, stack: ExitStack) -> SendMany:
        return self._open(stack).producer.produce_many

    def receive_many(self, stack: ExitStack) -> ReceiveMany:
        consumer = self._open(stack).consumer
        consume_many, commit = consumer.consume_many, consumer.commit

        def receive() -> int:
            found = consume_many(MANY)
            commit()
            return len(found)

        return receive


class Mfq(Party):
    """The format through `Queue`."""

    name = "mfq queue"
    format = "mfq"

    def send(self, stack: ExitStack) -> Send:
        return self._open(stack).put

    def _open(self, stack: ExitStack) -> penstock.Queue:
        return stack.enter_context(
            penstock.Queue(self.address, format=self.format, segment_bytes=SEGMENT_BYTES)
        )

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        group = self._open(stack).group(ack="auto")
        get, get_many = group.get, group.get_many
        if not spinning:
            return lambda: get(10).body

        def spin() -> bytes:
            while not (found := get_many(1)):
                pass
            return found[0].body

        return spin

    has_lists = True

    def send_many(self, stack: ExitStack) -> SendMany:
        return self._open(stack).put_many

    def receive_many(self, stack: ExitStack) -> ReceiveMany:
        get_many = self._open(stack).group(ack="auto").get_many
        return lambda: len([message.body for message in get_many(MANY, 10)])


class Penstock(Mfq):
    """Our own format."""

    name = "penstock queue"
    format = "penstock"


class Pipe(Party):
    """`multiprocessing.Pipe`."""

    name = "multiprocessing.Pipe"

    def __init__(self, folder: Path) -> None:
        ours, theirs = CONTEXT.Pipe(duplex=False)
        self.address = (ours, theirs)

    def send(self, stack: ExitStack) -> Send:
        return self.address[1].send_bytes  # type: ignore[no-any-return]

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        return self.address[0].recv_bytes  # type: ignore[no-any-return]


class Zmq(Party):
    """PUSH and PULL over a Unix socket."""

    name = "pyzmq ipc"
    needs = "zmq"

    def _socket(self, stack: ExitStack, kind: str) -> Any:
        zmq = load("zmq")
        context = stack.enter_context(zmq.Context())
        socket = stack.enter_context(context.socket(getattr(zmq, kind)))
        socket.set_hwm(100_000)
        return socket

    def send(self, stack: ExitStack) -> Send:
        socket = self._socket(stack, "PUSH")
        socket.connect(f"ipc://{self.address}")
        return socket.send  # type: ignore[no-any-return]

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        socket = self._socket(stack, "PULL")
        socket.bind(f"ipc://{self.address}")
        return socket.recv  # type: ignore[no-any-return]


class FasterFifo(Party):
    """Its queue in shared memory, bytes as they are."""

    name = "faster-fifo"
    needs = "faster_fifo"

    def __init__(self, folder: Path) -> None:
        self.address = load("faster_fifo").Queue(64 << 20)
        self.address.loads, self.address.dumps = bytes, bytes

    def send(self, stack: ExitStack) -> Send:
        return self.address.put  # type: ignore[no-any-return]

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        return lambda: self.address.get(timeout=10)

    has_lists = True

    def send_many(self, stack: ExitStack) -> SendMany:
        return self.address.put_many  # type: ignore[no-any-return]

    def receive_many(self, stack: ExitStack) -> ReceiveMany:
        return lambda: len(self.address.get_many(timeout=10, max_messages_to_get=MANY))


class Iceoryx(Party):
    """Publish and subscribe in shared memory; its subscriber polls."""

    name = "iceoryx2 polling"
    needs = "iceoryx2"

    def __init__(self, folder: Path) -> None:
        self.address = folder.name

    def _service(self) -> Any:
        iox2 = load("iceoryx2")
        node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        service = node.service_builder(iox2.ServiceName.new(self.address))
        kind = service.publish_subscribe(iox2.Slice[ctypes.c_uint8])
        return node, kind.subscriber_max_buffer_size(1024).enable_safe_overflow(False)

    def send(self, stack: ExitStack) -> Send:
        iox2 = load("iceoryx2")
        node, service = self._service()
        builder = service.open_or_create().publisher_builder().initial_max_slice_len(2048)
        wait = iox2.BackpressureStrategy.RetryUntilDelivered
        publisher = builder.backpressure_strategy(wait).create()
        stack.callback(lambda: (publisher, node))

        def send(body: bytes) -> None:
            sample = publisher.loan_slice_uninit(len(body))
            ctypes.memmove(sample.payload().as_ptr(), body, len(body))
            sample.assume_init().send()

        return send

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        node, service = self._service()
        subscriber = service.open_or_create().subscriber_builder().create()
        stack.callback(lambda: (subscriber, node))

        def receive() -> bytes:
            while (sample := subscriber.receive()) is None:
                pass
            payload = sample.payload()
            return ctypes.string_at(payload.as_ptr(), payload.len())

        return receive


class Lmdb(Party):
    """A queue by hand in a tree that nobody syncs: what survives a killed process, as ours does."""

    name = "py-lmdb by hand"
    needs = "lmdb"

    _env: Any = None

    def _open(self, stack: ExitStack) -> Any:
        if self._env is None:  # Once in a process.
            lmdb = load("lmdb")
            self._env = lmdb.open(
                str(self.address), map_size=4 << 30, sync=False, metasync=False, writemap=True
            )
            stack.callback(self._env.close)
        return self._env

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_env": None}

    def send(self, stack: ExitStack) -> Send:
        send_many = self.send_many(stack)
        return lambda body: send_many([body])

    def receive(self, stack: ExitStack, *, spinning: bool | None) -> Receive:
        take = self._taker(stack, 1)
        return lambda: take()[0]

    has_lists = True

    def send_many(self, stack: ExitStack) -> SendMany:
        env, numbers = self._open(stack), itertools.count()

        def send(bodies: list[bytes]) -> None:
            with env.begin(write=True) as change:
                for body in bodies:
                    change.put(next(numbers).to_bytes(8, "big"), body, append=True)

        return send

    def receive_many(self, stack: ExitStack) -> ReceiveMany:
        take = self._taker(stack, MANY)
        return lambda: len(take())

    def _taker(self, stack: ExitStack, most: int) -> Callable[[], list[bytes]]:
        env = self._open(stack)

        def take() -> list[bytes]:
            while True:
                with env.begin() as look:  # Who only looks is in nobody's way.
                    if not look.stat()["entries"]:
                        continue
                with env.begin(write=True) as change:
                    cursor = change.cursor()
                    found: list[bytes] = []
                    while len(found) < most and cursor.first():
                        found.append(bytes(cursor.value()))
                        cursor.delete()
                    if found:  # Else another was faster.
                        return found

        return take


OURS: tuple[type[Party], ...] = (Face, Mfq, Penstock)
OTHERS: tuple[type[Party], ...] = (Pipe, Zmq, FasterFifo, Iceoryx, Lmdb)
