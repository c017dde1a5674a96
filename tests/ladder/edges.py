"""What Python reads of a queue's bytes, by name, each with bytes that fit: for a fuzzer.

    python -m tests.ladder.edges NAME [SECONDS]

With `atheris` installed the inputs are guided by coverage, else they are changed at random. An
answer or an error of ours is right; everything else is a fault, and its input is printed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import PenstockError, Queue
from penstock.engine import codecs, group
from penstock.formats import registry
from penstock.formats.beats import segments
from penstock.sidecar import control, groups
from tests import counting
from tests.ladder.means import MEMORY

FOLDER = MEMORY / f"penstock-edges-{os.getpid()}"


def file(name: str) -> Callable[[bytes], Path]:
    """A folder with one file of these bytes."""

    def write(data: bytes) -> Path:
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return write


def of_codec(name: str) -> Callable[[bytes], object]:
    codec = codecs.find(name)
    assert codec is not None
    return codec.decode


def opened(name: str, **options: Any) -> Callable[[bytes], object]:
    """A whole queue one of whose files has these bytes, read from its beginning to its end."""

    def read(data: bytes) -> object:
        write = file(name)
        write(data)
        with Queue(FOLDER / name.split("/")[0], create=False, read_only=True, **options) as queue:
            return [message.body for message in queue.scan(tolerant=True)]

    return read


def target(read: Callable[[Path], object], name: str) -> Callable[[bytes], object]:
    write = file(name)
    return lambda data: read(write(data))


BOOT = 1
TARGETS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "json codec": (of_codec("json"), b'{"n": [1, 2.5, null], "t": "\\u00e9"}'),
    "cbor codec": (of_codec("cbor"), bytes.fromhex("a2616e83010203617463666f6f")),
    "log codec": (of_codec("logrecord"), b'{"name": "a", "msg": "%s", "args": ["x"]}'),
    "group options": (
        target(lambda path: group.load_options(path.parent), "g/group.json"),
        json.dumps({"visibility_s": 30.0, "ack": "lease", "tags": "a.*"}).encode(),
    ),
    "control words": (
        target(lambda path: control.peek(path.parent), "s/control"),
        b"PENSTCTL" + bytes(20472),
    ),
    "group table": (
        target(lambda path: groups.peek(path.parent, BOOT), "t/table"),
        b"PENSTGR2" + bytes(4088),
    ),
    "kept options": (opened("q/.penstock/options.json"), b'{"segment_bytes": 65536}'),
    "beats segment": (
        target(lambda path: segments.identify(path, None), "b/0.seg"),
        bytes.fromhex("0100000002000000") + bytes(64),
    ),
    "beats queue": (opened("bq/0.seg", format="beats"), bytes.fromhex("0100000001000000")),
    "penstock queue": (opened("pq/log/00000000000000000000.seg"), b"PENSTOCK" + bytes(4200)),
    "vqs queue": (opened("v.bin", format="vqs"), bytes(20000)),
    "any folder": (
        target(lambda path: registry.sniff(path.parent), "a/00000000000000000000.zbus"),
        bytes(2048),
    ),
}  # fmt: skip


def run(name: str, data: bytes) -> None:
    """Answers, or fails by what is no error of ours."""
    read, _ = TARGETS[name]
    with contextlib.suppress(PenstockError, FileNotFoundError):
        read(data)


def changed(seed: bytes, chance: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
            case 2:
                data[at : at + 8] = chance.choice((0, 1, 2**31, 2**63, 2**64 - 1)).to_bytes(
                    8, "big"
                )
            case 3:
                data[at : at + 4] = b"[{\xff\x00"
            case _ if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


def tries(name: str, seconds: float, seed: int) -> int:
    """How many inputs were tried."""
    chance, until, count = random.Random(seed), time.monotonic() + seconds, 0
    _, usual = TARGETS[name]
    while time.monotonic() < until or count < 50:
        data = changed(usual, chance)
        try:
            run(name, data)
        except BaseException as error:
            raise AssertionError(f"{name}: {data!r}") from error
        count += 1
    counting.count("inputs", count)
    return count


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2]) if sys.argv[2:] else 60.0
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        print(f"{name}: {tries(name, seconds, time.time_ns())} inputs at random")
        return
    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True)
    (corpus / "seed").write_bytes(TARGETS[name][1])
    atheris.instrument_all()
    atheris.Setup(
        [sys.argv[0], str(corpus), f"-max_total_time={int(seconds)}"], lambda data: run(name, data)
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
