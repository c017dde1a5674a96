"""The bytes that we write, visible: headers, frames, state, as the documents have them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from penstock import ManualClock, OptionError, Queue, UnsupportedError, _core
from tests.formats.beats.helpers import CREATED, KEY, event, key_for, pack_frame, whole_frames

CBOR = (
    "a4 69 74696d657374616d70 1b 17979cfe362a0000 65 666c616773 00 64 6d657461 a0 66 6669656c6473"
)


def made(path: Path, layout: str, *bodies: bytes, **more: object) -> Path:
    """A closed queue of one segment."""
    clock = ManualClock()
    with Queue(
        path, format="beats", layout=layout, key=key_for(layout), clock=clock, durability="process"
    ) as queue:
        for body in bodies:
            queue.put(body, **more)  # type: ignore[arg-type]
    return path / "0.seg"


def plain_of(file: Path, layout: str) -> bytes:
    """The frames of a segment, decrypted."""
    raw = file.read_bytes()
    at = {"0": 4, "1": 8, "2": 20, "3": 20, "2-released": 12}[layout]
    if layout in ("2", "3"):
        return _core.beats_crypt(KEY, raw[4:20], raw[20:])
    return raw[at:]


def test_a_frame_is_these_bytes() -> None:
    assert pack_frame(b"hello").hex(" ") == "11 00 00 00 68 65 6c 6c 6f 07 13 80 ad 11 00 00 00"


def test_a_segment_of_version_1_is_these_bytes(tmp_path: Path) -> None:
    raw = made(tmp_path / "q", "1", b'{"a":1}').read_bytes()
    payload = bytes.fromhex(CBOR + "a1 61 61 01")
    assert raw[:8].hex(" ") == "01 00 00 00 01 00 00 00"
    assert raw[8:12] == (len(payload) + 12).to_bytes(4, "little")
    assert raw[12:-8].hex(" ") == payload.hex(" ")
    assert raw[8:] == pack_frame(payload)


def test_a_segment_of_version_0_is_these_bytes(tmp_path: Path) -> None:
    raw = made(tmp_path / "q", "0", b'{ "a": "<\\u2028\\b>" }').read_bytes()
    event = rb'"meta":{},"fields":{"a":"\u003c\u2028\u0008\u003e"}}'
    payload = b'{"timestamp":1700000000000000000,"flags":0,' + event
    assert raw == bytes(4) + pack_frame(payload)


@pytest.mark.parametrize("layout", ["2", "3"])
def test_an_encrypted_segment_has_version_iv_and_ciphertext(tmp_path: Path, layout: str) -> None:
    raw = made(tmp_path / "q", layout, b'{"a":1}').read_bytes()
    payload = bytes.fromhex(CBOR + "a1 61 61 01")
    assert raw[:4] == int(layout).to_bytes(4, "little")
    plain = _core.beats_crypt(KEY, raw[4:20], raw[20:])
    if layout == "2":
        assert plain == pack_frame(payload)
    else:
        assert whole_frames(plain)[0][1][:2] == bytes([0xF0, len(payload) - 15])
        assert plain == pack_frame(bytes([0xF0, len(payload) - 15]) + payload)


def test_the_keystream_is_aes_128_in_counter_mode() -> None:
    # NIST SP 800-38A, F.5.1.
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    cipher = "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
    assert _core.beats_crypt(key, counter, plain).hex() == cipher
    assert _core.beats_crypt(key, counter, plain[7:], at=7).hex() == cipher[14:]


def test_the_released_layouts_are_these_bytes(tmp_path: Path) -> None:
    payload = bytes.fromhex(CBOR + "a1 61 61 01")
    raw = made(tmp_path / "q", "2-released", b'{"a":1}').read_bytes()
    assert raw[:12].hex(" ") == "02 00 00 00 01 00 00 00 00 00 00 00"
    assert raw[12:] == pack_frame(payload)
    raw = made(tmp_path / "p", "2-released-lz4", b'{"a":1}').read_bytes()
    assert raw[:12].hex(" ") == "02 00 00 00 01 00 00 00 02 00 00 00"
    assert raw[12:19].hex(" ") == "04 22 4d 18 64 70 b9"
    frame = pack_frame(payload)
    assert raw[19:23] == (len(frame) | 1 << 31).to_bytes(4, "little")
    assert raw[23 : 23 + len(frame)] == frame
    assert raw[-8:-4] == bytes(4)


def test_state_is_these_bytes(tmp_path: Path) -> None:
    for layout, expected in [
        ("1", "01000000 0000000000000000 {:016x} 0100000000000000"),
        ("0", "00000000 0000000000000000 {:016x}"),
    ]:
        path = tmp_path / layout
        with Queue(path, format="beats", layout=layout) as queue:
            queue.put(event(0))
            second = queue.put(event(1))
            queue.get(0).ack()
            place = (second & 0xFFFFFFFF) - (4 if layout == "0" else 0)
            swapped = int.from_bytes(place.to_bytes(8, "little"), "big")
            wanted = bytes.fromhex(expected.format(swapped))
            assert (path / "state.dat").read_bytes() == wanted


def test_the_count_is_written_on_close_and_on_rolling(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with Queue(path, format="beats", layout="1", segment_bytes=16384) as queue:
        for number in range(300):
            queue.put(event(number, pad="x" * 100))
        counts = [int.from_bytes(file.read_bytes()[4:8], "little") for file in files_of(path)]
        assert counts[-1] == 0
        assert all(counts[:-1])
    counts = [int.from_bytes(file.read_bytes()[4:8], "little") for file in files_of(path)]
    assert sum(counts) == 300
    assert all(file.stat().st_size <= 16384 for file in files_of(path))


def files_of(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"), key=lambda file: int(file.stem))


@pytest.mark.parametrize("layout", CREATED)
def test_files_are_for_their_owner_alone(tmp_path: Path, layout: str) -> None:
    file = made(tmp_path / "q", layout, event(1))
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (-1, "20"), (-24, "37"), (-25, "38 18"), (-128, "38 7f"), (-129, "39 0080"),
        (-200, "39 00c7"), (-256, "39 00ff"), (-32769, "3a 00008000"), (-65536, "3a 0000ffff"),
        (-(2**31) - 1, "3b 0000000080000000"), (-(2**63), "3b 7fffffffffffffff"), (23, "17"),
        (24, "18 18"), (2**64 - 1, "1b ffffffffffffffff"), (1.0, "fb 3ff0000000000000"),
        (0.5, "fb 3fe0000000000000"), (None, "f6"), (True, "f5"), (False, "f4"), ([], "80"),
        ({}, "a0"), ("ü", "62 c3bc"),
    ],
)  # fmt: skip
def test_values_are_in_the_form_that_every_beat_reads(
    tmp_path: Path, number: object, wanted: str
) -> None:
    raw = made(tmp_path / "q", "1", json.dumps({"n": number}).encode()).read_bytes()
    assert raw[8:] == pack_frame(bytes.fromhex(CBOR + "a1 61 6e" + wanted))
    with Queue(tmp_path / "q", read_only=True) as queue:
        assert json.loads(next(iter(queue.scan())).body) == {"n": number}


def test_a_map_of_more_than_23_keys_has_a_longer_head(tmp_path: Path) -> None:
    body = {f"k{number:04}": list(range(number % 40)) for number in range(300)}
    raw = made(tmp_path / "q", "1", json.dumps(body).encode()).read_bytes()
    assert bytes.fromhex("6669656c6473 b9 012c 65 6b30303030") in raw
    with Queue(tmp_path / "q", read_only=True) as queue:
        assert json.loads(next(iter(queue.scan())).body) == body


def test_what_no_beat_could_read_is_refused_with_its_key(tmp_path: Path) -> None:
    cases = [
        ("1", b'{"a": {"b": [{"": 1}]}}', r"fields\.a\.b: a key is empty"),
        ("0", b'{"a": {"big": 18446744073709551615}}', r"fields\.a\.big: .* negative"),
    ]
    for layout, body, text in cases:
        with Queue(tmp_path / layout, format="beats", layout=layout) as queue:
            before = queue.offsets().tail
            with pytest.raises(UnsupportedError, match=text):
                queue.put(body)
            with pytest.raises(UnsupportedError, match="tag"):
                queue.put(b"{}", tag="x")
            with pytest.raises(UnsupportedError, match=r"beats\.flags"):
                queue.put(b"{}", headers={"beats.flags": "256"})
            with pytest.raises(UnsupportedError, match=r"beats\.meta"):
                queue.put(b"{}", headers={"beats.meta": "[]"})
            with pytest.raises(UnsupportedError, match="fields"):
                queue.put(b"[1]", headers={"beats.flags": "1"})
            assert queue.offsets().tail == before


@pytest.mark.parametrize("layout", CREATED)
def test_an_event_that_is_put_back_is_the_same_event(tmp_path: Path, layout: str) -> None:
    meta = {"_id": "a-1", "pipeline": "p", "deep": {"x": [1, None, 2.5]}}
    headers = {"beats.meta": json.dumps(meta), "beats.flags": "1"}
    with Queue(tmp_path / "q", format="beats", layout=layout, key=key_for(layout)) as queue:
        queue.put(b'{"message":"m"}', headers=headers, timestamp_ns=-5)
        first = queue.get(0)
        queue.put_many([first])
        second = queue.get(0)
        for message in (first, second):
            assert message.id == "a-1"
            assert message.timestamp_ns == -5
            assert json.loads(message.headers["beats.meta"]) == meta
            assert message.headers["beats.flags"] == "1"
            assert message.body == b'{"message":"m"}'
        assert first.payload == second.payload


def test_an_event_that_shrinks_too_much_for_a_beat_goes_as_literals(tmp_path: Path) -> None:
    body = json.dumps({"message": "x" * 5000}).encode()
    plain = plain_of(made(tmp_path / "q", "3", body, event(1)), "3")
    (_, packed), _ = whole_frames(plain)
    with Queue(tmp_path / "q", read_only=True, key=KEY) as queue:
        first = next(iter(queue.scan()))
        assert json.loads(first.body) == {"message": "x" * 5000}
        assert len(first.payload) <= 10 * len(packed)


def test_every_segment_has_an_iv_of_its_own(tmp_path: Path) -> None:
    ivs = set()
    for _ in range(5):
        with Queue(tmp_path / "q", format="beats", layout="2", key=KEY) as queue:
            queue.put(event(1))
    for file in files_of(tmp_path / "q"):
        ivs.add(file.read_bytes()[4:20])
    assert len(ivs) == 5


def test_an_opening_without_a_put_leaves_no_further_file(tmp_path: Path) -> None:
    for _ in range(3):
        with Queue(tmp_path / "q", format="beats", layout="2", key=KEY):
            pass
    assert [file.name for file in files_of(tmp_path / "q")] == ["0.seg"]


def test_a_queue_goes_on_in_the_version_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "q"
    for number, layout in enumerate(["1", "0", "2-released", "2", "2-released-lz4", "3"]):
        with Queue(path, format="beats", layout=layout, key=KEY if number > 2 else None) as queue:
            queue.put(event(number))
    with Queue(path, key=KEY) as queue:
        assert queue.store.layout == "3"
        assert queue.meta["layouts"] | {6: "3"} == {
            0: "1", 1: "0", 2: "2-released", 3: "2", 4: "2-released-lz4", 5: "3", 6: "3",
        }  # fmt: skip
        assert [json.loads(m.body)["n"] for m in queue.get_many(9)] == list(range(6))
        assert queue.verify().is_ok


@pytest.mark.parametrize(
    ("layout", "key", "text"),
    [
        ("2", None, "16 bytes"),
        ("1", KEY, "none"),
        ("2", bytes(32), "16 bytes"),
        ("4", None, "2-rel"),
    ],
)
def test_options_that_can_not_be_are_refused(
    tmp_path: Path, layout: str, key: bytes | None, text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        Queue(tmp_path / "q", format="beats", layout=layout, key=key)
    assert not list(tmp_path.glob("q/*.seg"))


def test_the_key_is_never_shown(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", format="beats", key=KEY) as queue:
        assert queue.store.layout == "2"
        shown = f"{queue!r} {queue.options!r} {queue.stats()!r} {queue.store!r}"
        assert repr(KEY) not in shown
        assert KEY.hex() not in shown


def test_crc_is_of_size_and_payload(tmp_path: Path) -> None:
    raw = made(tmp_path / "q", "1", event(1)).read_bytes()[8:]
    assert zlib.crc32(raw[:-8]).to_bytes(4, "little") == raw[-8:-4]
