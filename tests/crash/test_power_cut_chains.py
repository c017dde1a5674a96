"""Power cuts one after the other: each strikes a queue that goes on from what the one before left.

A turn opens what is there, does random things with it and records every effect. Somewhere in that,
in the recovery too, the power is cut, and the next turn begins with what may be left of the disk.
What the turn was promised by then is held against what the next one finds.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from penstock import Group, ManualClock, Message, PenstockError, Queue, _core
from penstock.formats import registry
from tests.crash.disk import Disk, File, Image, make
from tests.crash.test_power_cut import MEMORY, SEED
from tests.opening import small_segments

pytestmark = pytest.mark.crash
KEY, KEY16 = bytes(range(32)), bytes(range(16))
GROUPS: dict[str, dict[str, Any]] = {
    "zbus crc, naks": {"max_in_flight": 100},
}
KINDS: dict[str, dict[str, Any]] = {
    "penstock": {"format": "penstock"},
    "penstock, lz4": {"format": "penstock", "compression": "lz4"},
    "penstock, key": {"format": "penstock", "key": KEY},
    "zbus doc000": {"format": "zbus", "layout": "doc000"},
    "zbus doc001": {"format": "zbus", "layout": "doc001"},
    "zbus flag": {"format": "zbus", "layout": "flag"},
    "zbus corr": {"format": "zbus", "layout": "corr"},
    "zbus crc": {"format": "zbus", "layout": "crc"},
    "zbus crc, naks": {"format": "zbus", "layout": "crc"},
    "beats 0": {"format": "beats", "layout": "0"},
    "beats 1": {"format": "beats", "layout": "1"},
    "beats 2": {"format": "beats", "layout": "2", "key": KEY16},
    "beats 3": {"format": "beats", "layout": "3", "key": KEY16},
    "beats 3, tamper-evident": {
        "format": "beats", "layout": "3", "key": KEY16, "tamper_evident": True,
    },
    "beats 2-released": {"format": "beats", "layout": "2-released"},
    "beats 2-released-lz4": {"format": "beats", "layout": "2-released-lz4"},
    "vqs doc": {"format": "vqs", "layout": "doc", "max_bytes": 8 * 4096},
    "vqs stage4": {"format": "vqs", "layout": "stage4", "max_bytes": 8 * 4096},
    "mfq": {"format": "mfq"},
}  # fmt: skip
LEVELS = ("always", "interval", "process")
TURNS, STEPS, SIZES = 5, 12, (1, 20, 200, 900, 3000, 3900)


def body(number: int, size: int) -> bytes:
    """A body that begins with its number, and that no compression makes smaller."""
    return b"%06d" % number + random.Random(number).randbytes(size)


@dataclass(frozen=True)
class Promised:
    """What holds once an operation has returned."""

    put: tuple[int, ...] = ()
    """Every message that may be there, in their order."""
    durable: frozenset[int] = frozenset()
    """What must be there, unless it is gone because a group was done with it."""
    gone: frozenset[int] = frozenset()
    """What may be deleted."""
    acked: frozenset[int] = frozenset()
    """Acked for good: never handed out again."""
    maybe_acked: frozenset[int] = frozenset()
    whole: frozenset[int] = frozenset()
    """A list that was put last, and is there as a whole or not at all."""


@dataclass
class Chain:
    """One queue through all its power cuts."""

    options: dict[str, Any]
    seed: int
    folder: Path
    group_options: dict[str, Any] = field(default_factory=dict)
    rng: random.Random = field(init=False)
    group: Group = field(init=False)
    clock: ManualClock = field(default_factory=ManualClock)
    next_number: int = 0
    log: list[Promised] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    now: Promised = field(default_factory=Promised)
    is_recording: bool = False
    acked_now: frozenset[int] = frozenset()
    """Acked since the power cut before: of older acks one can't tell whether they are there."""
    opened: list[Queue] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.path = self.folder / ("q.bin" if self.options.get("layout") == "doc" else "q")
        self.is_always = self.options["durability"] == "always"
        sizes = small_segments(self.options["format"], 16384)
        self.options = sizes | self.options

    # ── a turn ─────────────────────────────────────────────────────────────────────────────

    def run(self, turns: int) -> None:
        lower = upper = Promised()
        for _ in range(turns):
            lower, upper = self.turn(lower, upper)
        self.check(self.open("process"), lower, upper).close()

    def turn(self, lower: Promised, upper: Promised) -> tuple[Promised, Promised]:
        """Opens what is there, works with it, cuts the power; answers what held before the
        operation that was cut and what would have held after it."""
        disk = self.disk_of_now()
        self.log = []
        _core.take_effects()
        self.is_recording = True
        _core.record_effects(True)
        queue = None
        try:
            queue = self.check(self.open(self.options["durability"]), lower, upper)
            self.group = queue.group("default", **self.group_options)
            self.say(self.now)
            queue = self.work(queue)
        finally:
            self.is_recording = False
            _core.record_effects(False)
            if queue is not None:
                queue.close()
        effects, marks = self.split(_core.take_effects())
        cut = self.rng.randrange(len(effects) + 1)
        before = [facts for at, facts in marks if at <= cut]
        after = [facts for at, facts in marks if at > cut]
        for effect in effects[:cut]:
            disk.apply(effect)
        is_opened = bool(before)
        lower = before[-1] if is_opened else lower
        upper = upper if not is_opened else after[0] if after else self.now
        states = list(disk.states(self.rng, 3, 2))
        image = disk.image(self.rng.choice(states))
        self.images.append(image)
        make(image, self.folder)
        return lower, upper

    def disk_of_now(self) -> Disk:
        """What is in the folder, as a disk that has synced it."""
        disk = Disk(self.folder)
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                disk.files[path.stat().st_ino] = content = File()
                content.store(0, path.read_bytes())
                content.sync()
                disk.names[str(path.relative_to(self.folder))] = path.stat().st_ino
        disk.now = dict(disk.names)
        return disk

    def split(self, log: list[Any]) -> tuple[list[Any], list[tuple[int, Promised]]]:
        """Effects, and after which of them which promise held."""
        effects: list[Any] = []
        marks: list[tuple[int, Promised]] = []
        synced: set[int] = set()
        for effect in log:
            if effect[0] != "mark":
                effects.append(effect)
                synced |= {effect[1]} if effect[0] == "sync" else set()
            elif effect[1].startswith("table "):
                _, inode, head = effect[1].split()
                effects.append(("store", int(inode), 0, bytes.fromhex(head)))
                if int(inode) in synced:
                    effects.append(("sync", int(inode)))
                    synced.clear()
            else:
                marks.append((len(effects), self.log[int(effect[1])]))
        return effects, marks

    def open(self, level: str) -> Queue:
        """In a new boot. A queue that is there knows its format and layout by itself."""
        self.clock.restart(self.rng.choice([0.0, 5.0]))
        return self.open_again(level)

    def open_again(self, level: str) -> Queue:
        options = self.options | {"durability": level}
        if not registry.is_empty(self.path):
            for known in ("format", "layout"):
                options.pop(known, None)
        queue = Queue(self.path, clock=self.clock, **options)
        assert queue.store.format.name == self.options["format"]
        assert queue.store.layout == self.options.get("layout", queue.store.layout)
        if queue._maintenance is not None:
            queue._maintenance.stop()
        self.opened.append(queue)
        return queue

    def close_all(self) -> None:
        """Closes what a failure left open."""
        for queue in self.opened:
            with suppress(PenstockError, OSError):
                queue.close()

    # ── what must hold ─────────────────────────────────────────────────────────────────────

    def check(self, queue: Queue, lower: Promised, upper: Promised) -> Queue:
        """Holds what is there, and what a group gets of it, against the promises."""
        there = []
        for message in queue.scan():
            number = int(message.body[:6])
            assert message.body == body(number, len(message.body) - 6)
            there.append(number)
        order = [number for number in upper.put if number in set(there)]
        assert there == order, f"{there} of {upper.put}"
        lost = lower.durable - upper.gone - set(there)
        assert not lost, f"durable and lost: {sorted(lost)}, there {there}"
        if there:
            between = upper.put[upper.put.index(there[0]) : upper.put.index(there[-1])]
            holes = set(between) - set(there) - upper.gone
            assert not holes, f"holes: {sorted(holes)}, there {there}"
        if upper.whole and not lower.whole:
            found = upper.whole & set(there)
            assert found in (frozenset(), upper.whole - upper.gone), f"half a list: {found}"
        assert queue.verify().corrupt == []
        durable = queue.offsets().durable
        safe = {
            int(m.body[:6]) for m in queue.scan() if m.offset is not None and m.offset < durable
        }
        # What was deleted may be back after the next cut: nobody had synced that its name went.
        put = tuple(number for number in upper.put if number in {*there} | upper.gone)
        safe |= lower.durable & set(there)
        self.now = Promised(put, frozenset(safe), upper.gone, lower.acked, upper.maybe_acked)
        self.check_group(there, lower, upper)
        self.acked_now = frozenset()
        return queue

    def check_group(self, there: list[int], lower: Promised, upper: Promised) -> None:
        """What a group gets, in a copy: whoever takes everything changes what the turn is about."""
        copy = Path(tempfile.mkdtemp(dir=MEMORY))
        _core.record_effects(False)
        try:
            shutil.copytree(self.folder, copy / "f")
            options = self.options | {"durability": "process"}
            options.pop("layout", None)
            clock = ManualClock()
            clock.advance(1_000_000)
            clock.restart()
            with Queue(copy / "f" / self.path.name, clock=clock, **options) as queue:
                out = [int(m.body[:6]) for m in queue.get_many(1000)]
                again = set(out) & lower.acked
                assert not again, f"acked for good and handed out again: {again}"
                never = set(there) - set(out) - upper.maybe_acked
                assert not never, f"never acked and never handed out: {never}"
                assert set(out) <= {*there} | upper.gone, f"{out} of {there}"
                assert len(out) == len(set(out))
                queue.put(body(999999, 10))
                assert int(queue.get().body[:6]) == 999999
        finally:
            _core.record_effects(self.is_recording)
            shutil.rmtree(copy)

    # ── what happens in between ────────────────────────────────────────────────────────────

    def say(self, facts: Promised) -> None:
        """An operation has returned: from here on `facts` hold."""
        table = self.group.folder / "table"
        if table.exists():
            with table.open("rb") as stream:
                head = stream.read(4096)
            _core.mark_effect(f"table {table.stat().st_ino} {head.hex()}")
        self.now = facts
        self.log.append(facts)
        _core.mark_effect(str(len(self.log) - 1))

    def work(self, queue: Queue) -> Queue:
        for _ in range(self.rng.randrange(STEPS)):
            choices = ["put"] * 5 + ["list", "sync", "take", "take", "reopen", "keep", "other"]
            choices += ["trim", "checkpoint", "nothing"]
            queue = self.step(queue, self.rng.choice(choices))
        return queue

    def step(self, queue: Queue, what: str) -> Queue:
        if what == "put":
            self.put(queue, 1)
        elif what == "list":
            self.put(queue, self.rng.randrange(2, 6))
        elif what == "sync":
            queue.sync()
            self.say(replace(self.now, durable=frozenset(self.now.put), acked=self.surely_acked()))
        elif what == "take":
            self.take(queue)
        elif what == "keep":
            queue.store.prepare_ahead()
            queue.store.format.tend()
        elif what == "trim":
            queue.retain()
        elif what == "checkpoint":
            self.group.core.checkpoint()
            self.say(replace(self.now, acked=self.surely_acked()))
        elif what == "other":
            other = self.open_again(self.options["durability"])
            self.put(other, 1)
            other.close()
        elif what == "reopen":
            queue.close()
            is_synced = self.options["durability"] != "process"
            acked = self.surely_acked() if is_synced else self.now.acked
            self.say(replace(self.now, durable=frozenset(self.now.put), acked=acked))
            queue = self.open_again(self.options["durability"])
            self.group = queue.group("default", **self.group_options)
            self.say(self.now)
        return queue

    def put(self, queue: Queue, count: int) -> None:
        size = self.rng.choice(SIZES[:4] if count > 1 else SIZES)
        numbers = tuple(range(self.next_number, self.next_number + count))
        if queue.store.capabilities.ring and queue.stats()["bytes"] > 12000:
            return
        self.next_number += count
        bodies = [body(number, size) for number in numbers]
        if count == 1:
            queue.put(bodies[0])
        else:
            queue.put_many(bodies)
        durable = self.now.durable | (frozenset(numbers) if self.is_always else frozenset())
        keeps_lists = self.is_always or self.options["format"] == "penstock"
        whole = frozenset(numbers) if count > 1 and keeps_lists else frozenset[int]()
        put = self.now.put + numbers
        self.say(replace(self.now, put=put, durable=durable, whole=whole))

    def take(self, queue: Queue) -> None:
        """Takes some; acks some of them, not in order, and leaves or gives back the others."""
        taken: list[Message] = self.group.get_many(self.rng.randrange(1, 6))
        for message in taken:
            number = int(message.body[:6])
            if self.rng.random() < 0.7:
                message.ack()
                self.acked(queue, number)
            elif self.rng.random() < 0.5:
                message.nack()

    def surely_acked(self) -> frozenset[int]:
        """Everything whose ack a sync of the group reaches now."""
        return self.now.acked | self.acked_now

    def acked(self, queue: Queue, number: int) -> None:
        surely = self.now.acked | ({number} if self.is_always else set())
        self.acked_now |= {number}
        maybe, gone = self.now.maybe_acked | {number}, self.now.gone
        if queue.store.capabilities.deletes_consumed:
            gone = maybe
        self.say(replace(self.now, maybe_acked=maybe, acked=surely, gone=gone))


def run_chain(kind: str, level: str, seed: int, turns: int = TURNS) -> Chain:
    folder = Path(tempfile.mkdtemp(dir=MEMORY, prefix="penstock-chain-"))
    chain = Chain(KINDS[kind] | {"durability": level}, seed, folder, GROUPS.get(kind, {}))
    try:
        chain.run(turns)
    except BaseException as error:
        kept = Path(tempfile.mkdtemp(prefix="penstock-chain-kept-"))
        for turn, image in enumerate(chain.images):
            (kept / str(turn)).mkdir()
            make(image, kept / str(turn))
        error.add_note(f"{kind}, {level}, seed {seed}; what each cut left in {kept}")
        raise
    finally:
        chain.close_all()
        shutil.rmtree(folder, ignore_errors=True)
    return chain


@pytest.mark.parametrize("level", ["always", "process"])
@pytest.mark.parametrize("kind", KINDS)
def test_power_cuts_one_after_the_other_keep_what_was_promised(kind: str, level: str) -> None:
    for seed in range(SEED, SEED + 3):
        run_chain(kind, level, seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_power_cuts_one_after_the_other(kind: str, level: str) -> None:
    for seed in range(SEED, SEED + 300):
        run_chain(kind, level, seed)


@pytest.mark.parametrize("level", ["always", "interval"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_power_cut_after_a_close_brings_back_what_was_acked(
    tmp_path: Path, kind: str, level: str
) -> None:
    """A clean control block vouches for what the format keeps of groups itself: that was once not
    synced, and an older place was then taken for another program's."""
    chain = Chain(KINDS[kind] | {"durability": level}, SEED, tmp_path, GROUPS.get(kind, {}))
    disk = Disk(tmp_path)
    _core.take_effects()
    _core.record_effects(True)
    try:
        for session in range(2):
            with chain.open_again(level) as queue:
                for number in range(3 * session, 3 * session + 3):
                    queue.put(body(number, 20))
                for name in ("default", "other"):
                    group = queue.group(name, **chain.group_options)
                    for message in group.get_many(2):
                        message.ack()
    finally:
        _core.record_effects(False)
    for effect in _core.take_effects():
        disk.apply(effect)
    images = {disk.image(state) for state in disk.states(chain.rng, 10, 20)}
    assert len(images) > 5
    for image in sorted(images):
        make(image, tmp_path)
        with chain.open(level) as queue:
            for name in ("default", "other"):
                out = queue.group(name, **chain.group_options).get_many(10)
                assert [int(message.body[:6]) for message in out] == [4, 5]
