"""Opening a queue's store to read it: nothing on disk changes, and a missing key is said so."""

from __future__ import annotations

from pathlib import Path

from penstock import clock as clocks
from penstock.errors import KeyNeededError
from penstock.formats import registry
from penstock.formats.store import Store
from penstock.options import QueueOptions
from penstock.spark.options import SourceOptions

KEY_ADVICE = "say where its key is, on every machine, by the option keyFile or keyEnv"


def open_store(
    path: str | Path,
    options: SourceOptions,
    opening: QueueOptions | None = None,
    format: str | None = None,
) -> Store:
    """Opens for reading only: nothing on disk changes. A plan that knows the `format` says it."""
    try:
        return registry.open_store(
            Path(path), format=options.queue_format or format, layout=options.queue_layout,
            options=opening or options.queue_options(), clock=clocks.native(None), create=False,
            live=False,
        )  # fmt: skip
    except KeyNeededError as error:
        raise KeyNeededError(f"{error}; {KEY_ADVICE}") from error


def need_key(store: Store, name: str) -> None:
    """Refuses a queue whose key is missing: taken for damage, all of it might be passed over."""
    if not store.format.can_decrypt:
        raise KeyNeededError(f"queue {name}: {store.path} is encrypted; {KEY_ADVICE}")
