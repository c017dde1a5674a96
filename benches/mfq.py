"""Two processes: throughput, CPU time and one-way latency beside other ways.

Wall times say something on a machine that has nothing else to do; the CPU time of both processes
together does so under load as well. Every measurement has a process group and a time limit of its
own: a way that hangs is ended and reported, and the others go on.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benches._limits import LIMIT_S, Unfinished, make, within
from benches._parties import CONTEXT, MANY, OTHERS, OURS, Face, Iceoryx, Lmdb, Party, Pipe, Zmq
from benches.harness import Row, median, percentile, scratch
from penstock import Empty
from penstock.engine.mfq import MappedFileQueue

NOW = time.perf_counter_ns  # The monotonic clock: the same in every process.
Figures = tuple[float, ...]


def _send(
    party: Party, size: int, count: int, batch: int, pause_s: float, ready: Connection
) -> None:
    """In the other process: `count` messages; with a pause, each has the time it was sent."""
    with ExitStack() as stack:
        if batch == 1:
            send: Callable[[Any], object] = party.send(stack)
        else:
            send = party.send_many(stack)
        what: Any = bytes(size) if batch == 1 else [bytes(size)] * batch
        ready.send(True)
        ready.recv()
        start = time.process_time_ns()
        if pause_s == 0:
            for _ in range(count // batch):
                send(what)
        for _ in range(count if pause_s else 0):
            send(NOW().to_bytes(8, "little") + bytes(size - 8))
            time.sleep(pause_s)
        ready.send(time.process_time_ns() - start)
        ready.recv()


@contextlib.contextmanager
def _sender(
    party: Party, size: int, count: int, batch: int = 1, pause_s: float = 0.0
) -> Iterator[Callable[[], int]]:
    """Runs it; what it gives answers the other's CPU time once everything has arrived."""
    ours, theirs = CONTEXT.Pipe()
    args = (party, size, count, batch, pause_s, theirs)
    process = CONTEXT.Process(target=_send, args=args)
    process.start()
    ours.recv()
    ours.send(True)
    yield ours.recv
    ours.send(True)
    process.join()


def passed_us(kind: type[Party], folder: Path, size: int, count: int, batch: int) -> Figures:
    """Wall time per message, from the first arrival to the last, and CPU time of both."""
    party = make(kind, folder)
    with ExitStack() as stack:
        if batch == 1:
            take: Callable[[], Any] = party.receive(stack, spinning=None)
        else:
            take = party.receive_many(stack)
        with _sender(party, size, count, batch) as cpu_of_sender:
            answer = take()
            first: int = 1 if batch == 1 else answer
            start, cpu = NOW(), time.process_time_ns()
            left = count - first
            if batch == 1:
                for _ in range(left):
                    take()
            while batch > 1 and left > 0:
                left -= take()
            wall, used = NOW() - start, time.process_time_ns() - cpu
            used += cpu_of_sender()
    return wall / (count - first) / 1000, used / count / 1000


def latencies_us(kind: type[Party], folder: Path, count: int, spinning: bool) -> Figures:
    """One-way p50 and p99 of 100-byte messages at about 2500 a second."""
    party, found = make(kind, folder), []
    with ExitStack() as stack:
        receive = party.receive(stack, spinning=spinning)
        with _sender(party, 100, count, pause_s=0.0004) as finished:
            for _ in range(count):
                stamp = int.from_bytes(receive()[:8], "little")
                found.append((NOW() - stamp) / 1000)
            finished()
    found = found[count // 10 :]
    return percentile(found, 50), percentile(found, 99)


@dataclass
class Contest:
    """All ways in turn, round after round: a machine that is slow for a while is so for all. Each
    round in another order: what one leaves to the kernel to tidy up, the next one pays for."""

    root: Path
    rounds: int
    parties: list[type[Party]]
    notes: dict[type[Party], str] = field(default_factory=dict)
    found: dict[type[Party], list[Figures]] = field(default_factory=dict)
    """All rounds of the last measurement."""
    _made: int = 0

    def measure(
        self, parties: list[type[Party]], work: Callable[..., Figures], *arguments: Any
    ) -> dict[type[Party], Figures]:
        """Of each figure the best of the rounds; none of them where no round finished."""
        self.found = {party: [] for party in parties}
        failed: dict[type[Party], str] = {}
        for number in range(self.rounds):
            for party in random.Random(number).sample(parties, len(parties)):
                if party in failed and not self.found[party]:
                    continue  # It will not do better, and others wait.
                try:
                    self.found[party].append(self._once(party, work, arguments))
                except Unfinished as error:
                    failed[party] = str(error)
        for party, found in self.found.items():
            lost = self.rounds - len(found)
            self.notes[party] = f"{lost} rounds: {failed[party]}" if party in failed else ""
        return {
            party: tuple(map(min, zip(*found, strict=True))) for party, found in self.found.items()
        }

    def _once(
        self, party: type[Party], work: Callable[..., Figures], arguments: tuple[Any, ...]
    ) -> Figures:
        self._made += 1
        folder = self.root / f"round-{self._made}"
        try:
            found: Figures = within(LIMIT_S, work, party, folder, *arguments)
            return found
        finally:
            # Or every round would be the first to use its memory, which costs a guest more
            # than all the rest: in the long run a queue gets pages that were used before.
            shutil.rmtree(folder, ignore_errors=True)


def run(quick: bool) -> Iterator[Row]:
    count, ticks, rounds = (50_000, 600, 2) if quick else (200_000, 2500, 5)
    parties = [party for party in (*OURS, *OTHERS) if not party.missing()]
    for party in OTHERS:
        if why := party.missing():
            print(why)
    with scratch() as root:
        contest = Contest(root, rounds, parties)
        for batch in (1, MANY):
            for size in (100, 1000):
                yield from _throughput(contest, size, count, batch)
        for spinning in (True, False):
            yield from _latency(contest, ticks, spinning)
        idle = min(idle_ms(root / f"idle-{number}") for number in range(3))
        yield Row(
            case="CPU of a blocking consumer, 1 s idle: mfq face", ours=idle, unit="ms", goal=2
        )


def _rows(contest: Contest, found: dict[type[Party], Figures]) -> Iterator[type[Party]]:
    for party, figures in found.items():
        if figures:
            yield party
        else:
            print(f"{party.name}: {contest.notes[party]}")


def _throughput(contest: Contest, size: int, count: int, batch: int) -> Iterator[Row]:
    names = [party for party in contest.parties if batch == 1 or party.has_lists]
    found = contest.measure(names, passed_us, size, count, batch)
    peers: list[type[Party]] = [Zmq, Pipe, *OTHERS]
    peer = next((p for p in peers if found.get(p)), None)
    goals = {(1, 100): 0.25, (MANY, 100): 0.10, (MANY, 1000): 0.40}
    many = "" if batch == 1 else f" x{batch}"
    for at, what in enumerate(("", ", CPU of both")):
        for party in _rows(contest, found):
            is_ours = party in OURS and peer is not None
            is_goal = party in OURS and not what
            yield Row(
                case=f"2 processes {size} B{many}{what}: {party.name}", ours=found[party][at],
                unit="us", peer=peer.name if is_ours and peer else "",
                peer_value=found[peer][at] if is_ours and peer else None,
                goal=goals.get((batch, size)) if is_goal else None,
                ratio_goal=0.25 if is_goal and (batch, size, peer) == (1, 100, Zmq) else None,
                note=contest.notes[party],
            )  # fmt: skip
    yield from _further(contest, size, batch, found)


def _further(
    contest: Contest, size: int, batch: int, found: dict[type[Party], Figures]
) -> Iterator[Row]:
    """The median of the goal per message, and the peer that is as safe as we are."""
    many = "" if batch == 1 else f" x{batch}"
    for party in OURS:
        if not found.get(party):
            continue
        case = f"2 processes {size} B{many}"
        if found.get(Lmdb):
            yield Row(
                case=f"{case}: {party.name}, beside lmdb", ours=found[party][0], unit="us",
                peer=Lmdb.name, peer_value=found[Lmdb][0],
                ratio_goal=None if (batch, size) == (1, 1000) else 0.1 if batch == 1 else 0.25,
            )  # fmt: skip
        if (batch, size) == (1, 100):
            values = [figures[0] for figures in contest.found[party]]
            yield Row(
                case=f"{case}, median: {party.name}", ours=median(values), unit="us", goal=0.5
            )


def idle_ms(folder: Path) -> float:
    """CPU time of a consumer that waits a second for nothing, without spinning."""
    queue = MappedFileQueue(folder, segment_size=1 << 20, consumer_spin_wait_duration=0.0)
    with queue:
        start = time.process_time_ns()
        with contextlib.suppress(Empty):
            queue.consumer.consume(timeout=1.0)
        return (time.process_time_ns() - start) / 1e6


def _latency(contest: Contest, ticks: int, spinning: bool) -> Iterator[Row]:
    names = [party for party in contest.parties if spinning or party is not Iceoryx]
    peer: type[Party]
    found = contest.measure(names, latencies_us, ticks, spinning)
    how = "spinning" if spinning else "blocking"
    peer = Iceoryx if spinning and found.get(Iceoryx) else Pipe
    goals = (2.0, 20.0) if spinning else (12.0, 40.0)
    wanted = 0.5 if peer is Iceoryx else (None if spinning else 0.9)
    for party in _rows(contest, found):
        for at, name in enumerate(("p50", "p99")):
            is_goal = party in OURS and (not spinning or party is Face)
            yield Row(
                case=f"one-way {how} {name}: {party.name}", ours=found[party][at], unit="us",
                peer=peer.name if party in OURS else "",
                peer_value=found[peer][at] if party in OURS else None,
                goal=goals[at] if is_goal else None,
                ratio_goal=wanted if is_goal and name == "p50" else None,
                note=contest.notes[party],
            )  # fmt: skip
