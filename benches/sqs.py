"""The SQS endpoint under load, beside other servers: 32 connections, messages of 1 KiB.

`benches/sqs_driver` (Go) asks and counts; ours verifies signatures and syncs before it answers, as
it does by default. The others come from PyPI, npm and Maven Central into build/sqs-peers, where
their tools are (pip, npm, mvn); those that can't be installed are left out. Each runs alone, in
turn, with the driver on the same cores. A queue stays as quick with a million messages in it, and
with a hundred thousand in flight: the last rows show it.

With `--quick` there are no others, and fewer messages. Without it the table of docs/howto/sqs.md is
written anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.harness import Row, scratch, shown

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PEERS = BUILD / "sqs-peers"
PAGE = ROOT / "docs" / "howto" / "sqs.md"
KINDS = {
    "send": "send",
    "receive": "receive and delete",
    "send10": "send, 10 at once",
    "receive10": "receive and delete, 10 at once",
}
GOALS = {"send": 10_000, "receive": 5_000, "send10": 50_000, "receive10": 50_000}
"""Messages a second, durable, on two cores that the driver shares."""
BACKLOG, IN_FLIGHT = 1_000_000, 100_000
FLAT = 0.7
"""What must be left of the rate of an empty queue; runs of the same differ by as much."""
ROUNDS = 2
OURS = "penstock"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><dependencies><dependency>
<groupId>org.elasticmq</groupId><artifactId>elasticmq-server_2.13</artifactId>
<version>1.7.1</version></dependency></dependencies></project>
"""


@dataclass(frozen=True)
class Peer:
    """Another server."""

    name: str
    is_durable: bool
    command: tuple[str, ...]
    """With {port}, {data} (a folder) and {peers} to be filled in."""
    environment: dict[str, str] = field(default_factory=dict)
    messages: int = 10_000


NODE = (
    "{peers}/fauxqs/node_modules/.bin/node",
    "{peers}/fauxqs/node_modules/fauxqs/dist/server.js",
)
ELASTICMQ = (
    "java", "-Drest-sqs.bind-port={port}", "-Dnode-address.port={port}",
    "-Drest-sqs.bind-hostname=127.0.0.1",
)  # fmt: skip
ELASTICMQ_MAIN = ("-cp", "{peers}/elasticmq/jars/*", "org.elasticmq.server.Main")
FAUXQS = {"FAUXQS_PORT": "{port}", "FAUXQS_LOGGER": "false"}
OTHERS = (
    Peer(
        "moto 5.2.5", False, ("{peers}/python/bin/moto_server", "-H", "127.0.0.1", "-p", "{port}"),
        messages=200,
    ),
    Peer(
        "MiniStack 1.5.33", False, ("{peers}/python/bin/ministack",), {"GATEWAY_PORT": "{port}"},
        messages=3_000,
    ),
    Peer("fauxqs 2.4.1", False, NODE, FAUXQS),
    Peer(
        "fauxqs 2.4.1, SQLite", True, NODE,
        FAUXQS | {"FAUXQS_DATA_DIR": "{data}", "FAUXQS_PERSISTENCE": "true"}, messages=2_000,
    ),
    Peer("ElasticMQ 1.7.1", False, (*ELASTICMQ, *ELASTICMQ_MAIN)),
    Peer(
        "ElasticMQ 1.7.1, H2", True,
        (
            *ELASTICMQ, "-Dmessages-storage.enabled=true",
            "-Dmessages-storage.uri=jdbc:h2:{data}/h2", *ELASTICMQ_MAIN,
        ),
        messages=3_000,
    ),
)  # fmt: skip


def install() -> None:
    """The other servers, once. What fails is left out, and said."""
    PEERS.mkdir(parents=True, exist_ok=True)
    python, fauxqs, elasticmq = PEERS / "python", PEERS / "fauxqs", PEERS / "elasticmq"
    steps: list[tuple[Path, list[list[str]]]] = [
        (python / "bin" / "ministack", [
            [sys.executable, "-m", "venv", str(python)],
            [str(python / "bin/python"), "-m", "pip", "install", "--quiet", "moto[server]==5.2.5",
             "ministack==1.5.33"],
        ]),
        (fauxqs / "node_modules" / "fauxqs", [
            ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(fauxqs),
             "fauxqs@2.4.1", "node@22"],
        ]),
        (elasticmq / "jars", [
            ["mvn", "-q", "-B", "-f", str(elasticmq / "pom.xml"), "dependency:copy-dependencies",
             f"-DoutputDirectory={elasticmq / 'jars'}"],
        ]),
    ]  # fmt: skip
    for folder in (fauxqs, elasticmq):
        folder.mkdir(exist_ok=True)
    (elasticmq / "pom.xml").write_text(POM)
    for made, commands in steps:
        if not made.exists():
            try:
                for command in commands:
                    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"  sqs: not installed: {error}", file=sys.stderr)


def driver() -> Path:
    """The driver, built."""
    source, made = Path(__file__).parent / "sqs_driver" / "main.go", BUILD / "sqs_driver"
    if shutil.which("go") is None:
        raise SystemExit("python -m benches sqs: needs Go, for a driver that is not the limit")
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(exist_ok=True)
        subprocess.run(["go", "build", "-o", str(made), str(source)], check=True)
    return made


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    port: int
    pid: int
    key: str = "test"
    secret: str = "test"

    def drive(self, kind: str, messages: int, queue: str = "bench") -> dict[str, Any]:
        """One run of the driver."""
        ran = subprocess.run(
            [
                str(driver()), "-address", f"127.0.0.1:{self.port}", "-pids", str(self.pid),
                "-key", self.key, "-secret", self.secret, "-kind", kind, "-queue", queue,
                "-messages", str(messages),
            ],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    def best(self, kind: str, messages: int, queue: str = "bench") -> dict[str, Any]:
        """The best of some runs: other load on the machine only ever adds."""
        runs = [self.drive(kind, messages, queue) for _ in range(ROUNDS)]
        return max(runs, key=lambda run: float(run["rate"]))

    def all_kinds(self, messages: int) -> dict[str, dict[str, Any]]:
        """Sends first what is received then, so that a queue is never deep."""
        self.drive("send", max(messages // 4, 200))
        self.drive("receive", max(messages // 4, 200))
        return {
            kind: self.best(kind, messages * (5 if kind.endswith("10") else 1)) for kind in KINDS
        }

    def answered(self, messages: int) -> dict[str, dict[str, Any]]:
        """The same of a server that may fail under load: what fails is none."""
        found = {}
        for kind in KINDS:
            try:
                found[kind] = self.best(kind, messages)
            except subprocess.CalledProcessError:
                found[kind] = {"rate": 0.0, "server_us": 0.0, "p99_ms": 0.0}
        return found


@contextmanager
def ours(root: Path) -> Iterator[Served]:
    """Our endpoint, as `penstock serve` runs it."""
    command = [sys.executable, "-m", "penstock.sqs", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said: dict[str, str] = {}
        while "AWS_SECRET_ACCESS_KEY" not in said:
            name, _, value = process.stdout.readline().strip().partition("=")
            said[name.removeprefix("export ")] = value
        port = int(said["AWS_ENDPOINT_URL_SQS"].rpartition(":")[2])
        pair = said["AWS_ACCESS_KEY_ID"], said["AWS_SECRET_ACCESS_KEY"]
        try:
            yield Served(port, process.pid, *pair)
        finally:
            process.terminate()


@contextmanager
def theirs(peer: Peer, data: Path) -> Iterator[Served]:
    """Another server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    known = {"port": str(port), "data": str(data), "peers": str(PEERS)}
    command = [word.format(**known) for word in peer.command]
    more = {name: value.format(**known) for name, value in peer.environment.items()}
    with subprocess.Popen(
        command, env=os.environ | more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield Served(port, process.pid)
        finally:
            process.kill()


def run(quick: bool) -> Iterator[Row]:
    """Rows of ours with their goals, those of the others, and those of deep queues."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with scratch() as folder, ours(folder) as served:
        found[OURS] = served.all_kinds(1_000 if quick else 20_000)
    if not quick:
        install()
        for peer in OTHERS:
            if (kinds := measured(peer)) is not None:
                found[peer.name] = kinds
    rivals = [one.name for one in OTHERS if one.is_durable or one.name.startswith("ElasticMQ")]
    for kind, case in KINDS.items():
        mine = found[OURS][kind]
        note = f"{mine['server_us']:.0f} us of CPU; p99 {mine['p99_ms']:.1f} ms"
        yield Row(case=case, ours=mine["rate"], unit="msg/s", goal=GOALS[kind], note=note)
        beside = {name: found[name][kind]["rate"] for name in rivals if name in found}
        if beside:
            name = max(beside, key=lambda one: beside[one])
            yield Row(
                case=f"{case}, beside the fastest durable one, and ElasticMQ", ours=mine["rate"],
                unit="msg/s", peer=name, peer_value=beside[name], ratio_goal=1.0,
            )  # fmt: skip
        for name, kinds in found.items():
            if name != OURS:
                one = kinds[kind]
                note = f"{one['server_us']:.0f} us of CPU; p99 {one['p99_ms']:.1f} ms"
                note = note if one["rate"] else "it fails under this load"
                yield Row(case=f"{case}: {name}", ours=one["rate"], unit="msg/s", note=note)
    yield from deep(quick)


def measured(peer: Peer) -> dict[str, dict[str, Any]] | None:
    """All kinds of another server; none if it does not run here."""
    with scratch() as data:
        try:
            with theirs(peer, data) as served:
                served.drive("send", peer.messages // 4)
                served.drive("receive", peer.messages // 4)
                return served.answered(peer.messages)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"  sqs: {peer.name} is left out: {error}", file=sys.stderr)
            return None


def deep(quick: bool) -> Iterator[Row]:
    """The same with much in the queue, and with much in flight."""
    backlog, in_flight, count = (20_000, 2_000, 2_000) if quick else (BACKLOG, IN_FLIGHT, 50_000)
    with scratch() as folder, ours(folder) as served:
        for queue in ("shallow", "deep"):
            served.drive("send10", 10, queue)
        fill(folder / "shallow", count * 2 * ROUNDS)
        kinds = {"receive10": KINDS["receive10"], "send": KINDS["send"]}
        shallow = {kind: served.best(kind, count, "shallow")["rate"] for kind in kinds}
        fill(folder / "deep", backlog)
        for kind, case in kinds.items():
            yield Row(
                case=f"{case}, {backlog:,} in the queue", unit="msg/s",
                ours=served.best(kind, count, "deep")["rate"],
                peer="an empty one", peer_value=shallow[kind], ratio_goal=FLAT,
            )  # fmt: skip
        served.drive("lease10", in_flight, "deep")
        for kind, case in kinds.items():
            yield Row(
                case=f"{case}, {in_flight:,} in flight", unit="msg/s",
                ours=served.best(kind, count, "deep")["rate"],
                peer="an empty one", peer_value=shallow[kind], ratio_goal=FLAT,
            )  # fmt: skip


def fill(path: Path, count: int) -> None:
    """Puts messages as a program of this host would."""
    from penstock import Queue

    with Queue(path, create=False) as queue:
        for _ in range(count // 1000):
            queue.put_many([b"x" * 1024] * 1000)
        queue.sync()


def publish(rows: list[Row], about: dict[str, Any]) -> None:
    """Writes the table of the page anew."""
    by_case = {row.case: row for row in rows}
    named = [OURS, *(peer.name for peer in OTHERS if f"{KINDS['send']}: {peer.name}" in by_case)]
    lines = [
        f"{about['cpu']}, {about['cores']} cores that the driver shares, Python "
        f"{about['python']}, load {about['load_1min']} before, {about['when'][:10]}; messages a "
        "second:",
        "",
        f"| server | on the disk | {' | '.join(KINDS.values())} |",
        f"| --- | --- |{' ---: |' * len(KINDS)}",
    ]
    durable = {OURS, *(peer.name for peer in OTHERS if peer.is_durable)}
    for name in named:
        cases = [case if name == OURS else f"{case}: {name}" for case in KINDS.values()]
        rates = [by_case[case].ours for case in cases]
        figures = " | ".join(f"{rate:,.0f}" if rate else "fails" for rate in rates)
        lines.append(f"| {name} | {'yes' if name in durable else 'no'} | {figures} |")
    lines += ["", "| | messages a second | of an empty queue |", "| --- | ---: | ---: |"]
    lines += [
        f"| {row.case} | {row.ours:,.0f} | {shown((row.ratio or 0) * 100)} % |"
        for row in rows
        if row.peer == "an empty one"
    ]
    text = re.sub(
        r"<!-- sqs -->\n.*?<!-- end -->",
        lambda _: "<!-- sqs -->\n" + "\n".join(lines) + "\n<!-- end -->",
        PAGE.read_text(),
        flags=re.DOTALL,
    )
    PAGE.write_text(text)
