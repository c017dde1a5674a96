"""File effects of Python, all through the core so that crash tests see them; and safe names."""

from __future__ import annotations

import os
import stat

from penstock import _core
from penstock.errors import StorageError
from penstock.hints import Any, BinaryIO
from penstock.logs import logger
from penstock.places import Path

SMALL_BYTES_MAX = 1 << 24
"""No small file of ours is as long."""
TEMPORARY = r"\.[0-9a-f]+-[0-9a-f]+\.tmp\Z|^(new|zero)-[0-9a-f]{16}\."
NAME_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
NAME_LETTERS_MAX = 80

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


def is_name(text: object) -> bool:
    """Whether `text` may be the name of something we create."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= NAME_LETTERS_MAX
        and not text.startswith(".")
        and not text.strip(NAME_LETTERS)
    )


def is_temporary(name: str) -> bool:
    """Whether a file is called so until it takes another one's place, or a place of its own."""
    if not name.endswith(".tmp") and not name.startswith(("new-", "zero-")):
        return False
    import re  # Every opening comes here, and hardly ever this far.

    return re.search(TEMPORARY, name) is not None


def make_folder(path: Path, like: Path | None = None) -> None:
    """Creates a folder with its parents; an existing one is fine.

    It is for the same users as `like`, else as the folder that it is made in; parents that have to
    be made, too, are for their owner alone (0700). Each new one's name is synced: what is synced
    inside it would be lost with it.
    """
    if path.is_dir():
        return
    above = path.parent
    if not above.is_dir():
        if not above.parent.is_dir():
            make_folder(above.parent)
        is_inside = above.parent.name.endswith(".penstock")
        _core.make_folder(above, above.parent if is_inside else None)
        _core.sync_folder(above.parent)
    _core.make_folder(path, like or above)
    _core.sync_folder(above)


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where there is no folder."""
    try:
        return list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def names_in(folder: Path) -> list[str]:
    """The names of what is in a folder."""
    return [entry.name for entry in entries(folder)]


def drop_temporaries(*folders: Path) -> None:
    """Removes what processes left there that died while they replaced a file."""
    for folder in folders:
        for name in names_in(folder):
            if is_temporary(name):
                _core.unlink_file(folder / name)


def write_json(path: Path, value: dict[str, Any], *, synced: bool = True) -> None:
    """Replaces a small file by `value`, atomically, with its check."""
    import json

    value = json.loads(json.dumps(value))  # As it will be read: names of numbers are texts then.
    text = json.dumps(value | {"check": check_of(value)}, indent=1, sort_keys=True)
    _core.replace_file(path, text.encode() + b"\n", synced=synced)


def check_of(value: dict[str, Any]) -> int:
    """What stands beside a value: another number if one bit is wrong."""
    import json

    return _core.crc32(json.dumps(value, sort_keys=True).encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """The value of a small file; none when it is missing, was torn, or does not fit its check."""
    try:
        raw = read_start(path, SMALL_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None  # The usual case, so it must cost little.
    if len(raw) > SMALL_BYTES_MAX:
        return None  # This is another file: it is not read to its end to find that out.
    import json

    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.pop("check", None) in (None, check_of(value)):
        return value if isinstance(value, dict) else None
    logger("files").warning("%s: damaged, or edited with `check` left in; it is not used", path)
    return None


def descriptor(path: Path | str) -> int:
    """A file of a queue, open to be read. A link is not followed. What is no ordinary
    file is refused, since opening a pipe could wait for ever."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise StorageError(path, "this is no ordinary file; move it out of the queue")
    return file


def reading(path: Path | str) -> BinaryIO:
    """A file of a queue as a stream; see `descriptor`."""
    return open(descriptor(path), "rb")


def read_bytes(path: Path | str) -> bytes:
    """All bytes of a file."""
    with reading(path) as stream:
        return stream.read()


def read_at(file: int, count: int, at: int) -> bytes:
    """`count` bytes from `at` on, or as many as the file has; one call may give fewer than that."""
    found = os.pread(file, count, at)
    while len(found) < count and (more := os.pread(file, count - len(found), at + len(found))):
        found += more
    return found


def read_start(path: Path | str, count: int) -> bytes:
    """The first bytes of a file, `count` of them or as many as it has."""
    file = descriptor(path)
    try:
        found = os.pread(file, count, 0)
        return found if len(found) == count else read_at(file, count, 0)
    finally:
        os.close(file)


def read_if_there(path: Path | str, most: int | None = None) -> bytes | None:
    """All bytes of a file, or its first `most`; none where there is no file."""
    try:
        return read_bytes(path) if most is None else read_start(path, most)
    except (FileNotFoundError, NotADirectoryError):
        return None


def size_of(path: Path) -> int:
    """The bytes of a file; 0 where there is none, or none any more."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def refuse_links(*folders: Path) -> None:
    """Refuses links in folders that are a queue's own: they could make us write anywhere."""
    for folder in folders:
        if folder.is_symlink():
            raise _link(folder)
        for entry in entries(folder):
            if entry.is_symlink():
                raise _link(Path(entry.path))


def _link(path: Path) -> StorageError:
    return StorageError(path, "is a link, and a queue follows none inside itself; move it away")


def refuse_strangers(*paths: Path) -> None:
    """Refuses a queue that everyone may write to, or that is another user's: someone else may have
    put there what we would read as the owner's. Root may use anyone's."""
    for path in paths:
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if found.st_mode & 0o002:
            advice = "take that right away (`chmod o-w`)"
            raise _stranger(path, "every user of this machine may write here", advice)
        if found.st_uid not in (0, os.geteuid()) and os.geteuid() != 0:
            whose = f"this belongs to user {found.st_uid}, and you are {os.geteuid()}"
            raise _stranger(path, whose, "work as that user")


def _stranger(path: Path, found: str, advice: str) -> StorageError:
    told = "trust_others=True (`--trust-others`) if they may"
    return StorageError(path, f"{found}; {advice}, or open it with {told}")


def refuse_network_file_system(path: Path) -> None:
    """Mapping, locks and clock need a local disk: anything else is an error that says so."""
    kind = NETWORK_FILE_SYSTEMS.get(_core.file_system(path) & 0xFFFFFFFF)
    if kind is not None and os.environ.get("PENSTOCK_ALLOW_NETWORK") != "1":
        raise StorageError(
            path,
            f"this is a {kind} mount; a queue is written on a local disk only. "
            f"Read it here with read_only=True, or copy sealed segments with `penstock export`",
        )


def free_bytes(path: Path) -> int:
    """What is left on the file system of `path` for users like us."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def disk_bytes(path: Path) -> int:
    """What a file takes on the disk; 0 once it is gone."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
