"""Queues of the originals, as the command line prints them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue
from penstock.formats.zbus.structs import CREATED
from tests.cli.conftest import Ran, Run
from tests.formats.beats.helpers import KEY, as_json, numbers_alike
from tests.formats.zbus.golden import asked_layout, expected_messages
from tests.golden_data import GoldenCase, golden_cases

ZBUS = [case for case in golden_cases("zbus") if case.name != "rollover64m"]
BEATS = golden_cases("beats")
HOWTO = Path(__file__).parent.parent.parent / "docs" / "howto" / "open-a-zbus-folder.md"


def zbus_row(line: dict[str, Any]) -> dict[str, Any]:
    body = base64.b64decode(line["body"])
    return {
        "offset": line["offset"],
        "messageNumber": line["number"],
        "id": line["id"],
        "timestamp": line["timestamp_ns"] // 1_000_000,
        "corrOffset": int((line["headers"] or {}).get("zbus.corr_offset", 0)),
        "tag": line["tag"],
        "bodyLength": len(body),
        "body": hashlib.sha256(body).hexdigest(),
    }


@pytest.mark.parametrize("case", ZBUS, ids=lambda case: case.id)
def test_a_zbus_folder_is_printed_as_the_original_has_it(
    case: GoldenCase, run: Run, tmp_path: Path
) -> None:
    path = case.copy(tmp_path)
    layout = asked_layout(case)
    options = [] if layout is None else ["--layout", layout]
    # Bytes that a crash left behind the end are told on stderr.
    code = 1 if case.name == "torn" else 0
    lines = run("cat", path, "--json", *options, code=code).lines
    assert [zbus_row(line) for line in lines] == expected_messages(case)
    info = run("info", path, "--json", *options).one
    assert (info["format"], info["messages"]) == ("zbus", len(lines))
    assert info["layout"] == layout or layout is None
    assert len(info["segments"]) == case.expected["index"]["blockCount"]
    assert [group["name"] for group in info["groups"]] == sorted(case.expected["readers"])
    owed = {
        name: sum(record["status"] for record in naks["records"])
        for name, naks in case.expected.get("naks", {}).items()
    }
    for name, reader in case.expected["readers"].items():
        rows = reader.get("readsNextIntended", reader.get("readsNextAfterReopen"))
        found = run("cat", path, "--json", "--group", name, *options, code=code).lines
        numbers = [line["number"] for line in found][owed.get(name, 0) :]
        assert numbers == [row["messageNumber"] for row in rows]


def is_damaged(case: GoldenCase) -> bool:
    return case.name.startswith(("corrupt", "truncated"))


@pytest.mark.parametrize("case", BEATS, ids=lambda case: case.id)
def test_a_beats_folder_is_printed_as_the_original_has_it(
    case: GoldenCase, run: Run, tmp_path: Path
) -> None:
    path = case.copy(tmp_path / "q")
    (tmp_path / "key").write_bytes(KEY)
    ran = run("cat", path, "--json", "--key-file", tmp_path / "key", code=damage_code(case))
    assert ("0.seg" in ran.err) == is_damaged(case)
    lines = {line["offset"]: line for line in ran.lines}
    listed = 0
    for segment in case.expected["segments"]:
        number = int(Path(segment["file"]).stem)
        for frame in segment["frames"]:
            if not frame.get("bad"):
                listed += 1
                check_event(lines[number << 40 | frame["position"]], frame)
    assert len(lines) == listed or (is_damaged(case) and len(lines) > listed)
    check_info(run("info", path, "--json", "--key-file", tmp_path / "key"), len(lines))


def damage_code(case: GoldenCase) -> int:
    return 1 if is_damaged(case) else 0


def check_event(line: dict[str, Any], frame: dict[str, Any]) -> None:
    body = json.loads(base64.b64decode(line["body"]))
    assert numbers_alike(body) == numbers_alike(as_json(frame["fields"]))
    assert json.loads(line["headers"]["beats.meta"]) == as_json(frame["meta"])
    assert line["timestamp_ns"] == frame["timestamp_ns"]
    assert line["id"] == frame["meta"].get("_id")


def check_info(ran: Ran, messages: int) -> None:
    info = ran.one
    assert (info["format"], info["messages"]) == ("beats", messages)
    assert [group["name"] for group in info["groups"]] == ["default"]


@pytest.mark.parametrize("layout", CREATED)
def test_mask_and_extensions_of_a_zbus_queue_are_set_and_shown(
    layout: str, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "mq"
    Queue(path, format="zbus", layout=layout).close()
    run("set", path, "mask=64", "ext1=region=eu", "ext4=x")
    with Queue(path, read_only=True) as queue:
        assert (queue.meta["mask"], queue.meta["ext1"], queue.meta["ext4"]) == (
            64, "region=eu", "x",
        )  # fmt: skip
    shown = run("info", path, "--json").text
    assert "region=eu" in shown
    has_creator = layout not in ("doc001", "flag")
    run("set", path, "creator=alice", code=0 if has_creator else 2)
    run("set", path, "ext2=" + "x" * 128, code=2)
    run("set", path, "nonsense=1", code=2)


def test_every_block_of_the_page_about_zbus_folders_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(c for c in ZBUS if c.id == "crc/readers")
    case.copy(tmp_path / "golden").rename(tmp_path / "MyTopic")
    for file in [tmp_path / "MyTopic", *(tmp_path / "MyTopic").rglob("*")]:
        file.chmod(0o700 if file.is_dir() else 0o600)
    monkeypatch.chdir(tmp_path)
    text, handled = HOWTO.read_text(), list[bytes]()
    scope: dict[str, Any] = {"handle": handled.append}
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(compile(block, str(HOWTO), "exec"), scope)
            continue
        for line in block.splitlines():
            run(*line.partition("#")[0].split()[1:])
    assert b"one more" in handled
