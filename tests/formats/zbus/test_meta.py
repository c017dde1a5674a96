"""What the index says about a queue, and how to change it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Queue, UnsupportedError

MASK_ERA = ("doc000", "corr", "crc")
FLAG_ERA = ("doc001", "flag")


@pytest.mark.parametrize("layout", MASK_ERA + FLAG_ERA)
def test_mask_and_extensions_are_kept(layout: str, tmp_path: Path) -> None:
    with Queue(tmp_path / "mq", format="zbus", layout=layout) as queue:
        queue.set_meta(mask=80, ext1="k=v", ext4="é" * 63)
        queue.put(b"x")
    with Queue(tmp_path / "mq", read_only=True) as queue:
        meta = queue.meta
        assert (meta["mask"], meta["ext1"], meta["ext2"], meta["ext4"]) == (
            80,
            "k=v",
            None,
            "é" * 63,
        )
        assert meta["message_count"] == 1
    with Queue(tmp_path / "mq") as queue:
        queue.set_meta(ext1=None, mask=0)
        assert (queue.meta["ext1"], queue.meta["mask"]) == (None, 0)


@pytest.mark.parametrize("layout", MASK_ERA)
def test_the_creator_has_a_slot(layout: str, tmp_path: Path) -> None:
    with Queue(tmp_path / "mq", format="zbus", layout=layout) as queue:
        queue.set_meta(creator="alice")
        assert queue.meta["creator"] == "alice"


@pytest.mark.parametrize("layout", FLAG_ERA)
def test_the_flag_layouts_have_no_place_for_a_creator(layout: str, tmp_path: Path) -> None:
    with Queue(tmp_path / "mq", format="zbus", layout=layout) as queue:
        with pytest.raises(UnsupportedError, match="has no place for 'creator'"):
            queue.set_meta(creator="alice", ext1="not either")
        assert queue.meta["ext1"] is None


def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with Queue(tmp_path / "mq", format="zbus") as queue:
        with pytest.raises(UnsupportedError, match="128 bytes, at most 127"):
            queue.set_meta(mask=1, ext2="x" * 128)
        with pytest.raises(UnsupportedError, match="message_count"):
            queue.set_meta(message_count=7)
        assert queue.meta["mask"] == 0
