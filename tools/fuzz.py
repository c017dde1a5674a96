"""Fuzzes every decoder of the crate in turn, guided by coverage, from what was kept.

    python -m tools.fuzz [SECONDS] [TARGETS]

Needs `cargo install cargo-fuzz` and a nightly toolchain. What leads somewhere new is kept in
`rust/fuzz/corpus`, made small again at the end; `cargo test` tries all of it. An input that breaks
something stays in `rust/fuzz/artifacts`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUST = ROOT / "rust"
CORPUS = RUST / "fuzz" / "corpus"
USUAL_S = 60
MEMORY_MB = 512
SLOW_S = 5
KEPT_BYTES = 4096


def targets() -> list[str]:
    text = (RUST / "src" / "fuzzing.rs").read_text()
    listed = re.search(r"TARGETS: \[&str; \d+\] = \[(.*?)\]", text, re.DOTALL)
    assert listed is not None
    return re.findall(r'"([a-z0-9-]+)"', listed.group(1))


def fuzz(target: str, seconds: int) -> int:
    library = str(sysconfig.get_config_var("LIBDIR"))
    known = os.environ | {"PENSTOCK_FUZZ_TARGET": target, "LD_LIBRARY_PATH": library}
    found = CORPUS / target
    fresh = RUST / "fuzz" / "found" / target
    fresh.mkdir(parents=True, exist_ok=True)
    limits = [f"-rss_limit_mb={MEMORY_MB}", f"-timeout={SLOW_S}", f"-max_len={KEPT_BYTES}"]
    command = ["cargo", "+nightly", "fuzz", "run", "decode", str(fresh), str(found), "--"]
    ran = subprocess.run(
        [*command, f"-max_total_time={seconds}", "-print_final_stats=1", *limits],
        cwd=RUST, env=known, capture_output=True, text=True,
    )  # fmt: skip
    runs = re.search(r"number_of_executed_units:\s*(\d+)", ran.stderr)
    print(f"{target}: {runs.group(1) if runs else 0} inputs, {len(list(fresh.iterdir()))} kept")
    if ran.returncode:
        print(ran.stderr[-3000:], file=sys.stderr)
    return ran.returncode


def main() -> int:
    seconds = int(sys.argv[1]) if sys.argv[1:] else USUAL_S
    chosen = sys.argv[2:] or targets()
    return max(fuzz(target, seconds) for target in chosen)


if __name__ == "__main__":
    sys.exit(main())
