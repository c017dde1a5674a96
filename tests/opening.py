"""Queues as most tests want them: synced by nobody, with segments that are soon full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock import Queue
from penstock.formats.registry import format_class

SEGMENT_BYTES = 16384


def path_for(folder: Path, format: str) -> Path:
    """A path in `folder` for a queue of this format: a ring may be a single file."""
    return folder / ("q.bin" if format_class(format).is_file else "q")


def small_segments(format: str, size: int = SEGMENT_BYTES) -> dict[str, Any]:
    """The option for segments of this size, for a format that has segments."""
    return {} if "segment_bytes" in format_class(format).refused else {"segment_bytes": size}


def open_queue(path: Path, **options: Any) -> Queue:
    """The queue at `path` with small segments, or a small ring, unless `options` say otherwise."""
    size = "max_bytes" if options.get("format") == "vqs" else "segment_bytes"
    given: dict[str, Any] = {"durability": "process", size: SEGMENT_BYTES}
    return Queue(path, **(given | options))
