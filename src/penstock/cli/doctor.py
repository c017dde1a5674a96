"""`doctor`: what a folder's file system, mount and machine can promise a queue."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from penstock import __version__, _core
from penstock.cli import show
from penstock.cli.opening import Json, command
from penstock.disk import files
from penstock.errors import PenstockError
from penstock.formats import registry
from penstock.sidecar import control, opening

TRIES = 20
LOW_SPACE_BYTES = 1 << 30
SLOW_SYNC_MS = 20.0
FAST_SYNC_MS = 0.02
IN_MEMORY = ("tmpfs", "ramfs")

Grade = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    value: str
    grade: Grade = "ok"
    advice: str = ""


def register(app: typer.Typer) -> None:
    """Adds `penstock doctor`."""
    command(app, "doctor", "penstock doctor orders", "penstock doctor /var/spool --no-measure")(
        doctor
    )


def doctor(
    path: Annotated[Path, typer.Argument(help="A queue, or a folder for queues.")] = Path(),
    measure: Annotated[
        bool, typer.Option(help="Write and sync a small file there to measure the disk.")
    ] = True,
    json: Json = None,
) -> int:
    """Check what this disk and machine can promise a queue.

    Exit code 1 means that a queue would not be safe there.
    """
    folder = path
    while not folder.is_dir():
        folder = folder.absolute().parent
    found = [*_machine(), *_mount(folder), *_space(folder), *_limits(), *_queue(path)]
    if measure:
        found += _sync_speed(folder)
    if show.wants_json(json):
        for finding in found:
            show.emit(asdict(finding))
    else:
        show.table(
            ("", "what", "found", "advice"),
            ((_mark(f.grade), f.name, f.value, f.advice) for f in found),
        )
    return 1 if any(finding.grade == "problem" for finding in found) else 0


def _mark(grade: Grade) -> str:
    return {"ok": "+", "warning": "!", "problem": "X"}[grade]


def _machine() -> list[Finding]:
    return [
        Finding("penstock", f"{__version__}, core {Path(_core.__file__ or '').name}"),
        Finding("Python", f"{platform.python_version()} ({sys.executable})"),
        Finding("kernel", f"{platform.system()} {platform.release()} {platform.machine()}"),
    ]


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/self/mountinfo."""

    point: Path
    kind: str
    options: tuple[str, ...]


def mounts(text: str) -> list[Mount]:
    """All mounts, as the kernel lists them."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = fields[4].encode("latin-1", "replace").decode("unicode_escape")
        options = dict.fromkeys([*fields[5].split(","), *rest[2].split(",")])
        found.append(Mount(Path(point), rest[0], tuple(options)))
    return found


def mount_of(path: Path, known: list[Mount]) -> Mount | None:
    """The mount that holds `path`: the deepest, and of those the last."""
    path = path.resolve()
    holding = [m for m in known if path == m.point or m.point in path.parents]
    return (
        max(enumerate(holding), key=lambda p: (len(p[1].point.parts), p[0]))[1] if holding else None
    )


def _mount(folder: Path) -> list[Finding]:
    magic = _core.file_system(folder) & 0xFFFFFFFF
    network = files.NETWORK_FILE_SYSTEMS.get(magic)
    try:
        mount = mount_of(folder, mounts(Path("/proc/self/mountinfo").read_text()))
    except OSError:
        mount = None
    kind = mount.kind if mount else f"magic {magic:#x}"
    found = [Finding("file system", f"{kind} on {mount.point if mount else '?'}")]
    if network:
        advice = "read queues here; write them on a local disk"
        found[0] = Finding("file system", f"{kind} ({network})", "problem", advice)
    elif kind in IN_MEMORY:
        advice = "survives kill -9, not a restart of the machine"
        found[0] = Finding("file system", f"{kind}: memory", "warning", advice)
    if mount:
        found.append(_options(mount))
    return found


def _options(mount: Mount) -> Finding:
    shown = ",".join(mount.options)
    if "ro" in mount.options:
        return Finding("mount options", shown, "problem", "the mount is read-only")
    if "nobarrier" in mount.options or "barrier=0" in mount.options:
        advice = "a sync does not reach the disk: power loss may take synced messages"
        return Finding("mount options", shown, "problem", advice)
    if "data=writeback" in mount.options:
        advice = "after power loss files may end in old bytes; checksums find them"
        return Finding("mount options", shown, "warning", advice)
    return Finding("mount options", shown)


def _space(folder: Path) -> list[Finding]:
    free = files.free_bytes(folder)
    found = [Finding("free space", show.size(free))]
    if free < LOW_SPACE_BYTES:
        found = [Finding("free space", show.size(free), "warning", "give the queue max_bytes")]
    if not os.access(folder, os.W_OK):
        found.append(Finding("rights", f"no writing in {folder}", "problem", "check its owner"))
    return found


def _limits() -> list[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = [Finding("open files", f"{soft} (at most {hard})")]
    if 0 <= soft < 256:
        found = [Finding("open files", f"{soft}", "warning", "raise it with ulimit -n")]
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
        used = len(Path("/proc/self/maps").read_text().splitlines())
        found.append(Finding("mappings", f"{used} used, at most {most}"))
    except (OSError, ValueError):
        found.append(Finding("mappings", "unknown"))
    return found


def _queue(path: Path) -> list[Finding]:
    try:
        found, layout = registry.sniff(path)
    except (PenstockError, OSError) as error:
        return [Finding("queue", show.said(error))]
    words = control.peek(opening.sidecar_of(path))
    state = "never opened by penstock" if words is None else "closed cleanly"
    if words is not None and words.is_poisoned:
        advice = "a sync failed: close it everywhere and open it again"
        return [Finding("queue", f"{found.name} {layout}, poisoned", "problem", advice)]
    if words is not None and not words.is_clean:
        state = "in use, or left by a crash"
    return [Finding("queue", f"{found.name} {layout}, {state}")]


def _sync_speed(folder: Path) -> list[Finding]:
    probe = folder / f".penstock-doctor-{os.getpid()}"
    try:
        _core.create_file(probe, 4096 * TRIES, synced=True)
        times = []
        for number in range(TRIES):
            begun = time.perf_counter()
            _core.write_file(probe, 4096 * number, b"x" * 4096, synced=True)
            times.append((time.perf_counter() - begun) * 1e3)
    except (PenstockError, OSError) as error:
        return [Finding("fdatasync", f"failed: {error}", "problem", "the folder can't be written")]
    finally:
        _core.unlink_file(probe)
    times.sort()
    middle = times[len(times) // 2]
    shown = f"median {middle:.2f} ms, worst {times[-1]:.2f} ms of {TRIES}"
    details: dict[str, Any] = {}
    if middle > SLOW_SYNC_MS:
        details = {"grade": "warning", "advice": "durability=always will be slow here"}
    elif middle < FAST_SYNC_MS:
        advice = "too fast for a disk: memory, or a device that does not sync"
        details = {"grade": "warning", "advice": advice}
    return [Finding("fdatasync", shown, **details)]
