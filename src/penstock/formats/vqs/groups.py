"""What a vqs queue shows of its groups: the header's first message follows the acks."""

from __future__ import annotations

from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.formats.contract import Host, OwnGroups
from penstock.formats.vqs.header import Header
from penstock.hints import Any, Protocol
from penstock.options import GroupOptions


class Ring(Protocol):
    """What is asked of the queue."""

    store: Host
    sidecar: Path
    header: Header
    vqs: _core.VqsHeader | None
    generation: int


class VqsGroups(OwnGroups):
    """The groups of one ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._holding: dict[str, bool] = {}
        self._followed: int | None = None
        """The generation of the ring in which acks are shown; none while no group is open."""

    def defaults(self, group: str) -> dict[str, Any]:
        """The header's visibility timeout."""
        return {"visibility_s": float(self._ring.header.values["visibility_timeout"])}

    def note(self, group: str, options: GroupOptions) -> None:
        """Whether ring space waits for this group; the header shows only such groups' acks."""
        self._holding[group] = options.retain_unread

    def mirror(self, group: str) -> _core.Mirror | None:
        """The header, which follows the acks of a group that is the only one."""
        vqs, is_held_for = self._ring.vqs, self._holding.get(group, False)
        return vqs.mirror() if vqs is not None and is_held_for else None

    def recount(self) -> None:
        """With several groups the header begins with what the slowest has not acked, as far as
        space was given back; acks of one group are shown at once."""
        vqs, store = self._ring.vqs, self._ring.store
        if vqs is not None:
            names = files.names_in(self._ring.sidecar / "groups")
            vqs.follow(store.segment_at(store.need_shared().head), len(names) == 1)
            self._followed = self._ring.generation

    def follow(self) -> None:
        """Goes on showing acks in a ring that has taken the place of the one they were shown in."""
        if self._followed not in (None, self._ring.generation):
            self._ring.store.need_shared().alone(self.recount)
