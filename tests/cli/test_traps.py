"""Looking takes nothing, failing leaves nothing, and errors speak of what was typed."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from penstock import Queue
from penstock.cli import app, opening, read, show
from penstock.engine import retention
from penstock.formats import registry
from tests.cli.conftest import Run, tree_hash
from tests.opening import open_queue, path_for

ROOT = Path(__file__).parent.parent.parent


def test_tail_of_a_group_takes_nothing(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree_hash(orders)
    ids = [line["id"] for line in run("tail", orders, "--group", "billing").lines]
    assert ids == ["o-1", "o-2", "o-3", "o-4"]
    monkeypatch.setenv("PENSTOCK_GROUP", "audit")
    ran = run("tail", orders, "-n", 2, "--follow", "--timeout", 0)
    assert [line["id"] for line in ran.lines] == ["o-2", "o-4"]
    assert tree_hash(orders) == before


@pytest.mark.parametrize("format", registry.MODULES)
def test_tail_follows_a_queue_whose_consumers_free_what_it_has_not_seen(
    run: Run, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, size = path_for(tmp_path, format), {"max_bytes": 1 << 18} if format == "vqs" else {}
    with open_queue(path, format=format, **size) as queue:
        queue.put(b"before")
        group, naps = queue.group(ack="auto", start="earliest"), iter(range(3))

        def meanwhile(seconds: float) -> None:
            for nap in naps:
                queue.put_many([bytes(1500)] * 30)
                last = group.get_many(40)[-1].offset or 0
                if not retention.free_consumed(queue):
                    queue.trim(last)
                queue.put(b"after %d" % nap)
                return

        monkeypatch.setattr(read, "time", SimpleNamespace(sleep=meanwhile))
        ran = run("tail", path, "--follow", "--timeout", 1)
        said = [line["text"] for line in ran.lines if "e" in line["text"]]
        assert said == ["before", "after 0", "after 1", "after 2"]
        assert ran.err == ""


def test_get_follows_and_ends_when_nothing_more_comes(run: Run, orders: Path) -> None:
    ran = run("get", orders, "--group", "billing", "--follow", "--timeout", 0)
    assert [line["id"] for line in ran.lines] == ["o-1", "o-2", "o-3", "o-4"]
    assert run("groups", "lag", orders, "billing").one["lag"] == 0


def test_a_queue_is_not_moved_or_converted_to_itself(run: Run, orders: Path) -> None:
    for arguments in (("move", orders, "--to", orders), ("convert", orders, orders)):
        assert "itself" in run(*arguments, code=2).err
    assert len(run("cat", orders).lines) == 5


def test_only_the_named_variables_change_a_command(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VERSION", "PUT_TAG", "FROM", "TO", "DRY_RUN", "TAG"):
        monkeypatch.setenv(f"PENSTOCK_{name}", "1")
    run("put", tmp_path / "q", "x")
    assert run("cat", tmp_path / "q").one["tag"] is None


def test_every_variable_is_in_the_table_of_the_docs_and_no_other() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    rows = dict(re.findall(r"^\| `(PENSTOCK_\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert rows == opening.VARIABLES
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert set(re.findall(r"PENSTOCK_[A-Z][A-Z_]*[A-Z]", sources)) == set(opening.VARIABLES)


def test_help_does_not_speak_of_variables(run: Run) -> None:
    for command in ("put", "get", "tail", "cat", "convert"):
        assert "PENSTOCK_" not in run(command, "--help").text
        assert "env var" not in run(command, "--help").text


def test_an_export_without_its_library_leaves_the_file(
    run: Run, orders: Path, tmp_path: Path
) -> None:
    file = tmp_path / "x.parquet"
    file.write_bytes(b"precious")
    with mock.patch.dict(sys.modules, {"pyarrow": None}):
        assert "pip install 'penstock[arrow]'" in run("export", orders, file, code=2).err
    assert file.read_bytes() == b"precious"


def test_an_import_that_can_not_begin_leaves_no_queue(run: Run, tmp_path: Path) -> None:
    for file in ("nosuch.jsonl", "nosuch.csv", "nosuch"):
        run("import", tmp_path / file, tmp_path / "made", code=2)
    assert list(tmp_path.iterdir()) == []


REFUSED = {
    "a field without a place": {"body": "YQ==", "tag": "eu"},
    "no message at all": {"text": "a"},
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=list(REFUSED))
@pytest.mark.parametrize("piped", [False, True])
def test_an_import_that_is_refused_leaves_no_queue(
    tmp_path: Path, line: dict[str, str], piped: bool
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps(line) + "\n")
    command = [sys.executable, "-m", "penstock", "import", "-" if piped else file.name, "made"]
    done = subprocess.run(
        [*command, "--format", "mfq"], cwd=tmp_path, input=file.read_text() if piped else None,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("penstock: ")
    assert list(tmp_path.iterdir()) == [file]


def test_a_conversion_that_is_refused_leaves_no_queue(
    run: Run, orders: Path, tmp_path: Path
) -> None:
    said = run("convert", orders, tmp_path / "made", "--to", "mfq", code=2).err
    assert said.startswith(f"penstock: {tmp_path / 'made'}: format mfq can't hold: tag")
    assert list(tmp_path.iterdir()) == [orders]


@pytest.mark.parametrize(
    "arguments", [("x", "--tag", "eu"), ("--lines", "x", "--tag", "eu"), ("--file", "nosuch")]
)
def test_a_put_that_is_refused_leaves_no_queue(
    run: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    run("put", tmp_path / "made", *arguments, "--format", "mfq", code=2)
    assert list(tmp_path.iterdir()) == []


def test_errors_speak_of_flags_and_files(run: Run, tmp_path: Path) -> None:
    said = run("import", tmp_path / "nosuch.jsonl", tmp_path / "made", code=2).err
    assert said == f"penstock: {tmp_path / 'nosuch.jsonl'}: No such file or directory\n"
    Queue(tmp_path / "secret", key=bytes(32)).close()
    assert "--key-file" in run("cat", tmp_path / "secret", code=2).err


def texts(tree: ast.AST) -> Iterator[str]:
    """What is said in a file, with 16 for what is put in when it is said."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (getattr(one, "value", 16) for one in node.values)
            yield "".join(one if isinstance(one, str) else "16" for one in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_what_stands_for_an_advice_to_programs_is_an_advice_that_is_given() -> None:
    sources = (ROOT / "src/penstock").rglob("*.py")
    said = "\n".join(
        text
        for path in sources
        if path.name != "show.py"
        for text in texts(ast.parse(path.read_text()))
    )
    said += "".join(path.read_text() for path in (ROOT / "rust/src").rglob("*.rs"))
    assert [one for one in show.PHRASES if re.search(one, said) is None] == []


def test_a_dry_run_of_convert_makes_nothing(run: Run, orders: Path, tmp_path: Path) -> None:
    run("convert", orders, tmp_path / "made", "--to", "zbus", "--dry-run", "--drop", "headers")
    assert list(tmp_path.iterdir()) == [orders]


@pytest.mark.parametrize("is_made", [False, True])
@pytest.mark.parametrize("format", ["zbus", "beats", "vqs", "mfq"])
def test_compression_is_refused_where_nothing_is_compressed(
    run: Run, tmp_path: Path, format: str, is_made: bool
) -> None:
    path = tmp_path / "q.bin"
    if is_made:
        Queue(path, format=format).close()
    said = f"penstock: --compression lz4: expected none: format {format} "
    words = ("put", path, "{}", "--format", format, "--compression", "lz4")
    assert run(*words, code=2).err.startswith(said)
    assert path.exists() == is_made
    if is_made:
        assert "compression" in run("set", path, "compression=lz4", code=2).err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("put", "{q}", "x", "--delay", "-1"), "--delay"),
        (("put", "{q}", "x", "--delay", "nan"), "--delay"),
        (("put", "{q}", "x", "--tag", "\udcff"), "penstock: --tag \\udcff: expected text"),
        (("tail", "{q}", "--count", "-1"), "penstock: --count -1: expected 0 or more"),
        (("inspect", "{q}/.penstock/control", "--count", "-1"), "--count -1: expected 0 or more"),
        (("inspect", "/dev/zero"), "penstock: FILE /dev/zero: expected an ordinary file"),
        (("top", "{q}", "--interval", "inf"), "penstock: --interval inf: expected"),
        (("put", "{q}", "x", "--durability", "often"), "penstock: --durability often: expected"),
        (("put", "{q}", "x", "--compression", "zip"), "penstock: --compression zip: expected"),
        (("put", "{new}", "x", "--layout", "9"), "penstock: --layout 9: expected 1"),
        (("cat", "{q}", "--format", "kafka"), "penstock: --format kafka: expected"),
        (("groups", "create", "{q}", "g", "--visibility", "-1"), "--visibility"),
        (("groups", "create", "{q}", "g", "--ack", "maybe"), "--ack"),
        (("groups", "create", "{q}", "g", "--dead-letter", "orders"), "penstock: --dead-letter"),
        (("trim", "{q}", "--age", "long"), "penstock: --age"),
        (("set", "{q}", "--group", "billing", "visiblity_s=1"), "visibility_s"),
        (("set", "{q}", "--group", "billing", "max_in_flight=x"), "max_in_flight"),
        (("export", "{q}", "file.csv"), "penstock: "),
        (("convert", "{q}", "{new}", "--drop", "color"), "penstock: --drop color: expected"),
        (("put", "s3://bucket/q", "x"), "local"),
        (("put", "{q}", "x", "--header", "k"), "penstock: --header k: expected"),
        (("cat", "{q}", "--since", "then"), "penstock: --since then: expected"),
        (("cat", "{q}", "--until", "then"), "penstock: --until then: expected"),
        (("export", "{q}", "x.jsonl", "--until", "then"), "penstock: --until then: expected"),
        (("convert", "{q}", "{new}", "--to", "kafka"), "penstock: --to kafka: expected"),
        (("convert", "{q}", "{new}", "--to-layout", "9"), "penstock: --to-layout 9: expected"),
        (("convert", "{q}", "{new}", "--until", "then"), "penstock: --until then: expected"),
        (("import", "x.jsonl", "{q}", "--from", "csv"), "penstock: --from csv: expected"),
        (("seek", "{q}", "then", "--group", "billing"), "penstock: WHERE then: expected"),
        (("trim", "{q}", "--before", "then"), "penstock: --before then: expected"),
        (("verify", "{q}", "--format", "kafka"), "penstock: --format kafka: expected"),
        (("move", "{q}"), "penstock: say where the messages go: either --to QUEUE or --to-origin"),
        (("cat", "{new}"), "no queue is here; `penstock put` creates one"),
        (("verify", "{new}", "--json"), "no queue is here; `penstock put` creates one"),
        (("get", "{q}", "--timeout", "-1"), "penstock: --timeout -1.0: expected"),
        (("tail", "{q}", "--timeout", "-1"), "--timeout"),
        (("put", "s3://bucket/q", "x"), "penstock: PATH s3://bucket/q: expected"),
        (("put", "", "x"), "PATH"),
        (("put", "{q}", "x", "--file", "{new}"), "new: No such file or directory"),
        (("inspect", "{q}"), "a file: name one of those in this folder"),
        (("inspect", "{new}"), "new: No such file or directory"),
        (("set", "{q}", "max_bytes=abc"), "penstock: max_bytes=abc: expected a whole number"),
        (("set", "{q}", "color=red"), "has no option 'color'; see `penstock show`"),
        (("import", "x.csv", "{new}"), "penstock: FILE x.csv: expected a name that ends in .jsonl"),
        (("export", "{q}", "x.csv"), "penstock: FILE x.csv: expected a name that ends in .jsonl"),
        (("export", "{q}", "{new}/x.jsonl"), "new: no such folder; make it first"),
        (("convert", "{q}", "{new}", "--to", "mfq"), "Leave them out with --drop tag --drop id "),
        (("serve", "{q}"), "expected a folder that holds queues, not a queue itself"),
        (("cat", "{q}", "--group", "x"), "there is no group 'x'; its groups are audit, billing"),
        (("cat", "{here}"), "this is not a queue; it holds orders; check the path"),
    ],
)
def test_an_error_names_what_was_typed(
    run: Run, orders: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    names = {"q": orders, "new": tmp_path / "new", "here": tmp_path}
    ran = run(*(text.format(**names) for text in arguments), code=2)
    assert said in ran.err
    assert "Options" not in ran.err.replace("Options:", "")
    assert "__init__" not in ran.err


def test_a_file_that_is_missing_is_found_before_anything_is_put(run: Run, orders: Path) -> None:
    before = tree_hash(orders)
    run("put", orders, "x", "--file", orders.parent / "missing", code=2)
    assert tree_hash(orders) == before


def test_lines_come_from_files_too_and_take_no_id(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\nb\n")
    run("put", tmp_path / "q", "--lines", "--file", tmp_path / "lines")
    assert [line["text"] for line in run("cat", tmp_path / "q").lines] == ["a", "b"]
    for flag, value in (("--id", "i"), ("--key", "k"), ("--header", "k=v")):
        said = run("put", tmp_path / "q", "x", "--lines", flag, value, code=2).err
        assert said.startswith(f"penstock: --lines: expected no {flag} beside it")


@pytest.mark.parametrize(
    ("variable", "value"), [("PENSTOCK_JSON", "maybe"), ("PENSTOCK_DURABILITY", "often")]
)
def test_an_error_names_the_variable_that_was_set(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert run("put", orders, "x", code=2).err.startswith(f"penstock: {variable}")


def test_an_error_about_a_key_names_the_flag_that_gave_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT", "abc")
    (tmp_path / "short").write_bytes(b"abc")
    for flag, value in (("--key-env", "SHORT"), ("--key-file", str(tmp_path / "short"))):
        said = run("put", tmp_path / "q", "x", flag, value, code=2).err
        assert said.startswith(f"penstock: {flag} {value}: expected 16 or 32 bytes")


def test_an_import_names_the_line_that_is_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"body": "eA=="}\nhello\n')
    said = run("import", tmp_path / "bad.jsonl", tmp_path / "q", code=2).err
    assert said.startswith(f"penstock: {tmp_path / 'bad.jsonl'}: line 2 is not JSON")


def test_an_error_that_nobody_foresaw_is_a_sentence_and_no_traceback(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mock.patch.object(opening.QueueAt, "reading", side_effect=ZeroDivisionError("oh")):
        ran = run("cat", orders, code=2)
        assert "ZeroDivisionError: oh. This is a defect" in ran.err
        assert "Traceback" not in ran.err
        monkeypatch.setenv("PENSTOCK_DEBUG", "1")
        assert "Traceback" in run("cat", orders, code=2).err


def test_an_interrupt_is_exit_code_130(run: Run, orders: Path) -> None:
    with mock.patch.object(opening.QueueAt, "reading", side_effect=KeyboardInterrupt):
        ran = run("cat", orders, code=app.INTERRUPTED)
    assert (ran.text, ran.err) == ("", "")


def test_ctrl_c_ends_a_waiting_command_quietly(orders: Path) -> None:
    line = [sys.executable, "-m", "penstock", "get", str(orders), "--group", "new", "--follow"]
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=default
    ) as child:  # fmt: skip
        assert child.stdout is not None
        for _ in range(5):
            child.stdout.readline()  # It has all there is, and waits, or is about to.
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, b"")


def test_ls_goes_on_past_a_folder_that_can_not_be_read(
    run: Run, orders: Path, tmp_path: Path
) -> None:
    (tmp_path / "closed").mkdir()
    real = Path.iterdir

    def iterdir(self: Path) -> object:
        if self.name == "closed":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self)

    with mock.patch.object(Path, "iterdir", iterdir):
        ran = run("ls", tmp_path)
    assert [Path(line["path"]).name for line in ran.lines] == ["orders"]
    assert "closed" in ran.err


def test_the_version_is_that_of_the_package(run: Run) -> None:
    import tomllib

    import penstock

    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert penstock.__version__ == wanted
    assert run("--version").text == f"penstock {wanted}\n"


def test_put_uses_what_the_queue_has_unless_said(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Queue(tmp_path / "q", durability="always"):
        pass
    run("put", tmp_path / "q", "x")
    assert caplog.messages == []
    run("put", tmp_path / "q", "x", "--durability", "process")
    (said,) = caplog.messages
    assert "durability='process' applies to this opening alone; the queue keeps 'always'" in said


def test_set_and_show_speak_of_the_options_that_a_queue_keeps(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "q"
    run("put", path, "x")
    run("set", path, "max_bytes=32768", "when_full=reject", "delay_s=0.5", "codec=json")
    shown = run("show", path).one
    assert (shown["max_bytes"], shown["when_full"], shown["codec"]) == (32768, "reject", "json")
    assert shown["kept"] == ["codec", "delay_s", "max_bytes", "when_full"]
    assert "(default)" in run("show", path, "--no-json").text
    with Queue(path) as queue:
        assert queue.options.max_bytes == 32768
    run("put", path, "--lines", "-", stdin=b"\n".join([bytes(2000)] * 40), code=4)
    run("set", path, "max_bytes=")
    assert "max_bytes" not in run("show", path).one["kept"]
    assert run("set", path, "max_bytes=-1", code=2).err.startswith("penstock: max_bytes=-1")
    assert "colour" in run("set", path, "colour=blue", code=2).err


def test_show_of_a_group_has_its_options(run: Run, orders: Path) -> None:
    assert run("show", orders, "--group", "audit").one["tags"] == "eu.#"
    assert "billing" in run("show", orders, "--group", "nobody", code=2).err


def test_put_waits_for_room_only_when_told(run: Run, tmp_path: Path) -> None:
    Queue(tmp_path / "q", max_bytes=32 << 10).close()
    run("put", tmp_path / "q", "--lines", "-", stdin=b"\n".join([bytes(2000)] * 40), code=4)


def test_an_endpoint_without_its_libraries_names_the_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("penstock.sqs.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("penstock.sqs.serving", raising=False)
    monkeypatch.setitem(sys.modules, "httptools", None)
    assert "pip install 'penstock[sqs]'" in run("serve", tmp_path, code=2).err


def test_a_module_that_fails_is_no_defect_of_ours(
    run: Run, orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_tasks.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    ran = run("work", "failing_tasks:handle", orders, code=2)
    assert "MODULE:FUNCTION failing_tasks:handle" in ran.err
    assert "ZeroDivisionError" in ran.err
    assert "defect" not in ran.err


def test_ctrl_c_while_the_command_line_loads_leaves_no_traceback() -> None:
    code = (
        "import sys, signal\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from penstock.cli import main\n"
        "sys.exit(main(['ls']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
