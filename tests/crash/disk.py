"""A disk made from recorded effects, and what may be left of it after a power cut.

The model, per file: of every page that was stored to since the file's last sync, any version may
be on the disk, the synced one included, and each of its 512-byte sectors may be of another version
than the one beside it. Of a file's sizes since the sync, any. Of a folder's names, any prefix of
what happened to them since the folder's last sync (a name that moved to another folder is in at
least one of the two). What was synced is there.
"""

# ruff: noqa: PTH103, PTH108, PTH120
from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = 4096
SECTOR = 512
ZEROS = bytes(PAGE)
UNTOUCHED = [ZEROS]
EXHAUSTIVE_PAGES = 12
MOST_COMBINED = 1536
Effect = tuple[Any, ...]
State = tuple[Any, ...]
Image = tuple[tuple[str, bytes], ...]


@dataclass
class File:
    """Versions of each page since the last sync; the first is the synced one."""

    pages: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=lambda: [0])
    dirty: set[int] = field(default_factory=set)
    synced: int = 0
    """Differs whenever what was synced does."""

    def store(self, at: int, data: bytes) -> None:
        if at + len(data) > self.sizes[-1]:
            self.sizes.append(at + len(data))
        for page in range(at // PAGE, (at + len(data) - 1) // PAGE + 1 if data else 0):
            versions = self.pages.setdefault(page, [ZEROS])
            content = bytearray(versions[-1])
            start = max(at, page * PAGE)
            end = min(at + len(data), (page + 1) * PAGE)
            content[start - page * PAGE : end - page * PAGE] = data[start - at : end - at]
            if content != versions[-1]:
                versions.append(bytes(content))
                self.dirty.add(page)

    def sync(self) -> None:
        changed = tuple((page, self.pages[page][-1]) for page in sorted(self.dirty))
        self.synced = hash((self.synced, changed)) if changed else self.synced
        for page in self.dirty:
            del self.pages[page][:-1]
        del self.sizes[:-1]
        self.dirty.clear()


@dataclass(frozen=True)
class Change:
    """Something that happened to the names of a folder."""

    name: str
    inode: int | None
    """None: the name went."""
    unless: tuple[str, int] | None = None
    """It went because the file moved: only if this name is there."""


class Disk:
    """Files and names, fed with effects in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[int, File] = {}
        self.names: dict[str, int] = {}
        self.now: dict[str, int] = {}
        self.pending: dict[str, list[Change]] = {}

    def name(self, path: str) -> str:
        return os.path.relpath(path, self.root)

    def apply(self, effect: Effect) -> None:
        kind = effect[0]
        if kind == "create":
            self.files[effect[2]] = File()
            self.change(Change(self.name(effect[1]), effect[2]))
        elif kind == "store" and effect[1] in self.files:
            self.files[effect[1]].store(effect[2], effect[3])
        elif kind == "grow" and effect[1] in self.files:
            self.files[effect[1]].sizes.append(effect[2])
        elif kind == "sync" and effect[1] in self.files:
            self.files[effect[1]].sync()
        elif kind == "rename":
            self.rename(self.name(effect[1]), self.name(effect[2]))
        elif kind == "unlink":
            self.change(Change(self.name(effect[1]), None))
        elif kind == "sync_folder":
            self.sync_folder(self.name(effect[1]))

    def change(self, change: Change) -> None:
        self.pending.setdefault(os.path.dirname(change.name), []).append(change)
        if change.inode is None:
            self.now.pop(change.name, None)
        else:
            self.now[change.name] = change.inode

    def rename(self, source: str, target: str) -> None:
        inode = self.now[source]
        self.change(Change(target, inode))
        self.change(Change(source, None, unless=(target, inode)))

    def sync_folder(self, folder: str) -> None:
        folder = "" if folder == "." else folder  # As `dirname` calls the folder of the queue.
        self.names = self.named({folder: len(self.pending.get(folder, []))})
        kept = [c for c in self.pending.get(folder, []) if c.unless and c.name in self.names]
        self.pending[folder] = kept

    def named(self, prefixes: dict[str, int]) -> dict[str, int]:
        """The names that are there when of each folder's changes these many are."""
        names = dict(self.names)
        gone = []
        for folder, count in prefixes.items():
            for change in self.pending.get(folder, [])[:count]:
                if change.inode is not None:
                    names[change.name] = change.inode
                elif change.unless is None:
                    names.pop(change.name, None)
                else:
                    gone.append(change)
        for change in gone:
            moved, inode = change.unless or ("", 0)
            if names.get(moved) == inode and names.get(change.name) == inode:
                del names[change.name]
        return names

    # ── states ─────────────────────────────────────────────────────────────────────────────

    def states(self, rng: random.Random, sampled: int, most: int | None) -> Iterator[State]:
        """Everything on or off, then samples of the rest: with up to 12 dirty pages every subset
        of them, and at most `most` of these."""
        folders = {folder: len(changes) for folder, changes in self.pending.items() if changes}
        dirty = [(inode, page) for inode, file in self.files.items() for page in sorted(file.dirty)]
        names = list(itertools.product(*(range(count + 1) for count in folders.values())))
        if len(names) > 64:
            names = [*rng.sample(names, 62), names[0], names[-1]]
        if len(dirty) <= EXHAUSTIVE_PAGES:
            is_small = most is not None or len(names) << len(dirty) <= MOST_COMBINED
            combined = names if is_small else names[-1:]  # Other names are sampled below.
            cases = range(len(combined) << len(dirty))
            for case in cases if most is None or len(cases) <= most else rng.sample(cases, most):
                pages, prefix = divmod(case, len(combined))
                chosen = [-(pages >> index & 1) for index in range(len(dirty))]
                yield self.state(dirty, chosen, zip(folders, combined[prefix], strict=True), None)
        for _ in range(sampled):
            chosen = [rng.randrange(len(self.files[i].pages[p])) for i, p in dirty]
            tear = self.tear(rng, dirty) if dirty and rng.random() < 0.5 else {}
            yield self.state(dirty, chosen, zip(folders, rng.choice(names), strict=True), tear, rng)

    def tear(self, rng: random.Random, dirty: list[tuple[int, int]]) -> dict[Any, bytes]:
        """Torn pages: one at the sector where two versions meet, or some with any mixture."""
        torn = {}
        for inode, page in rng.sample(dirty, rng.choice([1, 1, min(3, len(dirty))])):
            versions = self.files[inode].pages[page]
            version, cut = rng.randrange(1, len(versions)), rng.randrange(1, PAGE // SECTOR)
            chosen = [versions[version]] * cut + [versions[version - 1]] * (PAGE // SECTOR - cut)
            if rng.random() < 0.5:
                chosen = rng.choices(versions, k=PAGE // SECTOR)
            at = range(0, PAGE, SECTOR)
            pieces = [one[start : start + SECTOR] for one, start in zip(chosen, at, strict=True)]
            torn[inode, page] = b"".join(pieces)
        return torn

    def state(self, dirty: Any, chosen: Any, prefixes: Any, tear: Any, rng: Any = None) -> State:
        """Which version of each page, which names, which sizes: enough to make it, and on top of
        what: enough to tell it from others."""
        names = tuple(sorted(self.named(dict(prefixes)).items()))
        there = {inode for _, inode in names}
        pages = {
            key: version for key, version in zip(dirty, chosen, strict=True) if key[0] in there
        }
        bytes_of = {key: self.files[key[0]].pages[key[1]][at] for key, at in pages.items()}
        bytes_of |= {key: content for key, content in (tear or {}).items() if key[0] in there}
        sizes = {}
        for _, inode in names:  # In this order: the same seed gives the same states.
            known = self.files[inode].sizes
            sizes[inode] = rng.choice(known) if rng is not None else known[-1]
        synced = tuple(self.files[inode].synced for _, inode in names)
        return names, tuple(sorted(bytes_of.items())), tuple(sorted(sizes.items())), synced

    def image(self, state: State) -> Image:
        """The state's files: different states may be the same to whoever looks."""
        names, changed, sizes, _ = state
        pages, size_of = dict(changed), dict(sizes)
        return tuple((name, self.content(inode, size_of[inode], pages)) for name, inode in names)

    def content(self, inode: int, size: int, chosen: dict[tuple[int, int], bytes]) -> bytes:
        file = self.files[inode]
        parts = []
        for page in range(-(-size // PAGE)):
            versions = file.pages.get(page, UNTOUCHED)
            parts.append(chosen.get((inode, page), versions[0]))
        return b"".join(parts)[:size]


def make(image: Image, folder: Path) -> None:
    """Writes the files into `folder`, which keeps nothing else."""
    keep_only({name for name, _ in image}, str(folder), "")
    for name, content in image:
        write(f"{folder}/{name}", content)


def keep_only(wanted: set[str], folder: str, prefix: str) -> None:
    for entry in os.scandir(folder):
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            keep_only(wanted, entry.path, f"{name}/")
        elif name not in wanted:
            os.unlink(entry.path)


def write(path: str, content: bytes) -> None:
    """Replaces a file's bytes."""
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    try:
        file = os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = os.open(path, flags, 0o600)
    try:
        os.write(file, content)
    finally:
        os.close(file)
