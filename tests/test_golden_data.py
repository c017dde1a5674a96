"""The golden archives are whole, and copies of their queues are what was written."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.golden_data import ARCHIVES, FORMATS, GoldenCase, golden, golden_cases

COUNTS = {"beats": 118, "mfq": 16, "vqs": 50, "zbus": 87}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_sha256(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def ids(cases: Iterable[GoldenCase]) -> list[str]:
    return [case.id for case in cases]


@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_is_the_one_that_was_committed(format: str) -> None:
    lines = (ARCHIVES / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    assert sums.keys() == {f"{name}.tar.xz" for name in FORMATS}
    assert sha256((ARCHIVES / f"{format}.tar.xz").read_bytes()) == sums[f"{format}.tar.xz"]


@pytest.mark.parametrize("format", FORMATS)
def test_every_case_is_there_once(format: str) -> None:
    cases = golden_cases(format)
    assert len(cases) == COUNTS[format]
    assert [n for n, count in Counter(ids(cases)).items() if count > 1] == []


def test_the_beats_manifest_names_every_file() -> None:
    root = golden("beats")
    manifest = json.loads((root / "MANIFEST.json").read_text())
    found = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    # The manifest is of the data: it can't name itself, and the README was reworded after it.
    del manifest["README.md"], found["README.md"], found["MANIFEST.json"]
    assert {name: sha256(path.read_bytes()) for name, path in found.items()} == manifest


def test_beats_cases_have_their_segments_and_keys(tmp_path: Path) -> None:
    for number, case in enumerate(golden_cases("beats")):
        queue = case.copy(tmp_path / str(number))
        segments = {segment["file"]: segment["sha256"] for segment in case.expected["segments"]}
        assert {path.name: sha256(path.read_bytes()) for path in queue.glob("*.seg")} == segments
        assert (queue / "state.dat").stat().st_size == case.expected["state"]["size"]
        assert case.key is None or len(case.key) == 16


def test_mfq_cases_have_the_offsets_they_expect(tmp_path: Path) -> None:
    for case in golden_cases("mfq"):
        queue = case.copy(tmp_path)
        assert sorted(path.name for path in queue.iterdir()) == ["commitlog", "offset"]
        for name in ("producer", "consumer"):
            offset = (queue / "offset" / f"{name}.offset").read_bytes()
            assert int.from_bytes(offset, "little") == case.expected[f"{name}_offset"]
        sizes = {path.name: path.stat().st_size for path in (queue / "commitlog").iterdir()}
        assert sizes == dict.fromkeys(case.expected["segments"], case.expected["segment_size"])


def test_vqs_cases_have_their_full_size_and_bytes(tmp_path: Path) -> None:
    for case in golden_cases("vqs"):
        queue, expected = case.copy(tmp_path), case.expected
        if queue.is_file():
            head = (golden("vqs") / expected["files"]["bin"]).stat().st_size
            with queue.open("rb") as file:
                assert sha256(file.read(head)) == expected["sha256"]["bin"]
            assert queue.stat().st_size == expected["file_size"]
        else:
            found = {path.stem: path for path in queue.iterdir()}
            assert {k: sha256(path.read_bytes()) for k, path in found.items()} == expected["sha256"]
            assert {k: path.stat().st_size for k, path in found.items()} == expected["file_size"]
        shutil.rmtree(queue) if queue.is_dir() else queue.unlink()


def test_a_vqs_header_continues_with_zeros_as_the_original_file_does(tmp_path: Path) -> None:
    (case,) = [case for case in golden_cases("vqs") if "full_xz" in case.expected["files"]]
    with (
        lzma.open(golden("vqs") / case.expected["files"]["full_xz"]) as full,
        case.copy(tmp_path).open("rb") as copy,
    ):
        assert file_sha256(full) == file_sha256(copy)


@pytest.mark.parametrize("case", golden_cases("zbus"), ids=lambda case: case.id)
def test_a_zbus_queue_unpacks_to_the_files_it_lists(case: GoldenCase, tmp_path: Path) -> None:
    queue = case.copy(tmp_path)
    listed = {entry["path"]: (entry["size"], entry["sha256"]) for entry in case.expected["files"]}
    found = {}
    for path in queue.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                found[str(path.relative_to(tmp_path))] = (path.stat().st_size, file_sha256(file))
    assert found == listed


def test_zbus_has_filter_verdicts_for_five_layouts() -> None:
    tables = {path.stem: json.loads(path.read_text()) for path in golden("zbus").glob("matching/*")}
    assert tables.keys() == {"corr", "corr-abs", "crc", "flag", "flag-late"}
    assert {len(rows) for rows in tables.values()} == {513}


def test_a_copy_may_be_changed_without_harm(tmp_path: Path) -> None:
    case = golden_cases("mfq")[0]
    queue = case.copy(tmp_path / "one")
    (queue / "offset" / "producer.offset").write_bytes(bytes(8))
    again = case.copy(tmp_path / "two")
    assert (again / "offset" / "producer.offset").read_bytes() != bytes(8)


def test_processes_of_one_run_share_one_unpacked_folder() -> None:
    script = "from tests.golden_data import golden; print(golden('mfq').stat().st_ino)"
    root = Path(__file__).parent.parent
    answers = [
        subprocess.check_output([sys.executable, "-c", script], cwd=root, env=os.environ)
        for _ in range(2)
    ]
    assert {int(answer) for answer in answers} == {golden("mfq").stat().st_ino}
