"""Copies of queues that are open: what a kill of all who have them open would leave."""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock import _core
from penstock.clock import SYSTEM
from penstock.sidecar.control import CONTROL
from penstock.sidecar.groups import TABLE


def copy_as_killed(source: Path, target: Path, boot: int | None = None) -> Path:
    """Copies a folder with everything in it; the words of the copies are of this run, as they would
    be if the originals had been left. A plain copy is one that may lack anything not synced."""
    shutil.copytree(source, target)
    adopt(target, boot)
    return target


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
