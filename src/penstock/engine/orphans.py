"""Groups whose last opener was killed: no process syncs what it had acked.

Every process syncs the groups that it has open. Those of others are only looked at, by a read of
their table's first words and without their lock (`_core.Upkeep`): what stays unsynced for a whole
interval is synced here.
"""

from __future__ import annotations

import contextlib

from penstock.errors import GroupError
from penstock.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.group import OpenQueue


def sync(queue: OpenQueue, names: list[str]) -> None:
    """Opens the groups of these `names`, syncs what was acked in them, and lets go of them."""
    from penstock.engine.group import Group

    for name in names:
        # They are closed again: each has files, and there may be one per consumer that ever was.
        with contextlib.suppress(GroupError, FileNotFoundError):  # Another process deleted it.
            Group(queue, name, create=False, look=True).core.sync()
