"""A real ext4 on a device whose writes fail for a while.

The first sync that meets the fault fails, the next one would succeed while the medium still has the
old bytes: the kernel takes the pages for clean. So a put whose sync failed must raise, everything
later must too, and after reopening the medium itself (unmounted, caches dropped, mounted again)
holds every message whose put returned.

`python -m tests.ladder.failing_disk zbus crc sync` prints one line of JSON; exit code 0: kept,
1: broken, 77: the machine lacks something.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
import penstock.engine.queue
from tests.ladder import means
from tests.ladder.blocks import wait_for_export
from tests.ladder.means import MEMORY, NotRun, run

SIZE = 24 << 20
EIO = 5
TRIES = 3
WHERE = ("put", "sync", "roll", "atomic", "close")
"""What is called while the device fails."""


class Disk:
    """A file system whose device obeys: `fail(sectors)`, `heal()`, `remount()`."""

    def __init__(self, work: Path) -> None:
        self.work, self.folder, self.loop, self.faults = work, work / "mounted", "", 0

    def __enter__(self) -> Disk:
        work = self.work
        self.folder.mkdir(parents=True)
        disk, export, monitor = work / "disk.raw", work / "export", work / "monitor"
        export.write_bytes(b"")
        disk.write_bytes(b"")
        os.truncate(disk, SIZE)
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", str(disk))
        self.daemon = subprocess.Popen(
            [
                "qemu-storage-daemon",
                "--blockdev", f"driver=file,filename={disk},node-name=data",
                "--blockdev", "driver=raw,file=data,node-name=top",
                "--chardev", f"socket,id=c,path={monitor},server=on,wait=off",
                "--monitor", "chardev=c",
                "--export", f"type=fuse,id=e,node-name=top,mountpoint={export},writable=on",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for_export(self.daemon, export, SIZE)
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(str(monitor))
            self.talk = self.socket.makefile("rw")
            self.talk.readline()
            self.tell("qmp_capabilities")
            self.loop = run("losetup", "-f", "--show", str(export)).stdout.strip()
            run("mount", "-o", "errors=continue", self.loop, str(self.folder))
            self.free = self._free_sectors()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        run("umount", "-l", str(self.folder), check=False)
        if self.loop:
            run("losetup", "-d", self.loop, check=False)
        self.daemon.terminate()
        self.daemon.wait(20)

    def _free_sectors(self) -> set[int]:
        """Where files will grow into: a file as large as the disk had them for a moment."""
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    os.posix_fallocate(file.fileno(), file.tell(), 1 << 20)
                    file.seek(1 << 20, os.SEEK_CUR)
            except OSError:
                pass
        sectors = set(sectors_of(filler))
        filler.unlink()
        run("sync", "-f", str(self.folder))
        return sectors

    def tell(self, command: str, **arguments: Any) -> None:
        self.talk.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.talk.flush()
        while True:
            answer = json.loads(self.talk.readline())
            if "error" in answer:
                raise NotRun(f"qemu-storage-daemon: {answer['error']}")
            if "return" in answer:
                return

    def fail(self, sectors: list[int]) -> None:
        """From now on writes to these sectors are errors."""
        self.faults += 1
        name = f"faulty{self.faults}"
        rules = [{"event": "none", "iotype": "write", "errno": EIO, "sector": s} for s in sectors]
        self.tell("blockdev-add", **{
            "driver": "blkdebug", "node-name": name, "image": "data", "inject-error": rules,
        })  # fmt: skip
        self._top(name)

    def heal(self) -> None:
        self._top("data")

    def _top(self, node: str) -> None:
        self.tell("blockdev-reopen", options=[{"driver": "raw", "node-name": "top", "file": node}])

    def remount(self) -> None:
        """What the medium has, not what the kernel remembers."""
        if run("umount", str(self.folder), check=False).returncode:
            run("umount", "-l", str(self.folder), check=False)
        Path("/proc/sys/vm/drop_caches").write_text("3")
        run("mount", self.loop, str(self.folder))


def sectors_of(path: Path) -> list[int]:
    """Of 512 bytes; every eighth is enough to fail a page."""
    found: list[int] = []
    for line in run("filefrag", "-v", "-b512", str(path)).stdout.splitlines():
        words = line.replace(":", " ").replace("..", " ").split()
        if len(words) > 5 and words[0].isdigit():
            found += range(int(words[3]), int(words[3]) + int(words[5]), 8)
    return found


def body_of(number: int) -> bytes:
    return b"%05d" % number * 150


def in_a_child(work: Callable[[Callable[..., None]], None]) -> tuple[int, int]:
    here, there = os.pipe()
    pid = os.fork()
    if pid:
        os.close(there)
        return pid, here

    def say(**known: Any) -> None:
        os.write(there, (json.dumps(known) + "\n").encode())

    try:
        os.close(here)
        work(say)
    except BaseException as error:
        traceback.print_exc()
        say(died=f"{type(error).__name__}: {error}"[:300])
    finally:
        os._exit(0)


def heard(pid: int, pipe: int) -> list[dict[str, Any]]:
    raw = b""
    while data := os.read(pipe, 65536):
        raw += data
    os.close(pipe)
    os.waitpid(pid, 0)
    return [json.loads(line) for line in raw.splitlines()]


class Trial:
    """One format, one call that meets the fault."""

    def __init__(self, disk: Disk, format: str, layout: str, where: str, warm: int) -> None:
        self.disk, self.where, self.warm = disk, where, warm
        self.path = disk.folder / ("q.bin" if format == "vqs" else "q")
        level = "always" if where in ("put", "roll") else "process"
        self.options: dict[str, Any] = {"durability": level}
        self.options |= {"max_bytes": 1 << 20} if format == "vqs" else {"segment_bytes": 1 << 18}
        self.made: dict[str, Any] = {"format": format, "layout": layout or None}
        self.failed: set[int] = set()
        self.go, self.told = os.pipe()
        self.ready, self.is_ready = os.pipe()

    def work(self, say: Callable[..., None]) -> None:
        """Puts, meets the fault, is healed, goes on, reopens."""
        queue, number = penstock.Queue(self.path, **self.made, **self.options), 0
        for _ in range(self.warm):
            queue.put(body_of(number))
            number += 1
        queue.sync()
        say(sure=number)
        if self.where not in ("put", "roll"):
            for _ in range(20):  # Returned for, and not synced yet.
                queue.put(body_of(number))
                number += 1
        self._wait()
        has_failed = False
        for _ in range({"roll": 400, "close": 1}.get(self.where, 4)):
            try:
                number = self._call(queue, number, say)
            except penstock.PenstockError as error:
                self.failed.add(number)
                number += self.where in ("put", "roll", "atomic")
                has_failed = True
                say(failed=type(error).__name__)
                if self.where == "roll":
                    break
            except OSError as error:
                has_failed = True
                say(wrong=f"untyped {type(error).__name__}: {error}")
                break
        self._wait()
        try:
            if self.where != "close":
                queue.put(body_of(99_999))
                queue.sync()
                if has_failed:
                    say(wrong="after a failed sync a put and a sync succeed: nothing was poisoned")
        except penstock.PenstockError:
            pass
        with contextlib.suppress(penstock.PenstockError):
            queue.close()
        with penstock.Queue(self.path, create=False, **self.options) as again:
            for _ in range(3):
                number += 1
                again.put(body_of(number))
                say(kept=number)

    def _call(self, queue: penstock.Queue, number: int, say: Callable[..., None]) -> int:
        if self.where in ("put", "roll"):
            queue.put(body_of(number))
            say(kept=number)
            return number + 1
        if self.where == "sync":
            queue.sync()
        elif self.where == "close":
            queue.close()
        else:
            import pyarrow as pa

            table = pa.table({"body": pa.array([body_of(number)], pa.binary())})
            note = self.path.parent / "note"
            queue.store.need_writer().append_atomic(table, note=note, text="{}")
            number += 1
        for n in range(self.warm, number):
            if n not in self.failed:
                say(kept=n)
        return number

    def _wait(self) -> None:
        os.write(self.is_ready, b"x")
        os.read(self.go, 1)

    def data_files(self) -> list[Path]:
        if self.path.is_file():
            return [self.path]
        found = [path for path in self.path.rglob("*") if path.is_file()]
        return [path for path in found if ".penstock" not in path.parts]

    def look(self, kept: set[int], say: Callable[..., None]) -> None:
        with penstock.Queue(self.path, create=False, **self.options) as queue:
            found = [message.body for message in queue.scan(tolerant=True)]
            numbers = [int(body[:5]) for body in found]
            if any(body != body_of(n) for body, n in zip(found, numbers, strict=True)):
                say(wrong="a wrong body on the medium")
            if lost := kept - set(numbers):
                say(wrong=f"{len(lost)} messages are not on the medium: {sorted(lost)[:5]}")
            if corrupt := queue.verify().corrupt:
                say(wrong=f"corrupt: {corrupt[0]}")

    def run(self) -> dict[str, Any]:
        pid, pipe = in_a_child(self.work)
        os.read(self.ready, 1)
        sectors = {s for path in self.data_files() for s in sectors_of(path)}
        self.disk.fail(sorted(sectors | self.disk.free))
        os.write(self.told, b"1")
        os.read(self.ready, 1)
        self.disk.heal()
        os.write(self.told, b"1")
        said = heard(pid, pipe)
        sure = next((word["sure"] for word in said if "sure" in word), 0)
        kept = {*range(sure), *(word["kept"] for word in said if "kept" in word)}
        self.disk.remount()
        said += heard(*in_a_child(lambda say: self.look(kept, say)))
        wrong = [word["wrong"] for word in said if "wrong" in word]
        wrong += [f"the program died: {word['died']}" for word in said if "died" in word]
        return {
            "format": self.made["format"], "where": self.where, "kept": len(kept),
            "failed": sum("failed" in word for word in said), "wrong": wrong,
        }  # fmt: skip


def run_trial(format: str, layout: str, where: str, warm: int = 10) -> dict[str, Any]:
    means.need_blocks("ext4")
    means.need_programs("filefrag")
    work = MEMORY / f"penstock-failing-{os.getpid()}"
    try:
        with Disk(work) as disk:
            return Trial(disk, format, layout, where, warm).run()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def in_own_process(format: str, layout: str, where: str) -> dict[str, Any]:
    """Again where the fault met ext4's own blocks: it then lets nobody write any more."""
    for _ in range(TRIES):
        found = _in_own_process(format, layout, where)
        if not any("Read-only file system" in text for text in found["wrong"]):
            return found
    raise NotRun("the fault met the file system's own blocks every time")


def _in_own_process(format: str, layout: str, where: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.ladder.failing_disk", format, layout, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode == 77:
        raise NotRun(done.stdout.strip())
    assert done.returncode in (0, 1), done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    given = [*sys.argv[1:], *("penstock", "", "put")[len(sys.argv) - 1 :]]
    try:
        found = run_trial(given[0], given[1], given[2])
    except NotRun as missing:
        print(missing)
        return 77
    print(json.dumps(found))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
