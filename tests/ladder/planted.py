"""Planted bugs: small patches that break penstock on purpose, each with the test that must notice.

`python -m tests.ladder.planted [NAMES]` applies each patch of `tests/ladder/planted/` to a copy of
the tree, builds the crate anew where it touches that, and runs the named test, which must fail. A
patch begins with lines `Why:` and `Test:`; the rest is a diff without context, which outlives what
changes around it.
"""

from __future__ import annotations

import os
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
TIMEOUT_S = 300


@dataclass(frozen=True)
class Plant:
    """One bug."""

    name: str
    why: str
    test: str
    diff: str

    @property
    def is_rust(self) -> bool:
        return "+++ b/rust/" in self.diff

    @property
    def files(self) -> list[str]:
        marked = [line for line in self.diff.splitlines() if line.startswith("+++ b/")]
        return [line.removeprefix("+++ b/") for line in marked]


def load(path: Path) -> Plant:
    head, _, diff = path.read_text().partition("\n--- ")
    words = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    return Plant(path.stem, words["Why"], words["Test"], f"--- {diff}")


def all_plants() -> list[Plant]:
    return [load(path) for path in sorted(FOLDER.glob("*.patch"))]


def applies(plant: Plant, root: Path, *options: str) -> str:
    """Empty, or why it does not."""
    command = ["git", "apply", "-p1", "--unidiff-zero", *options, "-"]
    done = subprocess.run(command, cwd=root, input=plant.diff, capture_output=True, text=True)
    return done.stderr.strip()


def copy_tree(goal: Path) -> None:
    """What is tracked, and the native core as it was built."""
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
        "cargo", "build", "-q", "--profile", "quick", "--manifest-path", "rust/Cargo.toml",
        "--features", "pyo3/extension-module",
    ]  # fmt: skip
    subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True)
    shutil.copy2(target / "quick" / "lib_core.so", root / CORE)


def is_caught(plant: Plant, root: Path) -> bool:
    """Whether the named test fails with the bug in place."""
    if fault := applies(plant, root):
        raise NotRun(f"{plant.name} does not apply: {fault}")
    try:
        if plant.is_rust:
            build(root)
        environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
        command = [
            sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=120",
            *plant.test.split(),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=root, env=environment, capture_output=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return True
        if done.returncode not in (0, 1):
            raise NotRun(f"{plant.name}: pytest says {done.stdout.decode()[-400:]}")
        return done.returncode == 1
    finally:
        applies(plant, root, "-R")
        if plant.is_rust:
            shutil.copy2(ROOT / CORE, root / CORE)


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
