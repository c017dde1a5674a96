"""Delivery: what a leased get and its ack cost, and that it stays flat."""

from __future__ import annotations

from collections.abc import Iterator

import penstock
from benches import _peers
from benches.foundation import filled
from benches.harness import Row, best_cpu_ns, scratch

COUNT, ROUNDS = 2000, 25


def lease_ns(group: penstock.Group, count: int = COUNT, rounds: int = ROUNDS) -> float:
    """CPU ns of a leased get, its body and its ack."""

    def work() -> None:
        get = group.get
        for _ in range(count):
            message = get(0)
            message.body  # noqa: B018  (reading it is part of the cost)
            message.ack()

    return best_cpu_ns(work, count, rounds)


def shallow_ns(queue: penstock.Queue) -> float:
    """The same with never more than 1,000 messages waiting."""
    group, best = queue.group("shallow", start="latest"), float("inf")
    for _ in range(ROUNDS):
        queue.put_many([bytes(100)] * 1000)
        best = min(best, lease_ns(group, 1000, 1))
    return best


def run(quick: bool) -> Iterator[Row]:
    deep = 200_000 if quick else 1_000_000
    held = 20_000 if quick else 100_000
    _, theirs = _peers.simple_queue_ns(bytes(100), 100_000)
    with scratch() as folder:
        with filled(folder / "shallow", bytes(100), 60_000) as queue:
            base, shallow = lease_ns(queue.group()), shallow_ns(queue)
        yield Row(case="leased get + ack 100 B", ours=base, peer="SimpleQueue.get",
                  peer_value=theirs, ratio_goal=10)  # fmt: skip
        yield Row(case="at a backlog of 1,000", ours=shallow, peer="at 60,000", peer_value=base,
                  ratio_goal=1.2)  # fmt: skip
        with filled(folder / "deep", bytes(100), deep) as queue:
            yield Row(case=f"at a backlog of {deep:,}", ours=lease_ns(queue.group()),
                      peer="at 60,000", peer_value=base, ratio_goal=1.2)  # fmt: skip
        with filled(folder / "groups", bytes(100), 60_000) as queue:
            groups = [queue.group(f"g{number}") for number in range(64)]
            yield Row(case="with 64 groups", ours=lease_ns(groups[7]), peer="1 group",
                      peer_value=base, ratio_goal=1.2)  # fmt: skip
        with filled(folder / "held", bytes(100), held + 60_000) as queue:
            group = queue.group(window=1 << 20)
            kept = group.get_many(held)
            yield Row(case=f"with {len(kept):,} open leases", ours=lease_ns(group), peer="none",
                      peer_value=base, ratio_goal=1.2)  # fmt: skip
        with filled(folder / "many", bytes(100), 100_000) as queue:
            group = queue.group()

            def by_the_thousand() -> None:
                for message in group.get_many(1000):
                    message.ack()

            yield Row(case="get_many 1000 + acks", ours=best_cpu_ns(by_the_thousand, 1000, 20),
                      peer="one by one", peer_value=base)  # fmt: skip
