"""Power cuts at every effect of small programs on a Beats queue, whose files end where they end."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import ManualClock, Message, Queue, _core
from penstock.formats.beats import segments, structs
from penstock.sidecar.control import CONTROL
from tests.crash.disk import Disk, File, make
from tests.crash.test_power_cut import MEMORY, SEED, Examiner, Outcome, cut_everywhere, read
from tests.crash.workloads import Facts, record
from tests.formats.beats.helpers import CREATED, event, key_for

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
            place = queue.store.format.groups.bookmarks().get("default")
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


def test_a_stream_that_lacks_a_sector_does_not_stand_in_for_its_copy(tmp_path: Path) -> None:
    """While a segment is open, only its copy is synced. Here a power cut took a sector of the
    stream, and of the copy the message whose put had not returned."""
    source, path, clock = tmp_path / "source", tmp_path / "q", ManualClock()
    options: dict[str, Any] = {"format": "beats", "layout": "2-released-lz4", "clock": clock}
    with Queue(source, durability="always", **options) as queue:
        bodies = [os.urandom(1000) for _ in range(4)]  # Which no compression makes smaller.
        for one in bodies:
            queue.put(one)
        durable = queue.offsets().durable
        control = (source / ".penstock" / "control").read_bytes()
        queue.put(os.urandom(20))
        shutil.copytree(source, path)
    (path / ".penstock" / "control").write_bytes(control)
    segment, copy = path / "0.seg", path / ".penstock" / "plain" / "0.plain"
    stream, plain = segment.read_bytes(), copy.read_bytes()
    segment.write_bytes(stream[:512] + bytes(512) + stream[1024:])
    copy.write_bytes(plain[:durable] + bytes(len(plain) - durable))
    clock.restart()
    for is_reader in (True, False):
        with Queue(path, read_only=is_reader, create=False, clock=clock) as queue:
            assert [message.body for message in queue.scan()] == bodies


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


def numbers(messages: Iterable[Message]) -> list[int]:
    return [message.json()["n"] for message in messages]


def cut_newest(path: Path, layout: str, zeros: int = 0) -> None:
    """As a power cut leaves a segment that was not synced: its header, and perhaps zeros."""
    newest = segments.listed(path)[-1][0]
    copy = path / ".penstock" / "plain" / f"{newest}.plain"
    kind = structs.KINDS[layout]
    for whole, length in ((path / f"{newest}.seg", kind.data_at), (copy, kind.header_bytes)):
        if whole.exists():
            os.truncate(whole, length)
            os.truncate(whole, length + zeros)
    if kind.is_stream:
        with (path / f"{newest}.seg").open("r+b") as file:
            file.write(kind.pack_header())  # Without the number of its events.


def cut_twice(folder: Path, layout: str, zeros: int) -> tuple[Path, dict[str, Any]]:
    """A queue in which the first cut took a segment, and with it an id. After the second one
    nothing is there but the newest segment, without events, and with `zeros` where one was to
    be: above the id that follows on `state.dat`."""
    first, second, third = (folder / name / "q" for name in ("first", "second", "third"))
    clock = ManualClock()
    options: dict[str, Any] = {"durability": "process", "key": key_for(layout), "clock": clock}
    first.parent.mkdir()
    with Queue(first, format="beats", layout=layout, **options) as queue:
        queue.put(event(1))
        queue.get().ack()
    with Queue(first, **options), Queue(first, **options) as other:
        other.put(event(2))  # Into a segment of its own.
        shutil.copytree(first, second)
    cut_newest(second, layout, zeros=50)
    clock.restart()
    with Queue(second, **options) as queue:
        queue.put(event(3))
        queue.retain()  # What the group has acked goes.
        assert len(segments.listed(second)) == 1
        shutil.copytree(second, third)
    cut_newest(third, layout, zeros)
    clock.restart()
    return third, options | {"durability": "always"}


@pytest.mark.parametrize("layout", CREATED)
def test_puts_after_two_power_cuts_do_not_lie_before_the_head(tmp_path: Path, layout: str) -> None:
    path, options = cut_twice(tmp_path, layout, zeros=0)
    kept: list[int] = []
    for number in (4, 5, 6):
        with Queue(path, **options) as queue:
            assert numbers(queue.scan()) == kept
            queue.put(event(number))
            kept.append(number)
            assert numbers(queue.scan()) == kept
    with Queue(path, **options) as queue:
        assert numbers(queue.get_many(10)) == kept
        assert queue.verify().is_ok


@pytest.mark.parametrize("layout", ["1", "2-released-lz4"])
def test_a_power_cut_anywhere_in_recovery_hides_no_later_put(tmp_path: Path, layout: str) -> None:
    """Recovery cuts off what is no event, and then begins a segment: between the two the queue is
    one segment without events."""
    path, options = cut_twice(tmp_path, layout, zeros=50)
    disk = Disk(path.parent)
    for file in [file for file in path.rglob("*") if file.is_file()]:
        disk.files[file.stat().st_ino] = content = File()
        content.store(0, file.read_bytes())
        content.sync()
        disk.names[str(file.relative_to(path.parent))] = file.stat().st_ino
    disk.now = dict(disk.names)
    _core.take_effects()
    _core.record_effects(True)
    try:
        with Queue(path, **options) as queue:
            queue.put(event(4))
    finally:
        _core.record_effects(False)
    rng, tried = random.Random(SEED), set[int]()
    for effect in _core.take_effects():
        disk.apply(effect)
        is_step = effect[0] in ("rename", "sync", "sync_folder", "unlink")
        for state in disk.states(rng, 1, 1) if is_step else ():
            image = disk.image(state)
            if hash(image) in tried:
                continue
            tried.add(hash(image))
            make(image, path.parent)
            options["clock"].restart()
            with Queue(path, **options) as queue:
                queue.put(event(5))
            with Queue(path, **options) as queue:
                assert numbers(queue.scan())[-1:] == [5]
    assert len(tried) > 10


@pytest.mark.parametrize("layout", CREATED)
def test_a_queue_without_a_segment_opens_after_a_power_cut(tmp_path: Path, layout: str) -> None:
    """We were killed, a Beat has read and deleted everything, and then the machine stopped."""
    path, clock = tmp_path / "q", ManualClock()
    options: dict[str, Any] = {"key": key_for(layout), "clock": clock}
    with Queue(path, format="beats", layout=layout, **options) as queue:
        queue.put(event(1))
        queue.get().ack()
    Queue(path, **options).store.drop()
    for file in segments.find(path).values():
        file.unlink()
    clock.restart()
    bare: dict[str, Any] = {"layout": layout, "create": False}
    with Queue(path, read_only=True, **options, **bare) as queue:
        assert list(queue.scan()) == []
    with Queue(path, **options, **bare) as queue:
        queue.put(event(2))
    with Queue(path, **options) as queue:
        assert numbers([queue.get()]) == [2]


@pytest.mark.parametrize("what", ["with an older segment", "alone", "not noted"])
@pytest.mark.parametrize("layout", CREATED)
def test_a_queue_whose_newest_header_a_power_cut_took_keeps_its_layout(
    tmp_path: Path, layout: str, what: str
) -> None:
    """Zeros look like layout 0, which is no layout for what is secret."""
    path, clock = tmp_path / "q", ManualClock()
    options: dict[str, Any] = {"key": key_for(layout), "clock": clock}
    with Queue(path, format="beats", layout=layout, **options) as queue:
        queue.put(event(1))
    Queue(path, **options).store.drop()
    (oldest, _), (newest, _) = segments.listed(path)
    file = path / f"{newest}.seg"
    size = file.stat().st_size
    os.truncate(file, 0)
    os.truncate(file, size)
    if what == "alone":
        (path / f"{oldest}.seg").unlink()
        (path / ".penstock" / "plain" / f"{oldest}.plain").unlink(missing_ok=True)
    if what == "not noted":
        note = path / ".penstock" / "beats.json"
        note.write_text(note.read_text().replace("layout", "before"))
    clock.restart()
    with Queue(path, **options) as queue:
        assert queue.store.layout == layout
        queue.put(event(2))
    newest, _ = segments.listed(path)[-1]
    header = segments.identify(path / f"{newest}.seg", key_for(layout))
    assert isinstance(header, segments.Header)
    assert header.kind.name == layout


@pytest.mark.parametrize("layout", CREATED)
def test_a_deleted_segment_that_a_power_cut_brought_back_empty_keeps_nobody_out(
    tmp_path: Path, layout: str
) -> None:
    """The shared words came to the disk, with the head behind it; that its name went did not, nor
    did any newer segment."""
    path, clock = tmp_path / "q", ManualClock()
    options: dict[str, Any] = {"durability": "process", "key": key_for(layout), "clock": clock}
    with Queue(path, format="beats", layout=layout, **options) as queue:
        queue.put(event(1))
        first = (path / "0.seg").read_bytes()[: structs.KINDS[layout].data_at]
        with Queue(path, **options) as other:
            other.put(event(2))  # Into a segment of its own.
            for message in queue.get_many(2):
                message.ack()
            other.put(event(3))
            queue.retain()
            assert not (path / "0.seg").exists()
            shutil.copytree(path, tmp_path / "cut")
    path = tmp_path / "cut"
    for file in segments.find(path).values():
        file.unlink()
    shutil.rmtree(path / ".penstock" / "plain", ignore_errors=True)
    (path / "0.seg").write_bytes(first)
    clock.restart()
    with Queue(path, **options) as queue:
        assert list(queue.scan()) == []
        queue.put(event(4))
        assert numbers([queue.get()]) == [4]


@pytest.mark.parametrize("left", [0, 3])
@pytest.mark.parametrize("layout", CREATED)
def test_a_queue_of_whose_segments_no_header_came_to_the_disk_keeps_its_layout(
    tmp_path: Path, layout: str, left: int
) -> None:
    """What was before them had been read, and was deleted."""
    path, clock = tmp_path / "q", ManualClock()
    options: dict[str, Any] = {"key": key_for(layout), "durability": "process", "clock": clock}
    with Queue(path, format="beats", layout=layout, **options) as queue:
        queue.put(event(1))
        with Queue(path, **options) as other:
            other.put(event(2))  # Into a segment of its own.
            for message in queue.get_many(2):
                message.ack()
            queue.retain()
            shutil.copytree(path, tmp_path / "cut")
    path = tmp_path / "cut"
    oldest = min(segments.find(path))
    for file in segments.find(path).values():
        os.truncate(file, left)
    shutil.rmtree(path / ".penstock" / "plain", ignore_errors=True)
    clock.restart()
    with Queue(path, read_only=True, **options) as queue:
        assert list(queue.scan()) == []
    with Queue(path, **options) as queue:
        assert queue.store.layout == layout
        queue.put(event(3))
        assert numbers([queue.get()]) == [3]
    assert segments.listed(path)[0][0] >= oldest
    with Queue(path, **options) as queue:
        assert queue.verify().is_ok


def test_an_emptied_segment_that_had_events_is_told(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, format="beats", layout="1") as queue:
        queue.put(event(1))
    os.truncate(path / "0.seg", 0)
    with Queue(path, read_only=True) as queue:
        assert queue.verify().corrupt or queue.stats()["dropped"]
    with Queue(path) as queue:
        assert queue.stats()["dropped"]
