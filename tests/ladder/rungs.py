"""The rungs of the ladder: what each one runs at which size, and the figure that it answers.

A rung that exists as tests is a selection of them; the others are rigs of this folder. Sizes are
`ci`, all of it within minutes, and `release`, each rung within twenty. Runs of size `release` add
up: a run begins with what the runs before it had no time for, and takes other seeds for the rest.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.formats import registry
from tests.ladder import covered, means, outcomes, powercut
from tests.ladder.cut_products import Case
from tests.ladder.means import ROOT as ROOT
from tests.ladder.means import NotRun, need_programs
from tools import fuzz

RESULTS = ROOT / "benches" / "results" / "ladder"
LAYOUTS = [
    ("penstock", "", ""), ("penstock", "", "lz4"), ("penstock", "", "key"),
    ("zbus", "doc000", ""), ("zbus", "doc001", ""), ("zbus", "flag", ""), ("zbus", "corr", ""),
    ("zbus", "crc", ""),
    ("beats", "0", ""), ("beats", "1", ""), ("beats", "2", ""), ("beats", "3", ""),
    ("beats", "3", "seal"), ("beats", "2-released", ""), ("beats", "2-released-lz4", ""),
    ("vqs", "doc", ""), ("vqs", "stage4", ""), ("mfq", "", ""),
]  # fmt: skip
"""Everything that penstock writes: format, layout, variant."""
FORMATS = [("penstock", ""), ("zbus", "doc000"), ("beats", "1"), ("vqs", "doc"), ("mfq", "")]
ANCHORS = [
    ("sqlite", "FULL"), ("sqlite", "NORMAL"), ("persist-queue sqlite", "default"),
    ("persist-queue file", "default"), ("litequeue", "default"), ("diskcache", "default"),
    ("queuelib", "default"),
]  # fmt: skip


@dataclass
class Figure:
    """What a rung found."""

    unit: str
    tried: int = 0
    failed: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    """Parts that the machine lacks something for."""
    left: dict[str, str] = field(default_factory=dict)
    """Parts that the next run begins with, and why they were not run."""

    @property
    def is_passed(self) -> bool:
        return self.tried > 0 and not self.failed

    def missing(self) -> list[str]:
        """Everything that was not run, in a few words."""
        reasons = Counter(self.left.values())
        return [*self.not_run, *(f"{count} {self.unit}: {why}" for why, count in reasons.items())]

    def counts(self) -> str:
        """What the tests counted themselves (`zbus steps`), as much of each as was tried."""
        sums = sum((Counter(row.get("counted", {})) for row in self.rows), Counter[str]())
        of_subject: dict[str, list[str]] = {}
        for name, count in sums.items():
            first, _, rest = name.partition(" ")
            subject, unit = (first, rest) if first in registry.MODULES else ("", name)
            of_subject.setdefault(subject, []).append(f"{count:,} {unit}")
        told = (f"{subject} {', '.join(of_it)}".strip() for subject, of_it in of_subject.items())
        return f" ({'; '.join(told)})" if of_subject else ""

    def text(self) -> str:
        if not self.tried:
            return f"not run: {'; '.join(self.missing()) or 'nothing was selected'}"
        word = "passed" if self.is_passed else "FAILED"
        missing = f"; not run: {'; '.join(self.missing())}" if self.missing() else ""
        return f"{word}: {self.failed} of {self.tried} {self.unit} fail{self.counts()}{missing}"


@dataclass(frozen=True)
class Earlier:
    """What the runs of the same size have found before, as long as nothing failed."""

    runs: int = 0
    rows: Sequence[dict[str, Any]] = ()
    left: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rung:
    """One rung: its question, and how it is answered at each size."""

    name: str
    question: str
    run: Callable[[str, Earlier], Figure]


NO_TIME = "no time left"
RUNG_MINUTES = float(os.environ.get("PENSTOCK_RUNG_MINUTES", "20"))
"""How long a rung may take at size `release`. What it does not come to is said to be not run."""


def selection(
    *chosen: str, seeds: int = 1, always_slow: bool = False
) -> Callable[[str, Earlier], Figure]:  # fmt: skip
    """Tests of the suite. At size `release` come those that the last run had no time for, then the
    slow ones after the others, and then all again with other seeds."""

    def run(size: str, earlier: Earlier) -> Figure:
        figure = Figure("tests")
        both = ["-m", "slow or not slow"]
        if size != "release":
            pytest_run(figure, [*both, *chosen] if always_slow else [*chosen])
            return figure
        ends_at = time.monotonic() + 60 * RUNG_MINUTES
        turns = [[*chosen], ["-m", "slow", *chosen]]
        if earlier.left:
            there = told([*both, "--collect-only", *chosen])["collected"]
            known = [name for name in there if name in earlier.left]
            turns = [[*both, *known]] if known else []
        for arguments in turns:
            pytest_run(figure, arguments, earlier.runs, ends_at - time.monotonic())
        for turn in range(1, seeds):
            if (share := ends_at - time.monotonic()) <= 0 or figure.failed or figure.left:
                break
            again = Figure("tests")
            pytest_run(again, [*both, *chosen], earlier.runs + turn, share)
            figure.tried += again.tried
            figure.failed += again.failed
            figure.rows += again.rows
        return figure

    return run


def told(arguments: list[str], turn: int = 0, limit_s: float | None = None) -> dict[str, Any]:
    """How pytest and each of its tests ended."""
    with tempfile.TemporaryDirectory() as folder:
        words, path = Path(folder) / "arguments", Path(folder) / "outcomes"
        words.write_text("\n".join(arguments))
        environment = os.environ | {outcomes.FILE: str(path)}
        if turn:
            environment["PENSTOCK_SEED"] = str(int(time.time()) + turn)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", outcomes.__name__, f"@{words}"]
        command += [f"--session-timeout={max(1e-6, limit_s)}"] if limit_s is not None else []
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 1, 5) or not path.exists():
            raise AssertionError(f"pytest {arguments} ended with {done.stdout[-2000:]}")
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def pytest_run(
    figure: Figure, arguments: list[str], turn: int = 0, limit_s: float | None = None
) -> None:
    """Runs pytest; an expected failure is a failure of the rung, a skip is not run, nor is what
    would have begun after `limit_s`."""
    found = told(arguments, turn, limit_s)
    outcome_of: dict[str, str] = found["outcomes"]
    files: dict[str, dict[str, str]] = {}
    for name, outcome in outcome_of.items():
        files.setdefault(name.partition("::")[0], {})[name] = outcome
    for file, of_file in files.items():
        ended = Counter(of_file.values())
        figure.tried += ended["passed"] + ended["failed"]
        figure.failed += ended["failed"]
        bad = [name for name, outcome in of_file.items() if outcome == "failed"]
        counted = found["counted"].get(file, {})
        figure.rows.append({"tests": file, **ended, "counted": counted, "failing": bad})
    figure.left |= {name: NO_TIME for name in found["collected"] if name not in outcome_of}
    figure.left |= found["reasons"]


# ── T5: the power cut on real file systems ─────────────────────────────────────────────────────


def power_cases(size: str) -> list[Case]:
    states = int(os.environ.get("PENSTOCK_CUT_STATES", "24" if size == "ci" else "40"))
    if size == "ci":
        ours = [
            Case(format=f, layout=y, file_system=s, states=states // (1 + (s != "ext4")))
            for s, (f, y) in itertools.product(("ext4", "xfs", "btrfs"), FORMATS)
        ]
        return [*ours, *anchors(states // 2)]
    double = int(os.environ.get("PENSTOCK_CUT_DOUBLE", "2"))
    found = [
        Case(
            format=f, layout=y, variant=v, file_system=s, states=states,
            double=double * (s == "ext4"),
        )
        for s, (f, y, v) in itertools.product(("ext4", "xfs", "btrfs"), LAYOUTS)
    ]  # fmt: skip
    found += [Case(format=f, layout=y, states=states, boot="same", seed=11) for f, y in FORMATS]
    for mode, (f, y) in itertools.product(("ext4w", "ext4j"), FORMATS):
        found.append(Case(format=f, layout=y, file_system=mode, states=states // 2, seed=12))
    for level, (f, y) in itertools.product(("interval", "process"), FORMATS):
        found.append(Case(format=f, layout=y, durability=level, states=states // 2, seed=13))
    return [*found, *anchors(states // 2)]


def anchors(states: int) -> list[Case]:
    return [
        Case(product=product, format="", durability=level, states=states, producers=1, messages=100)
        for product, level in ANCHORS
    ]


def power_cut(size: str, earlier: Earlier) -> Figure:
    """Failing states of ours count; those of the anchors are the table beside them. What has the
    fewest states yet comes first."""
    figure = Figure("power-cut states")
    means.install_anchors()
    known = {row["title"]: row["states"] for row in earlier.rows}
    ends_at = time.monotonic() + 60 * RUNG_MINUTES
    for case in sorted(power_cases(size), key=lambda case: known.get(case.title, 0)):
        if size == "release" and time.monotonic() > ends_at:
            figure.left[case.title] = NO_TIME
            continue
        try:
            found = powercut.in_own_process(replace(case, seed=case.seed + 100 * earlier.runs))
        except NotRun as missing:
            figure.left[case.title] = str(missing)
            continue
        except (AssertionError, subprocess.TimeoutExpired) as error:
            found = {"title": case.title, "product": case.product, "states": 1, "failing": 1,
                     "kinds": {"the rig itself": 1}, "examples": [str(error)[-400:]]}  # fmt: skip
        figure.rows.append(found)
        if case.product == "penstock":
            figure.tried += found["states"]
            figure.failed += found["failing"]
        print(f"    {found['failing']:4} of {found['states']:4}  {found['title']}", file=sys.stderr)
    return figure


MANIFEST = str(ROOT / "rust" / "Cargo.toml")
"""Of the crate; its tests run in the interpreter's library."""


def cargo(figure: Figure, *words: str, **environment: str) -> None:
    """One more check, by cargo."""
    library = sysconfig.get_config_var("LIBDIR")
    known = os.environ | {"PYO3_PYTHON": sys.executable, "LD_LIBRARY_PATH": str(library)}
    at = words.index("--") if "--" in words else len(words)  # Behind it are the tests' own words.
    command = ["cargo", *words[:at], "--manifest-path", MANIFEST, *words[at:]]
    done = subprocess.run(command, env=known | environment, capture_output=True, text=True)
    figure.tried += 1
    figure.failed += bool(done.returncode)
    ended = [line for line in done.stdout.splitlines() if "test result" in line or "inputs" in line]
    told = ended if not done.returncode else [done.stdout[-800:], done.stderr[-800:]]
    figure.rows.append({"command": " ".join(words), "told": told})


def has_cargo(*words: str) -> bool:
    return not subprocess.run(["cargo", *words], capture_output=True).returncode


PURE = ("tags", "gob", "lz4", "headers")
"""Tests of the crate that need no file, no mapping and no other process."""
HOST = "x86_64-unknown-linux-gnu"
SANITIZED = "detect_leaks=0:allocator_may_return_null=1"
"""The interpreter keeps what it has until the end; a test asks for more memory than there is."""


THREADS = "allocator_may_return_null=1"


def compiler_with_source() -> str:
    """One that has the source of its library, and what finds races: the library is built for that,
    too, or none of the orders that it makes were seen, and what it orders were reported. Empty:
    there is none."""
    for compiler in filter(None, (os.environ.get("PENSTOCK_SOURCE_RUSTC"), "rustc")):
        told = subprocess.run([compiler, "--print", "sysroot"], capture_output=True, text=True)
        library = Path(told.stdout.strip()) / "lib" / "rustlib"
        has_source = (library / "src/rust/library/Cargo.lock").exists()
        if has_source and any(library.glob(f"{HOST}/lib/librustc-*_rt.tsan.a")):
            return compiler
    return ""


def rust_checks(size: str, _: Earlier) -> Figure:
    """The crate's own tests and models; at size `release` also with every assertion of the language
    and its library, and under AddressSanitizer, ThreadSanitizer, valgrind and miri, where the
    machine has them."""
    figure = Figure("checks")
    need_programs("cargo")
    usual = ("test", "--quiet", "--lib", "--profile", "quick")
    cargo(figure, *usual)
    cargo(figure, *usual, "--features", "models", "models")
    if size == "ci":
        figure.not_run.append("sanitizers, valgrind and miri at size ci: they take minutes")
        return figure
    cargo(
        figure, *usual, CARGO_PROFILE_QUICK_DEBUG_ASSERTIONS="true",
        CARGO_PROFILE_QUICK_OVERFLOW_CHECKS="true", PENSTOCK_FUZZ_MS="1000",
        CARGO_TARGET_DIR=str(ROOT / "rust" / "target" / "assertions"),
    )  # fmt: skip
    # Sanitizers are flags that a stable compiler takes only from those who ask for them.
    cargo(
        figure, *usual, "--target", HOST, RUSTFLAGS="-Zsanitizer=address", RUSTC_BOOTSTRAP="1",
        ASAN_OPTIONS=SANITIZED, CARGO_TARGET_DIR=str(ROOT / "rust" / "target" / "asan"),
    )  # fmt: skip
    if compiler := compiler_with_source():
        cargo(
            figure, *usual, "--target", HOST, "-Zbuild-std", RUSTFLAGS="-Zsanitizer=thread",
            RUSTC=compiler, RUSTC_BOOTSTRAP="1", TSAN_OPTIONS=THREADS,
            CARGO_TARGET_DIR=str(ROOT / "rust" / "target" / "tsan"),
        )  # fmt: skip
    else:
        figure.not_run.append("ThreadSanitizer: rustup component add rust-src")
    if shutil.which("valgrind"):
        runner = "valgrind -q --error-exitcode=9 --leak-check=no"
        for word in PURE:
            cargo(figure, *usual, word, CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=runner)
    else:
        figure.not_run.append("valgrind: Debian has it")
    if has_cargo("+nightly", "miri", "--version"):
        for word in PURE:
            flags = "-Zmiri-disable-isolation"
            cargo(figure, "+nightly", "miri", "test", "--lib", word, MIRIFLAGS=flags)
    else:
        figure.not_run.append("miri: rustup toolchain install nightly -c miri -c rust-src")
    return figure


FUZZ_MINUTES = float(os.environ.get("PENSTOCK_FUZZ_MINUTES", "10"))
"""Of a release run, for all decoders together, beside the twenty of the tests."""


def hostile_bytes(size: str, earlier: Earlier) -> Figure:
    """The queue's files changed at random, and every decoder with what the fuzzer has kept; at size
    `release` the fuzzer itself goes on, too."""
    figure = selection(
        "tests/ladder/test_fuzz.py", "tests/ladder/test_edges.py",
        "tests/formats/vqs/test_hostile.py",
        "tests/formats/penstock/test_bad_input.py", seeds=20,
    )(size, earlier)  # fmt: skip
    if not shutil.which("cargo"):
        figure.not_run.append("the decoders alone: no cargo")
        return figure
    if size == "ci":
        cargo(
            figure, "test", "--lib", "--profile", "quick", "fuzzing", "--", "--nocapture",
            PENSTOCK_FUZZ_MS="1000", PENSTOCK_SEED=str(int(time.time())),
        )  # fmt: skip
        return figure
    try:
        fuzz.prepare()
    except fuzz.NoFuzzer as missing:
        figure.not_run.append(f"the fuzzer: {missing}")
        return figure
    for target in fuzz.targets():
        done = fuzz.fuzz(target, max(1, round(60 * FUZZ_MINUTES / len(fuzz.targets()))))
        figure.tried += 1
        figure.failed += bool(done.broken)
        counted = {"decoder inputs": done.inputs}
        figure.rows.append({"decoder": target, "counted": counted, "broken": done.broken})
    return figure


def planted_bugs(size: str, earlier: Earlier) -> Figure:
    """Each is planted and looked for at size release; at size ci only that its place is there."""
    figure = selection("tests/ladder/test_planted.py")(size, earlier)
    if size == "ci":
        figure.not_run.append("the planting itself: at size release, half an hour")
    return figure


# ── T17: coverage ──────────────────────────────────────────────────────────────────────────────

ALL = ("Python", "the crate")
WANTED_PERCENT = 95.0
RECOVERY = re.compile(
    r"src/penstock/(sidecar/\w+|engine/verifying|formats/(past|store|cursors|known_damage)"
    r"|formats/beats/(groups|power_cut|closing|noted|rescue|checks)|formats/(penstock|zbus)/format)\.py"
)
"""What runs after something went wrong: all of it is asked for."""


def coverage(size: str, _: Earlier) -> Figure:
    """What the fast tests meet: of Python lines and branches, of the crate lines. As much of
    everything as is wanted, and all of what recovers a queue."""
    figure = Figure("goals of coverage")
    with covered.copied_tree() as root:
        tools: covered.Readers | None = None
        try:
            tools = covered.readers()
            covered.build_counting(root)
        except NotRun as missing:
            figure.not_run.append(str(missing))
            tools = None
        # All tests at once, counted: twice the time of a rung that selects some.
        ended = covered.run_tests(root, ["tests"], 2 * RUNG_MINUTES)
        python = covered.of_python(root)
        crate = covered.of_crate(root, tools) if tools is not None else None
    for name, side in zip(ALL, (python, crate), strict=True):
        if side is not None:
            goal(figure, name, side.percent, WANTED_PERCENT)
    for part in sorted([*python.parts, *(crate.parts if crate else [])], key=lambda one: one.name):
        row = {"file": part.name, "percent": round(part.percent, 1), "missing": part.missing}
        if RECOVERY.fullmatch(part.name):
            goal(figure, part.name, part.percent, 100.0, part.missing)
        else:
            figure.rows.append(row)
    whole = [row["percent"] >= row["wanted"] for row in figure.rows if row.get("wanted") == 100.0]
    told = [f"{row['file']} {row['percent']} %" for row in figure.rows if row["file"] in ALL]
    told.append(f"recovery whole in {sum(whole)} of {len(whole)} files")
    figure.unit = f"goals of coverage ({', '.join(told)})"
    figure.rows.append({"tests": ["tests"], "ended": ended})
    return figure


def goal(figure: Figure, name: str, percent: float, wanted: float, missing: str = "") -> None:
    figure.tried += 1
    figure.failed += percent < wanted
    figure.rows.append({
        "file": name, "percent": round(percent, 1), "wanted": wanted, "missing": missing,
    })  # fmt: skip


CRASH = "tests/crash/"
RUNGS = {
    rung.name: rung
    for rung in (
        Rung("T1", "does any history differ from a list's", selection("tests/model", seeds=5)),
        Rung(
            "T2", "do many processes lose, invent or repeat anything",
            selection(
                f"{CRASH}test_crowds.py", f"{CRASH}test_many_processes.py",
                f"{CRASH}test_killed_consumers.py",
            ),
        ),
        Rung(
            "T3", "does kill -9 at any instant lose anything",
            selection(
                f"{CRASH}test_kill.py", f"{CRASH}test_kill_formats.py",
                f"{CRASH}test_death_under_the_lock.py", f"{CRASH}test_dead_rollers.py",
                f"{CRASH}test_groups_after_death.py", f"{CRASH}test_dead_holders.py", seeds=5,
            ),
        ),
        Rung(
            "T4", "does any state of the recorded stores lose anything",
            selection(
                *(f"{CRASH}test_power_cut{n}.py" for n in ("", "_beats", "_mfq", "_vqs", "_zbus"))
            ),
        ),
        Rung("T5", "does a power cut on a real file system lose anything", power_cut),
        Rung(
            "T6", "is every failing call a typed error, and the queue clean after it",
            selection(f"{CRASH}test_failing_calls.py", "tests/engine/test_syncing.py"),
        ),
        Rung("T7", "is anything acknowledged that a failing sync lost",
             selection("tests/ladder/test_failing_syncs.py", f"{CRASH}test_each_sync.py")),
        Rung(
            "T8", "does a full disk or a file cut short kill a process",
            selection(f"{CRASH}test_full_disk.py", "tests/native/test_cut_short.py"),
        ),
        Rung(
            "T9", "is a flipped bit ever silent",
            selection(
                f"{CRASH}test_damage.py", f"{CRASH}test_damage_formats.py",
                f"{CRASH}test_damage_originals.py",
                "tests/formats/zbus/test_every_byte.py", "tests/formats/beats/test_every_bit.py",
                "tests/formats/beats/test_damage.py", "tests/formats/mfq/test_damage.py",
            ),
        ),
        Rung("T10", "is a file that is gone, cut or changed ever silent",
             selection("tests/ladder/test_each_file.py", always_slow=True)),
        Rung("T11", "do hostile bytes end in anything but an answer", hostile_bytes),
        Rung("T12", "are the crate's own checks clean", rust_checks),
        Rung("T13", "is a failed allocation an error",
             selection("tests/ladder/test_memory.py")),
        Rung("T14", "does any jump of the clocks deliver early or never",
             selection("tests/engine/test_year.py", "tests/ladder/test_environments.py")),
        Rung("T15", "are the originals' bytes read and written as they are",
             selection("tests/formats", "tests/originals", "tests/test_golden_data.py")),
        Rung("T16", "is every planted bug caught by its test",
             planted_bugs),
        Rung("T17", "is the code covered", coverage),
        Rung("T18", "does a long run stay flat in memory, maps, files and disk",
             selection("tests/ladder/test_soak.py")),
    )
}  # fmt: skip
