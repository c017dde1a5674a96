"""Settings under the names that Beats has for them."""

from __future__ import annotations

import errno
import json
import os
import resource
import threading
from pathlib import Path

import pytest

from penstock import ManualClock, OptionError, Queue
from penstock.engine import retrying_writer
from penstock.engine.beats_settings import Settings


def test_defaults_are_those_of_beats() -> None:
    settings = Settings.of(max_size="10GB")
    assert settings.queue_options() == {
        "max_bytes": 10**10, "segment_bytes": 10**9, "max_unsynced": 2048,
        "retry_interval_s": 1.0, "max_retry_interval_s": 30.0,
    }  # fmt: skip
    assert settings.group_options() == {"max_in_flight": 512}


def test_texts_have_units_and_numbers_have_none() -> None:
    settings = Settings.of(max_size="1GiB", segment_size="100MiB", retry_interval="500ms")
    assert (settings.max_size, settings.segment_bytes) == (1 << 30, 100 << 20)
    assert settings.retry_interval == 0.5
    assert Settings.of(max_size=0).segment_bytes == 100 << 20


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"max_size": "5MB"},
        {"max_size": "lots"},
        {"max_size": True},
        {"max_size": "10GB", "segment_size": "6GB"},
        {"max_size": "10GB", "segment_size": 1},
        {"max_size": "10GB", "read_ahead": 0},
        {"max_size": "10GB", "retry_interval": 0},
        {"max_size": "10GB", "retry_interval": "1m"},
        {"max_size": "10GB", "path": "x"},
    ],
)
def test_what_a_beat_refuses_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Settings.of(**values)


def test_a_queue_takes_them(tmp_path: Path) -> None:
    settings = Settings.of(max_size="10MB", segment_size="1MB", read_ahead=2)
    with Queue(tmp_path / "q", format="beats", **settings.queue_options()) as queue:
        group = queue.group(**settings.group_options())
        queue.put_many([b"{}"] * 3)
        assert len(group.get_many(9)) == 2


def test_no_more_than_write_ahead_events_are_unsynced(tmp_path: Path) -> None:
    settings = Settings.of(max_size="10MB", write_ahead=4)
    options = settings.queue_options()
    with Queue(tmp_path / "q", format="beats", durability="process", **options) as queue:
        for number in range(1, 13):
            queue.put(b"{}")
            assert (queue.offsets().durable == queue.offsets().tail) == (number % 4 == 0)


@pytest.mark.parametrize("layout", ["1", "2", "2-released-lz4"])
def test_a_put_outlasts_a_full_disk(layout: str, tmp_path: Path) -> None:
    """Files may not pass 64 KiB for a while; what was half written is not there afterwards."""
    key = bytes(16) if layout == "2" else None
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            put_on_a_full_disk(tmp_path / "q", layout, key)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with Queue(tmp_path / "q", read_only=True, key=key) as queue:
        assert [json.loads(message.body)["n"] for message in queue.scan()] == [0, 1, 2]
        assert queue.verify().is_ok


def put_on_a_full_disk(path: Path, layout: str, key: bytes | None) -> None:
    # What a limit on a file's length gives in place of ENOSPC.
    retrying_writer.PASSING.add(errno.EFBIG)
    clock = ManualClock()
    options = Settings.of(max_size="100MB").queue_options()
    with Queue(path, format="beats", layout=layout, key=key, clock=clock, **options) as queue:
        queue.put(b'{"n": 0}')
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, hard))
        large = json.dumps({"n": 1, "pad": os.urandom(100_000).hex()}).encode()
        thread = threading.Thread(target=lambda: queue.put(large))
        thread.start()
        for _ in range(8):
            clock.advance(10)
            thread.join(0.02)
        assert thread.is_alive()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        while thread.is_alive():
            clock.advance(10)
            thread.join(0.02)
        queue.put(b'{"n": 2}')
