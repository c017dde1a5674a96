"""A block device whose every write and flush is recorded, and what a power cut may leave of it.

`qemu-storage-daemon` logs what a real file system writes (`blklogwrites`), a FUSE export and a loop
device make a disk of it. Until the next flush the device may have kept any of the later writes,
whole or torn.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import random
import select
import shutil
import signal
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.ladder.means import NotRun, run

LIBC = ctypes.CDLL(None, use_errno=True)

MIB = 1 << 20
TAIL = 8 * MIB
"""At the device's end, outside the file system: what the workload says has a place in its order."""
SIZES = {
    "ext4": 64 * MIB, "ext4j": 64 * MIB, "ext4w": 64 * MIB, "xfs": 400 * MIB, "btrfs": 160 * MIB,
}  # fmt: skip
MOUNT = {
    "ext4": "data=ordered", "ext4j": "data=journal", "ext4w": "data=writeback", "xfs": "nouuid",
    "btrfs": "defaults",
}  # fmt: skip
SECTOR = 512
FLUSH, FUA, DISCARD = 1, 2, 4
Write = tuple[int, bytes, int]
"""Where, what, and its flags."""
MODES = ("none", "all", "half", "half", "torn512", "torn4096")


def make_file_system(device: str, kind: str) -> None:
    size = SIZES[kind]
    if kind.startswith("ext4"):
        lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", lazy, device, f"{size // 1024}k")
    elif kind == "xfs":
        run("mkfs.xfs", "-q", "-f", "-K", "-d", f"size={size}", device)
    else:
        run("mkfs.btrfs", "-q", "-f", "-K", "-b", str(size), device)


def mount(device: str, folder: Path, kind: str) -> None:
    name = "ext4" if kind.startswith("ext4") else kind
    run("mount", "-t", name, "-o", MOUNT[kind], device, str(folder))


# Thousands of states are mounted, and a program started for each step would take longer than the
# step: these are the calls that `losetup` and `mount` make.
GET_FREE, CONFIGURE = 0x4C82, 0x4C0A
CLEAR_ITSELF = 4
CONFIGURATION = struct.Struct("<II 52xI 176x 64x")
"""Which file, sectors as usual; the flags; the rest is empty."""
RACES = 100
"""Other processes take loop devices, too."""


def attach(file: Path) -> tuple[int, bytes]:
    """A loop device over `file`, open, and its name; it goes with whoever has it open last."""
    image = os.open(file, os.O_RDWR)
    control = os.open("/dev/loop-control", os.O_RDWR)
    try:
        for _ in range(RACES):
            name = f"/dev/loop{fcntl.ioctl(control, GET_FREE)}"
            loop = os.open(name, os.O_RDWR)
            try:
                fcntl.ioctl(loop, CONFIGURE, CONFIGURATION.pack(image, 0, CLEAR_ITSELF))
                return loop, name.encode()
            except OSError as error:
                os.close(loop)
                if error.errno != errno.EBUSY:
                    raise
    finally:
        os.close(control)
        os.close(image)
    raise NotRun("no free loop device")


def mount_image(file: Path, folder: Path, kind: str) -> bool:
    """Mounts what a disk has; false when the file system says no."""
    loop, device = attach(file)
    name = b"ext4" if kind.startswith("ext4") else kind.encode()
    options = b"" if kind == "btrfs" else MOUNT[kind].encode()
    try:
        return not LIBC.mount(device, os.fsencode(folder), name, 0, options)
    finally:
        os.close(loop)


def unmount(folder: Path) -> None:
    LIBC.umount2(os.fsencode(folder), 0)


class Device:
    """A disk with a log, mounted; `image` is what is on it already."""

    def __init__(self, work: Path, kind: str, image: Path | None = None) -> None:
        self.kind, self.size = kind, SIZES[kind] + TAIL
        self.is_fresh = image is None
        work.mkdir(parents=True, exist_ok=True)
        self.work, self.folder = work, work / "mounted"
        self.folder.mkdir(exist_ok=True)
        self.disk, self.log, self.export = (work / n for n in ("disk.raw", "log.raw", "export"))
        if image is None:
            self.disk.write_bytes(b"")
            os.truncate(self.disk, self.size)
        else:
            shutil.copyfile(image, self.disk)
        for path in (self.log, self.export):
            path.write_bytes(b"")
        self.loop = ""

    def __enter__(self) -> Device:
        with (self.work / "daemon.err").open("w") as errors:
            self.daemon = subprocess.Popen(
                [
                    "qemu-storage-daemon",
                    "--blockdev", f"driver=file,filename={self.disk},node-name=data",
                    "--blockdev", f"driver=file,filename={self.log},node-name=logf",
                    "--blockdev",
                    "driver=blklogwrites,file=data,log=logf,log-sector-size=512,node-name=logged",
                    "--export",
                    f"type=fuse,id=e,node-name=logged,mountpoint={self.export},writable=on",
                ],
                stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
        try:
            wait_for_export(self.daemon, self.export, self.size)
            self.loop = run("losetup", "-f", "--show", str(self.export)).stdout.strip()
            if self.is_fresh:
                make_file_system(self.loop, self.kind)
            mount(self.loop, self.folder, self.kind)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        run("umount", str(self.folder), check=False)
        if self.loop:
            run("losetup", "-d", self.loop, check=False)
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(20)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()

    @property
    def tail(self) -> int:
        return self.size - TAIL


def wait_for_export(daemon: subprocess.Popen[bytes], export: Path, size: int) -> None:
    for _ in range(500):
        if export.stat().st_size == size:
            return
        if daemon.poll() is not None:
            raise NotRun(f"qemu-storage-daemon ended with {daemon.returncode}")
        select.select([], [], [], 0.01)
    raise NotRun("qemu-storage-daemon exports nothing within 5 s")


def read_log(path: Path) -> list[Write]:
    """Every write and flush in order; a discard is a write of zeros."""
    entries: list[Write] = []
    with path.open("rb") as file:
        _, _, count, sector = struct.unpack("<QQQI", file.read(28))
        at, end = sector, os.fstat(file.fileno()).st_size
        while at + 32 <= end and len(entries) < count:
            file.seek(at)
            first, sectors, flags, _ = struct.unpack("<QQQQ", file.read(32))
            at += sector
            data = b""
            if flags & DISCARD:
                data = bytes(sectors * sector)
            elif sectors:
                file.seek(at)
                data = file.read(sectors * sector)
                at += len(data)
            entries.append((first * sector, data, flags))
    return entries


class Image:
    """What surely is on the device: everything up to the last flush."""

    CHUNK = 65536
    ZEROS = bytes(CHUNK)

    def __init__(self, size: int, base: Path | None = None) -> None:
        # Whoever is forked goes on from here by itself.
        alone = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.size, self.memory, self.touched = size, mmap.mmap(-1, size, alone), set[int]()
        self.applied = 0
        if base is not None:
            self._load(base)

    def _load(self, base: Path) -> None:
        with base.open("rb") as file:
            at = 0
            while True:
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                except OSError:
                    return
                hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
                file.seek(at)
                self.put(at, file.read(hole - at))
                at = hole

    def put(self, at: int, data: bytes) -> None:
        if data:
            self.memory[at : at + len(data)] = data
            last = (at + len(data) - 1) // self.CHUNK
            self.touched.update(range(at // self.CHUNK, last + 1))

    def forward(self, entries: Sequence[Write], cut: int) -> list[Write]:
        """Goes on to the last flush up to `cut`; the writes after it, which may be lost."""
        flushes = (n for n in range(cut, self.applied - 1, -1) if entries[n][2] & FLUSH)
        if (last := next(flushes, None)) is not None:
            for at, data, _ in entries[self.applied : last + 1]:
                self.put(at, data)
            self.applied = last + 1
        return [entry for entry in entries[self.applied : cut + 1] if entry[1]]

    def write(self, path: Path, later: Sequence[tuple[int, bytes]]) -> None:
        with path.open("wb") as file:
            file.truncate(self.size)
            for chunk in sorted(self.touched):
                at = chunk * self.CHUNK
                if (chunk_bytes := self.memory[at : at + self.CHUNK]) != self.ZEROS:
                    os.pwrite(file.fileno(), chunk_bytes, at)
            for at, data in later:
                os.pwrite(file.fileno(), data, at)


def survivors(later: Sequence[Write], mode: str, rng: random.Random) -> list[tuple[int, bytes]]:
    """Which of the writes since the flush the device kept; those with FUA it always keeps."""
    kept: list[tuple[int, bytes]] = []
    for at, data, flags in later:
        if mode == "all" or flags & FUA:
            kept.append((at, data))
        elif mode == "half":
            kept += [(at, data)] if rng.random() < 0.5 else []
        elif mode.startswith("torn"):
            step = int(mode.removeprefix("torn"))
            places = range(0, len(data), step)
            kept += [(at + o, data[o : o + step]) for o in places if rng.random() < 0.5]
    return kept
