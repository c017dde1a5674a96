"""The tables that every format is made of: offsets, bytes, words for people."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.disk.structs import Field, Struct
from tools.docs import struct_table

ENTRY = Struct(
    "entry", ">", 28,
    Field("created_ms", "q", "when the segment was made"),
    Field("base", "q"),
    Field("end", "i", "bytes used | next position"),
    Field("updated_ms", "q"),
)  # fmt: skip

MIXED = Struct(
    "mixed", "<", 64,
    Field("magic", "4s", "the bytes `56 51 53 01`"),
    Field("flag", "B"),
    Field("unaligned", "I", "starts at byte 5"),
    Field("pad", "3x"),
    Field("id", "40p", "who sent it"),
    Field("ratio", "d"),
    Field("pad", "4x", "to the next multiple of eight"),
)  # fmt: skip

MIXED_VALUES = {
    "magic": b"VQS\x01",
    "flag": 7,
    "unaligned": 0xA1B2C3D4,
    "id": b"o-17",
    "ratio": 0.5,
}


def test_a_layout_is_these_bytes() -> None:
    packed = ENTRY.pack(created_ms=1, base=-2, end=3, updated_ms=0x0102030405060708)
    assert packed.hex(" ") == (
        "00 00 00 00 00 00 00 01 ff ff ff ff ff ff ff fe 00 00 00 03 01 02 03 04 05 06 07 08"
    )


def test_little_endian_fields_slots_and_padding_are_these_bytes() -> None:
    packed = MIXED.pack(**MIXED_VALUES)
    assert packed[:12].hex(" ") == "56 51 53 01 07 d4 c3 b2 a1 00 00 00"
    assert packed[12:52] == b"\x04o-17" + bytes(35)
    assert packed[52:].hex(" ") == "00 00 00 00 00 00 e0 3f 00 00 00 00"


def test_offsets_are_sums_of_the_sizes_before() -> None:
    assert [ENTRY.offset_of(name) for name in ("created_ms", "base", "end", "updated_ms")] == [
        0,
        8,
        16,
        20,
    ]
    assert MIXED.offset_of("unaligned") == 5
    assert MIXED.offset_of("ratio") == 52


def test_unpack_reads_at_any_byte_of_any_buffer() -> None:
    data = b"??" + MIXED.pack(**MIXED_VALUES) + b"!"
    assert MIXED.unpack(data, 2) == MIXED_VALUES
    assert MIXED.unpack(memoryview(data), 2) == MIXED_VALUES
    assert MIXED.unpack(bytearray(data), 2) == MIXED_VALUES


def test_one_field_is_read_and_written_alone() -> None:
    data = bytearray(b"?" + MIXED.pack(**MIXED_VALUES))
    at = 1 + MIXED.offset_of("id")
    data[at : at + 40] = MIXED.pack_field("id", b"o-18")
    assert MIXED.unpack_field("id", data, 1) == b"o-18"
    assert MIXED.unpack(data, 1) == MIXED_VALUES | {"id": b"o-18"}


def test_a_field_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="struct 'entry' has no field 'pad'"):
        ENTRY.offset_of("pad")
    with pytest.raises(ValueError, match="struct 'mixed' has no field 'pad'"):
        MIXED.unpack_field("pad", bytes(64))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_unpack_undoes_pack_and_agrees_with_struct(word: int, half: int) -> None:
    values = {"created_ms": word, "base": -1 - word, "end": half, "updated_ms": 0}
    packed = ENTRY.pack(**values)
    assert packed == struct.pack(">qqiq", *values.values())
    assert ENTRY.unpack(packed) == values


@given(st.binary(min_size=64, max_size=64))
def test_hostile_bytes_give_values_or_a_value_error(data: bytes) -> None:
    length = data[12]
    if 40 <= length < 128:
        with pytest.raises(ValueError, match=f"id: length byte {length}, the slot holds 39"):
            MIXED.unpack(data)
    else:
        kept = 0 if length >= 128 else length
        assert MIXED.unpack(data)["id"] == data[13 : 13 + kept]


@given(st.binary(max_size=70), st.integers(0, 70))
def test_describe_never_fails_and_agrees_with_unpack(data: bytes, at: int) -> None:
    rows = [row for row in MIXED.describe(data, at) if row.name != "pad"]
    try:
        values = MIXED.unpack(data, at)
    except ValueError:
        assert any(isinstance(row.value, str) for row in rows)
    else:
        assert repr({row.name: row.value for row in rows}) == repr(values)


@pytest.mark.parametrize(
    ("at", "words"), [(0, "at 0, found 27"), (20, "at 20, found 7"), (99, "at 99, found 0")]
)
def test_unpack_says_how_many_bytes_are_missing(at: int, words: str) -> None:
    with pytest.raises(ValueError, match=f"entry: 28 bytes needed {words}"):
        ENTRY.unpack(bytes(27), at)


def test_a_negative_position_is_not_taken_from_the_end() -> None:
    with pytest.raises(ValueError, match="needed at -28"):
        ENTRY.unpack(bytes(28), -28)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"flag": 256}, "flag = 256: not a uint8"),
        ({"flag": -1}, "flag = -1: not a uint8"),
        ({"flag": "7"}, "flag = '7': not a uint8"),
        ({"magic": b"VQS12"}, "magic: 5 bytes, at most 4 fit"),
        ({"id": b"x" * 40}, "id: 40 bytes, at most 39 fit"),
    ],
)
def test_pack_refuses_what_does_not_fit(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MIXED.pack(**(MIXED_VALUES | changed))


def test_pack_names_what_is_missing_and_what_is_unknown() -> None:
    with pytest.raises(ValueError, match="missing or unknown: end, size"):
        ENTRY.pack(created_ms=1, base=2, size=3, updated_ms=4)


def test_a_wrong_total_fails_when_the_table_is_made() -> None:
    with pytest.raises(ValueError, match="struct 'short': fields add up to 4, not 8"):
        Struct("short", "<", 8, Field("size", "I"))


def test_a_field_name_used_twice_fails_when_the_table_is_made() -> None:
    with pytest.raises(ValueError, match="occurs twice"):
        Struct("twice", "<", 8, Field("size", "I"), Field("size", "I"))


@pytest.mark.parametrize("kind", ["l", "P", "4I", "s", "0s", "=q", "1p", "129p", ""])
def test_a_kind_outside_the_list_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="field 'odd'"):
        Field("odd", kind)


def test_native_byte_order_is_refused() -> None:
    with pytest.raises(ValueError, match="order '@'"):
        Struct("native", "@", 4, Field("size", "I"))  # type: ignore[arg-type]


def test_describe_counts_offsets_from_the_start_of_the_file() -> None:
    data = bytes(3) + ENTRY.pack(created_ms=1, base=2, end=3, updated_ms=4)
    rows = ENTRY.describe(data, 3, base=1000)
    assert [(row.offset, row.size, row.name, row.value) for row in rows] == [
        (1003, 8, "created_ms", 1),
        (1011, 8, "base", 2),
        (1019, 4, "end", 3),
        (1023, 8, "updated_ms", 4),
    ]
    assert rows[2].raw == "00 00 00 03"
    assert rows[2].meaning == "bytes used | next position"


def test_describe_explains_damage_in_words() -> None:
    data = bytearray(MIXED.pack(**MIXED_VALUES))[:60]
    data[9] = 1
    data[12] = 77
    rows = MIXED.describe(data)
    assert [row.value for row in rows if isinstance(row.value, str)] == [
        "not zero",
        "impossible: id: length byte 77, the slot holds 39",
        "cut short: 0 of 4 bytes",
    ]
    assert rows[4].raw == "4d 6f 2d 31 37 00 00 00 00 00 00 00 00 00 00 00 …"


def test_markdown_is_this_table() -> None:
    assert struct_table(MIXED) == (
        "64 bytes, little-endian.\n"
        "\n"
        "| offset | size | field | type | meaning |\n"
        "| ---: | ---: | --- | --- | --- |\n"
        "| 0 | 4 | `magic` | bytes | the bytes `56 51 53 01` |\n"
        "| 4 | 1 | `flag` | uint8 | |\n"
        "| 5 | 4 | `unaligned` | uint32 | starts at byte 5 |\n"
        "| 9 | 3 | `pad` | reserved | |\n"
        "| 12 | 40 | `id` | length byte + up to 39 bytes | who sent it |\n"
        "| 52 | 8 | `ratio` | float64 | |\n"
        "| 60 | 4 | `pad` | reserved | to the next multiple of eight |\n"
    )
    assert "bytes used \\| next position" in struct_table(ENTRY)
