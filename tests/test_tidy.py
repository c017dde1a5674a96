"""The house rules that no linter knows: layers, sizes, words, and where things may be.

Each rule is a function from text to what is wrong with it. The tests run the rules over
the tree, and over a few lines that break them: a rule that finds nothing might be blind.
"""

from __future__ import annotations

import ast
import asyncio
import collections
import functools
import io
import os
import re
import threading
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"
RUST = ROOT / "rust" / "src"

# Data flows one way (the numbers): a module imports from smaller numbers, its own layer and
# the leaves. `penstock` itself is the front door; what it opens on is below the interfaces.
LEAVES = {"records", "hints", "logs", "errors", "options", "pacing", "clock", "places"}
LAYERS = {"_core": 0, "disk": 0, "sidecar": 1, "formats": 2, "engine": 3}
INTERFACES = {"cli", "sqs", "web", "spark", "kombu", "celery", "dramatiq", "taskiq", "huey"}
FORMATS = {"penstock", "zbus", "beats", "vqs", "mfq"}
FRONT_DOOR = ""
FRONT_DOORS = {"mfq", "beats", "_kombu_name"}  # Public modules that only name what is elsewhere.

PYTHON_LINES_MAX = 800
RUST_LINES_MAX = 900
BYTES_LINES_MAX = 10_558  # Of disk, sidecar and formats together: it only goes down.

# A letter in brackets keeps a pattern from finding itself.
LEFTOVERS = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|unimplemente[d])\b|\btod[o]!")
MACHINE_PATHS = re.compile(r"(?<![\w.~])/(?:work|home|root|Users)/\w")
FOREIGN_WORDS = re.compile(
    r"sub-?agen[t]|\bLL[M]\b|pypi[.]org|pythonhoste[d]|\w[.]crates[.]io", re.I
)
ISSUE_NUMBERS = re.compile(
    r"\b(?:issues?|pull requests?|PRs?|fix(?:es)?|close[sd]?|refs?|see) ?#\d|\bGH-\d|\bissue \d",
    re.I,
)


@functools.cache
def tree() -> tuple[Path, ...]:
    """The tree's own files: nothing installed, built or cached."""
    away = {".git", ".venv", "target", "build", "runs", "__pycache__"}
    found = []
    for folder, names, file_names in os.walk(ROOT):
        names[:] = [name for name in names if name not in away and not name.endswith("_cache")]
        found += [Path(folder, name) for name in file_names]
    return tuple(sorted(found))


def files(*patterns: str, under: Path = ROOT) -> list[Path]:
    return [
        path for path in tree() if path.is_relative_to(under) and any(map(path.match, patterns))
    ]


def where(path: Path) -> str:
    return str(path.relative_to(ROOT))


def wrong_in(paths: Iterable[Path], rule: Callable[[str], Iterable[str]]) -> list[str]:
    """Everything `rule` finds in the files, each with the file's name."""
    return [f"{where(path)}: {fault}" for path in paths for fault in rule(path.read_text())]


@functools.cache
def nodes(text: str) -> tuple[ast.stmt | ast.expr, ...]:
    """The statements and calls of a module at any depth: what the rules look at. Each file is
    parsed once for all of them."""
    found: list[ast.stmt | ast.expr] = []
    inside = collections.deque[ast.AST]([ast.parse(text)])
    while inside:
        for node in ast.iter_child_nodes(inside.popleft()):
            inside.append(node)
            if isinstance(node, ast.stmt | ast.Call):
                found.append(node)
    return tuple(found)


def lines_matching(text: str, pattern: re.Pattern[str]) -> list[str]:
    lines = enumerate(text.splitlines(), 1)
    return [f"line {number}: {line.strip()}" for number, line in lines if pattern.search(line)]


# Layers


def module_name(path: Path) -> str:
    """`src/penstock/disk/lock.py` is `penstock.disk.lock`."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(text: str, module: str, is_package: bool = False) -> Iterator[str]:
    """The full name of everything that a module imports, at any depth of its code."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in nodes(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def room_of(name: str) -> str:
    """The part of penstock a full name belongs to: `disk`, `errors`, or the front door."""
    parts = name.split(".")
    room = parts[1] if len(parts) > 1 else FRONT_DOOR
    known = room in LEAVES or room in LAYERS or room in INTERFACES
    return room if known or (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").exists() else ""


def format_of(name: str) -> str | None:
    """The format whose code `name` is: None for what all formats share."""
    parts = name.split(".")
    is_format = len(parts) > 2 and parts[1] == "formats" and parts[2] in FORMATS
    return parts[2] if is_format else None


def may_import(importer: str, imported: str) -> bool:
    """Whether the layers allow it, both being full names inside penstock."""
    here, there = room_of(importer), room_of(imported)
    if here == FRONT_DOOR:
        return there not in INTERFACES
    if here in INTERFACES:
        return here == "cli" or there == here or there not in INTERFACES
    if here in LEAVES:
        return there in LEAVES or there == "_core"
    if here not in LAYERS:
        return True  # has no layer yet, which is another test's business
    if there not in LAYERS:
        return there in LEAVES
    theirs = {format_of(importer), format_of(imported)} - {None}
    is_own_format = format_of(importer) is None or len(theirs) == 1
    return LAYERS[there] <= LAYERS[here] and is_own_format


def wrong_imports(text: str, module: str, is_package: bool = False) -> list[str]:
    return [
        f"{module} imports {name}"
        for name in imports(text, module, is_package)
        if name.split(".")[0] == "penstock" and not may_import(module, name)
    ]


def test_data_flows_one_way_through_the_layers() -> None:
    wrong = [
        fault
        for path in files("*.py", under=SOURCE)
        for fault in wrong_imports(
            path.read_text(), module_name(path), is_package=path.name == "__init__.py"
        )
    ]
    assert wrong == []


def test_every_module_has_a_layer() -> None:
    known = LEAVES | LAYERS.keys() | INTERFACES | FRONT_DOORS | {"__init__", "__main__"}
    rooms = {path.relative_to(SOURCE).parts[0] for path in files("*.py", under=SOURCE)}
    strangers = {room.removesuffix(".py") for room in rooms} - known
    assert not strangers, f"give them a layer at the top of this file: {sorted(strangers)}"


def python_graph() -> dict[str, set[str]]:
    """Which module uses which, also for types alone and where a function imports it."""
    paths = {module_name(path): path for path in files("*.py", under=SOURCE)}
    known = {*paths, "penstock._core"}
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        graph[module] = set()
        for name in imports(path.read_text(), module, is_package=path.name == "__init__.py"):
            parts = name.split(".")
            whole = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
            graph[module] |= {next((one for one in whole if one in known), module)} - {module}
    return graph


def test_no_module_uses_itself_through_others_not_even_for_types() -> None:
    assert in_rings(python_graph()) == set()


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("penstock.disk.lock", "from ..formats import base"),
        ("penstock.disk.lock", "from penstock import Queue"),
        ("penstock.formats.store", "import penstock.engine.queue"),
        ("penstock.formats.zbus.format", "from ..beats.store import Segment"),
        ("penstock.formats.zbus.format", "from .. import mfq"),
        ("penstock.formats.vqs", "def f():\n    from penstock.formats.mfq import Store"),
        ("penstock.engine.queue", "from penstock.cli import main"),
        ("penstock.engine.queue", "from .. import spark"),
        ("penstock.errors", "from penstock.disk import lock"),
        ("penstock.sqs.app", "from penstock.web import routes"),
        ("penstock.web.routes", "from penstock.cli.show import table"),
        ("penstock", "from penstock.spark import source"),
    ],
)
def test_an_import_against_the_flow_is_noticed(module: str, line: str) -> None:
    assert len(wrong_imports(line, module)) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("penstock.disk.lock", "from .. import _core, errors"),
        ("penstock.message", "from ._core import Message"),
        ("penstock.formats.zbus.format", "from ..contract import Format\nfrom . import structs"),
        ("penstock.formats.registry", "from . import zbus, beats"),
        ("penstock.engine.queue", "from ..formats.registry import sniff\nfrom .group import Group"),
        ("penstock.sqs.app", "import penstock\nfrom penstock.engine.queue import Queue"),
        ("penstock.cli.serve", "from penstock.sqs.app import serve"),
        ("penstock.spark.source", "from pyspark.sql import Row"),
    ],
)
def test_an_import_with_the_flow_is_fine(module: str, line: str) -> None:
    assert wrong_imports(line, module) == []


# Sizes of functions, and what a layer may be handed

FUNCTION_LINES_MAX = 60


def long_functions(text: str) -> list[str]:
    """Functions that are too long, their docstrings left out."""
    found = []
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            doc = (first.end_lineno or 0) - first.lineno + 1 if is_doc else 0
            lines = (node.end_lineno or 0) - node.lineno + 1 - doc
            if lines > FUNCTION_LINES_MAX:
                found.append(f"line {node.lineno}: {node.name} has {lines} lines")
    return found


def test_no_function_is_longer_than_a_screen() -> None:
    assert wrong_in(files("*.py", under=SOURCE), long_functions) == []


def test_a_long_function_is_noticed() -> None:
    body = "\n".join("    x = 1" for _ in range(FUNCTION_LINES_MAX))
    assert len(long_functions(f"def f():\n    '''Says what.'''\n{body}")) == 1


QUEUES = re.compile(
    r"\b(?:queue|group): Any\b|\bqueue\.(?:groups?|look|holding_cursors|unresolved)\("
)


def test_no_format_is_handed_a_queue() -> None:
    """What a queue's groups have read reaches a format as a value."""
    below = [
        path
        for room in ("disk", "sidecar", "formats")
        for path in files("*.py", under=SOURCE / room)
    ]
    assert wrong_in(below, lambda text: lines_matching(text, QUEUES)) == []


def test_a_queue_in_a_format_is_noticed() -> None:
    assert lines_matching("def free_consumed(self, queue: Any) -> bool: ...", QUEUES)
    assert lines_matching("lowest = min(queue.holding_cursors())", QUEUES)


STANDARD_TYPES = (
    str, bytes, bytearray, memoryview, int, float, list, dict, set, frozenset, tuple, re.Pattern,
    re.Match, Path, io.BufferedReader, threading.Thread, threading.Event, asyncio.Future,
)  # fmt: skip
STANDARD_METHODS = {name for kind in STANDARD_TYPES for name in dir(kind)}


def methods(texts: Iterable[str]) -> set[str]:
    """The names of all methods of classes."""
    inner = (one for text in texts for node in nodes(text) if isinstance(node, ast.ClassDef)
             for one in node.body)  # fmt: skip
    return {one.name for one in inner if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def calls_of_methods(text: str, names: set[str]) -> list[str]:
    """Calls of methods with these names on anything but a module that is imported."""
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in nodes(text)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in nodes(text)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in names
        if ast.unparse(node.func.value).split(".")[0] not in imported
    ]


@pytest.mark.parametrize("room", ["disk", "sidecar", "formats", "engine"])
def test_no_layer_calls_a_method_of_a_layer_above_it(room: str) -> None:
    """Also on what it is handed as a parameter: no import tells of that."""
    above: list[str] = []
    here_or_below = [(SOURCE / "_core.pyi").read_text()]
    for path in files("*.py", under=SOURCE):
        there = room_of(module_name(path))
        is_above = there not in LEAVES and LAYERS.get(there, len(LAYERS)) > LAYERS[room]
        (above if is_above else here_or_below).append(path.read_text())
    names = methods(above) - methods(here_or_below) - STANDARD_METHODS
    assert len(names) > 20
    paths = files("*.py", under=SOURCE / room)
    assert wrong_in(paths, lambda text: calls_of_methods(text, names)) == []


def test_a_call_on_a_parameter_of_a_layer_above_is_noticed() -> None:
    text = "import shutil\ndef f(queue):\n    queue.purge()\n    shutil.purge()\n    queue.close()"
    assert calls_of_methods(text, {"purge"}) == ["line 3: queue.purge()"]


# The sidecar has one owner

EFFECTS = {
    "create_file", "make_folder", "mkdir", "rename", "rename_file", "replace_file", "resize_file",
    "rmdir", "rmtree", "touch", "unlink", "unlink_file", "write_bytes", "write_file", "write_json",
    "write_text",
}  # fmt: skip
"""Calls that change files."""
SIDECAR = re.compile(r"\bsidecar\b|\.penstock(?![\w-])")
OWNERS = {path.stem for path in (SOURCE / "sidecar").glob("*.py")}


def writes_to_the_sidecar(text: str) -> list[str]:
    """Effects on paths that come from the sidecar, followed through names inside a function."""
    found = []
    lines = text.splitlines()
    for function in nodes(text):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not SIDECAR.search("\n".join(lines[function.lineno - 1 : function.end_lineno])):
            continue  # No path in it comes from there.
        names = _names_of_sidecar_paths(function)
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            name = call.func.attr
            if name not in EFFECTS | {"open"} or ast.unparse(call.func.value) in OWNERS:
                continue
            on = [call.func.value] if name in {"unlink", "rename", "mkdir", "rmdir"} else []
            is_made = name == "open" and "O_CREAT" in ast.unparse(call)
            is_there = any(_is_sidecar_path(one, names) for one in [*call.args[:2], *on])
            if (name in EFFECTS or is_made) and is_there:
                found.append(f"line {call.lineno}: {ast.unparse(call)}")
    return found


def _is_sidecar_path(node: ast.expr, names: set[str]) -> bool:
    inner = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return bool(SIDECAR.search(ast.unparse(node))) or bool(inner & names)


def _names_of_sidecar_paths(function: ast.FunctionDef) -> set[str]:
    names: set[str] = set()
    for _ in range(3):  # A name may come from another one that is assigned further down.
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp | ast.Name):
                is_one = _is_sidecar_path(node.value, names)
                names |= {t.id for t in node.targets if is_one and isinstance(t, ast.Name)}
    return names


def test_only_the_sidecar_package_writes_into_the_sidecar() -> None:
    paths = [p for p in files("*.py", under=SOURCE) if SOURCE / "sidecar" not in p.parents]
    assert wrong_in(paths, writes_to_the_sidecar) == []


@pytest.mark.parametrize(
    "line",
    [
        'files.write_json(store.sidecar / "note.json", {})',
        'folder = self.sidecar / "groups"\n    path = folder / "x"\n    _core.unlink_file(path)',
        '(path / ".penstock" / "index").unlink()',
        'os.open(sidecar / "lock", os.O_CREAT)',
    ],
)
def test_a_write_into_the_sidecar_is_noticed(line: str) -> None:
    assert len(writes_to_the_sidecar(f"def f():\n    {line}")) == 1


def test_only_the_spark_folder_imports_pyspark() -> None:
    paths = [path for path in files("*.py", under=SOURCE) if SOURCE / "spark" not in path.parents]
    names = {where(path): imports(path.read_text(), module_name(path)) for path in paths}
    assert [path for path, found in names.items() if any("pyspark" in name for name in found)] == []


# Sizes


def rust_without_tests(text: str) -> str:
    """A Rust file without its test modules, which rustfmt ends with a brace in column 0."""
    return re.sub(r"^#\[cfg\(test\)\]\nmod \w+ \{\n.*?^\}\n?", "", text, flags=re.M | re.S)


def test_python_modules_stay_small() -> None:
    sizes = {where(path): len(path.read_text().splitlines()) for path in files("*.py")}
    assert {name: size for name, size in sizes.items() if size > PYTHON_LINES_MAX} == {}


def test_the_layers_of_bytes_stay_small() -> None:
    paths = [path for room in ("disk", "sidecar", "formats")
             for path in files("*.py", under=SOURCE / room)]  # fmt: skip
    assert sum(len(path.read_text().splitlines()) for path in paths) <= BYTES_LINES_MAX


def test_rust_files_stay_small() -> None:
    texts = {where(path): rust_without_tests(path.read_text()) for path in files("*.rs")}
    sizes = {name: len(text.splitlines()) for name, text in texts.items()}
    assert {name: size for name, size in sizes.items() if size > RUST_LINES_MAX} == {}


def test_a_rust_test_module_does_not_count() -> None:
    text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n"
    assert rust_without_tests(text) == "fn a() {}\n\nfn c() {}\n"


# The crate

# A room uses the rooms before it. `lib` is the door and names everything.
RUST_ROOMS = (
    "errors", "sys", "bytes", "clock", "files", "shared", "segment", "message", "read", "formats",
    "append", "group", "python",
)  # fmt: skip
RUST_DOORS = {"lib"}
RUST_TESTS = {
    "fuzzing", "properties", "group::models", "group::table::against_a_model",
    "group::table::counted", "shared::models", "shared::models::weak", "shared::threads",
}  # fmt: skip
RUST_FUNCTION_LINES_MAX = 60
RUST_SHARE_MAX = 0.40  # Of the product's lines, without tests: it only goes down.


def rust_code(text: str) -> str:
    """A Rust file without tests, comments and what it only passes on (`pub use`)."""
    text = re.sub(r"//[^\n]*", "", rust_without_tests(text))
    return re.sub(r"^\s*pub use [^;]*;", "", text, flags=re.M)


def rust_module(path: Path) -> str:
    """`rust/src/group/mod.rs` is `group`, `rust/src/group/claim.rs` is `group::claim`."""
    parts = path.relative_to(RUST).with_suffix("").parts
    return "::".join(parts[:-1] if parts[-1] == "mod" else parts)


def spelled_out(tree: str) -> list[str]:
    """`a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`."""
    head, brace, inside = tree.strip().partition("{")
    if not brace:
        return [tree.strip().split(" as ")[0]]
    parts, depth = [""], 0
    for letter in inside.rstrip().removesuffix("}"):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [head + name for part in parts if part.strip() for name in spelled_out(part)]


def rust_uses(text: str, module: str, modules: Iterable[str]) -> set[str]:
    """The other modules that a module names, with `use` or on the spot."""
    code = rust_code(text)
    names = [name for tree in re.findall(r"\buse\s+([^;]+);", code) for name in spelled_out(tree)]
    names += re.findall(r"\b(?:crate|super)(?:::\w+)+", code)
    known, found = set(modules), set()
    for name in names:
        parts, here = [part.strip() for part in name.split("::")], module.split("::")
        while parts and parts[0] in ("crate", "self", "super"):
            step = parts.pop(0)
            here = {"crate": [], "self": here, "super": here[:-1]}[step]
        full = [*here, *parts] if name.split("::")[0] in ("crate", "self", "super") else []
        prefixes = ("::".join(full[:end]) for end in range(len(full), 0, -1))
        found |= {next((prefix for prefix in prefixes if prefix in known), module)}
    return found - {module}


def rust_graph() -> dict[str, set[str]]:
    texts = {rust_module(path): path.read_text() for path in files("*.rs", under=RUST)}
    texts = {name: text for name, text in texts.items() if name not in RUST_DOORS | RUST_TESTS}
    return {name: rust_uses(text, name, texts) for name, text in texts.items()}


def in_rings(graph: dict[str, set[str]]) -> set[str]:
    """The modules that use themselves through others."""
    reach = {name: set(uses) for name, uses in graph.items()}
    for middle in graph:
        for uses in reach.values():
            if middle in uses:
                uses |= reach[middle]
    return {name for name, uses in reach.items() if name in uses}


def rust_functions(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Line, name and body of each; rustfmt closes each at its own indentation."""
    lines = rust_without_tests(text).splitlines()
    for start, line in enumerate(lines):
        head = re.match(r"(\s*)(?:pub(?:\([^)]*\))? )?(?:const |unsafe )*fn (\w+)", line)
        if not head or line.rstrip().endswith((";", "}")):
            continue
        end = next(
            at for at in range(start, len(lines)) if lines[at] in (head[1] + "}", head[1] + ";")
        )
        opened = next(at for at in range(start, end + 1) if lines[at].endswith(("{", ";")))
        yield start + 1, head[2], lines[opened + 1 : end]


def long_rust_functions(text: str) -> list[str]:
    return [
        f"line {start}: {name} has {len(body)} lines"
        for start, name, body in rust_functions(text)
        if len(body) > RUST_FUNCTION_LINES_MAX
    ]


def python_under_the_append_lock(text: str) -> list[str]:
    """Calls of Python between taking the append lock and giving it back, in one function."""
    takes, calls = re.compile(r"let (\w+) = .*\bhold\(py\)"), re.compile(r"\.call(?:0|1|_method)")
    found, held = [], ""
    for start, name, body in rust_functions(text):
        held = ""
        for line in body:
            taken = takes.search(line)
            held = taken[1] if taken else "" if held and f"drop({held})" in line else held
            if held and calls.search(line):
                found.append(f"line {start}: {name}: {line.strip()}")
    return found


def test_each_room_of_the_crate_uses_those_below_it() -> None:
    order = {room: number for number, room in enumerate(RUST_ROOMS)}
    wrong = [
        f"{name} uses {used}"
        for name, uses in rust_graph().items()
        for used in uses
        if order[name.split("::")[0]] < order[used.split("::")[0]]
    ]
    assert wrong == []


def test_no_file_of_the_crate_uses_itself_through_others() -> None:
    assert in_rings(rust_graph()) == set()


def test_a_ring_of_rust_modules_is_noticed() -> None:
    texts = {
        "a": "use crate::{b::{One, two::Three}, c};\n",
        "b": "pub use crate::a::Two;\n",
        "b::two": "fn f() { super::super::c::g() }\n#[cfg(test)]\nmod t {\n    use crate::a;\n}\n",
        "c": "// crate::b\nfn g() { crate::a::h() }\n",
    }
    graph = {name: rust_uses(text, name, texts) for name, text in texts.items()}
    assert graph == {"a": {"b", "b::two", "c"}, "b": set(), "b::two": {"c"}, "c": {"a"}}
    assert in_rings(graph) == {"a", "b::two", "c"}


def test_rust_functions_stay_short() -> None:
    assert wrong_in(files("*.rs", under=RUST), long_rust_functions) == []


def test_a_long_rust_function_is_noticed() -> None:
    body = "    one();\n" * (RUST_FUNCTION_LINES_MAX + 1)
    text = f"fn long(\n    a: u8,\n) {{\n{body}}}\n\nfn short() {{\n    two();\n}}\n"
    assert long_rust_functions(text) == [f"line 1: long has {RUST_FUNCTION_LINES_MAX + 1} lines"]


def test_no_python_runs_under_the_append_lock() -> None:
    assert wrong_in(files("*.rs", under=RUST), python_under_the_append_lock) == []


def test_python_under_the_append_lock_is_noticed() -> None:
    body = "    let held = self.control.hold(py)?;\n{}    work.call0()?;\n    Ok(())\n"
    texts = [f"fn f() {{\n{body.format(between)}}}\n" for between in ("", "    drop(held);\n")]
    assert [len(python_under_the_append_lock(text)) for text in texts] == [1, 0]


def other_formats_named(text: str, own: str) -> list[str]:
    """Texts of a codec that name another format: which one holds a message is Python's to say."""
    others = "|".join(sorted(FORMATS - {own}))
    code = re.sub(r"//[^\n]*|\\\n *", "", rust_without_tests(text))
    return lines_matching(code, re.compile(rf'"[^"]*\bformats? (?:{others})\b'))


def test_no_codec_speaks_of_another_format() -> None:
    named = {
        where(path): other_formats_named(path.read_text(), path.relative_to(RUST).parts[1])
        for path in files("*.rs", under=RUST / "formats")
    }
    assert {path: lines for path, lines in named.items() if lines} == {}


def test_another_format_in_a_codec_is_noticed() -> None:
    text = 'return Err("no tags; format penstock has".into());\nErr("format mfq: no".into())\n'
    text += 'format!(\n    "a text of two lines; \\\n     format zbus has it"\n)'
    assert len(other_formats_named(text, "mfq")) == 2


def test_most_of_the_product_is_python() -> None:
    paths = [path for path in files("*.rs", under=RUST) if rust_module(path) not in RUST_TESTS]
    rust = sum(len(rust_without_tests(path.read_text()).splitlines()) for path in paths)
    python = sum(len(path.read_text().splitlines()) for path in files("*.py", under=ROOT / "src"))
    assert rust / (rust + python) <= RUST_SHARE_MAX


# What may not be in the code


def rust_unsafe(text: str) -> list[str]:
    code = re.sub(r"//[^\n]*", "", text)
    return lines_matching(code, re.compile(r"\bunsafe\b"))


def pickles(text: str) -> list[str]:
    """Names in code; a docstring may say that there is none."""
    if not re.search(r"pickle|\b(?:dill|shelve|marshal)\b", text):
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        f"line {token.start[0]}: {token.string}"
        for token in tokens
        if token.type == tokenize.NAME and re.search("pickle|^(dill|shelve|marshal)$", token.string)
    ]


def test_unsafe_rust_lives_in_one_folder() -> None:
    paths = [path for path in files("*.rs") if RUST / "sys" not in path.parents]
    assert wrong_in(paths, rust_unsafe) == []


def test_unsafe_is_noticed_in_code_alone() -> None:
    text = "#![deny(unsafe_code)]\n// unsafe, in words\nlet word = unsafe { load(base) };\n"
    assert rust_unsafe(text) == ["line 3: let word = unsafe { load(base) };"]


def test_files_are_opened_and_made_in_one_place() -> None:
    """There no link is followed, no pipe waited for, and nothing made that its owner can't open."""
    doors = [RUST / "files", RUST / "sys", RUST / "fuzzing.rs", SOURCE / "spark" / "demo.py"]
    paths = [*files("*.rs", under=RUST), *files("*.py", under=SOURCE)]
    others = [path for path in paths if not any(path.is_relative_to(one) for one in doors)]
    by_hand = re.compile(r"\bFile::(?:open|create)\b|\bO_CREAT\b")
    assert wrong_in(others, lambda text: lines_matching(rust_without_tests(text), by_hand)) == []


def test_nothing_is_ever_pickled() -> None:
    assert wrong_in(files("*.py", under=SOURCE), pickles) == []


def test_a_pickle_is_noticed_in_code_alone() -> None:
    text = '"""No pickle."""\nimport cloudpickle  # pickle\nframe.to_pickle()\n'
    assert pickles(text) == ["line 2: cloudpickle", "line 3: to_pickle"]


# Words

CODE = ("*.py", "*.pyi", "*.rs", "*.js", "*.css", "*.html", "*.sh", "Makefile", "run")
PROSE = ("*.md", "*.toml")


def test_nothing_is_left_for_later() -> None:
    assert wrong_in(files(*CODE), lambda text: lines_matching(text, LEFTOVERS)) == []


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, FOREIGN_WORDS, ISSUE_NUMBERS])
def test_the_project_speaks_of_itself_alone(pattern: re.Pattern[str]) -> None:
    assert wrong_in(files(*CODE, *PROSE), lambda text: lines_matching(text, pattern)) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (LEFTOVERS, "# TO" + "DO: later"),
        (LEFTOVERS, "un" + "implemented!()"),
        (MACHINE_PATHS, 'path = "/ho' + 'me/someone/queue"'),
        (FOREIGN_WORDS, "a sub" + "agent wrote this"),
        (ISSUE_NUMBERS, "see #" + "12"),
        (ISSUE_NUMBERS, "as issue " + "7 says"),
    ],
)
def test_a_word_out_of_place_is_noticed(pattern: re.Pattern[str], line: str) -> None:
    assert lines_matching(line, pattern) == [f"line 1: {line}"]


# Names that were given up, each for the one that docs/internals/words.md has.
GIVEN_UP = re.compile(
    r"\b(?:[Kk]eepers?|Bell|Shelf|class Handles|unseal\w*|seal_bytes|is_sealing"
    r"|settle_(?:all|cursor|order|tail)|RING_INTENT|intent record"
    r"|codec of (?:an?|one) (?:\S+ )?(?:segment|ring)|class _?Place|struct State)\b"
)
# A class name is given once in each language; each interface has names of its own, since none uses
# another. These are one idea in several places: the header of a segment, the list of segments,
# `dataclasses` in small, the report of what was done.
SHARED_NAMES = {"Header", "Index", "Field", "Report", "Random"}
PYTHON_CLASS = re.compile(r"^ *class (\w+)", re.M)
RUST_TYPE = re.compile(r"^ *(?:pub(?:\([a-z]+\))? )?(?:struct|enum|trait) (\w+)", re.M)


def names_given_twice(texts: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """The class names that several files define."""
    names = [name for text in texts for name in set(pattern.findall(text))]
    return sorted({name for name in names if names.count(name) > 1})


def test_words_that_were_given_up_stay_away() -> None:
    paths = [*files("*.py", "*.pyi", under=SOURCE), *files("*.rs", under=RUST)]
    assert wrong_in(paths, lambda text: lines_matching(text, GIVEN_UP)) == []


@pytest.mark.parametrize(("under", "names"), [(SOURCE, "*.py"), (RUST, "*.rs")])
def test_a_class_name_means_one_thing(under: Path, names: str) -> None:
    pattern = PYTHON_CLASS if under == SOURCE else RUST_TYPE
    paths = files(names, under=under)
    rooms = {path: path.relative_to(under).parts[0].removesuffix(".py") for path in paths}
    texts = [path.read_text() for path in paths if rooms[path] not in INTERFACES]
    assert set(names_given_twice(texts, pattern)) - SHARED_NAMES == set()


def test_a_name_that_is_given_twice_is_noticed() -> None:
    texts = ["class Place:\n    class Inner: ...", "class Place(Base): ...", "class Other: ..."]
    assert names_given_twice(texts, PYTHON_CLASS) == ["Place"]
    texts = ["pub(crate) struct Held<'a>(&'a u8);", "enum Held {}", "    pub trait Other {}"]
    assert names_given_twice(texts, RUST_TYPE) == ["Held"]
    assert lines_matching("/// The codec of a VQS ring", GIVEN_UP)


def test_every_word_of_the_glossary_stands_there_once() -> None:
    page = (ROOT / "docs" / "internals" / "words.md").read_text()
    rows = re.findall(r"^\| (\*\*.*?) \|", page, re.M)
    words = [word for row in rows for word in re.findall(r"\*\*(.+?)\*\*", row)]
    assert len(words) > 30
    assert len(words) == len(set(words))


# Tests


def short_test_names(text: str) -> list[str]:
    names = (
        node.name
        for node in nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [
        name
        for name in names
        if name.startswith("test_") and len(name.removeprefix("test_").split("_")) < 3
    ]


def sleeps(text: str) -> list[str]:
    """Real sleeping; giving way with `asyncio.sleep(0)` is no sleep."""
    found = []
    for node in nodes(text):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            if any(alias.name == "sleep" for alias in node.names):
                found.append(f"line {node.lineno}: from {node.module} import sleep")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            call = ast.unparse(node)
            is_sleep = ast.unparse(node.func) in ("time.sleep", "asyncio.sleep")
            if is_sleep and call != "asyncio.sleep(0)":
                found.append(f"line {node.lineno}: {call}")
    return found


def test_names_of_tests_are_sentences() -> None:
    assert (
        wrong_in(files("test_*.py", "conformance.py", under=ROOT / "tests"), short_test_names) == []
    )


def test_a_name_that_is_no_sentence_is_noticed() -> None:
    text = "def test_put(): ...\nasync def test_put_get(): ...\ndef test_put_is_fast(): ..."
    assert short_test_names(text) == ["test_put", "test_put_get"]


def test_no_test_ever_sleeps() -> None:
    assert wrong_in(files("*.py", under=ROOT / "tests"), sleeps) == []


def test_a_sleep_is_noticed_however_it_is_spelled() -> None:
    text = "from time import sleep\ntime.sleep(1)\nasyncio.sleep(0)\nasyncio.sleep(0.1)\n"
    assert [line.split(":")[0] for line in sleeps(text)] == ["line 1", "line 2", "line 4"]
