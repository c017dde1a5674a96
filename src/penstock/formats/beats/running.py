"""A Beat that runs: it has its queue open, and takes no lock that would tell.

It keeps `state.dat` open for writing as long as it runs, in every release. Two writers would write
over each other, so an opening that changes anything is refused meanwhile; reading is not.
"""

from __future__ import annotations

import time
from pathlib import Path

from penstock.disk import open_elsewhere
from penstock.errors import UnsupportedError

TRIES, PAUSE_S = 10, 0.01
"""A process that has just ended has its files open for an instant more."""


def refuse(state_path: Path) -> None:
    """Raises if a Beat has the queue open whose state is at `state_path`."""
    for left in reversed(range(TRIES)):
        if not state_path.exists() or not open_elsewhere.is_written_elsewhere(state_path):
            return
        found = list(open_elsewhere.writers(state_path))
        if found and all(one.is_penstock for one in found):
            return  # A group that outlived its queue, whose file is open, and not used.
        for one in found:
            if not one.is_penstock:
                raise _running(state_path, f"process {one.process} ({one.name})")
        if left:
            time.sleep(PAUSE_S)
    raise _running(state_path, "a process that can't be seen from here, as in another container,")


def _running(state_path: Path, who: str) -> UnsupportedError:
    return UnsupportedError(
        f"{state_path.parent}: {who} has this queue open for writing. A Beat and penstock can't "
        "write to one queue at the same time: stop the Beat first, or open the queue with "
        "read_only=True"
    )
