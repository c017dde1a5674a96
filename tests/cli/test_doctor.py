"""`doctor`: each thing that would cost somebody messages is said, with advice."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from penstock import PoisonedError, Queue, _core
from penstock.cli import doctor
from penstock.disk import files
from tests.cli.conftest import Run
from tests.failing import failing_syncs

NFS = 0x6969


def finding(run: Run, path: Path, name: str, *options: str, code: int = 0) -> dict[str, str]:
    lines = run("doctor", path, "--json", *(options or ("--no-measure",)), code=code).lines
    (found,) = [line for line in lines if line["name"] == name]
    return {word: found[word] for word in ("value", "grade", "advice")}


def test_a_network_file_system_is_a_problem(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "file_system", lambda folder: NFS)
    found = finding(run, orders, "file system", code=1)
    assert files.NETWORK_FILE_SYSTEMS[NFS] in found["value"]
    assert found["advice"] == "read queues here; write them on a local disk"


def test_a_hidden_list_of_mounts_is_no_error(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(text: str) -> list[doctor.Mount]:
        raise PermissionError(13, "hidden")

    monkeypatch.setattr(doctor, "mounts", hidden)
    assert finding(run, orders, "file system")["value"].startswith("magic 0x")


def test_a_disk_that_is_nearly_full_or_closed_is_said(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda folder: 2048)
    assert finding(run, orders, "free space") == {
        "value": "2.0 KiB", "grade": "warning", "advice": "give the queue max_bytes",
    }  # fmt: skip
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)
    assert finding(run, orders, "rights", code=1)["grade"] == "problem"


def test_limits_of_the_machine_are_said(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 4096))
    assert finding(run, orders, "open files") == {
        "value": "100", "grade": "warning", "advice": "raise it with ulimit -n",
    }  # fmt: skip


def test_the_state_of_the_queue_is_said(run: Run, orders: Path, tmp_path: Path) -> None:
    assert finding(run, orders, "queue")["value"] == "penstock 1, closed cleanly"
    with Queue(orders) as queue:
        assert "in use" in finding(run, orders, "queue")["value"]
        queue.put(b"lost")
        with failing_syncs(), pytest.raises(PoisonedError):
            queue.sync()
        found = finding(run, orders, "queue", code=1)
        assert found["value"].endswith("poisoned")
        assert "open it again" in found["advice"]
    assert finding(run, tmp_path / "none", "queue")["grade"] == "ok"


def test_a_disk_that_syncs_slowly_or_too_fast_or_not_at_all_is_said(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SLOW_SYNC_MS", -1.0)
    found = finding(run, orders, "fdatasync", "--measure")
    assert found["advice"] == "durability=always will be slow here"
    monkeypatch.setattr(doctor, "SLOW_SYNC_MS", 1e9)
    monkeypatch.setattr(doctor, "FAST_SYNC_MS", 1e8)
    assert "too fast for a disk" in finding(run, orders, "fdatasync", "--measure")["advice"]
    monkeypatch.setattr(doctor, "FAST_SYNC_MS", -1.0)
    assert finding(run, orders, "fdatasync", "--measure")["grade"] == "ok"
    with failing_syncs():
        found = finding(run, orders, "fdatasync", "--measure", code=1)
    assert found["advice"] == "the folder can't be written"
    assert not list(orders.glob(".penstock-doctor-*"))
