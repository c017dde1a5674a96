"""What tests that kill streams share: the steps inside source and sink, and others who put."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import Queue, _core
from penstock.engine.intents import Ledger
from penstock.formats.store import Store
from tests.spark.helpers import bodies

INSTANT = "any instant of the append"
OTHERS = ("one", "two")

Step = Callable[[str], None]


def hook_effects(step: Step) -> None:
    """In a child: the file effects of source and sink are steps too."""
    replace, unlink, rename = _core.replace_file, _core.unlink_file, _core.rename_file
    begin = Ledger.__init__

    def rename_file(source: Path, target: Path) -> None:
        if target.suffix == ".arrow":
            step("stage a task")
        rename(source, target)

    def replace_file(path: Path, *rest: Any, **named: Any) -> None:
        if path.name == "spark.json":
            step("remember the start")
        is_ledger = path.parent.name == "sinks"
        if is_ledger:
            step("write the ledger")
        replace(path, *rest, **named)
        if is_ledger:
            step("ledger is written")

    def unlink_file(path: Path, *rest: Any) -> None:
        if path.suffix == ".intent" and path.exists():
            step("remove the note")
            unlink(path, *rest)
            step("note is removed")
        if path.suffix == ".arrow":
            step("sweep a staged file")
        unlink(path, *rest)

    class Appender:
        def __init__(self, writer: _core.Writer) -> None:
            self.writer = writer

        def __getattr__(self, name: str) -> Any:
            return getattr(self.writer, name)

        def append_atomic(self, *given: Any, **named: Any) -> Any:
            step("append the rows")
            step(INSTANT)
            landed = self.writer.append_atomic(*given, **named)
            signal.setitimer(signal.ITIMER_REAL, 0)
            step("rows are appended")
            return landed

    class WatchedStore:
        def __init__(self, store: Store) -> None:
            self.store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

        def need_writer(self) -> Appender:
            return Appender(self.store.need_writer())

    def begin_ledger(ledger: Ledger, store: Store, app: str) -> None:
        begin(ledger, WatchedStore(store), app)  # type: ignore[arg-type]

    _core.rename_file = rename_file
    _core.replace_file = replace_file
    _core.unlink_file = unlink_file  # type: ignore[assignment]
    Ledger.__init__ = begin_ledger  # type: ignore[assignment, method-assign]


class Producer:
    """A process that puts three messages into the target each time it is told to."""

    def __init__(self, path: Path, name: str) -> None:
        told, self._tell = os.pipe()
        answer, answered = os.pipe()
        self._answer, self.child = answer, os.fork()
        if self.child:
            os.close(told)
            os.close(answered)
            return
        os.close(self._tell)
        count = 0
        try:
            with Queue(path) as queue:
                while os.read(told, 1):
                    for _ in range(3):
                        queue.put(b"%s %d" % (name.encode(), count))
                        count += 1
            os.write(answered, b"%d" % count)
        finally:
            os._exit(0)

    def put(self) -> None:
        os.write(self._tell, b"!")

    def stop(self) -> int:
        """How many it has put."""
        os.close(self._tell)
        os.waitpid(self.child, 0)
        count = int(os.read(self._answer, 20))
        os.close(self._answer)
        return count


def stop_all(others: list[Producer]) -> list[int]:
    """How many each has put. The last first: it has inherited the pipes of those before it."""
    return [other.stop() for other in reversed(others)][::-1]


def each_once(source: Path, target: Path, counts: list[int]) -> None:
    """The target has every row of the source once, in order, and all that the others put."""
    found = bodies(target)
    assert [body for body in found if body.startswith(b"row")] == bodies(source)
    for name, total in zip(OTHERS, counts, strict=True):
        mine = [body for body in found if body.startswith(name.encode())]
        assert mine == [b"%s %d" % (name.encode(), number) for number in range(total)]
