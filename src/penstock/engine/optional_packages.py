"""Libraries that penstock uses when they are there: none is needed for a queue."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.errors import MissingExtraError


def load(module: str, extra: str, purpose: str) -> Any:
    """The module; when it is not installed, an error that says what to install for `purpose`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != name:
            raise
        raise MissingExtraError(name, extra, purpose) from error
