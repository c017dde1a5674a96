"""Settings and labels: from options into a new header, and from the header into options.

They are changed in place, but so that a crash in between leaves the old ones or the new ones.
"""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import Any

from penstock import _core
from penstock.errors import OptionError
from penstock.formats.vqs import header, structs
from penstock.formats.vqs.header import Header
from penstock.formats.vqs.structs import FILE_BYTES, META_BYTES, PAGE_BYTES, Stage
from penstock.options import QueueOptions
from penstock.records import replace
from penstock.sidecar import notes, prepared

FIXED_AT = structs.WORDS_AT + 4 * len(structs.WORDS)
"""From here on the header holds settings and labels."""
LONGEST_S = 4e9
"""No option is a longer time; the header has room for a little more."""
LABELS = ("labels", "set_labels", "remove_labels")
"""They replace all labels, add or change some, and remove some."""


def file_bytes(stage: Stage, options: QueueOptions) -> int:
    """How large a new ring's file is."""
    if not options.max_bytes:
        return FILE_BYTES
    size = stage.start + -(-options.max_bytes // PAGE_BYTES) * PAGE_BYTES
    if size > structs.MAX_FILE_BYTES:
        most = structs.MAX_FILE_BYTES - stage.start
        raise OptionError("max_bytes", options.max_bytes, f"at most {most} (format vqs)")
    return size


def of_options(options: QueueOptions) -> dict[str, int]:
    """The settings of a new queue."""
    given = {name: default for name, (default, *_) in structs.SETTINGS.items()}
    if options.max_message_bytes != QueueOptions().max_message_bytes:
        given["max_message_size"] = options.max_message_bytes
    if options.delay_s:
        given["delay_seconds"] = math.ceil(options.delay_s)
    if options.retention_age_s:
        given["retention_period"] = math.ceil(options.retention_age_s)
    return header.check_settings(given)


def effective(options: QueueOptions, found: Header, ring_bytes: int) -> QueueOptions:
    """The options of an open queue: the header's settings, and never more than the ring holds."""
    return replace(
        options,
        max_bytes=min(options.max_bytes or ring_bytes, ring_bytes),
        max_message_bytes=max(1, min(options.max_message_bytes, found.values["max_message_size"])),
        delay_s=float(found.values["delay_seconds"]),
        retention_age_s=min(float(found.values["retention_period"]), LONGEST_S),
        retain_unread=False,
    )


def create_files(path: Path, sidecar: Path, stage: Stage, options: QueueOptions) -> None:
    """An empty queue: the file with the header comes last."""
    size = file_bytes(stage, options)
    words = {"capacity_left": size - stage.start, "count": 0}
    words |= {"read_offset": stage.start, "write_offset": stage.start}
    head = header.pack(stage, words | of_options(options))
    remember(sidecar, stage.name, secrets.token_hex(16))
    if stage.meta:  # Two files: a process that finds only one of them finishes the creation.
        notes.write_bytes(sidecar, notes.RING_MAKING, b"")
        _core.sync_folder(path)
        _core.sync_folder(path.parent)
    ring = (stage.data_path(path), size, None if stage.meta else head)
    parts = [(stage.header_path(path), META_BYTES, head), ring] if stage.meta else [ring]
    for target, length, first in parts:
        fresh = prepared.make(sidecar, length, head=first or b"", suffix=".bin", synced=True)
        prepared.place(fresh, target, synced=False)
    for folder in {part[0].parent for part in parts} | {path.parent}:
        _core.sync_folder(folder)


def remember(sidecar: Path, layout: str, identity: str) -> None:
    """Notes which queue this is, for consumers that keep offsets elsewhere."""
    if notes.read(sidecar, notes.IDENTITY) is None:
        notes.write(sidecar, notes.IDENTITY, {"identity": identity, "layout": layout})


def change(path: Path, sidecar: Path, stage: Stage, values: dict[str, Any]) -> None:
    """Writes settings and labels: first beside the file, then into it. Alone."""
    unknown = set(values) - {*structs.SETTINGS, *LABELS}
    if unknown:
        known = ", ".join([*structs.SETTINGS, *LABELS])
        raise OptionError("meta", sorted(unknown)[0], f"one of {known} (format vqs)")
    given = {name: value for name, value in values.items() if name not in LABELS}
    finish(path, sidecar, stage)  # What a process that died had begun.
    raw = header.read_bytes(path, stage)
    found = header.parse(path, stage, raw)
    fixed = header.pack(stage, found.values | header.check_settings(given))[FIXED_AT:]
    area = raw[stage.header.size :]
    if len(given) < len(values):
        area = header.pack_labels(_labels(found, values), stage, len(area))
    notes.write_bytes(sidecar, notes.RING_HEADER, fixed + area)
    finish(path, sidecar, stage)


def _labels(found: Header, given: dict[str, Any]) -> dict[bytes, bytes]:
    """What is there after the change; what it does not name stays as it is, to the byte."""
    labels = dict(found.labels)
    if given.get("labels") is not None:
        labels = header.encode_labels("labels", given["labels"])
    labels |= header.encode_labels("set_labels", given.get("set_labels", {}))
    gone = given.get("remove_labels", ())
    for name in [gone] if isinstance(gone, str) else gone:
        if labels.pop(name.encode(errors="replace"), None) is None:
            raise OptionError("remove_labels", name, "the name of a label that is there")
    return labels


def pending(sidecar: Path, stage: Stage, raw: bytes) -> bytes:
    """The header as it is once a change that was interrupted is done."""
    new = notes.read_bytes(sidecar, notes.RING_HEADER)
    is_whole = new is not None and len(raw) == FIXED_AT + len(new)
    return raw[:FIXED_AT] + new if new is not None and is_whole else raw


def finish(path: Path, sidecar: Path, stage: Stage) -> None:
    """Carries a change of the header out."""
    new = notes.read_bytes(sidecar, notes.RING_HEADER)
    if new is None:
        return
    if len(header.read_bytes(path, stage)) == FIXED_AT + len(new):
        _core.write_file(stage.header_path(path), FIXED_AT, new, synced=True)
    notes.drop(sidecar, notes.RING_HEADER)
