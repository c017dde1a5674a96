"""Power cuts on a real file system: nothing that a put or an ack returned for is lost.

Needs root, loop devices and FUSE; skipped with what is missing elsewhere. The whole matrix is
`make ladder RUNG=T5 SIZE=release`.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.ladder import powercut
from tests.ladder.blocks import FLUSH, FUA, Image, survivors
from tests.ladder.cut_products import Case
from tests.ladder.means import NotRun
from tests.ladder.rungs import LAYOUTS

pytestmark = pytest.mark.crash
FORMATS = [("penstock", ""), ("zbus", "doc000"), ("beats", "1"), ("vqs", "doc"), ("mfq", "")]


def cut(case: Case) -> dict[str, Any]:
    try:
        return powercut.in_own_process(case)
    except NotRun as missing:
        pytest.skip(str(missing))


def check(found: dict[str, Any]) -> None:
    assert not found["workload_failures"]
    assert found["states"] + found["unmountable"], "no state was tried"
    assert not found["failing"], (found["title"], found["kinds"], found["examples"])


@pytest.mark.parametrize(("format", "layout"), FORMATS)
def test_a_power_cut_on_ext4_keeps_every_promise(format: str, layout: str) -> None:
    check(cut(Case(format=format, layout=layout, states=8, messages=25)))


@pytest.mark.slow
@pytest.mark.parametrize(("format", "layout"), FORMATS)
def test_a_disk_that_went_back_while_the_machine_stayed_up_keeps_every_promise(
    format: str, layout: str
) -> None:
    check(cut(Case(format=format, layout=layout, states=24, messages=40, boot="same")))


@pytest.mark.slow
@pytest.mark.parametrize("file_system", ["ext4", "ext4w", "ext4j", "xfs", "btrfs"])
@pytest.mark.parametrize(("format", "layout", "variant"), LAYOUTS, ids=" ".join)
def test_a_power_cut_keeps_every_promise_in_every_layout(
    file_system: str, format: str, layout: str, variant: str
) -> None:
    check(cut(Case(
        format=format, layout=layout, variant=variant, file_system=file_system, states=40, double=1,
    )))  # fmt: skip


# ── the rig itself: one that finds nothing might be blind ──────────────────────────────────────


def test_a_queue_that_never_syncs_is_caught() -> None:
    found = cut(Case(product="sqlite", format="", durability="NORMAL", states=6, messages=25))
    assert found["failing"]
    assert set(found["kinds"]) <= {"LOST", "default (lease)"}


def test_what_was_flushed_is_always_there() -> None:
    image = Image(8192)
    entries = [(0, b"a" * 512, 0), (0, b"", FLUSH), (512, b"b" * 512, 0), (1024, b"c" * 512, FUA)]
    later = image.forward(entries, 3)
    assert image.memory[:512] == b"a" * 512
    assert later == entries[2:]
    assert survivors(later, "none", random.Random(1)) == [(1024, b"c" * 512)]
    assert survivors(later, "all", random.Random(1)) == [entry[:2] for entry in later]


def test_a_torn_write_is_kept_in_whole_pieces() -> None:
    data = bytes(range(256)) * 8
    kept = survivors([(4096, data, 0)], "torn512", random.Random(3))
    assert 0 < len(kept) < 4
    assert all(piece == data[at - 4096 : at - 4096 + 512] for at, piece in kept)
