"""Files of a group that were damaged at rest: made anew, or an error; no message is passed over."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.formats import registry
from penstock.sidecar import groups

COUNT = 20
WORDS_BYTES = 4096 + 16 * 96
"""Of a table: its header, and the first of its entries."""


def body(index: int) -> bytes:
    return b"%02d" % index * 50


class Spoiled:
    """A queue with two groups, closed in order; their files can be damaged and put right again."""

    def __init__(self, folder: Path, format: str) -> None:
        self.path = folder / ("q.bin" if format == "vqs" else "q")
        self.options = {"durability": "process", "clock": penstock.ManualClock()}
        self.options |= {"max_bytes": 1 << 17} if format == "vqs" else {}
        with self.open(format=format) as queue:
            queue.group("holder")  # Where what everyone has read goes, nothing goes.
            auto, lease = queue.group("auto", ack="auto"), queue.group("lease", native_cursor=False)
            for index in range(COUNT):
                queue.put(body(index), key="k" if index % 5 == 0 else None)
            assert len(auto.get_many(8)) == 8
            for message in lease.get_many(5):
                message.ack()
            lease.get_many(3)
        sidecar = folder / "q.bin.penstock" if format == "vqs" else self.path / ".penstock"
        self.folders = [sidecar / "groups" / name for name in ("auto", "lease")]
        self.kept = {
            path: self.start_of(path) for folder in self.folders for path in self.in_(folder)
        }

    def open(self, format: str | None = None) -> penstock.Queue:
        return penstock.Queue(self.path, format=format, **self.options)  # type: ignore[arg-type]

    @staticmethod
    def in_(folder: Path) -> Iterator[Path]:
        return (path for path in folder.iterdir() if path.name.startswith(("table", "journal")))

    @staticmethod
    def start_of(path: Path) -> bytes:
        with path.open("rb") as stream:
            return stream.read(WORDS_BYTES)

    def restore(self) -> None:
        for folder in self.folders:
            for path in self.in_(folder):
                if path not in self.kept:
                    path.unlink()
        for path, data in self.kept.items():
            with suppress(FileNotFoundError), path.open("r+b") as stream:
                stream.write(data)
                continue
            path.write_bytes(data)

    def spoil(self, name: str, at: int, mask: int) -> None:
        for folder in self.folders:
            for path in self.in_(folder):
                if path.name.startswith(name):
                    with path.open("r+b") as stream:
                        stream.seek(at)
                        old = stream.read(1)
                        stream.seek(at)
                        stream.write(bytes([old[0] ^ mask]))

    def check(self, what: str) -> None:
        """Everything unread comes, or an error of ours says why not."""
        with self.open() as queue:
            auto = {m.body for m in queue.group("auto", ack="auto").get_many(100)}
            assert {body(i) for i in range(8, COUNT)} <= auto, f"{what}: auto"
            lease = queue.group("lease")
            got: set[bytes] = set()
            while found := lease.get_many(100):
                got |= {message.body for message in found}
                for message in found:
                    message.ack()
            assert {body(i) for i in range(5, COUNT)} <= got, f"{what}: lease"


def bits_of(spoiled: Spoiled, name: str, sample: int | None) -> list[tuple[int, int]]:
    size = groups.TABLE.size if name == "table" else 400
    bits = [(at, 1 << bit) for at in range(size) for bit in range(8)]
    return bits if sample is None else random.Random(name).sample(bits, sample)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["table", "journal"])
@pytest.mark.parametrize("format", sorted(registry.MODULES))
def test_no_flipped_bit_passes_over_a_message(tmp_path: Path, format: str, name: str) -> None:
    spoiled = Spoiled(tmp_path, format)
    for at, mask in bits_of(spoiled, name, 60):
        spoiled.restore()
        spoiled.spoil(name, at, mask)
        spoiled.check(f"{name}, byte {at}, mask {mask:#x}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["table", "journal"])
@pytest.mark.parametrize("format", sorted(registry.MODULES))
def test_none_of_all_the_bits_passes_over_a_message(tmp_path: Path, format: str, name: str) -> None:
    spoiled = Spoiled(tmp_path, format)
    for at, mask in bits_of(spoiled, name, None):
        spoiled.restore()
        spoiled.spoil(name, at, mask)
        spoiled.check(f"{name}, byte {at}, mask {mask:#x}")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", [0, 1, 8, 200, 4096, 5000])
@pytest.mark.parametrize("name", ["table", "journal"])
def test_files_that_were_cut_short_are_made_anew(tmp_path: Path, name: str, size: int) -> None:
    spoiled = Spoiled(tmp_path, "penstock")
    for folder in spoiled.folders:
        for path in spoiled.in_(folder):
            if path.name.startswith(name):
                with path.open("r+b") as stream:
                    stream.truncate(size)
    spoiled.check(f"{name} of {size} bytes")


def test_a_journal_that_is_gone_hands_everything_out_again(tmp_path: Path) -> None:
    spoiled = Spoiled(tmp_path, "penstock")
    for folder in spoiled.folders:
        next(folder.glob("journal-*")).unlink()
    spoiled.check("no journal")


def test_a_record_in_the_middle_that_does_not_check_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoiled = Spoiled(tmp_path, "penstock")
    spoiled.spoil("journal", 100, 1)
    spoiled.check("journal")
    assert "does not check; what was acked after it comes again" in caplog.text
    caplog.clear()
    with spoiled.open() as queue:
        queue.group("auto", ack="auto")
    assert caplog.text == ""


def test_the_lock_of_a_group_that_nobody_has_open_is_free(tmp_path: Path) -> None:
    spoiled = Spoiled(tmp_path, "penstock")
    for value in range(1, 8):
        spoiled.restore()
        spoiled.spoil("table", 16, value)
        spoiled.spoil("table", 24, value)
        spoiled.check(f"lock {value}")


@pytest.mark.parametrize("damage", ["cut", "gone"])
@pytest.mark.parametrize("format", ["vqs", "beats", "penstock"])
def test_a_group_whose_options_can_t_be_read_holds_everything(
    tmp_path: Path, format: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / ("q.bin" if format == "vqs" else "q")
    options: dict[str, Any] = {"durability": "process", "retention_bytes": 20_000}
    if format == "vqs":
        options = {"durability": "process", "max_bytes": 1 << 20}
    else:
        options |= {"segment_bytes": 16384}
    bodies = [b"%02d" % number * 4000 for number in range(10)]
    with penstock.Queue(path, format=format, **options) as queue:
        queue.group("slow")
        queue.put_many(bodies)
        queue.group("slow").get(0).ack()
    sidecar = next(tmp_path.rglob("groups")).parent
    file = sidecar / "groups" / "slow" / "group.json"
    whole = file.read_bytes()
    file.unlink() if damage == "gone" else file.write_bytes(whole[:40])
    with penstock.Queue(path, create=False, **options) as queue:
        for message in queue.group("quick").get_many(99):
            message.ack()
        queue.trim()
        assert [m.body for m in queue.scan()][-9:] == bodies[1:]
    assert "group 'slow' can't be read" in caplog.text
    file.write_bytes(whole)
    with penstock.Queue(path, create=False, **options) as queue:
        assert [m.body for m in queue.group("slow").get_many(99)] == bodies[1:]
