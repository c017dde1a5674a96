"""Going back to a segment that the reader had left."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Queue
from penstock.options import AckMode


@pytest.mark.parametrize("ack", ["auto", "lease"])
def test_seek_back_over_segments_reads_everything_again(tmp_path: Path, ack: AckMode) -> None:
    bodies = [b"%05d" % number + bytes(1000) for number in range(200)]
    with Queue(tmp_path / "q", segment_bytes=64 << 10) as queue:
        queue.put_many(bodies)
        group = queue.group("g", ack=ack)
        for _ in range(2):
            group.seek("earliest")
            seen = []
            for message in group.get_many(1000):
                seen.append(message.body)
                if ack == "lease":
                    message.ack()
            assert seen == bodies
