"""Repair: what is damaged is set aside, everything whole stays where it is.

    report = repair(Path("orders"), dry_run=True)     # what would be done
    report = repair(Path("orders"))                   # done

Offsets are promises (cursors, receipts and Spark's checkpoints hold them), so nothing is moved and
no segment is written anew. A damaged range is copied to `.penstock/quarantine/<segment>.<first
byte>-<last byte>` and noted in `.penstock/known-damage.json`; from then on every reader passes over
it and `verify` is content, while the note keeps saying what was lost. A header that can be told
from the name and the frames is written anew. A torn tail is copied aside too, and then dropped as
every opening for writing drops it.

The order makes a crash harmless at any point: first the copies, then the note, then the headers.
A repair needs the queue for itself, because those who have it open would not see the note.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import _core
from penstock import clock as clocks
from penstock.engine import verifying
from penstock.errors import FormatError, StorageError, UnsupportedError
from penstock.formats import registry
from penstock.formats.store import Store
from penstock.formats.values import Damage, SegmentInfo
from penstock.options import PAGE_BYTES, QueueOptions
from penstock.records import asdict, dataclass, field
from penstock.sidecar import damage as damage_notes
from penstock.sidecar import opening, quarantine
from penstock.sidecar.damage import SetAside


@dataclass(slots=True)
class Report:
    """What a repair did, or would do."""

    is_dry_run: bool
    set_aside: list[SetAside] = field(default_factory=list)
    """Ranges that readers pass over from now on, and faults that are known from now on."""
    rebuilt: list[Damage] = field(default_factory=list)
    """Headers that were written anew."""
    torn: list[Damage] = field(default_factory=list)
    """What a crash had cut short, and the repair dropped."""
    brought_back: int = 0
    """Messages behind damage that have no place any more: put into a new segment."""
    left: list[Damage] = field(default_factory=list)
    """What can't be repaired in place: convert the queue to a new one."""

    @property
    def is_clean(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.set_aside or self.rebuilt or self.torn or self.left)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "dry_run": self.is_dry_run,
            "set_aside": [asdict(entry) for entry in self.set_aside],
            "rebuilt": [damage.as_dict() for damage in self.rebuilt],
            "torn": [damage.as_dict() for damage in self.torn],
            "brought_back": self.brought_back,
            "left": [damage.as_dict() for damage in self.left],
        }


def repair(
    path: Path,
    *,
    format: str | None = None,
    layout: str | None = None,
    options: QueueOptions | None = None,
    clock: clocks.ManualClock | _core.Clock | None = None,
    dry_run: bool = False,
    on_verified: Callable[[int, int], None] | None = None,
) -> Report:
    """Sets aside what is damaged in the queue at `path`, which no other process may have open.

    `on_verified` is told how many of how many bytes were looked at.
    """
    options, native = options or QueueOptions(), clocks.native(clock)

    def open_store(*, live: bool) -> Store:
        return registry.open_store(
            path, format=format, layout=layout, options=options, clock=native, create=False,
            live=live,
        )  # fmt: skip

    store = open_store(live=False)
    store.on_verified = on_verified or store.on_verified
    if dry_run:
        return _Repair(store, is_dry_run=True).run()
    report = _alone(store, _Repair(store, is_dry_run=False).run)
    if not report.left:
        # Opening for writing drops a torn tail, closing leaves the queue clean. Layouts that are
        # only read have neither.
        with contextlib.suppress(UnsupportedError, FormatError):
            open_store(live=True).close()
        if not report.is_clean:
            store = open_store(live=False)
            _alone(store, _Repair(store, is_dry_run=False, report=report).note_rest)
    return report


def _alone(store: Store, work: Callable[[], Report]) -> Report:
    """Calls `work` while no process can open the queue; raises if one has it open."""

    def inside(shared: _core.Shared) -> Report:
        if not shared.is_alone():
            raise StorageError(
                store.path, "another process has the queue open; close it there first"
            )
        return work()

    return opening.visit(store.path, store.sidecar, inside)


class _Repair:
    """One run over one queue."""

    def __init__(self, store: Store, *, is_dry_run: bool, report: Report | None = None) -> None:
        self.store = store
        self.report = report or Report(is_dry_run)
        self.infos = {info.path: info for info in store.segments(fresh=True)}
        self.headers: list[SegmentInfo] = []

    def run(self) -> Report:
        """Looks, copies, notes, writes headers anew, in this order."""
        store, report = self.store, self.report
        verdict = verifying.verify(store)
        report.torn = list(verdict.torn)
        for damage in verdict.torn:
            if damage.offset is None:
                self.copy(damage.path, damage.at, damage.length)
            else:  # It is not at the end of the queue: it stays where it is, and readers skip it.
                self.set_aside(damage, damage.offset, damage.offset + damage.length)
        for damage in verdict.corrupt:
            self.treat(damage)
        if report.is_dry_run:
            return report
        damaged = {damage.path for damage in (*verdict.corrupt, *verdict.torn)}
        report.brought_back = store.format.bring_back(damaged)
        self.save()
        for info in self.headers:
            store.format.rebuild_header(info)
        if self.headers:
            self.note_links()
        return report

    def note_rest(self) -> Report:
        """Notes what is still said after the repair, and after the queue was opened to write. That
        drops no header that was cut short before the end; and it may have made a stream longer
        whose last block is damaged, which then unpacks to more that is no frame."""
        verdict = verifying.verify(self.store)
        for damage in verdict.torn:
            last = None if damage.offset is None else damage.offset + damage.length
            self.set_aside(damage, damage.offset, last)
        for damage in verdict.corrupt:
            self.treat(damage)
        self.save()
        return self.report

    def save(self) -> None:
        """Writes the note, without what is long gone with its segment."""
        if self.report.set_aside:
            names = {path.name for path in self.infos}
            before = [e for e in self.store.set_aside if e.first is None or e.segment in names]
            kept = [entry for entry in before if entry not in self.report.set_aside]
            self.store.set_aside = (*kept, *self.report.set_aside)
            damage_notes.save(self.store.sidecar, self.store.identity, self.store.set_aside)

    def note_links(self) -> None:
        """The segment behind a rebuilt header still has the check of the lost one."""
        for damage in verifying.verify(self.store).corrupt:
            if damage.offset is None:
                self.set_aside(damage, None, None)
        self.save()

    def treat(self, damage: Damage) -> None:
        """Decides about one fault."""
        info = self.infos.get(damage.path)
        if damage.offset is not None:
            self.set_aside(damage, damage.offset, damage.offset + damage.length)
            return
        segment, fault = self.store.open_tolerantly(info) if info else (None, None)
        if info is None or fault is None:
            self.set_aside(damage, None, None)
        elif segment is not None:
            self.copy(info.path, 0, PAGE_BYTES)
            self.headers.append(info)
            self.report.rebuilt.append(damage)
        elif info.end is not None:
            self.set_aside(damage, info.first, info.end)
        else:
            self.report.left.append(damage)

    def set_aside(self, damage: Damage, first: int | None, last: int | None) -> None:
        """Copies the bytes and notes the range."""
        at, length = damage.at, damage.length
        info = self.infos.get(damage.path)
        if first is not None and last is not None and info is not None:
            segment, _ = self.store.open_tolerantly(info)
            if segment is not None and segment.is_mapped:
                at, length = segment.position(first), last - first
            else:  # Bytes that were unpacked have no place in the file: all of it is kept.
                at, length = 0, info.size
        self.report.set_aside.append(
            SetAside(
                damage.path.name,
                at,
                length,
                damage.found,
                damage.expected,
                first,
                last,
                self.copy(damage.path, at, length),
                self.store.clock.wall_now_ns(),
            )
        )

    def copy(self, path: Path, at: int, length: int) -> str:
        """Bytes of a file into the quarantine; the name of the copy. A file may be gone."""
        if not path.exists():
            return ""  # A repair accepts the loss; the note goes on saying it.
        if self.report.is_dry_run:
            return quarantine.name_of(path, at, length)
        try:
            return quarantine.copy(self.store.sidecar, path, at, length)
        except OSError as error:
            raise StorageError(path, f"its bytes can't be set aside: {error}") from error
