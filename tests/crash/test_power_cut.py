"""Power cuts at every effect of small programs: what may be left of the disk is opened and read.

The effects come from the code that runs in production. A state is opened in a new boot, checked
against what the program had been promised by then, appended to, and opened again; now and then
the recovery itself is cut as well.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, Queue, _core
from penstock.formats import registry
from tests import counting
from tests.crash.disk import Disk, Image, State, make
from tests.crash.workloads import KEY, Facts, Recording, body, record

pytestmark = pytest.mark.crash
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
SEED = int(os.environ.get("PENSTOCK_SEED", "20261115"))
STATES = int(os.environ.get("PENSTOCK_STATES", "250"))
MANY_STATES = 12 * STATES
"""Sampled of each case, in the usual run and in the slow one. The slow run examines every subset of
the dirty pages beside them: more than 200,000 states in all."""
FEWEST = 2
"""States that one effect is examined in at least."""
REOPEN_EVERY, VERIFY_EVERY, SNIFF_EVERY = 16, 16, 8
SECOND_CUT_EVERY, SECOND_CUT_EVERY_OF_FEW = 100, 3


@dataclass(frozen=True)
class Outcome:
    """What came out of a state: all that a promise can be held against."""

    found: tuple[int, ...]
    out: frozenset[int] = frozenset()
    """What the group handed out."""
    passed: frozenset[int] = frozenset()
    """What lies before the place in the format's own file."""


class Examiner:
    """Opens states of one recording and says what is wrong with them.

    The same files give the same outcome, whenever the power was cut: they are opened once, and
    what came out is held against the promises of each point at which they may be left.
    """

    second_cut_every: int

    def __init__(self, recording: Recording, folder: Path, rng: random.Random) -> None:
        self.recording, self.folder, self.rng = recording, folder, rng
        self.path = folder / recording.root.name
        self.clock = ManualClock()
        self.checked = 0
        self.outcomes: dict[int, Outcome] = {}
        """By state, and by image: several states may be the same files."""
        self.images: dict[int, Outcome] = {}
        self.cut_again: list[Image] = []
        """What a second cut has left of the state in hand."""

    def keep(self, image: Image) -> Path:
        """Writes out the state in hand, for whoever looks for the cause of a failure."""
        kept = Path(tempfile.mkdtemp(prefix="penstock-power-cut-"))
        for turn, one in enumerate([image, *self.cut_again]):
            (kept / str(turn)).mkdir()
            make(one, kept / str(turn))
        return kept

    def examine(self, disk: Disk, state: State, key: int, lower: Facts, upper: Facts) -> None:
        """Checks the state, whose hash is `key`."""
        self.checked += 1
        self.cut_again = []
        if key not in self.outcomes:
            image = disk.image(state)
            name = hash(image)
            if name not in self.images:
                make(image, self.folder)
                is_cut_again = len(self.images) % self.second_cut_every == 0
                self.images[name] = (
                    self.cut_twice(state, lower, upper, disk) if is_cut_again else self.read_all()
                )
            self.outcomes[key] = self.images[name]
        self.check(self.outcomes[key], lower, upper)

    @property
    def keeps_lists(self) -> bool:
        """Whether a list is whole or not there, as `docs/durability.md` promises: at `always`, and
        in format penstock at every level. Elsewhere the sectors that came to the disk decide."""
        options = self.recording.options
        return options["durability"] == "always" or options.get("format") in (None, "penstock")

    def check(self, outcome: Outcome, lower: Facts, upper: Facts) -> None:
        check_messages(outcome.found, lower, upper)
        if upper.is_list and lower.durable == lower.put and self.keeps_lists:
            count = len([number for number in outcome.found if number >= lower.put])
            assert count in (0, upper.put - lower.put), f"half a list: {count}"
        if self.recording.ack:
            again = outcome.out & lower.acked
            assert not again, f"acked for good and handed out again: {again}"
            there = frozenset(outcome.found)
            lost = there - outcome.out - lower.maybe_acked - upper.maybe_acked
            assert not lost, f"never acked and never handed out: {lost}"
            assert outcome.out <= there

    def open(self) -> Queue:
        """In a new boot; opening does the same at every level, and `process` has no thread. A
        queue that is there knows its layout by itself."""
        self.clock.restart()
        known = {} if len(self.images) % SNIFF_EVERY == 0 else {"format": "penstock"}
        options = known | self.recording.options | {"durability": "process"}
        layout = None if registry.is_empty(self.path) else options.pop("layout", None)
        queue = Queue(self.path, clock=self.clock, **options)
        assert layout in (None, queue.store.layout)
        return queue

    def read_all(self) -> Outcome:
        turn = len(self.images)
        with self.open() as queue:
            found, out = tuple(read(queue)), frozenset[int]()
            if self.recording.ack:
                out = self.take_all(queue)
            if turn % VERIFY_EVERY == 0:
                assert queue.verify().corrupt == []
            if turn % REOPEN_EVERY == 0:
                queue.put(b"999999")
        if turn % REOPEN_EVERY == 0:
            self.check_after(found)
        return Outcome(found, out)

    def check_after(self, found: Sequence[int]) -> None:
        with self.open() as queue:
            there, expected = read(queue), [*found, 999999]
            if self.recording.ack and queue.store.capabilities.deletes_consumed:
                assert there, "what was put last was not acked"
                expected = expected[-len(there) :]
            assert there == expected

    def take_all(self, queue: Queue) -> frozenset[int]:
        self.clock.advance(10)
        group = queue.group(self.recording.group, ack=self.recording.ack)
        assert group.core.next <= queue.offsets().tail
        assert group.cursor <= queue.offsets().tail
        return frozenset(int(message.body[:6]) for message in group.get_many(1000))

    def cut_twice(self, state: State, lower: Facts, upper: Facts, disk: Disk) -> Outcome:
        """Records recovery and a put, and cuts the power again at some point of them."""
        second = Disk(self.folder)
        for name, inode in state[0]:
            there = self.folder / name
            second.files[inode] = file = type(disk.files[inode])()
            file.store(0, there.read_bytes())
            file.sync()
            second.names[name] = second.now[name] = there.stat().st_ino
            second.files[there.stat().st_ino] = second.files.pop(inode)
        _core.take_effects()
        _core.record_effects(True)
        try:
            outcome = self.read_all()
        finally:
            _core.record_effects(False)
        effects = _core.take_effects()
        for effect in effects[: self.rng.randrange(len(effects) + 1)]:
            second.apply(effect)
        is_acked = self.recording.ack == "auto"  # What was looked at, and may go with that.
        more = Facts(
            upper.put, lower.durable, upper.put if is_acked else upper.trimmed, lower.acked,
            frozenset(range(upper.put)) if is_acked else upper.maybe_acked,
        )  # fmt: skip
        for again in second.states(self.rng, 2, 1):
            self.cut_again.append(second.image(again))
            make(self.cut_again[-1], self.folder)
            with self.open() as queue:
                found = read(queue)
                check_messages([n for n in found if n != 999999], lower, more)
        return outcome


def read(queue: Queue) -> list[int]:
    """Numbers of the messages that are there; each body must be what was put."""
    found = []
    for message in queue.scan():
        number = int(message.body[:6])
        assert number == 999999 or message.body == body(number, len(message.body) - 6)
        found.append(number)
    return found


def check_messages(found: Sequence[int], lower: Facts, upper: Facts) -> None:
    if found:
        assert list(found) == list(range(found[0], found[-1] + 1)), f"holes: {found}"
    first, end = (found[0], found[-1] + 1) if found else (upper.trimmed, upper.trimmed)
    assert first <= max(upper.trimmed, 0), f"starts at {first}, trimmed {upper.trimmed}"
    assert end >= lower.durable, f"ends at {end}, {lower.durable} were durable"
    assert end <= upper.put, f"ends at {end}, {upper.put} were put"


def crash_points(recording: Recording) -> Iterator[tuple[int, Facts, Facts]]:
    """After each effect: what held before the operation that was cut, and after it."""
    marks = [(0, Facts()), *recording.facts, (len(recording.effects) + 1, recording.facts[-1][1])]
    for (start, lower), (end, upper) in itertools.pairwise(marks):
        for point in range(start, min(end, len(recording.effects) + 1)):
            yield point, lower, upper


def cut_everywhere(
    recording: Recording,
    budget: int,
    seed: int,
    kind: type[Examiner] = Examiner,
    *,
    every_subset: bool = False,
) -> int:
    """Examines about `budget` states, at every effect if they suffice, or on top of them every
    subset of up to 12 dirty pages; answers how many."""
    rng = random.Random(seed)
    folder = MEMORY / f"penstock-cut-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    disk, applied = Disk(recording.root.parent), 0
    examiner = kind(recording, folder, rng)
    examiner.second_cut_every = SECOND_CUT_EVERY if every_subset else SECOND_CUT_EVERY_OF_FEW
    points = list(crash_points(recording))
    if len(points) * FEWEST > budget and not every_subset:
        chosen = {0, len(points) - 1, *rng.sample(range(len(points)), budget // FEWEST)}
        points = [points[index] for index in sorted(chosen)]
    try:
        for index, (point, lower, upper) in enumerate(points):
            while applied < point:
                disk.apply(recording.effects[applied])
                applied += 1
            if not disk.files:
                continue
            share = max(FEWEST, (budget - examiner.checked) // (len(points) - index))
            # The same files twice at one point are one state.
            most = None if every_subset else share
            states = {hash(state): state for state in disk.states(rng, share, most)}
            for key, state in states.items():
                try:
                    examiner.examine(disk, state, key, lower, upper)
                except BaseException as error:
                    error.add_note(
                        f"{recording.name} {recording.options}: seed {seed}, effect {point} of"
                        f" {len(recording.effects)}, before {lower}, after {upper}; images in"
                        f" {examiner.keep(disk.image(state))}"
                    )
                    raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(examiner.images)} different images", end=" of ")
    if kind is not Counter:
        counting.count("states", examiner.checked)
    return examiner.checked


CASES: list[tuple[str, dict[str, Any]]] = [
    (name, {"durability": level})
    for level in ("always", "process")
    for name in ("appends", "rolls", "trims", "reopens", "leases", "gets")
]
CASES += [
    (name, options)
    for name in ("rolls", "reopens")
    for options in (
        {"durability": "always", "key": KEY},
        {"durability": "process", "key": KEY},
        {"durability": "process", "compression": "lz4"},
    )
]


def title(case: tuple[str, dict[str, Any]]) -> str:
    name, options = case
    kind = "encrypted" if "key" in options else options.get("compression", "plain")
    return f"{name}-{options['durability']}-{kind}"


def cut_case(case: tuple[str, dict[str, Any]], *, every_subset: bool) -> None:
    name, options = case
    recording = record(name, MEMORY / f"penstock-work-{os.getpid()}" / "queue", **options)
    states = MANY_STATES if every_subset else STATES
    checked = cut_everywhere(recording, states, SEED, every_subset=every_subset)
    print(f"{title(case)}: {checked} states, {len(recording.effects)} effects, seed {SEED}")
    assert checked > 100


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=title)
def test_a_power_cut_anywhere_keeps_what_was_promised(case: tuple[str, dict[str, Any]]) -> None:
    cut_case(case, every_subset=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=title)
def test_every_subset_of_the_pages_that_a_power_cut_leaves(
    case: tuple[str, dict[str, Any]],
) -> None:
    cut_case(case, every_subset=True)


class Counter(Examiner):
    """Only counts."""

    def examine(self, disk: Disk, state: State, key: int, lower: Facts, upper: Facts) -> None:
        self.checked += 1


@pytest.mark.slow
def test_these_are_more_than_two_hundred_thousand_states() -> None:
    work = MEMORY / f"penstock-count-{os.getpid()}" / "queue"
    recordings = (record(name, work, **options) for name, options in CASES)
    counts = [
        cut_everywhere(one, MANY_STATES, SEED, Counter, every_subset=True) for one in recordings
    ]
    assert sum(counts) > 200_000


def test_what_is_out_below_an_end_that_moved_back_comes_back() -> None:
    work = MEMORY / f"penstock-out-{os.getpid()}" / "queue"
    recording = record("consumes", work, durability="process")
    assert cut_everywhere(recording, 200, SEED) > 100
