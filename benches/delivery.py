"""Delivery: what a leased get and its ack cost, and that it stays flat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import penstock
from benches import _peers
from benches.foundation import filled, filled_bytes
from benches.harness import Row, best_cpu_ns, bring_memory, scratch

COUNT, ROUNDS, PASSES = 2000, 15, 6
FILL = COUNT * ROUNDS * PASSES + 20_000
"""Messages that are there: each pass takes some."""
JOURNAL_BYTES = 100
"""More than the journal grows by for a lease and its ack."""


def lease(group: penstock.Group, count: int) -> None:
    """Leases, each with its body and its ack."""
    get = group.get
    for _ in range(count):
        message = get(0)
        message.body  # noqa: B018  (reading it is part of the cost)
        message.ack()


def lease_ns(group: penstock.Group, count: int = COUNT, rounds: int = ROUNDS) -> float:
    """CPU ns of a leased get, its body and its ack."""
    return best_cpu_ns(lambda: lease(group, count), count, rounds, fills=count * JOURNAL_BYTES)


def shallow_ns(queue: penstock.Queue) -> float:
    """The same with never more than 1,000 messages waiting."""
    group, best = queue.group("shallow", start="latest"), float("inf")
    bring_memory(ROUNDS * filled_bytes([bytes(100)] * 1000))
    for _ in range(ROUNDS):
        queue.put_many([bytes(100)] * 1000)
        best = min(best, best_cpu_ns(lambda: lease(group, 1000), 1000, 1))
    return best


def many_ns(group: penstock.Group) -> float:
    """A thousand at once, each acked."""

    def work() -> None:
        for message in group.get_many(1000):
            message.ack()

    return best_cpu_ns(work, 1000, 10, fills=1000 * JOURNAL_BYTES)


def best_of_passes(cases: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The best of each. A machine slows down for seconds: all cases are measured in turn, again
    and again, so that none has only the bad ones."""
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(PASSES):
        for name, measure in cases.items():
            best[name] = min(best[name], measure())
    return best


def run(quick: bool) -> Iterator[Row]:
    deep = FILL if quick else 1_000_000
    held = 20_000 if quick else 100_000
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())

        def queue(name: str, count: int = FILL) -> penstock.Queue:
            return stack.enter_context(filled(folder / name, bytes(100), count))

        base, shallow, large = queue("base").group(), queue("shallow", 1000), queue("deep", deep)
        grouped, holding = queue("groups"), queue("held", FILL + held).group(max_in_flight=1 << 20)
        groups = [grouped.group(f"g{number}") for number in range(64)]
        kept = holding.get_many(held)
        many = queue("many").group()
        got = best_of_passes({
            "peer": lambda: _peers.simple_queue_ns(bytes(100), 20_000)[1],
            "base": lambda: lease_ns(base),
            "shallow": lambda: shallow_ns(shallow),
            "deep": lambda: lease_ns(large.group()),
            "groups": lambda: lease_ns(groups[7]),
            "held": lambda: lease_ns(holding),
            "many": lambda: many_ns(many),
        })  # fmt: skip
    yield Row(case="leased get + ack 100 B", ours=got["base"], peer="SimpleQueue.get",
              peer_value=got["peer"], ratio_goal=10)  # fmt: skip
    for name, case, peer in (
        ("shallow", "at a backlog of 1,000", f"at {FILL:,}"),
        ("deep", f"at a backlog of {deep:,}", f"at {FILL:,}"),
        ("groups", "with 64 groups", "1 group"),
        ("held", f"with {len(kept):,} open leases", "none"),
    ):
        yield Row(case=case, ours=got[name], peer=peer, peer_value=got["base"], ratio_goal=1.2)
    yield Row(case="get_many 1000 + acks", ours=got["many"], peer="one by one",
              peer_value=got["base"])  # fmt: skip
