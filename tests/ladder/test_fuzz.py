"""Hostile bytes in any file of a queue, a seeded sample of them, and what was found once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.killing import in_a_small_process
from tests.ladder import fuzz
from tests.ladder.fuzz import Kind
from tests.ladder.means import MEMORY

pytestmark = pytest.mark.crash
KINDS = [
    Kind(format, layout, ended)
    for format, layout in (
        ("penstock", ""), ("zbus", "doc000"), ("zbus", "crc"), ("beats", "1"), ("vqs", "doc"),
        ("mfq", ""),
    )
    for ended in ("closed", "killed")
]  # fmt: skip
LAYOUTS = [
    Kind(format, layout, ended)
    for format, layout in (
        ("zbus", "doc001"), ("zbus", "flag"), ("zbus", "corr"), ("beats", "0"), ("beats", "2"),
        ("beats", "3"), ("beats", "2-released"), ("vqs", "stage4"),
    )
    for ended in ("closed", "killed")
]  # fmt: skip
SEED = int(os.environ.get("PENSTOCK_SEED", "0"))
SAMPLE, MANY = 12, 600
FOUND = [
    ("penstock", "", "closed", 15), ("penstock", "", "closed", 40), ("penstock", "", "closed", 77),
    ("penstock", "", "killed", 11), ("penstock", "", "killed", 53),
    ("zbus", "doc000", "killed", 14), ("zbus", "doc000", "killed", 21),
    ("zbus", "doc000", "killed", 56), ("zbus", "doc000", "killed", 68),
    ("beats", "1", "closed", 34), ("beats", "1", "closed", 38), ("beats", "1", "closed", 61),
    ("beats", "1", "closed", 62), ("beats", "1", "closed", 68), ("beats", "1", "closed", 86),
    ("beats", "1", "closed", 27), ("beats", "1", "killed", 31), ("beats", "1", "killed", 32),
    ("beats", "1", "killed", 48), ("vqs", "doc", "closed", 6), ("vqs", "doc", "closed", 75),
    ("vqs", "doc", "killed", 17), ("vqs", "doc", "killed", 21), ("vqs", "doc", "killed", 64),
    ("mfq", "", "closed", 5), ("mfq", "", "closed", 64), ("mfq", "", "killed", 78),
    ("penstock", "", "closed", 1_000_289), ("zbus", "doc000", "closed", 1_000_486),
    ("zbus", "doc000", "closed", 1_000_530),
]  # fmt: skip
"""Trials that went wrong once: the corpus. Each number makes its change anew."""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-fuzz-test-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def spoil(work: Path, kind: Kind, first: int, count: int) -> None:
    wrong = [
        f"{number} {done}: {'; '.join(faults)}"
        for number, done, faults in fuzz.trials(work, kind, first, count)
        if faults
    ]
    assert wrong == [], f"python -m tests.ladder.fuzz {kind.format} '{kind.layout}' {kind.ended}"


def named(kind: Kind) -> str:
    return "-".join(filter(None, (kind.format, kind.layout, kind.ended)))


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_a_changed_file_ends_in_an_answer(folder: Path, kind: Kind) -> None:
    in_a_small_process(spoil, folder, kind, SEED * 1000, SAMPLE)


def replay(work: Path, format: str, layout: str, ended: str, number: int) -> None:
    ((_, done, wrong),) = fuzz.trials(work, Kind(format, layout, ended), number, 1)
    assert wrong == [], done


@pytest.mark.parametrize("case", FOUND, ids=lambda case: "-".join(filter(None, map(str, case))))
def test_what_was_found_once_ends_in_an_answer(
    folder: Path, case: tuple[str, str, str, int]
) -> None:
    in_a_small_process(replay, folder, *case)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *LAYOUTS], ids=named)
def test_many_changed_files_end_in_answers(folder: Path, kind: Kind) -> None:
    in_a_small_process(spoil, folder, kind, 1_000_000 + SEED * 1000, MANY)


# ── one that finds nothing might be blind ───────────────────────────────────────────────────────


def test_a_hang_a_signal_and_an_untyped_error_are_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_small_process(notice)


def notice() -> None:
    import signal

    def hang(say: object) -> None:
        signal.pause()

    def die(say: object) -> None:
        os.kill(os.getpid(), signal.SIGBUS)

    assert fuzz.watched(die) == [f"SIGNAL {signal.SIGBUS.value}"]
    assert fuzz.watched(lambda say: say("said")) == ["said"]
    fuzz.PATIENCE_S = 0.2
    assert fuzz.watched(hang) == ["HANGS: 0.2 s"]
    assert fuzz.judged([], is_loud=False) == f"SILENT LOSS of {len(fuzz.MUST)}"
    assert fuzz.judged([], is_loud=True) == ""
    assert fuzz.judged([b"other"], is_loud=True).startswith("WRONG BYTES")
