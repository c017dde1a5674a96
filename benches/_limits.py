"""A measurement in a process of its own, with an end: some ways never finish."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from benches._parties import CONTEXT, Party

LIMIT_S = 60.0


class Unfinished(Exception):
    """It took longer than it may, or failed."""


def _measure(there: Connection, work: Callable[..., Any], *arguments: Any) -> None:
    os.setsid()  # So that whatever it starts can be ended with it.
    try:
        there.send((True, work(*arguments)))
    except Exception as error:
        there.send((False, f"{type(error).__name__}: {error}"))


def within(limit_s: float, work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` answers; everything it started is ended when the time is over."""
    here, there = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_measure, args=(there, work, *arguments))
    process.start()
    there.close()
    try:
        if not here.poll(limit_s):
            raise Unfinished(f"did not finish in {limit_s:g} s")
        is_done, answer = here.recv()
    except EOFError as error:
        raise Unfinished("died") from error
    finally:
        _end(process)
        process.join()
    if not is_done:
        raise Unfinished(answer)
    return answer


def _end(process: SpawnProcess) -> None:
    """The whole session that `_measure` made; before that, the process alone."""
    with contextlib.suppress(ProcessLookupError):
        if process.pid is not None and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def make(party: type[Party], folder: Path) -> Party:
    """A party with a folder of its own."""
    folder.mkdir()
    return party(folder)
