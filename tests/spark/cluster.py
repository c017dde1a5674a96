"""A standalone cluster on this machine: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

EXECUTOR = "CoarseGrainedExecutorBackend"
LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVMs that live for a minute are not worth compiling for."""


def lean_home(folder: Path) -> Path:
    """Spark without its zip of PySpark, which every Python process would compile anew.

    Spark waits ten seconds for a new process, which on a busy machine is not long.
    """
    import pyspark

    home = folder / "home"
    home.mkdir()
    for part in ("bin", "jars"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    return home


@dataclass(frozen=True)
class Cluster:
    """Where it is, and the processes that it consists of."""

    url: str
    daemons: tuple[subprocess.Popen[bytes], ...]

    def executors(self) -> list[int]:
        """The processes of the executors, which the workers started."""
        ours, found = {daemon.pid for daemon in self.daemons}, []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if parent in ours and EXECUTOR.encode() in command:
                found.append(int(entry.name))
        return sorted(found)


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster with two cores in two executors; gone afterwards."""
    with ExitStack() as stack:
        master = stack.enter_context(_daemon(folder, "master", "master.Master", "--port", "0"))
        url = _said(folder / "master.log", rb"Starting Spark master at (spark://\S+)", master)
        workers = [
            stack.enter_context(
                _daemon(folder, f"worker{n}", "worker.Worker", "--cores", "1", "--memory", "1g",
                        "--work-dir", str(folder / f"work{n}"), url)
            )
            for n in range(2)
        ]  # fmt: skip
        for number, worker in enumerate(workers):
            _said(folder / f"worker{number}.log", rb"(Successfully registered)", worker)
        yield Cluster(url, (master, *workers))


@contextmanager
def _daemon(folder: Path, name: str, kind: str, *rest: str) -> Iterator[subprocess.Popen[bytes]]:
    import pyspark

    from penstock.spark import java

    java.ensure()
    home = Path(pyspark.__file__).parent
    (folder / "log4j2.properties").write_text(LOG)
    environment = os.environ | {
        "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": f"{LEAN} -Dlog4j2.configurationFile={folder}/log4j2.properties",
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
    command += ["--host", "127.0.0.1", "--webui-port", "0", *rest]
    with (folder / f"{name}.log").open("wb") as log:
        daemon = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield daemon
    finally:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


LOG = """
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
"""


def _said(log: Path, pattern: bytes, daemon: subprocess.Popen[bytes]) -> str:
    """What a daemon's log says, once it does: its output is followed by `tail`, not by sleeping."""
    with subprocess.Popen(
        ["tail", "-c", "+1", "-f", f"--pid={daemon.pid}", str(log)], stdout=subprocess.PIPE
    ) as tail:
        assert tail.stdout is not None
        for line in tail.stdout:
            if found := re.search(pattern, line):
                tail.kill()
                return found[1].decode()
    raise AssertionError(f"{log.name} ended: {log.read_text()[-2000:]}")
