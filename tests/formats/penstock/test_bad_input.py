"""What is no queue of ours, or not quite: refused with file, byte and advice, and left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from penstock import CorruptError, FormatError, GroupError, PenstockError, Queue, UnsupportedError

BODIES = [b"message %d" % number for number in range(40)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A queue of one segment, closed."""
    with Queue(tmp_path / "q", segment_bytes=16384) as queue:
        queue.put_many(BODIES)
    return tmp_path / "q"


def segment_of(path: Path) -> Path:
    (file,) = (path / "log").glob("*.seg")
    return file


def with_header(raw: bytes, at: int, value: int) -> bytes:
    """The segment with another word in its header, and a checksum that fits."""
    head = raw[:at] + value.to_bytes(4, "little") + raw[at + 4 : 92]
    crc: int = google_crc32c.value(head)
    return head + crc.to_bytes(4, "little") + raw[96:]


BAD_SEGMENTS: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "another program's file": (lambda raw: b"\x7fELF" + raw[4:], 0, "move it out"),
    "an empty file": (lambda raw: b"", 0, "move it out"),
    "half a header": (lambda raw: raw[:50], 50, "penstock repair"),
    "another version": (lambda raw: with_header(raw, 8, 2), 8, "this release reads version 1"),
    "an unknown flag": (lambda raw: with_header(raw, 12, 64), 12, "use a newer penstock"),
    "a changed header": (lambda raw: raw[:40] + b"\xff" + raw[41:], 92, "penstock repair"),
}


@pytest.mark.parametrize("what", BAD_SEGMENTS)
def test_a_bad_segment_is_refused_with_file_byte_and_advice(path: Path, what: str) -> None:
    change, at, advice = BAD_SEGMENTS[what]
    file = segment_of(path)
    good = file.read_bytes()
    bad = change(good)
    file.write_bytes(bad)
    with pytest.raises((FormatError, CorruptError)) as caught:
        Queue(path)
    error = caught.value
    assert isinstance(error, FormatError | CorruptError)
    assert (error.path, error.at) == (file, at)
    assert f"{file}:{at}: " in str(error)
    assert advice in str(error)
    assert file.read_bytes() == bad
    file.write_bytes(good)
    with Queue(path) as queue:
        assert [message.body for message in queue.scan()] == BODIES


@pytest.mark.parametrize("size", [100, 4096, 4099, 4200, 5000])
def test_a_segment_cut_short_is_noticed_where_it_ends_and_the_queue_goes_on(
    path: Path, size: int
) -> None:
    file = segment_of(path)
    good = file.read_bytes()
    file.write_bytes(good[:size])
    with Queue(path) as queue:
        with pytest.raises(CorruptError) as caught:
            list(queue.scan())
        assert caught.value.path == file
        assert 4096 <= caught.value.at <= max(size, 4096)
        assert "penstock repair" in str(caught.value)
        queue.put(b"new")
        scan = queue.scan(tolerant=True)
        kept = [message.body for message in scan]
        assert kept == [*BODIES[: len(kept) - 1], b"new"]
        assert [damage.path for damage in scan.damage] == [file]
    with Queue(path) as queue:
        assert not queue.verify().is_ok


@pytest.mark.parametrize("name", ["..", "../up", "a/b", "/etc", ".hidden", ""])
def test_a_name_that_leads_elsewhere_is_no_group(path: Path, name: str) -> None:
    before = sorted(path.parent.rglob("*"))
    with Queue(path) as queue, pytest.raises(GroupError, match="letters, digits") as caught:
        queue.group(name)
    assert str(path) in str(caught.value)
    assert sorted(path.parent.rglob("*")) == before


@pytest.mark.parametrize("puts", ["one", "list"])
def test_a_body_over_the_limit_says_how_large_it_may_be(path: Path, puts: str) -> None:
    with Queue(path, max_message_bytes=10) as queue:
        with pytest.raises(UnsupportedError, match=r"11 bytes.* is 10: open the queue with more"):
            queue.put(bytes(11)) if puts == "one" else queue.put_many([b"fits", bytes(11)])
        assert [message.body for message in queue.scan()] == BODIES
        queue.put(bytes(10))


def test_a_file_in_place_of_a_queue_is_refused_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello")
    with pytest.raises(PenstockError, match="begins with 68 65 6c 6c 6f"):
        Queue(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"hello"
