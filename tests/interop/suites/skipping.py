"""What does not apply, and why: said in the report of each run."""

from __future__ import annotations

import re

import pytest


def skip(items: list[pytest.Item], reasons: dict[str, str]) -> None:
    for item in items:
        for pattern, reason in reasons.items():
            if re.search(pattern, item.nodeid):
                item.add_marker(pytest.mark.skip(reason=reason))
                break
