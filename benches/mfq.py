"""Two processes, one message at a time: throughput and one-way latency beside other ways."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

from benches._parties import CONTEXT, OTHERS, OURS, Face, Iceoryx, Party, Pipe, Zmq
from benches.harness import Row, percentile, scratch

NOW = time.perf_counter_ns  # The monotonic clock: the same in every process.


def _send(party: Party, size: int, count: int, pause_s: float, ready: Connection) -> None:
    """In the other process: `count` messages, each with the time it was sent."""
    with ExitStack() as stack:
        send = party.send(stack)
        ready.send(True)
        ready.recv()
        body = bytes(size)
        if pause_s == 0:
            for _ in range(count):
                send(body)
        for _ in range(count if pause_s else 0):
            send(NOW().to_bytes(8, "little") + bytes(size - 8))
            time.sleep(pause_s)
        ready.recv()


@contextlib.contextmanager
def _sender(party: Party, size: int, count: int, pause_s: float) -> Iterator[None]:
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_send, args=(party, size, count, pause_s, theirs))
    process.start()
    ours.recv()
    ours.send(True)
    yield
    ours.send(True)
    process.join()


def passed_us(party: Party, size: int, count: int) -> float:
    """Wall time per message, from the first one's arrival to the last one's."""
    with ExitStack() as stack:
        receive = party.receive(stack, spinning=None)
        with _sender(party, size, count, 0.0):
            receive()
            start = NOW()
            for _ in range(count - 1):
                receive()
            return (NOW() - start) / (count - 1) / 1000


def latencies_us(party: Party, count: int, *, spinning: bool) -> tuple[float, float]:
    """One-way p50 and p99 of 100-byte messages at about 2500 a second."""
    found = []
    with ExitStack() as stack:
        receive = party.receive(stack, spinning=spinning)
        with _sender(party, 100, count, 0.0004):
            for _ in range(count):
                stamp = int.from_bytes(receive()[:8], "little")
                found.append((NOW() - stamp) / 1000)
    found = found[count // 10 :]
    return percentile(found, 50), percentile(found, 99)


def _folders(folder: Path) -> Iterator[Path]:
    for number in range(1 << 20):
        fresh = folder / f"round-{number}"
        fresh.mkdir()
        yield fresh


def run(quick: bool) -> Iterator[Row]:
    count, ticks, rounds = (50_000, 600, 2) if quick else (200_000, 2500, 5)
    parties = [party for party in (*OURS, *OTHERS) if not party.missing()]
    for party in OTHERS:
        if why := party.missing():
            print(why)
    with scratch() as root:
        folders = _folders(root)
        for size in (100, 1000):
            best = {
                party: min(passed_us(party(next(folders)), size, count) for _ in range(rounds))
                for party in parties
            }
            yield from _throughput(best, size)
        for spinning in (True, False):
            seen = {
                party: min(
                    latencies_us(party(next(folders)), ticks, spinning=spinning)
                    for _ in range(rounds)
                )
                for party in parties
                if spinning or party is not Iceoryx
            }
            yield from _latency(seen, spinning)


def _throughput(best: dict[type[Party], float], size: int) -> Iterator[Row]:
    for party, value in best.items():
        peer = Zmq if Zmq in best else Pipe
        is_ours = party in OURS
        yield Row(
            case=f"2 processes {size} B: {party.name}", ours=value, unit="us",
            peer=peer.name if is_ours else "", peer_value=best[peer] if is_ours else None,
            goal=0.25 if is_ours and size == 100 else None,
            ratio_goal=0.25 if is_ours and size == 100 and peer is Zmq else None,
        )  # fmt: skip


def _latency(seen: dict[type[Party], tuple[float, float]], spinning: bool) -> Iterator[Row]:
    how = "spinning" if spinning else "blocking"
    peer = Iceoryx if spinning and Iceoryx in seen else Pipe
    goals = (2.0, 20.0) if spinning else (12.0, 40.0)
    wanted = 0.5 if peer is Iceoryx else (None if spinning else 0.9)
    for party, found in seen.items():
        for name, value, goal, beside in zip(("p50", "p99"), found, goals, seen[peer], strict=True):
            is_goal = party in OURS and (not spinning or party is Face)
            yield Row(
                case=f"one-way {how} {name}: {party.name}", ours=value, unit="us",
                peer=peer.name if party in OURS else "",
                peer_value=beside if party in OURS else None,
                goal=goal if is_goal else None,
                ratio_goal=wanted if is_goal and name == "p50" else None,
            )  # fmt: skip
