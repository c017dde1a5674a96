"""What a repair has noted, as a file of anyone may say it: what is no note does not count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import Queue
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
