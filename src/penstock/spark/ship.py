"""Shipping: full segments, as they are, and a manifest, to any URL that fsspec knows.

Segments first, then the manifest that names them, replaced as a whole: a reader sees a prefix of
the queue. It is replaced every `PUBLISH_BYTES`, and what it names already is not copied again: an
interrupted run goes on about where it was.

The segment that is still written to goes along only if asked for (`whole`), up to what is durable.
Each of its copies has a name of its own, so that one who reads by the manifest before finds what
that one names; the copy before the last is deleted by the next run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import _core
from penstock.errors import FormatError, OptionError, PenstockError, UnsupportedError
from penstock.formats import registry
from penstock.formats.store import Store
from penstock.formats.values import SegmentInfo
from penstock.options import MIB
from penstock.spark import opening, shipped
from penstock.spark.follow import Follower
from penstock.spark.options import SourceOptions
from penstock.spark.shipped import MANIFEST, Manifest, ShippedSegment

SMALL_BYTES = 1 << 20
PUBLISH_BYTES = 64 * MIB
"""What is copied again at most when a run was interrupted, but for one segment."""
NOT_SHIPPED = ("lock", "control", "quarantine", "staging", "sinks", "groups")


def ship(
    queue: str | Path,
    url: str,
    *,
    whole: bool = False,
    dry_run: bool = False,
    group: str = "",
    on_progress: Callable[[str], None] | None = None,
    **options: str,
) -> dict[str, Any]:
    """Copies what is full and not there yet, with `whole` also the rest; returns what was done.

    With `group` that group's cursor follows what was shipped, so that retention waits for it.
    `options` are those of the source (`keyFile`, `queueFormat`…).
    """
    given = {"path": str(queue), "group": group, **{k.lower(): v for k, v in options.items()}}
    parsed = SourceOptions.of(given)
    if not group or dry_run:
        return _ship(queue, url, parsed, whole=whole, dry_run=dry_run, on_progress=on_progress)
    follower = Follower(str(queue), parsed)  # First: from now on retention waits.
    try:
        if follower.start is None:
            head = follower.queue.offsets().head
            follower.begin(head, head)
        facts = _ship(queue, url, parsed, whole=whole, dry_run=False, on_progress=on_progress)
        follower.advance(facts["shipped"])
        return facts
    finally:
        follower.close()


def _ship(
    queue: str | Path,
    url: str,
    parsed: SourceOptions,
    *,
    whole: bool,
    dry_run: bool,
    on_progress: Callable[[str], None] | None,
) -> dict[str, Any]:
    store = opening.open_store(Path(queue), parsed)
    if store.path.is_file() and not whole:
        raise UnsupportedError(
            f"{queue}: a {store.format.name} queue is one file that is always written to "
            f"and never full: ship it whole (--whole)"
        )
    _, end = store.durable_range()
    known = Manifest.load(url)
    if known is None:
        _refuse_queue(url)
    elif known.identity != store.identity:
        found = f"holds queue {known.identity}, not {store.identity}"
        raise FormatError(url, found, "ship each queue to a place of its own")
    have = {segment.base: segment for segment in known.segments} if known is not None else {}
    wanted = [
        replace(info, end=last)
        for info, _, last in store.ranges(store.end().head, end)
        if (whole or info.end == last) and not (info.base in have and have[info.base].end == last)
    ]
    facts: dict[str, Any] = {
        "queue": str(queue), "url": url, "segments": len(wanted), "already": len(have),
        "bytes": sum(info.size for info in wanted), "missing": _missing(store, have),
        "shipped": max([store.end().head, *(s.end for s in have.values())]),
    }  # fmt: skip
    if dry_run:
        return facts
    destination = _Destination(store, url, have)
    if known is None:
        destination.publish()  # Nothing is in it yet: it says that this is a place of copies.
    full = {info.base for info in store.segments() if info.end is not None and info.end <= end}
    for info in wanted:
        one = destination.add(info, is_full=info.base in full)
        if on_progress is not None:
            on_progress(f"{one.file}: {one.size:,} bytes")
    destination.publish()
    _sweep(destination.system, destination.root, have, destination.segments)
    ends = (one.end for one in destination.segments.values())
    return facts | {"shipped": max([facts["shipped"], *ends])}


def _refuse_queue(url: str) -> None:
    """Copies never go over the files of a queue, the one that is shipped or another."""
    system, path = shipped.file_system(url)
    if not _is_local(system):
        return
    try:
        registry.sniff(Path(path))
    except PenstockError:
        return
    raise OptionError("url", url, "a place of its own: a queue is there, and no copy of one")


def _missing(store: Store, have: dict[int, ShippedSegment]) -> int:
    """Bytes that were removed from the queue before they were shipped."""
    if not have or store.capabilities.gaps:
        return 0
    return max(0, store.end().head - max(one.end for one in have.values()))


class _Destination:
    """Where a queue is shipped to."""

    def __init__(self, store: Store, url: str, have: dict[int, ShippedSegment]) -> None:
        """Goes on from the segments that the manifest there has."""
        self.system, self.root = shipped.file_system(url)
        self.segments = dict(have)
        self._store, self._unpublished = store, 0

    def add(self, info: SegmentInfo, *, is_full: bool) -> ShippedSegment:
        """Copies a segment. Now and then the manifest says how far it is, for a run that dies."""
        one, raw = _describe(self._store, info, is_full=is_full)
        _copy(self.system, raw, f"{self.root}/{one.at or one.file}")
        self.segments[info.base] = one
        self._unpublished += one.size
        if self._unpublished >= PUBLISH_BYTES:
            self.publish()
        return one

    def publish(self) -> None:
        """Makes what was copied the queue that readers see."""
        store, extras = self._store, _extras(self._store)
        for extra in extras:
            _copy(self.system, (_root(store) / extra).read_bytes(), f"{self.root}/{extra}")
        manifest = Manifest(
            store.format.name, store.layout, store.identity,
            tuple(sorted(self.segments.values(), key=lambda one: one.base)), extras,
            store.path.name if store.path.is_file() else "", _newest(store),
        )  # fmt: skip
        self.system.makedirs(self.root, exist_ok=True)
        _replace(self.system, f"{self.root}/{MANIFEST}", manifest.json().encode())
        self._unpublished = 0


def _newest(store: Store) -> str:
    known = store.segments()
    return str(known[-1].path.relative_to(_root(store))) if known else ""


def _root(store: Store) -> Path:
    """The folder that names in a manifest are relative to: a queue may be a file in it."""
    return store.path.parent if store.path.is_file() else store.path


def _describe(store: Store, info: SegmentInfo, *, is_full: bool) -> tuple[ShippedSegment, bytes]:
    """A segment for the manifest, and its bytes: read once, so that they fit each other."""
    known = store.format.describe(info) if is_full else info
    assert info.end is not None
    raw = info.path.read_bytes()
    if known.messages is None or known.first_ns is None:
        segment, _ = store.open_tolerantly(info)
        if segment is not None:
            seen = _core.walk(segment, info.first, info.end, past_damage=True, open_frames=False)
            known = replace(
                known, messages=seen.messages, first_ns=seen.first_ns, last_ns=seen.last_ns
            )
    file = str(info.path.relative_to(_root(store)))
    one = ShippedSegment(
        file, info.base, info.first, info.end, len(raw), _core.crc32c(raw), known.messages,
        known.first_number, known.first_ns, known.last_ns, "" if is_full else f"{file}.{info.end}",
    )  # fmt: skip
    return one, raw


def _extras(store: Store) -> tuple[str, ...]:
    """Small files beside the segments, which a format may need to be read."""
    segments, root = {info.path for info in store.segments()}, _root(store)
    found = []
    for path in sorted(root.rglob("*") if root == store.path else store.sidecar.rglob("*")):
        inner = path.relative_to(root)
        if path.is_symlink() or not path.is_file() or path in segments:
            continue
        is_ours = store.sidecar in path.parents
        if is_ours and (
            path.relative_to(store.sidecar).parts[0] in NOT_SHIPPED
            or inner.suffix in (".seg", ".tmp")
        ):
            continue
        if path.stat().st_size <= SMALL_BYTES or is_ours:
            found.append(str(inner))
    return tuple(found)


def _sweep(
    system: Any, root: str, before: dict[int, ShippedSegment], after: dict[int, ShippedSegment]
) -> None:
    """Deletes copies of open segments that the manifest before the last one named."""
    kept = {one.at for one in (*before.values(), *after.values())}
    for folder in {one.at.rpartition("/")[0] for one in before.values() if one.at}:
        for path in system.ls(f"{root}/{folder}".rstrip("/"), detail=False):
            name = f"{folder}/{path.rsplit('/', 1)[-1]}".lstrip("/")
            open_ones = {one.file for one in before.values() if one.at}
            if name not in kept and name.rpartition(".")[0] in open_ones:
                system.rm_file(path)


def _copy(system: Any, raw: bytes, to: str) -> None:
    system.makedirs(to.rsplit("/", 1)[0], exist_ok=True)
    system.pipe_file(f"{to}.part", raw)
    system.mv(f"{to}.part", to)


def _is_local(system: Any) -> bool:
    return getattr(system, "protocol", "") in ("file", ("file", "local"))


def _replace(system: Any, path: str, data: bytes) -> None:
    """As one step, where the file system has a rename; object stores replace whole objects."""
    if _is_local(system):
        _core.replace_file(Path(path), data)
    else:
        system.pipe_file(path, data)
