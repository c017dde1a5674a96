"""Reading only what a query needs, though Spark tells a Python source neither columns nor rows.

Spark optimizes a query before it reads anything. `sql` lets it do so once with every column, looks
at the result, and asks again with tables that have only the columns that are used, and that leave
out segments and tags which the query itself rejects. Nothing is read for the first look.

What a table leaves out is decided for one query alone, so a DataFrame that `sql` returned may be
filtered further without harm. This works with every version of PySpark that has Python sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock.spark.bounds import Bounds
from penstock.spark.session import need_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Where = str | PathLike[str] | Sequence[str]

DECIDES = {"Project", "Aggregate"}
"""Nodes of a plan that need of what is below them only what they name."""
HANDS_ON = {
    "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Join", "Sample", "Window",
    "Generate", "Repartition", "RepartitionByExpression", "RebalancePartitions", "SubqueryAlias",
}  # fmt: skip
"""Nodes that need what they name and whatever is above them needs. Any other needs everything."""


def table(spark: SparkSession, path: Where, *columns: str, **options: str) -> DataFrame:
    """The queues at `path` as a table of these columns; without any, of all that are usual.

    Columns that are not named are never read: Spark can't tell the source which ones a query
    uses. `options` are those of the source.
    """
    need_sources()
    wanted = {"columns": ",".join(columns)} if columns else {}
    reader = spark.read.format("penstock").options(path=as_option(path), **wanted, **options)
    return reader.load()


def sql(spark: SparkSession, query: str, **tables: Where | DataFrame) -> DataFrame:
    """A query on queues that reads only the columns and segments that it needs.

        sql(spark, "SELECT tag, count(*) FROM {orders} GROUP BY tag", orders="/data/orders")

    Each name in braces is a queue (a path, a list of them, a glob) or a DataFrame. With Spark
    Connect, whose plans can't be looked at, every column is read. Statements that do something
    (`INSERT`, `CREATE`) are refused: they would run twice.
    """
    _refuse_commands(spark, query, tables)
    whole: dict[str, Any] = {name: _whole(spark, where) for name, where in tables.items()}
    first = spark.sql(query, **whole)
    plan = _optimized(first)
    if plan is None:
        return first
    needs = _needs(plan)
    narrow: dict[str, Any] = {
        name: frame if _is_frame(tables[name]) else _narrowed(frame, tables[name], needs)
        for name, frame in whole.items()
    }
    return spark.sql(query, **narrow)


class _Name(str):
    """Stands for a table where a query is only parsed: `{q}`, `{q.tag}`, `{q["tag"]}`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> str:
        return name

    def __getitem__(self, name: Any) -> str:
        return str(name)


def _refuse_commands(spark: SparkSession, query: str, tables: Iterable[str]) -> None:
    """Spark runs a command as soon as it hears of it, and hears of every query here twice."""
    java = getattr(spark, "_jsparkSession", None)
    if java is None:
        return
    text = query.format(**{name: _Name(name) for name in tables})
    waiting = [java.sessionState().sqlParser().parsePlan(text)]
    while waiting:
        plan = waiting.pop()
        kinds = {one.getSimpleName() for one in _classes(plan.getClass())}
        if kinds & {"Command", "ParsedStatement"}:
            raise UnsupportedError(
                f"sql only reads, and this query is {plan.nodeName()}: select the rows with sql, "
                "and write what it returns"
            )
        waiting += _each(plan.children())


def _classes(java: Any) -> Iterator[Any]:
    """A class of Java, its parents, and all their interfaces."""
    yield java
    for parent in (java.getSuperclass(), *java.getInterfaces()):
        if parent is not None:
            yield from _classes(parent)


def as_option(path: Where) -> str:
    """One or several paths as the source takes them."""
    several = [path] if isinstance(path, str | PathLike) else path
    return json.dumps([fspath(one) for one in several])


def _is_frame(where: object) -> bool:
    return hasattr(where, "sparkSession")


def _whole(spark: SparkSession, where: Any) -> DataFrame:
    return where if _is_frame(where) else table(spark, where)


def _narrowed(whole: DataFrame, where: Any, needs: dict[str, Need]) -> DataFrame:
    from pyspark.sql import functions as F

    need = needs.get(as_option(where))
    if need is None:  # The optimizer found that it is not read at all.
        return whole
    columns = need.columns
    if columns <= {"queue"}:
        counts = table(whole.sparkSession, where, table="counts")
        frame = counts.select("queue", F.explode(F.expr("array_repeat(true, rows)")))
    else:
        frame = table(whole.sparkSession, where, *columns, bounds=need.bounds.as_text())
    # The query may name columns that the optimizer finds to be unused.
    return frame.select(*(
        field.name if field.name in columns else F.lit(None).cast(field.dataType).alias(field.name)
        for field in whole.schema.fields
    ))  # fmt: skip


class Need:
    """What one query needs of one table, which may stand in it several times."""

    columns: set[str]
    bounds: Bounds

    def __init__(self, columns: set[str], bounds: Bounds) -> None:
        self.columns, self.bounds = columns, bounds

    def together(self, other: Need) -> Need:
        """What has to be read so that both can be answered."""
        return Need(self.columns | other.columns, self.bounds.around(other.bounds))


# ── Spark's plan, through py4j ─────────────────────────────────────────────────────────────────


def _optimized(frame: DataFrame) -> Any:
    java = getattr(frame, "_jdf", None)
    return None if java is None else java.queryExecution().optimizedPlan()


def _needs(plan: Any) -> dict[str, Need]:
    """By the path that a table was made with."""
    found: dict[str, Need] = {}
    for path, need in _walk(plan, _ids(plan.output()), []):
        found[path] = need.together(found[path]) if path in found else need
    return found


def _walk(plan: Any, wanted: set[int], conditions: list[Any]) -> Iterator[tuple[str, Need]]:
    """Every queue below `plan`, of whose columns those in `wanted` are needed above it."""
    kind = plan.getClass().getSimpleName()
    for subquery in _each(plan.subqueries()):
        yield from _walk(subquery, _ids(subquery.output()), [])
    if kind == "DataSourceV2ScanRelation":
        path = plan.relation().options().get("path")
        columns = {one.name() for one in _each(plan.output()) if one.exprId().id() in wanted}
        yield path, Need(columns, _bounds(conditions))
        return
    named = _ids(plan.references().toSeq())
    passed = [*conditions, plan.condition()] if kind == "Filter" else []
    for child in _each(plan.children()):
        if kind in DECIDES:
            yield from _walk(child, named, [])
        elif kind in HANDS_ON:
            yield from _walk(child, named | wanted, passed)
        else:
            yield from _walk(child, _ids(child.output()), [])


def _each(found: Any) -> Iterator[Any]:
    return (found.apply(index) for index in range(found.size()))


def _ids(attributes: Any) -> set[int]:
    return {one.exprId().id() for one in _each(attributes)}


# ── conditions right above a table ─────────────────────────────────────────────────────────────


def _bounds(conditions: list[Any]) -> Bounds:
    """As far as the conditions, all of which hold for every row that is used, say it plainly."""
    bounds = Bounds()
    for condition in conditions:
        for kind, column, values in _comparisons(condition):
            bounds = bounds.narrowed(kind, column, values)
    return bounds


FLIPPED = {
    "EqualTo": "EqualTo", "GreaterThan": "LessThan", "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan", "LessThanOrEqual": "GreaterThanOrEqual",
}  # fmt: skip


def _comparisons(condition: Any) -> Iterator[tuple[str, str, list[Any]]]:
    """`column kind values` for each part that compares a column with constants."""
    kind = condition.getClass().getSimpleName()
    if kind == "And":
        yield from _comparisons(condition.left())
        yield from _comparisons(condition.right())
    elif kind in FLIPPED:
        left, right = condition.left(), condition.right()
        if _is(left, "Literal"):
            left, right, kind = right, left, FLIPPED[kind]
        if _is(left, "AttributeReference") and _is(right, "Literal"):
            yield kind, left.name(), [right.value()]
    elif kind == "In" and _is(condition.value(), "AttributeReference"):
        listed = list(_each(condition.list()))
        if all(_is(one, "Literal") for one in listed):
            yield kind, condition.value().name(), [one.value() for one in listed]
    elif kind == "StartsWith":
        left, right = condition.left(), condition.right()
        if _is(left, "AttributeReference") and _is(right, "Literal"):
            yield kind, left.name(), [right.value()]


def _is(expression: Any, kind: str) -> bool:
    return bool(expression.getClass().getSimpleName() == kind)
