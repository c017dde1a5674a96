"""What penstock is built from: where it comes from, under which licences, with which known holes.

    python -m tools.audit

Sources and licences are looked at on any machine. Known holes are in databases on the network,
which `cargo deny` and `pip-audit` read: each runs where it is installed and its database can be
reached, and else is said not to have run (`pip install pip-audit`, `cargo install cargo-deny`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MANIFEST = ROOT / "rust" / "Cargo.toml"
CRATES = "registry+https://github.com/rust-lang/crates.io-index"
UNREACHABLE = re.compile(
    r"failed to fetch|advisory database|resolve host|Connection|timed out|404|offline",
    re.IGNORECASE,
)


def allowed() -> set[str]:
    rules = tomllib.loads((ROOT / "rust" / "deny.toml").read_text())
    return set(rules["licenses"]["allow"])


def is_allowed(licence: str, known: set[str]) -> bool:
    """Whether an SPDX expression can be met: one of each OR, all of each AND."""
    text = licence.replace("/", " OR ").strip()
    while inner := re.search(r"\(([^()]*)\)", text):
        met = "MIT" if is_allowed(inner.group(1), known) else "refused"
        text = text[: inner.start()] + met + text[inner.end() :]
    either = (every.split(" AND ") for every in text.split(" OR "))
    return any(all(one.strip() in known for one in every) for every in either)


def crate_faults() -> Iterator[str]:
    """Crates that come from elsewhere, without a checksum, or under another licence."""
    lock = tomllib.loads((ROOT / "rust" / "Cargo.lock").read_text())
    for package in lock["package"]:
        if package["name"] == "penstock-core":
            continue
        name = f"{package['name']} {package['version']}"
        if package.get("source") != CRATES:
            yield f"{name} comes from {package.get('source')}, expected crates.io"
        if "checksum" not in package:
            yield f"{name} has no checksum in Cargo.lock"
    asked = [
        "cargo",
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--manifest-path",
        str(MANIFEST),
    ]
    told = subprocess.run(asked, capture_output=True, text=True, check=True)
    known = allowed()
    for package in json.loads(told.stdout)["packages"]:
        licence = package["license"] or "none"
        if not is_allowed(licence, known):
            yield f"{package['name']} {package['version']} is under {licence}: see rust/deny.toml"


def python_faults() -> Iterator[str]:
    """What is installed for users has to come with a bound, what developers use with a version."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if project["dependencies"]:
        yield f"{project['dependencies']}: penstock itself needs nothing"
    for extra, wanted in project["optional-dependencies"].items():
        for one in wanted:
            if not re.search(r"[<>=]=?|\[", one):
                yield f"{one} of extra {extra} has no version"
            if "@" in one or "://" in one:
                yield f"{one} of extra {extra} comes from elsewhere than the index"


def ask(name: str, command: list[str]) -> tuple[bool, str]:
    """Whether a program found nothing, or could not look; and what it said."""
    if shutil.which(command[0]) is None:
        return True, f"not run: no {command[0]}"
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    told = (done.stdout + done.stderr).strip()
    if done.returncode and UNREACHABLE.search(told):
        return True, f"not run: its database can't be reached ({told.splitlines()[-1][:100]})"
    return done.returncode == 0, "nothing found" if not done.returncode else f"{name}:\n{told}"


def main() -> int:
    has_failed = False
    for what, found in (("crates", list(crate_faults())), ("packages", list(python_faults()))):
        print(f"{what}: {'nothing found' if not found else ''}")
        for fault in found:
            print(f"  {fault}")
        has_failed |= bool(found)
    deny = ["cargo-deny", "--manifest-path", str(MANIFEST), "check"]
    for name, command in {
        "cargo deny": [*deny, "licenses", "bans", "sources"],
        "advisories of crates": [*deny, "advisories"],
        "advisories of packages": ["pip-audit", "--local", "--progress-spinner", "off"],
    }.items():
        is_clean, told = ask(name, command)
        print(f"{name}: {told}")
        has_failed |= not is_clean
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
