"""Golden queues of zbus, and how what they say compares with what we say."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from penstock import Message
from tests.golden_data import GoldenCase, golden_cases

CASES = golden_cases("zbus")
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
OURS = {"doc000-literal": "doc000", "doc001-literal": "doc001", "corr-go": "corr"}
"""What sniffing calls a golden layout whose bytes do not tell it from another."""


def wanted_layout(case: GoldenCase) -> str:
    return OURS.get(case.layout, case.layout)


def asked_layout(case: GoldenCase) -> str | None:
    """What a user must say: the Go server's bytes are those of corr."""
    return "corr-go" if case.layout == "corr-go" else None


def as_expected(message: Message) -> dict[str, Any]:
    """A message in the words of `expected.json`."""
    assert message.timestamp_ns is not None
    body = message.body
    return {
        "offset": message.offset,
        "messageNumber": message.number,
        "id": message.id,
        "timestamp": message.timestamp_ns // 1_000_000,
        "corrOffset": int(message.headers.get("zbus.corr_offset", 0)),
        "tag": message.tag,
        "bodyLength": len(body),
        "body": hashlib.sha256(body).hexdigest(),
    }


def expected_messages(case: GoldenCase) -> list[dict[str, Any]]:
    """The same of the original; offsets count from the queue's beginning everywhere."""
    bases = {block["blockNumber"]: block["baseOffset"] for block in case.expected["blocks"]}
    rows = []
    for row in case.expected["messages"]:
        digest = row.get("bodySha256")
        if digest is None:
            digest = hashlib.sha256(base64.b64decode(row["body"] or "")).hexdigest()
        rows.append(
            {
                "offset": bases[row["blockNumber"]] + row["position"],
                "messageNumber": row["messageNumber"],
                "id": row["id"] or None,
                "timestamp": row["timestamp"],
                "corrOffset": row.get("corrOffset", 0),
                "tag": row["tag"] or None,
                "bodyLength": row["bodyLength"],
                "body": digest,
            }
        )
    return rows


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of the queue that is not ours, by its name in the folder."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in found
        if ".penstock" not in path.parts
    }
