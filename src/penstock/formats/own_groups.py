"""What a format's own files know of groups: where each one is, its filter, what it has not acked.

Most formats know nothing of it; these are the answers then.
"""

from __future__ import annotations

from typing import Any

from penstock import _core
from penstock.disk.groups import Progress
from penstock.formats.values import Damage
from penstock.options import GroupOptions


class OwnGroups:
    """A store's side of groups."""

    def mirror(self, group: str) -> _core.Mirror | None:
        """Where the format itself keeps this group's progress, if it does."""
        return None

    def own_groups(self) -> dict[str, int]:
        """Groups that the format's own files know, with the offset each reads next."""
        return {}

    def own_leases(self, group: str) -> list[tuple[int, int]]:
        """What the format's own files say is out: offset, and how often it was handed out."""
        return []

    def note_group(self, group: str, options: GroupOptions) -> None:
        """A group was opened or changed: formats that keep its options themselves do so here."""

    def own_place(self, group: str, progress: Progress) -> int | None:
        """What the format's own file says of a group whose progress is this, if only we write it;
        none where the format keeps no such place."""
        return None

    def is_moved(self, group: str) -> bool:
        """Whether the format's own file says something else than when the last of us closed the
        queue; asked only if it is not what `own_place` says."""
        return True

    def place_fault(self, group: str) -> Damage | None:
        """A place in the format's own file where no message can be."""
        return None

    def set_own_place(self, group: str, offset: int) -> None:
        """Writes a group's place into the format's own file. Alone."""

    def drop_group(self, group: str) -> None:
        """A group was deleted: its files in the format go."""

    def own_cursor(self, group: str) -> int | None:
        """The group's cursor in the format's own file, where programs that are not ours move it."""
        return None

    def group_defaults(self, group: str) -> dict[str, Any]:
        """Options of a new group that the format's own files or settings decide."""
        return {}
