"""What `import penstock` costs and needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import penstock


def loaded_after(statement: str) -> set[str]:
    """The top-level modules of a fresh interpreter after `statement`."""
    code = f"import sys; {statement}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    run = [sys.executable, "-c", code]
    return set(subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())


def test_import_needs_no_other_package() -> None:
    ours = loaded_after("import penstock") - loaded_after("pass")
    third_party = {name for name in ours if name not in sys.stdlib_module_names}
    # The standard library's list of itself leaves out what it is not proud of.
    assert third_party - {"_xxsubinterpreters"} == {"penstock"}


@pytest.mark.parametrize("is_new", [True, False])
def test_using_a_queue_leaves_the_heavy_parts_of_the_standard_library_alone(
    tmp_path: Path, is_new: bool
) -> None:
    if not is_new:
        penstock.Queue(tmp_path / "q").close()
    use = f"queue = penstock.Queue({str(tmp_path / 'q')!r}); queue.put(b'x'); queue.get().ack()"
    ours = loaded_after(f"import penstock; {use}") - loaded_after("pass")
    heavy = {"asyncio", "logging", "multiprocessing", "pickle", "ssl", "http", "hashlib", "random"}
    heavy |= {"dataclasses", "inspect", "ast", "dis", "tokenize", "copy", "email", "socket"}
    heavy |= {"typing", "datetime", "pathlib", "urllib", "ipaddress", "fnmatch"}
    assert not ours & heavy


MODULES_MAX = 95
OWN_MODULES_MAX = 53
"""What a put and a get load today, over a bare interpreter. Let these fall, and rise only for a
reason: each module costs every short program. `python -m benches imports` says what in time."""


def test_using_a_queue_loads_no_more_modules_than_it_did(tmp_path: Path) -> None:
    use = f"queue = penstock.Queue({str(tmp_path / 'q')!r}); queue.put(b'x'); queue.get().ack()"
    code = "import sys; {}; print(*sys.modules)"
    found = []
    for statement in (f"import penstock; {use}", "pass"):
        run = [sys.executable, "-c", code.format(statement)]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        found.append(set(done.stdout.split()))
    ours = found[0] - found[1]
    own = {name for name in ours if name.startswith("penstock")}
    assert len(own) <= OWN_MODULES_MAX, sorted(own)
    assert len(ours) <= MODULES_MAX, sorted(ours - own)


@pytest.mark.usefixtures("_unmeasured")
def test_opening_a_queue_loads_nothing_for_groups_and_no_json(tmp_path: Path) -> None:
    penstock.Queue(tmp_path / "q").close()
    code = f"import sys, penstock; penstock.Queue({str(tmp_path / 'q')!r}); print(*sys.modules)"
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    parts = {f"penstock.engine.{name}" for name in ("group", "deadletter", "facts", "positions")}
    assert not (parts | {"json", "re", "warnings", "pathlib"}) & set(found)


def test_a_queue_of_our_own_format_loads_no_other(tmp_path: Path) -> None:
    penstock.Queue(tmp_path / "q").close()
    use = f"import penstock; penstock.Queue({str(tmp_path / 'q')!r})"
    code = f"import sys; {use}; print(*sys.modules)"
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    others = [name for name in found if name.startswith("penstock.formats.")]
    assert not [name for name in others if name.split(".")[2] in ("zbus", "beats", "vqs", "mfq")]


def test_retention_is_loaded_only_when_there_is_a_segment_to_delete(tmp_path: Path) -> None:
    opened = f"import sys, penstock; queue = penstock.Queue({str(tmp_path)!r}, retention_bytes=1)"
    code = f"{opened}; queue.put(b'x'); queue.retain(); print(*sys.modules)"
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert "penstock.engine.retention" not in found


def said_by_import(code: str) -> str:
    """What a fresh interpreter says that ends `code` with an ImportError."""
    caught = f"try:\n    {code}\nexcept ImportError as error:\n    print(error)"
    run = [sys.executable, "-c", caught]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("kombu", "kombu", "celery"),
        ("celery", "celery", "celery"),
        ("dramatiq", "dramatiq", "dramatiq"),
        ("taskiq", "taskiq", "taskiq"),
        ("huey", "huey", "huey"),
    ],
)
def test_a_broker_whose_library_is_missing_says_what_to_install(
    module: str, library: str, extra: str
) -> None:
    said = said_by_import(f"import sys; sys.modules[{library!r}] = None; import penstock.{module}")
    assert f"needs {library}, which is not installed: pip install 'penstock[{extra}]'" in said


def test_a_free_threaded_build_is_told_that_it_is_not_supported() -> None:
    code = "import sys; sys.abiflags += 't'; import penstock"
    assert "does not run on a free-threaded Python" in said_by_import(code)


def test_a_sub_interpreter_is_told_and_keeps_nothing_from_the_main_one(tmp_path: Path) -> None:
    said, path = tmp_path / "said", [str(Path(penstock.__file__).parent.parent)]
    inside = "\n".join(
        [
            f"import sys; sys.path[:0] = {path!r}",
            "try:",
            "    import penstock; said = 'nothing'",
            "except ImportError as error:",
            "    said = str(error)",
            f"with open({str(said)!r}, 'w') as file:",
            "    file.write(said)",
        ]
    )
    outside = "\n".join(
        [
            "try:",
            "    import _interpreters as some",
            "except ImportError:",
            "    import _xxsubinterpreters as some",
            f"some.run_string(some.create(), {inside!r})",
            f"import penstock; penstock.Queue({str(tmp_path / 'q')!r}).put(b'x')",
        ]
    )
    subprocess.run([sys.executable, "-c", outside], check=True)
    assert "does not run in a sub-interpreter" in said.read_text()


def test_the_maintenance_of_a_queue_without_groups_loads_retention_alone(tmp_path: Path) -> None:
    """It does so while somebody puts at full speed, and a put that rolls waits for each module."""
    given = "segment_bytes=1 << 16, retention_bytes=1 << 17"
    code = f"""
import sys, penstock
queue = penstock.Queue({str(tmp_path / "q")!r}, {given})
queue.put(b"x")
before = set(sys.modules)
for _ in range(300):
    queue.put(bytes(1000))
for _, duty in queue._maintenance._duties([]):
    duty()
assert queue.offsets().head > 0
print(*sorted(set(sys.modules) - before))
"""
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert found == ["penstock.engine.retention"]
