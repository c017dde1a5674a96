"""An encoder of VQS records written from the description alone, to hold ours against."""

from __future__ import annotations

Attributes = dict[str, tuple[str, bytes]]


def uint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([256 - len(raw)]) + raw


def sint(value: int) -> bytes:
    return uint(~value << 1 | 1 if value < 0 else value << 1)


def text(value: bytes) -> bytes:
    return uint(len(value)) + value


def message(payload: bytes) -> bytes:
    return uint(len(payload)) + payload


def field_type(name: bytes, kind: int) -> bytes:
    return b"\x01" + text(name) + b"\x01" + sint(kind) + b"\x00"


def types(first: int = 65) -> bytes:
    """Descriptors of Message, map[string]Attribute and Attribute, in the order of the original."""
    of_message, of_attribute, of_map = first, first + 1, first + 2
    fields = [
        field_type(b"Id", 6), field_type(b"Body", 6), field_type(b"Attributes", of_map),
        field_type(b"SystemAttributes", of_map), field_type(b"DelaySeconds", 3),
    ]  # fmt: skip
    common = b"\x01" + text(b"Message") + b"\x01" + sint(of_message) + b"\x00"
    struct = sint(-of_message) + b"\x03\x01" + common + b"\x01" + uint(5) + b"".join(fields)
    out = message(struct + b"\x00\x00")
    common = b"\x01" + text(b"map[string]storage.Attribute") + b"\x01" + sint(of_map) + b"\x00"
    mapping = sint(-of_map) + b"\x04\x01" + common
    out += message(mapping + b"\x01" + sint(6) + b"\x01" + sint(of_attribute) + b"\x00\x00")
    fields = [field_type(b"DataType", 6), field_type(b"Value", 5)]
    common = b"\x02" + sint(of_attribute) + b"\x00"
    struct = sint(-of_attribute) + b"\x03\x01" + common + b"\x01" + uint(2) + b"".join(fields)
    return out + message(struct + b"\x00\x00")


def struct_of(fields: list[tuple[int, bytes]]) -> bytes:
    out, last = b"", -1
    for number, value in fields:
        out += uint(number - last) + value
        last = number
    return out + b"\x00"


def map_of(attributes: Attributes) -> bytes:
    out = uint(len(attributes))
    for name, (kind, value) in attributes.items():
        parts = [(0, kind.encode()), (1, value)]
        out += text(name.encode()) + struct_of([(n, text(v)) for n, v in parts if v])
    return out


def value_of(
    body: bytes,
    id: str = "",
    attributes: Attributes | None = None,
    system: Attributes | None = None,
    delay: int = 0,
) -> bytes:
    fields = [(0, text(id.encode()))] if id else []
    fields += [(1, text(body))] if body else []
    fields += [(2, map_of(attributes or {})), (3, map_of(system or {}))]
    fields += [(4, uint(delay))] if delay else []
    return struct_of(fields)


def record(
    body: bytes,
    id: str = "",
    attributes: Attributes | None = None,
    system: Attributes | None = None,
    delay: int = 0,
    first: int = 65,
) -> bytes:
    """A whole record with its length."""
    value = value_of(body, id, attributes, system, delay)
    gob = types(first) + message(sint(first) + value)
    return len(gob).to_bytes(4, "little") + gob
