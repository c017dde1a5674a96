"""Lists long enough to be written by one call, or by several."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import randbytes

import pyarrow as pa
import pytest

from penstock import Queue, _core
from penstock.formats import registry
from penstock.options import MIB, Compression, DurabilityName

PIECES = [b'{"n":"%s"}' % randbytes(90_000 if n % 2 else 1).hex().encode() for n in range(120)]
"""Ten megabytes that every format holds as they are, and that hardly compress."""
BODIES = [bytes([n % 251 + 1]) * (700 + n % 600) for n in range(600)]


@pytest.fixture
def recording() -> Iterator[None]:
    _core.take_effects()
    _core.record_effects(True)
    yield
    _core.record_effects(False)
    _core.take_effects()


@pytest.mark.parametrize("format", ["penstock", "mfq"])
def test_a_long_list_between_single_messages_is_whole(tmp_path: Path, format: str) -> None:
    with (
        Queue(tmp_path / "queue", format=format, segment_bytes=MIB, durability="process") as queue,
        Queue(tmp_path / "queue", durability="process") as other,
    ):
        group = other.group(ack="auto")
        for turn in range(4):
            queue.put(b"before %d" % turn)
            queue.put_many(BODIES)
            queue.put(b"behind %d" % turn)
            found = [message.body for message in group.get_many(10_000)]
            while more := group.get_many(10_000):
                found += [message.body for message in more]
            assert found == [b"before %d" % turn, *BODIES, b"behind %d" % turn]
        assert queue.verify().is_ok
        assert len(queue.store.format.list_segments()) > 2


@pytest.mark.usefixtures("recording")
def test_an_original_consumer_meets_the_first_length_last(tmp_path: Path) -> None:
    with Queue(
        tmp_path / "queue", format="mfq", segment_bytes=2 * MIB, durability="process"
    ) as queue:
        segment = queue.store.format.list_segments()[0].path.stat().st_ino
        _core.take_effects()
        queue.put_many(BODIES)
        stores = [e for e in _core.take_effects() if e[0] == "store" and e[1] == segment]
    (_, _, at, frames), (_, _, word_at, word) = stores[:2]
    assert (at, word_at) == (0, 0)
    assert (bytes(frames[:4]), bytes(word)) == (bytes(4), len(BODIES[0]).to_bytes(4, "little"))
    assert len(frames) > 256 << 10


@pytest.mark.usefixtures("recording")
def test_a_batch_of_megabytes_goes_by_several_calls_and_its_first_word_last(tmp_path: Path) -> None:
    table = pa.table({"body": pa.array(PIECES, pa.binary())})
    with Queue(tmp_path / "queue", durability="process") as queue:
        _core.take_effects()
        queue.store.need_writer().append_atomic(table, note=tmp_path / "note", text="{}")
        stores = [e for e in _core.take_effects() if e[0] == "store"]
        is_same = [message.body for message in queue.scan()] == PIECES
        assert is_same
    pieces = [e for e in stores if len(e[3]) > 100_000]
    assert len(pieces) > 4
    assert max(len(e[3]) for e in pieces) < 2 * MIB
    (_, segment, first, begin), word = pieces[0], len(PIECES[0]) + 36
    assert bytes(begin[:4]) == bytes(4)
    words = [bytes(e[3]) for e in stores if e[1:3] == (segment, first)]
    assert words[-1] == word.to_bytes(4, "little")
    assert not any(bytes(4) != early[:4] for early in words[:-1])


@pytest.mark.parametrize("durability", ["process", "always"])
@pytest.mark.parametrize(
    ("format", "compression", "key"),
    [
        *((name, "none", None) for name in registry.MODULES),
        ("penstock", "lz4", None),
        ("penstock", "none", bytes(32)),
    ],
)
def test_a_list_of_megabytes_is_whole_in_every_format(
    tmp_path: Path, format: str, compression: Compression, key: bytes | None,
    durability: DurabilityName,
) -> None:  # fmt: skip
    with Queue(
        tmp_path / "queue", format=format, durability=durability, compression=compression, key=key,
        segment_bytes=None if format == "vqs" else 64 * MIB,
    ) as q:  # fmt: skip
        q.put(PIECES[0])
        q.put_many(PIECES)
        q.put(PIECES[1])
        is_same = [message.body for message in q.scan()] == [PIECES[0], *PIECES, PIECES[1]]
        assert is_same
        assert q.verify().is_ok


FAULTS = """
import gc, resource, sys, penstock
with penstock.Queue(sys.argv[1]) as queue:
    for _ in range(30):
        queue.put_many([bytes(1024)] * 1000)
    get = getattr(queue.group("jobs", ack="auto"), sys.argv[2])
    gc.disable()
    for turn in range(30):
        if turn == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        bodies = [getattr(one, "body", one) for one in get(1000)]
        del bodies
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep what is freed")
@pytest.mark.parametrize("method", ["get_many", "get_bodies"])
def test_the_memory_of_a_list_serves_the_next_one(tmp_path: Path, method: str) -> None:
    command = [sys.executable, "-c", FAULTS, str(tmp_path / "q"), method]
    faults = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert faults < 50, "a list has 250 pages"
