"""Sink and stream of every format: what one format can do, all can, or say why not."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from penstock import Queue, UnsupportedError
from penstock.engine.intents import Ledger
from penstock.formats import registry
from tests.opening import path_for
from tests.spark.helpers import batch, batch_writer, bodies, drain, stream, stream_writer, table

FORMATS = tuple(registry.MODULES)


@pytest.mark.parametrize("format", FORMATS)
def test_a_micro_batch_lands_once_in_every_format(tmp_path: Path, format: str) -> None:
    path = path_for(tmp_path, format)
    for number in (0, 0, 1, 1, 2):
        writer = stream_writer(path, queueFormat=format)
        rows = [b"%d-%d" % (number, row) for row in range(20)]
        writer.commit([writer.write(iter([table(*rows)]))], number)
    assert bodies(path) == [b"%d-%d" % (n, row) for n in range(3) for row in range(20)]


@pytest.mark.parametrize("format", FORMATS)
def test_a_note_without_its_ledger_is_recognised_in_every_format(
    tmp_path: Path, format: str
) -> None:
    path = path_for(tmp_path, format)
    writer = batch_writer(path, queueFormat=format)
    writer.commit([writer.write(iter([table(b"first")]))])
    with Queue(path, create=False) as queue:
        ledger = Ledger(queue.store, "app")
        ledger.files.record = lambda *_: None  # type: ignore[method-assign]
        ledger.commit(3, _t())
        assert ledger.files.note.exists()
        assert Ledger(queue.store, "app").commit(3, _t()) is None
    assert bodies(path) == [b"first", b"a", b"b"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_batch_whose_note_is_open_stays_until_it_is_settled(tmp_path: Path, format: str) -> None:
    path = path_for(tmp_path, format)
    with Queue(path, format=format) as queue:
        ledger = Ledger(queue.store, "app")
        ledger.files.record = lambda *_: None  # type: ignore[method-assign]
        with Ledger(queue.store, "app").files.held():  # The sink is alive, and not done yet.
            ledger.files.held = lambda **_: nullcontext(True)  # type: ignore[assignment, method-assign]
            ledger.commit(3, _t())
            for message in queue.get_many(5):
                message.ack()
            queue.sync()
            queue.purge()
            assert ledger.files.note.exists()
        queue.sync()  # It is dead now: whoever comes by settles what it left.
        queue.purge()
        assert Ledger(queue.store, "app").commit(3, _t()) is None
        assert queue.get_many(5) == []


def _t() -> object:
    import pyarrow as pa

    return pa.Table.from_batches([table(b"a", b"b")])


@pytest.mark.parametrize("format", FORMATS)
def test_a_stream_with_a_group_reads_every_format(tmp_path: Path, format: str) -> None:
    path = path_for(tmp_path, format)
    with Queue(path, format=format) as queue:
        for number in range(40):
            queue.put(b"%d" % number)
        queue.sync()
        reader = stream(path, group="g", maxOffsetsPerTrigger=15, columns="body")
        batches, at = drain(reader)
        assert [len(rows) for rows in batches] == [15, 15, 10]
        for number in range(40, 50):
            queue.put(b"%d" % number)
        queue.sync()
        more, _ = drain(reader, at)
        found = [row["body"] for rows in batches + more for row in rows]
        assert found == [b"%d" % number for number in range(50)]
        reader.stop()


@pytest.mark.parametrize("format", FORMATS)
def test_streaming_leaves_the_formats_own_cursor_alone(tmp_path: Path, format: str) -> None:
    path = path_for(tmp_path, format)
    with Queue(path, format=format) as queue:
        queue.put_many([b"a", b"b", b"c"])
        queue.sync()
        before = queue.store.format.groups.bookmarks()
        reader = stream(path, group="spark", columns="body")
        drain(reader)
        reader.stop()
        assert queue.store.format.groups.bookmarks() == before


@pytest.mark.parametrize("format", [name for name in FORMATS if name in ("beats", "vqs")])
def test_a_format_that_deletes_is_streamed_with_a_group_only(tmp_path: Path, format: str) -> None:
    path = path_for(tmp_path, format)
    with Queue(path, format=format) as queue:
        queue.put(b"a")
    with pytest.raises(UnsupportedError, match="group"):
        stream(path).initialOffset()
    sidecar = Queue(path, read_only=True).store.sidecar
    (sidecar / "control").unlink()
    with pytest.raises(UnsupportedError, match="another program owns"):
        stream(path, group="g").initialOffset()
    assert [row["body"] for row in batch(path, columns="body")] == [b"a"]
