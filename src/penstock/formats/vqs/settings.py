"""Settings and labels: from options into a new header, and from the header into options.

They are changed in place, but so that a crash in between leaves the old ones or the new ones.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import _core
from penstock.disk import files
from penstock.errors import OptionError
from penstock.formats.vqs import header, layouts
from penstock.formats.vqs.header import Header
from penstock.formats.vqs.layouts import DEFAULTS, FILE_BYTES, META_BYTES, PAGE_BYTES, Stage
from penstock.options import QueueOptions

if TYPE_CHECKING:
    from penstock.formats.vqs.store import VqsStore

IDENTITY = "queue.json"
PENDING = "header.new"
MAKING = "making"
FIXED_AT = layouts.WORDS_AT + 4 * len(layouts.WORDS)
"""From here on the header holds settings and labels."""
COPY_BYTES = 1 << 20


def file_bytes(stage: Stage, options: QueueOptions) -> int:
    """How large a new ring's file is."""
    if not options.max_bytes:
        return FILE_BYTES
    pages = -(-options.max_bytes // PAGE_BYTES)
    size = stage.start + pages * PAGE_BYTES
    if size > layouts.MAX_FILE_BYTES:
        most = layouts.MAX_FILE_BYTES - stage.start
        raise OptionError("max_bytes", options.max_bytes, f"at most {most} (format vqs)")
    return size


def of_options(options: QueueOptions) -> dict[str, int]:
    """The settings of a new queue."""
    usual = QueueOptions()
    given = dict(DEFAULTS)
    if options.max_message_bytes != usual.max_message_bytes:
        given["max_message_size"] = options.max_message_bytes
    if options.delay_s:
        given["delay_seconds"] = int(options.delay_s)
    if options.retention_age_s:
        given["retention_period"] = int(options.retention_age_s)
    return header.check_settings(given)


def effective(options: QueueOptions, found: Header, ring_bytes: int) -> QueueOptions:
    """The options of an open queue: the header's settings, and never more than the ring holds."""
    limit = options.max_bytes or ring_bytes
    return replace(
        options,
        max_bytes=min(limit, ring_bytes),
        max_message_bytes=max(1, min(options.max_message_bytes, found.values["max_message_size"])),
        delay_s=float(found.values["delay_seconds"]),
        retention_age_s=float(found.values["retention_period"]),
        hold_for_groups=False,
    )


def create_files(
    path: Path, sidecar: Path, stage: Stage, options: QueueOptions, owner: int
) -> None:
    """An empty queue: the file with the header comes last."""
    size = file_bytes(stage, options)
    words = {"capacity_left": size - stage.start, "count": 0}
    words |= {"read_offset": stage.start, "write_offset": stage.start}
    head = header.pack(stage, words | of_options(options))
    remember(sidecar, stage.name, secrets.token_hex(16))
    if stage.meta:  # Two files: whoever finds one of them alone may finish what we began.
        _core.replace_file(sidecar / MAKING, b"")
        _core.sync_folder(path)
        _core.sync_folder(path.parent)
    prepared = sidecar / f"new-{owner}.bin"
    parts = [(stage.data_path(path), size, head if not stage.meta else None)]
    if stage.meta:
        parts.insert(0, (stage.header_path(path), META_BYTES, head))
    for target, length, first in parts:
        _core.unlink_file(prepared)
        _core.create_file(prepared, length, head=first, synced=True)
        _core.rename_file(prepared, target)
    for folder in {part[0].parent for part in parts} | {path.parent}:
        _core.sync_folder(folder)


def remember(sidecar: Path, layout: str, identity: str) -> None:
    """Which queue this is, for those who remember offsets."""
    if files.read_json(sidecar / IDENTITY) is None:
        files.write_json(sidecar / IDENTITY, {"identity": identity, "layout": layout})


def change(store: VqsStore, values: dict[str, Any]) -> None:
    """Writes settings and labels: first beside the file, then into it."""
    unknown = set(values) - {*layouts.SETTINGS, "labels"}
    if unknown:
        known = ", ".join([*layouts.SETTINGS, "labels"])
        raise OptionError("meta", sorted(unknown)[0], f"one of {known} (format vqs)")
    stage, labels = store.stage, values.pop("labels", None)
    changed = store.header.values | header.check_settings(values)
    raw = header.read_bytes(store.path, stage)
    fixed = header.pack(stage, changed)[FIXED_AT:]
    area = raw[stage.header.size :]
    if labels is not None:
        area = header.pack_labels(dict(labels), stage, len(area))
    files.make_folder(store.sidecar)
    _core.replace_file(store.sidecar / PENDING, fixed + area, synced=True)
    finish(store.path, store.sidecar, stage)


def pending(sidecar: Path, stage: Stage, raw: bytes) -> bytes:
    """The header as it is once a change that was interrupted is done."""
    try:
        new = (sidecar / PENDING).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return raw
    return raw[:FIXED_AT] + new if len(raw) == FIXED_AT + len(new) else raw


def finish(path: Path, sidecar: Path, stage: Stage) -> None:
    """Carries a change of the header out."""
    try:
        new = (sidecar / PENDING).read_bytes()
    except FileNotFoundError:
        return
    if len(header.read_bytes(path, stage)) == FIXED_AT + len(new):
        _core.write_file(stage.header_path(path), FIXED_AT, new, synced=True)
    _core.unlink_file(sidecar / PENDING)


def store_again(segment: _core.Segment, first: int, last: int) -> None:
    """Stores bytes once more, so that they are synced once more.

    After a failed sync the kernel may hold them for clean although the disk has not got them.
    """
    while first < last:
        length = min(COPY_BYTES, last - first)
        segment.store(segment.position(first), segment.read(segment.position(first), length))
        first += length
