"""Small values by key, one file each."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from penstock.engine.value_folder import ValueFolder


def test_of_several_who_add_at_once_one_stores(tmp_path: Path) -> None:
    """Where an old value is in the way, too: it must not cost the new one its place."""
    for number in range(40):
        values = ValueFolder(tmp_path, expires_s=60.0)
        key = f"lock-{number}"
        values.set(key, b"old")
        os.utime(values._file_of(key), (0, 0))
        ready, stored = threading.Barrier(4), list[int]()

        def add(
            name: int, values: ValueFolder = values, key: str = key,
            ready: threading.Barrier = ready, stored: list[int] = stored,
        ) -> None:  # fmt: skip
            ready.wait()
            if values.add(key, b"%d" % name):
                stored.append(name)

        threads = [threading.Thread(target=add, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(stored) == 1
        assert values.get(key) == b"%d" % stored[0]


def test_an_added_value_stays_until_it_is_popped(tmp_path: Path) -> None:
    values = ValueFolder(tmp_path)
    assert values.add("lock", b"mine")
    assert not values.add("lock", b"yours")
    assert values.pop("lock") == b"mine"
    assert values.add("lock", b"yours")
