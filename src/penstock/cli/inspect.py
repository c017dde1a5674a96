"""`inspect`: any file of a queue as named fields with their bytes.

A format says which struct stands at which byte of its files in a module `byte_map`: its function
`byte_map(path, data)` yields `(byte, Struct)` in rising order and stops where it can't go on. Our
own shared files (control block, group tables, journals) are known here. Where a format has no
`byte_map`, or behind damage, `--as NAME` lays any known struct over any byte.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import show
from penstock.cli.opening import Format, Json, OldCount, command
from penstock.disk.structs import Buffer, Row, Struct
from penstock.errors import FormatError, OptionError, PenstockError
from penstock.formats import registry
from penstock.options import check_count
from penstock.sidecar import control, groups

ByteMap = Callable[[Path, Buffer], Iterator[tuple[int, Struct]]]
DUMP_BYTES = 64


def register(app: typer.Typer) -> None:
    """Adds `penstock inspect`."""
    command(
        app,
        "inspect",
        "penstock inspect orders/log/00000000000000000000.seg",
        "penstock inspect orders/log/00000000000000000000.seg --at 4096",
        "penstock inspect orders/.penstock/control",
        "penstock inspect topic/data --as 'zbus frame' --at 204",
    )(inspect)


def inspect(
    file: Annotated[Path, typer.Argument(help="Any file of a queue.")],
    at: Annotated[
        int | None, typer.Option(min=0, help="Show the structure around this byte.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Show at most this many structures.")
    ] = 4,
    count: OldCount = None,
    name: Annotated[
        str | None, typer.Option("--as", help="Read the bytes as this structure.")
    ] = None,
    format: Format = None,
    json: Json = None,
) -> None:
    """Show a file of a queue field by field, with the bytes; changes nothing."""
    if file.is_dir():
        raise OptionError("file", file, "a file: name one of those in this folder or below")
    if file.exists() and not file.is_file():
        raise OptionError("file", file, "an ordinary file: a pipe or a device may never end")
    data = view(file)
    if name is not None:
        found = [(at or 0, struct_named(name))]
    else:
        found = list(_find(file, data, format, at, check_count(count or limit)))
    for place, struct in found:
        _print(place, struct, struct.describe(data, place), json)
    if at is not None and not show.wants_json(json):
        show.line(f"bytes from {at} on: {bytes(data[at : at + DUMP_BYTES]).hex(' ')}")


def view(path: Path) -> memoryview:
    """A file's bytes, mapped for reading; an empty file can't be mapped."""
    with path.open("rb") as stream:
        if path.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))


def _find(
    file: Path, data: Buffer, format: str | None, at: int | None, count: int
) -> Iterator[tuple[int, Struct]]:
    """The first structures, or from the one that holds byte `at` on."""
    structs = byte_map_of(file, data, format)(file, data)
    if at is None:
        yield from islice(structs, count)
        return
    last: tuple[int, Struct] | None = None
    for found in structs:
        if found[0] > at:
            break
        last = found
    if last is not None:
        yield last


def byte_map_of(file: Path, data: Buffer, format: str | None) -> ByteMap:
    """What knows the file: this module, by its first bytes or its name, or the queue's format."""
    magic = bytes(data[:8])
    if magic == b"PENSTCTL":
        return lambda *_: iter([(0, control.CONTROL)])
    if magic == groups.MAGIC:
        return lambda *_: iter([(0, groups.TABLE)])
    if file.name.startswith("journal-"):
        return groups.records
    if format is not None:
        registry.format_class(format)  # An unknown one is an error that lists them.
    for name in [format] if format else _formats_of(file):
        with suppress(ModuleNotFoundError):
            found: ByteMap = import_module(f"penstock.formats.{name}.byte_map").byte_map
            return found
    begins = f"begins with {magic.hex(' ')}" if magic else "is empty"
    raise FormatError(file, begins, "say what it is with --format or --as")


def _formats_of(file: Path) -> list[str]:
    for folder in (file, *file.absolute().parents[:3]):
        try:
            return [registry.sniff(folder)[0].name]
        except (PenstockError, OSError):
            continue
    return []


def every_struct() -> dict[str, Struct]:
    """All structs by name."""
    found = {struct.name: struct for struct in (*control.STRUCTS, *groups.STRUCTS)}
    for name in registry.MODULES:
        module = import_module(f"penstock.formats.{name}.structs")
        found |= {struct.name: struct for struct in module.STRUCTS}
    return found


def struct_named(name: str) -> Struct:
    """The struct, or an error that lists them."""
    known = every_struct()
    if name not in known:
        raise OptionError("--as", name, "one of " + ", ".join(sorted(known)))
    return known[name]


def _print(at: int, struct: Struct, rows: list[Row], json: bool | None) -> None:
    if show.wants_json(json):
        fields = {row.name: _plain(row.value) for row in rows}
        # Before it was called `struct`, the name was called `layout`: both stay.
        facts = {"at": at, "struct": struct.name, "layout": struct.name, "bytes": struct.size}
        show.emit(facts | {"fields": fields})
        return
    cells = (
        (row.offset, row.size, row.name, _plain(row.value), row.raw, row.meaning) for row in rows
    )
    show.table((">byte", ">size", "field", "value", "bytes", "meaning"), cells, struct.name)


def _plain(value: int | float | bytes | str) -> int | float | str:
    return show.preview(value.rstrip(b"\0"), 40) if isinstance(value, bytes) else value
