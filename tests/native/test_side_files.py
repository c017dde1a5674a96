"""Files beside segments: what rots in their headers, and what is made while syncs fail."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, StorageError, _core

FORMATS: dict[str, dict[str, Any]] = {
    "zbus": {"segment_bytes": 65536},
    "beats": {"segment_bytes": 65536},
    "mfq": {"segment_bytes": 65536},
    "vqs": {"max_bytes": 1 << 20},
}


def sidecar(path: Path) -> Path:
    beside = Path(f"{path}.penstock")
    return beside if beside.exists() else path / ".penstock"


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "mfq"])
def test_a_side_file_whose_magic_rotted_is_still_ours(tmp_path: Path, format: str) -> None:
    path = tmp_path / "q"
    with Queue(path, format=format, **FORMATS[format]) as queue:
        queue.put(b"{}", key="k")
    extras = sorted((sidecar(path) / "extras").glob("*.ext"))[0]
    raw = bytearray(extras.read_bytes())
    raw[2] ^= 0x80
    extras.write_bytes(raw)
    with Queue(path, read_only=True) as queue:
        assert [message.key for message in queue.scan()] == ["k"]
    with Queue(path) as queue:
        message = queue.get(0)
        assert message.key == "k"
        message.ack()


@pytest.mark.parametrize("format", FORMATS)
def test_a_side_file_whose_name_could_not_be_synced_is_made_again(
    tmp_path: Path, format: str
) -> None:
    path = tmp_path / "q"
    options = FORMATS[format] | {"durability": "process"}
    with Queue(path, format=format, **options) as queue:
        queue.put(b"{}")
        folders = [sidecar(path) / name for name in ("extras", "integrity")]
        before = {file for folder in folders if folder.is_dir() for file in folder.iterdir()}
        for file in before:
            file.unlink()
    _core.fail_syncs(errno.EIO)
    try:
        with pytest.raises(StorageError), Queue(path, **options) as queue:
            queue.put(b"{}")
    finally:
        _core.fail_syncs(0)
    made = {file for folder in folders if folder.is_dir() for file in folder.iterdir()}
    assert made == set(), "a name that no power cut keeps"
