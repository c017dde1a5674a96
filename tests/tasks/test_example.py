"""The shop of examples/celery_app: started as its page says, and looked at by Flower."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("celery")

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "celery_app"


@contextmanager
def celery(environment: dict[str, str], *words: str) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "shop", *words]
    with subprocess.Popen(
        command, cwd=SHOP, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as found:
        try:
            yield
        finally:
            found.terminate()


@pytest.mark.slow
def test_the_shop_runs_with_two_commands(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(ROOT / "src"), str(SHOP)])
    environment = os.environ | {
        "PYTHONPATH": paths, "SHOP_JOBS": str(tmp_path / "jobs"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    with celery(environment, "worker", "--events", "-c", "2"):
        found = subprocess.run(
            [sys.executable, "-m", "shop", "20"], cwd=SHOP, env=environment, check=True,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert "'orders': 20, 'income': 241" in found.stdout
        pytest.importorskip("flower")
        seen = environment | {"FLOWER_UNAUTHENTICATED_API": "1"}
        with celery(seen, "flower", "--port=5598"):
            assert "celery@" in page("http://localhost:5598/api/workers?refresh=1")


def page(url: str) -> str:
    """What a server answers, once it does."""
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                text: str = answer.read().decode()
                if "celery@" in text:
                    return text
        except OSError:
            subprocess.run([sys.executable, "-c", "pass"], check=True)  # It is starting.
    return ""
