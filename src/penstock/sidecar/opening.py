"""Opening `.penstock/`: creating the folder, and entering it alone or together with others.

make       a queue that is new: under the opening lock, and gone again afterwards
visit      work that needs the queue for itself for a moment (repair)
open       an opening that lasts: the control block is shared until it is closed
"""

from __future__ import annotations

from collections.abc import Callable

from penstock import _core
from penstock.disk import files
from penstock.hints import TypeVar
from penstock.pacing import LOCK_TIMES
from penstock.places import Path

T = TypeVar("T")
CONTROL = "control"


def sidecar_of(path: Path) -> Path:
    """The folder `.penstock/` of the queue at `path`: inside a folder, beside a single file."""
    return path / ".penstock" if path.is_dir() else path.parent / f"{path.name}.penstock"


def make(path: Path, sidecar: Path, work: Callable[[_core.Shared], None]) -> None:
    """Makes the folder of a new queue and calls `work` under the opening lock."""
    there = path
    while not there.exists():
        there = there.parent
    files.refuse_network_file_system(there)  # Before anything is made.
    files.make_folder(sidecar)
    _core.Shared.visit(sidecar, LOCK_TIMES, work)


def visit(path: Path, sidecar: Path, work: Callable[[_core.Shared], T]) -> T:
    """Calls `work` under the opening lock of a queue that is there."""
    files.refuse_network_file_system(path)
    files.make_folder(sidecar, like=path)
    return _core.Shared.visit(sidecar, LOCK_TIMES, work)


def open(path: Path, sidecar: Path, work: Callable[[_core.Shared], None]) -> None:
    """Opens the queue for writing; `work` is called under the opening lock."""
    files.refuse_network_file_system(path)
    files.make_folder(sidecar, like=path)
    _core.Shared.open(sidecar, LOCK_TIMES, work)


def drop_temporaries(path: Path, sidecar: Path) -> None:
    """Removes what processes left that died while they replaced a file. Alone."""
    groups = sidecar / "groups"
    files.drop_temporaries(path, sidecar, *map(groups.joinpath, files.names_in(groups)))


def sync_words(sidecar: Path, *, is_new: bool) -> None:
    """Syncs the control block, and its name if that is new."""
    _core.sync_file(sidecar / CONTROL)
    if is_new:
        _core.sync_folder(sidecar)
