"""What Python's tables and the docs say of shared words is what the native core does with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import _core
from penstock.disk.structs import Struct
from penstock.formats.beats.structs import MACS
from penstock.formats.penstock import structs
from penstock.formats.vqs import format as vqs
from penstock.formats.vqs.structs import EXTENT
from penstock.sidecar import control, groups, side_files

DOCS = Path(__file__).parent.parent.parent / "docs" / "formats"
TABLES = {
    struct.name: struct
    for struct in (
        *control.STRUCTS, *groups.STRUCTS, *side_files.STRUCTS, *structs.STRUCTS, EXTENT, MACS,
    )
}  # fmt: skip
PAGES = [DOCS / f"{name}.md" for name in ("sidecar", "penstock", "vqs", "beats")]
OFFSETS = _core.word_offsets()
COMPARED = sorted(OFFSETS.keys() - {"group table parts", "own words", "values"})


def offsets(struct: Struct) -> dict[str, int]:
    """Where each field with a value begins."""
    found, at = {}, 0
    for field in struct.fields:
        if not field.is_reserved:
            found[field.name] = at
        at += field.size
    return found


@pytest.mark.parametrize("name", COMPARED)
def test_a_table_has_every_word_where_the_core_has_it(name: str) -> None:
    assert offsets(TABLES[name]) == OFFSETS[name]


@pytest.mark.parametrize("name", COMPARED)
def test_the_docs_have_every_word_where_the_core_has_it(name: str) -> None:
    pages = "\n".join(page.read_text() for page in PAGES)
    table = pages.split(f"<!-- generated: begin {name} -->")[1].split("<!-- generated: end")[0]
    rows = [line.split("|") for line in table.splitlines() if "`" in line]
    words = {row[3].strip(" `"): int(row[1]) for row in rows if row[4].strip() != "reserved"}
    assert words == OFFSETS[name]


def test_the_parts_of_a_groups_table_are_where_the_tables_say() -> None:
    assert OFFSETS["group table parts"] == groups.PARTS
    page = (DOCS / "sidecar.md").read_text()
    assert all(f"| {part} | {at} |" in page for part, at in groups.PARTS.items())
    most = OFFSETS["values"]["most_entries"]
    ends = {"entries": "order", "order": "heap", "heap": "ready", "ready": "keys", "keys": "end"}
    each = {"entries": groups.ENTRY.size, "order": 8, "heap": 4, "ready": 4}
    each["keys"] = groups.KEY.size * 2
    for part, end in ends.items():
        assert groups.PARTS[end] - groups.PARTS[part] == most * each[part]


def test_values_of_shared_words_mean_the_same_in_python() -> None:
    values = OFFSETS["values"]
    assert values["rolling"] == control.ROLLING
    assert (values["paused"], values["gone"]) == (groups.PAUSED, groups.GONE)
    assert (values["sleepers"], values["slot_bits"]) == (1 << 31, 12)
    assert (values["no_entry"], values["in_lane"]) == (2**32 - 1, 2**32 - 2)
    assert values["owners"] == control.CONTROL.size
    first = control.CONTROL.offset_of("user")
    own = {"shown": first + 8 * vqs.SHOWN, "shown_slots": first + 8 * vqs.SHOWN_SLOTS}
    assert OFFSETS["own words"] == own
