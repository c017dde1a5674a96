"""Fuzzes every decoder of the crate in turn, guided by coverage, from what was kept.

    python -m tools.fuzz [SECONDS] [TARGETS]

The usual toolchain is enough: cargo-fuzz is installed in `build/tools` unless it is there, and the
flags that the fuzzer takes are allowed for it alone. What leads somewhere new is kept in
`rust/fuzz/found`; what stands in `rust/fuzz/corpus` was chosen from it, and `cargo test` tries all
of that. An input that breaks something stays in `rust/fuzz/artifacts`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUST = ROOT / "rust"
CORPUS = RUST / "fuzz" / "corpus"
USUAL_S = 60
MEMORY_MB = 512
SLOW_S = 5
KEPT_BYTES = 4096
CARGO_FUZZ = "0.13.2"
TOOLS = ROOT / "build" / "tools"


class NoFuzzer(Exception):
    """It can't be had here; the text says why."""


@dataclass(frozen=True)
class Fuzzed:
    """What came of one target."""

    target: str
    inputs: int
    kept: int
    broken: str
    """The end of what the fuzzer said, if an input broke something."""


def targets() -> list[str]:
    text = (RUST / "src" / "fuzzing.rs").read_text()
    listed = re.search(r"TARGETS: \[&str; \d+\] = \[(.*?)\]", text, re.DOTALL)
    assert listed is not None
    return re.findall(r'"([a-z0-9-]+)"', listed.group(1))


def environment() -> dict[str, str]:
    """What cargo-fuzz is run with: sanitizers and coverage are flags that a stable compiler takes
    only from those who ask for them by this variable."""
    path = os.pathsep.join((str(TOOLS / "bin"), os.environ["PATH"]))
    library = str(sysconfig.get_config_var("LIBDIR"))
    return os.environ | {"PATH": path, "RUSTC_BOOTSTRAP": "1", "LD_LIBRARY_PATH": library}


def prepare() -> None:
    """Installs cargo-fuzz and builds what it runs."""
    known = environment()
    if shutil.which("cargo", path=known["PATH"]) is None:
        raise NoFuzzer("no cargo")
    if shutil.which("cargo-fuzz", path=known["PATH"]) is None:
        wanted = ["cargo-fuzz", "--version", CARGO_FUZZ, "--locked", "--root", str(TOOLS)]
        _must(["cargo", "install", "--quiet", *wanted], known)
    _must(["cargo", "fuzz", "build", "decode"], known)


def _must(command: list[str], known: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=RUST, env=known, capture_output=True, text=True)
    if done.returncode:
        raise NoFuzzer(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")


def fuzz(target: str, seconds: int) -> Fuzzed:
    """Runs one target for so long."""
    found, fresh = CORPUS / target, RUST / "fuzz" / "found" / target
    fresh.mkdir(parents=True, exist_ok=True)
    limits = [f"-rss_limit_mb={MEMORY_MB}", f"-timeout={SLOW_S}", f"-max_len={KEPT_BYTES}"]
    command = ["cargo", "fuzz", "run", "decode", str(fresh), str(found), "--"]
    ran = subprocess.run(
        [*command, f"-max_total_time={seconds}", "-print_final_stats=1", *limits], cwd=RUST,
        env=environment() | {"PENSTOCK_FUZZ_TARGET": target}, capture_output=True, text=True,
    )  # fmt: skip
    runs = re.search(r"number_of_executed_units:\s*(\d+)", ran.stderr)
    broken = ran.stderr[-3000:] if ran.returncode else ""
    return Fuzzed(target, int(runs[1]) if runs else 0, len(list(fresh.iterdir())), broken)


def main() -> int:
    seconds = int(sys.argv[1]) if sys.argv[1:] else USUAL_S
    is_broken = False
    try:
        prepare()
    except NoFuzzer as missing:
        print(f"not run: {missing}", file=sys.stderr)
        return 1
    for target in sys.argv[2:] or targets():
        done = fuzz(target, seconds)
        print(f"{target}: {done.inputs} inputs, {done.kept} kept", flush=True)
        if done.broken:
            is_broken = True
            print(done.broken, file=sys.stderr)
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
