"""What a task does: reads its spans by calls, never through a mapping, and yields Arrow.

A span is read to its very end or an error says where that failed: never fewer rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock import _core
from penstock.errors import CorruptError, KeyNeededError
from penstock.formats.store import Store
from penstock.formats.values import Damage, SegmentInfo
from penstock.spark import opening, shipped
from penstock.spark.bounds import TagFilter
from penstock.spark.loss import DataLoss, log, sentence, warn_of_torn
from penstock.spark.options import SourceOptions
from penstock.spark.schema import Shape
from penstock.spark.spans import Span
from penstock.spark.versions import lighten_worker

WRONG_KEY = "a frame that its key does not open"
"""What the core says of one. If every frame is like that, none of them is damaged."""


class _Copied:
    """Gives the one segment that was read to the native scan."""

    def __init__(self, segment: _core.Segment) -> None:
        self._segment = segment

    def segment_at(self, offset: int) -> _core.Segment:
        return self._segment


class Stream:
    """A native scan with its columns, for `pyarrow.RecordBatchReader.from_stream`."""

    def __init__(self, scan: _core.Scan, columns: list[str]) -> None:
        self._scan, self._columns = scan, columns

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream, in a capsule."""
        return _core.arrow_stream(self._scan, self._columns)


class _LastOpened:
    """The queue of a task's last span, still open. The next span is mostly of the same one, and to
    open it for each of them would list its thousands of segments as many times.

    Formats that delete what was consumed are opened for each span: they note what they meet.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._key: tuple[str, str] | None = None
        self._store: Store | None = None

    def store_of(self, span: Span) -> Store:
        """The queue of a span, which must be the one that was planned."""
        if self._store is not None and self._key == (span.where, span.identity):
            return self._store
        store = _open_store(span, Path(span.where), self._options)
        if store.identity != span.identity:
            raise DataLoss(
                f"queue {span.queue}: {span.where} is another queue now ({store.identity}) than "
                f"when the query was planned ({span.identity})"
            )
        if not store.capabilities.deletes_consumed:
            self._key, self._store = (span.where, span.identity), store
        return store


def _open_store(span: Span, path: Path, options: SourceOptions) -> Store:
    try:
        store = opening.open_store(path, options, format=span.format)
    except FileNotFoundError as error:
        raise DataLoss(f"queue {span.queue}: {span.where} is gone: {error}") from error
    opening.need_key(store, span.queue)
    return store


def read(
    options: SourceOptions, shape: Shape, spans: tuple[Span, ...], tags: TagFilter
) -> Iterator[pa.RecordBatch]:
    """The rows of the spans."""
    lighten_worker()
    opened = _LastOpened(options)
    for span in spans:
        try:
            yield from _read_span(options, shape, span, tags, opened)
        except (DataLoss, CorruptError) as error:
            if options.fail_on_data_loss:
                raise
            log.warning("queue %s: %s", span.queue, error)


def _read_span(
    options: SourceOptions, shape: Shape, span: Span, tags: TagFilter, opened: _LastOpened
) -> Iterator[pa.RecordBatch]:
    with ExitStack() as stack:
        store, info = _open(options, span, stack, opened)
        segment, damage = _segment(options, store, info, span)
        faults = [] if damage is None else [damage]
        if segment is not None:
            if options.fail_on_data_loss and span.end == info.end:
                span = _without_torn(store, info, segment, span)
            copied, cut = _copy(options, segment, span)
            end = span.end if cut is None else max(span.start, span.end - cut.length)
            _still_there(options, store, span)
            scan = _core.Scan(
                _Copied(copied), span.start, end, tags=tags.text, dialect=tags.dialect,
                tolerant=not options.fail_on_data_loss,
            )  # fmt: skip
            constants, rows = _constants(store, span), 0
            for batch in _batches(scan, shape, span):
                rows += batch.num_rows
                yield shape.batch(batch, constants)
            if scan.at < end:
                raise DataLoss(f"{span.where}/{span.file}: reading stopped at offset {scan.at} "
                               f"of {span.start} to {span.end}")  # fmt: skip
            faults += [Damage(p, at, n, found, want) for p, at, found, want, n in scan.faults]
            faults += [] if cut is None else [cut]
            noticed = store.format.noticed()
            if noticed and options.fail_on_data_loss:
                raise DataLoss(f"queue {span.queue}: {sentence(noticed[0])}")
            faults += noticed
            if faults and not rows and all(fault.found == WRONG_KEY for fault in faults):
                at = f"{faults[0].path}:{faults[0].at}"
                raise KeyNeededError(
                    f"queue {span.queue}: {at}: found {WRONG_KEY}; {opening.KEY_ADVICE}"
                )
        if faults:
            yield from _report(shape, span, info, segment, faults)


def _open(
    options: SourceOptions, span: Span, stack: ExitStack, opened: _LastOpened
) -> tuple[Store, SegmentInfo]:
    end: int | None = None
    if span.is_shipped:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
        path, manifest = shipped.fetch(
            span.queue, span.where, span.base, Path(folder), fails=options.fail_on_data_loss
        )
        store = _open_store(span, path, options.for_shipped(manifest.format, manifest.layout))
        end = manifest.segment(span.where, span.base).end
    else:
        store = opened.store_of(span)
    # A copy of one segment has no end of its own to compare the list with.
    info = store.segments(fresh=span.is_shipped).at(span.base)
    if info is not None:
        return store, replace(info, end=end if end is not None else info.end)
    raise DataLoss(f"queue {span.queue}: retention removed {span.where}/{span.file} "
                   f"(offsets {span.start} to {span.end})")  # fmt: skip


def _segment(
    options: SourceOptions, store: Store, info: SegmentInfo, span: Span
) -> tuple[_core.Segment | None, Damage | None]:
    try:
        if not options.fail_on_data_loss:
            return store.open_tolerantly(info)
        return store.open_whole(info, writable=False), None
    except FileNotFoundError as error:
        raise DataLoss(f"queue {span.queue}: {info.path} is gone: {error}") from error


def _copy(
    options: SourceOptions, segment: _core.Segment, span: Span
) -> tuple[_core.Segment, Damage | None]:
    """The bytes of the span, and what of them is not in the file."""
    try:
        return segment.copy_range(span.read_from, span.end), None
    except EOFError as error:
        size, needed = segment.path.stat().st_size, segment.position(span.end)
        if options.fail_on_data_loss:
            raise DataLoss(
                f"{segment.path}: the file ends before byte {needed}, where offset {span.end} is: "
                "it was cut short"
            ) from error
        at = max(size, segment.position(span.read_from))
        cut = Damage(segment.path, at, needed - at, "the end of the file", f"{needed - at} bytes")
        return segment.copy_range(span.read_from, span.end - cut.length), cut


def _without_torn(store: Store, info: SegmentInfo, segment: _core.Segment, span: Span) -> Span:
    """The span without what a crash cut short at its segment's end: no loss, but told."""
    for torn in store.format.torn_end(info, segment):
        if torn.offset is not None and torn.offset >= span.start:
            warn_of_torn(span.queue, torn)
            span = replace(span, end=torn.offset)
    return span


def _still_there(options: SourceOptions, store: Store, span: Span) -> None:
    """In a ring the bytes may have been overwritten while they were read."""
    if not store.capabilities.deletes_consumed or span.is_shipped:
        return
    now = opening.open_store(span.where, options, format=span.format)
    if now.identity != span.identity or now.end().head > span.start:
        raise DataLoss(
            f"queue {span.queue}: offsets from {span.start} on were freed while they were read; "
            f"the queue now begins at {now.end().head}"
        )


def _batches(scan: _core.Scan, shape: Shape, span: Span) -> Iterator[pa.RecordBatch]:
    try:
        yield from pa.RecordBatchReader.from_stream(Stream(scan, shape.core_columns))
    except (pa.ArrowException, OSError) as error:
        # Through the C stream an error arrives as text, which has the file and the byte.
        text = str(error).removeprefix("External error: ").removeprefix("CorruptError: ")
        raise DataLoss(f"queue {span.queue}: {text}") from None


def _constants(store: Store, span: Span) -> dict[str, object]:
    is_checked = True if store.capabilities.checksums else None
    return {
        "queue": span.queue, "topic": span.queue, "partition": 0, "timestampType": 0,
        "checksum_ok": is_checked, "error": None,
    }  # fmt: skip


def _report(
    shape: Shape,
    span: Span,
    info: SegmentInfo,
    segment: _core.Segment | None,
    faults: list[Damage],
) -> Iterator[pa.RecordBatch]:
    rows = []
    for fault in faults:
        log.warning(
            "queue %s: %s:%d: found %s, expected %s; %d bytes passed over",
            span.queue, fault.path, fault.at, fault.found, fault.expected, fault.length,
        )  # fmt: skip
        shift = segment.position(info.base) if segment is not None else 0
        rows.append({
            "queue": span.queue, "offset": max(info.base, info.base + fault.at - shift),
            "segment": info.path.name, "position": fault.at, "length": fault.length,
            "checksum_ok": False, "error": f"found {fault.found}, expected {fault.expected}",
        })  # fmt: skip
    if shape.wants_errors:
        yield shape.damage(rows)
