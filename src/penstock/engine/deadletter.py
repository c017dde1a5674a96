"""Dead letters: messages that were handed out too often. `redrive` has the way back."""

from __future__ import annotations

from collections.abc import Callable

from penstock import _core
from penstock.disk import files
from penstock.engine import paths
from penstock.errors import GroupError, KeyNeededError, OptionError, plural
from penstock.hints import TYPE_CHECKING, Any, TypeVar
from penstock.places import Path

if TYPE_CHECKING:
    from penstock.formats.store import Store
    from penstock.options import GroupOptions

Q = TypeVar("Q")

SOURCE = "penstock.source"
GROUP = "penstock.group"
OFFSET = "penstock.offset"
REASON = "penstock.reason"
RECEIVES = "penstock.receives"
OURS = (SOURCE, GROUP, OFFSET, REASON, RECEIVES)


TOLD: set[Path] = set()
"""Queues for dead letters that this process itself named, wherever they are."""


def path_of(queue: Path, folder: Path, options: GroupOptions) -> Path:
    """Where the dead letters of the group in `folder` go, a group of the queue at `queue`."""
    named = options.dead_letter or f"{queue.name}.dead"
    path = queue.parent / named
    if not is_beside(named) and path not in TOLD and not _is_ours(path, queue):
        raise GroupError(
            f"{folder / 'group.json'}: names {named!r} for dead letters. That is not beside the "
            f"queue, and the queue's owner has no queue there. If you mean it, name it yourself: "
            f"group({folder.name!r}, dead_letter={named!r})"
        )
    return path


def is_beside(named: str) -> bool:
    """Whether `named` is the bare name of a queue in the same folder, and no path."""
    return Path(named).name == named and named != ".."


def _is_ours(path: Path, queue: Path) -> bool:
    """Whether the queue at `path` belongs to the owner of `queue`. A path that stands in a file
    must not make us write just anywhere: we make nothing there, and use no other user's queue."""
    try:
        return path.stat().st_uid == queue.stat().st_uid
    except OSError:
        return False


def open_at(path: Path, source: Store, kind: Callable[..., Q]) -> Q:
    """Opens the queue for dead letters of `source`, or makes it: for the same users, and under the
    same key, if it has one."""
    options = source.options
    if not path.exists():
        files.make_folder(path, like=source.path)
    if options.key is None:
        return kind(path, durability=options.durability, trust_others=options.trust_others)
    # Where another format's keys differ from ours, the dead letters are in that format, too.
    own = {"format": source.format.name, "layout": source.layout}
    like: dict[str, Any] = {} if source.format.name == "penstock" else own
    try:
        return kind(
            path, durability=options.durability, trust_others=options.trust_others,
            key=options.key, **like,
        )  # fmt: skip
    except KeyNeededError as error:
        raise KeyNeededError(
            f"{error}; the dead letters of an encrypted queue go to one with the same key: move "
            f"this one away, or name another with dead_letter="
        ) from error


def refuse_own(queue: Path, options: GroupOptions) -> None:
    """An error when the dead letters would go to the very queue they come from: they would come
    back, be handed out too often again, and never end."""
    named = options.dead_letter
    if named is not None and paths.is_same(queue.parent / named, queue):
        raise OptionError("dead_letter", named, "another queue than the group's own")


def letter(
    message: _core.Message, queue: Path, group: str, reason: str | None = None
) -> _core.Message:
    """The message as it is put to the dead letters: with its source, and the reason."""
    headers = message.headers | {
        SOURCE: paths.as_text(queue.resolve()),
        GROUP: group,
        OFFSET: str(message.offset),
        REASON: _shown(reason) or f"handed out {plural(message.receives, 'time')} without an ack",
        RECEIVES: str(message.receives),
    }
    return copy_of(message, headers)


def _shown(reason: str | None) -> str:
    """What a program says of its error, which may be any text: a header holds none that is not
    UTF-8, and a message that no header fits would come again for ever."""
    return (reason or "").encode("utf-8", "backslashreplace").decode()


def copy_of(
    message: _core.Message, headers: dict[str, str], *, id: str | None = None
) -> _core.Message:
    """A message of the same bytes, which no codec is asked about; `id` gives it another one."""
    return _core.Message(
        message.body, tag=message.tag, id=id or message.id, key=message.key, headers=headers or None
    )
