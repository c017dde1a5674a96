"""Libraries that penstock uses when they are there: none is needed for a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from penstock.errors import MissingExtraError


@contextmanager
def needed(module: str, extra: str, purpose: str) -> Iterator[None]:
    """A context in which `module` is imported. Where it is not installed, the error says which
    `extra` to install for `purpose`."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != name:
            raise
        raise MissingExtraError(name, extra, purpose) from error


def load(module: str, extra: str, purpose: str) -> Any:
    """Imports a module that is `needed`."""
    with needed(module, extra, purpose):
        return import_module(module)
