"""Which formats there are, and which one a folder is."""

from __future__ import annotations

from penstock import _core
from penstock.disk import files
from penstock.errors import FormatError, NoQueueError, OptionError, StorageError, about, either
from penstock.formats.contract import Format
from penstock.formats.store import Store
from penstock.options import QueueOptions
from penstock.places import Path
from penstock.records import replace
from penstock.sidecar import opening

MODULES = {
    "zbus": "penstock.formats.zbus.format:ZbusFormat",
    "penstock": "penstock.formats.penstock.format:PenstockFormat",
    "beats": "penstock.formats.beats.format:BeatsFormat",
    "vqs": "penstock.formats.vqs.format:VqsFormat",
    "mfq": "penstock.formats.mfq.format:MfqFormat",
}
"""Format → its description; imported when a queue of that format is opened."""


def format_class(name: str) -> type[Format]:
    """The description of a format."""
    if name not in MODULES:
        raise OptionError("format", name, either(MODULES))
    module, _, attribute = MODULES[name].partition(":")
    # Not by `importlib`: every opening of a queue would load three modules for this one call.
    found: type[Format] = getattr(__import__(module, fromlist=[attribute]), attribute)
    return found


def sniff(path: Path, wanted: str | None = None) -> tuple[type[Format], str]:
    """Format and layout of the queue at `path`.

    Exactly one format must recognise it: what several or none claim is an error that lists what
    was seen.
    """
    if not path.exists():
        raise NoQueueError(path)
    if wanted is None and _can_only_be_ours(path):
        wanted = "penstock"
    claims = []
    for name in [wanted] if wanted else list(MODULES):
        found = format_class(name)
        layout = found.sniff(path)
        if layout is not None:
            claims.append((found, layout))
    if len(claims) == 1:
        return claims[0]
    if claims:
        names = ", ".join(f"{found.name} {layout}" for found, layout in claims)
        raise FormatError(path, f"could be {names}", "say which it is with format= and layout=")
    if is_empty(path):
        raise NoQueueError(path)
    kind = f"{wanted} queue" if wanted else "queue"
    raise FormatError(path, f"this is not a {kind}; it holds {seen(path)}", "check the path")


def _can_only_be_ours(path: Path) -> bool:
    """Whether there is nothing but a folder `log`, which none of the other formats begins with.

    They need not be asked then, and their code is not loaded: most queues are of our own format.
    """
    names = set(files.names_in(path)) - {".penstock"}
    return names == {"log"} and not (path / ".penstock" / "queue.json").exists()


def seen(path: Path) -> str:
    """What is there, in a few words."""
    if path.is_file():
        begin = files.read_start(path, 8).hex(" ") or "nothing"
        return f"a file of {path.stat().st_size} bytes that begins with {begin}"
    names = sorted(entry.name for entry in path.iterdir())
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def is_empty(path: Path) -> bool:
    """Whether a queue may be created here: nothing there, or only what a creation leaves that was
    cut short: a folder of ours, folders without anything in them."""
    if not path.exists():
        return True
    return path.is_dir() and all(
        entry.name == ".penstock" or (entry.is_dir() and not any(entry.iterdir()))
        for entry in path.iterdir()
    )


def _create(
    found: type[Format], path: Path, layout: str, options: QueueOptions, clock: _core.Clock
) -> None:
    """Makes an empty queue; refuses what the format can't be, before anything is made."""
    kept = found.encryption.layouts if found.encryption is not None else ()
    usual = [one for one in found.created if not kept or (one in kept) == (options.key is not None)]
    layout = layout or usual[0]
    if layout not in found.created:
        raise OptionError("layout", layout, f"{either(found.created)} (format {found.name})")
    _check_encryption(found, layout, options)
    is_file = layout in found.is_file
    if is_file and path.is_dir():
        text = f"a {found.name} queue of layout {layout} is a file, this is a folder"
        raise StorageError(path, text)
    sidecar = opening.sidecar_of(path) if is_file else path / ".penstock"
    opening.make(path, sidecar, lambda _: found.make(path, sidecar, layout, options, clock))


def _checked(found: type[Format], options: QueueOptions) -> QueueOptions:
    """Options that the format can honour, with the key as bytes. Also of a queue that exists: a
    format without encryption would keep in plain text what was meant to be secret."""
    options.check_for(found.name, found.refused)
    if options.key is None or found.encryption is None:
        return options
    return replace(options, key=found.encryption.plain(options.key))


def _check_encryption(found: type[Format], layout: str, options: QueueOptions) -> None:
    known, key = found.encryption, options.key
    if known is not None and known.layouts and (key is None) == (layout in known.layouts):
        expected = f"{known.key_bytes} bytes" if key is None else "none"
        raise OptionError("key", "…", f"{expected} for layout {layout}")
    if known is not None and key is not None and len(key) != known.key_bytes:
        raise OptionError("key", "…", f"{known.key_bytes} bytes for format {found.name}")
    if options.tamper_evident and key is None:
        raise OptionError("tamper_evident", True, "an encrypted queue of format beats")


def open_store(
    path: Path,
    *,
    format: str | None,
    layout: str | None,
    options: QueueOptions,
    clock: _core.Clock,
    create: bool,
    live: bool,
) -> Store:
    """Opens the queue at `path`; creates it when nothing is there and `create` says so."""
    with about(path):
        if create and is_empty(path):
            format = format or "penstock"
            made = format_class(format)
            _create(made, path, layout or "", _checked(made, options), clock)
        found, sniffed = sniff(path, format)
        options = _checked(found, options)
        if layout and layout not in found.layouts:
            raise OptionError("layout", layout, f"{either(found.layouts)} (format {found.name})")
        return Store(found, path, layout or sniffed, options, clock, live=live)
