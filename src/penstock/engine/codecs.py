"""Codecs: from objects to bodies and back. `Queue(codec="json")`, `Queue(codec=Order)` for a
dataclass or a msgspec struct, or an object of your own.

There is none that runs code from the bytes it reads: no pickle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from penstock.errors import CodecError, OptionError

if TYPE_CHECKING:
    import logging

DEPTH_MAX = 64
"""How deeply a value may be nested that is decoded."""
COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
FORGIVING = json.JSONEncoder(separators=(",", ":"), default=repr).encode
"""Both encoders are made once: `json.dumps` makes one at every call that has options."""


@runtime_checkable
class Codec(Protocol):
    """What `codec=` takes besides a name."""

    def encode(self, value: Any) -> bytes:
        """The body for `value`; `CodecError` if there is none."""

    def decode(self, body: bytes) -> Any:
        """The value of `body`, which may come from anyone; `CodecError` if it is none."""


class BytesCodec:
    """Bodies as they are."""

    def encode(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return memoryview(value).tobytes()
        except TypeError as error:
            raise CodecError(f"codec bytes: {type(value).__name__} is not bytes") from error

    def decode(self, body: bytes) -> bytes:
        return body


class StrCodec:
    """Text as UTF-8."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise CodecError(f"codec str: {type(value).__name__} is not text")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise CodecError(f"codec str: {error}") from error

    def decode(self, body: bytes) -> str:
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise CodecError(f"codec str: {error}") from error


class JsonCodec:
    """JSON, compact."""

    def encode(self, value: Any) -> bytes:
        try:
            return COMPACT(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise CodecError(f"codec json: {error}") from error

    def decode(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"codec json: {error}") from error


def _refuse(*_: object) -> object:
    raise ValueError("references and regular expressions are not taken")


CBOR_LIMITS: dict[str, Any] = {
    "max_depth": DEPTH_MAX, "semantic_decoders": dict.fromkeys((25, 28, 29, 35, 256), _refuse),
}  # fmt: skip
"""Anyone may have sent a body. So values in it may not refer to each other by tags: few bytes could
stand for a huge value, or for one that contains itself. Nor may it have regular expressions: a
sender could choose one whose search never ends."""


class CborCodec:
    """CBOR, by the library cbor2, which must be installed."""

    def __init__(self) -> None:
        try:
            import cbor2
        except ImportError as error:
            raise OptionError(
                "codec", "cbor", "cbor2 to be installed (pip install cbor2)"
            ) from error
        self._library = cbor2

    def encode(self, value: Any) -> bytes:
        """The value as CBOR. It is read once here: a put of what no consumer may decode (other keys
        than text and bytes, deep nesting) would succeed, and each get of it would fail."""
        try:
            body: bytes = self._library.dumps(value, encoders={re.Pattern: _refuse})
        except (self._library.CBOREncodeError, ValueError, RecursionError) as error:
            raise CodecError(f"codec cbor: {error}") from error
        self.decode(body)
        return body

    def decode(self, body: bytes) -> Any:
        """The value. Keys are text or bytes, so that no sender can choose colliding hashes."""
        try:
            return self._library.loads(
                body, strict_hashable_types=True, allow_duplicate_keys=False, **CBOR_LIMITS
            )
        except (self._library.CBORDecodeError, ValueError, RecursionError) as error:
            raise CodecError(f"codec cbor: {error}") from error


class LogRecordCodec:
    """`logging.LogRecord` as JSON: for `QueueHandler` and `QueueListener`.

    The message is formatted and a traceback becomes text, as `QueueHandler` does; what JSON can't
    hold becomes its `repr`. `None`, the listener's sign to stop, travels too.
    """

    def encode(self, value: Any) -> bytes:
        if value is None:
            return b"null"
        import logging

        if not isinstance(value, logging.LogRecord):
            raise CodecError(f"codec logrecord: {type(value).__name__} is no LogRecord")
        kept = dict(vars(value))
        kept["msg"], kept["args"] = value.getMessage(), None
        if kept.pop("exc_info", None) and not kept.get("exc_text"):
            kept["exc_text"] = logging.Formatter().formatException(value.exc_info)  # type: ignore[arg-type]
        try:
            return FORGIVING(kept).encode()
        except (TypeError, ValueError, RecursionError):
            # A dict with keys that JSON has not, or a value that contains itself.
            return FORGIVING({name: _or_repr(found) for name, found in kept.items()}).encode()

    def decode(self, body: bytes) -> logging.LogRecord | None:
        """A record with these attributes; one that would hide a method is left out."""
        import logging

        found = JsonCodec().decode(body)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise CodecError(f"codec logrecord: found {type(found).__name__}, expected an object")
        for name in found.keys() & methods_of(logging.LogRecord):
            del found[name]
        return logging.makeLogRecord(found)


def _or_repr(value: Any) -> Any:
    try:
        FORGIVING(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


@cache
def methods_of(kind: type) -> frozenset[str]:
    """What every object of a class has, whatever was written into it."""
    return frozenset(dir(kind))


class DataclassCodec:
    """Objects of one dataclass as JSON objects: what its fields hold, dataclasses in them too."""

    kind: type

    def __init__(self, kind: type) -> None:
        from typing import get_type_hints

        self.kind, self._json, self._hints = kind, JsonCodec(), get_type_hints

    def encode(self, value: Any) -> bytes:
        import dataclasses

        if not isinstance(value, self.kind):
            name = type(value).__name__
            raise CodecError(f"codec {self.kind.__name__}: {name} is no {self.kind.__name__}")
        try:
            plain = dataclasses.asdict(value)  # type: ignore[call-overload]
        except (TypeError, RecursionError) as error:  # It copies, which not every value allows.
            raise CodecError(f"codec {self.kind.__name__}: {error}") from error
        return self._json.encode(plain)

    def decode(self, body: bytes) -> Any:
        """The object; `CodecError` when fields are missing, or there are others, or when the class
        refuses them."""
        value = self._json.decode(body)
        try:
            return self._built(self.kind, value)
        except (TypeError, ValueError, RecursionError) as error:
            raise CodecError(f"codec {self.kind.__name__}: {error}") from error

    def _built(self, hint: Any, value: Any) -> Any:
        import dataclasses
        from typing import get_args

        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            if not isinstance(value, dict):
                raise TypeError(f"found {type(value).__name__}, expected {hint.__name__}")
            hints = self._hints(hint)
            return hint(**{name: self._built(hints.get(name), v) for name, v in value.items()})
        inner = [one for one in get_args(hint) if dataclasses.is_dataclass(one)]
        if not inner or value is None:
            return value
        if isinstance(value, list):
            return [self._built(inner[0], one) for one in value]
        is_map = isinstance(value, dict) and getattr(hint, "__origin__", None) is dict
        if is_map:
            return {name: self._built(inner[-1], one) for name, one in value.items()}
        return self._built(inner[0], value)


class StructCodec:
    """Objects of one msgspec struct as JSON, checked against its types."""

    kind: type

    def __init__(self, kind: type) -> None:
        """A codec for the class `kind`. Such a class exists only where msgspec is installed."""
        import msgspec

        self.kind, self._encode = kind, msgspec.json.encode
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
        self._faults = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, self.kind):
            name = type(value).__name__
            raise CodecError(f"codec {self.kind.__name__}: {name} is no {self.kind.__name__}")
        try:
            return self._encode(value)
        except self._faults as error:
            raise CodecError(f"codec {self.kind.__name__}: {error}") from error

    def decode(self, body: bytes) -> Any:
        """The object, whose fields have the types they say."""
        try:
            return self._decode(body)
        except self._faults as error:
            raise CodecError(f"codec {self.kind.__name__}: {error}") from error


BY_NAME: dict[str, type[Codec]] = {
    "bytes": BytesCodec,
    "cbor": CborCodec,
    "json": JsonCodec,
    "logrecord": LogRecordCodec,
    "str": StrCodec,
}


NO_PICKLE = (
    "json, cbor, a dataclass or a msgspec struct: a pickle runs what its bytes say, so that "
    "every program that can write to the queue could run code in every consumer"
)


def find(codec: str | Codec | type | None) -> Codec | None:
    """The codec that a user named or passed; `None` if there was none."""
    if codec is None:
        return None
    if isinstance(codec, str):
        if codec not in BY_NAME:
            known = f"one of {', '.join(BY_NAME)}, a dataclass, a msgspec struct, or an object"
            raise OptionError("codec", codec, NO_PICKLE if codec == "pickle" else known)
        return BY_NAME[codec]()
    if isinstance(codec, type):
        if hasattr(codec, "__struct_fields__"):
            return StructCodec(codec)
        if hasattr(codec, "__dataclass_fields__"):
            return DataclassCodec(codec)
    elif isinstance(codec, Codec):
        return codec
    expected = "a dataclass, a msgspec struct, or an object with encode(value) and decode(body)"
    raise OptionError("codec", codec, expected)
