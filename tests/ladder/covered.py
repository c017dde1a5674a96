"""How much of the code a run of the tests meets: of Python its lines and branches, of the crate its
lines.

The tests run once, in a copy of the tree, with a native core that counts what it executes. The
counters lie in a file that all processes map, so one that is killed has counted, too. Python says
what it met when a process ends, by whatever means but `kill -9`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ladder.means import NotRun, need_module, peers_path
from tests.ladder.planted import CORE, copy_tree

COUNTING = ("-C", "instrument-coverage", "-C", "llvm-args=-runtime-counter-relocation")
NOT_OF_THE_WHEELS = re.compile(r"/(fuzzing|properties|models|against_a_model)\.rs$")
"""Of the crate, but for its own tests alone."""


@dataclass(frozen=True)
class Part:
    """One file of the source."""

    name: str
    percent: float
    missing: str
    """Lines that no test met, and branches of Python as `from->to`."""


@dataclass(frozen=True)
class Covered:
    """What a run of the tests met."""

    percent: float
    parts: list[Part]


def ranges(lines: list[int], branches: Sequence[str] = ()) -> str:
    """`3-5, 9, 12->14`."""
    begins = [line for line in lines if line - 1 not in lines]
    ends = [line for line in lines if line + 1 not in lines]
    runs = [str(a) if a == b else f"{a}-{b}" for a, b in zip(begins, ends, strict=True)]
    return ", ".join([*runs, *branches])


@contextmanager
def copied_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-covered-") as folder:
        copy_tree(root := Path(folder))
        yield root


def run_tests(root: Path, tests: list[str], minutes: float) -> str:
    """Runs tests in a copy of the tree and leaves in `.coverage` and `.counters` what they met;
    pytest's last line."""
    need_module("coverage")
    (root / ".counters").mkdir(mode=0o777, exist_ok=True)
    known = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (f"{root / 'src'}:{root}", peers_path()))),
        "COVERAGE_FILE": str(root / ".coverage"),
        "LLVM_PROFILE_FILE": f"{root}/.counters/%m%c.profraw",
    }
    words = ("-q", "-p", "no:cacheprovider", "-n", "2", f"--session-timeout={60 * minutes}")
    run = [sys.executable, "-m", "coverage", "run", "-m", "pytest", *words, *tests]
    done = subprocess.run(run, cwd=root, env=known, capture_output=True, text=True)
    if done.returncode not in (0, 1, 2):
        raise NotRun(f"pytest says {(done.stdout + done.stderr)[-400:]}")
    told = [line for line in done.stdout.splitlines() if re.search(r"\d (passed|failed)", line)]
    return told[-1] if told else "pytest told nothing"


# ── Python ─────────────────────────────────────────────────────────────────────────────────────


def of_python(root: Path) -> Covered:
    """Lines and branches, in processes that the tests start as well."""
    known = os.environ | {"COVERAGE_FILE": str(root / ".coverage")}
    for words in (["combine", "-q"], ["json", "-q", "-o", str(root / "python.json")]):
        asked = [sys.executable, "-m", "coverage", *words]
        subprocess.run(asked, cwd=root, env=known, capture_output=True, check=True)
    report = json.loads((root / "python.json").read_text())
    parts = [
        Part(
            name, found["summary"]["percent_covered"],
            ranges(found["missing_lines"], [f"{a}->{b}" for a, b in found["missing_branches"]]),
        )
        for name, found in report["files"].items()
    ]  # fmt: skip
    return Covered(report["totals"]["percent_covered"], parts)


# ── the crate ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Readers:
    """The programs that read the counters: of the LLVM that this rustc is made with."""

    profdata: str
    cov: str


def readers() -> Readers:
    """From `rustup component add llvm-tools`; or Debian's `llvm-<n>`, of the same number."""
    if shutil.which("rustc") is None:
        raise NotRun("the crate: no rustc")
    told = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    major = re.search(r"LLVM version: (\d+)", told)
    host = re.search(r"host: (\S+)", told)
    asked = ["rustc", "--print", "sysroot"]
    sysroot = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    assert major is not None
    assert host is not None
    own = Path(sysroot, "lib", "rustlib", host[1], "bin")
    if (own / "llvm-cov").exists():
        return Readers(str(own / "llvm-profdata"), str(own / "llvm-cov"))
    found = [shutil.which(f"llvm-{word}-{major[1]}") for word in ("profdata", "cov")]
    if None in found:
        raise NotRun(
            f"the crate: no llvm-cov of LLVM {major[1]} (rustup component add llvm-tools; "
            f"Debian: llvm-{major[1]})"
        )
    return Readers(*map(str, found))


def build_counting(root: Path) -> None:
    """Puts a core that counts into a copy of the tree; only our own crate counts."""
    usual = Path(tempfile.gettempdir()) / "penstock-counting-target"
    target = Path(os.environ.get("CARGO_TARGET_DIR", usual))
    command = [
        "cargo", "rustc", "-q", "--profile", "quick", "--lib", "--crate-type", "cdylib",
        "--manifest-path", "rust/Cargo.toml", "--features", "pyo3/extension-module",
        "--", *COUNTING,
    ]  # fmt: skip
    known = os.environ | {"CARGO_TARGET_DIR": str(target), "PYO3_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=root, env=known, capture_output=True, text=True)
    if done.returncode:
        raise NotRun(f"the crate: cargo says {done.stderr[-400:]}")
    shutil.copy2(target / "quick" / "lib_core.so", root / CORE)


def of_crate(root: Path, tools: Readers) -> Covered:
    """The lines of the crate that were executed, its own unit tests left out."""
    counters, merged = sorted((root / ".counters").glob("*.profraw")), root / "crate.profdata"
    run = [tools.profdata, "merge", "-sparse", "-o", str(merged), *map(str, counters)]
    subprocess.run(run, capture_output=True, check=True)
    asked = [tools.cov, "export", "-format=lcov", f"-instr-profile={merged}", str(root / CORE)]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    lines = dict(lines_met(told, root / "rust" / "src"))
    parts = [
        Part(
            f"rust/src/{name}",
            share(met),
            ranges([line for line, count in met.items() if not count]),
        )
        for name, met in sorted(lines.items())
        if met and not NOT_OF_THE_WHEELS.search(f"/{name}")
    ]
    counted = [met for name, met in lines.items() if not NOT_OF_THE_WHEELS.search(f"/{name}")]
    hits = [count for met in counted for count in met.values()]
    return Covered(100 * sum(map(bool, hits)) / max(1, len(hits)), parts)


def share(met: dict[int, int]) -> float:
    return 100 * sum(map(bool, met.values())) / len(met)


def lines_met(lcov: str, source: Path) -> Iterator[tuple[str, dict[int, int]]]:
    """Of each file below `source` how often each of its lines was executed."""
    name, met = "", dict[int, int]()
    for line in lcov.splitlines():
        word, _, value = line.partition(":")
        if word == "SF":
            name, met = value, {}
        elif word == "DA":
            number, count = value.split(",")[:2]
            met[int(number)] = int(count)
        elif line == "end_of_record" and Path(name).is_relative_to(source):
            yield str(Path(name).relative_to(source)), met
