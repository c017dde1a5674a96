"""Everything that penstock raises.

PenstockError
├── OptionError(ValueError)            an option has a value it can't have
├── FormatError(ValueError)            not a queue, not this format, not this version
├── NoQueueError(FileNotFoundError)    nothing is there, and creating was not asked for
├── UnsupportedError(ValueError)       the format, or a limit, has no place for what was asked
├── CorruptError(OSError)              bytes that no writer of the format could have written
├── StorageError(OSError)              the disk, the file system or its rights are in the way
│   ├── MissingFileError(FileNotFoundError)     a file that should be there is not
│   ├── ExistingFileError(FileExistsError)      a file is there that should not be
│   └── NotAFolderError(NotADirectoryError)     a file is where a folder should be
├── PoisonedError(OSError)             a sync failed: nothing more is accepted
├── KeyNeededError(PermissionError)    encrypted, and the key is missing or another one
├── OffsetError(LookupError)           no message is at this offset, number or time
├── ReceiptError(ValueError)           the lease that a receipt proves has ended
├── GroupError(ValueError)             no such group, or one that is taken
├── ClosedError(ValueError)            the queue was closed
├── CodecError(ValueError)             an object without bytes, or bytes without an object
├── MissingExtraError(ImportError)     a library that is not installed was needed
├── Empty(queue.Empty)                 no message came in time
├── ShutDown(queue.ShutDown)           a StandardQueue was shut down
└── Full(queue.Full)                   no room came in time
"""

from __future__ import annotations

import errno
import os
import queue
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps

from penstock.hints import TYPE_CHECKING, Any
from penstock.places import Path

SHOWN_CHARS = 200
NO_ROOM = "nothing was lost; free space there, trim the queue, or give it max_bytes or retention"
STORAGE_ADVICE = {
    errno.ENOSPC: NO_ROOM,
    errno.EDQUOT: NO_ROOM,
    errno.EFBIG: NO_ROOM,
    errno.EACCES: "check its owner and its rights; with read_only=True you need no right to write",
    errno.EPERM: "check its owner and its rights; with read_only=True you need no right to write",
    errno.EROFS: "the file system is mounted read-only; open the queue with read_only=True",
    errno.EIO: "the disk fails: save the queue to another one with `penstock convert`",
    errno.ENODATA: "it was cut short while the queue was open; run `penstock verify`",
    errno.ESTALE: "it was deleted while the queue was open: close the queue everywhere",
    errno.EMFILE: "too many files are open in this process: raise `ulimit -n`",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "no memory is left to map it: close queues or raise the process's limit",
    errno.ELOOP: "a link is where a file of the queue should be: put the file itself there",
    errno.EEXIST: "a file, or a link that leads nowhere, has its name: move that away",
    errno.ENOTDIR: "a file is where a folder should be: check the path, or move the file away",
    errno.ENAMETOOLONG: "a name has up to 255 bytes, a path up to 4,095: choose a shorter one",
    errno.ENOENT: "a file is missing: `penstock verify` says what that means for the queue",
}


def either(words: Iterable[str]) -> str:
    """`a, b or c`, for errors that list what there is."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def plural(count: int, thing: str) -> str:
    """`1 segment`, `2,000 segments`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


class PenstockError(Exception):
    """The root: catch it to catch everything of ours."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, as pools of processes do: with its text and its facts, not made anew."""
        facts = {name: getattr(self, name, None) for name in ("errno", "name")} | vars(self)
        return _restored, (type(self), self.args, facts)


def _restored(kind: type[PenstockError], args: tuple[object, ...], facts: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.args = args
    for name, fact in facts.items():
        if fact is not None:
            setattr(error, name, fact)
    return error


def _begin_of(shown: str) -> str:
    """As much of a value as a line of a log can bear: a whole file may have been passed."""
    return shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}…"


class OptionError(PenstockError, ValueError):
    """An option has a value that it can't have."""

    name: str
    value: object
    expected: str

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name}={_begin_of(repr(value))}: expected {expected}")
        self.name, self.value, self.expected = name, value, expected

    @staticmethod
    def unknown(name: str, expected: str) -> OptionError:
        """The error for an option that does not exist."""
        found = OptionError("option", name, expected)
        found.args = (f"there is no option {name!r}: expected {expected}",)
        return found


class FormatError(PenstockError, ValueError):
    """The folder is not a queue, not of this format, or of a version we do not know."""

    path: Path
    found: str
    advice: str
    at: int | None

    def __init__(self, path: Path | str, found: str, advice: str, *, at: int | None = None) -> None:
        place = path if at is None else f"{path}:{at}"
        super().__init__(f"{place}: {found}; {advice}")
        self.path, self.found, self.advice, self.at = Path(path), found, advice, at


class NoQueueError(PenstockError, FileNotFoundError):
    """There is no queue at the path, and creating one was not asked for."""

    path: Path

    def __init__(self, path: Path | str) -> None:
        super().__init__(f"{path}: no queue is here; create one with Queue(path) or check the path")
        self.path = Path(path)


class UnsupportedError(PenstockError, ValueError):
    """The format, or a limit, has no place for what was asked. Nothing was written."""


class CorruptError(PenstockError, OSError):
    """Bytes that no writer of this format could have written.

    Raised with the file and the byte, so that `penstock inspect FILE --at BYTE` shows them.
    """

    path: Path
    at: int
    found: str
    expected: str

    def __init__(self, path: Path | str, at: int, found: str, expected: str) -> None:
        super().__init__(
            f"{path}:{at}: found {found}, expected {expected}; "
            f"`penstock verify` lists all damage, `penstock repair` sets it aside"
        )
        self.path, self.at, self.found, self.expected = Path(path), at, found, expected


class StorageError(PenstockError, OSError):
    """The disk, the file system or its rights are in the way."""

    path: Path

    def __init__(self, path: Path | str, text: str, number: int | None = None) -> None:
        """With the error number of the operating system it also says what to do about that."""
        if number is not None:
            advice = "`penstock doctor` says what the disk can promise"
            text = f"{text}; {STORAGE_ADVICE.get(number, advice)}"
        super().__init__(f"{path}: {text}")
        self.path = Path(path)
        self.errno = number

    @staticmethod
    def of(error: OSError, path: Path | str) -> StorageError:
        """An error of the operating system, about `path` unless it names another file itself.

        It stays what it was to those who look for a missing file.
        """
        kinds = (MissingFileError, ExistingFileError, NotAFolderError)
        kind = next((one for one in kinds if isinstance(error, one.__bases__[1])), StorageError)
        where = error.filename if isinstance(error.filename, str | bytes | os.PathLike) else path
        return kind(Path(os.fsdecode(where)), error.strerror or str(error), error.errno)


class MissingFileError(StorageError, FileNotFoundError):
    """A file that should be there is not."""


class ExistingFileError(StorageError, FileExistsError):
    """A file is there that should not be."""


class NotAFolderError(StorageError, NotADirectoryError):
    """A file is where a folder should be."""


class PoisonedError(PenstockError, OSError):
    """A sync failed, so what is on the disk is unknown: nothing more is accepted.

    Close the queue everywhere and open it again: what was not known to be synced is then
    copied to a new segment and synced there.
    """

    path: Path

    def __init__(self, sidecar: Path, why: str) -> None:
        """`sidecar` is the folder `.penstock` of the queue, or `<name>.bin.penstock` beside it."""
        is_inside = sidecar.name == ".penstock"
        self.path = sidecar.parent if is_inside else sidecar.with_suffix("")
        text = f"{self.path}: {why}; close the queue in every process and open it again"
        super().__init__(text)


class KeyNeededError(PenstockError, PermissionError):
    """The queue is encrypted and its key is missing or another one."""


class OffsetError(PenstockError, LookupError):
    """No message is at this offset, number or time."""


class ReceiptError(PenstockError, ValueError):
    """The lease that a receipt proves has ended, or the text is no receipt."""


class CommitError(PenstockError, RuntimeError):
    """An mfq consumer has nothing to commit, or its offset can't be set any more."""


class GroupError(PenstockError, ValueError):
    """No such group, a name that is not allowed, or a group that another consumer uses alone."""


def no_group(path: Path, name: str, names: Iterable[str]) -> GroupError:
    """The error for a group that is not there, with those that are."""
    known = ", ".join(names)
    advice = f"its groups are {known}" if known else "the queue has no groups"
    return GroupError(f"{path}: there is no group {name!r}; {advice}")


class ClosedError(PenstockError, ValueError):
    """The queue was closed."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or ("the queue was closed; open it again with Queue(path)",)))


class CodecError(PenstockError, ValueError):
    """A codec can't encode the object, or can't decode the body. See `message.body`."""


class MissingExtraError(PenstockError, ImportError):
    """Something was asked for that needs another library, which is not installed."""

    extra: str

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        install = f"pip install 'penstock[{extra}]'" if extra else f"pip install {library}"
        text = f"{purpose} needs {library}, which is not installed: {install}"
        super().__init__(text, name=library)
        self.extra = extra


class Empty(PenstockError, queue.Empty):
    """No message came within the timeout. The same as the standard library's `queue.Empty`."""


if TYPE_CHECKING:
    _StandardShutDown = Exception
else:
    _StandardShutDown = getattr(queue, "ShutDown", Exception)


class ShutDown(PenstockError, _StandardShutDown):
    """A `StandardQueue` was shut down. From Python 3.13 on also the standard library's."""


class Full(PenstockError, queue.Full):
    """No room came within the timeout. The same as the standard library's `queue.Full`."""


# ── errors of the operating system, at the door ────────────────────────────────────────────────


@contextmanager
def about(path: Path) -> Iterator[None]:
    """An error of the operating system in here leaves as a `StorageError` with its file, or with
    `path` where the system did not say which one."""
    try:
        yield
    except PenstockError:
        raise
    except OSError as error:
        if error.errno is None:
            raise  # A signal handler of the program raised it: `TimeoutError("too late")`.
        raise StorageError.of(error, path) from error


def typed(cls: type, *names: str) -> None:
    """No bare `OSError` leaves these methods of `cls`, whose objects have a path or a folder.

    The native core's errors are ours from the start; this is for what Python itself does to files.
    What is called for every message is native, so that this costs it nothing.
    """
    for name in names:
        found = vars(cls).get(name)
        if isinstance(found, property) and found.fget is not None:
            setattr(cls, name, property(_typed(found.fget), found.fset, found.fdel, found.__doc__))
        elif callable(found):
            setattr(cls, name, _typed(found))


CO_GENERATOR = 0x20
"""As `inspect` has it, which takes long to load."""


def _typed(work: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return work(self, *args, **kwargs)
        except PenstockError:
            raise
        except OSError as error:
            if error.errno is None:
                raise  # As above: the system gives a number with each of its errors.
            raise StorageError.of(error, _place(self)) from error

    def each(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with about(_place(self)):
            yield from work(self, *args, **kwargs)

    return wraps(work)(each if work.__code__.co_flags & CO_GENERATOR else call)


def _place(thing: Any) -> Path:
    found: Any = getattr(thing, "folder", None) or getattr(thing, "path", ".")
    return Path(found)
