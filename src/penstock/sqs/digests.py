"""Message attributes: what may be in them, their size, their digest, and which ones were asked for.

A digest is an MD5 over the attributes in the order of their names:

    per attribute | u32 length, name | u32 length, data type | u8 kind | u32 length, value |

big-endian; kind 1 is text (String, Number), 2 is bytes (Binary). Clients compute it too and refuse
a message whose digest differs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.sqs import errors

Attributes = dict[str, dict[str, str]]
"""By name: `DataType`, and `StringValue` or `BinaryValue` (base64), as they travel and are kept."""

MOST = 10
NAME_MAX = 256
RESERVED = re.compile(r"(?i)(aws|amazon)\.")
NAME = re.compile(r"[\w.\-]+")
TYPE = re.compile(r"(String|Number|Binary)(\..*)?", re.DOTALL)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
FIT = "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
"""The characters that a message may have."""
FIT_BYTES = b"\t\n\r" + bytes(range(0x20, 0x100))
UNFIT_PAIRS = ("\ufffe".encode(), "\uffff".encode())
TRACE = "AWSTraceHeader"


def fit(text: str) -> bytes:
    """Text as UTF-8, or a refusal if it has a character that no message may have."""
    try:
        found = text.encode()
    except UnicodeEncodeError:
        found = b"\0"  # Half a character.
    if found.translate(None, FIT_BYTES) or (
        not found.isascii() and any(pair in found for pair in UNFIT_PAIRS)
    ):
        text = f"Invalid characters found. Valid unicode characters are {FIT}"
        raise errors.Refusal("InvalidMessageContents", text)
    return found


def body_digest(body: bytes) -> str:
    """What clients compare a body with."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def digest(attributes: Attributes) -> str:
    """What clients compare attributes with."""
    found = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        kind = attributes[name]["DataType"]
        is_binary = "BinaryValue" in attributes[name]
        for part in (name.encode(), kind.encode()):
            found.update(len(part).to_bytes(4, "big") + part)
        content = raw(attributes[name])
        found.update((b"\2" if is_binary else b"\1") + len(content).to_bytes(4, "big") + content)
    return found.hexdigest()


def raw(attribute: Mapping[str, str]) -> bytes:
    """An attribute's value as bytes."""
    if "BinaryValue" in attribute:
        return base64.b64decode(attribute["BinaryValue"])
    return attribute["StringValue"].encode()


def size(attributes: Attributes) -> int:
    """Bytes that count towards the size of a message."""
    if not attributes:
        return 0
    return sum(
        len(name.encode()) + len(one["DataType"].encode()) + len(raw(one))
        for name, one in attributes.items()
    )


def chosen(attributes: Attributes, wanted: Iterable[str]) -> Attributes:
    """Those that a receive asked for: all, by name, or by the start of their name."""
    exact, starts = set(), []
    for name in wanted:
        if name in ("All", "*", ".*"):
            return attributes
        if name.endswith(".*"):
            starts.append(name.removesuffix(".*"))
        exact.add(name)
    matching = tuple(starts)
    return {
        name: one
        for name, one in attributes.items()
        if name in exact or (matching and name.startswith(matching))
    }


def checked(given: Any) -> Attributes:
    """Message attributes from a request, or a refusal."""
    if given is None:
        return {}
    attributes = {name: _checked_one(name, one) for name, one in _mapping(given).items()}
    if len(attributes) > MOST:
        text = f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum"
        raise errors.invalid(f"{text} [{MOST}].")
    return attributes


def checked_system(given: Any) -> Attributes:
    """Those that belong to Amazon's own services: the trace header alone."""
    if given is None:
        return {}
    attributes = _mapping(given)
    for name, one in attributes.items():
        if name != TRACE:
            text = f"Message system attribute name '{name}' is invalid."
            raise errors.invalid(text)
        if not isinstance(one, dict) or one.get("DataType") != "String":
            text = f"The message system attribute '{name}' must have data type 'String'."
            raise errors.invalid(text)
    return {name: _checked_one(name, one, "system") for name, one in attributes.items()}


def _mapping(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise errors.Refusal("SerializationException", "MessageAttributes must be a map.")
    return given


def _checked_one(name: str, given: Any, kind: str = "user") -> dict[str, str]:
    _check_name(name)
    what = f"Message ({kind}) attribute '{name}'"
    if not isinstance(given, dict):
        raise errors.invalid(f"The message attribute '{name}' must contain non-empty data type.")
    data_type = given.get("DataType")
    if not data_type or not isinstance(data_type, str):
        raise errors.invalid(f"The message attribute '{name}' must contain non-empty data type.")
    match = TYPE.fullmatch(data_type)
    if match is None:
        text = f"The message attribute '{name}' has an invalid message attribute type, the set of"
        raise errors.invalid(f"{text} supported type prefixes is Binary, Number, and String.")
    if len(data_type.encode()) > NAME_MAX:
        raise errors.invalid(
            f"Message (user) attribute type must be shorter than {NAME_MAX} bytes."
        )
    if match[1] == "Binary":
        return {"DataType": data_type, "BinaryValue": _bytes_of(given, what)}
    return {"DataType": data_type, "StringValue": _text_of(given, what, match[1], name)}


def _check_name(name: str) -> None:
    if not name:
        raise errors.invalid("The request must contain non-empty message (user) attribute names.")
    if len(name) > NAME_MAX:
        text = f"Message (user) attribute name must be shorter than {NAME_MAX} bytes."
        raise errors.invalid(text)
    if RESERVED.match(name):
        text = "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'."
        raise errors.invalid(f"{text} These strings are reserved for internal use.")
    if name.startswith(".") or name.endswith(".") or ".." in name or not NAME.fullmatch(name):
        raise errors.invalid(
            "The message attribute name can contain A-Z, a-z, 0-9, underscore (_), hyphen (-), "
            "and period (.). The name must not start or end with a period (.), and must not have "
            "successive periods (.)."
        )


def _bytes_of(given: dict[str, Any], what: str) -> str:
    content = given.get("BinaryValue")
    if not content:
        raise errors.invalid(f"{what} must contain a non-empty value of type 'Binary'.")
    try:
        # As others would write the same bytes: clients may leave the end of base64 open.
        return base64.b64encode(base64.b64decode(content, validate=True)).decode()
    except (binascii.Error, ValueError, TypeError):
        text = f"{what}: BinaryValue is not base64"
        raise errors.Refusal("SerializationException", text) from None


def _text_of(given: dict[str, Any], what: str, base: str, name: str) -> str:
    content = given.get("StringValue")
    if not content:
        # Numbers are text on the wire, and Amazon says so.
        raise errors.invalid(f"{what} must contain a non-empty value of type 'String'.")
    if not isinstance(content, str):
        raise errors.Refusal("SerializationException", f"{what}: StringValue must be text.")
    if base == "Number" and not NUMBER.fullmatch(content.strip()):
        raise errors.invalid(
            f"Can't cast the value of message (user) attribute '{name}' to a number."
        )
    try:
        fit(content)
    except errors.Refusal as refusal:
        raise errors.invalid(refusal.message) from None  # Only of a body it is about contents.
    return content
