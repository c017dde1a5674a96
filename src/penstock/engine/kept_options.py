"""Options that a queue keeps: every opener, the command line too, has the same limits.

What was said when the queue was made stands in `.penstock/options.json`, unless the format's own
files have a place for it. `Queue.set_options` and `penstock set` change it. An option that is said
at an opening applies to that opening alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import FormatError, OptionError, either
from penstock.hints import TYPE_CHECKING, Any
from penstock.logs import logger
from penstock.options import OLD_QUEUE, Durability, QueueOptions, of_today
from penstock.places import Path
from penstock.sidecar import notes

if TYPE_CHECKING:
    from penstock.engine.group import OpenQueue
    from penstock.formats.store import Store

NAMES = (
    "durability", "segment_bytes", "max_bytes", "when_full", "max_message_bytes", "compression",
    "delay_s", "retention_bytes", "retention_age_s", "retain_unread", "retain_unread_max_s",
    "codec",
)  # fmt: skip
"""What can be kept. A key never is."""

ADVICE = "delete this file, and the queue has no limits until `penstock set` says them again"


def load(sidecar: Path) -> dict[str, Any]:
    """What the queue keeps; names that a newer penstock may have written are left out."""
    path, found = sidecar / notes.OPTIONS, notes.read(sidecar, notes.OPTIONS)
    if found is None:
        if path.exists():
            raise FormatError(path, "the queue's options can't be read", ADVICE)
        return {}
    found = of_today(found, OLD_QUEUE)
    kept = {name: value for name, value in found.items() if name in NAMES}
    try:
        _check(kept)
    except OptionError as error:
        raise FormatError(path, f"the queue's options can't be used: {error}", ADVICE) from error
    return kept


def _check(values: Mapping[str, Any]) -> QueueOptions:
    """Refuses what no opening could use: a queue that keeps it can't be opened any more."""
    codec = values.get("codec")
    if codec is not None:
        from penstock.engine.codecs import BY_NAME

        # By its name alone: the library of a codec may be missing where it is only noted.
        if not isinstance(codec, str) or codec not in BY_NAME:
            raise OptionError("codec", codec, either(BY_NAME) + ": no other codec can be kept")
    return QueueOptions.of(**{name: value for name, value in values.items() if name != "codec"})


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options among `values` that can be kept, in the form in which the file has them."""
    found = {name: value for name, value in values.items() if name in NAMES and value is not None}
    if isinstance(found.get("durability"), Durability):
        found["durability"] = found["durability"].value
    if not isinstance(found.get("codec", ""), str) or found.get("codec") == "bytes":
        del found["codec"]  # Only this program has the object; and bytes need no codec.
    return found


def first(store: Store, said: Mapping[str, Any]) -> None:
    """Keeps the options with which the queue was just made."""
    mine = {
        name: value for name, value in plain(said).items() if name not in store.format.own_options
    }
    if mine:
        notes.write(store.sidecar, notes.OPTIONS, mine)


_told: set[tuple[Path, str, str]] = set()


def tell(path: Path, kept: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Warns of options of an opening that are others than the queue keeps: once each: a program
    that opens the queue so again and again means it."""
    for name, value in plain(said).items():
        if kept.get(name, value) != value and (path, name, repr(value)) not in _told:
            _told.add((path, name, repr(value)))
            logger("queue").warning(
                "%s: %s=%r applies to this opening alone; the queue keeps %r for openings that say "
                "nothing. set_options() or `penstock set` changes that",
                path, name, value, kept[name],
            )  # fmt: skip


def _in_force(store: Store, name: str) -> Any:
    """The value that counts. A format has a field of that name where its files may hold what no
    option can say: the segments of an original may be smaller than any that we make."""
    return getattr(store.format, name, getattr(store.options, name))


def tell_own(store: Store, said: Mapping[str, Any]) -> None:
    """Warns of options that count for nothing, as the format's own files say otherwise: once each.
    They are no reason to refuse the queue: another program may have changed its files."""
    for name in said.keys() & store.format.own_options.keys():
        value, counts = said[name], _in_force(store, name)
        if value != counts and (store.path, name, repr(value)) not in _told:
            _told.add((store.path, name, repr(value)))
            verb = "set" if store.format.own_options[name] else "resize"
            logger("queue").warning(
                "%s: %s=%r: the queue's own file has %r, which counts. `penstock %s` changes that",
                store.path, name, value, counts, verb,
            )  # fmt: skip


def change(queue: OpenQueue, values: Mapping[str, Any]) -> None:
    """Changes what the queue keeps; `None` takes an option back to its default."""
    store = queue.store
    store.ensure_in_place()
    for name, value in values.items():
        if name not in NAMES:
            raise OptionError.unknown(name, f"one of {', '.join(NAMES)}")
        if store.format.own_options.get(name) == "":
            raise OptionError(name, value, "another size of the file: `penstock resize`")
    _check(values).check_for(store.format.name, store.format.refused)
    own = {
        store.format.own_options[name]: values[name]
        for name in values
        if name in store.format.own_options
    }
    if own:
        change_meta(queue, {name: value or 0 for name, value in own.items()})
    mine = {name: value for name, value in values.items() if name not in store.format.own_options}
    if not mine:
        return

    def write() -> None:
        before = notes.read(store.sidecar, notes.OPTIONS) or {}
        after = {name: value for name, value in before.items() if name not in mine}
        notes.write(store.sidecar, notes.OPTIONS, after | plain(mine))

    store.need_shared().alone(write)


def change_meta(queue: OpenQueue, values: Mapping[str, Any]) -> None:
    """Changes the format's settings; a group that still has the old default gets the new one."""
    names = queue.groups()
    before = {name: queue.store.format.groups.defaults(name) for name in names}
    queue.store.format.set_meta(**values)
    for name in names:
        after = queue.store.format.groups.defaults(name)
        changed = {option: new for option, new in after.items() if new != before[name].get(option)}
        group = queue.look(name) if changed else None
        if group is None:
            continue
        taken = {
            option: new
            for option, new in changed.items()
            if getattr(group.options, option) == before[name].get(option)
        }
        if taken:
            queue.group(name, create=False).configure(**taken)
