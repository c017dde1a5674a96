"""kill -9 at random instants: nothing that `put` returned for is lost; every opening is clean."""

from __future__ import annotations

import mmap
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from penstock import CorruptError, Queue
from penstock.formats.penstock import structs
from penstock.formats.penstock.segments import Header, read_page
from tests.crash.killing import Score, in_a_small_process, run_and_kill
from tests.opening import open_queue

pytestmark = pytest.mark.crash
SEED = int(os.environ.get("PENSTOCK_SEED", "20261115"))
KEY = bytes(range(32))
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-kill-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


def put_for_ever(
    ready: Callable[[], None], path: Path, score: Score, start: int, seed: int, options: Any
) -> None:
    """Puts messages that carry their number; the score says how many puts have returned."""
    note, rng = score.writer(), random.Random(seed)
    queue = open_queue(path, **options)
    ready()
    number = start
    for _ in range(5000):  # Should nobody kill it, it ends by itself.
        size = rng.choice((1, 30, 200, 900, 5000))
        count = rng.choice((1, 1, 1, 5))
        bodies = [b"%08d" % n + bytes([n % 251]) * size for n in range(number, number + count)]
        if count == 1:
            queue.put(bodies[0])
        else:
            queue.put_many(bodies)
        number += count
        note(number)


def check(path: Path, promised: int, options: Any) -> int:
    """All that was promised is there, in order and unchanged; answers how many there are."""
    with open_queue(path, **options) as queue:
        numbers = []
        for message in queue.scan():
            number = int(message.body[:8])
            assert message.body[8:] == bytes([number % 251]) * (len(message.body) - 8)
            numbers.append(number)
        count = queue.offsets().next_number
        first = numbers[0] if numbers else count
        assert numbers == list(range(first, count)), story(queue, numbers, promised)
        assert count >= promised, f"{count} there, {promised} promised"
        if len(queue.store.segments()) > 20:
            queue.purge()
        assert queue.stats()["dropped"] == []
        return count


def story(queue: Queue, numbers: list[int], promised: int) -> str:
    """What is there where it should not be so: a kill does not come twice at the same instant."""
    steps = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
    around = [numbers[max(0, at - 2) : at + 2] for at in steps[:5]]
    again = [int(message.body[:8]) for message in queue.scan()]
    bases = [segment.base for segment in queue.store.segments()]
    return (
        f"{len(numbers)} numbers, {numbers[:1]} to {numbers[-1:]}, {promised} promised, "
        f"not in a row at {around}; read again {'the same' if again == numbers else again[-5:]}; "
        f"{queue.offsets()}, {queue.stats()['dropped']}, segments at {bases}"
    )


def kill_often(folder: Path, times: int, options: Any) -> None:
    print(f"seed {SEED}")
    rng, score = random.Random(SEED), Score(folder / "score")
    path, there = folder / "queue", 0
    for turn in range(times):
        seed = rng.randrange(2**32)
        run_and_kill(
            partial(put_for_ever, path=path, score=score, start=there, seed=seed, options=options),
            rng,
        )
        there = check(path, score.read(), options)
        if turn % 200 == 0:
            with open_queue(path, **options) as queue:
                assert queue.verify().is_ok
    assert there > times


KINDS = {
    "plain": {},
    "encrypted": {"key": KEY},
    "compressed": {"compression": "lz4"},
    "always": {"durability": "always"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_writer_loses_nothing(folder: Path, kind: str) -> None:
    times = {"plain": 60}.get(kind, 30)
    in_a_small_process(kill_often, folder, times, KINDS[kind])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_killed_ten_thousand_times_loses_nothing(folder: Path, kind: str) -> None:
    in_a_small_process(kill_often, folder, 10_000, KINDS[kind])


# ── with others there ──────────────────────────────────────────────────────────────────────────


def consume_for_ever(ready: Callable[[], None], path: Path, noted: Path) -> None:
    """Takes and acks; byte n of the file says that message n was acked."""
    with noted.open("r+b") as file:
        acked = mmap.mmap(file.fileno(), 0)
    queue = open_queue(path)
    queue.group()
    ready()
    for _ in range(1000):
        for message in queue.get_many(3, 0.05):
            number = int(message.body[:8])
            message.ack()
            acked[number] = 1


def kill_consumers(folder: Path, total: int, most: int) -> None:
    print(f"seed {SEED}")
    rng, path = random.Random(SEED), folder / "queue"
    acked = folder / "acked"
    acked.write_bytes(bytes(total))
    with open_queue(path) as queue:
        queue.put_many([b"%08d" % number + bytes(50) for number in range(total)])
        group = queue.group()
        kills = 0
        while acked.read_bytes().count(1) < total * 3 // 4 and kills < most:
            run_and_kill(partial(consume_for_ever, path=path, noted=acked), rng)
            kills += 1
            if kills % 10 == 0:
                group.core.release_dead()
        done = {number for number, byte in enumerate(acked.read_bytes()) if byte}
        group.core.release_dead()
        left = []
        while found := group.get_many(100):
            left += [int(message.body[:8]) for message in found]
            for message in found:
                message.ack()
        assert len(left) == len(set(left)), "one lease at a time"
        assert not done & set(left), f"acked and handed out again: {sorted(done & set(left))}"
        # One ack of each killed consumer may have been made and not noted by it.
        missing = set(range(total)) - done - set(left)
        assert len(missing) <= kills
        assert done
        assert group.cursor == queue.offsets().tail
        assert queue.verify().is_ok


def test_killed_consumers_lose_nothing_and_what_they_acked_is_done(folder: Path) -> None:
    in_a_small_process(kill_consumers, folder, 2000, 100)


# ── encryption ─────────────────────────────────────────────────────────────────────────────────


def nonces(path: Path, seen: dict[tuple[bytes, int], bytes]) -> None:
    """Notes the ciphertext under each (salt, base, offset) that stands in the files, also behind
    the end: one that comes again must be the same."""
    for file in (path / "log").iterdir():
        header = Header.unpack(read_page(file), file)
        data = file.read_bytes()
        at = structs.HEADER_BYTES
        while at + structs.FRAME.size <= len(data):
            size = int.from_bytes(data[at : at + 4], "little")
            if size in (0, 0xFFFFFFFF):
                break
            name = header.salt, header.base + at - structs.HEADER_BYTES
            frame = data[at + 8 : at + size]
            assert seen.setdefault(name, frame) == frame, f"two messages under one nonce: {name}"
            at += -(-size // 8) * 8


def never_twice(folder: Path, times: int) -> None:
    print(f"seed {SEED}")
    rng, score = random.Random(SEED), Score(folder / "score")
    path, there = folder / "queue", 0
    seen: dict[tuple[bytes, int], bytes] = {}
    for turn in range(times):
        seed = rng.randrange(2**32)
        run_and_kill(
            partial(
                put_for_ever, path=path, score=score, start=there, seed=seed, options={"key": KEY}
            ),
            rng,
        )
        if (path / "log").exists():
            nonces(path, seen)
        there = check(path, score.read(), {"key": KEY})
        nonces(path, seen)
        if turn % 50 == 49:
            seen.clear()
    assert there > times


def test_no_nonce_comes_twice_over_kills(folder: Path) -> None:
    in_a_small_process(never_twice, folder, 30)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_nonce_comes_twice_over_ten_thousand_kills(folder: Path) -> None:
    in_a_small_process(never_twice, folder, 10_000)


def frames(file: Path) -> list[tuple[int, int]]:
    """`(at, padded size)` of every frame."""
    data, found, at = file.read_bytes(), [], structs.HEADER_BYTES
    while size := int.from_bytes(data[at : at + 4], "little"):
        found.append((at, -(-size // 8) * 8))
        at += found[-1][1]
    return found


def with_crc(frame: bytes) -> bytes:
    """A frame whose checksum fits, as a forger would make it."""
    size = int.from_bytes(frame[:4], "little")
    crc: int = google_crc32c.extend(size ^ 0xFFFFFFFF, frame[8:size])
    return frame[:4] + crc.to_bytes(4, "little") + frame[8:]


def edited(data: bytearray, spans: list[tuple[int, int]]) -> None:
    at, size = spans[2]
    data[at + 40] ^= 1
    data[at : at + size] = with_crc(bytes(data[at : at + size]))


def renumbered(data: bytearray, spans: list[tuple[int, int]]) -> None:
    at, size = spans[2]
    data[at + 16] ^= 1
    data[at : at + size] = with_crc(bytes(data[at : at + size]))


def swapped(data: bytearray, spans: list[tuple[int, int]]) -> None:
    (a, size), (b, _) = spans[1], spans[2]
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def copied(data: bytearray, spans: list[tuple[int, int]]) -> None:
    (a, size), (b, _) = spans[0], spans[2]
    data[b : b + size] = data[a : a + size]


@pytest.mark.parametrize("forge", [edited, renumbered, swapped, copied])
def test_a_forged_or_moved_frame_is_refused(folder: Path, forge: Any) -> None:
    path = folder / "queue"
    with open_queue(path, key=KEY) as queue:
        for number in range(5):
            queue.put(b"pay %03d" % number)
    (file,) = (path / "log").iterdir()
    data = bytearray(file.read_bytes())
    forge(data, frames(file))
    file.write_bytes(data)
    with open_queue(path, key=KEY) as queue:
        assert not queue.verify().is_ok
        with pytest.raises(CorruptError, match="key"):
            list(queue.scan())
        kept = [message.body for message in queue.scan(tolerant=True)]
        assert set(kept) < {b"pay %03d" % number for number in range(5)}
