"""The benchmark harness: goals, ratios, the table and the file."""

from __future__ import annotations

import io
import json
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benches import harness, tails
from benches._limits import Unfinished, within
from benches._parties import CONTEXT, Party
from benches.against import crossings, peers, servers
from benches.harness import Row
from tools import (
    bench_pages,
    demo_picture,
    performance_page,
    plot_growth,
    plot_peers,
    spark_figures,
)


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Row(case="a", ours=90, goal=100), True),
        (Row(case="a", ours=110, goal=100), False),
        (Row(case="a", ours=110, goal=100, peer="b", peer_value=50, ratio_goal=3), True),
        (Row(case="a", ours=90, goal=100, peer="b", peer_value=20, ratio_goal=3), False),
        (Row(case="a", ours=3, unit="GB/s", goal=2), True),
        (Row(case="a", ours=1, unit="msg/s", peer="b", peer_value=1, ratio_goal=4), False),
        (Row(case="a", ours=9, goal=1, floor="copy", floor_value=5, floor_goal=2), True),
        (Row(case="a", ours=11, goal=99, floor="copy", floor_value=5, floor_goal=2), False),
        (Row(case="a", ours=1), None),
    ],
)
def test_a_goal_is_met_by_its_floor_its_ratio_or_else_by_its_figure(
    row: Row, met: bool | None
) -> None:
    assert row.met is met


def test_every_benchmark_can_be_loaded() -> None:
    for name in harness.names():
        assert callable(harness.load(name))


def test_memory_is_brought_before_rounds_that_put_and_never_more_than_a_quarter_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[int] = []

    class Noted(io.BytesIO):
        def write(self, data: Any) -> int:
            written.append(len(data))
            return len(data)

    assert harness.bring_memory(1 << 20) > 0
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Noted())
    monkeypatch.setattr(harness, "_available_bytes", lambda: 8 << 20)
    harness.bring_memory(1 << 40)
    assert sum(written) == 2 << 20
    assert set(written) == set(harness.PIECES)
    monkeypatch.setattr(harness, "_available_bytes", lambda: 0)
    assert harness.bring_memory(1 << 40) == 0
    assert sum(written) == 2 << 20


def test_before_rounds_that_fill_much_memory_is_brought_each_time_and_once_before_short_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brought: list[int] = []
    monkeypatch.setattr(harness, "bring_memory", brought.append)
    large = harness.SPARE_BYTES
    harness.best_cpu_ns(lambda: brought.append(0), 1, 3, fills=large)
    assert brought == [large, 0] * 3
    brought.clear()
    harness.best_cpu_ns(lambda: brought.append(0), 1, 3, fills=1000)
    assert brought == [3000, 0, 0, 0]
    brought.clear()
    harness.best_cpu_ns(lambda: brought.append(0), 1, 3)
    assert brought == [0] * 3


def test_results_name_the_machine_they_were_measured_on(tmp_path: Path) -> None:
    row = Row(case="a", ours=2, peer="b", peer_value=1, ratio_goal=3)
    path = harness.save("demo", [row], harness.machine(), tmp_path)
    saved = json.loads(path.read_text())
    assert saved["rows"][0]["ratio"] == 2
    assert saved["rows"][0]["met"] is True
    assert {"cpu", "cores", "kernel", "python", "load_1min"} <= saved["machine"].keys()


def hang() -> None:
    """Never ends, and neither does what it started."""
    CONTEXT.Process(target=signal.pause).start()
    signal.pause()


def fail() -> None:
    raise ValueError("no luck")


def test_a_way_that_hangs_or_fails_is_ended_and_reported() -> None:
    assert within(60, int, "7") == 7
    with pytest.raises(Unfinished, match="ValueError: no luck"):
        within(60, fail)
    with pytest.raises(Unfinished, match=r"did not finish in 0\.5 s"):
        within(0.5, hang)


def test_the_best_round_is_what_counts() -> None:
    ticks = iter([0, 90, 100, 110, 200, 250])
    assert harness._best(lambda: next(ticks), lambda: None, 10, 3) == 1.0


def test_peers_that_are_missing_are_left_out_with_a_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(servers, "JARS", tmp_path)  # Java takes seconds to start.
    rows = {row["name"]: row for row in peers.run(rounds=1, share=0.005)}
    assert {"queue.Queue (standard library)", "penstock, durability=always"} <= set(rows)
    assert all(row["put_us"] > 0 and row["messages_per_second"] > 0 for row in rows.values())
    missing = {peer.name for peer in peers.peers()} - set(rows)
    said = capsys.readouterr().err
    assert all(f"left out: {name}" in said for name in missing)


def test_the_plot_of_peers_is_made_from_the_figures(tmp_path: Path) -> None:
    row = {
        "name": "penstock", "survives": "kill -9", "put_us": 0.3, "get_us": 12.5,
        "messages_per_second": 78125,
    }  # fmt: skip
    assert "| **penstock** | kill -9 | 0.30 µs | 12 µs | 78,125 |" in plot_peers.table(
        {"rows": [row]}
    )
    plot_peers.plot({"rows": [row]}, tmp_path / "peers.svg")
    assert "78,125" in (tmp_path / "peers.svg").read_text()


def test_the_readme_gets_the_figures_of_a_run_between_its_markers() -> None:
    found = json.loads((plot_peers.IMAGES / "peers.json").read_text())
    page = plot_peers.in_page("a\n<!-- peers: begin -->\nold\n<!-- peers: end -->\nb\n", found)
    assert page.startswith("a\n<!-- peers: begin -->\nOne process")
    assert page.endswith("<!-- peers: end -->\nb\n")
    assert plot_peers.table(found) in page
    assert "old" not in page


def test_the_plot_of_growth_has_a_line_for_each_thing_that_is_done(tmp_path: Path) -> None:
    rows = [
        {"case": "groups 1: put", "ours": 200.0}, {"case": "groups 64: put", "ours": 210.0},
        {"case": "groups 1: get", "ours": 150.0}, {"case": "open leases 1,000: get", "ours": 9.0},
    ]  # fmt: skip
    lines = plot_growth.lines(rows)
    assert lines["groups"] == {"put": [(1, 200.0), (64, 210.0)], "get": [(1, 150.0)]}
    assert lines["open leases"] == {"get": [(1000, 9.0)]}
    plot_growth.plot(lines, [tmp_path / "growth.svg", tmp_path / "growth.png"])
    assert "open leases" in (tmp_path / "growth.svg").read_text()


def test_the_quantiles_are_those_of_all_values() -> None:
    found = tails.quantiles(range(1, 1001))
    assert [found[percent] for percent in (50.0, 99.0, 99.9, 100.0)] == [500, 990, 999, 1000]


def test_the_page_of_figures_is_filled_from_results(tmp_path: Path) -> None:
    row = Row(case="a", ours=2, peer="b", peer_value=1, floor="call", floor_value=1, floor_goal=3)
    harness.save("foundation", [row], harness.machine(), tmp_path)
    page = "x\n<!-- foundation -->\nold\n<!-- end -->\n<!-- other -->\nkept\n<!-- end -->\n"
    found = performance_page.filled(page, tmp_path)
    assert "| a | 2 ns | b 1 | 2 x | call 1 | 2 x | met |" in found
    assert "old" not in found
    assert "kept" in found


def test_the_quickest_of_those_that_survive_as_much_is_bold() -> None:
    rows = [
        {"name": "a", "survives": peers.MEMORY, "crossing_us": 1.0},
        {"name": "b", "survives": peers.KILL, "crossing_us": 3.0},
        {"name": "c", "survives": "power loss, but the last 1 s", "crossing_us": 2.0},
    ]
    drawn = performance_page.crossings({"machine": harness.machine(), "rounds": 2, "rows": rows})
    cells = {line.split(" | ")[0][2:]: line.split(" | ")[4] for line in drawn.splitlines()[4:]}
    assert cells == {"a": "**1**", "b": "3", "c": "**2**"}


def test_every_contestant_is_asked_what_it_can_do() -> None:
    for one in crossings.contestants():
        names = [name for some, _, _ in one.questions(1.0) for name in some]
        assert set(names) <= crossings.FIGURES.keys()
        assert ("put_list_us" in names) == (one.kind.has_lists or one.kind is Party)


def test_the_tables_of_imports_and_tasks_are_filled_from_results() -> None:
    machine = harness.machine()
    imported = Row(case="import penstock", ours=-0.1, unit="ms", peer="bare Python", peer_value=9)
    other = Row(case="queuelib, open", ours=21.04, unit="ms")
    drawn = bench_pages.imports({"machine": machine, "rows": [other.as_dict(), imported.as_dict()]})
    assert drawn.endswith("| **penstock**: import penstock | 0.0 |\n| queuelib, open | 21.0 |")
    rows = [
        Row(case=f"to start, beside {peer}", ours=2.4, unit="ms", peer=peer, peer_value=value)
        for peer, value in (("redis", 3.5), ("filesystem", 223.0))
    ]
    drawn = bench_pages.tasks({"machine": machine, "rows": [row.as_dict() for row in rows]})
    assert drawn.endswith("| to start | 2.4 ms | 3.5 ms | 223 ms |")
    page = bench_pages.filled("<!-- tasks -->\nold\n<!-- end -->\n", "tasks", drawn)
    assert "old" not in page


def test_the_picture_of_the_demo_is_the_first_plot_of_its_page() -> None:
    page = '<p>x</p><svg width="1">\n <metadata>m</metadata>\n <path d="M 1.2345 2"/>\n</svg><svg/>'
    assert demo_picture.first_plot(page) == '<svg width="1"> <path d="M 1.2 2"/> </svg>\n'
    assert demo_picture.PICTURE.stat().st_size < 60_000


def test_figures_of_spark_get_into_their_page() -> None:
    row: dict[str, Any] = {"cpu_s": 2.0, "python_s": 0.5, "wall_s": 3.0, "rows": 1000}
    rows = [
        row | {"format": name, "work": work, "body": body}
        for name in ("penstock", "parquet") for work in spark_figures.WORKS for body in (100, 1000)
    ]  # fmt: skip
    rows += [
        row | {"format": name, "work": f"{work} by segments", "body": body, "segments": count}
        for name in ("penstock", "parquet") for work in ("scan", "sink") for body in (100, 1000)
        for count in (10, 10_000)
    ]  # fmt: skip
    rows += [{"format": "penstock", "work": "plan of a micro-batch", "cpu_s": 0.001}]
    rows += [row | {"format": "penstock", "work": "scan by tasks", "tasks": n} for n in (9, 1_000)]
    machine = harness.machine() | {"pyspark": "4.0.5", "bytes": 300_000_000}
    found = {"machine": machine, "rows": rows}
    page = spark_figures.filled("before\n<!-- figures -->\nstale\n<!-- end -->\nbehind", found)
    assert page.startswith("before")
    assert page.endswith("behind")
    assert "stale" not in page
    assert "| penstock | 2.0 (3.0) |" in page
    assert "| Python's share of penstock's | 25% |" in page
    assert "| | 100 B in 10 | 100 B in 10,000 | 1000 B in 10 | 1000 B in 10,000 |" in page
    assert page.count("| sink, penstock | 2.0 (3.0) |") == 1
    assert "in many tasks: 2.0 (3.0) in 9, 2.0 (3.0) in 1,000." in page
    assert "Kafka" not in page
    assert spark_figures.filled(page, found) == page
