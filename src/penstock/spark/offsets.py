"""Stream offsets: which message of each queue comes next.

    {"v": 1, "q": {"orders": {"id": "5f0c…", "next": 4096}}}

Spark keeps them in the checkpoint and compares them as text, so the order of keys is fixed. The
identity tells a queue from another one made later at the same path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import FormatError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Position:
    """The next message of one queue."""

    identity: str
    next: int


class Offsets(dict[str, Position]):
    """Queue name → position."""

    def json(self) -> dict[str, Any]:
        """As Spark stores it."""
        queues = {
            name: {"id": self[name].identity, "next": self[name].next} for name in sorted(self)
        }
        return {"v": VERSION, "q": queues}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Offsets:
        """What `json` gave; a version of the future is refused."""
        if found.get("v") != VERSION:
            advice = "use the release of penstock that wrote it, or a new checkpoint"
            raise FormatError("checkpoint", f"offsets of version {found.get('v')!r}", advice)
        return cls({name: Position(str(q["id"]), int(q["next"])) for name, q in found["q"].items()})
