"""Small notes about a queue in `.penstock/`, each one file that is replaced as a whole.

A format and the engine decide what a note says; where it stands, and how it gets there, is here.
"""

from __future__ import annotations

from contextlib import suppress

from penstock import _core
from penstock.disk import files
from penstock.hints import Any
from penstock.places import Path

OPTIONS = "options.json"
KNOWN_DAMAGE = "known-damage.json"
PURGED = "purged.json"
IDENTITY = "queue.json"
ZBUS = "zbus.json"
ZBUS_PLACES = "zbus-places.json"
BEATS = "beats.json"
UNCHECKED = "unchecked.json"
AGES = "ages.json"
SEGMENT_INDEX = "index"
RING_EXTENT = "intent"
RING_MAKING = "making"
RING_HEADER = "header.new"


def read(sidecar: Path, name: str) -> dict[str, Any] | None:
    """What a note says; none when it is missing or was torn."""
    return files.read_json(sidecar / name)


def write(sidecar: Path, name: str, value: dict[str, Any], *, synced: bool = True) -> None:
    """Replaces a note by `value`, as JSON."""
    files.write_json(sidecar / name, value, synced=synced)


def read_bytes(sidecar: Path, name: str) -> bytes | None:
    """The bytes of a note that is not JSON; none when it is missing."""
    return files.read_if_there(sidecar / name)


def write_bytes(sidecar: Path, name: str, raw: bytes, *, synced: bool = True) -> None:
    """Replaces a note that is not JSON."""
    _core.replace_file(sidecar / name, raw, synced=synced)


def append_bytes(sidecar: Path, name: str, raw: bytes, entry_bytes: int) -> None:
    """Adds whole entries. Two who add at once may lose one: what stands here is a hint."""
    path = sidecar / name
    if not path.exists():
        with suppress(FileExistsError):
            _core.create_file(path, 0)
    size = path.stat().st_size
    _core.write_file(path, size - size % entry_bytes, raw)


def exists(sidecar: Path, name: str) -> bool:
    """Whether there is such a note."""
    return (sidecar / name).exists()


def drop(sidecar: Path, name: str, *, synced: bool = False) -> None:
    """Removes a note; one that is missing is fine. With `synced` no power cut brings it back."""
    if _core.unlink_file(sidecar / name) and synced:
        _core.sync_folder(sidecar)
