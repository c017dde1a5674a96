"""How many ways there are through the code, and how many files an addition touches.

Each count is written down where it stands, in a test: what makes one grow has to say so here.
"""

from __future__ import annotations

import re

import pytest

from tests.test_tidy import (
    FORMATS,
    ROOT,
    RUST,
    RUST_TESTS,
    SOURCE,
    files,
    rust_code,
    rust_module,
    where,
)


def crate_code() -> dict[str, str]:
    """The product's files of the crate: their names, and their code."""
    paths = [path for path in files("*.rs", under=RUST) if rust_module(path) not in RUST_TESTS]
    return {rust_module(path): rust_code(path.read_text()) for path in paths}


def steppers(texts: dict[str, str]) -> set[str]:
    """The rooms that ask a framing what stands at a byte."""
    step = re.compile(r"\b(?:frames|FRAMES|segment|self)\.step\(")
    return {name.split("::")[0] for name, text in texts.items() if step.search(text)}


def test_one_walker_goes_from_frame_to_frame() -> None:
    """Reading, groups, recovery and verification go through it: none decodes frames by itself."""
    assert steppers(crate_code()) == {"segment", "formats"}


def test_a_second_walker_is_noticed() -> None:
    assert steppers({"read::scan": "let step = segment.step(offset, limit, true);"}) == {"read"}


CLAIM_STAGES = {"claim", "claim_on", "claim_once"}  # What a get does around either way.


def test_messages_are_claimed_in_two_ways() -> None:
    """With the group's lock or, where nothing but the next offset matters, without."""
    claims = re.compile(r"\bfn (claim\w*)<B: Basket>")
    assert set(claims.findall(crate_code()["group::claim"])) - CLAIM_STAGES == {
        "claim_freely",
        "claim_locked",
    }


WAIT = re.compile(r"Duration::(?:new|from_\w+)\(\d")


def waits(texts: dict[str, str]) -> set[str]:
    """The files of the crate that decide how long one waits."""
    return {name for name, text in texts.items() if WAIT.search(text)}


def test_how_long_one_waits_is_decided_in_python() -> None:
    """In `penstock.pacing`; the crate is handed the values."""
    assert waits(crate_code()) == set()


def test_a_wait_that_the_crate_decides_is_noticed() -> None:
    nap = "const NAP: Duration = Duration::from_millis(20);"
    handed = "let nap = Duration::from_nanos(times.closing_nap_ns);"
    assert waits({"shared::lock": nap, "shared::control": handed}) == {"shared::lock"}


def touched(words: re.Pattern[str], own: str = "") -> set[str]:
    """The product's files, but for those of a package, whose code has one of these words."""
    paths = [*files("*.py", under=SOURCE), *files("*.rs", under=RUST)]
    paths = [path for path in paths if path.suffix == ".py" or rust_module(path) not in RUST_TESTS]
    code = {
        path: path.read_text() if path.suffix == ".py" else rust_code(path.read_text())
        for path in paths
        if not own or own not in path.parts
    }
    return {where(path) for path, text in code.items() if words.search(text)}


@pytest.mark.parametrize("format", sorted(FORMATS - {"mfq", "penstock"}))
def test_a_format_touches_the_files_that_its_page_names(format: str) -> None:
    """The consumer of mfq, which waits natively, is the one other file. Our own frames are the
    first framing, and also those of the extras."""
    names = rf"penstock\.formats\.{format}\b|\bformats::{format}\b|\bmod {format}\b"
    found = touched(re.compile(names), format) | {"src/penstock/_core.pyi"}
    page = (ROOT / "docs" / "internals" / "adding.md").read_text()
    assert found == set(re.findall(r"^\| `([\w./]+)` \|", page.split("## ")[1], re.M))
    assert len(found) <= 4


def test_an_option_of_a_group_touches_three_files() -> None:
    """`key_batches` is the last one that came, and `together` is its native name. The endpoint,
    which uses it, is an interface."""
    words = re.compile(r"\bkey_batches\b|\btogether: (?:bool|AtomicBool)|\bsettings\.together\b")
    found = {name for name in touched(words) if "/sqs/" not in name}
    assert found == {
        "src/penstock/options.py", "rust/src/group/settings.rs", "rust/src/group/claim.rs",
    }  # fmt: skip
