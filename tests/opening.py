"""Queues as most tests want them: synced by nobody, with segments that are soon full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock import Queue

SEGMENT_BYTES = 16384


def open_queue(path: Path, **options: Any) -> Queue:
    """The queue at `path` with small segments, or a small ring, unless `options` say otherwise."""
    size = "max_bytes" if options.get("format") == "vqs" else "segment_bytes"
    given: dict[str, Any] = {"durability": "process", size: SEGMENT_BYTES}
    return Queue(path, **(given | options))
