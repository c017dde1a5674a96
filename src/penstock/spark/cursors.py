"""A group's cursor, set to what a stream's checkpoint says was committed.

Spark tells a source that a batch was committed only when it plans the next one, so the last batch
of a run may be missing from the cursor. The checkpoint knows.
"""

from __future__ import annotations

import json
from pathlib import Path

from penstock.errors import FormatError
from penstock.spark import queues
from penstock.spark.follow import Follower
from penstock.spark.offsets import Offsets
from penstock.spark.options import SourceOptions


def committed(checkpoint: Path, default: Offsets | None = None) -> Offsets:
    """The offsets of the last batch that was committed; `default` if none was."""
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not numbers and default is not None:
        return default
    if not numbers:
        raise FormatError(checkpoint, "no committed batch", "give the checkpoint of a stream")
    text = (checkpoint / "offsets" / str(max(numbers))).read_text()
    for line in text.splitlines():
        if line.startswith("{") and '"q"' in line:
            return Offsets.from_json(json.loads(line))
    raise FormatError(checkpoint, "no offsets of penstock in it", "give the stream's checkpoint")


def sync(source: str, checkpoint: Path, group: str, **given: str) -> dict[str, int]:
    """Moves the cursor of every queue of the stream; returns where they are now.

    `given` are options of the source (`keyFile`, `queueFormat`…).
    """
    options = SourceOptions.of({"path": source, "group": group, **given})
    done, found = committed(checkpoint), {}
    for name, where in queues.find_some(options).items():
        queue = queues.open_queue(name, where, options)
        if name not in done or done[name].identity != queue.identity:
            continue
        follower = Follower(where, options)
        try:
            follower.advance(min(done[name].next, queue.end))
            found[name] = done[name].next
        finally:
            follower.close()
    if not found:
        known = ", ".join(sorted(done)) or "none"
        raise FormatError(
            checkpoint, f"no offset of {source}, or one of an earlier queue; it knows {known}",
            "give the checkpoint of a stream that reads this queue",
        )  # fmt: skip
    return found
