"""Says what this machine lacks before anything is installed or built.

Runs on whatever `python3` there is, also one that is too old to build with, so it
uses the standard library alone and no syntax newer than Python 3.7.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PYTHON_MIN = (3, 11)
RUST_MIN = (1, 88)
FREE_DISK_MIN_BYTES = 3 * 10**9
ROOT = Path(__file__).resolve().parent.parent


class Finding(NamedTuple):
    """One thing looked for: what was found, and what to do when that is not enough."""

    is_ok: bool
    found: str
    advice: str = ""


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def check_system() -> Finding:
    system = platform.system()
    return Finding(
        system == "Linux",
        f"operating system: {system}",
        "penstock runs on Linux only (it needs its futexes and file locks).",
    )


def check_python() -> Finding:
    newer = [f"python3.{minor}" for minor in range(11, 20) if shutil.which(f"python3.{minor}")]
    advice = f"Install Python >= {dotted(PYTHON_MIN)}."
    if newer:
        advice = f"There is a {newer[-1]} on this machine: run `make PYTHON={newer[-1]}`."
    return Finding(
        sys.version_info[:2] >= PYTHON_MIN,
        f"Python {platform.python_version()} at {sys.executable}",
        advice,
    )


def check_venv() -> Finding:
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    return Finding(
        not missing,
        f"Python's own {' and '.join(missing)}: missing" if missing else "Python's venv, ensurepip",
        "Debian and Ubuntu keep them in a package of their own: apt install python3-venv",
    )


def check_rust(program: str) -> Finding:
    advice = f"Install Rust >= {dotted(RUST_MIN)} with rustup, or `rustup update` an older one."
    path = shutil.which(program)
    if path is None:
        return Finding(False, f"{program}: not on the PATH", advice)
    answer = subprocess.run([path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = answer.stdout.decode(errors="replace").strip()
    match = re.search(r"(\d+)\.(\d+)", text)
    version = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    return Finding(answer.returncode == 0 and version >= RUST_MIN, text or program, advice)


def check_linker() -> Finding:
    path = shutil.which("cc")
    return Finding(
        path is not None,
        f"linker (cc): {path or 'not on the PATH'}",
        "Rust links with the C compiler's driver: apt install gcc, or its like.",
    )


def check_disk() -> Finding:
    free_bytes = shutil.disk_usage(str(ROOT)).free
    return Finding(
        free_bytes >= FREE_DISK_MIN_BYTES,
        f"free disk: {free_bytes / 1e9:.1f} GB",
        f"The tools and the build take up to {FREE_DISK_MIN_BYTES / 1e9:.0f} GB.",
    )


def findings() -> list[Finding]:
    return [
        check_system(),
        check_python(),
        check_venv(),
        check_rust("cargo"),
        check_rust("rustc"),
        check_linker(),
        check_disk(),
    ]


def main() -> int:
    seen = findings()
    for finding in seen:
        print(f"  {'ok     ' if finding.is_ok else 'MISSING'}  {finding.found}")
        if not finding.is_ok:
            print(f"           {finding.advice}")
    return 0 if all(finding.is_ok for finding in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
