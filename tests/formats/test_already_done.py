"""What another process did first, between a look and what follows from it, is left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock import clock as clocks
from penstock.formats import registry
from penstock.formats.store import Store
from penstock.formats.zbus.format import ZbusFormat
from penstock.options import QueueOptions
from penstock.sidecar import groups, opening
from tests.opening import open_queue, path_for


def bytes_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", registry.MODULES)
def test_a_queue_that_another_process_made_is_not_made_anew(tmp_path: Path, name: str) -> None:
    path = path_for(tmp_path, name)
    with open_queue(path, format=name) as queue:
        queue.put(b"theirs")
        layout = queue.store.layout
    before = bytes_below(tmp_path)
    made = registry.format_class(name)
    made.make(path, opening.sidecar_of(path), layout, QueueOptions(), clocks.native(None))
    assert bytes_below(tmp_path) == before


def test_a_zbus_queue_whose_index_went_before_it_was_loaded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(penstock.FormatError, match=r"no \.idx file"):
        Store(ZbusFormat, tmp_path, "doc000", QueueOptions(), clocks.native(None), live=False)


def test_a_group_that_another_process_removed_is_removed(tmp_path: Path) -> None:
    groups.remove(tmp_path / "gone")
    assert not any(tmp_path.iterdir())


def test_a_store_that_was_closed_tends_nothing(tmp_path: Path) -> None:
    queue = open_queue(tmp_path / "q")
    queue.close()
    before = bytes_below(tmp_path)
    queue.store.tend()
    assert bytes_below(tmp_path) == before
