"""What `import penstock` costs and needs."""

from __future__ import annotations

import subprocess
import sys


def loaded_after(statement: str) -> set[str]:
    """The top-level modules of a fresh interpreter after `statement`."""
    code = f"import sys; {statement}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    run = [sys.executable, "-c", code]
    return set(subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())


def test_import_needs_no_other_package() -> None:
    ours = loaded_after("import penstock") - loaded_after("pass")
    third_party = {name for name in ours if name not in sys.stdlib_module_names}
    assert third_party == {"penstock"}


def test_opening_a_queue_leaves_the_heavy_parts_of_the_standard_library_alone() -> None:
    ours = loaded_after("import penstock; penstock.Queue") - loaded_after("pass")
    assert not ours & {"asyncio", "logging", "multiprocessing", "pickle", "ssl", "http"}
