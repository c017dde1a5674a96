"""The names of `typing`, for what every opening of a queue loads.

Annotations are never evaluated, so at run time these names only have to be there: `typing` itself
would be a tenth of the work from `import penstock` to an open queue. Checkers see the real ones.
"""

# Checkers see the real ones, so that nothing here has a type for them to read.
# ruff: noqa: ANN001, ANN003, ANN201, ANN204

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any as Any
    from typing import BinaryIO as BinaryIO
    from typing import ClassVar as ClassVar
    from typing import Final as Final
    from typing import Literal as Literal
    from typing import Protocol as Protocol
    from typing import Self as Self
    from typing import TypedDict as TypedDict
    from typing import TypeVar as TypeVar
    from typing import Unpack as Unpack
    from typing import final as final
    from typing import overload as overload

    class Untyped:
        """A class of a library that ships no types: it may have anything."""

        def __init__(self, *args: Any, **options: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...
else:

    class _Hint:
        """Stands for whatever an annotation says."""

        def __init_subclass__(cls, **options):
            super().__init_subclass__()

        def __class_getitem__(cls, said):
            return object

    Any = Self = object
    BinaryIO = ClassVar = Final = Literal = Protocol = TypedDict = Unpack = _Hint

    def TypeVar(name, **options):
        """A name, as good as any."""
        return object

    def final(found):
        """Returns what it is given: only type checkers need to know."""
        return found

    overload = final
