"""Two small clients, written from the protocols and not from the server: one for each."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import urlencode
from xml.etree import ElementTree

AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential={key}/20260101/{region}/sqs/aws4_request, "
    "SignedHeaders=host, Signature=00"
)


def until(is_so: Callable[[], bool]) -> None:
    """Asks until it is so: each question is a request, and takes a moment."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it never was"


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, shape: str | None, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.shape, self.code, self.message = status, shape, code, message


class Speaker:
    """One connection."""

    def __init__(self, port: int, *, region: str = "us-east-1", key: str = "test") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.authorization = AUTHORIZATION.format(key=key, region=region)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def post(
        self, body: bytes, headers: dict[str, str], path: str = "/", method: str = "POST"
    ) -> tuple[int, dict[str, str], bytes]:
        headers = {"Authorization": self.authorization, **headers}
        try:
            answer = self._ask(method, path, body, headers)
        except (BrokenPipeError, http.client.RemoteDisconnected, ConnectionResetError):
            # The server hangs up on who asks nothing for a while: so every client asks again.
            self.connection.close()
            answer = self._ask(method, path, body, headers)
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read()

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        self.connection.request(method, path, body, headers)
        return self.connection.getresponse()


class Json(Speaker):
    """JSON 1.0."""

    def __call__(self, action: str, **parameters: Any) -> Any:
        status, headers, body = self.raw(action, parameters)
        found = json.loads(body)
        assert headers["content-type"] == "application/x-amz-json-1.0"
        assert headers["x-amzn-requestid"]
        if status == 200:
            return found
        code, _, fault = headers["x-amzn-query-error"].partition(";")
        assert fault in ("Sender", "Receiver")
        raise Refused(status, found["__type"].rpartition("#")[2], code, found["message"])

    def raw(
        self, action: str, parameters: Any, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        target = f"AmazonSQS.{action}"
        usual = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": target}
        return self.post(json.dumps(parameters).encode(), usual | headers)


LISTS = {
    "AttributeNames": "AttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "TagKeys": "TagKey",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
}
MAPS = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name"),
    "Tags": ("Tag", "Key"),
    "tags": ("Tag", "Key"),
}


class Query(Speaker):
    """Forms and XML. Answers have the shape of JSON's."""

    def __call__(self, action: str, **parameters: Any) -> Any:
        flat = {"Action": action, "Version": "2012-11-05", **flattened(action, parameters)}
        form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        status, headers, body = self.post(urlencode(flat).encode(), form)
        assert headers["content-type"].startswith("text/xml")
        root = ElementTree.fromstring(re.sub(rb' xmlns="[^"]*"', b"", body, count=1))
        if status != 200:
            error = root.find("Error")
            assert root.tag == "ErrorResponse"
            assert error is not None
            assert error.findtext("Type") in ("Sender", "Receiver")
            code, message = error.findtext("Code") or "", error.findtext("Message") or ""
            raise Refused(status, None, code, message)
        assert root.tag == f"{action}Response"
        assert root.findtext("ResponseMetadata/RequestId")
        return read(root.find(f"{action}Result"))


def flattened(action: str, parameters: dict[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in parameters.items():
        if name in LISTS:
            flat |= {f"{LISTS[name]}.{at}": one for at, one in enumerate(value, 1)}
        elif name in MAPS:
            element, key = MAPS[name]
            for at, (one, inner) in enumerate(value.items(), 1):
                flat[f"{element}.{at}.{key}"] = one
                parts = inner if isinstance(inner, dict) else {"": inner}
                for part, text in parts.items():
                    flat[f"{element}.{at}.Value{'.' if part else ''}{part}"] = text
        elif name == "Entries":
            for at, entry in enumerate(value, 1):
                inner = flattened(action, entry)
                flat |= {f"{action}RequestEntry.{at}.{one}": inner[one] for one in inner}
        else:
            flat[name] = str(value)
    return flat


GROUPED = {
    "QueueUrl": "QueueUrls",
    "Message": "Messages",
    "Result": "Results",
    "BatchResultErrorEntry": "Failed",
    "SendMessageBatchResultEntry": "Successful",
    "DeleteMessageBatchResultEntry": "Successful",
    "ChangeMessageVisibilityBatchResultEntry": "Successful",
}
NAMED = {"Attribute": "Attributes", "MessageAttribute": "MessageAttributes", "Tag": "Tags"}
SINGLE = {"CreateQueueResult", "GetQueueUrlResult"}


def read(element: ElementTree.Element | None) -> Any:
    if element is None:
        return {}
    if len(element) == 0 and not element.tag.endswith("Result"):
        text = element.text or ""
        return (
            {"true": True, "false": False}.get(text, text) if element.tag == "SenderFault" else text
        )
    found: dict[str, Any] = {}
    for inner in element:
        if inner.tag in NAMED:
            key = inner.findtext("Name") or inner.findtext("Key") or ""
            found.setdefault(NAMED[inner.tag], {})[key] = read(inner.find("Value"))
        elif (
            inner.tag in GROUPED
            and element.tag not in SINGLE
            and (inner.tag != "Message" or len(inner))
        ):
            found.setdefault(GROUPED[inner.tag], []).append(read(inner))
        else:
            found[inner.tag] = read(inner)
    return found
