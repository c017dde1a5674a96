"""Logging under `penstock.*`, loaded when there is something to say.

No handler is installed: that is the program's choice.
"""

from __future__ import annotations

from penstock.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger(room: str) -> logging.Logger:
    """The logger of one part of penstock."""
    import logging

    return logging.getLogger(f"penstock.{room}")


def renamed(old: str, new: str) -> None:
    """Warns of a name that the next release drops, at the line that uses it."""
    import sys
    import warnings

    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "penstock":
        frame, level = frame.f_back, level + 1
    text = f"{old} is {new} now; the old name goes with the next release"
    warnings.warn(text, DeprecationWarning, stacklevel=level)
