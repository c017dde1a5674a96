"""The shop of examples/celery_app: started as its page says, and looked at by Flower."""

from __future__ import annotations

import json
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
API = "http://localhost:5598/api"


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
            workers = json.loads(page("workers?refresh=1", "celery@"))
            [name] = workers
            assert "shop.orders.ship" in workers[name]["registered"]
            subprocess.run(
                [sys.executable, "-m", "shop", "1"], cwd=SHOP, env=environment, check=True,
                capture_output=True, timeout=120,
            )  # fmt: skip
            assert "SUCCESS" in page("tasks?taskname=shop.orders.ship", "SUCCESS")
            grown = urllib.request.Request(f"{API}/worker/pool/grow/{name}?n=1", method="POST")
            with urllib.request.urlopen(grown, timeout=60) as answer:
                assert "Growing" in answer.read().decode()


def page(url: str, wanted: str) -> str:
    """What Flower answers, once it has `wanted`."""
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"{API}/{url}", timeout=30) as answer:
                text: str = answer.read().decode()
                if wanted in text:
                    return text
        except OSError:
            pass  # It is starting.
        subprocess.run([sys.executable, "-c", "pass"], check=True)
    return ""
