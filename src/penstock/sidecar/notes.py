"""Small notes about a queue in `.penstock/`, each one file that is replaced as a whole.

A format and the engine decide what a note says; where it stands, and how it gets there, is here.
"""

from __future__ import annotations

from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.hints import Any

OPTIONS = "options.json"
KNOWN_DAMAGE = "known-damage.json"
PURGED = "purged.json"
IDENTITY = "queue.json"
ZBUS = "zbus.json"
ZBUS_PLACES = "zbus-places.json"
BEATS = "beats.json"
UNCHECKED = "unchecked.json"
AGES = "ages.json"
RING_EXTENT = "intent"
RING_MAKING = "making"
RING_HEADER = "header.new"


def read(sidecar: Path, name: str) -> dict[str, Any] | None:
    """What a note says; none when it is missing or was torn."""
    return files.read_json(sidecar / name)


def write(sidecar: Path, name: str, value: dict[str, Any], *, synced: bool = True) -> None:
    """Replaces a note."""
    files.write_json(sidecar / name, value, synced=synced)


def read_bytes(sidecar: Path, name: str) -> bytes | None:
    """The bytes of a note that is no JSON; none when it is missing."""
    try:
        return files.read_bytes(sidecar / name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_bytes(sidecar: Path, name: str, raw: bytes) -> None:
    """Replaces a note that is no JSON, and syncs it."""
    _core.replace_file(sidecar / name, raw, synced=True)


def exists(sidecar: Path, name: str) -> bool:
    """Whether there is such a note."""
    return (sidecar / name).exists()


def drop(sidecar: Path, name: str) -> None:
    """Removes a note; one that is missing is fine."""
    _core.unlink_file(sidecar / name)
