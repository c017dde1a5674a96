"""No option is accepted and ignored: what a format can't honour is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock import OptionError, Queue
from penstock.formats.registry import MODULES
from penstock.options import Durability, QueueOptions
from penstock.records import fields
from tests.opening import path_for

MIB = 1 << 20
KEYS = {"beats": bytes(16)}
OTHERS: dict[str, Any] = {
    "durability": Durability.PROCESS, "sync_interval_s": 1.0, "segment_bytes": 64 << 10,
    "max_bytes": MIB, "when_full": "reject", "put_timeout_s": 1.0, "retry_interval_s": 0.1,
    "max_retry_interval_s": 40.0, "max_unsynced": 5, "max_message_bytes": 1000,
    "compression": "lz4", "key": bytes(32), "tamper_evident": True, "delay_s": 5.0,
    "retention_bytes": MIB, "retention_age_s": 60.0, "retain_unread": False,
    "retain_unread_max_s": 5.0, "checksums": False, "trust_others": True,
}  # fmt: skip
"""Every option, with a value that is not its default."""

REFUSED = {
    "penstock": {"tamper_evident", "checksums"},
    "zbus": {"compression", "key", "tamper_evident"},
    "beats": {"compression", "checksums"},
    "vqs": {"segment_bytes", "compression", "key", "tamper_evident", "retention_bytes"},
    "mfq": {"compression", "key", "tamper_evident", "retention_age_s"},
}
BY_OWN_FILES = {"vqs": {"delay_s", "retention_age_s"}, "mfq": {"segment_bytes"}}
"""Options that the files of a queue answer once it is made: an opening that says others is told."""

PAIRS = [(format, option) for format in MODULES for option in OTHERS]


def with_option(format: str, option: str) -> dict[str, Any]:
    """The option, with the key that it needs."""
    value = KEYS.get(format, OTHERS[option]) if option == "key" else OTHERS[option]
    needs_key = option == "tamper_evident" and format == "beats"
    return {option: value} | ({"key": KEYS[format]} if needs_key else {})


def test_every_option_has_another_value_here() -> None:
    usual = QueueOptions()
    assert set(OTHERS) == {field.name for field in fields(usual)}
    assert all(getattr(usual, name) != value for name, value in OTHERS.items())


@pytest.mark.parametrize(("format", "option"), PAIRS)
def test_a_new_queue_honours_an_option_or_is_not_made(
    tmp_path: Path, format: str, option: str
) -> None:
    path, said = path_for(tmp_path, format), with_option(format, option)
    if option in REFUSED[format]:
        with pytest.raises(OptionError, match=f"^{option}=.*format {format} "):
            Queue(path, format=format, **said)
        assert list(tmp_path.iterdir()) == []
    else:
        with Queue(path, format=format, **said) as queue:
            assert getattr(queue.options, option) == said[option]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(("format", "option"), PAIRS)
def test_an_opening_honours_an_option_or_is_refused(
    tmp_path: Path, format: str, option: str, read_only: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path, said = path_for(tmp_path, format), with_option(format, option)
    is_secret = bool({"key", "tamper_evident"} & set(said)) and option not in REFUSED[format]
    Queue(path, format=format, **({"key": said["key"]} if is_secret else {})).close()
    if option in REFUSED[format]:
        with pytest.raises(OptionError, match=f"^{option}=.*format {format} "):
            Queue(path, read_only=read_only, **said)
        return
    with caplog.at_level(logging.WARNING), Queue(path, read_only=read_only, **said) as queue:
        is_told = f"{option}={said[option]!r}: the queue's own file has" in caplog.text
        assert is_told == (option in BY_OWN_FILES.get(format, ()))
        assert is_told or getattr(queue.options, option) == said[option]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_plain_beats_queue_refuses_to_be_opened_as_tamper_evident(
    tmp_path: Path, read_only: bool
) -> None:
    Queue(tmp_path / "q", format="beats").close()
    with pytest.raises(OptionError, match="an encrypted queue of format beats"):
        Queue(tmp_path / "q", read_only=read_only, tamper_evident=True)


@pytest.mark.parametrize(
    ("format", "option"),
    [(format, name) for format, names in REFUSED.items() for name in sorted(names)],
)
def test_what_is_refused_is_not_kept_either(tmp_path: Path, format: str, option: str) -> None:
    path = path_for(tmp_path, format)
    with Queue(path, format=format) as queue:
        with pytest.raises(OptionError, match=option):
            queue.set_options(**{option: OTHERS[option]})
        assert queue.kept_options == {}


SENSELESS: dict[str, tuple[Any, ...]] = {
    "float": (float("nan"), float("inf"), -1.0, 10**400, "1", True),
    "float | None": (float("nan"), float("inf"), -1.0, 10**400, "1", True),
    "int": (-1, 1 << 63, 10**400, 0.5, "1", True),
    "bool": (1, "yes"),
    "Durability": (5, True, b"always", ("always",), float("nan"), "sometimes"),
    "WhenFull": (5, "never", ["block"]),
    "Compression": (5, "zip", ["none"]),
    "bytes | None": (5, "secret", b"short"),
}
"""For each type of an option, values that no opening can use."""
SENSELESS_PAIRS = [
    (field.name, value) for field in fields(QueueOptions()) for value in SENSELESS[str(field.type)]
]


@pytest.mark.parametrize(("option", "value"), SENSELESS_PAIRS)
def test_a_value_that_no_opening_can_use_is_refused_and_makes_nothing(
    tmp_path: Path, option: str, value: Any
) -> None:
    with pytest.raises(OptionError, match=f"^{option}="):
        Queue(tmp_path / "q", **{option: value})
    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^clock=5: expected a ManualClock"):
        Queue(tmp_path / "q", clock=5)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
