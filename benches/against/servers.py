"""Queues that are servers, and one that is Java: started for a round, in a folder of their own.

Redis and NATS are the programs of Debian, from the path or from `build/debian` (`make
bench-servers` unpacks the packages there, nothing is installed); Chronicle Queue comes from Maven
Central. What is missing is left out, with a word.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build" / "debian" / "usr"
RABBITMQ = "lib/rabbitmq/lib/*/sbin"
CHRONICLE = Path(__file__).parent / "chronicle"
JARS = ROOT / "build" / "chronicle"
START_S = 20.0


def program(name: str) -> str:
    """Where a server is; `ImportError`, as for a missing package, where it is nowhere."""
    found = shutil.which(name, path=environment()["PATH"])
    if found is None:
        raise ImportError(f"{name} is not installed")
    return found


def environment() -> dict[str, str]:
    """That of a server: it finds programs and libraries also where they were unpacked."""
    folders = ("bin", "sbin", "lib/erlang/bin")
    places = [os.environ.get("PATH", ""), *(str(UNPACKED / folder) for folder in folders)]
    # Before Debian's links to these scripts, which lead out of the folder.
    places[1:1] = map(str, UNPACKED.glob(RABBITMQ))
    libraries = [*map(str, UNPACKED.glob("lib/*-linux-gnu")), os.environ.get("LD_LIBRARY_PATH", "")]
    return dict(os.environ) | {
        "PATH": os.pathsep.join(places),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
    }


@contextmanager
def started(*command: str) -> Iterator[None]:
    """A server, until the block ends."""
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, env=environment(), stdout=quiet, stderr=quiet, stdin=quiet)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def patiently(connect: Callable[[], Any]) -> Any:
    """What `connect` answers, once the server is there."""
    end = time.monotonic() + START_S
    while True:
        try:
            return connect()
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def redis_list(*persistence: str) -> Callable[[Path], Any]:
    """A list, pushed to on one side and popped from on the other."""

    @contextmanager
    def opened(folder: Path) -> Iterator[tuple[Any, Any]]:
        import redis

        socket = str(folder / "redis.sock")
        options = ["--port", "0", "--unixsocket", socket, "--dir", str(folder), "--save", ""]
        with started(program("redis-server"), *options, *persistence):
            client = redis.Redis(unix_socket_path=socket)
            patiently(client.ping)
            yield lambda body: client.lpush("queue", body), lambda: client.rpop("queue")
            client.close()

    return opened


async def _silently(error: Exception) -> None:
    """While the server starts, nobody wants to read that it is not there."""


@contextmanager
def nats_stream(folder: Path) -> Iterator[tuple[Any, Any]]:
    """JetStream with a file store: publish and its answer, fetch and ack."""
    import nats

    port = str(20_000 + os.getpid() % 20_000)
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    with started(program("nats-server"), "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", port):
        address = f"nats://127.0.0.1:{port}"
        client = patiently(lambda: run(nats.connect(address, error_cb=_silently)))
        stream = client.jetstream()
        run(stream.add_stream(name="queue", subjects=["queue"]))
        consumer = run(stream.pull_subscribe("queue", durable="all"))

        async def get() -> None:
            (message,) = await consumer.fetch(1)
            await message.ack()

        yield lambda body: run(stream.publish("queue", body)), lambda: run(get())
        run(client.close())
    loop.close()


OPENED = [
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.util", "java.base/java.nio", "jdk.unsupported/sun.misc",
    "jdk.compiler/com.sun.tools.javac.file",
]  # fmt: skip
"""What Chronicle Queue wants to see of Java 17."""


def chronicle(folder: Path, count: int, size: int) -> dict[str, Any]:
    """Nanoseconds of an append and of a read in one thread, after a warm-up, and how the appends
    are spread. All of it happens in Java: its calls cost nothing like Python's."""
    if shutil.which("java") is None or not list(JARS.glob("chronicle-queue-*.jar")):
        raise ImportError("Chronicle Queue is not there (java, and `make bench-servers`)")
    opened = [
        f"--add-{kind}={name}=ALL-UNNAMED" for name in OPENED for kind in ("exports", "opens")
    ]
    found = subprocess.run(
        ["java", *opened, "-Dchronicle.analytics.disable=true", "-cp", f"{JARS}/*",
         str(CHRONICLE / "Bench.java"), str(folder / "queue"), str(count), str(size)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        raise RuntimeError(found.stderr[-500:])
    answer: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return answer
