"""What `make dist` says of a wheel: passed, failed or not run, and never the one for the other."""

from __future__ import annotations

import platform
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools import wheels


def test_a_wheel_that_nothing_here_can_run_is_said_to_be_not_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("penstock-musllinux_1_2_x86_64.whl", "penstock-manylinux2014_s390x.whl"):
        assert wheels.run(Path(name)) == 0
        said = capsys.readouterr().out
        assert "NOT RUN" in said
        assert "passed" not in said


def test_a_wheel_that_can_not_be_installed_has_failed_in_every_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / f"penstock-0.1.0-cp311-abi3-manylinux2014_{platform.machine()}.whl"
    broken.write_bytes(b"no wheel")
    monkeypatch.setattr(wheels, "WHEELS", tmp_path)
    assert wheels.check() == len(wheels.pythons()) > 0
    assert "FAILED" in capsys.readouterr().out


def test_a_folder_without_wheels_and_one_that_is_too_large_are_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "WHEELS", tmp_path)
    assert wheels.check() == 1
    large = tmp_path / "penstock-musllinux_1_2_x86_64.whl"
    with large.open("wb") as stream:
        stream.truncate(wheels.MAX_BYTES + 1)
    assert wheels.check() == 1
    assert "FAILED: larger than 5 MB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "loose"),
    [
        (
            "int PyList_New(long); int puts(char *); int f() { return puts(0) + PyList_New(0); }",
            [],
        ),
        ("int newer(void); int f() { return newer(); }", ["newer"]),
        ("int newer(void) __attribute__((weak)); int f() { return newer ? newer() : 0; }", []),
    ],
)
def test_a_wheel_that_needs_what_an_older_library_lacks_has_failed(
    tmp_path: Path, code: str, loose: list[str]
) -> None:
    (tmp_path / "core.c").write_text(code)
    library = tmp_path / "core.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "core.c"], check=True)
    wheel = tmp_path / "penstock-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.write(library, "penstock/_core.abi3.so")
    assert wheels.loose_symbols(wheel) == loose
    assert wheels.loose_symbols(wheel.rename(tmp_path / "penstock-musllinux_1_2_x86_64.whl")) == []
