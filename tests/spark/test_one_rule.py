"""`cat`, `verify` and Spark agree on what is wrong with a queue, and none of them is silent."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import PenstockError, Queue
from penstock.cli import main
from tests.spark.damaging import (
    CASES,
    CONTRADICTIONS,
    DAMAGE,
    LAYOUTS,
    cut_last,
    filled,
    header,
    missing,
    missing_last,
    segments,
    stray,
)
from tests.spark.helpers import batch


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_what_verify_finds_cat_tells_and_spark_does_not_pass_over(
    tmp_path: Path, kind: str, layout: str, damage: Callable[[list[Path]], None],
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    path = filled(tmp_path / "q", kind, layout)
    damage(segments(path, kind))
    agree(path, capfd, caplog)


@pytest.mark.parametrize(
    "damage", [cut_last, missing, missing_last], ids=lambda damage: damage.__name__
)
@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_the_rule_is_the_same_when_all_who_had_the_queue_open_were_killed(
    tmp_path: Path, kind: str, layout: str, damage: Callable[[list[Path]], None],
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    path = filled(tmp_path / "q", kind, layout, killed=True)
    damage(segments(path, kind))
    agree(path, capfd, caplog)


@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_what_a_killed_process_had_not_synced_is_left_out_and_told(
    tmp_path: Path, kind: str, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue(tmp_path / "q", format=kind, layout=layout, durability="process")
    synced = queue.put(b"synced")
    queue.sync()
    for number in range(3):
        queue.put(b"%d" % number)
    queue.store.drop()
    for fails in ("true", "false"):
        caplog.clear()
        found = batch(queue.path, failOnDataLoss=fails, columns="offset,body")
        assert [row["offset"] for row in found] == [synced]
        (told,) = caplog.messages
        assert "not synced" in told
        assert "nobody has the queue open" in told
    Queue(queue.path).close()
    assert len(batch(queue.path, columns="offset,body")) == 4


def test_an_open_queue_of_which_nothing_is_synced_does_not_look_empty_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Queue(tmp_path / "q", durability="process") as queue:
        queue.put(b"one")
        assert batch(queue.path, columns="offset,body") == []
        assert "not synced" in caplog.messages[0]
        queue.sync()
        queue.put(b"two")
        caplog.clear()
        assert len(batch(queue.path, columns="offset,body")) == 1
        assert not caplog.messages  # Its writer goes on.


@pytest.mark.parametrize(
    ("kind", "layout", "contradict"), CONTRADICTIONS,
    ids=[f"{kind}-{layout}-{change.__name__}" for kind, layout, change in CONTRADICTIONS],
)  # fmt: skip
def test_words_that_do_not_fit_together_are_told_by_all(
    tmp_path: Path, kind: str, layout: str, contradict: Callable[[Path], None],
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    path = filled(tmp_path / "q", kind, layout)
    contradict(path)
    assert agree(path, capfd, caplog)["corrupt"]


def agree(
    path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> dict[str, Any]:
    """`verify`, `cat` and Spark say the same; what `verify` says."""
    code = main(["verify", str(path), "--json"])
    verdict: dict[str, Any] = json.loads(capfd.readouterr().out)
    # What can't be opened is an error of its own for `cat`.
    assert main(["cat", str(path), "--json"]) in ({code} if code < 2 else {1, 2})
    offsets = [json.loads(line)["offset"] for line in capfd.readouterr().out.splitlines()]
    options = {"columns": "offset,body", "targetPartitionBytes": "700"}
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        if verdict["corrupt"] or code == 2:
            with pytest.raises((PenstockError, OSError)):
                batch(path, **options)
        else:
            assert sorted(row["offset"] for row in batch(path, **options)) == offsets
            assert bool(caplog.records) == bool(code)
        if code < 2:
            found = batch(path, failOnDataLoss="false", **options)
            assert sorted(row["offset"] for row in found) == offsets
            assert bool(caplog.records) == bool(code)
    return verdict


@pytest.mark.parametrize("damage", [stray, header], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("layout", LAYOUTS["beats"])
def test_what_a_repair_set_aside_fails_no_query(
    tmp_path: Path, layout: str, damage: Callable[[list[Path]], None],
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = filled(tmp_path / "q", "beats", layout)
    damage(segments(path, "beats"))
    assert main(["repair", str(path)]) == 0
    assert main(["verify", str(path)]) == 0
    capfd.readouterr()
    assert main(["cat", str(path), "--json"]) == 0
    offsets = [json.loads(line)["offset"] for line in capfd.readouterr().out.splitlines()]
    assert sorted(row["offset"] for row in batch(path, columns="offset,body")) == offsets


@pytest.mark.parametrize("damage", [header, missing], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("layout", LAYOUTS["beats"])
def test_a_query_behind_a_segment_that_is_lost_does_not_fail(
    tmp_path: Path, layout: str, damage: Callable[[list[Path]], None]
) -> None:
    path = filled(tmp_path / "q", "beats", layout)
    last = [row["offset"] for row in batch(path, columns="offset,body")][-2:]
    files = segments(path, "beats")
    assert len(files) > 2
    damage(files)
    found = batch(path, columns="offset,body", startingOffsets=last[0])
    assert sorted(row["offset"] for row in found) == last
