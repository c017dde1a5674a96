"""One Spark session for the whole run; most tests need none."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    import penstock.spark

    folder = tmp_path_factory.mktemp("spark")
    session = penstock.spark.session(
        "tests",
        spark_sql_warehouse_dir=str(folder / "warehouse"),
        spark_local_dir=str(folder / "local"),
        spark_driver_memory="1g",
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
