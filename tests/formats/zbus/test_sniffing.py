"""A folder tells its layout by its bytes, or an error tells what was seen."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from penstock import FormatError, OptionError, Queue

LAYOUTS = ("doc000", "doc001", "flag", "corr", "crc")


def make(path: Path, layout: str, messages: int = 1) -> Path:
    with Queue(path, format="zbus", layout=layout, durability="process") as queue:
        for _ in range(messages):
            queue.put(b"x" * 20_000)
    return path


def forget(path: Path) -> Path:
    """Without our own record the bytes must tell."""
    shutil.rmtree(path / ".penstock")
    return path


def poke(path: Path, at: int, raw: bytes) -> None:
    with next(path.glob("*.idx")).open("r+b") as stream:
        stream.seek(at)
        stream.write(raw)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_created_layout_is_recognised_without_our_record(layout: str, tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", layout))
    with Queue(path, create=False) as queue:
        assert queue.store.layout == layout
        assert len(queue) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_renamed_folder_still_opens(layout: str, tmp_path: Path) -> None:
    path = make(tmp_path / "mq", layout).rename(tmp_path / "another")
    with Queue(path, create=False) as queue:
        queue.put(b"more")
        assert len(queue) == 2
    assert [p.name for p in path.glob("*.idx")] == ["mq.idx"]


def test_an_empty_queue_of_the_mask_era_is_the_callers_choice(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "corr", messages=0))
    with Queue(path, read_only=True) as queue:
        assert queue.store.layout == "crc"
    with Queue(path, read_only=True, layout="corr") as queue:
        assert queue.store.layout == "corr"


def test_our_record_tells_what_the_bytes_can_not(tmp_path: Path) -> None:
    path = make(tmp_path / "mq", "corr", messages=0)
    with Queue(path, read_only=True) as queue:
        assert queue.store.layout == "corr"


def test_the_caller_may_name_the_go_server(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "corr"))
    with Queue(path, layout="corr-go", read_only=True) as queue:
        assert queue.meta["dialect"] == "flag-late"
    with Queue(path, read_only=True) as queue:
        assert queue.meta["dialect"] == "modern"


def test_a_layout_that_the_bytes_contradict_is_refused(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "crc"))
    for wrong in ("corr", "doc000", "flag"):
        with pytest.raises(FormatError, match="that is layout crc"):
            Queue(path, layout=wrong, read_only=True)
    with pytest.raises(OptionError, match="expected doc000"):
        Queue(path, layout="none", read_only=True)


def test_a_snapshot_before_the_first_release_is_named(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "flag"))
    (path / "mq.idx").write_bytes(bytes(205824))
    with pytest.raises(FormatError, match="before January 2017"):
        Queue(path, create=False)


def test_the_snapshot_that_wrote_over_its_own_count_is_named(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "corr"))
    poke(path, 20, struct.pack(">q", 5))
    poke(path, 24, struct.pack(">q", 1_493_200_000_000))
    with pytest.raises(FormatError, match="637bd13f"):
        Queue(path, create=False)


def test_entries_in_no_known_order_are_listed(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "corr"))
    poke(path, 1024, bytes(range(28)))
    with pytest.raises(FormatError, match="no entry order fits the last block"):
        Queue(path, create=False)


def test_another_version_is_named(tmp_path: Path) -> None:
    path = forget(make(tmp_path / "mq", "corr"))
    poke(path, 0, struct.pack(">i", 2))
    with pytest.raises(FormatError, match="version 2"):
        Queue(path, create=False)


def test_two_indexes_are_one_too_many(tmp_path: Path) -> None:
    path = make(tmp_path / "mq", "corr")
    shutil.copy(path / "mq.idx", path / "old.idx")
    with pytest.raises(FormatError, match=r"mq\.idx, old\.idx"):
        Queue(path, create=False)


def test_offsets_of_a_doc_layout_are_as_a_later_block_shows(tmp_path: Path) -> None:
    path = tmp_path / "mq"
    with Queue(path, format="zbus", layout="doc000", segment_bytes=16384) as queue:
        for _ in range(2):
            queue.put(b"x" * 20_000)
    second = path / "data" / f"{20_204:020d}.zbus"
    raw = bytearray(second.read_bytes())
    raw[:8] = bytes(8)
    second.write_bytes(raw)
    with Queue(forget(path), read_only=True) as queue:
        assert queue.meta["offsets"] == "relative"
        assert [message.offset for message in queue.scan()] == [0, 20_204]
