"""The project for Spark's own `spark-pipelines`, run by it as it was written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Queue
from penstock.spark import java
from penstock.spark.pipelines import templates
from tests.spark.helpers import bodies


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_template_runs_from_the_queue_to_tables_and_dead_letters(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="spark-pipelines needs pyspark[pipelines]")
    pytest.importorskip("grpc", reason="spark-pipelines needs pyspark[pipelines]")
    import pyspark

    with Queue(tmp_path / "q") as queue:
        queue.put_many([b'{"message": "a", "level": "info"}'] * 20)
        queue.put_many([b"no object", b"\xff\xfe"])
    templates.write(tmp_path / "p", str(tmp_path / "q"))
    java.ensure()
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-pipelines"), "run"]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home)}
    done = subprocess.run(
        command, cwd=tmp_path / "p", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert bodies(tmp_path / "p" / "dead-letters") == [b"no object", b"\xff\xfe"]
    assert list((tmp_path / "p").rglob("silver/*.parquet"))
    assert list((tmp_path / "p").rglob("per_minute/*.parquet"))
