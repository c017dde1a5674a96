"""`python -m tests.interop.sqs_suites [names]`: other projects' SQS tests against our endpoint.

Each suite has an environment of its own under build/interop-sqs/: their pins differ. The endpoint
runs from the environment that runs this, on the port that some of these tests have written down.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build" / "interop-sqs"
PORT = 5000
URL = f"http://localhost:{PORT}"


@dataclass(frozen=True)
class Suite:
    """Tests of one project, or a script of ours that one client runs."""

    packages: tuple[str, ...]
    command: tuple[str, ...]
    source: str | None = None
    """The source distribution with the tests in it."""
    environment: tuple[tuple[str, str], ...] = ()
    added: tuple[tuple[str, str], ...] = ()
    """Files of ours that are put among theirs."""
    edited: tuple[tuple[str, str, str], ...] = ()
    """Files of theirs in which one text takes the place of another."""
    is_signed: bool = False
    """The endpoint wants signatures, and what it prints is in the environment."""


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--timeout", "60")
KEYS = (
    ("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"),
    ("AWS_DEFAULT_REGION", "us-east-1"),
)  # fmt: skip
SUITES = {
    "kombu": Suite(
        ("kombu[sqs]==5.7.0", "pytest", "pytest-timeout", "pytest-rerunfailures"),
        # Fan-out needs SNS; the other two are about an error that Amazon does not answer.
        (*PYTEST, "-W", "ignore", "t/integration/test_sqs.py", "-k",
         "not test_fanout and not test_ack_invalid_receipt_with_backoff"),
        source="kombu==5.7.0",
        environment=(("SQS_HOST", "localhost"), ("SQS_PORT", str(PORT)), *KEYS),
    ),
    "moto": Suite(
        ("moto[server]==5.2.5", "boto3", "pytest", "pytest-timeout", "freezegun"),
        (*PYTEST, "tests/test_sqs/test_sqs.py", "tests/test_sqs/test_sqs_message_attributes.py"),
        source="moto==5.2.5",
        environment=(
            ("TEST_SERVER_MODE", "true"), ("TEST_SERVER_MODE_ENDPOINT", URL),
            ("MOTO_CALL_RESET_API", "false"), *KEYS,
        ),
        added=(("moto_conftest.py", "tests/test_sqs/conftest.py"),),
        # Six tests spell an attribute with a blank behind it, which no server may accept.
        edited=(("tests/test_sqs/test_sqs.py", '"VisibilityTimeout "', '"VisibilityTimeout"'),),
    ),
    "taskiq": Suite(
        ("taskiq-aio-sqs==2.1.1", "pytest~=8.3.3", "pytest-asyncio~=0.24.0", "pytest-timeout",
         "types_aiobotocore[s3,sqs]"),
        # Those that keep results, or large messages, in S3 need S3.
        (*PYTEST, "-o", "asyncio_mode=auto", "tests", "--ignore", "tests/test_backend.py", "-k",
         "not bypasses_batching and not test_kick_large_message and not listen_extended_message"),
        source="taskiq-aio-sqs==2.1.1",
        edited=(("tests/conftest.py", "http://localhost:4566", URL),),
    ),
    "botocore-query": Suite(
        ("botocore==1.31.80", "boto3==1.28.80"), (str(HERE / "client.py"), "query"),
        is_signed=True,
    ),
    "botocore-json": Suite(
        ("botocore==1.43.117", "boto3==1.43.117"), (str(HERE / "client.py"), "json"),
        is_signed=True,
    ),
    "aiobotocore": Suite(("aiobotocore>=2.13",), (str(HERE / "aio_client.py"),), is_signed=True),
    "aws-cli": Suite(("awscli>=1.44",), (str(HERE / "command.py"),), is_signed=True),
    "celery": Suite(
        ("celery[sqs]==5.7.0", "kombu[sqs]==5.7.0"), (str(HERE / "celery_worker.py"),),
        is_signed=True,
    ),
}  # fmt: skip


JAVASCRIPT = ("npm", "install", "--silent", "--no-fund", "--no-audit", "@aws-sdk/client-sqs@3")


def run_javascript() -> int:
    """The SDK for JavaScript, where there is a Node to run it."""
    if shutil.which("npm") is None:
        print("skipped: no npm here")
        return 0
    folder = BUILD / "javascript"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "client.mjs", folder)
    if not (folder / "node_modules").exists():
        subprocess.run(JAVASCRIPT, cwd=folder, check=True)
    with served(is_signed=True) as said:
        return subprocess.run(
            ["node", "client.mjs"], cwd=folder, env=os.environ | said, check=False
        ).returncode


def prepared(name: str, suite: Suite) -> Path:
    """The suite's folder, with its environment and its tests in it; made once."""
    folder = BUILD / name
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
        pip = [str(folder / "env/bin/python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", *suite.packages], check=True)
        if suite.source is not None:
            fetch(pip, suite.source, folder)
        (folder / "ready").touch()
    tests = tests_of(folder, suite)
    for ours, theirs in suite.added:
        shutil.copy(HERE / ours, tests / theirs)
    for path, before, after in suite.edited:
        (tests / path).write_text((tests / path).read_text().replace(before, after))
    return folder


def fetch(pip: list[str], source: str, folder: Path) -> None:
    download = ["download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, *download, "--dest", str(folder), source], check=True)
    (archive_path,) = folder.glob("*.tar.gz")
    with tarfile.open(archive_path) as archive:
        archive.extractall(folder, filter="data")
    next(path for path in folder.iterdir() if path.is_dir() and path.name != "env").rename(
        folder / "source"
    )


def tests_of(folder: Path, suite: Suite) -> Path:
    return folder if suite.source is None else folder / "source"


@contextmanager
def served(*, is_signed: bool) -> Iterator[dict[str, str]]:
    """Our endpoint, as a process; answers what it says that a client needs."""
    with tempfile.TemporaryDirectory(prefix="interop-", ignore_cleanup_errors=True) as root:
        command = [sys.executable, "-m", "penstock.sqs", root, "--relaxed", "--port", str(PORT)]
        path = {"PYTHONPATH": str(ROOT / "src")}
        with subprocess.Popen(
            command if is_signed else [*command, "--no-auth"], stdout=subprocess.PIPE, text=True,
            env=os.environ | path,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            said: dict[str, str] = {}
            while "AWS_SECRET_ACCESS_KEY" not in said:
                line = process.stdout.readline()
                assert line, "it ended"
                name, _, value = line.strip().removeprefix("export ").partition("=")
                said[name] = value
            try:
                yield {name: value for name, value in said.items() if name.startswith("AWS_")}
            finally:
                process.terminate()


def run(name: str) -> int:
    """Runs one suite; its exit code."""
    suite = SUITES[name]
    folder = prepared(name, suite)
    environment = {key: one for key, one in os.environ.items() if key != "PYTHONPATH"}
    binaries = folder / "env" / "bin"
    environment |= {"PATH": f"{binaries}:{environment['PATH']}", **dict(suite.environment)}
    command = [str(binaries / "python"), *suite.command]
    with served(is_signed=suite.is_signed) as said:
        if suite.is_signed:
            environment |= said
        return subprocess.run(
            command, cwd=tests_of(folder, suite), env=environment, check=False
        ).returncode


def main(names: list[str]) -> int:
    codes = {}
    for name in names or [*SUITES, "javascript"]:
        print(f"── {name}, over SQS", flush=True)
        codes[name] = run_javascript() if name == "javascript" else run(name)
    print(
        ", ".join(f"{name}: {'passed' if code == 0 else 'FAILED'}" for name, code in codes.items())
    )
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
