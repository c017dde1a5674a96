"""Settings under the names that Beats has for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import OptionError, Queue
from penstock.formats.beats.settings import Settings


def test_defaults_are_those_of_beats() -> None:
    settings = Settings.of(max_size="10GB")
    assert settings.queue_options() == {"max_bytes": 10**10, "segment_bytes": 10**9}
    assert (settings.read_ahead, settings.write_ahead) == (512, 2048)
    assert (settings.retry_interval, settings.max_retry_interval) == (1.0, 30.0)
    assert settings.group_options() == {"window": 512}


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
