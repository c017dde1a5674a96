"""Who may call: signatures (AWS Signature Version 4), verified with botocore's own signer.

The signer is the one that clients use: it is given the request as it came, with the headers that
the client says it signed, and must come to the same signature. Without signatures only programs of
this host may call, and no web page that a browser of this host shows: see `check_local`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Set
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from penstock.records import dataclass
from penstock.sqs.errors import Refusal

SKEW = timedelta(minutes=15)
ALGORITHM = "AWS4-HMAC-SHA256"
AUTHORIZATION = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<key>[^/,\s]+)/(?P<date>\d{{8}})/(?P<region>[^/,\s]*)/"
    r"(?P<service>[^/,\s]+)/aws4_request,\s*SignedHeaders=(?P<headers>[^,\s]+),\s*"
    r"Signature=(?P<signature>[0-9a-fA-F]+)\s*"
)
SCOPE = re.compile(r"Credential=(?P<key>[^/,\s]+)/\d{8}/(?P<region>[^/,\s]*)/")
DATE_FORMAT = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Credentials({self.access_key!r})"

    @classmethod
    def generated(cls) -> Credentials:
        """A new one, that looks like Amazon's."""
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
        key = "AKIA" + "".join(secrets.choice(alphabet) for _ in range(16))
        return cls(key, base64.b64encode(secrets.token_bytes(30)).decode())


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request says about who sent it."""

    access_key: str
    region: str | None

    @property
    def sender(self) -> str:
        """What `SenderId` shows."""
        return sender_id(self.access_key)


@lru_cache(maxsize=256)
def sender_id(access_key: str) -> str:
    """Looks like the id of an IAM user; the same for the same key."""
    digest = hashlib.sha256(access_key.encode()).digest()
    return "AIDA" + base64.b32encode(digest).decode()[:17]


@lru_cache(maxsize=1024)
def _scope(text: str) -> Caller | None:
    match = SCOPE.search(text)
    return None if match is None else Caller(match["key"], match["region"])


def claimed(headers: Mapping[str, str], query: str) -> Caller:
    """Who the request says it is from; nobody has checked it."""
    found = _scope(headers.get("authorization") or "")
    if found is None and "X-Amz-Credential=" in query:
        parts = dict(parse_qsl(query)).get("X-Amz-Credential", "").split("/")
        found = Caller(parts[0], parts[2]) if len(parts) == 5 else None
    return found or Caller("anonymous", None)


@dataclass(frozen=True, slots=True)
class Signed:
    """A request, as much of it as a signature covers."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Verifier:
    """Knows the key pairs that may call."""

    def __init__(self, credentials: Mapping[str, str]) -> None:
        """Secrets by access key."""
        self._secrets = dict(credentials)

    def verify(self, request: Signed, now: datetime) -> Caller:
        """Who sent the request, or a refusal."""
        header = request.headers.get("authorization")
        if not header:
            raise Refusal(
                "MissingAuthenticationTokenException", "Request is missing Authentication Token"
            )
        match = AUTHORIZATION.fullmatch(header)
        if match is None:
            text = "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature'"
            raise Refusal("IncompleteSignatureException", f"{text} parameters of {ALGORITHM}.")
        secret = self._secrets.get(match["key"])
        if secret is None:
            text = "The security token included in the request is invalid."
            raise Refusal("UnrecognizedClientException", text)
        self._check_time(request.headers.get("x-amz-date"), match["date"], now)
        names = match["headers"].lower().split(";")
        if "host" not in names:
            text = "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization."
            raise Refusal("InvalidSignatureException", text)
        expected = _signature(request, names, match["region"], match["key"], secret)
        if not hmac.compare_digest(expected, match["signature"].lower()):
            raise Refusal(
                "InvalidSignatureException",
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method. Consult the service "
                "documentation for details.",
            )
        return Caller(match["key"], match["region"])

    def _check_time(self, text: str | None, day: str, now: datetime) -> None:
        try:
            signed_at = datetime.strptime(text or "", DATE_FORMAT).replace(tzinfo=UTC)
        except ValueError:
            raise Refusal(
                "IncompleteSignatureException", "X-Amz-Date must be in the ISO8601 basic format."
            ) from None
        if day != f"{signed_at:%Y%m%d}":
            text = "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date"
            raise Refusal("InvalidSignatureException", f"{text} from HTTP: {signed_at:%Y%m%d}")
        late, shown = now - SKEW, f"{signed_at:{DATE_FORMAT}}"
        if signed_at < late:
            raise Refusal(
                "InvalidSignatureException",
                f"Signature expired: {shown} is now earlier than {late:{DATE_FORMAT}} "
                f"({now:{DATE_FORMAT}} - 15 min.)",
            )
        if signed_at > now + SKEW:
            raise Refusal(
                "InvalidSignatureException",
                f"Signature not yet current: {shown} is still later than "
                f"{now + SKEW:{DATE_FORMAT}} ({now:{DATE_FORMAT}} + 15 min.)",
            )


def _signature(request: Signed, names: list[str], region: str, access_key: str, secret: str) -> str:
    """What the client's own signer would have written."""
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials as Pair

    claimed_hash = request.headers.get("x-amz-content-sha256")
    if claimed_hash not in (None, hashlib.sha256(request.body).hexdigest()):
        text = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise Refusal("InvalidSignatureException", text)
    copy: Any = AWSRequest(method=request.method, url=request.url, data=request.body)
    for name in names:
        if name not in request.headers:
            text = f"The request lacks the header '{name}', which its signature covers."
            raise Refusal("InvalidSignatureException", text)
        copy.headers[name] = request.headers[name]
    copy.context["timestamp"] = request.headers["x-amz-date"]
    signer: Any = _signer()(Pair(access_key, secret), "sqs", region)
    canonical = signer.canonical_request(copy)
    return str(signer.signature(signer.string_to_sign(copy, canonical), copy))


@lru_cache(maxsize=1)
def _signer() -> Any:
    """Botocore's signer, over the headers that the client signed and none besides."""
    from botocore.auth import SigV4Auth

    class Recomputing(SigV4Auth):  # type: ignore[misc]  # botocore has no types
        def headers_to_sign(self, request: Any) -> Any:
            return request.headers

    return Recomputing


LOCAL = ("localhost", "127.0.0.1", "[::1]", "::1")


def check_local(headers: Mapping[str, str], allowed: Set[str]) -> None:
    """A refusal for what a web page may have sent: nobody signs here, so anything it posts counts.

    A browser says where a request comes from; a page that had its own name point to this host
    (DNS rebinding) is told by the name it asks for.
    """
    host = re.sub(r":\d+$", "", headers.get("host") or "")
    if host.lower() not in allowed:
        text = f"The host {host!r} is not served without signatures: see --allow-host."
        raise Refusal("AccessDeniedException", text)
    site = headers.get("sec-fetch-site")
    if headers.get("origin") is not None or site not in (None, "none", "same-origin"):
        text = "Requests from web pages are not served without signatures."
        raise Refusal("AccessDeniedException", text)
