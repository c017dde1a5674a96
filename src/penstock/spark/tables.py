"""The small tables beside the messages: segments for audits, groups for lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engine import facts
from penstock.engine.queue import Queue
from penstock.errors import PenstockError
from penstock.formats.values import SegmentInfo
from penstock.spark import opening, queues, shipped
from penstock.spark.options import SourceOptions
from penstock.spark.versions import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TOLD = ("segments", "groups")
"""Tables that one task tells by itself."""


def read(options: SourceOptions, schema: StructType) -> pa.RecordBatch:
    """All rows, which are few."""
    rows: list[dict[str, Any]] = []
    for name, where in queues.find_some(options).items():
        if options.table == "segments":
            rows += _segments(name, where, options)
        else:
            rows += _groups(name, where, options)
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))


def _segments(name: str, where: str, options: SourceOptions) -> list[dict[str, Any]]:
    queue = queues.open_queue(name, where, options)
    if isinstance(queue, shipped.ShippedQueue):
        manifest = queue.manifest
        return [
            _segment(name, manifest.format, manifest.layout, one, one.file, one.end, is_sealed=True)
            for one in manifest.segments
        ]
    store, found = queue.store, []
    for info in store.segments(fresh=True):
        known = store.format.describe(info)
        end = info.end if info.end is not None else queue.end
        found.append(
            _segment(name, store.format.name, store.layout, known, info.path.name, end,
                     is_sealed=info.end is not None)
        )  # fmt: skip
    return found


def _segment(
    name: str,
    format: str,
    layout: str,
    known: SegmentInfo | shipped.ShippedSegment,
    file: str,
    end: int,
    *,
    is_sealed: bool,
) -> dict[str, Any]:
    def us(ns: int | None) -> int | None:
        return None if ns is None else ns // 1000

    return {
        "queue": name, "format": format, "layout": layout, "segment": file, "base": known.base,
        "end": end, "bytes": known.size, "messages": known.messages,
        "first_number": known.first_number, "first_timestamp": us(known.first_ns),
        "last_timestamp": us(known.last_ns), "sealed": is_sealed,
    }  # fmt: skip


def _groups(name: str, where: str, options: SourceOptions) -> list[dict[str, Any]]:
    """Cursors are in shared memory and journals: the queue is opened as its users open it.

    Where that can't be (a read-only disk, a shipped queue), what the format itself keeps is told.
    """
    if shipped.is_shipped(where):
        return []
    try:
        key = options.queue_options().key
        with Queue(where, format=options.queue_format, create=False, key=key) as queue:
            found = []
            tail = queue.offsets().tail
            for group in queue.groups():
                at = queue.group(group, create=False).stats()
                known = {fact: at[fact] for fact in ("cursor", "lag", "lag_bytes")}
                found.append({"queue": name, "group": group, "tail": tail} | known)
            return found
    except (PenstockError, OSError):
        store = opening.open_store(where, options)
        tail = store.end().tail
        return [
            {
                "queue": name,
                "group": group,
                "cursor": at,
                "tail": tail,
                "lag_bytes": facts.lag_bytes(store, at),
            }
            for group, at in store.format.groups.bookmarks().items()
        ]
