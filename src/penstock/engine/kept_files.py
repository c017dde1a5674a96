"""Small files that count: a damaged one is never taken for one that is missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.disk import files
from penstock.errors import FormatError


def read(path: Path, kind: str, advice: str) -> dict[str, Any] | None:
    """The value of the file; none where there is none.

    Who went on with a new value instead would write over what can still be saved.
    """
    found = files.read_json(path)
    if found is None and os.path.lexists(path):
        raise FormatError(path, f"no {kind}: it is damaged, or penstock did not write it", advice)
    return found
