"""`python -m tests.interop.suites [names]`: runs other projects' own tests against penstock.

Their source distributions are fetched in the pinned versions and unpacked under build/interop/;
what does not apply is skipped, and each run ends with the reasons. It needs the packages of
requirements.txt beside this file; `make interop` sees to that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build" / "interop"


@dataclass(frozen=True)
class Suite:
    """Tests of one project."""

    source: str
    tests: tuple[str, ...]
    added: tuple[tuple[str, str], ...] = ()
    """Files of ours that are put among theirs."""


SUITES = {
    "kombu": Suite(
        "kombu==5.7.0",
        (
            "test_on_penstock.py", "t/unit/transport/test_memory.py",
            "t/unit/transport/test_filesystem.py", "t/unit/transport/virtual",
        ),
        added=(("kombu_common.py", "test_on_penstock.py"),),
    ),
    "celery": Suite(
        "celery==5.7.0",
        (
            "t/integration/test_inspect.py", "t/integration/test_tasks.py",
            "t/integration/test_canvas.py", "t/integration/test_group_chains.py",
        ),
    ),
    "dramatiq": Suite(
        "dramatiq==2.2.1",
        tuple(
            f"tests/test_{name}.py"
            for name in
            ("actors", "callbacks", "composition", "generic_actors", "messages", "worker")
        ),
        added=(("dramatiq_common.py", "tests/common.py"), ("__init__.py", "tests/__init__.py")),
    ),
    "taskiq": Suite(
        "taskiq==0.13.0",
        ("tests/depends", "tests/test_exceptions_flow.py", "tests/test_retry_task.py",
         "tests/test_requeue.py", "tests/middlewares/test_task_retry.py"),
    ),
    "huey": Suite(
        "huey==3.5.4", ("test_on_penstock.py",), added=(("huey_storage.py", "test_on_penstock.py"),)
    ),
}  # fmt: skip


def fetch(source: str) -> Path:
    """The unpacked source distribution, fetched once."""
    folder = BUILD / source.replace("==", "-")
    if not folder.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--no-binary", ":all:", "--dest", str(BUILD), source], check=True)
        with tarfile.open(folder.with_name(folder.name + ".tar.gz")) as archive:
            archive.extractall(BUILD, filter="data")
    return folder


def run(name: str, more: list[str]) -> int:
    """Runs one suite; pytest's exit code."""
    suite = SUITES[name]
    folder = fetch(suite.source)
    for name_here, theirs in suite.added:
        (folder / theirs).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / name_here, folder / theirs)
    # Under another name: some of them have a package `tests` of their own.
    shutil.copytree(HERE, folder / "penstock_suites", dirs_exist_ok=True)
    has_plugin = (HERE / f"on_{name}.py").exists()
    plugin = ["-p", f"penstock_suites.on_{name}"] if has_plugin else []
    with tempfile.TemporaryDirectory(prefix="interop-", ignore_cleanup_errors=True) as broker:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(folder)]),
            "TEST_BROKER": f"penstock://{broker}",
            "TEST_BACKEND": f"penstock+file://{broker}",
        }
        command = [
            sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *plugin,
            "-c", os.devnull, f"--rootdir={folder}", "-o", "python_classes=test_* Test*",
            "-o", "anyio_mode=auto", "-W", "ignore", "--timeout=120", "--tb=short",
            # A test that gives itself half a second, or 20, gets another try on a busy machine.
            "--reruns=3", "--only-rerun=monotonic", "--only-rerun=Timeout", *more,
            *suite.tests,
        ]  # fmt: skip
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    names = [name for name in arguments if name in SUITES] or list(SUITES)
    more = [word for word in arguments if word not in SUITES]
    codes = {}
    for name in names:
        print(f"── {name}", flush=True)
        codes[name] = run(name, more)
    print(
        ", ".join(f"{name}: {'passed' if code == 0 else 'FAILED'}" for name, code in codes.items())
    )
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
