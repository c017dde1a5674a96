"""What a rung needs from the machine. What is missing is said; a rung without its means is not run,
and never counts as passed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
ROOT = Path(__file__).parent.parent.parent
PEERS = "PENSTOCK_PEERS"
"""A folder with the anchors' packages, if they are not installed beside penstock."""
ANCHORS = ROOT / "build" / "anchors"
PINS = ROOT / "benches" / "against" / "peers.txt"
PACKAGES = {
    "persistqueue": "persist-queue", "litequeue": "litequeue", "diskcache": "diskcache",
    "queuelib": "queuelib",
}  # fmt: skip


class NotRun(Exception):
    """The machine lacks something; the text says what."""


def peers_folder() -> str:
    return os.environ.get(PEERS, str(ANCHORS))


def add_peers() -> None:
    if peers_folder() not in sys.path:
        sys.path.append(peers_folder())


def peers_path() -> str:
    """Where a child finds them, too."""
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), peers_folder())))


def install_anchors() -> None:
    """The other products, in a folder of their own. What can't be had is not run, and said."""
    add_peers()
    wanted = [package for module, package in PACKAGES.items() if not find_spec(module)]
    if wanted:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        run(*install, "--target", peers_folder(), "-c", str(PINS), *wanted, check=False)
        invalidate_caches()


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=check, capture_output=True, text=True)


def need_root() -> None:
    if os.geteuid():
        raise NotRun("needs root")


def need_programs(*names: str) -> None:
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise NotRun(f"no {', '.join(missing)} (Debian: {packages(missing)})")


def packages(names: list[str]) -> str:
    known = {
        "qemu-storage-daemon": "qemu-system-common", "mkfs.xfs": "xfsprogs",
        "mkfs.btrfs": "btrfs-progs", "mkfs.ext4": "e2fsprogs", "filefrag": "e2fsprogs",
        "losetup": "mount", "unshare": "util-linux", "setarch": "util-linux",
    }  # fmt: skip
    return " ".join(sorted({known.get(name, name) for name in names}))


def need_module(name: str) -> None:
    add_peers()
    if find_spec(name) is None:
        raise NotRun(f"no Python package {name} (install it, or name a folder in {PEERS})")


@cache
def _loop_fault() -> str:
    """Whether a loop device can be had here, tried with a small file."""
    if not Path("/dev/fuse").exists():
        return "no /dev/fuse"
    trial = MEMORY / f"penstock-loop-{os.getpid()}"
    trial.write_bytes(bytes(1 << 20))
    try:
        made = run("losetup", "-f", "--show", str(trial), check=False)
        if made.returncode:
            return f"no loop device: {made.stderr.strip()}"
        run("losetup", "-d", made.stdout.strip(), check=False)
    finally:
        trial.unlink()
    return ""


def need_blocks(file_system: str) -> None:
    """Everything that a block log under a real file system takes."""
    need_root()
    kind = file_system.rstrip("jw") if file_system.startswith("ext4") else file_system
    need_programs("qemu-storage-daemon", "losetup", "mount", f"mkfs.{kind}")
    if fault := _loop_fault():
        raise NotRun(fault)
    if f"\t{kind}\n" not in Path("/proc/filesystems").read_text():
        raise NotRun(f"the kernel has no {kind}")


def need_namespaces(*options: str) -> None:
    need_root()
    need_programs("unshare")
    made = run("unshare", *options, "true", check=False)
    if made.returncode:
        raise NotRun(f"unshare {' '.join(options)}: {made.stderr.strip()}")
