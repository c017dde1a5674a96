"""The power cut on a real file system: `python -m tests.ladder.powercut --format zbus --fs xfs`.

A workload of several processes runs on a disk whose every write is recorded; what it was promised
is written, past the page cache, to the end of the same disk, so that promises have a place in the
order of the writes. A state is everything up to a flush, and of what came later nothing, all, half
or torn pieces. It is mounted, opened under another boot id, drained, and held against the promises.

Prints one line of JSON; exit code 0: no state failed, 1: some did, 77: the machine lacks something.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import mmap
import os
import pkgutil
import random
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.ladder import means
from tests.ladder.blocks import (
    FLUSH,
    MIB,
    MODES,
    SECTOR,
    SIZES,
    Device,
    Image,
    Write,
    mount_image,
    read_log,
    survivors,
    unmount,
)
from tests.ladder.cut_products import (
    ACKED,
    ACKING,
    END,
    PRODUCTS,
    PUT,
    READY,
    TRYING,
    Anchor,
    Case,
    Drained,
    Name,
    Penstock,
)
from tests.ladder.means import MEMORY, NotRun, run

WORD = struct.Struct("<4sBBHIqd")
MARK = b"EVNT"
BOOT = "/proc/sys/kernel/random/boot_id"
NEW_NAMESPACE_MOUNT = 0x00020000
SETTER, FIRST_CONSUMER, LAST = 7, 4, 6
"""Senders of words that are no producers."""
SLACK = 5
"""A get of a group that acks with it may be done and not said yet: this many messages at most."""
INTERVAL_S = 0.35
"""At level `interval` what is older must be there: three times the usual interval."""
PATIENCE_S = 120
KEPT, KEPT_MAX = "kept in ", 3
"""So many failing states of a share are kept, each a few megabytes."""
WORKERS = int(os.environ.get("PENSTOCK_CUT_WORKERS", 2 * (os.cpu_count() or 1)))
"""How many states are looked at at a time."""


class Speaker:
    """Writes words to the disk's tail, each a sector of its own, past the page cache."""

    def __init__(self, device: Device, sender: int) -> None:
        self.descriptor = os.open(device.loop, os.O_WRONLY | os.O_DIRECT)
        self.at, self.sender = device.tail + sender * MIB, sender
        self.room = mmap.mmap(-1, 4096)

    def say(self, kind: int, first: int, second: int) -> None:
        word = WORD.pack(MARK, self.sender, kind, 0, first, second, time.time())
        self.room[: WORD.size] = word
        os.pwritev(self.descriptor, [memoryview(self.room)[:SECTOR]], self.at)
        self.at += SECTOR


@dataclass(frozen=True)
class Word:
    """One word, and after which write of the log it stands."""

    index: int
    sender: int
    kind: int
    first: int
    second: int
    time: float


def words_of(entries: Sequence[Write], tail: int) -> list[Word]:
    found = []
    for index, (at, data, _) in enumerate(entries):
        if at < tail or data[:4] != MARK:
            continue
        for place in range(0, len(data), SECTOR):
            if data[place : place + 4] == MARK:
                _, sender, kind, _, first, second, when = WORD.unpack_from(data, place)
                found.append(Word(index, sender, kind, first, second, when))
    return found


@dataclass
class Promises:
    """What holds at a point of the log."""

    put: dict[int, int] = field(default_factory=dict)
    """Of each sender the last number whose put had returned."""
    tried: dict[int, int] = field(default_factory=dict)
    batches: set[tuple[int, int, int]] = field(default_factory=set)
    """Sender, first and last number of a list that was put at once."""
    acked: dict[str, set[Name]] = field(default_factory=dict)
    maybe_acked: dict[str, set[Name]] = field(default_factory=dict)

    def must(self) -> set[Name]:
        return {(sender, n) for sender, last in self.put.items() for n in range(last + 1)}

    def and_then(self, later: Promises) -> Promises:
        """These, and those of a second life."""
        groups = {*self.acked, *later.acked}
        both = [
            {g: mine.get(g, set()) | theirs.get(g, set()) for g in groups}
            for mine, theirs in (
                (self.acked, later.acked), (self.maybe_acked, later.maybe_acked),
            )
        ]  # fmt: skip
        return Promises(
            self.put | later.put, self.tried | later.tried, self.batches | later.batches, *both
        )


def promises_at(words: Sequence[Word], cut: int, groups: list[str], level: str) -> Promises:
    now = max((word.time for word in words if word.index <= cut), default=0.0)
    found = Promises(acked={g: set() for g in groups}, maybe_acked={g: set() for g in groups})
    for word in words:
        if word.index > cut:
            break
        is_owed = level in ("always", "FULL", "NORMAL", "default") or (
            level == "interval" and word.time < now - INTERVAL_S
        )
        if word.kind == TRYING:
            found.tried[word.sender] = word.first
            if word.second > 1:
                found.batches.add((word.sender, word.first - word.second + 1, word.first))
        elif word.kind == PUT and is_owed:
            found.put[word.sender] = word.first
        elif word.kind in (ACKING, ACKED):
            group, name = groups[word.sender - FIRST_CONSUMER], (word.second, word.first)
            found.maybe_acked[group].add(name)
            if word.kind == ACKED and is_owed:
                found.acked[group].add(name)
    return found


def examine(product: Penstock | Anchor, folder: Path, promised: Promises) -> list[str]:
    """What is wrong with one state."""
    case, groups = product.case, product.groups
    there, owed = product.drain(folder)
    wrong = ["wrong body"] if None in there else []
    scanned = [name for name in there if name is not None]
    has = set(scanned)
    if len(has) != len(scanned):
        wrong.append(f"there twice: {len(scanned) - len(has)}")
    must = promised.must()

    def may_be_gone(name: Name) -> bool:
        """With the last group's ack; who acks with the get may not have said so."""
        done = [name in promised.maybe_acked[g] for g, ack in groups.items() if ack == "lease"]
        return case.deletes and all(done)

    lost = {name for name in must - has if not may_be_gone(name)}
    if lost:
        wrong.append(f"LOST: {len(lost)} whose put had returned, {sorted(lost)[:3]}")
    if invented := {name for name in has if name[1] > promised.tried.get(name[0], -1)}:
        wrong.append(f"invented: {sorted(invented)[:3]}")
    wrong += wrong_orders(scanned, may_be_gone)
    if not case.deletes:
        for sender, first, last in promised.batches:
            count = sum((sender, number) in has for number in range(first, last + 1))
            if 0 < count < last - first + 1 and (sender, last) not in must:
                wrong.append(f"half a batch: {count} of {last - first + 1}")
    for group, ack in groups.items():
        wrong += wrong_delivery(group, ack, owed[group], has & must, promised)
    return wrong


def wrong_orders(scanned: list[Name], may_be_gone: Callable[[Name], bool]) -> list[str]:
    wrong = []
    for sender in {name[0] for name in scanned}:
        order = [number for who, number in scanned if who == sender]
        missing = {*range(order[0], order[-1] + 1)} - {*order}
        if order != sorted(order):
            wrong.append(f"out of order: sender {sender}")
        # What every group is done with is deleted, also while it is scanned.
        elif not all(may_be_gone((sender, number)) for number in missing):
            wrong.append(f"a hole: sender {sender}, {len(order)} of {order[-1] - order[0] + 1}")
    return wrong


def wrong_delivery(
    group: str, ack: str, delivered: list[Name | None], must: set[Name], promised: Promises
) -> list[str]:
    got, wrong = set(delivered), []
    if len(got) != len(delivered):
        wrong.append(f"{group}: handed out twice")
    if again := got & promised.acked[group]:
        wrong.append(f"{group} ({ack}): ACKED CAME BACK: {len(again)}, {sorted(map(str, again))}")
    # An ack that is younger than the level promises may have come to the disk all the same.
    known = promised.maybe_acked[group]
    never = {name for name in must if name not in got and name not in known}
    if len(never) > (0 if ack == "lease" else SLACK):
        wrong.append(f"{group} ({ack}): never acked, never delivered: {sorted(never)[:3]}")
    return wrong


# ── processes ────────────────────────────────────────────────────────────────────────────────


class Boot:
    """A private mount namespace in which the boot id is a file of ours."""

    def __init__(self, work: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(NEW_NAMESPACE_MOUNT):
            raise NotRun(f"unshare of mounts: {os.strerror(ctypes.get_errno())}")
        run("mount", "--make-rprivate", "/")
        self.file = work / "boot_id"
        self.next()
        run("mount", "--bind", str(self.file), BOOT)

    def next(self) -> None:
        """The machine starts anew."""
        with self.file.open("r+" if self.file.exists() else "w") as file:
            file.write(f"{uuid.uuid4()}\n")


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if (clock := sys.modules.get("penstock.clock")) is not None:
            clock.SYSTEM = clock.Clock()  # type: ignore[attr-defined]  # It knows the old boot id.
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, seconds: float) -> int | None:
    """How it ended; None: it was killed after so long."""
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    is_done = bool(poll.poll(max(0.0, seconds) * 1000))
    os.close(descriptor)
    if not is_done:
        os.kill(pid, 9)
    status = os.waitpid(pid, 0)[1]
    return status if is_done else None


def record(product: Penstock | Anchor, device: Device, first_sender: int = 0) -> int:
    """Runs the workload; how many of its processes failed."""
    case, folder = product.case, device.folder
    is_first = first_sender == 0
    if is_first:
        if wait(fork(lambda: product.prepare(folder)), PATIENCE_S):
            raise NotRun("the workload can't be prepared")
        Speaker(device, SETTER).say(READY, 1, 0)
    works: list[Callable[[], None]] = [
        lambda s=first_sender + n: product.produce(folder, Speaker(device, s).say, s)  # type: ignore[misc]
        for n in range(case.producers)
    ]
    if is_first:
        works += [
            lambda s=FIRST_CONSUMER + n, g=group: product.consume(  # type: ignore[misc]
                folder, Speaker(device, s).say, g
            )
            for n, group in enumerate(product.groups)
        ]
    until = time.monotonic() + case.seconds + 60
    pids = [fork(work) for work in works]
    failed = sum(wait(pid, until - time.monotonic()) != 0 for pid in pids)
    Speaker(device, LAST).say(END, 0, 0)
    return failed


@dataclass(frozen=True)
class Life:
    """A log whose cuts are looked at, and what was promised before it began."""

    number: int
    entries: Sequence[Write]
    words: Sequence[Word]
    where: tuple[int, int]
    """From where to where the log is the workload's."""
    image: Image
    before: Promises = field(default_factory=Promises)

    def chosen(self, rng: random.Random, count: int) -> list[int]:
        """Two thirds of the cuts right at a flush or a promise, the others anywhere."""
        start, stop = self.where
        telling = [n for n in range(start, stop) if self.entries[n][2] & FLUSH]
        telling += [
            w.index for w in self.words if w.kind in (PUT, ACKED) and start <= w.index < stop
        ]
        rng.shuffle(telling)
        cuts = set(telling[: count * 2 // 3])
        while len(cuts) < min(count, stop - start):
            cuts.add(rng.randrange(start, stop))
        return sorted(cuts)


Failure = tuple[int, str, list[str]]
"""Where the log was cut, what was left of the later writes, and what is wrong."""


class Cutter:
    """Makes states, opens each, and counts what fails."""

    def __init__(self, product: Penstock | Anchor, work: Path, boot: Boot) -> None:
        self.product, self.case, self.work, self.boot = product, product.case, work, boot
        self.rng = random.Random(self.case.seed)
        self.groups = list(product.groups)
        self.tried = self.unmountable = self.doubles = 0
        self.failures: list[Failure] = []

    def look_at(self, life: Life, count: int) -> None:
        """Several at a time: most of what a state takes is waiting for the kernel."""
        cuts = life.chosen(self.rng, count)
        answers = [self.work / f"answer-{n}.json" for n in range(WORKERS)]
        pids = []
        for n, answer in enumerate(answers):
            answer.write_text("null")
            pids.append(fork(lambda n=n, answer=answer: self._share(  # type: ignore[misc]
                life, cuts[n::WORKERS], self.work / f"worker-{n}", answer
            )))  # fmt: skip
        ended = [wait(pid, PATIENCE_S * (1 + len(cuts))) for pid in pids]
        assert not any(ended), f"those that look at states ended with {ended}"
        for answer in answers:
            for cut, mode, wrong in json.loads(answer.read_text()):
                self.tried += wrong is not None
                # The file system's own superblock was torn: it says nothing about us.
                self.unmountable += wrong is None
                if wrong:
                    self.failures.append((cut, mode, wrong))

    def _share(self, life: Life, cuts: list[int], work: Path, answer: Path) -> None:
        shutil.rmtree(work, ignore_errors=True)
        (work / "opened").mkdir(parents=True)
        if self.case.boot == "new":
            self.boot = Boot(work)
        found, room = [], KEPT_MAX
        for cut in cuts:
            rng = random.Random(f"{self.case.seed} {life.number} {cut}")
            later, mode = life.image.forward(life.entries, cut), rng.choice(MODES)
            kept = survivors(later, mode, rng)
            promised = promises_at(life.words, cut, self.groups, self.case.durability)
            wrong = self._one(life.image, kept, work, life.before.and_then(promised))
            if wrong and self.case.product == "penstock" and (room := room - 1) >= 0:
                wrong.append(f"{KEPT}{self._keep(life, kept, (cut, mode, wrong))}")
            found.append((cut, mode, wrong))
        answer.write_text(json.dumps(found))

    def start(self) -> None:
        """The machine starts, unless it stayed up."""
        if self.case.boot == "new":
            self.boot.next()

    def _one(
        self, image: Image, kept: Sequence[tuple[int, bytes]], work: Path, promised: Promises
    ) -> list[str] | None:
        """What is wrong with a state; none when it can't be mounted."""
        self.start()
        state, folder, answer = work / "state.img", work / "opened", work / "answer.json"
        image.write(state, kept)
        answer.write_text('["the process that opened it died"]')

        def look() -> None:
            if not mount_image(state, folder, self.case.file_system):
                answer.write_text("null")
                return
            try:
                wrong = examine(self.product, folder, promised)
            except Drained as error:
                wrong = [str(error)]
            except BaseException as error:
                wrong = [f"CANNOT OPEN OR DRAIN: {type(error).__name__}: {error}"]
            answer.write_text(json.dumps(wrong))

        if wait(fork(look), PATIENCE_S) is None:
            answer.write_text(f'["HANGS: {PATIENCE_S} s"]')
        unmount(folder)
        found: list[str] | None = json.loads(answer.read_text())
        return found

    def _keep(self, life: Life, kept: Sequence[tuple[int, bytes]], failure: Failure) -> Path:
        """The disk as it was before anyone opened it, for whoever looks for the cause."""
        folder = Path(tempfile.mkdtemp(prefix="penstock-power-cut-"))
        life.image.write(folder / "state.img", kept)
        for name in ("first.img", "second/log.raw"):
            if life.number and (self.work / name).exists():
                run("cp", "--sparse=always", str(self.work / name), str(folder))
        (folder / "failure.json").write_text(json.dumps([asdict(self.case), failure]))
        return folder

    def again(self, turn: int, life: Life) -> None:
        """Cut, recovered, written to, and cut again."""
        cut, image = self.rng.randrange(*life.where), Image(life.image.size)
        later = image.forward(life.entries, cut)
        first = self.work / "first.img"
        image.write(first, survivors(later, self.rng.choice(MODES), self.rng))
        before = promises_at(life.words, cut, self.groups, self.case.durability)
        self.start()
        small = replace(self.case, messages=12, seed=self.case.seed + 1000 + turn)
        product = type(self.product)(small)
        with Device(self.work / "second", self.case.file_system, image=first) as device:
            failed = record(product, device, first_sender=2)
        if failed:
            self.failures.append((cut, "second life", [f"{failed} processes failed in it"]))
        entries = read_log(device.log)
        words = words_of(entries, device.tail)
        where = (0, span(entries, words)[1])
        second = Life(turn + 1, entries, words, where, Image(device.size, base=first), before)
        self.look_at(second, 12)
        self.doubles += 1
        shutil.rmtree(self.work / "second")


def span(entries: Sequence[Write], words: Sequence[Word]) -> tuple[int, int]:
    """From where to where a log is the workload's."""
    ready = [w.index for w in words if w.kind == READY and w.sender == SETTER]
    trying = [w.index for w in words if w.kind == TRYING]
    stop = max((w.index for w in words if w.kind == END), default=len(entries))
    return (ready or trying or [0])[0], stop


def kind_of(wrong: str) -> str:
    return re.sub(r"\d+", "N", wrong.split(":")[0])[:60]


def import_all() -> None:
    """Before the forks, once for all of them: it is most of what a state would take."""
    for package in ("disk", "engine", "formats", "sidecar"):
        name = f"penstock.{package}"
        for found in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(found.name)


def run_case(case: Case) -> dict[str, Any]:
    """One workload, recorded once, and its states. In a process of its own: it moves mounts."""
    product = PRODUCTS[case.product](case)
    product.need()
    if case.product == "penstock":
        import_all()
    means.need_blocks(case.file_system)
    work = MEMORY / f"penstock-cut-{os.getpid()}"
    work.mkdir()
    try:
        cutter = Cutter(product, work, Boot(work))
        began = time.monotonic()
        with Device(work / "first", case.file_system) as device:
            failed = record(product, device)
        entries = read_log(device.log)
        words = words_of(entries, device.tail)
        life = Life(0, entries, words, span(entries, words), Image(device.size))
        recorded = time.monotonic()
        cutter.look_at(life, case.states)
        for turn in range(case.double):
            cutter.again(turn, life)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    kinds: dict[str, int] = {}
    for _, _, wrong in cutter.failures:
        for kind in {kind_of(text) for text in wrong if not text.startswith(KEPT)}:
            kinds[kind] = kinds.get(kind, 0) + 1
    return asdict(case) | {
        "title": case.title, "states": cutter.tried, "failing": len(cutter.failures),
        "unmountable": cutter.unmountable, "doubles": cutter.doubles, "workload_failures": failed,
        "kinds": kinds, "examples": [str(failure)[:400] for failure in cutter.failures[:3]],
        "writes": life.where[1] - life.where[0],
        "puts": sum(w.second for w in words if w.kind == PUT),
        "acks": sum(w.kind == ACKED for w in words),
        "record_s": round(recorded - began, 1), "check_s": round(time.monotonic() - recorded, 1),
    }  # fmt: skip


def in_own_process(case: Case, timeout_s: float = 1200) -> dict[str, Any]:
    """`run_case` where it can't disturb anyone's mounts; `NotRun` is raised here."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(case).items()]
    command = [sys.executable, "-m", "tests.ladder.powercut", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode == 77:
        raise NotRun(done.stdout.strip())
    if done.returncode not in (0, 1) or not done.stdout:
        raise AssertionError(f"{case.title}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ladder.powercut", description=__doc__)
    for name, value in asdict(Case()).items():
        names = [f"--{name.replace('_', '-')}", *(["--fs"] if name == "file_system" else [])]
        parser.add_argument(*names, default=value, type=type(value), dest=name)
    case = Case(**vars(parser.parse_args()))
    if case.file_system not in SIZES:
        parser.error(f"no file system {case.file_system}; there are {', '.join(SIZES)}")
    try:
        found = run_case(case)
    except NotRun as missing:
        print(missing)
        return 77
    print(json.dumps(found))
    return 1 if found["failing"] or found["workload_failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
