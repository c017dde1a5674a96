"""Reading a stream: what is new, how much of it, and what happens when something went away.

Spark reads as a multicast group: a cursor, and replay from it. Only what is durable is offered,
so a power loss never takes back what a query has seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.engine import positions, retention
from penstock.errors import OptionError, UnsupportedError
from penstock.spark import batch, queues, reading
from penstock.spark.bounds import TagFilter
from penstock.spark.follow import Follower
from penstock.spark.loss import lost
from penstock.spark.offsets import Offsets, Position
from penstock.spark.options import SourceOptions
from penstock.spark.queues import LocalQueue, Source
from penstock.spark.schema import Shape
from penstock.spark.spans import Span
from penstock.spark.tasks import Task, tasks
from penstock.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ALL = 2**62


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query's source. Lives in one process of the driver; tasks get a copy."""

    options: SourceOptions
    schema: StructType

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        refuse_what_moves(options)
        refuse_what_ends(options)
        self.options, self.schema = options, schema
        self._target: Offsets | None = None
        self._waiting_since: float | None = None
        self._followers: dict[str, Follower] = {}
        self._open: dict[str, LocalQueue] = {}
        """Queues of this host that an earlier call has opened."""
        self._planned: list[tuple[Source, int]] = []
        """The queues as the last plan saw them, and where its micro-batch ends in each."""

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: no open queue."""
        return {**self.__dict__, "_followers": {}, "_open": {}, "_target": None, "_planned": []}

    # ── where it begins ────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> dict[str, Any]:
        """Where the stream begins. Asked twice at first, and again if batch 0 is repeated."""
        found = self._queues()
        batch.check_names(self.options, [queue.name for queue in found])
        return Offsets({queue.name: self._begin(queue) for queue in found}).json()

    def _join(self, queue: Source) -> Position:
        """Where a queue begins that was not there before: at its first message.

        Spark hears of that place before it hears of anything behind it. Asked again after a crash,
        nobody could tell what retention has removed since.
        """
        follower = self._follower(queue)
        start = queue.head if follower is None else follower.begin(queue.head, queue.head)
        return Position(queue.identity, start)

    def _begin(self, queue: Source) -> Position:
        follower = self._follower(queue)
        if follower is None:
            return Position(queue.identity, batch.starting(queue, self.options))
        if follower.start is not None and not follower.has_advanced:
            return Position(queue.identity, follower.start)
        said = batch.place_of("startingOffsets", self.options.starting_offsets, queue.name)
        if said == "group":
            start = follower.cursor if follower.cursor is not None else queue.head
        else:
            start = batch.starting(queue, self.options)
        return Position(queue.identity, follower.begin(start, queue.head))

    def _queues(self) -> list[Source]:
        found: list[Source] = []
        for name, where in queues.find(self.options).items():
            known = self._open.get(name)
            if known is None or known.where != where or not known.is_there():
                found.append(self._open_anew(name, where))
            else:
                known.look()
                found.append(known)
        return found

    def _open_anew(self, name: str, where: str) -> Source:
        queue = queues.open_queue(name, where, self.options)
        refuse_what_frees(queue, self.options)
        self._open.pop(name, None)
        if isinstance(queue, LocalQueue):
            self._open[name] = queue
        return queue

    def _follower(self, queue: Source) -> Follower | None:
        if not self.options.group:
            return None
        if not isinstance(queue, LocalQueue):
            raise OptionError("group", self.options.group, "no group: a shipped queue has none")
        if queue.name not in self._followers:
            self._followers[queue.name] = Follower(queue.where, self.options)
        return self._followers[queue.name]

    # ── how far it goes ────────────────────────────────────────────────────────────────────

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say; Spark hands it back to `latestOffset`."""
        if self.options.max_rows:
            return ReadMaxRows(self.options.max_rows)
        if self.options.max_bytes:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of this run."""
        self._target = Offsets({q.name: Position(q.identity, q.end) for q in self._queues()})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For Spark's progress reports: where each queue ends, and what is left behind the
        micro-batch that was just planned, in messages, bytes and seconds."""
        if not self._planned:
            return Offsets({q.name: Position(q.identity, q.end) for q in self._queues()}).json()
        found = Offsets({q.name: Position(q.identity, q.end) for q, _ in self._planned}).json()
        for queue, reached in self._planned:
            found["q"][queue.name]["lag"] = queue.left(reached)
        return found

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch. That `start` is given means it was processed."""
        before = Offsets.from_json(start)
        found = {queue.name: queue for queue in self._queues()}
        self._missing(before, found)
        new = {name: self._join(found.pop(name)) for name in sorted(found.keys() - before.keys())}
        after = Offsets({
            name: Position(queue.identity, self._checked(queue, before[name]))
            for name, queue in found.items()
        })  # fmt: skip
        self._advance(before, found)
        ends = {name: self._end_of(found[name]) for name in found}
        rows = self._limit(after, found, ends, limit)
        if self.options.min_rows and any(after[name].next < ends[name] for name in found):
            rows = ALL  # There is more than the limits let through.
        if self._is_too_little(rows):
            after = Offsets()
        reached = {**before, **after}
        self._planned = [(queue, reached[name].next) for name, queue in found.items()]
        return Offsets({**before, **after, **new}).json()

    def _end_of(self, queue: Source) -> int:
        if self._target is None:
            return queue.end
        known = self._target.get(queue.name)
        return queue.head if known is None else min(known.next, queue.end)

    def _limit(
        self, after: Offsets, found: dict[str, Source], ends: dict[str, int], limit: ReadLimit
    ) -> int:
        """Moves `after` on, each queue by its share; returns the rows, as far as counted."""
        is_all = isinstance(limit, ReadAllAvailable)
        rows = ALL if is_all or not self.options.max_rows else self.options.max_rows
        size = ALL if is_all or not self.options.max_bytes else self.options.max_bytes
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        rows, size = min(rows, ALL), min(size, ALL)
        open_ended = rows == ALL and size == ALL
        taken = 0
        waiting = [name for name in sorted(found) if after[name].next < ends[name]]
        for index, name in enumerate(waiting):
            start, end = after[name].next, ends[name]
            share = len(waiting) - index
            if not open_ended or self.options.min_rows:
                most = ALL if open_ended else max(1, size // share)
                end, seen = found[name].limited(start, end, max(1, rows // share), most)
                rows, size, taken = max(rows - seen, 1), max(size - (end - start), 1), taken + seen
            after[name] = Position(after[name].identity, max(start, end))
        return taken

    def _is_too_little(self, rows: int) -> bool:
        """Whether to wait for more; never when the end of the run is fixed."""
        if not self.options.min_rows or self._target is not None or rows >= self.options.min_rows:
            self._waiting_since = None
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self.options.max_delay_s:
            return True
        self._waiting_since = None
        return False

    # ── what went away ─────────────────────────────────────────────────────────────────────

    def _lost(self, text: str) -> None:
        lost(text, fails=self.options.fail_on_data_loss)

    def _missing(self, before: Offsets, found: dict[str, Source]) -> None:
        for name in before.keys() - found.keys():
            self._lost(f"queue {name}: it is gone; the stream had read up to {before[name].next}")

    def _checked(self, queue: Source, known: Position) -> int:
        """Where to go on in the queue."""
        if known.identity != queue.identity:
            self._lost(
                f"queue {queue.name}: {queue.where} was made anew (it is {queue.identity}, the "
                f"checkpoint knows {known.identity}); it is lost from {known.next} on"
            )
            return queue.head
        if queue.end < known.next:
            self._lost(
                f"queue {queue.name}: it ends at {queue.end}, before offset {known.next} that the "
                f"checkpoint knows; {queue.where} was cut back or restored from a copy"
            )
            return queue.end
        if self._was_alone(queue):
            self._lost(
                f"queue {queue.name}: group {self.options.group!r} was deleted, and {queue.where} "
                f"deletes what all others have read: messages from {known.next} on may be gone"
            )
        if self._is_removed(queue, known.next):
            self._lost(removed(queue, known.next))
        return known.next

    def _was_alone(self, queue: Source) -> bool:
        """Whether nothing held back what a queue deletes that the stream has begun to read."""
        if not isinstance(queue, LocalQueue) or not queue.store.capabilities.deletes_consumed:
            return False
        follower = self._follower(queue)
        return follower is not None and follower.is_new

    def _is_removed(self, queue: Source, next_offset: int) -> bool:
        """Whether something is gone that the stream has not read.

        Where offsets have gaps between segments, the head also moves from the end of a segment
        that was read to the beginning of the next one. There the group tells, which every stream
        of such a queue has: what it has not passed is not deleted, but by a purge.
        """
        if queue.head <= next_offset:
            return False
        if not isinstance(queue, LocalQueue) or not queue.store.capabilities.gaps:
            return True
        return not self.options.retain_unread or next_offset < retention.purged(queue.store)

    # ── the micro-batch ────────────────────────────────────────────────────────────────────

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks between two offsets: the same ones every time."""
        before, after = Offsets.from_json(start), Offsets.from_json(end)
        found = {queue.name: queue for queue in self._queues()}
        self._missing(Offsets({n: p for n, p in after.items() if before.get(n) != p}), found)
        ranges: list[tuple[Source, list[Span]]] = []
        for name in sorted(after.keys() & found.keys()):
            queue, last = found[name], after[name]
            first = before.get(name)
            if last.identity != queue.identity:
                self._checked(queue, last)
                continue
            if first is None:  # It has just joined, at `last`.
                first = Position(last.identity, min(last.next, queue.head))
            next_offset = first.next if first.identity == last.identity else queue.head
            if next_offset < last.next and self._is_removed(queue, next_offset):
                self._lost(removed(queue, next_offset))
            if last.next > queue.end:
                self._checked(queue, last)
            begin = max(next_offset, queue.head)
            ranges.append((queue, queue.spans(begin, min(last.next, queue.end))))
        return list(tasks(self.options, ranges))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        if not isinstance(partition, Task):
            return iter(())
        shape = Shape(self.options, self.schema)
        return reading.read(self.options, shape, partition.spans, TagFilter(self.options.tags))

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished everything below `end`."""
        if self.options.group:
            self._advance(Offsets.from_json(end), {queue.name: queue for queue in self._queues()})

    def _advance(self, done: Offsets, found: dict[str, Source]) -> None:
        for name, position in done.items():
            queue = found.get(name)
            if queue is None or queue.identity != position.identity:
                continue
            follower = self._follower(queue)
            if follower is not None:
                follower.advance(min(position.next, queue.end))

    def stop(self) -> None:
        """The query has ended."""
        for follower in self._followers.values():
            follower.close()
        self._followers = {}
        self._open = {}
        self._planned = []


class UnlimitedReader(StreamReader):
    """For PySpark before 4.2, which neither takes limits nor says where the next batch begins.

    So a micro-batch is all there is, and what went away is noticed when its tasks are planned.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        limits = {
            "maxOffsetsPerTrigger": options.max_rows,
            "maxBytesPerTrigger": options.max_bytes,
            "minOffsetsPerTrigger": options.min_rows,
        }
        for name, value in limits.items():
            if value:
                raise OptionError(name, value, "nothing here: limits need PySpark 4.2 or newer")
        super().__init__(options, schema)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """The end of every queue there is."""
        return Offsets({q.name: Position(q.identity, q.end) for q in self._queues()}).json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks between two offsets. That `start` is given means it was processed."""
        before, after = Offsets.from_json(start), Offsets.from_json(end)
        found = {queue.name: queue for queue in self._queues()}
        self._missing(Offsets({n: p for n, p in before.items() if n not in after}), found)
        for name in sorted(before.keys() & found.keys()):
            self._checked(found[name], before[name])
        self._advance(before, found)
        return super().partitions(start, end)


def removed(queue: Source, next_offset: int) -> str:
    """What retention took from under a stream, in words."""
    return (
        f"queue {queue.name}: retention removed offsets {next_offset} to {queue.head} of "
        f"{queue.where}, or a purge did, before the stream had read them; a group (option group) "
        f"makes retention wait"
    )


def refuse_what_moves(options: SourceOptions) -> None:
    """Where a stream begins has to be the same place when Spark asks for it again."""
    for place in batch.places("startingOffsets", options.starting_offsets).values():
        is_moving = place in ("latest", "group") or positions.seconds_of(place) is not None
        if is_moving and not options.group:
            raise OptionError(
                "startingOffsets", place,
                "a group with it: Spark asks again where the stream began when its first batch is "
                "repeated, and the group remembers",
            )  # fmt: skip


def refuse_what_ends(options: SourceOptions) -> None:
    """A stream has no end, and its checkpoint says where it goes on: what else is said is wrong."""
    if options.ending_offsets != "latest":
        raise OptionError("endingOffsets", options.ending_offsets, "nothing: a stream has no end")
    if options.ending_timestamp:
        raise OptionError(
            "endingTimestamp", options.ending_timestamp, "nothing: a stream has no end"
        )
    if options.view != "all":
        raise OptionError(
            "view", options.view, "all in a stream; startingOffsets says where it begins"
        )


def refuse_what_frees(queue: Source, options: SourceOptions) -> None:
    """Formats that delete what was acked can be streamed only if our group holds them back."""
    if not isinstance(queue, LocalQueue) or not queue.store.capabilities.deletes_consumed:
        return
    kind = queue.store.format.name
    if not (queue.store.sidecar / "control").exists():
        raise UnsupportedError(
            f"{queue.where}: a {kind} queue deletes what was read, and another program owns this "
            f"one: it would not wait for the stream. Read it as a batch (spark.read), or copy it "
            f"with `penstock convert` and stream the copy"
        )
    if not options.group:
        raise UnsupportedError(
            f"{queue.where}: a {kind} queue deletes what every group has read; give the stream a "
            f"group (option group), so that it is waited for"
        )
