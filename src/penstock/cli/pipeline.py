"""`pipeline`: ready Spark pipelines, with a record of each run; `ship`: queues to clusters."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import complete, show
from penstock.cli.opening import Json, command, pairs
from penstock.errors import MissingExtraError


def _pairs(about: str) -> Any:
    return typer.Option(metavar="NAME=VALUE", help=f"{about}; give the option once for each.")


TargetOption = Annotated[list[str] | None, _pairs("An option of that format")]
PipelineName = Annotated[
    str,
    typer.Argument(
        autocompletion=complete.pipelines, help="The pipeline; `penstock pipeline list` lists them."
    ),
]
SourceOption = Annotated[list[str] | None, _pairs("An option of the source")]
SparkSetting = Annotated[list[str] | None, _pairs("A setting of Spark, such as spark.master")]


def register(app: typer.Typer) -> None:
    """Adds `penstock pipeline` and `penstock ship`."""
    family = typer.Typer(help="Run Spark pipelines over queues.", no_args_is_help=True)
    command(family, "list", "penstock pipeline list")(names)
    command(family, "run", "penstock pipeline run bronze orders --to lake/orders",
            "penstock pipeline run audit orders --to report")(run)  # fmt: skip
    command(family, "status", "penstock pipeline status",
            "penstock pipeline status --page runs.html")(status)  # fmt: skip
    command(family, "template", "penstock pipeline template project --source orders")(template)
    command(family, "cursor",
            "penstock pipeline cursor orders --checkpoint lake/_checkpoints/bronze --group bronze"
            )(cursor)  # fmt: skip
    app.add_typer(family, name="pipeline")
    examples = (
        "penstock ship orders s3://spool/orders",
        "penstock ship orders file:///mnt/copy --dry-run",
    )
    command(app, "ship", *examples)(ship)


def names() -> None:
    """List the pipelines and what each does."""
    need_spark()
    from penstock.spark import pipelines

    show.table(("pipeline", "what it does"), pipelines.NAMES.items())


def run(
    name: PipelineName,
    source: Annotated[
        list[str], typer.Argument(metavar="QUEUE", help="Queues: folders, globs or URLs.")
    ],
    to: Annotated[str, typer.Option(help="Write the result here.")] = "",
    format: Annotated[str, typer.Option(help="Write the result in this format.")] = "parquet",
    option: TargetOption = None,
    source_option: SourceOption = None,
    group: Annotated[str, typer.Option(help="The group whose cursor follows the stream.")] = "",
    checkpoint: Annotated[
        str, typer.Option(help="The folder in which the stream keeps its place.")
    ] = "",
    schema: Annotated[str, typer.Option(help="The columns of the bodies, as DDL; or infer.")] = "",
    decode: Annotated[str, typer.Option(help="Decode bodies as json or cbor.")] = "json",
    watermark: Annotated[str, typer.Option(help="How late messages may come.")] = "10 minutes",
    dead_letters: Annotated[
        str, typer.Option(help="The queue for rows that can't be decoded.")
    ] = "",
    window: Annotated[str, typer.Option(help="The length of one step of a rollup.")] = "1 minute",
    follow: Annotated[bool, typer.Option(help="Go on until Ctrl-C or SIGTERM.")] = False,
    trim: Annotated[bool, typer.Option(help="For compact: delete what was moved.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be done.")] = False,
    conf: SparkSetting = None,
    runs: Annotated[str, typer.Option(help="The folder for the records of runs.")] = "runs",
    json: Json = None,
) -> int:
    """Run a pipeline and leave a record of the run. Exit code 1 means that it found faults.

    With --follow it goes on until Ctrl-C or SIGTERM, and then ends with exit code 0.
    """
    need_spark()
    from penstock.spark import pipelines
    from penstock.spark.pipelines import failures
    from penstock.spark.session import session

    reading = pairs("source-option", source_option) | ({"group": group} if group else {})
    request = pipelines.Request(
        source, to=to, format=format, options=pairs("option", option), source_options=reading,
        checkpoint=checkpoint, schema=schema, decode=decode, watermark=watermark,
        dead_letters=dead_letters, window=window, follow=follow, trim=trim, dry_run=dry_run,
    )  # fmt: skip
    pipelines.check(name, request)
    # Spark's own bar tells how far a query is; in a log it would be noise.
    bar: dict[str, str | int | bool] = {"spark.ui.showConsoleProgress": sys.stderr.isatty()}
    spark = session(f"penstock {name}", **(bar | pairs("conf", conf)))
    failures.be_brief(spark)
    record = pipelines.Run(name, request, runs)
    record.on_progress = lambda rows: show.note(f"{name}: {rows:,} rows")
    try:
        with record:
            record.facts.update(pipelines.pipeline(name)(spark, request, record))
    except failures.FAILURES as error:
        show.error(failures.sentence(error))
        return 1 if failures.is_damage(error) else 2
    except KeyboardInterrupt:
        return 130
    finally:
        if record.outcome != "interrupted":
            spark.stop()
        show.note(f"{name}: {record.outcome}, see {record.path}")
    _tell(record.as_dict(), json)
    return 1 if record.facts.get("ok") is False else 0


def status(
    runs: Annotated[str, typer.Option(help="The folder for the records of runs.")] = "runs",
    limit: Annotated[int, typer.Option(help="Show at most this many runs.")] = 20,
    page: Annotated[Path | None, typer.Option(help="Write all runs into this HTML file.")] = None,
    json: Json = None,
) -> None:
    """Show the newest runs: rows, outcome, and how far each was behind at its end."""
    need_spark()
    from penstock import _core
    from penstock.spark.pipelines import status as records

    found = records.runs(runs)
    if page is not None:
        _core.replace_file(page.absolute(), records.html(found).encode())
        show.line(str(page))
        return
    if show.wants_json(json):
        for one in found[:limit]:
            show.emit(one)
        return
    rows = [records.row(one) for one in found[:limit]]
    columns = ("started", "pipeline", "outcome", ">rows", ">seconds", ">lag", ">waited_s", "error")
    show.table(columns, [[one[name.strip(">")] for name in columns] for one in rows])


def template(
    folder: Annotated[Path, typer.Argument(help="The folder of the new project.")],
    source: Annotated[str, typer.Option(help="The queue that the project reads.")],
    name: Annotated[str, typer.Option(help="The pipeline's name.")] = "orders",
    schema: Annotated[str, typer.Option(help="The columns of the bodies, as DDL.")] = "",
) -> None:
    """Write a project for `spark-pipelines` that reads a queue."""
    need_spark()
    from penstock.spark.pipelines import templates

    for path in templates.write(folder, source, name, schema or templates.COLUMNS):
        show.line(str(path))


def cursor(
    source: Annotated[str, typer.Argument(help="The queue.")],
    checkpoint: Annotated[Path, typer.Option(help="The checkpoint of the stream.")],
    group: Annotated[str, typer.Option(help="The group that follows the stream.")],
    option: SourceOption = None,
) -> None:
    """Move a group's cursor to the place that a stream's checkpoint has committed."""
    need_spark()
    from penstock.spark import cursors

    given = pairs("option", option)
    for queue, offset in cursors.sync(source, checkpoint, group, **given).items():
        show.line(f"{queue}: {offset}")


def ship(
    queue: Annotated[str, typer.Argument(help="The queue.")],
    url: Annotated[str, typer.Argument(help="The target: any URL that fsspec knows, or a folder.")],
    whole: Annotated[
        bool, typer.Option(help="Also copy the segment that is still being written.")
    ] = False,
    group: Annotated[
        str, typer.Option(help="Make retention wait, as this group, until a segment was shipped.")
    ] = "",
    option: SourceOption = None,
    dry_run: Annotated[
        bool, typer.Option(help="Say what would be copied, and copy nothing.")
    ] = False,
    json: Json = None,
) -> None:
    """Copy full segments and a manifest to where a cluster can read them.

    A second call copies only what is new.
    """
    need_spark()
    from penstock.spark.ship import ship as do_ship

    given = pairs("option", option)
    facts = do_ship(
        queue, url, whole=whole, dry_run=dry_run, group=group, on_progress=show.note, **given
    )
    if show.wants_json(json):
        show.emit(facts)
    else:
        show.facts(facts)


def need_spark() -> None:
    """Says which extra to install, before anything has begun."""
    if find_spec("pyspark") is None:
        raise MissingExtraError("pyspark", "spark", "this command")


def _tell(record: dict[str, Any], json: bool | None) -> None:
    if show.wants_json(json):
        show.emit(record)
        return
    keys = ("id", "outcome", "rows", "bytes", "seconds")
    shown = {key: record[key] for key in keys}
    lists = {k: v for k, v in record["result"].items() if isinstance(v, list)}
    show.facts(shown | {k: v for k, v in record["result"].items() if k not in lists})
    for name, rows in lists.items():
        if rows and isinstance(rows[0], dict):
            show.table(list(rows[0]), [list(row.values()) for row in rows[:20]], name)
