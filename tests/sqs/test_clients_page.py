"""What the page tells users of other clients to write is what `make interop` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = {
    "AWS CLI": "command.py",
    "aiobotocore": "aio_client.py",
    "JavaScript, SDK v3": "client.mjs",
    "Celery, kombu": "celery_app.py",
}


@pytest.mark.parametrize("client", SCRIPTS)
def test_every_line_for_a_client_is_in_the_script_that_it_runs(client: str) -> None:
    page = (ROOT / "docs/howto/sqs.md").read_text()
    script = (ROOT / "tests/interop/sqs_suites" / SCRIPTS[client]).read_text()
    (row,) = re.findall(rf"^\| {client} \| (.*) \|$", page, re.MULTILINE)
    lines = re.findall(r"`([^`]+)`", row)
    assert lines
    assert all(line in script for line in lines)
