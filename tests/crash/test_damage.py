"""One flipped bit, one missing byte, one wrong file: never silently wrong, never silently fewer."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow
import pytest

from penstock import (
    CorruptError,
    Empty,
    FormatError,
    PenstockError,
    Queue,
    StorageError,
    UnsupportedError,
)
from penstock.disk import files
from tests import counting
from tests.crash.killing import in_a_small_process

KEY = bytes(range(32))
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {}, "compressed": {"compression": "lz4"}, "encrypted": {"key": KEY},
}  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    path = MEMORY / f"penstock-damage-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


def make(folder: Path, options: dict[str, Any]) -> tuple[Path, list[bytes], Path]:
    path = folder / "queue"
    put = [b"message %02d " % number * (number + 1) for number in range(6)]
    with Queue(path, segment_bytes=16384, **options) as queue:
        for body in put[:3]:
            queue.put(body, tag="a.b", id="id", headers={"k": "v"})
        queue.put_many(put[3:])
    (file,) = (path / "log").iterdir()
    return path, put, file


def read(path: Path, options: dict[str, Any]) -> tuple[list[bytes], bool]:
    """What can be read, and whether damage was reported."""
    found: list[bytes] = []
    try:
        with Queue(path, read_only=True, **options) as queue:
            reported = not queue.verify().is_ok
            scan = queue.scan(tolerant=True)
            found += [message.body for message in scan]
            return found, reported or bool(scan.damage)
    except PenstockError:
        return found, True


def used_bytes(file: Path) -> int:
    return len(file.read_bytes().rstrip(b"\0")) + 16


def flip(path: Path, file: Path, put: list[bytes], options: Any, bits: Any) -> int:
    before = file.read_bytes()
    noticed = 0
    with file.open("r+b", buffering=0) as stream:
        for bit in bits:
            at = bit // 8
            stream.seek(at)
            stream.write(bytes([before[at] ^ (1 << bit % 8)]))
            found, reported = read(path, options)
            assert all(body in put for body in found), f"bit {bit}: wrong data"
            assert found == put or reported, f"bit {bit}: {len(found)} of {len(put)}, no report"
            noticed += reported
            counting.count("flips")
            stream.seek(at)
            stream.write(before[at : at + 1])
    return noticed


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_never_silent(folder: Path, kind: str) -> None:
    path, put, file = make(folder, KINDS[kind])
    frames = range(4096 * 8, used_bytes(file) * 8)
    header = range(96 * 8)
    rng = random.Random(7)
    bits = [*rng.sample(frames, 500), *rng.sample(header, 100)]
    assert flip(path, file, put, KINDS[kind], bits) > 400


def one_by_one(queue: Queue, name: str) -> Iterator[bytes]:
    group = queue.group(name, ack="auto")
    while True:
        try:
            yield group.get(0).body
        except Empty:
            return


def by_the_list(queue: Queue, name: str) -> Iterator[bytes]:
    group = queue.group(name, ack="auto")
    while messages := group.get_many(100):
        yield from (message.body for message in messages)


def bodies_alone(queue: Queue, name: str) -> Iterator[bytes]:
    group = queue.group(name, ack="auto")
    while bodies := group.get_bodies(100):
        yield from bodies


def as_a_table(queue: Queue, _name: str) -> Iterator[bytes]:
    for batch in pyarrow.RecordBatchReader.from_stream(queue.scan(columns=["body"])):
        yield from batch.column("body").to_pylist()


@pytest.mark.parametrize("way", [one_by_one, by_the_list, bodies_alone, as_a_table])
def test_a_flipped_bit_in_a_frame_with_nothing_but_a_body_is_never_silent(
    folder: Path, way: Callable[[Queue, str], Iterator[bytes]]
) -> None:
    path = folder / "queue"
    put = [bytes([65 + n]) * size for n, size in enumerate((1, 20, 100, 101, 470, 1000, 1600, 9))]
    noticed = 0
    with Queue(path, segment_bytes=16384) as queue:
        queue.put_many(put)
        (file,) = (path / "log").iterdir()
        before = file.read_bytes()
        with file.open("r+b", buffering=0) as stream:
            for bit in random.Random(7).sample(range(4096 * 8, used_bytes(file) * 8), 150):
                stream.seek(bit // 8)
                stream.write(bytes([before[bit // 8] ^ (1 << bit % 8)]))
                found: list[bytes] = []
                reported = False
                try:
                    found.extend(way(queue, f"bit-{bit}"))
                except (PenstockError, pyarrow.ArrowException):
                    reported = True
                assert found == put or (reported and found == put[: len(found)]), f"bit {bit}"
                noticed += reported
                stream.seek(bit // 8)
                stream.write(before[bit // 8 : bit // 8 + 1])
    assert noticed > 120


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_is_silent(folder: Path, kind: str) -> None:
    path, put, file = make(folder, KINDS[kind])
    flip(path, file, put, KINDS[kind], range(used_bytes(file) * 8))


@pytest.mark.parametrize("step", [19, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_cut_at_any_byte_is_never_silently_shorter(
    folder: Path, kind: str, step: int
) -> None:
    path, put, file = make(folder, KINDS[kind])
    whole = file.read_bytes()
    for size in range(used_bytes(file) - 16, 0, -step):
        os.truncate(file, size)
        found, reported = read(path, KINDS[kind])
        assert found == put[: len(found)]
        assert found == put or reported, f"cut at {size}: {len(found)} of {len(put)}, no report"
    file.write_bytes(whole)
    assert read(path, KINDS[kind]) == (put, False)


@pytest.mark.parametrize("count", [400, pytest.param(220 * 8, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_the_control_block_loses_nothing(folder: Path, count: int) -> None:
    path, put, _ = make(folder, {})
    control = path / ".penstock/control"
    whole = control.read_bytes()
    for bit in random.Random(7).sample(range(220 * 8), count):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        control.write_bytes(data)
        assert read(path, {})[0] == put, f"bit {bit}"
        counting.count("flips")


# ── bad input ──────────────────────────────────────────────────────────────────────────────────


def test_a_segment_of_another_version_says_so(folder: Path) -> None:
    path, _, file = make(folder, {})
    data = bytearray(file.read_bytes())
    data[8:12] = (2).to_bytes(4, "little")
    data[92:96] = google_crc32c.value(bytes(data[:92])).to_bytes(4, "little")
    file.write_bytes(data)
    with pytest.raises(FormatError, match=r"version 2.*version 1"):
        Queue(path)


def test_an_unknown_frame_flag_is_refused_with_file_and_byte(folder: Path) -> None:
    path, put, file = make(folder, {})
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[4096:4100], "little")
    data[4104] |= 64
    crc = google_crc32c.extend(size ^ 0xFFFFFFFF, bytes(data[4104 : 4096 + size]))
    data[4100:4104] = crc.to_bytes(4, "little")
    file.write_bytes(data)
    with Queue(path) as queue:
        with pytest.raises(CorruptError, match="unknown flag") as caught:
            list(queue.scan())
        assert (caught.value.path, caught.value.at) == (file, 4104)
        assert [m.body for m in queue.scan(tolerant=True)] == put[1:]


def test_a_folder_without_segments_is_no_queue(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other/file.txt").write_text("hello")
    with pytest.raises(FormatError, match=r"file\.txt"):
        Queue(folder / "other")
    assert (folder / "other/file.txt").read_text() == "hello"


def test_a_network_mount_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, put, _ = make(folder, {})
    monkeypatch.setattr("penstock._core.file_system", lambda _: 0x6969)
    with pytest.raises(StorageError, match="NFS"):
        Queue(path)
    with Queue(path, read_only=True) as queue:
        assert [m.body for m in queue.scan()] == put
    assert files.NETWORK_FILE_SYSTEMS[0x6969] == "NFS"


def test_a_full_disk_is_an_error_and_loses_nothing(folder: Path) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            queue = Queue(folder / "q", segment_bytes=16384, durability="process")
            queue.put(b"before")
            try:
                queue.put(bytes(200_000))
            except OSError:
                queue.put(b"after")
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with Queue(folder / "q") as queue:
        assert [message.body for message in queue.scan()] == [b"before", b"after"]


def open_as_nobody(path: Path) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(65534)
    with pytest.raises(StorageError, match="check its owner and its rights") as caught:
        Queue(path)
    assert path in (caught.value.path, *caught.value.path.parents)


@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_no_permission_is_an_error_that_names_the_folder(folder: Path, mode: int) -> None:
    path, put, _ = make(folder, {})
    folder.chmod(0o755)
    for place in (path, path / ".penstock"):
        place.chmod(mode)
    try:
        in_a_small_process(open_as_nobody, path)
    finally:
        for place in (path, path / ".penstock"):
            place.chmod(0o700)
    assert read(path, {}) == (put, False)


def test_a_body_over_the_limit_is_refused(folder: Path) -> None:
    with Queue(folder / "q", max_message_bytes=10) as queue, pytest.raises(UnsupportedError):
        queue.put(bytes(11))
