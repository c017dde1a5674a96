"""Builds the wheels, and tries them: `make wheels`, `make dist`.

    python -m tools.wheels build [TARGET...]    into build/wheels; all targets, or those named
    python -m tools.wheels check                sizes; wheels for this machine in a fresh venv

Each wheel is stripped and for the stable ABI of Python 3.11: one wheel serves every later Python.
zig (a package of PyPI) is the linker: it links against the glibc of manylinux2014, and for other
processors. Rust's own part of a target comes from rustup; a target that can't be had is left out,
with a word, and the exit code says so.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / "build" / "wheels"
MAX_BYTES = 5_000_000

TARGETS = {
    "x86_64-unknown-linux-gnu": "manylinux2014",
    "aarch64-unknown-linux-gnu": "manylinux2014",
    "x86_64-unknown-linux-musl": "musllinux_1_2",
    "aarch64-unknown-linux-musl": "musllinux_1_2",
}

TRIAL = """
import penstock, tempfile, pathlib
path = pathlib.Path(tempfile.mkdtemp()) / "q"
with penstock.Queue(path) as queue:
    queue.put(b"hello")
    message = queue.get(timeout=1)
    assert message.body == b"hello"
    message.ack()
assert not hasattr(penstock._core, "record_effects"), "the wheel has the tests' recorder"
print("a message went through penstock", penstock.__version__)
"""


def has_target(target: str) -> bool:
    """Whether Rust can build for it, after asking rustup to get it."""
    asked = subprocess.run(["rustup", "target", "add", target], capture_output=True, text=True)
    if asked.returncode != 0:
        print(f"left out: {target}: {asked.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return asked.returncode == 0


def build(targets: list[str]) -> int:
    """One wheel per target; how many had to be left out."""
    left_out = 0
    for target in targets or list(TARGETS):
        if not has_target(target):
            left_out += 1
            continue
        command = [
            "maturin", "build", "--release", "--strip", "--zig", "--target", target,
            "--compatibility", TARGETS[target], "--out", str(WHEELS),
            "--no-default-features", "--features", "pyo3/extension-module",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT)
        if done.returncode != 0:
            print(f"left out: {target}: the build failed, see above", file=sys.stderr)
            left_out += 1
    return left_out


def check() -> int:
    """Looks at every wheel, and uses those that run here; how many are wrong."""
    wheels, wrong = sorted(WHEELS.glob("*.whl")), 0
    if not wheels:
        print(f"no wheel in {WHEELS}: run `make wheels`", file=sys.stderr)
        return 1
    for wheel in wheels:
        size = wheel.stat().st_size
        is_small = size <= MAX_BYTES
        wrong += not is_small
        is_ours = platform.machine() in wheel.name and "manylinux" in wheel.name
        words = ["" if is_small else "which is too large", "" if is_ours else "not tried here"]
        print(", ".join([f"{wheel.name}: {size / 1e6:.1f} MB", *filter(None, words)]))
        if is_ours and not try_out(wheel):
            wrong += 1
    return wrong


def try_out(wheel: Path) -> bool:
    """Installs the wheel alone in a fresh environment and passes a message through it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-dist-"))
    try:
        venv.create(folder, with_pip=True)
        python = str(folder / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--no-index", str(wheel)]
        subprocess.run(install, check=True)
        return subprocess.run([python, "-I", "-c", TRIAL], cwd=folder).returncode == 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["build", *targets]:
            return 1 if build(targets) else 0
        case ["check"]:
            return 1 if check() else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
