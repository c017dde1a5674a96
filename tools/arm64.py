"""Debian's Python for aarch64 and QEMU to run it, unpacked into `build/debian-arm64`.

Nothing is installed. QEMU comes through `apt-get`, as this machine has it set up. The packages for
the other processor are looked up in Debian's own list, so `apt-get` need not know that processor.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

ARM64 = Path(__file__).resolve().parent.parent / "build" / "debian-arm64"
DEBIAN = "http://deb.debian.org/debian"
LIST = f"{DEBIAN}/dists/bookworm/main/binary-arm64/Packages.xz"
PACKAGES = (
    "python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 zlib1g "
    "libexpat1 libffi8 libbz2-1.0 liblzma5"
)


def fetch() -> list[str] | None:
    """The command that runs Python for aarch64 here; none, with a word, when it can't be had."""
    emulator, python = ARM64 / "qemu/usr/bin/qemu-aarch64-static", ARM64 / "usr/bin/python3.11"
    command = [str(emulator), "-L", str(ARM64), str(python)]
    if not (ARM64 / ".done").exists():
        try:
            _unpack(ARM64)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"    {error}", file=sys.stderr)
            return None
    return command


def _unpack(folder: Path) -> None:
    packed = folder / "packages"
    packed.mkdir(parents=True, exist_ok=True)
    # Without its own user, who may not write here.
    as_we_are = ["-o", f"APT::Sandbox::User={os.environ.get('USER') or 'root'}"]
    ask = ["apt-get", "-qq", *as_we_are, "download", "qemu-user-static"]
    subprocess.run(ask, cwd=packed, check=True)
    for package in packed.glob("qemu-user-static_*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / "qemu"], check=True)
    known = _places(lzma.decompress(_read(LIST)).decode())
    for name in PACKAGES.split():
        package = packed / f"{name}.deb"
        package.write_bytes(_read(f"{DEBIAN}/{known[name]}"))
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    (folder / ".done").touch()


def _places(listed: str) -> dict[str, str]:
    """Where each package of Debian's list is."""
    found = {}
    for entry in listed.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line)
        if "Package" in lines:
            found[lines["Package"]] = lines["Filename"]
    return found


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        raw: bytes = answer.read()
    return raw
