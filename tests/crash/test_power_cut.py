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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, Queue, _core
from tests.crash.disk import Disk, State
from tests.crash.workloads import KEY, Facts, Recording, record

pytestmark = pytest.mark.crash
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
SEED = int(os.environ.get("PENSTOCK_SEED", "20261115"))
STATES = int(os.environ.get("PENSTOCK_STATES", "5000"))
"""Of each case that has as many; together a little more than 200,000."""
SECOND_CUT_EVERY, REOPEN_EVERY, VERIFY_EVERY = 200, 4, 8


class Examiner:
    """Opens states of one recording and says what is wrong with them."""

    def __init__(self, recording: Recording, folder: Path, rng: random.Random) -> None:
        self.recording, self.folder, self.rng = recording, folder, rng
        self.path = folder / recording.root.name
        self.clock = ManualClock()
        self.checked = 0
        self.seen: set[int] = set()

    def examine(self, disk: Disk, state: State, lower: Facts, upper: Facts) -> None:
        known = hash((state, lower, upper))
        if known in self.seen:
            return
        self.seen.add(known)
        self.checked += 1
        disk.make(state, self.folder)
        again = self.checked % SECOND_CUT_EVERY == 0
        if again:
            self.cut_twice(state, lower, upper, disk)
        else:
            found = self.open_and_check(lower, upper)
            if self.checked % REOPEN_EVERY == 0:
                self.check_after(found)

    def open(self) -> Queue:
        self.clock.restart()
        return Queue(self.path, clock=self.clock, **self.recording.options)

    def open_and_check(self, lower: Facts, upper: Facts) -> list[int]:
        with self.open() as queue:
            found = read(queue)
            check_messages(found, lower, upper)
            if self.recording.ack:
                self.check_group(queue, set(found), lower, upper)
            if self.checked % VERIFY_EVERY == 0:
                assert queue.verify().corrupt == []
            queue.put(b"999999")
        return found

    def check_group(self, queue: Queue, there: set[int], lower: Facts, upper: Facts) -> None:
        self.clock.advance(10)
        group = queue.group(self.recording.group, ack=self.recording.ack)
        assert group.core.next <= queue.end().tail
        assert group.cursor <= queue.end().tail
        out = {int(message.body[:6]) for message in group.get_many(1000)}
        assert not out & lower.acked, f"acked for good and handed out again: {out & lower.acked}"
        lost = there - out - lower.maybe_acked - upper.maybe_acked
        assert not lost, f"never acked and never handed out: {lost}"
        assert out <= there

    def check_after(self, found: list[int]) -> None:
        with self.open() as queue:
            there, expected = read(queue), [*found, 999999]
            if self.recording.ack and queue.store.capabilities.deletes_consumed:
                assert there, "what was put last was not acked"
                expected = expected[-len(there) :]
            assert there == expected

    def cut_twice(self, state: State, lower: Facts, upper: Facts, disk: Disk) -> None:
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
            self.open_and_check(lower, upper)
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
            second.make(again, self.folder)
            with self.open() as queue:
                found = read(queue)
                check_messages([n for n in found if n != 999999], lower, more)


def read(queue: Queue) -> list[int]:
    """Numbers of the messages that are there; each body must be what was put."""
    found = []
    for message in queue.scan():
        body = message.body
        number = int(body[:6])
        assert number == 999999 or body[6:] == bytes([number % 251]) * (len(body) - 6)
        found.append(number)
    return found


def check_messages(found: list[int], lower: Facts, upper: Facts) -> None:
    if found:
        assert found == list(range(found[0], found[-1] + 1)), f"holes: {found}"
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
    recording: Recording, budget: int, seed: int, make: type[Examiner] = Examiner
) -> int:
    """Examines about `budget` different states; answers how many."""
    rng = random.Random(seed)
    folder = MEMORY / f"penstock-cut-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    disk, applied = Disk(recording.root.parent), 0
    examiner = make(recording, folder, rng)
    points = list(crash_points(recording))
    try:
        for index, (point, lower, upper) in enumerate(points):
            while applied < point:
                disk.apply(recording.effects[applied])
                applied += 1
            share = max(2, (budget - examiner.checked) // (len(points) - index))
            for state in disk.states(rng, share, share) if disk.files else ():
                try:
                    examiner.examine(disk, state, lower, upper)
                except BaseException as error:
                    error.add_note(
                        f"{recording.name} {recording.options}: seed {seed}, effect {point}"
                    )
                    raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
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


@pytest.mark.parametrize("case", CASES, ids=title)
def test_a_power_cut_anywhere_keeps_what_was_promised(
    case: tuple[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    name, options = case
    recording = record(name, MEMORY / f"penstock-work-{os.getpid()}" / "queue", **options)
    checked = cut_everywhere(recording, STATES, SEED)
    print(f"{title(case)}: {checked} states, {len(recording.effects)} effects, seed {SEED}")
    assert checked > 100


def test_what_is_out_below_an_end_that_moved_back_comes_back() -> None:
    work = MEMORY / f"penstock-out-{os.getpid()}" / "queue"
    recording = record("consumes", work, durability="process")
    assert cut_everywhere(recording, 200, SEED) > 100
