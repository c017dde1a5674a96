"""A queue is used while one of its file calls fails: each of them once, in a process of its own.

Run with `failing_calls.so` preloaded; prints a line of JSON for each call that was let fail:

    python failing_calls.py FOLDER FORMAT DURABILITY ERRORS STEP FOR_GOOD SHIFT

Error 0 is none: the call does half of what it was asked for. FOR_GOOD is once, always or both, in
turn. With a step of 1, as many shifts as there are errors try every call with every error.

Asserted is what a user relies on: an error is ours and names its file, what `put` returned for is
there when the queue is opened again, and that opening finds nothing damaged.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import penstock
from penstock import Empty, Full, PenstockError, Queue
from penstock.engine import convert, exchange
from penstock.formats import registry

BODIES = 14
NONE = 1 << 40
"""More calls than there are: all are counted, none fails."""
shim: Any = ctypes.CDLL(None)
shim.failing_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
shim.failing_count.restype = ctypes.c_long


class Run:
    """One use of a queue, and what came of it."""

    def __init__(self, path: Path, format: str, durability: Any) -> None:
        self.path = path
        size: dict[str, Any] = {"segment_bytes": 16384}
        if format == "vqs":
            size = {"max_bytes": 1 << 20}
        self.options: dict[str, Any] = {"format": format, "durability": durability, **size}
        self.put: list[int] = []
        self.got: list[int] = []
        self.bad: list[str] = []

    def attempt(self, what: str, work: Any) -> Any:
        try:
            return work()
        except (Empty, Full):
            return None
        except PenstockError as error:
            path = getattr(error, "path", None)
            if isinstance(error, penstock.StorageError) and str(path) in ("None", ".", ""):
                self.bad.append(f"{what}: no path: {type(error).__name__}: {error}")
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            self.bad.append(f"{what}: untyped {type(error).__name__}: {error} ({place})")
        return None

    def use(self) -> None:
        queue = self.attempt("open", lambda: Queue(self.path, **self.options))
        if queue is None:
            return
        for number in range(BODIES):
            body = b"%04d" % number * 700
            if self.attempt("put", lambda body=body: queue.put(body)) is not None:
                self.put.append(number)
        group = self.attempt("group", lambda: queue.group("g", max_receives=3))
        for _ in range(3):
            if group is not None:
                message = self.attempt("get", lambda: group.get(0))
                if message is not None:
                    self.got.append(int(message.body[:4]))
                    self.attempt("ack", message.ack)
        self.attempt("stats", queue.stats)
        self.attempt("scan", lambda: list(queue.scan()))
        self.attempt("verify", queue.verify)
        self.attempt("sync", queue.sync)
        self.attempt("trim", queue.trim)
        self.attempt("close", queue.close)
        with_it = {"durability": self.options["durability"]}
        again = self.attempt("reopen", lambda: Queue(self.path, create=False, **with_it))
        if again is not None:
            self.attempt("close again", again.close)


def look(run: Run) -> None:
    """Without failures: everything is as it was promised."""
    with Queue(run.path, **run.options) as queue:
        verdict = queue.verify()
        if verdict.corrupt:  # Torn may be what was being written when nothing worked any more.
            run.bad.append(f"reopened damaged: {[d.as_dict() for d in verdict.corrupt][:2]}")
        found = {int(message.body[:4]) for message in queue.scan()}
    if queue.store.capabilities.deletes_consumed:
        found |= set(run.got)
    lost = [number for number in run.put if number not in found]
    if lost:
        run.bad.append(f"lost {lost}")


def one(folder: Path, format: str, durability: str, at: int, error: int, for_good: bool) -> Any:
    """What one failing call does, in a child."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        run = Run(folder / ("q.bin" if format == "vqs" else "q"), format, durability)
        shim.failing_arm(os.fsencode(folder), at, error, int(for_good))
        run.use()
        count = shim.failing_count()
        shim.failing_disarm()
        os.write(
            write,
            json.dumps({"put": run.put, "got": run.got, "bad": run.bad, "count": count}).encode(),
        )
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        raw = stream.read()
    status = os.waitpid(child, 0)[1]
    said: dict[str, Any] = {"put": [], "got": [], "bad": [f"ended by {status}"], "count": 0}
    if raw:
        said = json.loads(raw)
    run = Run(folder / ("q.bin" if format == "vqs" else "q"), format, durability)
    run.put, run.got, run.bad = said["put"], said["got"], said["bad"]
    try:
        look(run)
    except Exception as error_met:
        run.bad.append(f"reopening: {type(error_met).__name__}: {error_met}")
    return said["count"], run.bad


def main() -> None:
    """Every `step`th call, each with the next of the errors, from the `shift`th on."""
    folder, format, durability = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    errors = [int(number) for number in sys.argv[4].split(",")]
    step, mode, shift = int(sys.argv[5]), sys.argv[6], int(sys.argv[7])
    for name in registry.MODULES:
        registry.format_class(name)
    assert convert, exchange
    count, bad = one(folder, format, durability, NONE, errors[0], False)
    print(json.dumps({"at": None, "of": count, "error": 0, "bad": bad}), flush=True)
    for turn, at in enumerate(range(0, count, step)):
        error = errors[(turn + shift) % len(errors)]
        for_good = mode == "always" or (mode == "both" and turn // len(errors) % 2 == 1)
        _, bad = one(folder, format, durability, at, error, for_good)
        print(json.dumps({"at": at, "of": count, "error": error, "bad": bad}), flush=True)


if __name__ == "__main__":
    main()
