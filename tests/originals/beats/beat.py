"""The disk queue of a real Beat as a party in a test: built from its own module, told what to do.

`rig/` is a small program of ours around the original package, `releases/` pins the releases that it
is built with. Nothing is built twice: the programs stay in `build/originals/`, which git ignores.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
BUILT = HERE.parent.parent.parent / "build" / "originals"
BUILD_TIMEOUT_S = 1200
WAIT_MS = 20_000
"""For an event that must come: only a failing test waits as long."""
QUIET_MS = 120
"""After which a queue that should be empty counts as empty."""

RELEASES = {
    "7.10.2": ("0",), "7.13.4": ("0",), "7.17.29": ("1",),
    "8.14": ("2-released", "2-released-lz4"), "8.17": ("2-released", "2-released-lz4"),
}  # fmt: skip
"""Release → the layouts that it writes and reads. 8.14 is the state of March 2024 and 8.17 that of
October 2024, before these releases; the latter is the newest whose checksum is in Go's public
database."""
NEWEST = "8.17"


@functools.cache
def program(release: str) -> Path:
    """The rig of a release; skips the test where it can't be had, saying why."""
    if shutil.which("go") is None:
        pytest.skip("no Go here: the real Beats queue can't be built")
    parts = [HERE / "rig" / name for name in ("main.go", *adapters(release))]
    parts += [HERE / "releases" / release / name for name in ("go.mod", "go.sum")]
    text = b"\0".join(part.read_bytes() for part in parts)
    folder = BUILT / f"beats-{release}-{hashlib.sha256(text).hexdigest()[:12]}"
    if (folder / "rig").exists():
        return folder / "rig"
    work = folder.with_name(f"{folder.name}.{os.getpid()}")
    work.mkdir(parents=True)
    for part in parts:
        shutil.copy(part, work)
    try:
        built = subprocess.run(
            ["go", "build", "-mod=readonly", "-o", "rig", "."], cwd=work, capture_output=True,
            text=True, timeout=BUILD_TIMEOUT_S, check=False, env=os.environ | {"CGO_ENABLED": "0"},
        )  # fmt: skip
        if built.returncode:
            why = built.stderr.strip().splitlines()
            pytest.skip(f"Beats {release} can't be built: {why[-1] if why else built.returncode}")
        if not folder.exists():  # Else another worker was faster.
            work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder / "rig"


def adapters(release: str) -> tuple[str, ...]:
    """The files of the rig that know how this release calls its things."""
    if release.startswith("7."):
        return ("before8.go",)
    return ("since8.go", f"queue{release.replace('.', '')}.go")


# ── values with their types ────────────────────────────────────────────────────────────────


def tagged(value: Any) -> Any:
    """A value as the rig reads it."""
    if value is None:
        return {"n": 0}
    if isinstance(value, bool):
        return {"b": value}
    if isinstance(value, int):
        return {"i": str(value)}
    if isinstance(value, float):
        return {"f": str(struct.unpack("<Q", struct.pack("<d", value))[0])}
    if isinstance(value, bytes):
        return {"y": base64.b64encode(value).decode()}
    if isinstance(value, str):
        return {"s": value}
    if isinstance(value, list):
        return {"l": [tagged(one) for one in value]}
    return {"m": {name: tagged(one) for name, one in value.items()}}


def plain(value: Any) -> Any:
    """What the rig has written, as a value."""
    ((tag, inner),) = value.items()
    if tag == "m":
        return {name: plain(one) for name, one in inner.items()}
    if tag == "l":
        return [plain(one) for one in inner]
    if tag == "i":
        return int(inner)
    if tag == "f":
        return struct.unpack("<d", struct.pack("<Q", int(inner)))[0]
    if tag == "y":
        return base64.b64decode(inner)
    return None if tag == "n" else inner


Event = dict[str, Any]
"""`timestamp_ns`, `guaranteed`, `meta`, `fields`."""


class Beat:
    """A Beat that has a queue open."""

    def __init__(self, release: str, path: Path, layout: str, segment_bytes: int = 1 << 20) -> None:
        """Starts it."""
        packing = ["lz4"] if layout.endswith("lz4") else []
        self._process = subprocess.Popen(
            [program(release), path, str(segment_bytes), *packing], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise AssertionError(f"the Beat ended: {errors[-2000:]}")
        found = json.loads(line)
        assert "error" not in found, found
        return found

    def _tell(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def put(self, *events: Event) -> None:
        """Puts events; they are on the disk when it returns."""
        given = [e | {"meta": tagged(e["meta"]), "fields": tagged(e["fields"])} for e in events]
        assert self._tell(do="put", events=given) == {"done": len(events)}

    def get(self, count: int, wait_ms: int = WAIT_MS) -> list[Event]:
        """The next events, at most `count`."""
        found = self._tell(do="get", count=count, wait_ms=wait_ms)["events"]
        return [e | {"meta": plain(e["meta"]), "fields": plain(e["fields"])} for e in found]

    def rest(self) -> list[Event]:
        """Everything that comes until nothing comes any more."""
        return self.get(1 << 30, QUIET_MS)

    def ack(self, count: int) -> None:
        """Acks the oldest `count` that were got and not acked."""
        assert self._tell(do="ack", count=count) == {"done": count}

    def close(self) -> None:
        """An orderly end."""
        self._tell(do="close")
        self._end()

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.communicate(timeout=60)
