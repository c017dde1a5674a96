"""Streams as a Beat leaves them, where penstock writes no such ones itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock import Queue, _core
from penstock.engine.repair import repair
from penstock.formats.beats.structs import KINDS
from penstock.options import QueueOptions
from tests.copies import copy_open
from tests.formats.beats.helpers import KEY, event

IV = bytes(range(16))


def encrypted(path: Path, *, broken: bool) -> None:
    """A queue as a Beat encrypts it: three blocks of ten events, the second one broken or not."""
    with Queue(path, format="beats", layout="2-released-lz4") as queue:
        for batch in range(3):
            pads = [os.urandom(40).hex() for _ in range(10)]
            queue.put_many([event(10 * batch + n, pad=pad) for n, pad in enumerate(pads)])
    raw = bytearray((path / "0.seg").read_bytes())
    second = 19 + 4 + int.from_bytes(raw[19:23], "little")
    if broken:
        raw[second + 4 : second + 40] = b"\xff" * 36
    plain, kind = KINDS["2-released-lz4"], KINDS["2-released-aes-lz4"]
    stream = _core.beats_crypt(KEY, IV, bytes(raw[plain.data_at :]))
    for file in path.glob("*.seg"):
        file.unlink()
    (path / "0.seg").write_bytes(kind.pack_header(30) + IV + stream)
    for file in (path / ".penstock").glob("*.json"):
        file.unlink()


def numbers(path: Path) -> list[int]:
    with Queue(path, read_only=True, key=KEY) as queue:
        return [json.loads(message.body)["n"] for message in queue.scan(tolerant=True)]


@pytest.mark.parametrize("broken", [False, True])
def test_events_behind_a_broken_block_come_back_encrypted(broken: bool, tmp_path: Path) -> None:
    path = tmp_path / "q"
    encrypted(path, broken=broken)
    assert numbers(path) == list(range(10 if broken else 30))
    report = repair(path, options=QueueOptions(key=KEY))
    assert report.brought_back == (10 if broken else 0)
    assert numbers(path) == [*range(10), *range(20, 30)] if broken else list(range(30))
    assert not any(b"message" in file.read_bytes() for file in path.glob("*.seg"))


def test_a_power_cut_leaves_a_stream_alone_that_is_only_read(tmp_path: Path) -> None:
    encrypted(tmp_path / "q", broken=False)
    before = (tmp_path / "q" / "0.seg").read_bytes()
    with Queue(tmp_path / "q", key=KEY):
        path = copy_open(tmp_path / "q", tmp_path / "cut")
    with Queue(path, key=KEY) as queue:
        assert queue.put(event(30)) > 0
    assert (path / "0.seg").read_bytes() == before
    assert numbers(path) == list(range(31))


def test_a_stream_that_a_beat_began_behind_a_power_cut_stays_as_it_is(tmp_path: Path) -> None:
    """The Beat has encryption turned on; what we had synced last lies before its stream."""
    encrypted(tmp_path / "beat", broken=False)
    with Queue(tmp_path / "q", format="beats", layout="2-released-lz4") as queue:
        queue.put(event(100))
        path = copy_open(tmp_path / "q", tmp_path / "cut")
    stream = (tmp_path / "beat" / "0.seg").read_bytes()
    (path / "1.seg").write_bytes(stream)
    with Queue(path, key=KEY) as queue:
        queue.put(event(30))
    assert (path / "1.seg").read_bytes() == stream
    assert numbers(path) == [100, *range(31)]
