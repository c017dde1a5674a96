"""The fixture that pytest finds by itself where penstock is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TEST = """
import urllib.request

def test_the_endpoint_answers(sqs_endpoint):
    with urllib.request.urlopen(sqs_endpoint.url + "/health") as answer:
        assert answer.status == 200
"""


def test_a_test_of_a_user_gets_an_endpoint(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(TEST)
    named = ["-p", "penstock.sqs.fixture", "-p", "no:cacheprovider"]
    line = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", *named, str(tmp_path)]
    # By its module's name alone: where penstock is installed, it would be found a second time.
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=alone, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_loading_the_fixture_loads_no_server() -> None:
    code = "import sys, penstock.sqs.fixture; assert 'httptools' not in sys.modules; "
    code += "assert 'penstock.sqs.serving' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
