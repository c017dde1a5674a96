"""Copies of queues that are open: what a kill of all who have them open would leave."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from penstock import _core
from penstock.clock import SYSTEM
from penstock.sidecar.control import CONTROL
from penstock.sidecar.groups import TABLE


def copy_as_killed(source: Path, target: Path, boot: int | None = None) -> Path:
    """Copies a folder with everything in it; the words of the copies are of this run, as they would
    be if the originals had been left. A plain copy is one that may lack anything not synced."""
    copy_open(source, target)
    adopt(target, boot)
    return target


def copy_open(source: Path, target: Path) -> Path:
    """Copies a folder that a thread of its queue may change: a prepared segment that takes its
    place meanwhile has one name before and another after, and a copy may meet neither of them.
    Then the copy is made again, until all files had the same names before it and after it."""
    while True:
        before = files_by_name(source)
        try:
            shutil.copytree(source, target)
        except shutil.Error:  # Somebody took a file away between its listing and its copy.
            if files_by_name(source) == before:
                raise
        else:
            if files_by_name(source) == before:
                return target
        shutil.rmtree(target)


def files_by_name(folder: Path) -> dict[Path, int]:
    """The files below a folder with the inode of each: a new file may have an old name."""
    found: dict[Path, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with suppress(FileNotFoundError):
                found[path] = path.stat().st_ino
    return found


def adopt(folder: Path, boot: int | None = None) -> None:
    """Makes words that are of whatever run words of this one."""
    for control in folder.rglob("control"):
        run = _core.Shared.run_id(control.parent, SYSTEM.boot_id() if boot is None else boot)
        before = CONTROL.unpack_field("boot", control.read_bytes())
        for file, layout in (
            (control, CONTROL),
            *((table, TABLE) for table in control.parent.glob("groups/*/table")),
        ):
            if layout.unpack_field("boot", file.read_bytes()) == before:
                with file.open("r+b") as stream:
                    stream.seek(layout.offset_of("boot"))
                    stream.write(layout.pack_field("boot", run))
