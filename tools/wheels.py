"""Builds the wheels, and tries them: `make wheels`, `make dist`.

    python -m tools.wheels build [TARGET...]    into build/wheels; all targets, or those named
    python -m tools.wheels check                sizes; each wheel in every Python that can run it

Each wheel is stripped and for the stable ABI of Python 3.11: one wheel serves every later Python.
zig (a package of PyPI) is the linker: it links against the glibc of manylinux2014, and for other
processors. Rust's own part of a target comes from rustup; a target that can't be had is left out,
with a word, and the exit code says so.

A wheel is tried in a fresh environment: of this Python and of every other one that is installed
here, newest first; a wheel for aarch64 in Debian's Python for aarch64 under QEMU, both unpacked
into `build/debian-arm64`. What nothing here can run is said to be not run: that is no failure, and
no proof either.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.arm64 import fetch

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
import penstock, platform, tempfile, pathlib
path = pathlib.Path(tempfile.mkdtemp()) / "q"
with penstock.Queue(path) as queue:
    queue.put(b"hello")
    message = queue.get(timeout=1)
    assert message.body == b"hello"
    message.ack()
assert not hasattr(penstock._core, "record_effects"), "the wheel has the tests' recorder"
python = f"Python {platform.python_version()} on {platform.machine()}"
print(f"    passed: a message went through penstock {penstock.__version__} in {python}")
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
        print(f"{wheel.name}: {size / 1e6:.1f} MB", flush=True)
        if size > MAX_BYTES:
            print(f"    FAILED: larger than {MAX_BYTES / 1e6:.0f} MB")
            wrong += 1
        failed = run(wheel)
        if not failed and (loose := loose_symbols(wheel)):
            print(f"    FAILED: no library as old as its tag says has {', '.join(loose)}")
            failed = 1
        wrong += failed
    return wrong


def loose_symbols(wheel: Path) -> list[str]:
    """What the core of a wheel for glibc needs, and neither Python nor a named version of a library
    has: such a wheel can be built, and not be imported where it says that it can. Only glibc names
    versions; what is weak may be missing."""
    if "manylinux" not in wheel.name:
        return []
    with tempfile.TemporaryDirectory(prefix="penstock-dist-") as folder:
        (core,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so"))
        library = zipfile.ZipFile(wheel).extract(core, folder)
        command = ["readelf", "--dyn-syms", "--wide", library]
        said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    rows = [line.split() for line in said.splitlines() if " GLOBAL DEFAULT  UND " in line]
    names = (row[7] for row in rows)
    return [name for name in names if "@" not in name and not name.startswith(("Py", "_Py"))]


def run(wheel: Path) -> int:
    """Runs a wheel wherever it can be run here; how often that failed."""
    if "musllinux" in wheel.name:
        print("    NOT RUN: there is no Python for musl here; it is only built and measured")
    elif platform.machine() in wheel.name:
        return sum(not passes_in(python, wheel) for python in pythons())
    elif wheel.name.endswith("_aarch64.whl") and platform.machine() == "x86_64":
        if emulator := fetch():
            return not passes_under(emulator, wheel)
        print("    NOT RUN: QEMU and Python for aarch64 could not be had from Debian")
    else:
        print(f"    NOT RUN: this machine is {platform.machine()}")
    return 0


def pythons() -> list[str]:
    """Every Python here that the wheels are for, one of each version, newest first."""
    names = ["/usr/bin/python3", shutil.which("python3") or "", sys.executable]
    names += [str(python) for python in Path.home().glob(".pyenv/versions/*/bin/python3")]
    code = "import sys; 't' in sys.abiflags or print(*sys.version_info[:2])"
    found = {}
    for name in filter(None, names):
        done = subprocess.run([name, "-I", "-c", code], capture_output=True, text=True)
        version = tuple(map(int, done.stdout.split()))
        if version >= (3, 11):
            found[version] = name
    return [found[version] for version in sorted(found, reverse=True)]


def passes_in(python: str, wheel: Path) -> bool:
    """Installs the wheel alone in a fresh environment and passes a message through it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-dist-"))
    try:
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        inside = str(folder / "bin" / "python")
        pip = [sys.executable, "-m", "pip", "--python", inside, "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "--no-index", wheel], check=True)
        return is_passed([inside, "-I", "-c", TRIAL], folder)
    except subprocess.CalledProcessError as error:
        print(f"    FAILED: {python}: {error}")
        return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def passes_under(emulator: list[str], wheel: Path) -> bool:
    """Unpacks the wheel, as an installation does, and passes a message through it."""
    with tempfile.TemporaryDirectory(prefix="penstock-dist-") as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        code = f"import sys; sys.path.insert(0, {folder!r})\n{TRIAL}"
        return is_passed([*emulator, "-I", "-B", "-c", code], Path(folder))


def is_passed(command: list[str], folder: Path) -> bool:
    """Whether the trial ended well; says so when it did not."""
    done = subprocess.run(command, cwd=folder)
    if done.returncode != 0:
        print(f"    FAILED: {command[0]} ended with {done.returncode}")
    return done.returncode == 0


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
