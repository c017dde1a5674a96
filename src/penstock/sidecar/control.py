"""The control block as data: the words that all openers of a queue share.

Lives in `.penstock/control`. A cache of this boot, apart from `durable`, which only moves after a
sync and so is a safe lower bound whatever the disk kept.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from penstock import _core
from penstock.disk import files
from penstock.disk.structs import Field, Struct
from penstock.places import Path
from penstock.records import dataclass

CONTROL = Struct(
    "control block", "<", 4096,
    Field("magic", "8s", "PENSTCTL"),
    Field("boot", "Q", "which run of the machine wrote the words below"),
    Field("lock", "I", "append lock: 0, or the holder's name (`round << 12 | slot`: its byte of "
          "the lock file, and how many openers there had been); top bit: a process sleeps on it"),
    Field("sync_lock", "I", "the same for the one who syncs"),
    Field("poison", "I", "1 after a failed sync: every put raises"),
    Field("clean", "I", "CRC-32C of tail … durable, set by the last closer; 0 while open"),
    Field("reserved_end", "Q", "what an append in progress will occupy; all ones: a roll is"),
    Field("reserved_number", "Q", "the next number once it is done; in a roll the old base"),
    Field("pad0", "16x", ""),
    Field("tail", "Q", "offset of the next append"),
    Field("next_number", "Q", "number of the next message"),
    Field("segment_base", "Q", "base of the segment that is appended to"),
    Field("head", "Q", "oldest kept offset"),
    Field("head_number", "Q", "number of the oldest kept message"),
    Field("tail_check", "Q", "the tail's complement: a damaged tail is noticed by it"),
    Field("publishing", "Q", "what the end in the format's own file is about to be"),
    Field("published", "Q", "what it is, by our own hand; where it is a word of its own"),
    Field("waiters", "I", "how many sleep on `event`"),
    Field("event", "I", "raised to wake them"),
    Field("dirty", "I", "raised when the maintenance threads have something to do"),
    Field("sync_asked", "I", "odd: something was appended since the last sync began, and was said"),
    Field("room_wanted", "Q", "a put waits for a cursor to get this far; 0: none does"),
    Field("syncs_ended", "I", "raised when a turn at the sync lock has ended; others sleep on it"),
    Field("pad2b", "36x", ""),
    Field("durable", "Q", "everything below has been synced"),
    Field("named_base", "Q", "newest segment whose name has been synced"),
    Field("generation", "Q", "raised when everyone must look at the files again"),
    Field("openings", "I", "how often the queue was opened"),
    Field("pad3", "4x", ""),
    Field("durable_at", "q", "boot time at which the last sync began that has ended"),
    Field("pad3b", "24x", ""),
    Field("steady_skew", "q", "wall time minus boot time, without the wall clock's jumps forward"),
    Field("steady_at", "q", "boot time at which that was last looked at"),
    Field("steady_boot", "Q", "the boot that these two are of"),
    Field("pad4", "744x", ""),
    Field("user", "3072s", "words of the format's own"),
)  # fmt: skip

STRUCTS = (CONTROL,)

USER_WORDS = struct.Struct("<16Q")
ROLLING = 2**64 - 1
"""`reserved_end` while a new segment is named."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a look at the block says, without opening the queue."""

    boot: int
    tail: int
    next_number: int
    segment_base: int
    head: int
    head_number: int
    durable: int
    last_number: int
    """The next number, also if a process died between storing the tail and storing the number."""
    reserved_end: int
    """Bytes between the tail and this may have been touched."""
    next_head: int
    """Where the head was being moved to, in a format that does so in several stores."""
    is_tail_whole: bool
    """Whether `tail_check` bears the tail out."""
    is_clean: bool
    is_poisoned: bool
    published: frozenset[int] = frozenset()
    """The ends that the format's own file may have from us; any other is another program's."""
    user: tuple[int, ...] = ()
    """The first words of the format's own."""


def segment_base(sidecar: Path) -> int:
    """Where the last segment begins by the words as they are now; 0 while that is unknown."""
    words = peek(sidecar)
    return words.segment_base if words is not None else 0


def clean_check(*words: int) -> int:
    """What `clean` holds after an orderly close: a checksum of the six words from `tail` on."""
    return _core.crc32c(struct.pack("<6Q", *words)) or 1


def peek(sidecar: Path) -> Words | None:
    """The words as they are on disk; none without a valid block. Changes nothing.

    A block that says it is clean and whose words say otherwise is damaged: none of them counts.
    """
    raw = _read(sidecar)
    while raw is not None:
        found = _parse(raw)
        if found is not None:
            return found
        # Another process may be opening the queue: then some words are older than that.
        before, raw = raw, _read(sidecar)
        if raw == before:
            return None
    return None


@lru_cache(maxsize=16)
def _parse(raw: bytes) -> Words | None:
    """What a block says; none if it contradicts itself. Most looks find it as the last one did."""
    word = CONTROL.unpack(raw)
    found = (word["tail"], word["next_number"], word["segment_base"])
    rest = (word["head"], word["head_number"], word["durable"])
    is_clean = word["clean"] == clean_check(*found, *rest)
    if word["clean"] and not is_clean:
        return None
    # An orderly close vouches for `next_number` itself; what was reserved it does not cover.
    is_reserved = not is_clean and word["reserved_end"] == word["tail"]
    # The first words of the format's own: 1, and then the head that is to be.
    user = USER_WORDS.unpack_from(word["user"])
    return Words(
        word["boot"], *found, *rest,
        last_number=word["reserved_number"] if is_reserved else word["next_number"],
        reserved_end=word["reserved_end"],
        next_head=(user[1] if user[0] == 1 else 0) or word["head"],
        is_tail_whole=word["tail_check"] == word["tail"] ^ 2**64 - 1,
        is_clean=is_clean,
        is_poisoned=word["poison"] != 0,
        published=frozenset((word["publishing"], word["published"])),
        user=user,
    )  # fmt: skip


def _read(sidecar: Path) -> bytes | None:
    try:
        raw = files.read_start(f"{sidecar}/control", CONTROL.size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return raw if len(raw) == CONTROL.size and raw[:8] == b"PENSTCTL" else None
