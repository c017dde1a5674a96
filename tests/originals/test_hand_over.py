"""What an original finds that penstock left in the middle of something, and the other way round.

A copy of a queue that is open is a queue whose openers were killed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.sidecar.control import CONTROL
from tests.copies import copy_as_killed
from tests.originals import zbus_twin
from tests.originals.alternation import body_of
from tests.originals.test_twins import PARTIES, SEGMENT
from tests.originals.zbus_twin import HISTORIES

FIRST, SECOND = b"000001:" + b"a" * 300, b"000002:" + b"b" * 900
THEIRS = [body_of(number) for number in range(3, 40)]
"""More than a segment holds."""
OWN_END = {"zbus": "queue.idx", "mfq": "offset/producer.offset", "vqs": ""}
"""The file in which the format says where the queue ends."""


def nobody(word: str, number: int) -> None:
    """Nobody is told."""


def nowhere(point: str) -> None:
    """Nobody is killed."""


def left_before_the_word(folder: Path, options: dict[str, Any], name: str) -> Path:
    """The second message is in place, and its end was not published: what a kill leaves at `always`
    while the sync of a put is under way."""
    own, kept = OWN_END[options["format"]], dict[str, bytes]()
    with Queue(folder / "open" / name, durability="process", **options) as queue:
        path = folder / "open" / name
        queue.put(FIRST)
        control = next((folder / "open").rglob("control"))
        words = control.read_bytes()
        kept[own] = (path / own if own else path).read_bytes()
        queue.put(SECOND)
        copy_as_killed(folder / "open", folder / "left")
    path = folder / "left" / name
    with (path / own if own else path).open("r+b") as file:
        file.write(kept[own] if own else kept[own][:20])
    with next((folder / "left").rglob("control")).open("r+b") as file:
        for field in ("publishing", "published"):
            at = CONTROL.offset_of(field)
            file.seek(at)
            file.write(words[at : at + 8])
    return path


@pytest.mark.parametrize("count", [1, 2, 5, len(THEIRS)])
@pytest.mark.parametrize("name", ["zbus-crc", "zbus-corr", "vqs-doc", "mfq"])
def test_what_was_never_published_says_nothing_about_what_an_original_put_there(
    tmp_path: Path, name: str, count: int
) -> None:
    twin, options = PARTIES[name]
    file = "queue.bin" if name == "vqs-doc" else "queue"
    path = left_before_the_word(tmp_path, options, file)
    twin.put(path, THEIRS[:count], nobody, nowhere)
    with Queue(path, read_only=True) as queue:
        assert [message.body for message in queue.scan()] == [FIRST, *THEIRS[:count]]
    with Queue(path, create=False) as queue:
        assert [message.body for message in queue.scan()] == [FIRST, *THEIRS[:count]]
        assert not queue.verify().corrupt
        queue.put(b"more")
    assert twin.everything(path) == [FIRST, *THEIRS[:count], b"more"]


@pytest.mark.parametrize("name", ["zbus-crc", "vqs-doc", "mfq"])
def test_what_was_not_yet_published_is_there_if_nobody_came(tmp_path: Path, name: str) -> None:
    _, options = PARTIES[name]
    file = "queue.bin" if name == "vqs-doc" else "queue"
    path = left_before_the_word(tmp_path, options, file)
    with Queue(path, create=False) as queue:
        assert [message.body for message in queue.scan()] == [FIRST, SECOND]


def test_nothing_of_a_killed_producers_frame_is_left_behind_our_own(tmp_path: Path) -> None:
    """The original's next frame ends anywhere in it, and its consumer looks behind that."""

    def killed(point: str) -> None:
        if point == "data":
            raise InterruptedError

    twin, options = PARTIES["mfq"]
    path = tmp_path / "queue"
    with Queue(path, durability="process", **options) as queue:
        queue.put(FIRST)
    with pytest.raises(InterruptedError):
        twin.put(path, [body_of(19)], nobody, killed)  # 2,500 bytes.
    with Queue(path, create=False) as queue:
        queue.put(b"short")
    twin.put(path, [body_of(3)], nobody, nowhere)
    assert twin.everything(path) == [FIRST, b"short", body_of(3)]


class Killed(Exception):
    """The original ends here."""


@pytest.mark.parametrize("layout", HISTORIES)
def test_a_first_block_that_was_entered_and_never_made_is_empty(
    tmp_path: Path, layout: str
) -> None:
    def die(point: str) -> None:
        if point == "block-entry":
            raise Killed

    path = tmp_path / "queue"
    with pytest.raises(Killed):
        zbus_twin.Writer(path, HISTORIES[layout], SEGMENT, die)
    assert not (path / "data").exists()
    with Queue(path, format="zbus", layout=layout) as queue:
        queue.put(b"first")
    assert zbus_twin.everything(path, HISTORIES[layout]) == [b"first"]
