"""Planted bugs: small changes that break penstock on purpose, each with the test that must notice.

`python -m tests.ladder.planted [NAMES]` makes each change of `tests/ladder/planted/` in a copy of
the tree, builds the crate anew where it touches that, and runs the named test, which must fail. A
change begins with lines `Why:`, `Test:` and `File:`; then come lines as they stand in that file,
and what is put in their place. They are found by what they say, wherever they have moved to.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.ladder.means import NotRun, need_programs

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path(__file__).parent / "planted"
CORE = Path("src/penstock/_core.abi3.so")
TIMEOUT_S = 1200
FAST = "profile.quick.package.penstock-core.opt-level=1"
"""One bug after the other: built soon, and quick enough for a test."""


@dataclass(frozen=True)
class Plant:
    """One bug."""

    name: str
    why: str
    test: str
    file: str
    old: str
    new: str

    @property
    def is_rust(self) -> bool:
        return self.file.startswith("rust/")

    def fault(self, root: Path) -> str:
        """Why it can't be planted; empty when it can."""
        path = root / self.file
        if not path.is_file():
            return f"no file {self.file}"
        count = path.read_text().count(self.old)
        return "" if count == 1 else f"what it changes stands {count} times in {self.file}"

    def plant(self, root: Path) -> None:
        if fault := self.fault(root):
            raise NotRun(f"{self.name} can't be planted: {fault}")
        path = root / self.file
        path.write_text(path.read_text().replace(self.old, self.new))

    def uproot(self, root: Path) -> None:
        shutil.copy2(ROOT / self.file, root / self.file)


def load(path: Path) -> Plant:
    head, _, change = path.read_text().partition("\n<<<<<<<\n")
    old, _, new = change.partition("=======\n")
    new, _, _ = new.partition(">>>>>>>\n")
    words = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    return Plant(path.stem, words["Why"], words["Test"], words["File"], old, new)


def all_plants() -> list[Plant]:
    return [load(path) for path in sorted(FOLDER.glob("*.plant"))]


def copy_tree(goal: Path) -> None:
    """What is tracked, and the native core as it was built. Other users may read it: some tests
    are run as one."""
    goal.chmod(0o755)
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (goal / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, goal / name)
    shutil.copy2(ROOT / CORE, goal / CORE)


def build(root: Path) -> None:
    need_programs("cargo")
    usual = Path(tempfile.gettempdir()) / "penstock-planted-target"
    target = Path(os.environ.get("CARGO_TARGET_DIR", usual))
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    command = [
        "cargo", "build", "-q", "--profile", "quick", "--config", FAST,
        "--manifest-path", "rust/Cargo.toml", "--features", "pyo3/extension-module",
    ]  # fmt: skip
    subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
    shutil.copy2(target / "quick" / "lib_core.so", root / CORE)


def failing(tests: list[str], root: Path) -> str:
    """The first of the named tests that fails, or the whole of them when they hang; empty: none."""
    environment = os.environ | {
        "PYTHONPATH": f"{root / 'src'}:{root}",
        "PENSTOCK_STATES": "600",  # More than in the usual run: some bugs show in few states.
    }
    command = [
        sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider",
        "--timeout=600", *tests,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, timeout=TIMEOUT_S, text=True
        )
    except subprocess.TimeoutExpired:
        return " ".join(tests)
    if done.returncode not in (0, 1):
        raise NotRun(f"{tests}: pytest says {done.stdout[-400:]}")
    named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return "" if not done.returncode else named.group(1) if named else " ".join(tests)


def is_caught(plant: Plant, root: Path) -> bool:
    """Whether one of the named tests, which passes else, fails with the bug in place."""
    plant.plant(root)
    try:
        if plant.is_rust:
            build(root)
        found = failing(plant.test.split(), root)
    finally:
        plant.uproot(root)
        if plant.is_rust:
            shutil.copy2(ROOT / CORE, root / CORE)
    if found and failing(plant.test.split() if found == plant.test else [found], root):
        raise NotRun(f"{found} fails without the bug")
    return bool(found)


def main() -> int:
    chosen = [plant for plant in all_plants() if not sys.argv[1:] or plant.name in sys.argv[1:]]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="penstock-planted-") as folder:
        copy_tree(Path(folder))
        for plant in chosen:
            try:
                caught = is_caught(plant, Path(folder))
            except NotRun as missing:
                print(f"not run {plant.name}: {missing}", flush=True)
                missed += 1
                continue
            missed += not caught
            print(f"{'caught ' if caught else 'MISSED '} {plant.name}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
