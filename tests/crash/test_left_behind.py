"""What an opener finds that was left by others: killed, with older words, with damaged ones.

A copy of a queue that is open is a queue whose openers were killed: the boot is the same, nothing
was closed, no page is lost.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import _core
from penstock.sidecar.control import CONTROL
from tests.copies import copy_as_killed, copy_open
from tests.failing import failing_syncs

FORMATS = ["penstock", "zbus", "beats", "vqs", "mfq"]
COUNT = 20


def options(format: str, **more: Any) -> dict[str, Any]:
    """Small segments; a ring has one."""
    size = {"max_bytes": 1 << 20} if format == "vqs" else {"segment_bytes": 1 << 16}
    return {"durability": "process"} | size | more


def body(number: int) -> bytes:
    """One that is found in a file again."""
    return b"message-%03d " % number + bytes([97 + number % 26]) * 100


def killed(folder: Path, format: str, durability: str = "process") -> Path:
    """A queue with `COUNT` messages whose openers were killed."""
    name = "queue.bin" if format == "vqs" else "queue"
    given = options(format, durability=durability)
    with penstock.Queue(folder / "open" / name, format=format, **given) as queue:
        for number in range(COUNT):
            queue.put(body(number))
        copy_as_killed(folder / "open", folder / "left")
    return folder / "left" / name


def control_of(path: Path) -> Path:
    """The control block of a queue."""
    return next(path.parent.rglob("control"))


def write_word(path: Path, name: str, value: int) -> None:
    """Changes one word of the control block."""
    with control_of(path).open("r+b") as stream:
        stream.seek(CONTROL.offset_of(name))
        stream.write(CONTROL.pack_field(name, value))


def read_word(path: Path, name: str) -> int:
    """One word of the control block."""
    return int(CONTROL.unpack_field(name, control_of(path).read_bytes()))


def there(queue: penstock.Queue) -> list[bytes]:
    """Every whole message."""
    return [bytes(message.body) for message in queue.scan(tolerant=True)]


@pytest.mark.parametrize("which", [0, 7, COUNT - 1])
@pytest.mark.parametrize("format", FORMATS)
def test_one_rotten_byte_and_a_kill_cost_one_message(
    tmp_path: Path, format: str, which: int
) -> None:
    path = killed(tmp_path, format)
    files = [file for file in (tmp_path / "left").rglob("*") if file.is_file()]
    file = next(file for file in files if body(which) in file.read_bytes())
    with file.open("r+b") as stream:
        stream.seek(file.read_bytes().index(body(which)) + 60)
        stream.write(b"\xee")
    with penstock.Queue(path, create=False, **options(format)) as queue:
        queue.put(b"new")
        found, is_told = there(queue), bool(queue.verify().corrupt)
    whole = [body(number) for number in range(COUNT) if number != which]
    # Beats closes the segment: a last frame that is not whole was cut short, as far as it knows.
    assert found == [*whole, b"new"]
    assert is_told or (format == "beats" and which == COUNT - 1)


@pytest.mark.parametrize("copy", [copy_open, copy_as_killed])
@pytest.mark.parametrize("format", FORMATS)
def test_a_copy_of_an_open_queue_may_lack_what_was_never_synced(
    tmp_path: Path, format: str, copy: Callable[[Path, Path], object]
) -> None:
    """A snapshot restored, or a disk that came back, while the machine stayed up: zeros where the
    last pages should be are the end then; after a kill, which loses no page, they are damage."""
    name, given = "queue.bin" if format == "vqs" else "queue", options(format)
    with penstock.Queue(tmp_path / "open" / name, format=format, **given) as queue:
        for number in range(COUNT):
            queue.put(body(number))
            if number == COUNT - 4:
                queue.sync()
        copy(tmp_path / "open", tmp_path / "left")
    files = [file for file in (tmp_path / "left").rglob("*") if file.is_file()]
    file = next(file for file in files if body(COUNT - 2) in file.read_bytes())
    raw = file.read_bytes()
    start = raw.index(body(COUNT - 3)) + len(body(0))
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(raw.index(body(COUNT - 1)) - start))
    whole = [body(number) for number in range(COUNT - 3)]
    is_killed = copy is copy_as_killed
    with penstock.Queue(tmp_path / "left" / name, create=False, read_only=True) as queue:
        assert there(queue)[: COUNT - 3] == whole
        assert bool(queue.verify().corrupt) == is_killed
    with penstock.Queue(tmp_path / "left" / name, create=False, **given) as queue:
        queue.put(b"new")
        assert there(queue)[: COUNT - 3] == whole
        assert there(queue)[-1] == b"new"
        # Beats closes the segment where its frames end, and reports that.
        assert bool(queue.verify().corrupt) == (is_killed and format != "beats")


@pytest.mark.parametrize("durability", ["always", "process"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_control_block_that_is_older_than_the_frames_costs_no_message(
    tmp_path: Path, format: str, durability: str
) -> None:
    name, given = "queue.bin" if format == "vqs" else "queue", options(format)
    given["durability"] = durability
    with penstock.Queue(tmp_path / "open" / name, format=format, **given) as queue:
        older = control_of(tmp_path / "open" / name).read_bytes()
        for number in range(COUNT):
            queue.put(body(number))
        copy_as_killed(tmp_path / "open", tmp_path / "left")
    path = tmp_path / "left" / name
    control_of(path).write_bytes(older)
    for last in (b"new", b"newer"):
        with penstock.Queue(path, create=False, **given) as queue:
            queue.put(last)
    with penstock.Queue(path, create=False, **given) as queue:
        assert there(queue) == [*map(body, range(COUNT)), b"new", b"newer"]


WRONG = {
    "tail": ["0", "one message less", "inside a message", "a little more", "far away"],
    "segment_base": ["a little more", "far away"],
    "head": ["a little more", "far away"],
    "durable": ["inside a message", "far away"],
    "reserved_end": ["0", "a little more", "far away"],
    "next_number": ["0", "far away"],
    "head_number": ["far away"],
    "reserved_number": ["0", "far away"],
}


@pytest.mark.parametrize(
    ("word", "how"), [(word, how) for word, hows in WRONG.items() for how in hows]
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_word_after_a_kill_costs_no_message(
    tmp_path: Path, format: str, word: str, how: str
) -> None:
    path = killed(tmp_path, format)
    with penstock.Queue(path, create=False, read_only=True, **options(format)) as queue:
        offsets = [message.offset or 0 for message in queue.scan()]
    value, tail = read_word(path, word), read_word(path, "tail")
    changed: int = {
        "0": 0,
        "one message less": offsets[-1],
        "inside a message": offsets[-1] + 8,
        "a little more": value + 8,
        "far away": 1 << 60,
    }[how]
    assert changed != tail
    write_word(path, word, changed)
    with penstock.Queue(path, create=False, **options(format)) as queue:
        assert there(queue) == [*map(body, range(COUNT))]
        queue.put(b"new")
        assert there(queue) == [*map(body, range(COUNT)), b"new"]
        group = queue.group("all", start="earliest")
        assert len(group.get_many(COUNT + 5)) == COUNT + 1
        assert not queue.verify().corrupt


@pytest.mark.parametrize("size", [300, 90])
@pytest.mark.parametrize(
    ("format", "layout"),
    [
        ("penstock", None), ("zbus", "doc000"), ("zbus", "crc"), ("beats", "1"), ("vqs", "doc"),
        ("vqs", "stage4"), ("mfq", None),
    ],
)  # fmt: skip
def test_a_cursor_above_the_recovered_tail_is_set_back_before_anyone_puts(
    tmp_path: Path, format: str, layout: str | None, size: int
) -> None:
    """The page of the ack reached the disk, that of the message did not; then a producer comes."""
    clock = penstock.ManualClock()
    name, given = "queue.bin" if format == "vqs" else "queue", options(format, clock=clock)
    with penstock.Queue(tmp_path / "open" / name, format=format, layout=layout, **given) as queue:
        group = queue.group("workers", ack="lease")
        queue.put(b"a" * 100)
        group.get(0).ack()
        queue.sync()
        copy_as_killed(tmp_path / "open", tmp_path / "left")
        queue.put(b"b" * 300)
        group.get(0).ack()
        groups = next((tmp_path / "open").rglob("groups"))
        older = tmp_path / "left" / groups.relative_to(tmp_path / "open")
        shutil.rmtree(older)
        shutil.copytree(groups, older)
    clock.restart(5)
    bodies = [(b"c%d" % number).ljust(size, b".") for number in range(4)]
    with penstock.Queue(tmp_path / "left" / name, create=False, **given) as queue:
        for one in bodies:
            queue.put(one)
    with penstock.Queue(tmp_path / "left" / name, create=False, **given) as queue:
        assert [bytes(m.body) for m in queue.group("workers").get_many(10)] == bodies


def moved_by_another_program(path: Path, act: Callable[[penstock.Queue], None]) -> None:
    """Another program has used the queue: one that does not know our sidecar."""
    sidecar = path.with_name(path.name + ".penstock") if path.is_file() else path / ".penstock"
    away = path.with_name("away")
    sidecar.rename(away)
    with penstock.Queue(path, create=False, durability="process") as queue:
        act(queue)
    shutil.rmtree(sidecar)
    away.rename(sidecar)


@pytest.mark.parametrize("left", ["killed", "closed"])
@pytest.mark.parametrize("format", ["zbus", "vqs", "mfq"])
def test_what_another_program_put_and_read_since_is_followed(
    tmp_path: Path, format: str, left: str
) -> None:
    name, given = "queue.bin" if format == "vqs" else "queue", options(format)
    with penstock.Queue(tmp_path / "open" / name, format=format, **given) as queue:
        for number in range(COUNT):
            queue.put(body(number))
        for message in queue.get_many(5):
            message.ack()
        queue.sync()
        copy_as_killed(tmp_path / "open", tmp_path / "killed")
    copy_as_killed(tmp_path / "open", tmp_path / "closed")
    path = tmp_path / left / name

    def put_and_read(queue: penstock.Queue) -> None:
        for number in range(COUNT, COUNT + 5):
            queue.put(body(number))
        for message in queue.get_many(10):
            message.ack()
        queue.sync()

    moved_by_another_program(path, put_and_read)
    with penstock.Queue(path, create=False, **given) as queue:
        queue.put(b"new")  # By a producer, who opens no group.
    with penstock.Queue(path, create=False, **given) as queue:
        found = [bytes(message.body) for message in queue.group().get_many(COUNT * 2)]
    assert found == [*map(body, range(15, COUNT + 5)), b"new"]


@pytest.mark.parametrize("layout", ["doc001", "flag", "corr", "crc"])
def test_zbus_numbers_go_on_behind_what_another_program_put_since(
    tmp_path: Path, layout: str
) -> None:
    """Nothing but the end in the index tells that it did: we had closed the queue in order."""
    path = tmp_path / "queue"
    with penstock.Queue(path, format="zbus", layout=layout, **options("zbus")) as queue:
        queue.put_many([body(0), body(1)])

    def put(queue: penstock.Queue) -> None:
        queue.put_many([body(2), body(3), body(4)])

    moved_by_another_program(path, put)
    with penstock.Queue(path, create=False, **options("zbus")) as queue:
        queue.put(body(5))
        numbers = [message.number for message in queue.scan()]
        end = queue.offsets()
    assert end.next_number == end.head_number + 6
    assert numbers == list(range(end.head_number, end.next_number))


def test_mfq_what_was_acked_at_always_does_not_come_back_after_a_power_cut(tmp_path: Path) -> None:
    clock = penstock.ManualClock()
    given = options("mfq", durability="always", clock=clock)
    with penstock.Queue(tmp_path / "open", format="mfq", **given) as queue:
        group = queue.group()
        for number in range(6):
            queue.put(body(number))
        older = (tmp_path / "open/offset/consumer.offset").read_bytes()
        for _ in range(4):
            group.get(0).ack()
        copy_as_killed(tmp_path / "open", tmp_path / "left")
    # The page that nobody synced is the old one.
    (tmp_path / "left/offset/consumer.offset").write_bytes(older)
    clock.restart(5)
    with penstock.Queue(tmp_path / "left", create=False, **given) as queue:
        found = [bytes(message.body) for message in queue.group().get_many(10)]
    assert found == [body(4), body(5)]


@pytest.mark.parametrize("place", [(7, 0), (0, 1 << 20), (0, 11), (-1, 0)])
def test_zbus_a_place_that_can_not_be_is_reported_and_costs_no_message(
    tmp_path: Path, place: tuple[int, int]
) -> None:
    given = options("zbus")
    with penstock.Queue(tmp_path / "queue", format="zbus", **given) as queue:
        for number in range(COUNT):
            queue.put(body(number))
        for message in queue.get_many(5):
            message.ack()
    reader = tmp_path / "queue/reader/default.rdx"
    raw = place[0].to_bytes(8, "big", signed=True) + place[1].to_bytes(4, "big")
    reader.write_bytes(raw + reader.read_bytes()[12:])
    with penstock.Queue(tmp_path / "queue", create=False, **given) as queue:
        found = [bytes(message.body) for message in queue.group().get_many(COUNT * 2)]
        assert [damage.path for damage in queue.store.dropped] == [reader]
    assert found == [body(number) for number in range(5, COUNT)]


@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize("format", ["penstock", "mfq"])
def test_a_missing_segment_is_damage_and_never_silence(
    tmp_path: Path, format: str, which: str
) -> None:
    path, given = tmp_path / "queue", options(format, segment_bytes=1 << 14)
    with penstock.Queue(path, format=format, **given) as queue:
        for number in range(COUNT * 20):
            queue.put(body(number))
        tail = queue.offsets().tail
    segments = sorted((path / ("log" if format == "penstock" else "commitlog")).iterdir())
    assert len(segments) > 2
    segments[0 if which == "first" else -1].unlink()
    with penstock.Queue(path, create=False, read_only=True, **given) as queue:
        assert not queue.verify().is_ok
    with penstock.Queue(path, create=False, **given) as queue:
        assert len(queue.store.dropped) == 1
        # No offset is given twice; an mfq queue can't have a hole.
        assert queue.put(b"new") >= tail or (format, which) == ("mfq", "last")
        assert there(queue)[-1] == b"new"
        assert len(there(queue)) > COUNT


@pytest.mark.parametrize("layout", ["doc000", "crc"])
def test_zbus_reader_files_that_were_cut_short_cost_no_message(tmp_path: Path, layout: str) -> None:
    given = options("zbus")
    with penstock.Queue(tmp_path / "queue", format="zbus", layout=layout, **given) as queue:
        for number in range(COUNT):
            queue.put(body(number))
        for message in queue.group(max_in_flight=100).get_many(5):
            message.ack()
    for file in (tmp_path / "queue/reader").iterdir():
        file.write_bytes(file.read_bytes()[:7])
    with penstock.Queue(tmp_path / "queue", create=False, **given) as queue:
        found = [bytes(message.body) for message in queue.group().get_many(COUNT * 2)]
    assert found == [body(number) for number in range(5, COUNT)]


@pytest.mark.parametrize(
    ("format", "layout", "written"),
    [
        ("zbus", "doc000", ["*.idx"]),
        ("vqs", "doc", ["queue.bin"]),
        ("vqs", "stage4", ["data.dat", "meta.dat"]),
        ("mfq", None, ["0*", "producer.offset", "consumer.offset"]),
    ],
)
def test_after_a_failed_sync_everything_that_was_not_synced_gets_a_new_place(
    tmp_path: Path, format: str, layout: str | None, written: list[str]
) -> None:
    """The kernel may hold a page for clean that the disk never got: storing there again, or syncing
    again, proves nothing."""
    path, given = tmp_path / "queue.bin", options(format, durability="always")
    queue = penstock.Queue(path, format=format, layout=layout, **given)
    queue.put(body(0))
    queue.get(0).ack()
    queue.put(body(1))
    with failing_syncs(), pytest.raises(penstock.PenstockError):
        queue.put(body(2))
    with contextlib.suppress(penstock.PenstockError):
        queue.close()

    def places() -> dict[Path, int]:
        files = [file for name in written for file in tmp_path.rglob(name)]
        return {file: file.stat().st_ino for file in files if ".penstock" not in str(file)}

    before = places()
    assert len(before) == len(written)
    # Held open: or a new file might get the number of the old one.
    with contextlib.ExitStack() as held:
        for file in before:
            held.enter_context(file.open("rb"))
        with penstock.Queue(path, create=False, **given) as queue:
            queue.put(body(3))
            assert body(3) in there(queue)
            assert body(1) in there(queue)
        after = places()
    assert [file for file in before if after[file] == before[file]] == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_group_that_was_set_back_stays_there_after_the_next_power_cut(
    tmp_path: Path, format: str
) -> None:
    """A group that acks by getting goes by its table, whose old page was never to come back."""
    clock = penstock.ManualClock()
    name, given = "queue.bin" if format == "vqs" else "queue", options(format, clock=clock)
    with penstock.Queue(tmp_path / "open" / name, format=format, **given) as queue:
        group = queue.group("all", ack="auto")
        queue.put(b"a" * 100)
        group.get(0)
        queue.sync()
        copy_as_killed(tmp_path / "open", tmp_path / "left")
        queue.put(b"b" * 300)
        group.get(0)
        groups = next((tmp_path / "open").rglob("groups"))
        older = tmp_path / "left" / groups.relative_to(tmp_path / "open")
        shutil.rmtree(older)
        shutil.copytree(groups, older)
    clock.restart(5)
    _core.record_effects(True)
    try:
        with penstock.Queue(tmp_path / "left" / name, create=False, **given):
            effects = _core.take_effects()
    finally:
        _core.record_effects(False)
    table = (older / "all" / "table").stat().st_ino
    is_synced = any(effect[:2] == ("sync", table) for effect in effects)
    assert is_synced or format == "beats"  # There, no place is ever used again.


@pytest.mark.parametrize(
    ("format", "how"),
    [
        ("penstock", "plain"), ("penstock", "lz4"), ("penstock", "key"), ("zbus", "plain"),
        ("vqs", "plain"), ("mfq", "plain"),
    ],
)  # fmt: skip
def test_a_list_is_whole_or_not_there_after_a_power_cut(
    tmp_path: Path, format: str, how: str
) -> None:
    """Of the pages of a list only the first ones, or only the last ones, have reached the disk."""
    kinds: dict[str, dict[str, Any]] = {
        "lz4": {"compression": "lz4"}, "key": {"key": bytes(32)},
    }  # fmt: skip
    more = kinds.get(how, {})
    name, clock = "queue.bin" if format == "vqs" else "queue", penstock.ManualClock()
    given = options(format, durability="always", clock=clock, **more) | (
        {} if format == "vqs" else {"segment_bytes": 1 << 19}
    )
    rng = random.Random(1)
    bodies = [rng.randbytes(1500 if how != "lz4" else 15_000) for _ in range(8)]
    with penstock.Queue(tmp_path / "open" / name, format=format, **given) as queue:
        queue.put(b"first")
        copy_as_killed(tmp_path / "open", tmp_path / "before")
        queue.put_many(bodies)
        copy_as_killed(tmp_path / "open", tmp_path / "after")
    for part in (slice(None, 1), slice(None, 2), slice(None, 3), slice(None, -1), slice(1, None)):
        shutil.rmtree(tmp_path / "left", ignore_errors=True)
        copy_as_killed(tmp_path / "before", tmp_path / "left")
        for file in (tmp_path / "after").rglob("*"):
            older = tmp_path / "before" / file.relative_to(tmp_path / "after")
            if file.is_file() and ".penstock" not in str(file) and file.stat().st_size > 4096:
                old = older.read_bytes() if older.exists() else b""
                mixed = mix_pages(old, file.read_bytes(), part)
                (tmp_path / "left" / file.relative_to(tmp_path / "after")).write_bytes(mixed)
        clock.restart(5)
        with penstock.Queue(tmp_path / "left" / name, create=False, **given) as queue:
            assert there(queue) in ([b"first"], [b"first", *bodies])
            queue.put(b"new")
            assert there(queue)[-1] == b"new"


def mix_pages(old: bytes, new: bytes, part: slice) -> bytes:
    """The old bytes, with some of the pages that are other ones in the new."""
    mixed = bytearray(old.ljust(len(new), b"\0"))
    changed = [
        at for at in range(0, len(new), 4096) if new[at : at + 4096] != mixed[at : at + 4096]
    ]
    for at in changed[part]:
        mixed[at : at + 4096] = new[at : at + 4096]
    return bytes(mixed)


@pytest.mark.parametrize("is_killed", [True, False], ids=["kill", "power-cut"])
def test_what_was_never_whole_is_cleared_before_anything_is_put(
    tmp_path: Path, is_killed: bool
) -> None:
    """Or what stands there would follow the next message, once a power cut has kept its page and
    not the zeros that a put stores behind its frames."""
    path = killed(tmp_path, "penstock")
    tail, segment = read_word(path, "tail"), next((path / "log").glob("*.seg"))
    at = 4096 + tail
    with segment.open("r+b") as stream:
        stream.seek(4096)
        frame = stream.read(144)
        stream.seek(at)
        stream.write(b"\xff\xff\xff\x7f" + frame[4:] + frame)
    write_word(path, "reserved_end", tail + 288)
    if not is_killed:
        write_word(path, "boot", 1)
    with penstock.Queue(path, create=False, **options("penstock")) as queue:
        assert queue.offsets().tail == tail
    with segment.open("rb") as stream:
        stream.seek(at)
        assert not any(stream.read(288))


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_that_was_prepared_before_a_power_cut_becomes_a_segment(
    tmp_path: Path, format: str
) -> None:
    path = killed(tmp_path, format)
    write_word(path, "boot", 1)
    # The rename that made it a segment was lost, and what was written to it since was not.
    sidecar = control_of(path).parent
    for name in ("next.seg", "copy-0.zbus", "new-0123456789abcdef.idx"):
        (sidecar / name).write_bytes(body(0) * 1000)
    with penstock.Queue(path, **options(format)):
        left = [file.name for file in sidecar.iterdir() if file.is_file()]
        assert not {name for name in left if name.startswith(("next", "copy-", "new-"))}
