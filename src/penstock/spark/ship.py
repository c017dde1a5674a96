"""Shipping: full segments, as they are, and a manifest, to any URL that fsspec knows.

Segments first, then the manifest that names them, replaced as a whole: a reader sees a prefix of
the queue. What the manifest names already is not copied again, so an interrupted run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import _core
from penstock.errors import FormatError
from penstock.formats.base import SegmentInfo, Store
from penstock.spark import queues, shipped
from penstock.spark.options import SourceOptions
from penstock.spark.shipped import MANIFEST, Manifest, ShippedSegment

SMALL_BYTES = 1 << 20
NOT_SHIPPED = ("lock", "control", "quarantine", "staging", "sinks", "groups")


def ship(
    queue: str | Path,
    url: str,
    *,
    dry_run: bool = False,
    on_progress: Callable[[str], None] | None = None,
    **options: str,
) -> dict[str, Any]:
    """Copies what is full and not there yet; answers what was done.

    `options` are those of the source (`keyFile`, `queueFormat`…).
    """
    parsed = SourceOptions.of({"path": str(queue), **{k.lower(): v for k, v in options.items()}})
    store = queues.open_store(Path(queue), parsed)
    end = queues.durable_end(store)
    known = Manifest.load(url)
    if known is not None and known.identity != store.identity:
        found = f"holds queue {known.identity}, not {store.identity}"
        raise FormatError(url, found, "ship each queue to a place of its own")
    have = {segment.base: segment for segment in known.segments} if known is not None else {}
    sealed = [i for i in store.segments(fresh=True) if i.end is not None and i.end <= end]
    wanted = [info for info in sealed if info.base not in have]
    facts: dict[str, Any] = {
        "queue": str(queue), "url": url, "segments": len(wanted), "already": len(have),
        "bytes": sum(info.size for info in wanted),
    }  # fmt: skip
    if dry_run:
        return facts
    system, root = shipped.file_system(url)
    segments = list(have.values())
    extras = _extras(store, sealed)
    for info in wanted:
        one = _describe(store, info)
        _copy(system, info.path, f"{root}/{one.file}")
        segments.append(one)
        if on_progress is not None:
            on_progress(f"{one.file}: {one.size:,} bytes")
    for extra in extras:
        _copy(system, store.path / extra, f"{root}/{extra}")
    manifest = Manifest(
        store.format, store.layout, store.identity,
        tuple(sorted(segments, key=lambda one: one.base)), extras,
    )  # fmt: skip
    system.makedirs(root, exist_ok=True)
    _replace(system, f"{root}/{MANIFEST}", manifest.json().encode())
    return facts


def _describe(store: Store, info: SegmentInfo) -> ShippedSegment:
    known = store.describe(info)
    assert info.end is not None
    raw = info.path.read_bytes()
    if known.messages is None:
        seen = _core.walk(store.open_whole(info, writable=False), info.first, info.end)
        known = replace(known, messages=seen.messages, first_ns=seen.first_ns, last_ns=seen.last_ns)
    return ShippedSegment(
        str(info.path.relative_to(store.path)), info.base, info.first, info.end, len(raw),
        _core.crc32c(raw), known.messages, known.first_number, known.first_ns, known.last_ns,
    )  # fmt: skip


def _extras(store: Store, sealed: list[SegmentInfo]) -> tuple[str, ...]:
    """Small files beside the segments, which a format may need to be read."""
    segments = {info.path for info in store.segments()}
    found = []
    for path in sorted(store.path.rglob("*")):
        inner = path.relative_to(store.path)
        if path.is_symlink() or not path.is_file() or path in segments:
            continue
        if inner.parts[0] == ".penstock" and (
            inner.parts[1] in NOT_SHIPPED or inner.suffix in (".seg", ".tmp")
        ):
            continue
        if path.stat().st_size <= SMALL_BYTES or inner.parts[0] == ".penstock":
            found.append(str(inner))
    return tuple(found)


def _copy(system: Any, path: Path, to: str) -> None:
    system.makedirs(to.rsplit("/", 1)[0], exist_ok=True)
    system.put_file(str(path), f"{to}.part")
    system.mv(f"{to}.part", to)


def _replace(system: Any, path: str, data: bytes) -> None:
    """As one step, where the file system has a rename; object stores replace whole objects."""
    if getattr(system, "protocol", "") in ("file", ("file", "local")):
        _core.replace_file(Path(path), data)
    else:
        system.pipe_file(path, data)
