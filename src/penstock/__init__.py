"""penstock: a durable, brokerless, memory-mapped message queue whose folders are also tables.

Four nouns are enough to start: a `Queue` is a folder, a `Message` is what you put and get, a
`Group` is consumers that share progress, a `Scan` is a range read as a table.

Names are loaded when they are first used, so that importing penstock costs next to nothing.
"""

import sys

if sys.platform != "linux":
    raise ImportError("penstock needs Linux: shared futexes, OFD locks and fallocate")
if "t" in sys.abiflags:
    raise ImportError("penstock does not run on a free-threaded Python yet: use the usual build")
if sys.version_info >= (3, 13):
    from _thread import _is_main_interpreter
else:
    import _xxsubinterpreters as _some  # type: ignore[import-not-found]  # No stubs have it.

    def _is_main_interpreter() -> bool:
        is_main: bool = _some.get_current() == _some.get_main()
        return is_main


# The interpreter that loads the native core first is its only one: a sub-interpreter that came
# first would keep the main one from it.
if not _is_main_interpreter():
    raise ImportError(
        "penstock does not run in a sub-interpreter: import it in the main one "
        "(mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
    )

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from penstock._core import Message as Message
    from penstock.clock import ManualClock as ManualClock
    from penstock.engine.aio import AsyncQueue as AsyncQueue
    from penstock.engine.convert import convert as convert
    from penstock.engine.exchange import export as export
    from penstock.engine.exchange import import_ as import_
    from penstock.engine.group import Group as Group
    from penstock.engine.queue import Queue as Queue
    from penstock.engine.stdlib import StandardQueue as StandardQueue
    from penstock.engine.table import Scan as Scan
    from penstock.errors import ClosedError as ClosedError
    from penstock.errors import CodecError as CodecError
    from penstock.errors import CorruptError as CorruptError
    from penstock.errors import Empty as Empty
    from penstock.errors import FormatError as FormatError
    from penstock.errors import Full as Full
    from penstock.errors import GroupError as GroupError
    from penstock.errors import KeyNeededError as KeyNeededError
    from penstock.errors import MissingExtraError as MissingExtraError
    from penstock.errors import NoQueueError as NoQueueError
    from penstock.errors import OffsetError as OffsetError
    from penstock.errors import OptionError as OptionError
    from penstock.errors import PenstockError as PenstockError
    from penstock.errors import PoisonedError as PoisonedError
    from penstock.errors import ReceiptError as ReceiptError
    from penstock.errors import ShutDown as ShutDown
    from penstock.errors import StorageError as StorageError
    from penstock.errors import UnsupportedError as UnsupportedError
    from penstock.options import Durability as Durability

    DropIn = StandardQueue
    RefusedError = UnsupportedError

__all__ = [
    "AsyncQueue",
    "ClosedError",
    "CodecError",
    "CorruptError",
    "Durability",
    "Empty",
    "FormatError",
    "Full",
    "Group",
    "GroupError",
    "KeyNeededError",
    "ManualClock",
    "Message",
    "MissingExtraError",
    "NoQueueError",
    "OffsetError",
    "OptionError",
    "PenstockError",
    "PoisonedError",
    "Queue",
    "ReceiptError",
    "Scan",
    "ShutDown",
    "StandardQueue",
    "StorageError",
    "UnsupportedError",
    "convert",
    "export",
    "import_",
]

_HOMES = {
    "AsyncQueue": "penstock.engine.aio",
    "Durability": "penstock.options",
    "Group": "penstock.engine.group",
    "ManualClock": "penstock.clock",
    "Message": "penstock._core",
    "Queue": "penstock.engine.queue",
    "Scan": "penstock.engine.table",
    "StandardQueue": "penstock.engine.stdlib",
    "convert": "penstock.engine.convert",
    "export": "penstock.engine.exchange",
    "import_": "penstock.engine.exchange",
}
"""The modules of public names; all others are errors."""

_OLD = {"DropIn": "StandardQueue", "RefusedError": "UnsupportedError"}
"""Names of before, which go with the next release."""

_NEVER = {
    "LifoQueue": "a queue on disk is a log, read in the order in which it was written",
    "PriorityQueue": "a queue on disk is a log: use one queue per priority, and ask them in turn",
}


def __getattr__(name: str) -> object:
    """Loads the module that a public name lives in."""
    if name in _OLD:
        import warnings

        new = _OLD[name]
        text = f"penstock.{name} is penstock.{new} now; the old name goes with the next release"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return __getattr__(new)
    if name not in __all__:
        why = f": {_NEVER[name]}" if name in _NEVER else ""
        raise AttributeError(f"module 'penstock' has no attribute {name!r}{why}")
    import gc

    # What is loaded stays. The collector would look through it again and again meanwhile.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        home = __import__(_HOMES.get(name, "penstock.errors"), fromlist=[name])
        value = globals()[name] = getattr(home, name)
    finally:
        if is_collecting:
            gc.enable()
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


del TYPE_CHECKING
