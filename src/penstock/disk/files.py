"""File effects of Python, all through the core so that crash tests see them; and safe names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from penstock import _core
from penstock.errors import StorageError

TEMPORARY = re.compile(r"\.[0-9a-f]+-[0-9a-f]+\.tmp$")
"""What a file is called until it takes another one's place."""
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,79}\Z")

NETWORK_FILE_SYSTEMS = {
    0x6969: "NFS",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x517B: "SMB",
    0x01021997: "9P",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x65735546: "FUSE",
    0x47504653: "GPFS",
    0x0BD00BD0: "Lustre",
}


def is_name(text: str) -> bool:
    """Whether `text` may be the name of something we create."""
    return NAME.match(text) is not None


def make_folder(path: Path) -> None:
    """Creates a folder (0700) with its parents; an existing one is fine.

    Each new one's name is synced: what is synced inside it would be lost with it.
    """
    try:
        if path.is_dir():
            return
        if not path.parent.is_dir():
            make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        _core.sync_folder(path.parent)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(path, f"the folder can't be made: {error.strerror or error}") from error


def names_in(folder: Path) -> list[str]:
    """What is in a folder; nothing where there is none, and nobody asks first: an opening waits."""
    try:
        return os.listdir(folder)  # noqa: PTH208  (names alone)
    except (FileNotFoundError, NotADirectoryError):
        return []


def drop_temporaries(*folders: Path) -> None:
    """Removes what a process left that died while it replaced a file there."""
    for folder in folders:
        for name in names_in(folder):
            if TEMPORARY.search(name):
                _core.unlink_file(folder / name)


def write_json(path: Path, value: Any, *, synced: bool = True) -> None:
    """Replaces a small file by `value`, atomically."""
    import json

    text = json.dumps(value, indent=1, sort_keys=True)
    _core.replace_file(path, text.encode() + b"\n", synced=synced)


def read_json(path: Path) -> dict[str, Any] | None:
    """The value of a small file; none when it is missing or was torn."""
    import json

    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None  # Mostly: so it should cost little.
    try:
        with open(file, "rb") as stream:  # noqa: PTH123  (an open file)
            value = json.loads(stream.read())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_start(path: Path | str, count: int) -> bytes:
    """The first bytes of a file, `count` of them or as many as it has."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(file, count, 0)
    finally:
        os.close(file)


def refuse_network_file_system(path: Path) -> None:
    """Mapping, locks and clock need a local disk: anything else is an error that says so."""
    kind = NETWORK_FILE_SYSTEMS.get(_core.file_system(path) & 0xFFFFFFFF)
    if kind is not None and os.environ.get("PENSTOCK_ALLOW_NETWORK") != "1":
        raise StorageError(
            path,
            f"this is a {kind} mount; a queue is written on a local disk only. "
            f"Read it here with create=False, or copy sealed segments with `penstock export`",
        )


def free_bytes(path: Path) -> int:
    """What is left on the file system of `path` for users like us."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def disk_bytes(path: Path) -> int:
    """What a file takes on the disk; 0 once it is gone."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
