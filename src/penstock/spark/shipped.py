"""Queues that were shipped: sealed segments and a manifest under any URL that fsspec knows.

    <url>/manifest.json      which queue, which format, and every segment with its offsets
    <url>/<file>             segments and what else the format needs to read them, as they were

The manifest is replaced as a whole, so a reader sees a prefix of the queue, never a mixture.
"""

from __future__ import annotations

import glob
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engine.positions import within
from penstock.errors import FormatError, NoQueueError, OptionError, PenstockError
from penstock.formats import registry
from penstock.spark.loss import DataLoss, lost
from penstock.spark.spans import Span

if TYPE_CHECKING:
    from penstock.spark.options import SourceOptions

MANIFEST = "manifest.json"
VERSION = 1


def is_url(path: str) -> bool:
    """Whether it names something elsewhere."""
    return "://" in path


def is_shipped(where: str) -> bool:
    """Whether a queue was shipped here: a URL, or a folder with a manifest, as on a mount."""
    return is_url(where) or Path(where, MANIFEST).is_file()


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, by fsspec, or an error that says what to install."""
    try:
        import fsspec
    except ImportError as error:
        raise OptionError("path", url, "fsspec, which URLs need: pip install fsspec") from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # an unknown scheme, or one whose package is missing
        raise OptionError("path", url, f"a URL that fsspec can open here: {error}") from error
    return system, path.rstrip("/")


@dataclass(frozen=True, slots=True)
class ShippedSegment:
    """One segment in a manifest."""

    file: str
    base: int
    first: int
    end: int
    size: int
    crc32c: int
    messages: int | None = None
    first_number: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    at: str = ""
    """Where the copy of a segment that was still written to lies; empty: under its own name."""

    def is_before(self, number: int) -> bool:
        """Whether all its messages surely have smaller numbers."""
        if self.first_number is None or self.messages is None:
            return False
        return self.first_number + self.messages <= number


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which files of a queue were shipped."""

    format: str
    layout: str
    identity: str
    segments: tuple[ShippedSegment, ...]
    extras: tuple[str, ...] = ()
    """Small files that the format needs, besides its segments."""
    file: str = ""
    """The queue's file, when it is one and not a folder."""
    newest: str = ""
    """The newest segment, shipped or not: some formats are recognised by its being there."""

    def segment(self, url: str, base: int) -> ShippedSegment:
        """The segment that begins at `base`, which is in it or was taken away."""
        for one in self.segments:
            if one.base == base:
                return one
        raise DataLoss(f"{url}: segment {base} is no longer in its manifest; it was shipped anew")

    def json(self) -> str:
        """As it is stored."""
        segments = [{k: getattr(s, k) for k in s.__slots__} for s in self.segments]
        value = {
            "v": VERSION, "format": self.format, "layout": self.layout, "identity": self.identity,
            "segments": segments, "extras": list(self.extras), "file": self.file,
            "newest": self.newest,
        }  # fmt: skip
        return json.dumps(value, indent=1)

    @classmethod
    def load(cls, url: str) -> Manifest | None:
        """The manifest at a URL; none if there is none."""
        system, path = file_system(url)
        try:
            raw = system.cat_file(f"{path}/{MANIFEST}")
        except FileNotFoundError:
            return None
        try:
            value = json.loads(raw)
            if value["v"] != VERSION:
                found = f"{MANIFEST} of version {value['v']!r}"
                raise FormatError(url, found, "use a newer penstock")
            return cls(
                value["format"], value["layout"], value["identity"],
                tuple(ShippedSegment(**segment) for segment in value["segments"]),
                tuple(value["extras"]), value.get("file", ""), value.get("newest", ""),
            )  # fmt: skip
        except (ValueError, TypeError, KeyError) as error:
            if isinstance(error, FormatError):
                raise
            found = f"{MANIFEST} that is none of penstock's ({type(error).__name__}: {error})"
            raise FormatError(url, found, "ship the queue again") from error


class NotShippedError(NoQueueError):
    """Nothing was shipped to a URL."""

    path: Path

    def __init__(self, url: str) -> None:
        PenstockError.__init__(
            self, f"{url}: no queue was shipped here ({MANIFEST} is missing); copy one with "
            f"`penstock ship QUEUE {url}`"
        )  # fmt: skip
        self.path = Path(url)


class ShippedQueue:
    """A shipped queue, as its manifest says."""

    name: str
    where: str
    manifest: Manifest
    identity: str
    head: int
    end: int

    def __init__(self, name: str, url: str, options: SourceOptions) -> None:
        self._options = options
        manifest = Manifest.load(url)
        if manifest is None:
            raise NotShippedError(url)
        self.name, self.where, self.manifest = name, url, manifest
        self.identity = manifest.identity
        able = registry.format_class(manifest.format).capabilities
        self._has_gaps, self._counts = able.gaps, options.counts_unread and able.numbers
        self.head = manifest.segments[0].first if manifest.segments else 0
        self.end = manifest.segments[-1].end if manifest.segments else 0

    def spans(self, start: int, end: int) -> list[Span]:
        """The range, one span per segment."""
        found = []
        before = start
        for one in self.manifest.segments:
            first, last = max(one.first, start), min(one.end, end)
            if first < last:
                self._check_gap(before, one)
                before = one.end
                is_whole = (first, last) == (one.first, one.end)
                # The task has the whole segment: it finds the frame around `first` itself.
                found.append(Span(
                    self.name, self.where, self.identity, one.base, one.first, first, last,
                    one.file, is_shipped=True, first_ns=one.first_ns, last_ns=one.last_ns,
                    messages=one.messages if is_whole and self._counts else None,
                ))  # fmt: skip
        return found

    def _check_gap(self, before: int, one: ShippedSegment) -> None:
        """Says so if messages were removed from the queue before they were shipped."""
        if self.head <= before < one.first and not self._has_gaps:
            lost(
                f"queue {self.name}: offsets {before} to {one.first} are not in {self.where}: they "
                f"were removed before they were shipped (`penstock ship --group` makes retention "
                f"wait)", fails=self._options.fail_on_data_loss,
            )  # fmt: skip

    def cuts(self, span: Span, every: int) -> list[int]:
        """Nowhere: a task fetches whole segments."""
        return []

    def limited(self, start: int, end: int, rows: int, most_bytes: int) -> tuple[int, int]:
        """Whole segments, at least one."""
        at, seen, taken = start, 0, 0
        for span in self.spans(start, end):
            one = self.manifest.segment(self.where, span.base)
            if at > start and (
                seen + (one.messages or 0) > rows or taken + span.bytes > most_bytes
            ):
                break
            at, seen, taken = span.end, seen + (one.messages or 1), taken + span.bytes
        return at, seen

    def left(self, offset: int) -> dict[str, float | None]:
        """What waits from `offset` on, as far as the manifest tells."""
        size = sum(span.bytes for span in self.spans(offset, self.end)) if offset < self.end else 0
        return {"messages": None if size else 0, "bytes": size, "seconds": None if size else 0.0}

    def resolve(self, where: str, option: str) -> int:
        """`number:N` or the offset of a message."""
        kind, colon, number = where.partition(":")
        if colon and kind == "number" and number.isdigit():
            return self._find(number=within(int(number)))
        if where.isdigit() and self.head <= int(where) <= self.end:
            return int(where)
        raise OptionError(
            option, where, f"earliest, latest, number:N, or {self.head} to {self.end}"
        )

    def by_time(self, name: str, text: str) -> int:
        """The offset of the first message at or after a time."""
        from penstock.spark.options import timestamp_ns

        return self._find(timestamp_ns=within(timestamp_ns(name, text)))

    def _find(self, *, number: int | None = None, timestamp_ns: int | None = None) -> int:
        """The first message with this number or time, or a later one.

        The manifest tells in which segment it can be; that one is fetched and looked through.
        """
        from penstock import _core
        from penstock.spark.opening import need_key, open_store

        for one in self.manifest.segments:
            if timestamp_ns is not None and one.last_ns is not None and one.last_ns < timestamp_ns:
                continue
            if number is not None and one.is_before(number):
                continue
            with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
                path, manifest = fetch(self.name, self.where, one.base, Path(folder))
                store = open_store(
                    path, self._options.for_shipped(manifest.format, manifest.layout)
                )
                need_key(store, self.name)
                info = next(i for i in store.segments(fresh=True) if i.base == one.base)
                segment = store.open_whole(replace(info, end=one.end), writable=False)
                offset, found = _core.find_frame(
                    segment, one.first, one.end, number=number, timestamp_ns=timestamp_ns
                )
            if found:
                return offset
        return self.end

    def pending(self, group: str) -> int:
        """A shipped queue has no cursors."""
        raise OptionError("view", "pending", "a queue that is not shipped")


def matches(pattern: str) -> Iterator[tuple[str, str]]:
    """Shipped queues that a glob of URLs names: the path below its fixed part, and the URL."""
    scheme, _, _ = pattern.partition("://")
    system, path = file_system(pattern)
    plain = itertools.takewhile(lambda part: not glob.has_magic(part), path.split("/"))
    fixed = "/".join(plain)
    for found in sorted(system.glob(f"{path}/{MANIFEST}")):
        where = found.removesuffix(f"/{MANIFEST}")
        yield where.removeprefix(fixed).lstrip("/"), f"{scheme}://{where}"


def fetch(
    queue: str, url: str, base: int, to: Path, *, fails: bool = True
) -> tuple[Path, Manifest]:
    """Fetches one segment and what is needed to read it; returns where the queue now is.

    A copy that was changed is lost; unless that `fails`, its frames tell what of it is whole.
    """
    from penstock import _core

    manifest = Manifest.load(url)
    if manifest is None:
        raise NotShippedError(url)
    system, path = file_system(url)
    root, one = to / path.rsplit("/", 1)[-1], manifest.segment(url, base)
    for file in filter(None, (manifest.newest, manifest.file)):
        _inside(url, file)
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    lies_at = {file: file for file in manifest.extras} | {one.file: one.at or one.file}
    for file, name in lies_at.items():
        _inside(url, file)
        _inside(url, name)
        target = root / file
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            system.get_file(f"{path}/{name}", str(target))
        except FileNotFoundError:
            raise DataLoss(f"queue {queue}: {url}/{name} is gone; ship the queue again") from None
    raw = (root / one.file).read_bytes()
    if len(raw) != one.size or _core.crc32c(raw) != one.crc32c:
        lost(
            f"queue {queue}: {url}/{one.at or one.file}: found {len(raw)} bytes that check as "
            f"{_core.crc32c(raw):08x}, expected {one.size} and {one.crc32c:08x}: it was changed "
            f"after it was shipped; ship the queue again to another place", fails=fails,
        )  # fmt: skip
    return root / manifest.file, manifest


def _inside(url: str, file: str) -> None:
    """A manifest is found, not ours: what it names stays below its folder."""
    if not file or ".." in Path(file).parts or Path(file).is_absolute():
        raise FormatError(url, f"a file named {file!r} in the manifest", "ship the queue again")
