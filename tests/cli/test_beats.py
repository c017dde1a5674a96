"""Queues that Beats left behind, by the command line: looked at, exported, moved, with keys."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock import KeyNeededError, OptionError, Queue
from penstock.options import key_from
from tests.cli.conftest import Run, tree_hash
from tests.formats.beats.helpers import KEY, NAMES, as_json, numbers_alike
from tests.golden_data import GoldenCase, golden_cases

BY_ID = {case.id: case for case in golden_cases("beats")}
HOWTO = Path(__file__).parent.parent.parent / "docs" / "howto" / "filebeat-queue-stuck.md"
LAYOUTS = sorted(NAMES)


def copied(case: GoldenCase, to: Path) -> Path:
    """A copy of a golden queue that may be written to."""
    path = case.copy(to)
    path.chmod(0o700)
    for file in path.iterdir():
        file.chmod(0o600)
    return path


def expected(case: GoldenCase) -> list[dict[str, Any]]:
    return [f for s in case.expected["segments"] for f in s["frames"] if not f.get("bad")]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_bytes(KEY)
    return file


@pytest.mark.parametrize("layout", LAYOUTS)
def test_exports_have_every_event_as_the_original_wrote_it(
    layout: str, run: Run, tmp_path: Path, key_file: Path
) -> None:
    case = BY_ID[f"{layout}/basic"]
    path, before = case.copy(tmp_path / "q"), tree_hash(tmp_path / "q")
    lines_file, table_file = tmp_path / "events.jsonl", tmp_path / "events.parquet"
    run("export", path, lines_file, "--key-file", key_file)
    run("export", path, table_file, "--key-file", key_file)
    lines = [json.loads(line) for line in lines_file.read_text().splitlines()]
    rows = pq.read_table(table_file).to_pylist()
    wanted = expected(case)
    assert len(lines) == len(rows) == len(wanted) == 12
    for line, row, frame in zip(lines, rows, wanted, strict=True):
        fields = numbers_alike(as_json(frame["fields"]))
        assert numbers_alike(json.loads(base64.b64decode(line["body"]))) == fields
        assert numbers_alike(json.loads(row["body"])) == fields
        assert line["timestamp_ns"] == frame["timestamp_ns"]
        assert json.loads(line["headers"]["beats.meta"]) == as_json(frame["meta"])
        assert line["offset"] == row["offset"] == frame["position"]
    assert tree_hash(tmp_path / "q") == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_payloads_are_the_bytes_of_the_event(
    layout: str, run: Run, tmp_path: Path, key_file: Path
) -> None:
    case = BY_ID[f"{layout}/basic"]
    path = case.copy(tmp_path / "q")
    lines = run("cat", path, "--payload", "--json", "--key-file", key_file).lines
    payloads = [base64.b64decode(line["payload"]) for line in lines]
    assert [len(raw) for raw in payloads] == [frame["payload_len"] for frame in expected(case)]
    assert all(raw[:1] in (b"{", b"\xa4") for raw in payloads)


@pytest.mark.parametrize("target", ["penstock", "zbus", "vqs", "mfq", "beats"])
def test_a_beats_queue_is_converted_to_any_other_format(
    target: str, run: Run, tmp_path: Path
) -> None:
    path = copied(BY_ID["v1/multi"], tmp_path / "q")
    drop = {"zbus": ["headers", "timestamp"], "vqs": ["timestamp"], "mfq": ["headers", "timestamp"]}
    options = [word for name in drop.get(target, []) for word in ("--drop", name)]
    run("convert", path, tmp_path / "new", "--to", target, *options)
    with Queue(path, read_only=True) as old, Queue(tmp_path / "new", read_only=True) as new:
        assert [m.body for m in new.scan()] == [m.body for m in old.scan()] != []


def test_a_damaged_queue_is_exported_whole_events_and_damage_told(run: Run, tmp_path: Path) -> None:
    path = copied(BY_ID["v1/corrupt-crc"], tmp_path / "q")
    ran = run("export", path, tmp_path / "events.jsonl", code=1)
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 11
    assert "0.seg" in ran.err
    ran = run("cat", path, "--json", code=1)
    assert len(ran.lines) == 11
    assert "0.seg" in ran.err


# ── keys ───────────────────────────────────────────────────────────────────────────────────

SPACED = bytes(range(15)) + b"\n"
"""A key whose last byte looks like the end of a line."""


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (KEY, KEY),
        (KEY + b"\n", KEY),
        (KEY + b"\r\n", KEY),
        (KEY.hex().encode(), KEY),
        (KEY.hex().upper().encode() + b"\n", KEY),
        (b"  " + KEY.hex().encode() + b" \n", KEY),
        (SPACED, SPACED),
        (SPACED + b"\n", SPACED),
        (b"0123456789abcdef", b"0123456789abcdef"),
    ],
)
@pytest.mark.parametrize("way", ["file", "descriptor", "variable"])
def test_a_key_is_16_bytes_or_32_hex_digits(
    raw: bytes, key: bytes, way: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(tmp_path / "q", format="beats", key=key) as queue:
        queue.put(b'{"message": "hello"}')
    (tmp_path / "key").write_bytes(raw)
    if way == "variable":
        if b"\0" in raw:
            return  # No variable can hold it.
        monkeypatch.setitem(os.environb, b"BEATS_KEY", raw)
        run("cat", tmp_path / "q", "--key-env", "BEATS_KEY")
        return
    with (tmp_path / "key").open("rb") as stream:
        name = f"/dev/fd/{stream.fileno()}" if way == "descriptor" else tmp_path / "key"
        assert run("cat", tmp_path / "q", "--raw", "--key-file", name).out == (
            b'{"message":"hello"}\n'
        )


@pytest.mark.parametrize("raw", [b"", b"short-secret", b"s3cret-" * 9, b"secret" * 300])
def test_a_key_that_is_none_is_refused_and_never_shown(
    raw: bytes, run: Run, tmp_path: Path
) -> None:
    path = BY_ID["v2-seed/basic"].copy(tmp_path / "q")
    (tmp_path / "key").write_bytes(raw)
    ran = run("cat", path, "--key-file", tmp_path / "key", code=2)
    assert "secret" not in ran.err
    assert "16 or 32 bytes" in ran.err
    with pytest.raises(OptionError) as caught:
        key_from(file=str(tmp_path / "key"))
    assert "secret" not in repr(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("command", ["cat", "info", "verify", "repair", "get"])
def test_another_key_is_an_error_that_says_so_and_not_the_key(
    command: str, run: Run, tmp_path: Path
) -> None:
    path = copied(BY_ID["v2-seed/basic"], tmp_path / "q")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    (tmp_path / "key").write_bytes(b"another-secret-k")
    ran = run(command, path, "--key-file", tmp_path / "key", code=2)
    assert "no frame opens with this key" in ran.err
    assert "another-secret" not in ran.err + ran.text
    assert b"another-secret".hex() not in ran.err + ran.text
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_a_key_has_no_option_that_takes_it_from_the_command_line(run: Run, tmp_path: Path) -> None:
    run("cat", BY_ID["v2-seed/basic"].copy(tmp_path / "q"), "--key", KEY.hex(), code=2)


def test_no_error_of_python_shows_a_key(tmp_path: Path) -> None:
    path = BY_ID["v2-seed/basic"].copy(tmp_path / "q")
    for key in (b"a-secret-of-mine", b"a-secret-of-mine" * 2):
        with pytest.raises(KeyNeededError) as caught:
            Queue(path, read_only=True, key=key)
        assert "secret" not in f"{caught.value!r} {caught.value}"
    with pytest.raises(OptionError) as refused:
        Queue(path, read_only=True, key=b"secret")
    assert "secret" not in f"{refused.value!r} {refused.value}"


# ── the page ───────────────────────────────────────────────────────────────────────────────


def test_every_command_of_the_page_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(BY_ID["v1/multi"], tmp_path / "golden").rename(tmp_path / "diskqueue")
    monkeypatch.chdir(tmp_path)
    text = HOWTO.read_text()
    ran = []
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["penstock"]:
                words = words[1 : words.index(">")] if ">" in words else words[1:]
                ran.append(run(*words))
    assert len(ran) == 9
    assert len(ran[5].text.splitlines()) == len(BY_ID["v1/multi"].expected["pending"])
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, str(HOWTO), "exec"), {})
    with Queue(tmp_path / "rescued", read_only=True) as queue:
        assert queue.store.layout == "2-released"
