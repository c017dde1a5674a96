"""`verify`, `repair`, `inspect`, `doctor`: the state of a queue and of its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Queue
from penstock.cli import doctor
from penstock.formats import registry
from tests.cli.conftest import Run, first_segment, flip, tree_hash

KEYS = {"ok", "frames", "torn", "corrupt", "unchecked"}


def test_verify_of_a_clean_queue_is_exit_code_0(run: Run, orders: Path) -> None:
    found = run("verify", orders, "--json").one
    assert found.keys() >= KEYS
    assert (found["ok"], found["frames"], found["torn"], found["corrupt"]) == (True, 5, [], [])
    assert "clean" in run("verify", orders, "--no-json").text


def test_verify_names_file_and_byte_of_damage_and_exits_1(run: Run, orders: Path) -> None:
    flip(first_segment(orders), 4096 + 40)
    (fault,) = run("verify", orders, "--json", code=1).one["corrupt"]
    assert (fault["path"], fault["at"]) == (str(first_segment(orders)), 4096)
    assert f"{first_segment(orders)}:4096" in run("verify", orders, "--no-json", code=1).err


def test_verify_of_what_is_no_queue_is_exit_code_2(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("hello")
    ran = run("verify", tmp_path, "--json", code=2)
    assert "file.txt" in ran.err
    assert ran.one.keys() >= KEYS
    assert not ran.one["ok"]
    run("verify", tmp_path / "file.txt", "--no-json", code=2)


def test_repair_sets_damage_aside_and_verify_is_content(run: Run, orders: Path) -> None:
    flip(first_segment(orders), 4096 + 40)
    before = tree_hash(orders)
    plan = run("repair", orders, "--dry-run").one
    assert tree_hash(orders) == before
    report = run("repair", orders).one
    assert report["set_aside"][0]["first"] == plan["set_aside"][0]["first"] == 0
    assert run("verify", orders).one["set_aside"] == 1
    assert [line["id"] for line in run("cat", orders).lines] == ["o-1", "o-2", "o-3", "o-4"]
    assert "nothing to repair" in run("repair", orders, "--no-json").text
    copy = orders / ".penstock" / "quarantine" / report["set_aside"][0]["copy"]
    assert b"body 0"[1:] in copy.read_bytes()


def test_repair_of_a_queue_in_use_is_refused(run: Run, orders: Path) -> None:
    with Queue(orders):
        assert "open" in run("repair", orders, code=2).err


def test_inspect_shows_header_and_frames_of_a_segment(run: Run, orders: Path) -> None:
    header, frame, *_ = run("inspect", first_segment(orders)).lines
    assert (header["at"], header["layout"], header["fields"]["magic"]) == (
        0,
        "segment header",
        "PENSTOCK",
    )
    assert (frame["at"], frame["layout"], frame["fields"]["tag_len"]) == (4096, "frame", 10)


def test_inspect_at_a_byte_shows_the_structure_around_it(run: Run, orders: Path) -> None:
    second = run("cat", orders).lines[1]["offset"]
    found = run("inspect", first_segment(orders), "--at", 4096 + second + 5).one
    assert (found["at"], found["fields"]["number"]) == (4096 + second, 1)
    text = run("inspect", first_segment(orders), "--at", 4096, "--no-json").text
    assert "timestamp_ns" in text
    assert "bytes from 4096 on" in text


def test_inspect_knows_the_files_of_the_sidecar(run: Run, orders: Path) -> None:
    sidecar = orders / ".penstock"
    control = run("inspect", sidecar / "control").one
    assert control["fields"]["tail"] == run("info", orders).one["tail"]
    group = sidecar / "groups" / "billing"
    assert run("inspect", group / "table").one["layout"] == "group table"
    journal = run("inspect", max(group.glob("journal-*")), "--count", 20).lines
    kinds = [line["fields"]["kind"] for line in journal if "kind" in line["fields"]]
    assert kinds[:1] == [7]


def test_inspect_lays_any_struct_over_any_byte(run: Run, orders: Path) -> None:
    found = run("inspect", first_segment(orders), "--as", "frame", "--at", 4096).one
    assert found["fields"]["number"] == 0
    cut = run(
        "inspect", orders / ".penstock" / "groups" / "billing" / "group.json", "--as", "frame"
    )
    assert cut.one["layout"] == "frame"
    assert "one of" in run("inspect", first_segment(orders), "--as", "nonsense", code=2).err


@pytest.mark.parametrize("format", registry.MODULES)
def test_inspect_knows_the_files_of_every_format(run: Run, tmp_path: Path, format: str) -> None:
    path = tmp_path / ("queue.bin" if format == "vqs" else "queue")
    with Queue(path, format=format) as queue:
        queue.put(b'{"a": 1}')
        sidecar = queue.store.sidecar
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    for file in files:
        if file.is_file() and sidecar not in file.parents and file.stat().st_size:
            assert run("inspect", file).lines, file


def test_inspect_of_a_strange_file_says_what_it_begins_with(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "strange"
    file.write_bytes(b"\x01\x02\x03")
    assert "01 02 03" in run("inspect", file, code=2).err
    (tmp_path / "empty").touch()
    run("inspect", tmp_path / "empty", code=2)
    run("inspect", tmp_path / "nothing", code=2)


def test_doctor_measures_and_leaves_nothing_behind(run: Run, orders: Path) -> None:
    before = sorted(path.name for path in orders.iterdir())
    found = {line["name"]: line for line in run("doctor", orders).lines}
    assert found.keys() >= {"file system", "mount options", "free space", "open files", "fdatasync"}
    assert "penstock 1" in found["queue"]["value"]
    assert "median" in found["fdatasync"]["value"]
    assert sorted(path.name for path in orders.iterdir()) == before
    assert "fdatasync" not in run("doctor", orders, "--no-measure", "--no-json").text


def test_doctor_of_a_queue_to_be_looks_at_the_folder_above(run: Run, tmp_path: Path) -> None:
    run("doctor", tmp_path / "not" / "yet")
    assert not (tmp_path / "not").exists()


MOUNTS = """\
21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 21 0:40 / /mnt/with\\040space ro,nosuid - nfs4 host:/x rw,vers=4.2
31 21 0:41 / /mnt rw - ext4 /dev/sdb1 rw,nobarrier
nonsense
"""


def test_the_deepest_mount_holds_a_path() -> None:
    known = doctor.mounts(MOUNTS)
    found = doctor.mount_of(Path("/mnt/with space/q"), known)
    assert found is not None
    assert (found.kind, found.options[0]) == ("nfs4", "ro")
    other = doctor.mount_of(Path("/mnt/else"), known)
    assert other is not None
    assert other.point == Path("/mnt")


@pytest.mark.parametrize(
    ("options", "grade"),
    [
        (("ro", "relatime"), "problem"),
        (("rw", "nobarrier"), "problem"),
        (("rw", "data=writeback"), "warning"),
        (("rw", "relatime"), "ok"),
    ],
)
def test_mount_options_that_weaken_a_promise_are_named(
    options: tuple[str, ...], grade: str
) -> None:
    assert doctor._options(doctor.Mount(Path("/"), "ext4", options)).grade == grade


def test_a_network_mount_is_a_problem(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock._core.file_system", lambda _: 0x6969)
    found = {line["name"]: line for line in run("doctor", tmp_path, code=1).lines}
    assert "NFS" in found["file system"]["value"]


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_what_takes_long_shows_how_far_it_is(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with Queue(tmp_path / "q", segment_bytes=16384) as queue:
        for _ in range(100):
            queue.put(bytes(1000))
    told: list[tuple[int, int]] = []

    @contextmanager
    def progress(label: str) -> Iterator[Callable[[int, int], None]]:
        assert str(tmp_path / "q") in label
        yield lambda done, total: told.append((done, total))

    monkeypatch.setattr("penstock.cli.show.progress", progress)
    run(command, tmp_path / "q")
    assert len(told) > 5
    assert told == sorted(told)
    assert all(done < total for done, total in told)
