"""A fixed run of bytes is data, declared once.

A `Struct` is a table of fields that follow each other without gaps. The offsets are
computed, the declared size is checked when the module loads, and the same object packs
and unpacks, draws the table in the docs and explains a hex dump. So there is one place
where a field's position is written down, and nothing that can drift away from it.

    ENTRY = Struct(
        "zbus index entry", ">", 28,
        Field("created_ms", "q"),
        Field("base", "q", "offset of the segment's first frame"),
        Field("end", "i", "bytes used in the segment"),
        Field("updated_ms", "q"),
    )

Kinds (the letters of Python's `struct`, always without alignment):

    b B h H i I q Q   integers of 1, 2, 4, 8 bytes, signed and unsigned
    f d               floats of 4 and 8 bytes
    16s               16 bytes as they are; shorter values are zero-filled
    40p               a slot of 40 bytes: a length byte, then up to 39 bytes, zero-filled.
                      The length is signed: nought and below mean "empty"
    12x               12 reserved bytes: written as zeros, not looked at

Every format package has a `structs` module with a tuple `STRUCTS`: that is where the docs
and `penstock inspect` find them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from operator import le

from penstock.hints import Any, Final, Literal
from penstock.records import dataclass

Order = Literal["<", ">"]
Buffer = bytes | bytearray | memoryview

_WORDS = {
    **{"b": "int8", "h": "int16", "i": "int32", "q": "int64"},
    **{"B": "uint8", "H": "uint16", "I": "uint32", "Q": "uint64"},
    **{"f": "float32", "d": "float64", "s": "bytes", "x": "reserved", "p": "slot"},
}
_NUMBERS = frozenset("bBhHiIqQfd")
_SHOWN_BYTES = 16
_SLOT_MAX_BYTES = 128  # a signed length byte counts to 127


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct: its name, its kind, and what it means to a reader."""

    name: str
    kind: str
    meaning: str = ""

    def __post_init__(self) -> None:
        """Refuse a kind that this module does not know."""
        if self.kind in _NUMBERS:
            return
        count, letter = self.kind[:-1], self.kind[-1:]
        is_counted = count.isascii() and count.isdigit() and count[0] != "0"
        if not (is_counted if letter in "spx" else not count) or letter not in _WORDS:
            raise ValueError(f"field {self.name!r}: unknown kind {self.kind!r}")
        if self.is_slot and not 2 <= self.size <= _SLOT_MAX_BYTES:
            raise ValueError(f"field {self.name!r}: a slot has 2 to {_SLOT_MAX_BYTES} bytes")

    @property
    def size(self) -> int:
        """How many bytes the field takes."""
        return struct.calcsize("<" + self.kind)

    @property
    def is_slot(self) -> bool:
        """Whether the value is a string behind a length byte."""
        return self.kind[-1] == "p"

    @property
    def is_reserved(self) -> bool:
        """Whether the field has no value."""
        return self.kind[-1] == "x"

    @property
    def kind_words(self) -> str:
        """The kind as the docs call it."""
        if self.is_slot:
            return f"length byte + up to {self.size - 1} bytes"
        return _WORDS[self.kind[-1]]

    def encode(self, order: Order, value: Any) -> bytes:
        """The bytes of `value`; ValueError if it does not fit."""
        if self.kind[-1] not in "sp":
            try:
                return struct.pack(order + self.kind, value)
            except (struct.error, OverflowError) as error:
                raise ValueError(f"{self.name} = {value!r}: not a {self.kind_words}") from error
        limit = self.size - self.is_slot
        if len(value) > limit:
            raise ValueError(f"{self.name}: {len(value)} bytes, at most {limit} fit")
        length = bytes([len(value)]) if self.is_slot else b""
        return (length + bytes(value)).ljust(self.size, b"\0")

    def decode(self, order: Order, raw: bytes) -> Any:
        """The value in `raw`; ValueError if a length byte points outside its slot."""
        return self.open_slot(raw) if self.is_slot else struct.unpack(order + self.kind, raw)[0]

    def open_slot(self, raw: bytes) -> bytes:
        """The string in a slot; ValueError if its length byte points outside."""
        length = raw[0] if raw[0] < _SLOT_MAX_BYTES else 0
        if length >= len(raw):
            raise ValueError(f"{self.name}: length byte {length}, the slot holds {len(raw) - 1}")
        return raw[1 : 1 + length]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a dump: a field, where it is, its bytes and what they say."""

    offset: int
    size: int
    name: str
    raw: str
    """The bytes in hex, shortened where there are many."""
    value: int | float | bytes | str
    """The decoded value; words where there is none: reserved, cut short, impossible."""
    meaning: str


class Struct:
    """A fixed number of bytes, described field by field."""

    def __init__(self, name: str, order: Order, size: int, *fields: Field) -> None:
        """Compute the offsets and check them: a wrong table fails when its module loads."""
        if order not in ("<", ">"):
            raise ValueError(f"struct {name!r}: order {order!r} is neither '<' nor '>'")
        self._struct = struct.Struct(order + "".join(f.kind.replace("p", "s") for f in fields))
        if self._struct.size != size:
            raise ValueError(f"struct {name!r}: fields add up to {self._struct.size}, not {size}")
        self.name: Final = name
        self.order: Final[Order] = order
        self.size: Final = size
        self.fields: Final = fields
        self._names = tuple([field.name for field in fields if field.kind[-1] != "x"])
        if len(set(self._names)) != len(self._names):
            raise ValueError(f"struct {name!r}: a field name occurs twice")

    # Most programs use few of the structs that they load, so the rest is computed when needed.

    @cached_property
    def _places(self) -> dict[str, tuple[int, Field]]:
        return {field.name: (at, field) for at, field in self.places() if not field.is_reserved}

    @cached_property
    def _slots(self) -> list[Field]:
        return [field for field in self.fields if field.is_slot]

    @cached_property
    def _texts(self) -> dict[str, int]:
        return {field.name: field.size for field in self.fields if field.kind[-1] == "s"}

    def __repr__(self) -> str:
        """Name and size: the fields are many."""
        return f"<Struct {self.name!r}, {self.size} bytes>"

    def places(self) -> Iterator[tuple[int, Field]]:
        """Each field with its offset, in order, reserved ones too."""
        at = 0
        for field in self.fields:
            yield at, field
            at += field.size

    def offset_of(self, name: str) -> int:
        """Where the field `name` starts, from the struct's first byte."""
        return self._place(name)[0]

    def unpack(self, data: Buffer, at: int = 0) -> dict[str, Any]:
        """Every value at byte `at` of `data`, by field name; reserved fields have none.

        ValueError if fewer bytes are left than the struct needs, or if a length byte can't
        be right: bytes from disk are checked here, not trusted.
        """
        if at < 0 or len(data) - at < self.size:
            raise self._lack(data, at, self.size)
        values = dict(zip(self._names, self._struct.unpack_from(data, at), strict=True))
        for field in self._slots:
            values[field.name] = field.open_slot(values[field.name])
        return values

    def unpack_field(self, name: str, data: Buffer, at: int = 0) -> Any:
        """The value of one field of the struct that starts at byte `at` of `data`."""
        start, field = self._place(name)
        if at < 0 or len(data) - at - start < field.size:
            raise self._lack(data, at + start, field.size)
        return field.decode(self.order, bytes(data[at + start : at + start + field.size]))

    def pack(self, **values: Any) -> bytes:
        """The bytes of `values`, which name every field except the reserved ones.

        ValueError if a name is missing or unknown, or a value does not fit its field.
        """
        if values.keys() != self._places.keys():
            wrong = ", ".join(sorted(values.keys() ^ self._places.keys()))
            raise ValueError(f"struct {self.name!r}: missing or unknown: {wrong}")
        lengths = map(len, map(values.__getitem__, self._texts))
        if not self._slots and all(map(le, lengths, self._texts.values())):
            try:
                return self._struct.pack(*map(values.__getitem__, self._names))
            except (struct.error, OverflowError):
                pass  # The field that it does not fit says so below.
        return b"".join(
            bytes(field.size) if field.is_reserved else field.encode(self.order, values[field.name])
            for field in self.fields
        )

    def pack_field(self, name: str, value: Any) -> bytes:
        """The bytes of one field, to be written at `offset_of(name)`."""
        return self._place(name)[1].encode(self.order, value)

    def describe(self, data: Buffer, at: int = 0, base: int = 0) -> list[Row]:
        """A row per field of the bytes at `at`, for people; never fails on damaged bytes.

        `base` is the place of `data` in its file: the rows count from the file's start.
        """
        rows = []
        for start, field in self.places():
            raw = bytes(data[at + start : at + start + field.size])
            shown = raw[:_SHOWN_BYTES].hex(" ") + (" …" if len(raw) > _SHOWN_BYTES else "")
            offset, value = base + at + start, _explain(field, self.order, raw)
            rows.append(Row(offset, field.size, field.name, shown, value, field.meaning))
        return rows

    def _place(self, name: str) -> tuple[int, Field]:
        if name not in self._places:
            raise ValueError(f"struct {self.name!r} has no field {name!r}")
        return self._places[name]

    def _lack(self, data: Buffer, at: int, size: int) -> ValueError:
        left = max(len(data) - at, 0)
        return ValueError(f"{self.name}: {size} bytes needed at {at}, found {left}")


def frames_in(
    data: Buffer, at: int, head: Struct, length: str, *, beside: int = 0, least: int,
    most: int = 1 << 31, foot: Struct | None = None, align: int = 1,
) -> Iterator[tuple[int, Struct]]:  # fmt: skip
    """Where the frames of a segment have which struct, from byte `at` on; the last is where none
    can be. The field `length` of a frame's head, and `beside`, are its bytes."""
    while at + head.size <= len(data):
        yield at, head
        size = beside + int(head.unpack_field(length, data, at))
        if not least <= size <= min(most, len(data) - at):
            return
        if foot is not None:
            yield at + size - foot.size, foot
        at += -(-size // align) * align


def _explain(field: Field, order: Order, raw: bytes) -> int | float | bytes | str:
    if len(raw) < field.size:
        return f"cut short: {len(raw)} of {field.size} bytes"
    if field.is_reserved:
        return "not zero" if any(raw) else "zero"
    try:
        value: int | float | bytes = field.decode(order, raw)
    except ValueError as error:
        return f"impossible: {error}"
    return value
