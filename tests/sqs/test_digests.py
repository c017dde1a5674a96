"""Digests of attributes, against vectors that other implementations publish."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.sqs import digests

VECTORS = json.loads((Path(__file__).parent / "md5-vectors.json").read_text())["vectors"]


def as_sent(attribute: dict[str, str]) -> dict[str, str]:
    text = attribute.get("BinaryValueUtf8")
    if text is None:
        return attribute
    raw = base64.b64encode(text.encode()).decode()
    return {"DataType": attribute["DataType"], "BinaryValue": raw}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["md5"]))
def test_a_digest_is_what_others_compute(vector: dict[str, Any]) -> None:
    given = {name: as_sent(one) for name, one in vector["attributes"].items()}
    check = digests.checked_system if vector.get("system") else digests.checked
    assert digests.digest(check(given)) == vector["md5"]
