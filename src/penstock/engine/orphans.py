"""Groups whose last opener was killed: no process syncs what it had acked.

Every process syncs the groups that it has open. Those of others are only looked at, by a read of
their table's first words and without their lock (`_core.Upkeep`): what stays unsynced for a whole
interval is synced here, and what can't be read is told.
"""

from __future__ import annotations

from penstock.errors import ClosedError, GroupError, PenstockError, PoisonedError
from penstock.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.group import OpenQueue


def sync(queue: OpenQueue, names: list[str]) -> None:
    """Opens the groups of these `names`, syncs what was acked in them, and lets go of them."""
    from penstock.engine.group import Group

    failed: PenstockError | OSError | None = None
    for name in names:
        try:
            # It is closed again: each has files, and there may be one per consumer that ever was.
            Group(queue, name, create=False, look=True).core.sync()
        except (GroupError, FileNotFoundError):
            pass  # Another process deleted it.
        except (ClosedError, PoisonedError):
            raise
        except (PenstockError, OSError) as error:
            failed = error  # That one is damaged or not ours: the others go on.
    if failed is not None:
        raise failed
