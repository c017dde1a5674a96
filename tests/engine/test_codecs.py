"""Codecs: objects in, objects out, and nothing but an error for hostile bodies."""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.engine import codecs
from penstock.options import CodecName

PLAIN: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("codec", "value"),
    [("bytes", b"\0a"), ("str", "ä"), ("json", {"a": [1, None]}), ("cbor", {"a": [1, b"b"]})],
)
def test_put_takes_an_object_and_value_gives_it_back(
    tmp_path: Path, codec: CodecName, value: object
) -> None:
    with penstock.Queue(tmp_path / "q", codec=codec) as queue:
        queue.put(value, tag="t")
        queue.put_many([value, value])
        assert [message.value for message in queue.peek(3)] == [value] * 3
        assert [message.value for message in queue.get_many(3)] == [value] * 3
        assert [message.value for message in queue.scan()] == [value] * 3


def test_without_a_codec_the_value_is_the_body(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put(b"a")
        assert queue.get(0).value == b"a"


class Doubler:
    def encode(self, value: int) -> bytes:
        return b"%d" % (value * 2)

    def decode(self, body: bytes) -> int:
        return int(body) // 2


def test_a_codec_of_one_s_own_needs_two_methods_only(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", codec=Doubler()) as queue:
        queue.put(21)
        message = queue.get(0)
        assert (message.body, message.value) == (b"42", 21)


@pytest.mark.parametrize("codec", ["pickle", object()])
def test_what_is_no_codec_is_refused(tmp_path: Path, codec: Any) -> None:
    with pytest.raises(penstock.OptionError, match="codec"):
        penstock.Queue(tmp_path / "q", codec=codec)


@pytest.mark.parametrize(
    ("codec", "value"),
    [("bytes", 1), ("str", b"a"), ("json", {1, 2}), ("json", float("nan")), ("cbor", object()),
     ("logrecord", "a")],
)  # fmt: skip
def test_an_object_without_bytes_is_refused_before_anything_is_put(
    tmp_path: Path, codec: CodecName, value: object
) -> None:
    with penstock.Queue(tmp_path / "q", codec=codec) as queue:
        with pytest.raises(penstock.CodecError, match=f"codec {codec}"):
            queue.put(value)
        assert len(queue) == 0


@given(body=st.binary(max_size=200), name=st.sampled_from(sorted(codecs.BY_NAME)))
def test_any_body_is_decoded_or_refused(body: bytes, name: str) -> None:
    codec = codecs.BY_NAME[name]()
    with contextlib.suppress(penstock.CodecError):
        codec.decode(body)


@pytest.mark.parametrize(("name", "opening"), [("json", b"["), ("cbor", b"\x81")])
def test_endless_nesting_is_refused(name: str, opening: bytes) -> None:
    with pytest.raises(penstock.CodecError):
        codecs.BY_NAME[name]().decode(opening * 100_000)


CBOR_TRAPS = {
    "a regular expression": b"\xd8\x23\x66(a+)+$",
    "a list in itself": b"\xd8\x1c\x81\xd8\x1d\x00",
    "a value to be shared": b"\xd8\x1c\x81\x01",
    "a reference to a value": b"\xd8\x1d\x00",
    "a reference to a text": b"\xd8\x19\x00",
    "texts that are referred to": b"\xd9\x01\x00\x82\x63abc\xd8\x19\x00",
}


@pytest.mark.parametrize("body", CBOR_TRAPS.values(), ids=CBOR_TRAPS)
def test_what_cbor_makes_out_of_little_is_refused(body: bytes) -> None:
    with pytest.raises(penstock.CodecError, match="codec cbor"):
        codecs.BY_NAME["cbor"]().decode(body)


def test_a_regular_expression_is_refused_before_it_is_put(tmp_path: Path) -> None:
    with penstock.Queue(tmp_path / "q", codec="cbor") as queue:
        with pytest.raises(penstock.CodecError, match="codec cbor"):
            queue.put({"a": re.compile("a")})
        assert len(queue) == 0


@given(value=PLAIN, name=st.sampled_from(["json", "cbor"]))
def test_plain_values_survive_the_journey(value: Any, name: str) -> None:
    codec = codecs.BY_NAME[name]()
    assert codec.decode(codec.encode(value)) == value


def test_a_log_record_keeps_what_matters() -> None:
    codec = codecs.LogRecordCodec()
    try:
        raise KeyError("k")
    except KeyError:
        record = logging.LogRecord("a.b", 30, "f.py", 7, "%s!", ("hi",), sys.exc_info())
    record.custom = {"x": object()}
    found = codec.decode(codec.encode(record))
    assert found is not None
    assert (found.name, found.levelno, found.getMessage(), found.lineno) == ("a.b", 30, "hi!", 7)
    assert "KeyError" in (found.exc_text or "")


def test_a_hostile_log_record_can_t_hide_methods() -> None:
    found = codecs.LogRecordCodec().decode(b'{"getMessage": 1, "msg": "m", "args": null}')
    assert found is not None
    assert found.getMessage() == "m"


@dataclass
class Line:
    name: str
    count: int = 1


@dataclass
class Order:
    id: int
    lines: list[Line] = field(default_factory=list)
    gift: Line | None = None
    by_name: dict[str, Line] = field(default_factory=dict)


def test_a_dataclass_is_its_own_codec(tmp_path: Path) -> None:
    order = Order(7, [Line("a"), Line("b", 2)], Line("c"), {"d": Line("d")})
    with penstock.Queue(tmp_path / "q", codec=Order) as queue:
        queue.put(order)
        queue.put(Order(8))
        assert [message.value for message in queue.scan()] == [order, Order(8)]
        with pytest.raises(penstock.CodecError, match="dict is no Order"):
            queue.put({"id": 7})
    with penstock.Queue(tmp_path / "q") as queue:
        for body in (b'{"id": 1, "colour": 2}', b"{}", b"[]", b'{"id": 1, "gift": 2}', b"no"):
            queue.put(body)
    with penstock.Queue(tmp_path / "q", codec=Order) as queue:
        for message in list(queue.scan())[2:]:
            with pytest.raises(penstock.CodecError):
                message.value  # noqa: B018


def test_a_msgspec_struct_is_its_own_codec(tmp_path: Path) -> None:
    msgspec = pytest.importorskip("msgspec")
    kind = msgspec.defstruct("Order", [("id", int), ("tags", list[str], ())])
    with penstock.Queue(tmp_path / "q", codec=kind) as queue:
        queue.put(kind(7, ["a"]))
        queue.put_many([kind(8)])
        assert [message.value.id for message in queue.scan()] == [7, 8]
        with pytest.raises(penstock.CodecError, match="is no Order"):
            queue.put({"id": 7})
    with penstock.Queue(tmp_path / "q") as queue:
        queue.put(b'{"id": "seven"}')
    with penstock.Queue(tmp_path / "q", codec=kind) as queue:
        wrong = list(queue.scan())[2]
    with pytest.raises(penstock.CodecError, match="int"):
        wrong.value  # noqa: B018


UNPICKLES_NOTHING = """
import _pickle, marshal, pickle, sys
import penstock
from penstock.formats import registry

def never(*_, **__):
    raise SystemExit("something was unpickled")

for module in (pickle, _pickle):
    module.loads = module.load = module.Unpickler = never
for format in registry.MODULES:
    path = f"{sys.argv[1]}/{format}" + (".bin" if format == "vqs" else "")
    size = {"max_bytes": 1 << 20} if format == "vqs" else {}
    with penstock.Queue(path, format=format, codec="json", durability="process", **size) as queue:
        group = queue.group("g", max_receives=1)
        queue.put_many([[number, pickle.dumps(number).hex()] for number in range(20)])
        queue.get(0).ack()
        group.get(0).nack()
        assert queue.verify().is_ok
        list(queue.scan())
    with penstock.Queue(path, create=False, read_only=True) as queue:
        queue.stats()
print("nothing")
"""


def test_no_queue_is_ever_unpickled(tmp_path: Path) -> None:
    asked = [sys.executable, "-c", UNPICKLES_NOTHING, str(tmp_path)]
    ran = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == "nothing\n", ran.stderr


def test_pickle_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(penstock.OptionError, match="could run code in every consumer"):
        penstock.Queue(tmp_path / "q", codec="pickle")  # type: ignore[arg-type]
    with pytest.raises(penstock.OptionError, match="a dataclass, a msgspec struct, or an object"):
        penstock.Queue(tmp_path / "q", codec=int)
    assert not (tmp_path / "q").exists()


def test_a_message_has_nothing_of_one_that_was_let_go_before_it(tmp_path: Path) -> None:
    with (
        penstock.Queue(tmp_path / "full", codec="json") as full,
        penstock.Queue(tmp_path / "bare") as bare,
    ):
        full.put({"n": 1}, tag="t", id="i", key="k", headers={"a": "1"})
        bare.put(b"bare")
        group, places = bare.group("auto", ack="auto"), set()
        for _ in range(3):
            message = full.get(0)
            assert (message.value, message.tag, message.receipt is None) == ({"n": 1}, "t", False)
            places.add(id(message))
            message.nack()
            del message
            message = group.get(0)
            places.add(id(message))
            assert (message.value, message.receipt, message.receives) == (b"bare", None, 0)
            assert (message.tag, message.id, message.key, message.headers) == (None, None, None, {})
            del message
            group.seek("earliest")
        assert len(places) < 6  # Or the memory is not used again, and nothing was looked at.


DEEP: Any = []
for _ in range(codecs.DEPTH_MAX + 1):
    DEEP = [DEEP]


@pytest.mark.parametrize("value", [{5: 1}, {(1, 2): 3}, {1, 2}, DEEP])
def test_what_no_consumer_may_decode_is_refused_before_it_is_put(
    tmp_path: Path, value: Any
) -> None:
    with penstock.Queue(tmp_path / "q", codec="cbor") as queue:
        with pytest.raises(penstock.CodecError, match="codec cbor: "):
            queue.put(value)
        with pytest.raises(penstock.CodecError, match="codec cbor: "):
            queue.put_many([{"n": 1}, value])
        assert len(queue) == 0


class Itself(dict[str, Any]):
    def __init__(self) -> None:
        super().__init__()
        self["self"] = self


@pytest.mark.parametrize("extra", [{(1, 2): "pair"}, Itself()])
def test_a_log_record_travels_with_extras_that_json_has_not(
    tmp_path: Path, extra: dict[Any, Any]
) -> None:
    with penstock.StandardQueue(tmp_path / "q", codec="logrecord") as records:
        record = logging.makeLogRecord({"msg": "paid", "order": extra, "customer": "anna"})
        records.put(record)
        found = records.get(timeout=0)
        assert (found.getMessage(), found.customer) == ("paid", "anna")
        assert found.order == repr(extra)


@dataclass
class Amount:
    cents: int
    of: Any = None

    def __post_init__(self) -> None:
        if self.cents < 0:
            raise ValueError("less than nothing")


def test_a_dataclass_that_refuses_its_values_or_is_no_tree_is_one_of_our_errors(
    tmp_path: Path,
) -> None:
    endless = Amount(1)
    endless.of = endless
    with penstock.Queue(tmp_path / "q", codec=Amount) as queue:
        for amount in (endless, Amount(1, of=contextlib.nullcontext)):
            with pytest.raises(penstock.CodecError, match=r"codec (Amount|json): "):
                queue.put(amount)
        penstock.Queue(tmp_path / "q").put(b'{"cents": -1}')
        message = queue.get(timeout=0)
        with pytest.raises(penstock.CodecError, match="codec Amount: less than nothing"):
            _ = message.value
