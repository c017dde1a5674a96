"""Who else has a file open for writing.

Some programs take no lock that tells that they run. The kernel knows all the same: it grants a read
lease only for a file that no process has open for writing, in any container and under any user.
`/proc` then tells its name, if this process may look.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.disk import files
from penstock.records import dataclass

OWN_CORE = "/penstock/_core."
"""What is in the memory of a process that uses penstock."""


def is_written_elsewhere(path: Path) -> bool:
    """Whether a process, this one included, has the file open for writing.

    False also where the kernel does not say: leases are for the owner of a file, and not every file
    system has them.
    """
    file = files.descriptor(path)
    try:
        # If a process opens the file in this instant, the kernel sends a signal. The usual one
        # would end this process; the one that is set here is ignored.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(file)
    return False


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that has a file open for writing."""

    process: int
    name: str
    is_penstock: bool


def writers(path: Path) -> Iterator[Writer]:
    """The processes that have the file open for writing, as far as this one may look."""
    file = path.stat()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text(errors="replace")
            if _is_mapped(maps, file) or _is_open(process, file):
                name = (process / "comm").read_text().strip()
                yield Writer(int(process.name), name, OWN_CORE in maps)
        except OSError:
            continue  # It has ended, or this process may not look at it.


def _is_mapped(maps: str, file: os.stat_result) -> bool:
    """A file may be closed and still be written to, through memory."""
    device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}"
    for line in maps.splitlines():
        _, rights, _, on, inode, *_ = line.split(maxsplit=5)
        if rights[1] == "w" and rights[3] == "s" and (on, inode) == (device, str(file.st_ino)):
            return True
    return False


def _is_open(process: Path, file: os.stat_result) -> bool:
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # Closed meanwhile, as the one that listed them.
            if os.path.samestat(descriptor.stat(), file):
                lines = (process / "fdinfo" / descriptor.name).read_text().splitlines()
                flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    return True
    return False
