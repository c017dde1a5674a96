"""The model: a list, what each group has not done of it, and which receipts are out.

One machine runs every format. A history draws the layout and the options of its queue; what a
format can't hold is asked of its capabilities, so that a rule is one for all formats.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock import Empty, Full, Group, ManualClock, Message, Queue, ReceiptError
from penstock.engine import deadletter, open_queues
from penstock.formats.registry import format_class
from tests import counting
from tests.model.held import Held
from tests.opening import small_segments

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KEYS = st.sampled_from([None, "a", "b"])
TAGS = st.sampled_from([None, "eu.a", "us.b"])
SIZES = st.sampled_from([0, 10, 3000])
MAX_RECEIVES = 3
GROUPS: dict[str, dict[str, Any]] = {
    "one": {"ack": "lease"},
    "two": {"ack": "lease", "max_receives": MAX_RECEIVES},
    "auto": {"ack": "auto"},
    "eu": {"ack": "lease", "tags": "eu.*"},
    "loose": {"ack": "lease", "retain_unread": False},
}
"""Unicast in each, multicast over all; broadcast groups come and go."""
FEW_BYTES = 40 << 10
ROOM: list[dict[str, Any]] = [
    {}, {}, {"max_bytes": FEW_BYTES, "when_full": "reject"},
    {"max_bytes": FEW_BYTES, "when_full": "drop-oldest"}, {"retention_bytes": FEW_BYTES},
]  # fmt: skip
VISIBILITY_S, EXTENDED_S = 30.0, 100.0
SLACK_S = 0.001
OTHERS_MAX = 2


@dataclass
class Put:
    """What a message must come with."""

    size: int
    key: str | None = None
    tag: str | None = None


class Model(RuleBasedStateMachine):
    """A queue of one format, against a list."""

    format: ClassVar[str] = "penstock"
    secrets: ClassVar[list[dict[str, Any]]] = [{}]
    """Which options for compression and encryption a history draws from."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.clock = ManualClock()
        self.now = 0.0
        self.has = format_class(self.format).capabilities
        self.there_were: list[Put] = []
        self.fresh: list[Held] = []
        """Each message as a group that has not seen it must treat it."""
        self.head = 0
        names = [name for name in GROUPS if self.has.tags or name != "eu"]
        self.todo: dict[str, dict[int, Held]] = {name: {} for name in names}
        self.out: dict[str, dict[int, Message]] = {name: {} for name in names}
        self.receives = Counter[int]()
        """How often the group with dead letters was given each."""
        self.dead: list[int] = []
        self.others: dict[str, Group] = {}
        """The broadcast groups of this process."""

    @initialize(data=st.data(), room=st.sampled_from(ROOM))
    def begin(self, data: st.DataObject, room: dict[str, Any]) -> None:
        kind = format_class(self.format)
        secret = data.draw(st.sampled_from(self.secrets))
        layout = data.draw(st.sampled_from(kind.created))
        # The file of a compressed stream grows by 64 KiB: fewer are no limit that it can keep.
        is_streamed = layout.endswith("lz4")
        room = {} if is_streamed or kind.refused.keys() & room.keys() else room
        if kind.encryption is not None and layout in kind.encryption.layouts:
            secret = {"key": bytes(range(kind.encryption.key_bytes))}
        given = {"layout": layout} | room | secret
        self.options = small_segments(self.format) | given
        self.may_lose = room.get("when_full") == "drop-oldest"
        """Whether what no group has read may go."""
        self.frees = bool(room) or self.has.deletes_consumed
        """Whether what all groups are done with may go at any time."""
        self.queue = self.open()

    def open(self) -> Queue:
        queue = Queue(
            self.folder / "q", format=self.format, clock=self.clock, durability="process",
            **self.options,
        )  # fmt: skip
        if queue._maintenance is not None:
            queue._maintenance.stop()  # Retention has a rule of its own.
        for name in GROUPS.keys() & self.todo.keys():
            queue.group(name, **GROUPS[name])
        return queue

    def group(self, name: str) -> Group:
        return self.others[name] if name in self.others else self.queue.group(name)

    def is_auto(self, group: str) -> bool:
        return group == "auto"

    def holds(self) -> Iterator[Held]:
        yield from self.fresh
        for todo in self.todo.values():
            yield from todo.values()

    @invariant()
    def count(self) -> None:
        counting.count(f"{self.format} steps")

    # ── putting ────────────────────────────────────────────────────────────────────────────

    def body(self, number: int, size: int) -> bytes:
        # Letters, where there are many: what is no text takes six times its room in JSON.
        return b"%06d" % number + bytes([97 + number % 26 if size > 100 else number % 251]) * size

    def wants(self, group: str, put: Put) -> bool:
        return group != "eu" or (put.tag or "").startswith("eu.")

    def was_put(self, put: Put, delay: float = 0.0) -> None:
        number = len(self.there_were)
        self.there_were.append(put)
        self.fresh.append(Held(delay, self.now))
        for name, todo in self.todo.items():
            if self.wants(name, put):
                todo[number] = copy(self.fresh[number])

    @rule(key=KEYS, tag=TAGS, delay=st.sampled_from([0, 0, 0, 5, 40]), size=SIZES)
    def put_one(self, key: str | None, tag: str | None, delay: int, size: int) -> None:
        put = Put(size, key, tag if self.has.tags else None)
        body, named = self.body(len(self.there_were), size), self.named(len(self.there_were))
        try:
            self.queue.put(body, key=key, tag=put.tag, delay=delay or None, **named)
        except Full:
            self.check_full()
        else:
            self.was_put(put, delay)
        self.look_what_is_gone()

    def named(self, number: int) -> dict[str, Any]:
        """What else a message has, where the format has a place for it."""
        id = {"id": f"id-{number}"} if self.has.ids and number % 3 == 0 else {}
        headers = {"headers": {"n": str(number)}} if self.has.headers and number % 4 == 0 else {}
        return id | headers

    @rule(count=st.integers(1, 8), size=st.sampled_from([20, 20, 2500]))
    def put_several(self, count: int, size: int) -> None:
        first = len(self.there_were)
        try:
            self.queue.put_many([self.body(first + i, size) for i in range(count)])
        except Full:
            self.check_full()
            # A list of more than half a segment goes in pieces: some may be there.
            there = [self.number_of(message) for message in self.queue.scan()]
            count = sum(number >= first for number in there)
        for _ in range(count):
            self.was_put(Put(size))
        self.look_what_is_gone()

    def check_full(self) -> None:
        assert self.options.get("when_full") == "reject"
        held = self.there_were[self.head :]
        assert sum(put.size + 200 for put in held) + 8 * 2700 > FEW_BYTES / 2, "it had room"

    # ── getting ────────────────────────────────────────────────────────────────────────────

    def number_of(self, message: Message) -> int:
        """Its number; everything that it was put with is there."""
        number = int(message.body[:6])
        if number >= len(self.there_were):
            return number  # It came with a list that was not put whole.
        put = self.there_were[number]
        assert message.body == self.body(number, put.size)
        assert message.key == put.key
        assert message.tag == put.tag
        return number

    def is_first_of_its_key(self, group: str, number: int, came: set[int]) -> bool:
        """Nothing before it with its key is still to be done."""
        key = self.there_were[number].key
        earlier = (n for n in self.todo[group] if n < number and n not in came)
        return key is None or not any(self.there_were[n].key == key for n in earlier)

    def check_came(self, group: str, numbers: list[int], buried: list[int], count: int) -> None:
        """Each may come; and if fewer came than were asked for, none that had to is missing."""
        todo, came = self.todo[group], set[int]()
        must, is_auto = set[int](), self.is_auto(group)
        for number in sorted(todo):
            is_due = todo[number].latest() + SLACK_S <= self.now
            before = must if is_auto else set[int]()
            if is_due and self.is_first_of_its_key(group, number, before):
                must.add(number)
        for number in [*buried, *numbers]:
            assert number in todo, f"{number} was done and came again"
            early = todo[number].earliest() - SLACK_S - self.now
            assert early <= 0, f"{number} came {early} s early"
            before = came if is_auto else set(buried)
            assert self.is_first_of_its_key(group, number, before), f"{number} before its time"
            came.add(number)
        assert len(came) == len(numbers) + len(buried), f"twice: {numbers}, {buried}"
        assert bool(came) >= bool(must), f"nothing came of {must}"
        if len(came) < count:
            assert must <= came, f"{must - came} did not come"
            for held in todo.values():
                held.looked_at = self.now if held.looked_at is None else held.looked_at

    def was_given(self, group: str, number: int, message: Message) -> None:
        if self.is_auto(group):
            del self.todo[group][number]
            return
        if group == "two":
            assert message.receives == self.receives[number]
        self.todo[group][number] = Held(VISIBILITY_S, self.now, looked_at=self.now)
        self.out[group][number] = message

    def count_receives(self, group: str, numbers: list[int]) -> list[int]:
        """What went to the dead letters meanwhile: only what was handed out often enough."""
        if group != "two":
            return []
        there = self.letters()
        assert there[: len(self.dead)] == self.dead
        buried, self.dead = there[len(self.dead) :], there
        for number in buried:
            assert self.receives[number] == MAX_RECEIVES, f"{number} was not handed out so often"
        for number in numbers:
            self.receives[number] += 1
            assert self.receives[number] <= MAX_RECEIVES, f"{number} is no dead letter"
        return buried

    def letters(self) -> list[int]:
        path = self.folder / "q.dead"
        if not path.exists():
            return []
        found = []
        for letter in self.queue.dead_letters(path).scan():
            assert letter.headers[deadletter.RECEIVES] == str(MAX_RECEIVES)
            assert letter.headers[deadletter.GROUP] == "two"
            found.append(self.number_of(letter))
        return found

    @rule(data=st.data(), count=st.integers(1, 12))
    def get(self, data: st.DataObject, count: int) -> None:
        self.get_from(data.draw(st.sampled_from(list(self.todo))), count)

    @rule(data=st.data())
    def get_one(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.todo)))
        try:
            got = [self.group(name).get(0, visibility=VISIBILITY_S)]
        except Empty:
            got = []
        self.was_got(name, got, 1)

    def get_from(self, name: str, count: int) -> None:
        got = self.group(name).get_many(count, visibility=VISIBILITY_S)
        self.was_got(name, got, count)

    def was_got(self, name: str, got: list[Message], count: int) -> None:
        numbers = [self.number_of(message) for message in got]
        buried = self.count_receives(name, numbers)
        self.check_came(name, numbers, buried, count)
        for number in buried:
            del self.todo[name][number]
            self.out[name].pop(number, None)
        for number, message in zip(numbers, got, strict=True):
            self.was_given(name, number, message)

    def leased(self, group: str) -> list[int]:
        todo = self.todo[group]
        return [n for n in self.out[group] if todo[n].since + todo[n].seconds > self.now + SLACK_S]

    @precondition(lambda self: any(self.leased(name) for name in self.out))
    @rule(
        data=st.data(), by_receipt=st.booleans(),
        what=st.sampled_from(["ack", "ack", "ack", "nack", "nack", "later", "extend"]),
    )  # fmt: skip
    def settle(self, data: st.DataObject, what: str, by_receipt: bool) -> None:
        name = data.draw(st.sampled_from([name for name in self.out if self.leased(name)]))
        number = data.draw(st.sampled_from(self.leased(name)))
        message, group = self.out[name][number], self.group(name)
        receipt = message.receipt or ""
        if what == "extend":
            if by_receipt:
                group.extend(receipt, EXTENDED_S)
            else:
                message.extend(EXTENDED_S)
            self.todo[name][number] = Held(EXTENDED_S, self.now, looked_at=self.now)
            return
        del self.out[name][number]
        delay = 7.0 if what == "later" else 0.0
        if what == "ack" and by_receipt:
            group.ack(receipt)
        elif what == "ack":
            message.ack()
        elif by_receipt:
            group.nack(receipt, delay)
        else:
            message.nack(delay)
        if what == "ack":
            del self.todo[name][number]
        else:
            self.todo[name][number] = Held(delay, self.now, looked_at=self.now)
        with pytest.raises(ReceiptError):
            message.ack()

    @rule(data=st.data(), by_number=st.booleans())
    def seek(self, data: st.DataObject, by_number: bool) -> None:
        """From there on everything comes again, what lies before is done, leases end."""
        name = data.draw(st.sampled_from(list(self.todo)))
        offsets = self.there()
        if not offsets:
            return
        number = data.draw(st.sampled_from([*offsets, len(self.there_were)]))
        place: int | str = offsets.get(number, "latest")
        if by_number and self.has.numbers and number in offsets:
            place = f"number:{self.queue.message_at(offsets[number]).number}"
        self.group(name).seek(place)
        self.was_moved(name, number)

    def was_moved(self, name: str, to: int) -> None:
        stale = list(self.out[name].values())
        self.out[name].clear()
        self.todo[name] = {
            n: copy(self.fresh[n])
            for n in range(to, len(self.there_were))
            if self.wants(name, self.there_were[n])
        }
        if name == "two":
            self.receives.clear()
        for message in stale:
            with pytest.raises(ReceiptError):
                message.ack()

    @rule()
    def purge(self) -> None:
        """Everything is read, by everyone; what is put next comes."""
        self.queue.purge()
        for name in self.todo:
            self.was_moved(name, len(self.there_were))
        self.look_what_is_gone(is_asked=True)

    # ── who reads along ────────────────────────────────────────────────────────────────────

    @precondition(lambda self: len(self.others) < OTHERS_MAX)
    @rule()
    def join(self) -> None:
        """Broadcast: a group of one's own, from now on."""
        group = self.queue.broadcast()
        assert group.name not in self.todo
        self.others[group.name] = group
        self.todo[group.name], self.out[group.name] = {}, {}

    @precondition(lambda self: self.others)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.others)))
        self.others[name].close()
        self.forget_others(name)

    def forget_others(self, *names: str) -> None:
        """A broadcast group goes with its consumer."""
        for name in names or tuple(self.others):
            del self.others[name], self.todo[name], self.out[name]
            assert name not in self.queue.groups()

    # ── segments ───────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: not self.has.ring)
    @rule()
    def roll(self) -> None:
        """A new segment is begun, wherever the last one stands."""
        store = self.queue.store
        if store.end().tail > store.segments()[-1].first:
            store.roll(store.need_shared().segment_base, 0)

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        """Whole segments go, and only what every group is done with that is waited for."""
        offsets = self.there()
        wanted = data.draw(st.sampled_from([*offsets, len(self.there_were)]))
        before = self.head
        self.queue.trim(offsets.get(wanted, "latest"))
        self.look_what_is_gone(is_asked=True)
        assert self.head <= max(wanted, before, self.lowest() if self.frees else 0)

    @rule()
    def retain(self) -> None:
        """What retention does in the background."""
        self.queue.retain()
        self.look_what_is_gone()

    def look_what_is_gone(self, *, is_asked: bool = False) -> None:
        """The head moves up to what the groups need that are waited for, and no further; one that
        is not waited for goes on behind it."""
        numbers = [self.number_of(message) for message in self.queue.scan()]
        kept = min(numbers, default=len(self.there_were))
        assert numbers == list(range(kept, len(self.there_were)))
        assert kept >= self.head, "what was gone came again"
        if kept > self.head:
            assert is_asked or self.frees, "nobody asked for that"
            assert self.may_lose or kept <= self.lowest(), "taken from a group"
        self.head = kept
        for name, todo in self.todo.items():
            for number in [n for n in todo if n < kept]:
                del todo[number]
                self.out[name].pop(number, None)

    def lowest(self) -> int:
        """The first message that not every group is done with that is waited for."""
        # Where the format deletes what was acked, that means acked by all.
        waited = [t for name, t in self.todo.items() if name != "loose"]
        return min((min(todo) for todo in waited if todo), default=len(self.there_were))

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
        self.open_again()

    def open_again(self, *, is_restart: bool = False) -> None:
        self.forget_leases()
        for held in self.holds() if is_restart else ():
            held.restart(self.now)
        self.queue = self.open()
        self.forget_others()
        self.look_what_is_gone()

    @rule(off=st.sampled_from([0.0, 3.0, 50.0]))
    def restart(self, off: float) -> None:
        self.queue.close()
        self.forget_leases()
        self.clock.restart(off)
        self.now += off
        self.open_again(is_restart=True)

    @rule()
    def die(self) -> None:
        """As if this process were killed: nothing is closed, its locks are gone."""
        for queue in (self.queue, *self.queue._open_groups.close()[1]):
            assert isinstance(queue, Queue)
            queue.after_fork()
            open_queues.discard(queue)
        self.open_again()

    @rule(
        name=st.sampled_from(["one", "two", "auto"]), count=st.integers(1, 5),
        acks=st.integers(0, 3), is_killed=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def another(self, name: str, count: int, acks: int, is_killed: bool) -> None:
        """A process takes some, acks some, puts one, and is killed, or closes the queue."""
        here, there = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Other threads: it has none.
            pid = os.fork()
        if pid == 0:
            self.be_another(there, name, count, acks, is_killed)
        os.close(there)
        with os.fdopen(here, "rb") as report:
            told = report.read()
        _, status = os.waitpid(pid, 0)
        assert (os.WTERMSIG(status) == signal.SIGKILL) == is_killed
        found = json.loads(told)
        assert "error" not in found, found["error"]
        numbers: list[int] = found["numbers"]
        self.queue.group(name).core.release_dead()
        buried = self.count_receives(name, numbers)
        self.check_came(name, numbers, buried, count)
        for number in buried:
            del self.todo[name][number]
        for index, number in enumerate(numbers):
            if index < acks or self.is_auto(name):
                del self.todo[name][number]
            else:
                self.todo[name][number] = Held(0.0, self.now, looked_at=self.now)
        for number in [*buried, *numbers]:
            self.out[name].pop(number, None)
        if found["has_put"]:
            self.was_put(Put(5))
        else:
            self.check_full()
        self.look_what_is_gone()

    def be_another(self, there: int, name: str, count: int, acks: int, is_killed: bool) -> None:
        """In the other process: what happened goes through the pipe `there`."""
        told: dict[str, Any] = {"error": "it said nothing"}
        try:
            queue = self.open()
            got = queue.group(name).get_many(count)
            for message in got[:acks]:
                if not self.is_auto(name):
                    message.ack()
            told = {"numbers": [int(message.body[:6]) for message in got], "has_put": True}
            try:
                queue.put(self.body(len(self.there_were), 5))
            except Full:
                told["has_put"] = False
            if not is_killed:
                queue.close()
        except BaseException as error:
            told = {"error": repr(error)}
        finally:
            os.write(there, json.dumps(told).encode())
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)

    def forget_leases(self) -> None:
        for name, out in self.out.items():
            for number in self.leased(name):
                self.todo[name][number] = Held(0.0, self.now, looked_at=self.now)
            out.clear()

    @rule()
    def look(self) -> None:
        self.there()
        if self.has.tags:
            filtered = [self.number_of(message) for message in self.queue.scan(tags="eu.*")]
            kept = range(self.head, len(self.there_were))
            assert filtered == [n for n in kept if self.wants("eu", self.there_were[n])]

    def there(self) -> dict[int, int]:
        """What is there, by number, with its offset."""
        self.look_what_is_gone()
        return {self.number_of(message): message.offset or 0 for message in self.queue.scan()}

    def teardown(self) -> None:
        try:
            if hasattr(self, "queue"):
                self.look()
                assert self.queue.verify().is_ok
                self.drain()
                counting.count(f"{self.format} histories")
        finally:
            if hasattr(self, "queue"):
                self.queue.close()
            shutil.rmtree(self.folder)

    def drain(self) -> None:
        """In the end every group gets everything that it has not done."""
        self.set_the_wall_clock(86400 * 40)
        self.reopen()
        self.restart(200_000)
        for name in self.todo:
            while self.todo[name]:
                before = len(self.todo[name])
                self.get_from(name, 1000)
                for number, message in self.out[name].items():
                    message.ack()
                    del self.todo[name][number]
                self.out[name].clear()
                assert len(self.todo[name]) < before, f"{name}: {self.todo[name]} never came"
            self.get_from(name, 1)  # What a filter leaves out lies behind it, too.
            assert self.queue.group(name).cursor == self.queue.offsets().tail


class Zbus(Model):
    format = "zbus"


class Beats(Model):
    format = "beats"


class Vqs(Model):
    format = "vqs"


class Mfq(Model):
    format = "mfq"


class Compressed(Model):
    secrets: ClassVar[list[dict[str, Any]]] = [{"compression": "lz4"}]


class Encrypted(Model):
    secrets: ClassVar[list[dict[str, Any]]] = [{"key": bytes(range(32))}]
