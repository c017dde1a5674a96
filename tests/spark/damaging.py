"""Queues of every format, and what can be wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock import Queue
from penstock.formats.penstock import structs
from penstock.formats.penstock.segments import Header
from penstock.formats.zbus.format import ZbusFormat
from penstock.formats.zbus.index import slot_at
from penstock.records import replace

LAYOUTS = {
    "penstock": ["1"],
    "zbus": ["doc000", "doc001", "flag", "corr", "crc"],
    "beats": ["0", "1", "2-released", "2-released-lz4"],
    "vqs": ["doc", "stage4"],
    "mfq": ["1"],
}
CASES = [(kind, layout) for kind, layouts in LAYOUTS.items() for layout in layouts]
SUFFIX = {"penstock": ".seg", "zbus": ".zbus", "beats": ".seg", "vqs": ".dat", "mfq": ""}


def filled(path: Path, kind: str, layout: str, *, killed: bool = False) -> Path:
    """A queue of some segments; a killed one was synced with every put and never closed."""
    size: dict[str, Any] = {"max_bytes": 131072} if kind == "vqs" else {"segment_bytes": 16384}
    queue = Queue(path, format=kind, layout=layout, durability="always", **size)
    for number in range(120):
        queue.put(b"%03d" % number + b"x" * (900 if number % 2 else 9))
    (queue.store.drop if killed else queue.close)()
    return path


def segments(path: Path, kind: str) -> list[Path]:
    if path.is_file():
        return [path]
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    inside = [file for file in files if ".penstock" not in file.parts]
    return [file for file in inside if file.suffix == SUFFIX[kind] and "offset" not in file.name]


def used(file: Path) -> int:
    return len(file.read_bytes().rstrip(b"\0"))


def cut_last(files: list[Path]) -> None:
    with files[-1].open("r+b") as file:
        file.truncate(used(files[-1]) - 3)


def cut_in_the_middle(files: list[Path]) -> None:
    middle = files[len(files) // 2]
    with middle.open("r+b") as file:
        file.truncate(used(middle) // 2)


def stray(files: list[Path]) -> None:
    at = used(files[-1])
    with files[-1].open("r+b") as file:
        file.seek(at + 8 - at % 8)
        file.write(b"stray bytes!" * 3)


def header(files: list[Path]) -> None:
    with files[len(files) // 2].open("r+b") as file:
        file.write(b"\xaa\x55")


def missing(files: list[Path]) -> None:
    files[len(files) // 2].unlink()


def missing_first(files: list[Path]) -> None:
    files[0].unlink()


def missing_last(files: list[Path]) -> None:
    files[-1].unlink()


def producer_behind(path: Path) -> None:
    (path / "offset" / "producer.offset").write_bytes(bytes(8))


def consumer_inside(path: Path) -> None:
    (path / "offset" / "consumer.offset").write_bytes((1000).to_bytes(8, "little"))


def consumer_in_a_lost_file(path: Path) -> None:
    lost = sorted((path / "commitlog").iterdir())[1]
    (path / "offset" / "consumer.offset").write_bytes((int(lost.name) + 7).to_bytes(8, "little"))
    lost.unlink()


def block_ends_early(path: Path) -> None:
    change_end(path, -8)


def block_ends_beyond_memory(path: Path) -> None:
    change_end(path, 0x7000_0000)


def change_end(path: Path, by: int) -> None:
    """Of the second block, as the index has it."""
    with Queue(path, read_only=True) as queue:
        store = queue.store.format
        assert isinstance(store, ZbusFormat)
        block = store.index().blocks[1]
    word, file = block.end.to_bytes(4, "big"), path / f"{path.name}.idx"
    at = file.read_bytes().index(word, slot_at(block.number) + 16)  # Behind its time and its base.
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write((block.end + by).to_bytes(4, "big"))


def link_to_another(path: Path) -> None:
    """A segment that continues another history, as after a part of a copy was put back."""
    file = sorted((path / "log").iterdir())[1]
    page = file.read_bytes()[: structs.HEADER_BYTES]
    header = replace(Header.unpack(page, file), previous=1)
    with file.open("r+b") as opened:
        opened.write(header.pack()[: structs.HEADER.size])


CONTRADICTIONS = [
    ("mfq", "1", producer_behind), ("mfq", "1", consumer_inside),
    ("mfq", "1", consumer_in_a_lost_file), ("penstock", "1", link_to_another),
    *(("zbus", layout, change) for layout in LAYOUTS["zbus"]
      for change in (block_ends_early, block_ends_beyond_memory)),
]  # fmt: skip
"""Words of a format's own files and headers that do not fit together."""


DAMAGE = [cut_last, cut_in_the_middle, stray, header, missing, missing_first, missing_last]
