"""What a put does when `max_bytes` is reached: free, drop, refuse or wait.

A put that waits leaves the offset that the slowest group must reach in a shared word; the ack
that gets a cursor there wakes it, in whatever process either is.
"""

from __future__ import annotations

from penstock.engine import retention
from penstock.engine.group import OpenQueue
from penstock.errors import Full, UnsupportedError
from penstock.pacing import LONGEST_SLEEP_S, MANUAL_NAP_S


def has_room(queue: OpenQueue, needed: int) -> bool:
    """Whether `needed` bytes fit now."""
    return queue.store.used_bytes() + needed <= queue.options.max_bytes


def make(queue: OpenQueue, needed: int) -> None:
    """Called by the append that did not fit; returns when it is worth another try."""
    options = queue.options
    if needed > options.max_bytes:
        raise UnsupportedError(
            f"{queue.path}: {needed} bytes never fit, max_bytes={options.max_bytes}"
        )
    while free(queue):
        if has_room(queue, needed):
            return
    if options.when_full == "drop-oldest":
        drop_oldest(queue, needed)
    elif options.when_full == "reject":
        raise Full(f"{queue.path}: {needed} bytes do not fit into max_bytes={options.max_bytes}")
    else:
        wait(queue, needed)


def free(queue: OpenQueue) -> bool:
    """Deletes what every group has read, or what retention allows; whether anything went."""
    store = queue.store
    if retention.free_consumed(queue) or retention.apply(queue, retention.plan(queue)):
        return True
    cursors = retention.holding_cursors(queue).values()
    if not cursors or store.capabilities.deletes_consumed:
        return False
    done, end = min(cursors), store.end()
    oldest, newest = next(store.segments_above(end.head)).first, store.segments()[-1].first
    if done >= end.tail > newest or done > newest == oldest:
        # The newest segment is read too, or all there is: with a new one begun, it can go.
        store.roll(end.segment_base, 0)
    return bool(retention.apply(queue, retention.plan(queue, done)))


def drop_oldest(queue: OpenQueue, needed: int) -> None:
    """Deletes the oldest segments, read or not, until there is room."""
    store = queue.store
    while not has_room(queue, needed):
        oldest = next(store.segments_above(store.end().head))
        if oldest.end is None:
            store.roll(oldest.base, needed)
            continue
        plan = retention.Plan(oldest.end, (oldest,), "drop-oldest", "")
        if not retention.apply(queue, plan):
            raise Full(f"{queue.path}: nothing can be dropped to make room for {needed} bytes")


def wanted(queue: OpenQueue, needed: int = 0) -> int:
    """How far the slowest group must get before enough can go."""
    if queue.store.capabilities.ring:
        end = queue.store.end()
        return max(end.head + 1, end.tail + needed - queue.options.max_bytes)
    end = queue.store.end()
    oldest = next(queue.store.segments_above(end.head))
    return oldest.end if oldest.end is not None else end.tail


def wait(queue: OpenQueue, needed: int) -> None:
    """Sleeps until groups have made room; `Full` when the put's patience is over."""
    clock, patience = queue.store.clock, queue.put_timeout_s
    until = None if patience is None else clock.boot_now_ns() + int(patience * 1e9)
    while not has_room(queue, needed):
        queue.ensure_open()
        shared = queue.store.need_shared()
        seen = shared.want_room(wanted(queue, needed))
        if free(queue):
            continue
        left = None if until is None else (until - clock.boot_now_ns()) / 1e9
        if left is not None and left <= 0:
            raise Full(f"{queue.path}: still full after {patience} s")
        longest = MANUAL_NAP_S if clock.manual else LONGEST_SLEEP_S
        shared.wait_room(seen, longest if left is None else min(left, longest))
