"""Hostile bytes in any file of a queue: every trial ends in right data, reported damage or a typed
error, never in a panic, a hang, a signal, a gigabyte, wrong bytes or silent loss.

`python -m tests.ladder.fuzz zbus crc killed 17 [COUNT]` runs trials from number 17 on and says what
each one changed and what came of it.
"""

from __future__ import annotations

import json
import logging
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock
import penstock.engine.queue
from penstock.formats import registry
from tests import counting
from tests.copies import adopt
from tests.ladder.means import MEMORY

COUNT, ACKED, GOT = 60, 12, 25
PATIENCE_S = 10.0
MEMORY_KIB = 1 << 20
"""More than this is unbounded: the queue has some hundred KiB."""
WORDS = (0, 1, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
HOWS = (
    "bit", "bit", "bit", "byte", "word", "word", "zeros", "cut", "grown", "deleted", "emptied",
    "copied", "swapped",
)  # fmt: skip
TYPED = (penstock.PenstockError, penstock.Empty)


def body_of(number: int) -> bytes:
    return b"%04d" % number * 70


BODIES = {body_of(number) for number in range(COUNT)}
MUST = {body_of(number) for number in range(ACKED, COUNT)}
"""What no group has done with."""


@dataclass(frozen=True)
class Kind:
    """A queue to be spoiled: its format, its layout, and how its last process ended."""

    format: str
    layout: str
    ended: str = "closed"

    @property
    def name(self) -> str:
        return "q.bin" if (self.format, self.layout) == ("vqs", "doc") else "q"

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"durability": "process"}
        if self.format == "vqs":
            return options | {"max_bytes": 131072}
        if self.format == "beats" and self.layout in ("2", "3"):
            options["key"] = bytes(range(16))
        return options | {"segment_bytes": 16384}

    def make(self, folder: Path) -> None:
        """In a process of its own: one of the ends is a kill."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pid = os.fork()
        if not pid:
            try:
                self._fill(folder / self.name)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    def _fill(self, path: Path) -> None:
        given = self.options() | {"format": self.format, "layout": self.layout or None}
        queue = penstock.Queue(path, **given)
        default, side = queue.group("default"), queue.group("side", ack="auto")
        for number in range(COUNT):
            queue.put(body_of(number))
        for message in default.get_many(ACKED):
            message.ack()
        side.get_many(GOT)
        if self.ended == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        queue.close()


def files_of(folder: Path) -> list[Path]:
    """Without what has no bytes of its own."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path.relative_to(folder) for path in found if path.name != "lock")


def spoil(folder: Path, rng: random.Random) -> str:
    """Changes one file; what was done."""
    names = files_of(folder)
    name, other, how = rng.choice(names), rng.choice(names), rng.choice(HOWS)
    if {name.suffix, other.suffix} == {".rdx"} and how in ("copied", "swapped"):
        how = "bit"  # The place of another group is a place that a zbus program may have stored.
    return change(folder / name, how, rng, folder / other, str(name))


def change(path: Path, how: str, rng: random.Random, other: Path, name: str) -> str:
    size = path.stat().st_size
    at = place(path, size, rng)
    if how == "deleted":
        path.unlink()
    elif how == "emptied" or not size:
        path.write_bytes(b"")
    elif how == "cut":
        os.truncate(path, at)
    elif how == "grown":
        with path.open("ab") as file:
            file.write(rng.randbytes(rng.choice((1, 7, 64, 4096))))
    elif how == "copied" and other != path:
        shutil.copyfile(other, path)
    elif how == "swapped" and other != path:
        aside = path.with_name(path.name + ".aside")
        path.rename(aside)
        if other.exists():
            other.rename(path)
        aside.rename(other)
    else:
        at, raw = spoiled_bytes(path, how, at, rng)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(raw)
    return f"{name}: {how} at {at} of {size}"


def place(path: Path, size: int, rng: random.Random) -> int:
    """Where it hurts: mostly in the first words, else where the file is not zeros."""
    if not size:
        return 0
    if rng.random() < 0.6:
        return rng.randrange(min(size, 256))
    with path.open("rb") as file:
        used = file.read(1 << 18).rstrip(b"\0")
    return rng.randrange(max(1, min(len(used), size)))


def spoiled_bytes(path: Path, how: str, at: int, rng: random.Random) -> tuple[int, bytes]:
    with path.open("rb") as file:
        file.seek(at)
        before = file.read(1) or b"\0"
    if how == "bit":
        return at, bytes([before[0] ^ 1 << rng.randrange(8)])
    if how == "byte":
        return at, rng.randbytes(1)
    if how in ("zeros", "copied", "swapped"):
        return at, bytes(rng.choice((8, 64, 512)))
    width = rng.choice((4, 8))
    word = rng.choice((*WORDS, rng.getrandbits(64))) & (1 << 8 * width) - 1
    return at - at % width, word.to_bytes(width, rng.choice(("little", "big")))


class Heard(logging.Handler):
    """Whether anything was said."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.levelno >= logging.WARNING


def try_it(path: Path, kind: Kind, say: Callable[[str], None]) -> None:
    """Reads, then opens, takes, puts, closes and reads again; what is wrong is said."""
    heard = Heard()
    logging.getLogger("penstock").addHandler(heard)
    logging.getLogger("penstock").propagate = False
    key = {name: value for name, value in kind.options().items() if name == "key"}
    before: list[bytes] = []
    after: list[bytes] = []
    parts: dict[str, Callable[[], str]] = {
        "reading": lambda: reads(path, key, heard, before),
        "live": lambda: lives(path, kind, heard),
        "again": lambda: read_again(path, key, before, after),
    }
    for part, work in parts.items():
        heard.count = 0
        try:
            wrong = work()
        except TYPED:
            wrong = ""
        except BaseException as error:
            wrong = f"untyped {type(error).__name__}: {str(error)[:160]}"
        if wrong:
            say(f"{part}: {wrong}")


def read_again(
    path: Path, key: dict[str, Any], before: list[bytes], after: list[bytes]
) -> str:  # fmt: skip
    reads(path, key, Heard(), after)  # What it misses was said while it was opened.
    return destroyed(before, after)


def destroyed(before: list[bytes], after: list[bytes]) -> str:
    """What could be read before the queue was opened for writing can be read afterwards."""
    gone = MUST & set(before) - set(after)
    return f"DESTROYED {len(gone)} that could be read" if gone else ""


def judged(found: list[bytes], is_loud: bool) -> str:
    if strange := [body for body in found if body not in BODIES and body != b"new"]:
        return f"WRONG BYTES: {strange[0][:40]!r}"
    missing = MUST - set(found)
    return f"SILENT LOSS of {len(missing)}" if missing and not is_loud else ""


def reads(path: Path, key: dict[str, Any], heard: Heard, found: list[bytes]) -> str:
    with penstock.Queue(path, create=False, read_only=True, **key) as queue:
        scan = queue.scan(tolerant=True)
        found += [message.body for message in scan]
        verdict = queue.verify()
        said = verdict.corrupt or verdict.torn or scan.damage or queue.stats()["dropped"]
        return judged(found, bool(said or heard.count))


def lives(path: Path, kind: Kind, heard: Heard) -> str:
    with penstock.Queue(path, create=False, **kind.options()) as queue:
        group = queue.group("default")
        found = [message.body for message in group.get_many(1000, 0)]
        queue.group("side", ack="auto").get_many(1000, 0)
        queue.put(b"new")
        said = heard.count or queue.stats()["dropped"] or queue.verify().corrupt
        return judged(found, bool(said or group.stats().get("skipped")))


def run_trial(work: Path, kind: Kind, spoiler: Callable[[Path], str]) -> tuple[str, list[str]]:
    """What was done to a fresh copy, and what went wrong."""
    run = work / "run"
    shutil.rmtree(run, ignore_errors=True)
    base = work / f"{kind.format}-{kind.layout}-{kind.ended}"
    if not base.exists():
        kind.make(base)
    subprocess.run(["cp", "-a", "--sparse=always", str(base), str(run)], check=True)
    adopt(run)  # Or it would be a copy, which may lack anything that was not synced.
    done = spoiler(run)
    counting.count("changed files")
    return done, watched(lambda say: try_it(run / kind.name, kind, say))


def watched(work: Callable[[Callable[[str], None]], None]) -> list[str]:
    """Runs it in a child that may hang, die or eat memory; what is wrong with it."""
    here, there = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(here)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work(lambda text: _write(there, text))
        finally:
            os._exit(0)
    os.close(there)
    poll, end = select.poll(), os.pidfd_open(pid)
    poll.register(end, select.POLLIN)
    is_done = bool(poll.poll(PATIENCE_S * 1000))
    os.close(end)
    if not is_done:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    raw = b""
    while data := os.read(here, 65536):
        raw += data
    os.close(here)
    wrong = [json.loads(line) for line in raw.splitlines()]
    if not is_done:
        wrong.append(f"HANGS: {PATIENCE_S:g} s")
    elif os.WIFSIGNALED(status):
        wrong.append(f"SIGNAL {os.WTERMSIG(status)}")
    if usage.ru_maxrss > MEMORY_KIB:
        wrong.append(f"MEMORY: {usage.ru_maxrss >> 10} MiB")
    return wrong


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, (json.dumps(text) + "\n").encode())


def trials(work: Path, kind: Kind, first: int, count: int) -> Iterator[tuple[int, str, list[str]]]:
    """Random changes, each told by its number."""
    for store in ("penstock", "zbus", "beats", "vqs", "mfq"):
        registry.format_class(store)
    for number in range(first, first + count):
        rng = random.Random(f"{kind.format} {kind.layout} {kind.ended} {number}")
        done, wrong = run_trial(work, kind, lambda run, rng=rng: spoil(run, rng))  # type: ignore[misc]
        yield number, done, wrong


def each_file(work: Path, kind: Kind) -> Iterator[tuple[str, list[str]]]:
    """Every file of the queue in turn: gone, emptied, its beginning zeroed, cut, grown."""
    run_trial(work, kind, lambda run: "")  # The base is made.
    base = work / f"{kind.format}-{kind.layout}-{kind.ended}"
    for name in files_of(base):
        for how in ("deleted", "emptied", "beginning", "cut", "grown"):

            def spoiler(run: Path, name: Path = name, how: str = how) -> str:
                path = run / name
                if how == "beginning":
                    with path.open("r+b") as file:
                        file.write(bytes(min(64, path.stat().st_size)))
                    return f"{name}: 64 zeros"
                return change(path, how, random.Random(str(name)), path, str(name))

            yield run_trial(work, kind, spoiler)


def main() -> None:
    format, layout, ended = sys.argv[1:4]
    work, count = MEMORY / f"penstock-fuzz-{os.getpid()}", 0
    kind = Kind(format, layout, ended)
    if sys.argv[4] == "each":
        results: Iterator[Any] = ((0, *row) for row in each_file(work, kind))
    else:
        results = trials(work, kind, int(sys.argv[4]), int((*sys.argv, "1")[5]))
    for number, done, wrong in results:
        count += bool(wrong)
        if wrong:
            print(f"{number} {done}: {'; '.join(wrong)}", flush=True)
    print(f"{format} {layout} {ended}: {count} wrong")
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
