"""A process that opens a queue and does what it is told, line by line, in whatever surroundings.

`Actor` starts one, if need be under `unshare` or another user, tells it what to do, and never waits
longer than `PATIENCE_S` for an answer: what hangs is an answer too.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

PATIENCE_S = 20.0
ROOT = Path(__file__).parent.parent.parent


class Hangs(AssertionError):
    """No answer came."""


class Failed(AssertionError):
    """What was told raised; `is_typed` says whether it was an error of ours."""

    def __init__(self, text: str, is_typed: bool) -> None:
        super().__init__(text)
        self.is_typed = is_typed


class Actor:
    """A process of its own, told what to do."""

    def __init__(self, *wrapper: str, setup: str = "") -> None:
        command = [sys.executable, "-m", "tests.ladder.actor"]
        if setup:
            command = ["sh", "-c", f"{setup} && exec {shlex.join(command)}"]
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self.process = subprocess.Popen(
            [*wrapper, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
            env=environment,
        )  # fmt: skip
        self.pid = 0
        self.rest = b""

    def __enter__(self) -> Actor:
        self.pid = int(self.answer())
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def tell(self, do: str, **known: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps({"do": do, **known}) + "\n").encode())
        self.process.stdin.flush()

    def answer(self, patience_s: float = PATIENCE_S) -> Any:
        assert self.process.stdout is not None
        while b"\n" not in self.rest:
            waiting = select.poll()  # Not `select`, which knows no descriptor above 1023.
            waiting.register(self.process.stdout, select.POLLIN)
            if not waiting.poll(patience_s * 1000):
                raise Hangs(f"no answer within {patience_s:g} s")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                raise Failed(f"the process ended with {self.process.wait()}", is_typed=False)
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        known = json.loads(line)
        if "error" in known:
            raise Failed(known["error"], known["is_typed"])
        return known["ok"]

    def ask(self, do: str, **known: Any) -> Any:
        self.tell(do, **known)
        return self.answer()

    def __getattr__(self, name: str) -> Any:
        return lambda **known: self.ask(name, **known)


def waits_in_a_lock(thread: threading.Thread) -> bool:
    """Whether it sleeps in the kernel, in a call for a lock or a short sleep between two tries."""
    if not thread.is_alive():
        return True
    with contextlib.suppress(OSError):
        task = Path(f"/proc/self/task/{thread.native_id}")
        words = (task / "syscall").read_text().split()
        return words[0] in ("72", "35", "230", "202")  # fcntl, the two nanosleeps, futex
    return False


class Alarm(Exception):
    """What the signal handler raises."""


class Stage:
    """The other side: one queue, one group, and what it was told."""

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.queue: Any = None
        self.bound: Any = None

    def open(self, path: str, **options: Any) -> int:
        import penstock

        self.queue = penstock.Queue(path, **options)
        self.bound = self.queue.put
        return 0

    def put(self, name: str, first: int, count: int, size: int = 40) -> int:
        for number in range(first, first + count):
            self.queue.put(f"{name}-{number:06d}-".encode() + b"x" * size)
        return count

    def get(
        self, group: str = "default", count: int = 1, timeout: float = 0.0, ack: bool = True,
        **options: Any,
    ) -> list[str]:  # fmt: skip
        found = self.queue.group(group, **options).get_many(count, timeout)
        self.held = [] if ack else found
        for message in found if ack else ():
            message.ack()
        return [message.body.decode().rpartition("-")[0] for message in found]

    def ack(self) -> int:
        for message in self.held:
            message.ack()
        return len(self.held)

    def scan(self) -> list[str]:
        return [message.body.decode().rpartition("-")[0] for message in self.queue.scan()]

    def verify(self) -> list[str]:
        verdict = self.queue.verify()
        return [str(damage) for damage in verdict.corrupt]

    def close(self) -> int:
        self.queue.close()
        return 0

    def become(self, user: int, umask: int = -1) -> int:
        """Everything is imported before: the user may not be allowed to read the code."""
        import penstock.engine.queue  # noqa: F401
        from penstock.formats import registry

        for format in ("penstock", "zbus", "beats", "vqs", "mfq"):
            registry.format_class(format)
        if umask >= 0:
            os.umask(umask)
        os.setgid(user)
        os.setuid(user)
        return os.getuid()

    def open_in_a_thread(self, path: str, **options: Any) -> int:
        self.thread = threading.Thread(target=self.open, args=(path,), kwargs=options)
        self.thread.start()
        while not waits_in_a_lock(self.thread):
            self.thread.join(0.001)
        return 0

    def fork_a_child(self) -> int:
        """A worker that has nothing to do with the queue."""
        pid = os.fork()
        if not pid:
            os.close(0)
            os.close(1)
            signal.pause()
            os._exit(0)
        return pid

    def join(self) -> int:
        self.thread.join()
        return 0

    def exec(self) -> int:
        """Becomes another program, which knows nothing of the queue."""
        os.write(1, b'{"ok": 0}\n')
        os.execvp("sleep", ["sleep", "60"])

    def put_in_a_child_that_dies(self, tries: int) -> int:
        """A bound method, kept over a fork; the child is killed in its midst each time."""
        for turn in range(tries):
            pid = os.fork()
            if not pid:
                with contextlib.suppress(BaseException):
                    while True:
                        self.bound(b"child-000000-")
                os._exit(0)
            select.select([], [], [], 0.001 + turn % 7 * 0.0005)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return tries

    def interrupted(self, rounds: int, seed: int) -> dict[str, int]:
        """An alarm that raises at a random instant of every call."""
        import random

        import penstock

        def ring(*_: object) -> None:
            raise Alarm

        signal.signal(signal.SIGALRM, ring)
        rng, put, rings = random.Random(seed), 0, 0
        for turn in range(rounds):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(20e-6, 600e-6))
                if turn % 5 == 3:
                    for message in self.queue.group("default").get_many(3, 0):
                        message.ack()
                elif turn % 5 == 4:
                    self.queue.group(f"g{turn % 3}").get_many(1, 0.001)
                else:
                    self.queue.put(b"rung-000000-" + b"y" * 3000)
                    put += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                rings += 1
            except penstock.Empty:
                pass
            with contextlib.suppress(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0)
        return {"put": put, "rings": rings}

    def put_for_ever(self) -> int:
        os.write(1, b'{"ok": 0}\n')
        while True:
            self.queue.put(b"ever-000000-" + b"z" * 500)


def main() -> None:
    import penstock

    stage = Stage()
    os.write(1, f'{{"ok": {os.getpid()}}}\n'.encode())
    for line in sys.stdin:
        known = json.loads(line)
        do = known.pop("do")
        try:
            answer: dict[str, Any] = {"ok": getattr(stage, do)(**known)}
        except (Exception, KeyboardInterrupt) as error:
            is_typed = isinstance(error, penstock.PenstockError | KeyboardInterrupt)
            answer = {"error": f"{type(error).__name__}: {error}", "is_typed": is_typed}
        os.write(1, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()
