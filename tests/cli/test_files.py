"""`export`, `import`, `convert`: out of queues and into them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import Queue
from tests.cli.conftest import Run, first_segment, flip

DROP = [word for name in ("tag", "timestamp", "number") for word in ("--drop", name)]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_what_was_exported_can_be_imported(
    run: Run, orders: Path, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / f"out.{kind}"
    assert "5 messages" in run("export", orders, file).err
    run("import", file, tmp_path / "again")
    names = ("id", "tag", "headers", "body", "timestamp_ns")
    first, second = run("cat", orders).lines, run("cat", tmp_path / "again").lines
    assert [[line[n] for n in names] for line in first] == [
        [line[n] for n in names] for line in second
    ]


def test_export_and_import_speak_through_pipes(run: Run, orders: Path, tmp_path: Path) -> None:
    out = run("export", orders, "-", "--tags", "us.#").out
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["o-1", "o-3"]
    run("import", "-", tmp_path / "again", stdin=out)
    assert len(run("cat", tmp_path / "again").lines) == 2


def test_the_kind_of_a_file_and_the_format_of_a_copy_can_be_named(
    run: Run, orders: Path, tmp_path: Path
) -> None:
    run("export", orders, tmp_path / "plain", "--to", "parquet", "--until", "number:2")
    run("import", tmp_path / "plain", tmp_path / "again", "--from", "parquet")
    assert len(run("cat", tmp_path / "again").lines) == 2
    report = run("convert", orders, tmp_path / "topic", "--to", "zbus", "--drop", "headers").one
    assert (report["messages"], report["lost"]) == (5, {"headers": 5})
    assert run("info", tmp_path / "topic").one["format"] == "zbus"
    assert "headers" in run("convert", orders, tmp_path / "other", "--to", "zbus", code=2).err


def test_export_passes_over_damage_and_says_so(run: Run, orders: Path) -> None:
    flip(first_segment(orders), 4096 + 40)
    ran = run("export", orders, "-", code=1)
    assert len(ran.lines) == 4
    assert ":4096" in ran.err
    run("export", orders, "-", "--no-tolerant", code=1)


def test_export_to_an_unknown_kind_is_refused(run: Run, orders: Path, tmp_path: Path) -> None:
    assert "jsonl, parquet or arrow" in run("export", orders, tmp_path / "x.doc", code=2).err
    run("import", tmp_path / "missing.jsonl", tmp_path / "q", code=2)


def test_convert_copies_and_compares(run: Run, orders: Path, tmp_path: Path) -> None:
    report = run("convert", orders, tmp_path / "copy").one
    assert (report["messages"], report["verified"], report["damage"]) == (5, 5, [])
    assert len(run("cat", tmp_path / "copy").lines) == 5
    assert "5 messages copied" in run("convert", orders, tmp_path / "more", "--no-json").text


def test_convert_only_checks_when_asked_to(run: Run, orders: Path, tmp_path: Path) -> None:
    run("convert", orders, tmp_path / "copy", "--dry-run")
    with Queue(tmp_path / "copy") as queue:
        assert len(queue) == 0
    run("convert", orders, tmp_path / "copy", "--drop", "nonsense", code=2)


def test_groups_go_with_a_copy_and_are_listed(run: Run, orders: Path, tmp_path: Path) -> None:
    with Queue(orders) as queue:
        queue.get().ack()
    report = run("convert", orders, tmp_path / "copy").one
    assert report["groups"]["cursors"]["default"] > 0
    assert run("peek", tmp_path / "copy", "--group", "default").lines[0]["id"] == "o-1"
    shown = run("convert", orders, tmp_path / "ring.bin", "--to", "vqs", "--no-json", *DROP).text
    assert "group default is not copied: format vqs deletes" in shown
    ran = run("convert", orders, tmp_path / "r2.bin", "--to", "vqs", "--groups", "--no-json", *DROP)
    assert "group default goes on at offset" in ran.text
    report = run("convert", orders, tmp_path / "none", "--no-groups").one
    assert report["groups"] == {"cursors": {}, "again": {}, "left": {}}


def test_names_of_fields_to_drop_are_checked(run: Run, orders: Path, tmp_path: Path) -> None:
    run("export", orders, tmp_path / "f.jsonl")
    for command in (("import", tmp_path / "f.jsonl"), ("convert", orders)):
        error = run(*command, tmp_path / "q", "--drop", "colour", code=2).err
        assert "some of tag, id, key" in error
    target = (tmp_path / "f.jsonl", tmp_path / "ring.bin", "--format", "vqs", "--drop", "tag")
    assert "--drop timestamp" in run("import", *target, code=2).err
    assert " lost the tag" in run("import", *target, "--drop", "timestamp").err
    assert {line["tag"] for line in run("cat", tmp_path / "ring.bin").lines} == {None}
