"""The two protocols: how a request is read, and how an answer is written.

A request in either protocol becomes the same dictionary, spelled as JSON spells it, and an answer
is written from one; actions never know which protocol was spoken. JSON 1.0 needs no table. The
Query protocol flattens everything into `Name.1.Part=text`: the tables below say which names are
lists, maps or numbers, and how lists are called in XML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from penstock.records import dataclass
from penstock.sqs.errors import Refusal

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
JSON_TYPE = "application/x-amz-json-1.0"
XML_TYPE = "text/xml"
TARGET = "AmazonSQS."
DECODER, ENCODER = msgspec.json.Decoder(), msgspec.json.Encoder()
FORM_FIELDS_MAX = 4000
INDEX_MAX = 1000

Parameters = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server sends back to a client."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Protocol:
    """One of the two protocols of SQS: how requests are read and answers are written."""

    name: str
    success: Callable[[str, Parameters, str], Answer]
    """Takes the name of the action, what it answers, and the request's id."""
    refusal: Callable[[Refusal, str], Answer]


# ── JSON 1.0 ───────────────────────────────────────────────────────────────────────────────────


def from_json(body: bytes) -> Parameters:
    """The parameters in a JSON body."""
    try:
        found = _decoded(body or b"{}")
    except (ValueError, RecursionError):
        raise Refusal("SerializationException", "The request body is not JSON.") from None
    if not isinstance(found, dict):
        raise Refusal("SerializationException", "The request body must be a JSON object.")
    return {name: value for name, value in found.items() if value is not None}


def _decoded(body: bytes) -> Any:
    try:
        return DECODER.decode(body)
    except msgspec.DecodeError:
        return json.loads(body)  # It is less strict: about half a character, for one.


def _encoded(found: Parameters) -> bytes:
    try:
        return ENCODER.encode(found)
    except UnicodeEncodeError:
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        # What a client sent and is told again may not be text: half a character, escaped in JSON.
        return text.encode("utf-8", "backslashreplace")


def _json_success(action: str, found: Parameters, request_id: str) -> Answer:
    headers = [("content-type", JSON_TYPE), ("x-amzn-requestid", request_id)]
    return Answer(200, headers, _encoded(found))


def _json_refusal(refusal: Refusal, request_id: str) -> Answer:
    shape = f"{refusal.namespace}#{refusal.shape}"
    headers = [
        ("content-type", JSON_TYPE),
        ("x-amzn-query-error", f"{refusal.code};{refusal.fault}"),
        ("x-amzn-requestid", request_id),
    ]
    body = _encoded({"__type": shape, "message": refusal.message})
    return Answer(refusal.status, headers, body)


JSON = Protocol("json", _json_success, _json_refusal)


# ── Query ──────────────────────────────────────────────────────────────────────────────────────

LISTS = {
    "AttributeName": "AttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "TagKey": "TagKeys",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
}
"""Lists of text: `AttributeName.1=All`."""
MAPS = {
    "Attribute": ("Attributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
    "Tags": ("Tags", "Key", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
}
"""Maps: `Tag.1.Key=a`, `Tag.1.Value=b`."""
BATCHES = {
    "SendMessageBatchRequestEntry",
    "DeleteMessageBatchRequestEntry",
    "ChangeMessageVisibilityBatchRequestEntry",
}
INTEGERS = {
    "DelaySeconds", "MaxNumberOfMessages", "VisibilityTimeout", "WaitTimeSeconds", "MaxResults",
    "MaxNumberOfMessagesPerSecond",
}  # fmt: skip
LOWER_TAGS = {"CreateQueue"}
"""Where the map of tags is called `tags`."""


def from_form(text: str) -> Parameters:
    """The parameters of a form, or of a query string, as flat text."""
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"
        )
    except ValueError:  # Also what is not UTF-8.
        raise Refusal("SerializationException", "The request body is not a form.") from None
    return dict(pairs)


def from_query(flat: Parameters) -> Parameters:
    """The parameters as JSON would have them."""
    action = flat.get("Action", "")
    nested: Parameters = {}
    for name, value in flat.items():
        _enter(nested, name.split("."), value)
    found = _as_json(nested)
    if action in LOWER_TAGS and "Tags" in found:
        found["tags"] = found.pop("Tags")
    return {name: value for name, value in found.items() if name not in ("Action", "Version")}


def _enter(nested: Parameters, names: list[str], value: str) -> None:
    """`A.1.B` becomes `{"A": {"1": {"B": …}}}`."""
    for name in names[:-1]:
        inner = nested.setdefault(name, {})
        if not isinstance(inner, dict):
            return  # `A=1&A.1=2`: what came first counts.
        nested = inner
    if not isinstance(nested.get(names[-1]), dict):
        nested[names[-1]] = value


def _as_json(nested: Parameters) -> Parameters:
    found: Parameters = {}
    for name, value in nested.items():
        if name in LISTS:
            found[LISTS[name]] = [value] if isinstance(value, str) else _in_order(value)
        elif name in MAPS and isinstance(value, dict):
            as_name, key, content = MAPS[name]
            found.setdefault(as_name, {}).update(_map_of(value, key, content))
        elif name in BATCHES and isinstance(value, dict):
            found["Entries"] = [_as_json(one) for one in _in_order(value) if isinstance(one, dict)]
        elif name in INTEGERS:
            found[name] = _integer(name, value)
        else:
            found[name] = value
    return found


def _in_order(numbered: Any) -> list[Any]:
    """`{"2": b, "1": a}` as `[a, b]`; a list may also be spelled `Name.member.1`."""
    if isinstance(numbered.get("member"), dict):
        numbered = numbered["member"]
    known = [number for number in numbered if number.isascii() and number.isdecimal()]
    return [numbered[number] for number in sorted(known, key=int)[:INDEX_MAX]]


def _map_of(numbered: Parameters, key: str, content: str) -> Parameters:
    # `Attribute.Name=X&Attribute.Value=Y` is one, without a number.
    rows = [numbered] if key in numbered else _in_order(numbered)
    return {
        row[key]: row.get(content, "") for row in rows if isinstance(row, dict) and row.get(key)
    }


def _integer(name: str, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII):
        return int(value)
    text = f"Value {value} for parameter {name} is invalid. Reason: Must be an integer."
    raise Refusal("InvalidParameterValueException", text)


ELEMENTS = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Results": "Result",
}
"""How a list's elements are called; they stand in the result itself, without an element around."""
RESULTS = {
    "SendMessageBatch": "SendMessageBatchResultEntry",
    "DeleteMessageBatch": "DeleteMessageBatchResultEntry",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibilityBatchResultEntry",
}
XML_MAPS = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
}
BARE = {
    "AddPermission", "ChangeMessageVisibility", "DeleteMessage", "DeleteQueue", "PurgeQueue",
    "RemovePermission", "SetQueueAttributes", "TagQueue", "UntagQueue",
}  # fmt: skip
"""Actions that answer nothing: there is no result, not even an empty one."""


def _query_success(action: str, found: Parameters, request_id: str) -> Answer:
    inside = "".join(_element(action, name, value) for name, value in found.items())
    result = "" if action in BARE else f"<{action}Result>{inside}</{action}Result>"
    body = (
        f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">{result}'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{action}Response>"
    )
    return _xml(200, body, request_id)


def _element(action: str, name: str, value: Any) -> str:
    if name in XML_MAPS and isinstance(value, dict):
        element, key, content = XML_MAPS[name]
        rows = (
            f"<{key}>{_escaped(one)}</{key}>{_element(action, content, inner)}"
            for one, inner in value.items()
        )
        return "".join(f"<{element}>{row}</{element}>" for row in rows)
    if isinstance(value, dict):
        inside = "".join(_element(action, one, inner) for one, inner in value.items())
        return f"<{name}>{inside}</{name}>"
    if isinstance(value, list):
        element = ELEMENTS.get(name, name)
        if name == "Successful":
            element = RESULTS.get(action, name)
        elif name == "Failed":
            element = "BatchResultErrorEntry"
        return "".join(_element(action, element, one) for one in value)
    if isinstance(value, bool):
        value = "true" if value else "false"
    return f"<{name}>{_escaped(str(value))}</{name}>"


CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def _escaped(text: str) -> str:
    """Text for XML. A carriage return would become a line feed in any reader."""
    return escape(CONTROLS.sub("\ufffd", text), {"\r": "&#xD;", '"': "&quot;"})


def _query_refusal(refusal: Refusal, request_id: str) -> Answer:
    if refusal.shape == "NoAction":  # Amazon says no more than this.
        return _xml(refusal.status, f"<{refusal.code}/>", request_id)
    body = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error>'
        f"<Type>{refusal.fault}</Type><Code>{refusal.code}</Code>"
        f"<Message>{_escaped(refusal.query_message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return _xml(refusal.status, body, request_id)


def _xml(status: int, body: str, request_id: str) -> Answer:
    headers = [("content-type", XML_TYPE), ("x-amzn-requestid", request_id)]
    return Answer(status, headers, body.encode("utf-8", "replace"))


QUERY = Protocol("query", _query_success, _query_refusal)
