"""zbus, VQS and MappedFileQueues beside penstock: twins of their programs, turn by turn.

Nothing that either of them put is lost, nothing that was acked comes again, and every state that
penstock leaves is one that the original goes on from.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.options import DurabilityName
from tests.crash.killing import in_a_small_process
from tests.originals import mfq_twin, vqs_twin, zbus_twin
from tests.originals.alternation import Alternation, Point, Say, number_of
from tests.originals.zbus_twin import HISTORIES

pytestmark = pytest.mark.crash
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
SEED = int(os.environ.get("PENSTOCK_SEED", "20261116"))
RUNS = 6
RUNS_SLOW = int(os.environ.get("PENSTOCK_TWIN_RUNS", "200"))
SEGMENT = 16384


def put_each(
    put: Callable[[bytes], Any], bodies: list[bytes], say: Say
) -> None:  # fmt: skip
    for body in bodies:
        say("trying", number_of(body))
        if put(body) is not False:
            say("put", number_of(body))


class Zbus:
    """The Java or Go program of one history."""

    deletes = False
    alone_after = frozenset({"block-count", "block-entry"})

    def __init__(self, layout: str) -> None:
        self.history = HISTORIES[layout]

    def points(self) -> tuple[str, ...]:
        return ("data", "end", "count", "block-count", "block-entry")

    def put(self, path: Path, bodies: list[bytes], say: Say, point: Point) -> None:
        writer = zbus_twin.Writer(path, self.history, SEGMENT, point)
        put_each(lambda body: writer.write(body, id=f"m{number_of(body)}"), bodies, say)

    def take(self, path: Path, count: int, about: Callable[[bytes], None]) -> Iterator[bytes]:
        if not count:
            return
        reader = zbus_twin.Reader(path, "default", self.history)
        for _ in range(count):
            if (body := reader.read(about)) is None:
                return
            yield body

    def can_go_on(self, path: Path) -> bool:
        return zbus_twin.can_step_on(path, self.history)

    def everything(self, path: Path) -> list[bytes]:
        return zbus_twin.everything(path, self.history)


class Vqs:
    """The Go program."""

    deletes = True
    alone_after = frozenset[str]()

    def __init__(self, layout: str) -> None:
        self.layout = layout

    def points(self) -> tuple[str, ...]:
        return ("data", "header")

    def put(self, path: Path, bodies: list[bytes], say: Say, point: Point) -> None:
        put_each(vqs_twin.Ring(path, self.layout, point).push, bodies, say)

    def take(self, path: Path, count: int, about: Callable[[bytes], None]) -> Iterator[bytes]:
        ring = vqs_twin.Ring(path, self.layout)
        for _ in range(count):
            if (body := ring.pop(about)) is None:
                return
            yield body

    def can_go_on(self, path: Path) -> bool:
        return True

    def everything(self, path: Path) -> list[bytes]:
        return vqs_twin.Ring(path, self.layout).everything()


class Mfq:
    """The .NET producer and consumer."""

    deletes = False
    alone_after = frozenset({"data"})

    def points(self) -> tuple[str, ...]:
        return ("segment-end", "segment", "data", "offset")

    def put(self, path: Path, bodies: list[bytes], say: Say, point: Point) -> None:
        put_each(mfq_twin.Producer(path, SEGMENT, point).produce, bodies, say)

    def take(self, path: Path, count: int, about: Callable[[bytes], None]) -> Iterator[bytes]:
        consumer = mfq_twin.Consumer(path, SEGMENT)
        for _ in range(count):
            if (body := consumer.consume()) is None:
                return
            about(body)
            consumer.commit()
            yield body

    def can_go_on(self, path: Path) -> bool:
        return True

    def everything(self, path: Path) -> list[bytes]:
        return mfq_twin.everything(path, SEGMENT)


PARTIES: dict[str, tuple[Any, dict[str, Any]]] = {
    **{
        f"zbus-{name}": (Zbus(name), {"format": "zbus", "layout": name, "segment_bytes": SEGMENT})
        for name in HISTORIES
    },
    "vqs-doc": (Vqs("doc"), {"format": "vqs", "layout": "doc", "max_bytes": 65536}),
    "vqs-stage4": (Vqs("stage4"), {"format": "vqs", "layout": "stage4", "max_bytes": 65536}),
    "mfq": (Mfq(), {"format": "mfq", "segment_bytes": SEGMENT}),
}
FIRST_BY_THE_ORIGINAL = {"zbus-flag-late", "zbus-corr-go", "zbus-corr-abs"}
"""Layouts that penstock opens and appends to, and does not create."""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-twins-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def alternate(folder: Path, name: str, first: int, runs: int) -> None:
    for seed in range(first, first + runs):
        one_run(folder, name, seed)


def one_run(folder: Path, name: str, seed: int) -> Alternation:
    twin, options = PARTIES[name]
    path = folder / "run" / ("queue.bin" if name == "vqs-doc" else "queue")
    first = "twin" if name in FIRST_BY_THE_ORIGINAL or seed % 2 else "penstock"
    run = Alternation(path, twin, options, seed)
    run.run(first)
    return run


@pytest.mark.parametrize("name", list(PARTIES))
def test_penstock_and_an_original_in_turn_lose_and_repeat_nothing(folder: Path, name: str) -> None:
    in_a_small_process(alternate, folder, name, SEED, RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PARTIES))
def test_penstock_and_an_original_in_turn_at_length(folder: Path, name: str) -> None:
    in_a_small_process(alternate, folder, name, SEED + 1_000_000, RUNS_SLOW)


@pytest.mark.parametrize("level", ["process", "always"])
def test_a_frame_that_an_mfq_consumer_took_before_its_word_is_no_obstacle(
    tmp_path: Path, level: DurabilityName
) -> None:
    """A killed producer left it behind `producer.offset`; the consumer never looks there."""

    def killed(point: str) -> None:
        if point == "data" and producer.next:
            raise InterruptedError

    path = tmp_path / "q"
    producer = mfq_twin.Producer(path, SEGMENT, killed)
    producer.produce(b"told")
    with pytest.raises(InterruptedError):
        producer.produce(b"untold")
    consumer = mfq_twin.Consumer(path, SEGMENT)
    for _ in range(2):
        consumer.consume()
        consumer.commit()
    with Queue(path, create=False, durability=level) as queue:
        queue.put(b"next")
        assert [message.body for message in queue.get_many(9, 0)] == [b"next"]
    assert mfq_twin.everything(path, SEGMENT)[-1] == b"next"


def test_a_zbus_folder_in_which_nothing_was_queued_yet_opens(tmp_path: Path) -> None:
    """A consumer came first: there is an index and a reader, and no block."""
    history = HISTORIES["crc"]
    zbus_twin.Reader(tmp_path / "q", "default", history)
    with Queue(tmp_path / "q", create=False) as queue:
        queue.put(b"first", id="1")
    assert zbus_twin.Reader(tmp_path / "q", "default", history).read() == b"first"


def main() -> None:
    """`python -m tests.originals.test_twins NAME [SEED [RUNS]]`: every seed that fails, in full."""
    import sys

    name, seed, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    folder, failures = MEMORY / f"penstock-twins-{os.getpid()}", 0
    for turn in range(seed, seed + runs):
        try:
            one_run(folder, name, turn)
        except AssertionError as error:
            failures += 1
            print(error)
    print(f"{name}: {failures} of {runs} runs failed")
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
