"""Shipping a queue to a URL, and reading it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import FormatError, NoQueueError, OptionError, Queue, UnsupportedError
from penstock.formats import registry
from penstock.spark import ship as shipping
from penstock.spark.loss import DataLoss
from penstock.spark.ship import ship
from penstock.spark.shipped import MANIFEST, Manifest
from tests.spark.helpers import batch, batch_writer, drain, scanned, stream

pytest.importorskip("fsspec")


def rolled(path: Path, count: int = 3000) -> Path:
    with Queue(path, segment_bytes=1 << 18) as queue:
        for number in range(count):
            queue.put(b"%d" % number + bytes(1000), tag=f"t.{number % 3}")
    return path


def sealed(path: Path) -> list[dict[str, object]]:
    with Queue(path, read_only=True) as queue:
        end = queue.store.segments()[-1].base
    return [row for row in scanned(path) if row["offset"] < end]


@pytest.mark.parametrize("place", ["file", "memory"])
def test_a_shipped_queue_reads_like_the_local_one(tmp_path: Path, place: str) -> None:
    path = rolled(tmp_path / "q")
    url = f"file://{tmp_path}/far/q" if place == "file" else f"memory://far-{tmp_path.name}/q"
    facts = ship(path, url)
    assert facts["segments"] > 1
    if place == "file":
        url = url.replace("file://", "local://")
    found = batch(url, columns="offset,body,tag,queue", targetPartitionBytes="1m")
    assert [(r["offset"], r["body"], r["tag"]) for r in found] == [
        (r["offset"], r["body"], r["tag"]) for r in sealed(path)
    ]
    assert {row["queue"] for row in found} == {"q"}


def test_shipping_again_copies_only_what_is_new(tmp_path: Path) -> None:
    path, url = rolled(tmp_path / "q"), f"memory://again-{tmp_path.name}/q"
    first = ship(path, url)
    again = ship(path, url)
    assert (again["segments"], again["already"]) == (0, first["segments"])
    rolled(path)
    assert ship(path, url, dry_run=True)["segments"] > 0
    assert ship(path, url)["segments"] > 0
    manifest = Manifest.load(url)
    assert manifest is not None
    assert [s.end for s in manifest.segments[:-1]] == [s.base for s in manifest.segments[1:]]


def test_retention_waits_until_a_segment_was_shipped(tmp_path: Path) -> None:
    path, url = rolled(tmp_path / "q"), f"memory://waits-{tmp_path.name}/q"
    assert ship(path, url, group="shipping", dry_run=True)["segments"] > 1
    first = ship(path, url, group="shipping")
    with Queue(path) as queue:
        group = queue.group("shipping", create=False)
        assert group.cursor == first["shipped"] == queue.store.segments()[-1].base
    rolled(path)
    with Queue(path) as queue:
        queue.trim("latest")
        assert queue.offsets().head <= first["shipped"]
    again = ship(path, url, group="shipping")
    assert again["shipped"] > first["shipped"]
    manifest = Manifest.load(url)
    assert manifest is not None
    assert [s.end for s in manifest.segments[:-1]] == [s.base for s in manifest.segments[1:]]


@pytest.mark.parametrize("format", registry.MODULES)
def test_a_copy_on_a_mount_is_read_by_its_path(tmp_path: Path, format: str) -> None:
    path = tmp_path / ("q.bin" if format == "vqs" else "q")
    size: dict[str, Any] = {} if format == "vqs" else {"segment_bytes": 1 << 18}
    with Queue(path, format=format, **size) as queue:
        for number in range(600):
            queue.put(b"%d" % number + bytes(1000))
    url = f"file://{tmp_path}/far/q"
    ship(path, url, whole=True)
    wanted = [(row["offset"], row["body"]) for row in scanned(path)]
    for where in (url, tmp_path / "far" / "q", f"{tmp_path}/far/*"):
        found = batch(where, columns="offset,body")
        assert [(row["offset"], row["body"]) for row in found] == wanted
    with pytest.raises(OptionError, match="shipped"):
        batch_writer(tmp_path / "far" / "q")


def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, url = rolled(tmp_path / "q"), f"memory://halfway-{tmp_path.name}/q"
    monkeypatch.setattr(shipping, "PUBLISH_BYTES", 1 << 19)
    wanted = ship(path, url, dry_run=True)["segments"]

    def until_the_sixth(said: str, left: list[int] = [5]) -> None:  # noqa: B006  (its own count)
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ship(path, url, on_progress=until_the_sixth)
    assert batch(url, columns="offset")[0] == {"offset": 0}
    here = f"file://{tmp_path}/far"
    with pytest.raises(ZeroDivisionError):
        ship(path, here, on_progress=lambda said: 1 / 0)  # type: ignore[arg-type]
    assert batch(here) == []
    assert ship(path, here)["segments"] == wanted
    again = ship(path, url)
    assert (again["already"], again["already"] + again["segments"]) == (6, wanted)
    assert len(batch(url, columns="offset")) == len(sealed(path))


def test_what_was_removed_before_it_was_shipped_is_said_and_never_passed_over(
    tmp_path: Path,
) -> None:
    path, url = rolled(tmp_path / "q"), f"memory://gap-{tmp_path.name}/q"
    first = ship(path, url)
    _, at = drain(stream(url, columns="offset"))
    rolled(path)
    with Queue(path) as queue:
        queue.trim("latest")
        head = queue.offsets().head
    rolled(path)
    gap = head - first["shipped"]
    assert ship(path, url)["missing"] == gap > 0
    text = rf"queue q: offsets {first['shipped']} to {head} .* removed before they were shipped"
    with pytest.raises(DataLoss, match=text):
        batch(url, columns="offset")
    with pytest.raises(DataLoss, match=text):
        drain(stream(url, columns="offset"), at)
    lenient = stream(url, columns="offset", failOnDataLoss="false")
    assert drain(lenient, at)[0][0][0] == {"offset": head}


@pytest.mark.parametrize("place", ["q", "other"])
def test_no_copy_goes_over_the_files_of_a_queue(tmp_path: Path, place: str) -> None:
    path = rolled(tmp_path / "q")
    rolled(tmp_path / "other", 5)
    before = scanned(path)
    with pytest.raises(OptionError, match="a queue is there"):
        ship(path, f"file://{tmp_path}/{place}", whole=True)
    assert scanned(path) == before
    assert not (tmp_path / place / MANIFEST).exists()


def test_a_queue_of_one_file_is_shipped_whole_or_not_at_all(tmp_path: Path) -> None:
    with Queue(tmp_path / "q.bin", format="vqs") as queue:
        queue.put(b"a")
    with pytest.raises(UnsupportedError, match="--whole"):
        ship(tmp_path / "q.bin", f"memory://file-{tmp_path.name}/q")


@pytest.mark.parametrize("text", ["", "[]", '{"v": 9}', '{"v": 1, "segments": [{"bad": 1}]}'])
def test_a_manifest_that_is_none_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(FormatError, match=rf"{tmp_path.name}: {MANIFEST}"):
        batch(tmp_path)


def test_a_url_that_nothing_here_can_open_says_so() -> None:
    with pytest.raises(OptionError, match=r"fsspec can open here: .*nobody"):
        batch("nobody://knows/q")


def test_two_queues_do_not_share_a_place(tmp_path: Path) -> None:
    url = f"memory://shared-{tmp_path.name}/q"
    ship(rolled(tmp_path / "a"), url)
    with pytest.raises(FormatError, match="place of its own"):
        ship(rolled(tmp_path / "b"), url)


def test_a_changed_segment_is_noticed_and_what_is_whole_in_it_is_read_if_asked_for(
    tmp_path: Path,
) -> None:
    path, far = rolled(tmp_path / "q"), tmp_path / "far" / "q"
    ship(path, f"file://{far}", whole=True)
    segment = min((far / "log").iterdir())
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"100" + bytes(1000))] ^= 1
    segment.write_bytes(raw)
    with pytest.raises(DataLoss, match=rf"queue q: .*{segment.name}: found .* again"):
        batch(f"local://{far}")
    rows = batch(far, columns="body,error", failOnDataLoss="false")
    assert [row["error"] is None for row in rows].count(True) == len(scanned(path)) - 1
    segment.unlink()
    with pytest.raises(DataLoss, match=rf"queue q: .*{segment.name} is gone"):
        batch(far)
    rows = batch(far, columns="body", failOnDataLoss="false")
    assert 0 < len(rows) < len(scanned(path)) - 1


def test_times_and_numbers_are_as_exact_as_in_the_queue_itself(tmp_path: Path) -> None:
    path, url = tmp_path / "q", f"memory://times-{tmp_path.name}/q"
    with Queue(path, segment_bytes=1 << 18) as queue:
        for second in range(1, 1001):
            queue.put(bytes(1000), timestamp_ns=second * 10**9)
    assert ship(path, url, whole=True)["segments"] > 2
    for options in (
        {"startingTimestamp": "300500", "endingTimestamp": "700000"},
        {"startingOffsets": "number:400"},
        {"endingTimestamp": "2000"},
        {"startingTimestamp": "2000000"},
    ):
        assert batch(url, columns="offset", **options) == batch(path, columns="offset", **options)


def test_a_glob_finds_shipped_queues_by_name(tmp_path: Path) -> None:
    root = f"memory://globs-{tmp_path.name}"
    for name in ("eu/orders", "us/orders"):
        ship(rolled(tmp_path / name, 5), f"{root}/{name}", whole=True)
    found = batch(f"{root}/*/orders", columns="queue")
    assert sorted({row["queue"] for row in found}) == ["eu/orders", "us/orders"]
    with pytest.raises(NoQueueError, match="no queue is here"):
        batch(f"{root}/*/bills")


def test_a_place_without_a_manifest_is_no_queue(tmp_path: Path) -> None:
    with pytest.raises(NoQueueError, match=r"memory://nothing.*penstock ship"):
        batch(f"memory://nothing-{tmp_path.name}")


def test_a_shipped_queue_can_be_streamed(tmp_path: Path) -> None:
    path, url = rolled(tmp_path / "q"), f"memory://stream-{tmp_path.name}/q"
    ship(path, url)
    reader = stream(url, columns="offset", maxOffsetsPerTrigger=100)
    batches, at = drain(reader)
    rolled(path)
    ship(path, url)
    more, _ = drain(reader, at)
    found = [row["offset"] for rows in batches + more for row in rows]
    assert found == [row["offset"] for row in sealed(path)]
