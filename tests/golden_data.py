"""Queues written by the original programs, with what a reader must find in them.

    for case in golden_cases("zbus"):      # all of them, in a fixed order
        case.id                            # "crc/basic"
        case.expected["messages"]          # expected.json, parsed
        case.copy(tmp_path)                # the queue, laid out as on disk, yours to change

    golden("zbus") / "matching" / "crc.json"      # what belongs to no case

The archives are unpacked once in a test run, into a folder that all of its processes share
and that is gone afterwards. Nothing may be changed in there: `copy` first.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import json
import lzma
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ARCHIVES = Path(__file__).parent / "golden"
FORMATS = ("beats", "mfq", "vqs", "zbus")
_CACHE = "PENSTOCK_TEST_GOLDEN_CACHE"


@dataclass(frozen=True)
class GoldenCase:
    """One queue and what is known about it."""

    format: str
    layout: str
    """The layout by the name its golden data uses: `v2-seed`, `crc`, `stage4`; mfq has `1`."""
    name: str
    expected: dict[str, Any] = field(repr=False, compare=False)
    _copy: Callable[[Path], Path] = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """What to call the case in a test's name."""
        return f"{self.layout}/{self.name}"

    @property
    def key(self) -> bytes | None:
        """The key of an encrypted Beats queue."""
        return bytes.fromhex(self.expected["key_hex"]) if "key_hex" in self.expected else None

    def copy(self, to: Path) -> Path:
        """A copy of the queue inside the folder `to`, which is made if missing.

        Returns the path to open: a folder, or for VQS's published layout the `.bin` file.
        """
        to.mkdir(parents=True, exist_ok=True)
        return self._copy(to)


def golden(format: str) -> Path:
    """The unpacked golden data of one format, read-only."""
    cache = cache_path()
    unpacked = cache / format
    # The lock makes the others wait for whoever is first; the rename makes sure that a
    # folder that is there is whole, even if the first one was killed half-way.
    with (cache / f"{format}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.exists():
            partial = Path(tempfile.mkdtemp(dir=cache))
            unpack(ARCHIVES / f"{format}.tar.xz", partial)
            partial.rename(unpacked)
    return unpacked


def golden_cases(format: str) -> list[GoldenCase]:
    """Every case of a format; a new list of the same cases each time."""
    return list(_cases(format))


def cache_path() -> Path:
    """The folder of this test run: made by its first process, inherited by the others."""
    if _CACHE not in os.environ:
        path = tempfile.mkdtemp(prefix="penstock-golden-")
        os.environ[_CACHE] = path
        atexit.register(_remove_cache, path, os.getpid())
    return Path(os.environ[_CACHE])


def _remove_cache(path: str, maker: int) -> None:
    # A forked child inherits the exit handlers, but the cache is not its to remove.
    if os.getpid() == maker:
        shutil.rmtree(path, ignore_errors=True)


def unpack(archive: Path, to: Path) -> None:
    """Unpack a tar, sparse files as sparse files, nothing outside `to`."""
    with tarfile.open(archive) as tar:
        tar.extractall(to, filter="data")


@functools.cache
def _cases(format: str) -> tuple[GoldenCase, ...]:
    find = {"beats": _beats_cases, "mfq": _mfq_cases, "vqs": _vqs_cases, "zbus": _zbus_cases}
    return tuple(find[format](golden(format)))


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def _beats_cases(root: Path) -> list[GoldenCase]:
    """`<layout>/<case>/queue`; a `multi` case has also `before`, its state before any ack."""
    cases = []
    for path in sorted(root.glob("*/*/expected*.json")):
        is_before = path.name == "expected-before.json"
        source = path.parent / ("before" if is_before else "queue")
        name = path.parent.name + ("-before" if is_before else "")
        copy = functools.partial(_copy_folder, source, name)
        cases.append(GoldenCase("beats", path.parent.parent.name, name, _load(path), copy))
    return cases


def _mfq_cases(root: Path) -> list[GoldenCase]:
    """`<case>/{commitlog,offset}`."""
    return [
        GoldenCase("mfq", "1", path.parent.name, _load(path), functools.partial(_copy_mfq, path))
        for path in sorted(root.glob("*/expected.json"))
    ]


def _vqs_cases(root: Path) -> list[GoldenCase]:
    """One `expected.json` for all; the files of a case are listed in it."""
    return [
        GoldenCase(
            "vqs", case["layout"], case["case"], case, functools.partial(_copy_vqs, root, case)
        )
        for case in _load(root / "expected.json")["cases"]
    ]


def _zbus_cases(root: Path) -> list[GoldenCase]:
    """`<layout>/<case>/queue.tar.gz`, a sparse tar with one folder."""
    return [
        GoldenCase(
            "zbus", path.parts[-3], path.parts[-2], _load(path), functools.partial(_copy_zbus, path)
        )
        for path in sorted(root.glob("*/*/expected.json"))
    ]


def _copy_folder(source: Path, name: str, to: Path) -> Path:
    return Path(shutil.copytree(source, to / name))


def _copy_mfq(expected: Path, to: Path) -> Path:
    ignore = shutil.ignore_patterns("expected.json")
    return Path(shutil.copytree(expected.parent, to / expected.parent.name, ignore=ignore))


def _copy_vqs(root: Path, case: dict[str, Any], to: Path) -> Path:
    """A `.bin` at its full size (what follows a golden header is all zeros), or a folder."""
    if "bin" in case["files"]:
        path = to / f"{case['case']}.bin"
        shutil.copyfile(root / case["files"]["bin"], path)
        os.truncate(path, case["file_size"])
        return path
    folder = to / str(case["case"])
    folder.mkdir()
    for file in case["files"].values():
        source = root / file
        if source.suffix == ".xz":
            _unpack_sparse(source, folder / source.stem)
        else:
            shutil.copyfile(source, folder / source.name)
    return folder


def _copy_zbus(expected: Path, to: Path) -> Path:
    unpack(expected.with_name("queue.tar.gz"), to)
    return to / str(_load(expected)["mq"])


def _unpack_sparse(source: Path, path: Path) -> None:
    """Unpack a file that is mostly zeros without writing them."""
    with lzma.open(source) as packed, path.open("wb") as file:
        while piece := packed.read(1 << 20):
            if any(piece):
                file.write(piece)
            else:
                file.seek(len(piece), os.SEEK_CUR)
        file.truncate()
