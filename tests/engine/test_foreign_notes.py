"""What a repair has noted, as a file of anyone may say it: what is no note does not count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import Queue
from penstock.engine.repair import repair
from penstock.sidecar import damage, notes
from tests.opening import open_queue
from tests.reading import bodies


@pytest.mark.parametrize("entry", [7, None, {}, {"segment": "x.seg"}, []])
def test_an_entry_that_is_no_note_of_a_repair_is_passed_over(entry: object, tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        queue.put(b"one")
        identity, sidecar = queue.store.identity, queue.store.sidecar
    value = {"version": 1, "identity": identity, "set_aside": [entry]}
    (sidecar / notes.KNOWN_DAMAGE).write_text(json.dumps(value))
    assert damage.load(sidecar, identity) == ()
    with Queue(tmp_path / "q") as queue:
        assert bodies(queue) == [b"one"]


def test_damage_elsewhere_is_new_after_a_repair(tmp_path: Path) -> None:
    with open_queue(tmp_path / "q") as queue:
        offsets = [queue.put(b"x" * 9000) for _ in range(3)]
    for count, file in enumerate(sorted((tmp_path / "q" / "log").glob("*.seg"))[:2], 1):
        with file.open("r+b") as stream:
            stream.seek(4096 + 500)
            stream.write(b"wrong")
        report = repair(tmp_path / "q")
        assert [entry.segment for entry in report.set_aside] == [file.name]
        with Queue(tmp_path / "q") as queue:
            assert [message.offset for message in queue.scan()] == offsets[count:]
            assert queue.verify().is_ok
