"""Rows of a table that no message can hold as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Queue, UnsupportedError
from tests.spark.helpers import batch_writer, bodies


@pytest.mark.parametrize(("column", "values", "kind", "what"), [
    ("timestamp", [-62135596800 * 10**6], pa.timestamp("us", "UTC"), "timestamp has a time out"),
    ("timestamp", [10**16 * 2], pa.timestamp("us", "UTC"), "years 1678 to 2261"),
    ("timestamp_ns", [-(2**63)], pa.int64(), "out of range"),
    ("headers", [[("a", None)]], pa.map_(pa.string(), pa.string()), 'header "a" is null'),
])  # fmt: skip
def test_what_a_message_can_t_hold_is_refused_and_not_changed(
    tmp_path: Path, column: str, values: list[Any], kind: pa.DataType, what: str
) -> None:
    rows = pa.RecordBatch.from_pydict({"body": [b"a"], column: pa.array(values, kind)})
    writer = batch_writer(tmp_path / "q")
    staged = writer.write(iter([rows]))
    with pytest.raises(UnsupportedError, match=what):
        writer.commit([staged])
    with Queue(tmp_path / "q2") as queue, pytest.raises(UnsupportedError, match=what):
        queue.put_many(rows)
    assert bodies(tmp_path / "q") == bodies(tmp_path / "q2") == []
