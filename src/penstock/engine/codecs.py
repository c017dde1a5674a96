"""Codecs: from objects to bodies and back. `Queue(codec="json")`, or an object of your own.

There is none that runs code from the bytes it reads: no pickle.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from penstock.errors import CodecError, OptionError

if TYPE_CHECKING:
    import logging

DEPTH_MAX = 100
"""Nesting that is decoded at most."""


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
        """`value` itself."""
        if isinstance(value, bytes):
            return value
        try:
            return memoryview(value).tobytes()
        except TypeError as error:
            raise CodecError(f"codec bytes: {type(value).__name__} is not bytes") from error

    def decode(self, body: bytes) -> bytes:
        """`body` itself."""
        return body


class StrCodec:
    """Text as UTF-8."""

    def encode(self, value: Any) -> bytes:
        """The text's bytes."""
        if not isinstance(value, str):
            raise CodecError(f"codec str: {type(value).__name__} is not text")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise CodecError(f"codec str: {error}") from error

    def decode(self, body: bytes) -> str:
        """The text."""
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise CodecError(f"codec str: {error}") from error


class JsonCodec:
    """JSON, compact."""

    def encode(self, value: Any) -> bytes:
        """The JSON text."""
        try:
            text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise CodecError(f"codec json: {error}") from error

    def decode(self, body: bytes) -> Any:
        """The value."""
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise CodecError(f"codec json: {error}") from error


class CborCodec:
    """CBOR, by the library cbor2, which must be installed."""

    def __init__(self) -> None:
        """Loads the library."""
        try:
            import cbor2
        except ImportError as error:
            raise OptionError(
                "codec", "cbor", "cbor2 to be installed (pip install cbor2)"
            ) from error
        self._library = cbor2

    def encode(self, value: Any) -> bytes:
        """The CBOR item."""
        try:
            return self._library.dumps(value)
        except (self._library.CBOREncodeError, ValueError, RecursionError) as error:
            raise CodecError(f"codec cbor: {error}") from error

    def decode(self, body: bytes) -> Any:
        """The value. Keys are text or bytes, so that nobody can choose colliding hashes."""
        try:
            return self._library.loads(
                body, max_depth=DEPTH_MAX, strict_hashable_types=True, allow_duplicate_keys=False
            )
        except (self._library.CBORDecodeError, ValueError, RecursionError) as error:
            raise CodecError(f"codec cbor: {error}") from error


class LogRecordCodec:
    """`logging.LogRecord` as JSON: for `QueueHandler` and `QueueListener`.

    The message is formatted and a traceback becomes text, as `QueueHandler` does; what JSON can't
    hold becomes its `repr`. `None`, the listener's sign to stop, travels too.
    """

    def encode(self, value: Any) -> bytes:
        """The record's attributes."""
        if value is None:
            return b"null"
        import logging

        if not isinstance(value, logging.LogRecord):
            raise CodecError(f"codec logrecord: {type(value).__name__} is no LogRecord")
        kept = dict(vars(value))
        kept["msg"], kept["args"] = value.getMessage(), None
        if kept.pop("exc_info", None) and not kept.get("exc_text"):
            kept["exc_text"] = logging.Formatter().formatException(value.exc_info)  # type: ignore[arg-type]
        return json.dumps(kept, separators=(",", ":"), default=repr).encode()

    def decode(self, body: bytes) -> logging.LogRecord | None:
        """A record with these attributes; one that would hide a method is left out."""
        import logging

        found = JsonCodec().decode(body)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise CodecError(f"codec logrecord: found {type(found).__name__}, expected an object")
        kept = {k: v for k, v in found.items() if not hasattr(logging.LogRecord, k)}
        return logging.makeLogRecord(kept)


BY_NAME: dict[str, type[Codec]] = {
    "bytes": BytesCodec,
    "cbor": CborCodec,
    "json": JsonCodec,
    "logrecord": LogRecordCodec,
    "str": StrCodec,
}


def find(codec: str | Codec | None) -> Codec | None:
    """The codec that a user named or passed; none for none."""
    if codec is None:
        return None
    if isinstance(codec, str):
        if codec not in BY_NAME:
            raise OptionError("codec", codec, f"one of {', '.join(BY_NAME)}, or an object")
        return BY_NAME[codec]()
    if isinstance(codec, Codec):
        return codec
    raise OptionError("codec", codec, "an object with encode(value) and decode(body)")
