"""The files of applications that write in batches."""

from __future__ import annotations

from pathlib import Path

from penstock.sidecar import sinks
from penstock.sidecar.sinks import SinkFiles


def test_whoever_will_not_wait_for_the_lock_is_told_that_another_has_it(tmp_path: Path) -> None:
    one, other = SinkFiles(tmp_path, "app"), SinkFiles(tmp_path, "app")
    with one.held() as has_one, other.held(wait=False) as has_other:
        assert (has_one, has_other) == (True, False)
        with SinkFiles(tmp_path, "another app").held(wait=False) as has_another:
            assert has_another
    with other.held(wait=False) as has_other:
        assert has_other


def test_rows_are_whole_once_they_have_their_name(tmp_path: Path) -> None:
    folder = tmp_path / "sinks" / "app"
    sinks.write_rows(folder / "0.rows", b"rows of a task")
    unfinished = sinks.begin_rows(folder / "1.rows")
    assert not (folder / "1.rows").exists()
    unfinished.write_bytes(b"more")
    sinks.place_rows(unfinished, folder / "1.rows")
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found == {"0.rows": b"rows of a task", "1.rows": b"more"}
    sinks.drop_folder(folder)
    assert folder.exists(), "it is not empty"
    for name in found:
        sinks.drop_rows(folder / name)
    sinks.drop_folder(folder)
    assert not folder.exists()


def test_nothing_is_left_of_an_application_that_never_comes_again(tmp_path: Path) -> None:
    app = SinkFiles(tmp_path, "app")
    assert app.last == -1
    with app.held():
        app.record(3, 0, 10)
        assert SinkFiles(tmp_path, "app").last == 3
        app.drop()
    assert not list((tmp_path / "sinks").iterdir())
