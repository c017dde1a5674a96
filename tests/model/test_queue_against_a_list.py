"""A queue against a list: whatever is done in whatever order, the list says what must come out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from penstock import ManualClock, Message, Queue, ReceiptError
from penstock.engine import open_queues
from penstock.options import AckMode
from tests.model.held import Held
from tests.opening import small_segments

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KEYS = st.sampled_from([None, "a", "b"])
GROUPS: dict[str, AckMode] = {"one": "lease", "two": "lease", "auto": "auto"}
ANY_GROUP = st.sampled_from(list(GROUPS))
VISIBILITY_S, EXTENDED_S = 30.0, 100.0
SLACK_S = 0.001


class Model(RuleBasedStateMachine):
    """Per group: what is not done, when it may come, and which receipts are out."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.clock = ManualClock()
        self.now = 0.0
        self.keys: list[str | None] = []
        self.fresh: list[Held] = []
        """Each message as a group that has not seen it must treat it."""
        self.head = 0
        self.todo: dict[str, dict[int, Held]] = {name: {} for name in GROUPS}
        self.out: dict[str, dict[int, Message]] = {name: {} for name in GROUPS}
        self.queue = self.open()

    def open(self) -> Queue:
        queue = Queue(
            self.folder / "q", clock=self.clock, durability="process",
            **small_segments(self.options.get("format", "penstock")), **self.options,
        )  # fmt: skip
        for name, ack in GROUPS.items():
            queue.group(name, ack=ack)
        return queue

    def holds(self) -> Iterator[Held]:
        yield from self.fresh
        for todo in self.todo.values():
            yield from todo.values()

    # ── putting ────────────────────────────────────────────────────────────────────────────

    def body(self, number: int, size: int) -> bytes:
        return b"%06d" % number + bytes([number % 251]) * size

    def was_put(self, key: str | None, delay: float) -> None:
        number = len(self.keys)
        self.keys.append(key)
        self.fresh.append(Held(delay, self.now))
        for todo in self.todo.values():
            todo[number] = copy(self.fresh[number])

    @rule(key=KEYS, delay=st.sampled_from([0, 0, 0, 5, 40]), size=st.sampled_from([0, 10, 3000]))
    def put_one(self, key: str | None, delay: int, size: int) -> None:
        self.queue.put(self.body(len(self.keys), size), key=key, delay=delay or None)
        self.was_put(key, delay)

    @rule(count=st.integers(1, 8))
    def put_several(self, count: int) -> None:
        first = len(self.keys)
        self.queue.put_many([self.body(first + i, 20) for i in range(count)])
        for _ in range(count):
            self.was_put(None, 0)

    # ── getting ────────────────────────────────────────────────────────────────────────────

    def is_first_of_its_key(self, group: str, number: int, came: set[int]) -> bool:
        """Nothing before it with its key is still to be done."""
        key = self.keys[number]
        earlier = (n for n in self.todo[group] if n < number and n not in came)
        return key is None or not any(self.keys[n] == key for n in earlier)

    def check_came(self, group: str, numbers: list[int], count: int) -> None:
        """Each may come; and if fewer came than were asked for, none that had to is missing."""
        todo, came = self.todo[group], set[int]()
        must = set[int]()
        for number in sorted(todo):
            is_due = todo[number].latest() + SLACK_S <= self.now
            before = must if GROUPS[group] == "auto" else set[int]()
            if is_due and self.is_first_of_its_key(group, number, before):
                must.add(number)
        for number in numbers:
            assert number in todo, f"{number} was done and came again"
            early = todo[number].earliest() - SLACK_S - self.now
            assert early <= 0, f"{number} came {early} s early"
            before = came if GROUPS[group] == "auto" else set()
            assert self.is_first_of_its_key(group, number, before), f"{number} before its time"
            came.add(number)
        assert len(came) == len(numbers), f"twice: {numbers}"
        assert bool(numbers) >= bool(must), f"nothing came of {must}"
        if len(numbers) < count:
            assert must <= came, f"{must - came} did not come"
            for held in todo.values():
                held.looked_at = self.now if held.looked_at is None else held.looked_at

    def was_given(self, group: str, number: int, message: Message | None) -> None:
        if GROUPS[group] == "auto":
            del self.todo[group][number]
            return
        self.todo[group][number] = Held(VISIBILITY_S, self.now, looked_at=self.now)
        if message is not None:
            self.out[group][number] = message

    @rule(group=ANY_GROUP, count=st.integers(1, 12))
    def get(self, group: str, count: int) -> None:
        got = self.queue.group(group).get_many(count, visibility=VISIBILITY_S)
        numbers = [int(message.body[:6]) for message in got]
        for message, number in zip(got, numbers, strict=True):
            assert message.body == self.body(number, len(message.body) - 6)
        self.check_came(group, numbers, count)
        for number, message in zip(numbers, got, strict=True):
            self.was_given(group, number, message)

    def leased(self, group: str) -> list[int]:
        todo = self.todo[group]
        return [n for n in self.out[group] if todo[n].since + todo[n].seconds > self.now + SLACK_S]

    @precondition(lambda self: self.leased("one") or self.leased("two"))
    @rule(data=st.data(), what=st.sampled_from(["ack", "ack", "ack", "nack", "later", "extend"]))
    def settle(self, data: st.DataObject, what: str) -> None:
        group = data.draw(st.sampled_from([name for name in self.out if self.leased(name)]))
        number = data.draw(st.sampled_from(self.leased(group)))
        message = self.out[group][number]
        if what == "extend":
            message.extend(EXTENDED_S)
            self.todo[group][number] = Held(EXTENDED_S, self.now, looked_at=self.now)
            return
        del self.out[group][number]
        if what == "ack":
            message.ack()
            del self.todo[group][number]
        else:
            delay = 7.0 if what == "later" else 0.0
            message.nack(delay)
            self.todo[group][number] = Held(delay, self.now, looked_at=self.now)
        with pytest.raises(ReceiptError):
            message.ack()

    @rule(data=st.data(), group=ANY_GROUP)
    def seek(self, data: st.DataObject, group: str) -> None:
        """From there on everything comes again, what lies before is done, leases end."""
        offsets = self.there()
        if not offsets:
            return
        number = data.draw(st.sampled_from(list(offsets)))
        self.queue.group(group).seek(offsets[number])
        stale = list(self.out[group].values())
        self.out[group].clear()
        self.todo[group] = {n: copy(self.fresh[n]) for n in range(number, len(self.keys))}
        for message in stale:
            with pytest.raises(ReceiptError):
                message.ack()

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        """Whole segments go, and only what every group is done with."""
        offsets = self.there()
        wanted = data.draw(st.sampled_from([*offsets, len(self.keys)]))
        self.queue.trim(offsets.get(wanted, "latest"))
        numbers = [int(message.body[:6]) for message in self.queue.scan()]
        kept = numbers[0] if numbers else len(self.keys)
        assert self.head <= kept <= max(wanted, self.lowest())
        assert kept <= self.lowest(), "taken from a group"
        self.head = kept

    # ── time and trouble ───────────────────────────────────────────────────────────────────

    @rule(seconds=st.sampled_from([0.5, 6, 31, 200]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.now += seconds

    @rule(seconds=st.sampled_from([-86400, -20, -1, 1, 20, 86400]))
    def set_the_wall_clock(self, seconds: float) -> None:
        self.clock.set_wall(self.clock.wall() + seconds)
        for held in self.holds():
            held.step(seconds)

    @rule()
    def reopen(self) -> None:
        self.queue.close()
        self.forget_leases()
        self.queue = self.open()

    @rule(off=st.sampled_from([0.0, 3.0, 50.0]))
    def restart(self, off: float) -> None:
        self.queue.close()
        self.forget_leases()
        self.clock.restart(off)
        self.now += off
        for held in self.holds():
            held.restart(self.now)
        self.queue = self.open()

    @rule()
    def die(self) -> None:
        """As if this process were killed: nothing is closed, its locks are gone."""
        self.queue.after_fork()
        open_queues.discard(self.queue)
        self.forget_leases()
        self.queue = self.open()

    @rule(group=st.sampled_from(["one", "two"]), count=st.integers(1, 5), acks=st.integers(0, 3))
    def another_is_killed(self, group: str, count: int, acks: int) -> None:
        """A process takes some, acks some, puts one, and is killed."""
        here, there = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Other threads: it has none.
            pid = os.fork()
        if pid == 0:
            self.be_killed(there, group, count, acks)
        os.close(there)
        with os.fdopen(here, "rb") as report:
            numbers: list[int] = json.loads(report.read())
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        self.queue.group(group).core.release_dead()
        self.check_came(group, numbers, count)
        for index, number in enumerate(numbers):
            if index < acks:
                del self.todo[group][number]
            else:
                self.todo[group][number] = Held(0.0, self.now, looked_at=self.now)
            self.out[group].pop(number, None)
        self.was_put(None, 0)

    def be_killed(self, report: int, group: str, count: int, acks: int) -> None:
        try:
            queue = self.open()
            got = queue.group(group).get_many(count)
            for message in got[:acks]:
                message.ack()
            queue.put(self.body(len(self.keys), 5))
            os.write(report, json.dumps([int(message.body[:6]) for message in got]).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    def forget_leases(self) -> None:
        for name, out in self.out.items():
            for number in self.leased(name):
                self.todo[name][number] = Held(0.0, self.now, looked_at=self.now)
            out.clear()

    @rule()
    def look(self) -> None:
        self.there()

    def there(self) -> dict[int, int]:
        """What is there, by number; formats that delete what every group has acked go on to that,
        all others keep everything until it is trimmed."""
        offsets = {int(message.body[:6]): message.offset or 0 for message in self.queue.scan()}
        if self.queue.store.capabilities.deletes_consumed:
            kept = min(offsets, default=len(self.keys))
            assert self.head <= kept <= self.lowest(), "taken from a group"
            self.head = kept
        assert list(offsets) == list(range(self.head, len(self.keys)))
        return offsets

    def lowest(self) -> int:
        """The first message that not every group is done with."""
        return min((min(todo) for todo in self.todo.values() if todo), default=len(self.keys))

    def teardown(self) -> None:
        try:
            self.look()
            assert self.queue.verify().is_ok
            self.drain()
        finally:
            self.queue.close()
            shutil.rmtree(self.folder)

    def drain(self) -> None:
        """In the end every group gets everything that it has not done."""
        self.set_the_wall_clock(86400 * 40)
        self.reopen()
        self.restart(200_000)
        for name in GROUPS:
            while self.todo[name]:
                before = len(self.todo[name])
                self.get(name, 1000)
                for number, message in self.out[name].items():
                    message.ack()
                    del self.todo[name][number]
                self.out[name].clear()
                assert len(self.todo[name]) < before, f"{name}: {self.todo[name]} never came"
            assert self.queue.group(name).cursor == self.queue.offsets().tail


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


class Zbus(Model):
    options: ClassVar[dict[str, Any]] = {"format": "zbus", "layout": "crc"}


class Beats(Model):
    options: ClassVar[dict[str, Any]] = {"format": "beats"}


class Vqs(Model):
    options: ClassVar[dict[str, Any]] = {"format": "vqs"}


class Mfq(Model):
    options: ClassVar[dict[str, Any]] = {"format": "mfq"}


MODELS = {
    "plain": Model, "compressed": Compressed, "encrypted": Encrypted,
    "zbus": Zbus, "beats": Beats, "vqs": Vqs, "mfq": Mfq,
}  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_the_queue_does_what_the_list_says(kind: str) -> None:
    examples = {"plain": 60, "compressed": 30, "encrypted": 30}
    run(MODELS[kind], examples.get(kind, 15), 50)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(40))
@pytest.mark.parametrize("kind", MODELS)
def test_the_queue_does_what_the_list_says_for_a_long_time(kind: str, part: int) -> None:
    run(MODELS[kind], 50, 100)  # In parts, so that a run that has no time for all of them goes on.
