"""Who may call: signatures (AWS Signature Version 4), verified with botocore's own signer.

The signer is the one that clients use: it is given the request as it came, with the headers that
the client says it signed, and must come to the same signature. As it takes longer than all the rest
of a request, the form that nearly every request has is computed here first; whatever does not match
so is judged by botocore. Without signatures only programs of this host may call, and no web page
that a browser of this host shows: see `check_local`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from penstock.records import dataclass
from penstock.sqs.connections import Request
from penstock.sqs.errors import Refusal

SKEW_S = 900
PRESIGNED_S_MAX = 604_800
PRESIGNED = "X-Amz-"
ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sqs"
CLAIM_MAX = 1000
"""Longer ones are not remembered."""
AUTHORIZATION = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<key>[^/,\s]+)/(?P<date>\d{{8}})/(?P<region>[^/,\s]*)/"
    r"[^/,\s]+/aws4_request,\s*SignedHeaders=(?P<headers>[^,\s]+),\s*"
)
SIGNATURE = re.compile(r"[0-9a-f]+", re.ASCII)
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_-]+)*/?", re.ASCII)
SCOPE = re.compile(r"Credential=(?P<key>[^/,\s]+)/\d{8}/(?P<region>[^/,\s]*)/")
DATE_FORMAT = "%Y%m%dT%H%M%SZ"
STAMP_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Credentials:
    """The access key and the secret key of one caller."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        """The access key alone: a log must not have the secret."""
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
        """The id of the caller that the attribute `SenderId` of a message shows."""
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
class Claim:
    """What a request says about its signature, the signature itself left out."""

    caller: Caller
    day: str
    names: tuple[str, ...]
    """The headers that are signed."""

    @property
    def scope(self) -> str:
        """What the key was made for."""
        return f"{self.day}/{self.caller.region}/{SERVICE}/aws4_request"


class Verifier:
    """Knows the key pairs that may call."""

    def __init__(self, credentials: Mapping[str, str]) -> None:
        """Secrets by access key."""
        self._secrets = dict(credentials)

    def verify(self, request: Request, now_s: float) -> Caller:
        """Who sent the request, or a refusal."""
        header = request.headers.get("authorization")
        if header:
            start, _, signature = header.rpartition("Signature=")
            claim = (_claim if len(start) <= CLAIM_MAX else _claim.__wrapped__)(start)
            stamp, url_query = request.headers.get("x-amz-date"), request.query
            _check_time(stamp, claim.day, now_s)
        elif f"{PRESIGNED}Signature=" in request.query:
            claim, stamp, signature, url_query = _presigned(request.query, now_s)
        else:
            raise Refusal(
                "MissingAuthenticationTokenException", "Request is missing Authentication Token"
            )
        self._check(request, claim, stamp or "", signature.strip().lower(), url_query)
        return claim.caller

    def _check(
        self, request: Request, claim: Claim, stamp: str, signature: str, url_query: str
    ) -> None:
        secret = self._secrets.get(claim.caller.access_key)
        if secret is None:
            text = "The security token included in the request is invalid."
            raise Refusal("UnrecognizedClientException", text)
        if "host" not in claim.names:
            text = "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization."
            raise Refusal("InvalidSignatureException", text)
        for name in claim.names:
            if name not in request.headers:
                text = f"The request lacks the header '{name}', which its signature covers."
                raise Refusal("InvalidSignatureException", text)
        body_hash = hashlib.sha256(request.body).hexdigest()
        if request.headers.get("x-amz-content-sha256", body_hash) != body_hash:
            text = "The provided 'x-amz-content-sha256' header does not match what was computed."
            raise Refusal("InvalidSignatureException", text)
        if not SIGNATURE.fullmatch(signature):
            raise _incomplete()
        if not url_query and PLAIN_PATH.fullmatch(request.path):
            quick = _quick_signature(request, claim, stamp, secret, body_hash)
            if hmac.compare_digest(quick, signature):
                return
        expected = _signature(request, claim, stamp, secret, url_query)
        if not hmac.compare_digest(expected, signature):
            raise Refusal(
                "InvalidSignatureException",
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method. Consult the service "
                "documentation for details.",
            )


def _incomplete() -> Refusal:
    text = "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature'"
    return Refusal("IncompleteSignatureException", f"{text} parameters of {ALGORITHM}.")


@lru_cache(maxsize=1024)
def _claim(text: str) -> Claim:
    """What stands before the signature. A client says the same all day."""
    match = AUTHORIZATION.fullmatch(text)
    if match is None:
        raise _incomplete()
    names = tuple(match["headers"].lower().split(";"))
    return Claim(Caller(match["key"], match["region"]), match["date"], names)


def _presigned(query: str, now_s: float) -> tuple[Claim, str, str, str]:
    """The claim, its time, the signature, and the query string that was signed."""
    said = dict(parse_qsl(query))
    if said.get(f"{PRESIGNED}Algorithm") != ALGORITHM:
        raise _incomplete()
    start = (
        f"{ALGORITHM} Credential={said.get(f'{PRESIGNED}Credential', '')}, "
        f"SignedHeaders={said.get(f'{PRESIGNED}SignedHeaders', '')}, "
    )
    claim = _claim.__wrapped__(start)
    stamp, lifetime = said.get(f"{PRESIGNED}Date", ""), said.get(f"{PRESIGNED}Expires", "")
    if not re.fullmatch(r"\d{1,6}", lifetime, re.ASCII) or int(lifetime) > PRESIGNED_S_MAX:
        text = f"X-Amz-Expires must be a number of seconds, at most {PRESIGNED_S_MAX}."
        raise Refusal("IncompleteSignatureException", text)
    _check_time(stamp, claim.day, now_s, int(lifetime))
    rest = "&".join(one for one in query.split("&") if not one.startswith(f"{PRESIGNED}Signature="))
    return claim, stamp, said[f"{PRESIGNED}Signature"], rest


@lru_cache(maxsize=1024)
def _seconds(stamp: str) -> int:
    """A time in the format of signatures, since 1970."""
    if len(stamp) != STAMP_LENGTH:
        raise ValueError(stamp)
    return int(datetime.strptime(stamp, DATE_FORMAT).replace(tzinfo=UTC).timestamp())


def _check_time(stamp: str | None, day: str, now_s: float, lifetime_s: int = SKEW_S) -> None:
    try:
        signed_s = _seconds(stamp or "")
    except ValueError:
        raise Refusal(
            "IncompleteSignatureException", "X-Amz-Date must be in the ISO8601 basic format."
        ) from None
    shown = stamp or ""
    if day != shown[:8]:
        text = "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date"
        raise Refusal("InvalidSignatureException", f"{text} from HTTP: {shown[:8]}")
    if signed_s < now_s - lifetime_s:
        raise Refusal(
            "InvalidSignatureException",
            f"Signature expired: {shown} is now earlier than {_shown(now_s - lifetime_s)} "
            f"({_shown(now_s)} - {lifetime_s // 60} min.)",
        )
    if signed_s > now_s + SKEW_S:
        raise Refusal(
            "InvalidSignatureException",
            f"Signature not yet current: {shown} is still later than "
            f"{_shown(now_s + SKEW_S)} ({_shown(now_s)} + {SKEW_S // 60} min.)",
        )


def _shown(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):{DATE_FORMAT}}"


@lru_cache(maxsize=64)
def _key(secret: str, day: str, region: str) -> hmac.HMAC:
    """What a client signs with all day: an HMAC that has taken in the key, to be copied."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, digestmod="sha256")


def _quick_signature(
    request: Request, claim: Claim, stamp: str, secret: str, body_hash: str
) -> str:
    """The signature of a request as nearly every client writes it: a plain path, no query, headers
    without blanks to fold. What it does not match is left to botocore."""
    headers = request.headers
    lines = "\n".join([f"{name}:{headers[name]}" for name in claim.names])
    signed = ";".join(claim.names)
    canonical = f"{request.method}\n{request.path}\n\n{lines}\n\n{signed}\n{body_hash}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{ALGORITHM}\n{stamp}\n{claim.scope}\n{digest}"
    # A copy, because making the key ready anew takes longer than the text.
    signing = _key(secret, claim.day, claim.caller.region or "").copy()
    signing.update(text.encode())
    return signing.hexdigest()


def _signature(request: Request, claim: Claim, stamp: str, secret: str, url_query: str) -> str:
    """What the client's own signer would have written."""
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials as Pair

    url = f"http://{request.headers.get('host')}{request.path}"
    url += f"?{url_query}" if url_query else ""
    copy: Any = AWSRequest(method=request.method, url=url, data=request.body)
    for name in claim.names:
        copy.headers[name] = request.headers[name]
    copy.context["timestamp"] = stamp
    signer: Any = _signer()(Pair(claim.caller.access_key, secret), SERVICE, claim.caller.region)
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
