"""Power cuts at every effect of small programs on a Beats queue, whose files end where they end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.formats.beats import structs
from penstock.sidecar.control import CONTROL
from tests.crash.test_power_cut import MEMORY, SEED, Examiner, Outcome, cut_everywhere, read
from tests.crash.workloads import Facts, record

pytestmark = pytest.mark.crash
STATES = int(os.environ.get("PENSTOCK_STATES", "150"))
KEY = bytes(range(16))
KINDS: dict[str, dict[str, Any]] = {
    "1": {"layout": "1"},
    "2, tamper-evident": {"layout": "2", "key": KEY, "tamper_evident": True},
    "3": {"layout": "3", "key": KEY},
    "2-released-lz4": {"layout": "2-released-lz4"},
}


class BeatsExaminer(Examiner):
    """Also reads without repairing, as a tool would, and looks where a Beat would go on."""

    def read_all(self) -> Outcome:
        before, passed = self.look() if any(self.path.glob("*.seg")) else ([], frozenset())
        outcome = super().read_all()
        found = list(outcome.found)
        # Whoever opens it for writing may delete what was acked.
        assert before[len(before) - len(found) :] == found
        return replace(outcome, passed=passed)

    def check(self, outcome: Outcome, lower: Facts, upper: Facts) -> None:
        super().check(outcome, lower, upper)
        assert outcome.passed <= upper.maybe_acked, "state.dat is ahead of what was acked"

    def check_after(self, found: Sequence[int]) -> None:
        with self.open() as queue:
            left = read(queue)
        assert left[-1] == 999999
        assert left == [*found, 999999][len(found) + 1 - len(left) :]

    def look(self) -> tuple[list[int], frozenset[int]]:
        """What there is, and what lies before the place in `state.dat`."""
        self.clock.restart()
        options = self.recording.options
        with Queue(self.path, read_only=True, clock=self.clock, **options) as queue:
            place = queue.store.format.own_groups().get("default")
            passed = {int(m.body[:6]) for m in queue.scan() if place and (m.offset or 0) < place}
            return read(queue), frozenset(passed)


def cut(name: str, level: str, kind: str, states: int) -> None:
    options: dict[str, Any] = {"format": "beats", "durability": level} | KINDS[kind]
    recording = record(name, MEMORY / f"penstock-beats-{os.getpid()}" / "queue", **options)
    assert cut_everywhere(recording, states, SEED, BeatsExaminer) > 100


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("appends", "always", "1"),
        ("reopens", "process", "1"),
        ("consumes", "always", "1"),
        ("rolls", "process", "2, tamper-evident"),
        ("consumes", "process", "2, tamper-evident"),
        ("rolls", "always", "2-released-lz4"),
        ("consumes", "process", "2-released-lz4"),
    ],
)
def test_a_power_cut_anywhere_keeps_what_was_promised(name: str, level: str, kind: str) -> None:
    cut(name, level, kind, STATES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["always", "process"])
@pytest.mark.parametrize("name", ["appends", "rolls", "reopens", "leases", "consumes"])
def test_many_power_cuts_keep_what_was_promised(name: str, level: str, kind: str) -> None:
    cut(name, level, kind, 20 * STATES)


def test_a_plain_copy_that_came_back_without_its_bytes_hides_nothing(tmp_path: Path) -> None:
    """It was deleted, and neither its bytes nor that were synced; the stream was."""
    path = tmp_path / "q"
    options: dict[str, Any] = {"format": "beats", "layout": "2-released-lz4"}
    with Queue(path, segment_bytes=16384, durability="process", **options) as queue:
        for number in range(20):
            queue.put(b'{"n": %d, "text": "%s"}' % (number, b"x" * 1000))
    copy = path / ".penstock" / "plain" / "0.plain"
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(bytes((path / "0.seg").stat().st_size))
    with (path / ".penstock" / "control").open("r+b") as control:
        for word in ("clean", "boot"):
            control.seek(CONTROL.offset_of(word))
            control.write(CONTROL.pack_field(word, 0))
    for is_reader in (True, False):
        with Queue(path, read_only=is_reader, create=False) as queue:
            assert [message.json()["n"] for message in queue.scan()] == list(range(20))


@pytest.mark.parametrize("layout", ["0", "1", "2-released"])
@pytest.mark.parametrize("sector", [0, 512, 4096])
def test_what_a_power_cut_took_of_a_segment_that_was_never_synced_is_no_damage(
    tmp_path: Path, layout: str, sector: int
) -> None:
    """Of the first one as much came to the disk as is kept, of its events perhaps none; the second
    one is set aside. The new one begins behind both."""
    source, path = tmp_path / "source", tmp_path / "q"
    options: dict[str, Any] = {"format": "beats", "layout": layout, "durability": "process"}
    with Queue(source, segment_bytes=16384, **options) as queue:
        for number in range(20):
            queue.put(b'{"n": %d, "text": "%s"}' % (number, b"x" * 1000))
        shutil.copytree(source, path)  # As a power cut leaves it: what was not synced may be gone.
    first = path / "0.seg"
    kept = max(sector, structs.KINDS[layout].data_at)
    first.write_bytes(first.read_bytes()[:kept] + bytes(first.stat().st_size - kept))
    for _ in range(2):
        with Queue(path, create=False) as queue:
            assert queue.verify().corrupt == []
            assert len(queue) == (3 if sector == 4096 else 0)
