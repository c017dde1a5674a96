"""docs/howto/filebeat-spool-to-table.md: every block, in order, in an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "howto" / "filebeat-spool-to-table.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
def test_the_tutorial_from_a_spool_to_a_table_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    names: dict[str, Any] = {}
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 5
    for kind, text in blocks:
        if kind == "python":
            exec(compile(here(text, tmp_path), str(PAGE), "exec"), names)
        else:
            for line in text.splitlines():
                _, *words = shlex.split(here(line, tmp_path))
                assert main(words) == 0, line


def here(text: str, folder: Path) -> str:
    """The JVM was started elsewhere: what is relative for a reader is not for it."""
    return text.replace("lake/", f"{folder}/lake/").replace("diskqueue", f"{folder}/diskqueue")
