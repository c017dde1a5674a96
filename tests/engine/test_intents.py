"""A sink's batch lands whole and once, wherever its process dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Queue, _core
from penstock.engine import intents
from penstock.engine.intents import Ledger, Note
from penstock.options import Compression
from tests.reading import bodies


def table(*bodies: bytes) -> pa.Table:
    return pa.table({"body": pa.array(bodies, pa.binary())})


def test_a_batch_is_committed_once(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        ledger = Ledger(queue.store, "app")
        assert ledger.commit(0, table(b"a", b"b")) is not None
        assert ledger.commit(0, table(b"a", b"b")) is None
        assert ledger.commit(1, table(b"c")) is not None
        assert ledger.last == 1
        assert bodies(queue) == [b"a", b"b", b"c"]
        assert queue.offsets().durable == queue.offsets().tail


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", segment_bytes=16384) as queue:
        queue.put(b"before")
        landed = Ledger(queue.store, "app").commit(0, table(*[bytes(1000)] * 3000))
        assert landed is not None
        assert landed[2] == 3000
        queue.put(b"behind")
        assert len(bodies(queue)) == 3002
        holding = [i for i in queue.store.segments(fresh=True) if i.base == landed[0]]
        assert holding[0].end is None or holding[0].end >= landed[1]
        assert queue.verify().is_ok


def test_an_empty_batch_is_remembered_and_puts_nothing(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        ledger = Ledger(queue.store, "app")
        assert ledger.commit(4, table()) == (-1, -1, 0)
        assert ledger.last == 4
        assert bodies(queue) == []


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("key", [None, bytes(32)])
def test_the_note_recognises_its_own_frames_alone(
    tmp_path: Path, compression: Compression, key: bytes | None
) -> None:
    with Queue(tmp_path / "q", compression=compression, key=key) as queue:
        writer = queue.store.need_writer()
        note = tmp_path / "note"
        writer.append_atomic(table(b"a" * 300, b"b"), note=note, text='{"app": "x", "batch": 3}')
        mine = Note.load(note)
        assert mine is not None
        assert intents.is_published(queue.store, mine)
        stranger = Note("x", 3, mine.first, mine.end, mine.check ^ 1)
        assert not intents.is_published(queue.store, stranger)
        assert not intents.is_published(queue.store, Note("x", 3, mine.end, mine.end + 64, 0))


def test_a_note_that_was_never_published_is_dropped_and_committed_again(tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        ledger = Ledger(queue.store, "app")
        ledger.commit(0, table(b"a"))
        tail = queue.offsets().tail
        _core.replace_file(
            ledger.files.note,
            b'{"app": "app", "batch": 1}\n{"first": %d, "end": %d, "check": 7}\n'
            % (tail, tail + 64),
        )
        for _ in range(3):
            queue.put(b"of another process, at the same place")
        assert ledger.commit(1, table(b"b")) is not None
        assert bodies(queue)[-1] == b"b"


def test_retention_leaves_what_an_open_note_needs(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", segment_bytes=16384) as queue:
        first = queue.put(bytes(8000))
        for _ in range(400):
            queue.put(bytes(8000))
        ledger = Ledger(queue.store, "app")
        with ledger.files.held():
            _core.replace_file(
                ledger.files.note,
                b'{"app": "app", "batch": 1}\n{"first": %d, "end": 8064, "check": 7}\n' % first,
            )
        assert queue.trim("latest", dry_run=True) == 0
        _core.unlink_file(ledger.files.note)
        assert queue.trim("latest", dry_run=True) > 0


STEPS = ("before the note", "after the note", "before the ledger", "after the ledger")


def die_at(step: str, path: Path, batch: int) -> None:
    """In a child: commits, and dies at the step."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    queue = Queue(path, create=False)
    ledger = Ledger(queue.store, "app")
    record = ledger.files.record
    if step == "before the note":
        ledger.resolve = die  # type: ignore[method-assign]
    elif step == "after the note":
        # The writer's own crash points are replayed from the record of its effects; here the
        # note alone reaches the disk.
        text = b'{"app": "app", "batch": %d}\n{"first": 0, "end": 40, "check": 1}\n'
        _core.replace_file(ledger.files.note, text % batch)
        die()
    elif step == "before the ledger":
        ledger.files.record = die  # type: ignore[assignment, method-assign]
    else:

        def record_and_die(*arguments: int) -> None:
            record(*arguments)
            die()

        ledger.files.record = record_and_die  # type: ignore[assignment, method-assign]
    ledger.commit(batch, table(b"%d" % batch))


@pytest.mark.crash
def test_a_killed_commit_that_comes_again_lands_once(tmp_path: Path) -> None:
    path = tmp_path / "q"
    Queue(path).close()
    for batch in range(24):
        child = os.fork()
        if child == 0:
            die_at(STEPS[batch % len(STEPS)], path, batch)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        with Queue(path, create=False) as queue:
            Ledger(queue.store, "app").commit(batch, table(b"%d" % batch))
            queue.put(b"other")
    with Queue(path, create=False) as queue:
        assert [int(b) for b in bodies(queue) if b != b"other"] == list(range(24))


@pytest.mark.parametrize("app", ["a" * 100, "../elsewhere", "with / slashes"])
def test_an_application_may_be_called_anything(app: str, tmp_path: Path) -> None:
    with Queue(tmp_path / "q") as queue:
        assert Ledger(queue.store, app).commit(0, table(b"a")) is not None
        assert Ledger(queue.store, app).commit(0, table(b"a")) is None
        assert bodies(queue) == [b"a"]
    assert [path.name for path in tmp_path.iterdir()] == ["q"]
