"""A queue against a list: whatever is done in whatever order, the list says what must come out."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock import ManualClock, Message, Queue

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KEYS = st.sampled_from([None, "a", "b"])
VISIBILITY = 30.0


class Model(RuleBasedStateMachine):
    """Per group: what was handed out and when it is free again."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.clock = ManualClock()
        self.put: list[tuple[str | None, float]] = []
        self.offsets: list[int] = []
        self.acked: dict[str, set[int]] = {"one": set(), "two": set()}
        self.out: dict[str, dict[int, tuple[Message, float]]] = {"one": {}, "two": {}}
        self.held: dict[str, dict[int, float]] = {"one": {}, "two": {}}
        self.open()

    def open(self) -> None:
        self.queue = Queue(
            self.folder / "q", clock=self.clock, durability="process", segment_bytes=16384,
            **self.options,
        )  # fmt: skip
        for name in self.out:
            self.queue.group(name)

    def now(self) -> float:
        return self.clock.wall()

    # ── putting ────────────────────────────────────────────────────────────────────────────

    def body(self, number: int, size: int) -> bytes:
        return b"%06d" % number + bytes([number % 251]) * size

    @rule(key=KEYS, delay=st.sampled_from([0, 0, 0, 5, 40]), size=st.sampled_from([0, 10, 3000]))
    def put_one(self, key: str | None, delay: int, size: int) -> None:
        body = self.body(len(self.put), size)
        self.offsets.append(self.queue.put(body, key=key, delay=delay or None))
        self.put.append((key, self.now() + delay))

    @rule(count=st.integers(1, 8))
    def put_several(self, count: int) -> None:
        first = len(self.put)
        self.queue.put_many([self.body(first + i, 20) for i in range(count)])
        self.put += [(None, self.now())] * count
        self.offsets = [message.offset or 0 for message in self.queue.scan()]

    # ── getting ────────────────────────────────────────────────────────────────────────────

    def may_come(self, group: str, number: int) -> bool:
        """Not acked, due, not out, not held back, and nothing before it with its key."""
        key, due = self.put[number]
        busy = self.out[group].get(number, (None, 0.0))[1] > self.now()
        if number in self.acked[group] or due > self.now() or busy:
            return False
        if self.held[group].get(number, 0.0) > self.now():
            return False
        earlier = [n for n in range(number) if self.put[n][0] == key and key is not None]
        return all(n in self.acked[group] for n in earlier)

    @rule(group=st.sampled_from(["one", "two"]), count=st.integers(1, 6))
    def get(self, group: str, count: int) -> None:
        expected = [n for n in range(len(self.put)) if self.may_come(group, n)]
        got = self.queue.group(group).get_many(count, visibility=VISIBILITY)
        numbers = [int(message.body[:6]) for message in got]
        assert all(
            m.body == self.body(n, len(m.body) - 6) for m, n in zip(got, numbers, strict=True)
        )
        assert set(numbers) <= set(expected), f"{numbers} came, only {expected} may"
        assert len(numbers) == len(set(numbers))
        # One key gives one message at a time, so fewer than all may come at once, never none.
        assert bool(numbers) == bool(expected), f"nothing came of {expected}"
        for number, message in zip(numbers, got, strict=True):
            self.out[group][number] = message, self.now() + VISIBILITY
            self.held[group].pop(number, None)

    def leased(self, group: str) -> list[int]:
        return [n for n, (_, until) in self.out[group].items() if until > self.now()]

    @precondition(lambda self: self.leased("one") or self.leased("two"))
    @rule(data=st.data(), what=st.sampled_from(["ack", "ack", "nack", "later", "extend"]))
    def settle(self, data: st.DataObject, what: str) -> None:
        group = data.draw(st.sampled_from([name for name in self.out if self.leased(name)]))
        number = data.draw(st.sampled_from(self.leased(group)))
        message, _ = self.out[group][number]
        if what == "extend":
            message.extend(100)
            self.out[group][number] = message, self.now() + 100
            return
        del self.out[group][number]
        if what == "ack":
            message.ack()
            self.acked[group].add(number)
        else:
            delay = 7.0 if what == "later" else 0.0
            message.nack(delay)
            self.held[group][number] = self.now() + delay

    # ── time and trouble ───────────────────────────────────────────────────────────────────

    @rule(seconds=st.sampled_from([0.5, 6, 31, 200]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def reopen(self) -> None:
        self.queue.close()
        self.forget_leases()
        self.open()

    @rule()
    def restart(self) -> None:
        self.queue.close()
        self.forget_leases()
        self.clock.restart()
        self.open()

    @rule()
    def die(self) -> None:
        """As if the process were killed: nothing is closed, its locks are gone."""
        image = self.folder / "image"
        shutil.copytree(self.folder / "q", image)
        self.queue.close()
        shutil.rmtree(self.folder / "q")
        image.rename(self.folder / "q")
        self.forget_leases()
        self.open()

    def forget_leases(self) -> None:
        for name in self.out:
            self.out[name].clear()

    @invariant()
    def everything_is_there(self) -> None:
        numbers = [int(message.body[:6]) for message in self.queue.scan()]
        assert numbers == list(range(len(self.put)))

    def teardown(self) -> None:
        assert self.queue.verify().is_ok
        self.queue.close()
        shutil.rmtree(self.folder)


class Compressed(Model):
    options: ClassVar[dict[str, Any]] = {"compression": "lz4"}


class Encrypted(Model):
    options: ClassVar[dict[str, Any]] = {"key": bytes(range(32))}


def run(model: type[Model], examples: int, steps: int) -> None:
    case = model.TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, print_blob=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    case().runTest()


MODELS = {"plain": Model, "compressed": Compressed, "encrypted": Encrypted}


@pytest.mark.parametrize("kind", MODELS)
def test_the_queue_does_what_the_list_says(kind: str) -> None:
    run(MODELS[kind], 40 if kind == "plain" else 15, 40)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_the_queue_does_what_the_list_says_for_a_long_time(kind: str) -> None:
    run(MODELS[kind], 3000, 100)
