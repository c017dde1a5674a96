"""HTTP/1.1: connections, and requests that are whole before anyone sees them.

httptools parses (it is the parser of Node.js), an event loop reads and writes. There is no
framework between the two: with one (granian and uvicorn were measured) HTTP took three times as
long. What a client may cost is bounded: bytes of a head, bytes of a body, the time for either,
requests that it sends ahead, and how many clients there are. So are the bodies of all clients
together.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import socket
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import httptools

from penstock.errors import PenstockError
from penstock.records import dataclass

HEAD_BYTES_MAX = 64 << 10
FRAMING_BYTES_MAX = 256 << 10
"""For the head, and for the sizes of chunks and the headers behind them."""
HEAD_S_MAX = 60.0
"""For the head of a request, and so for a connection that asks nothing."""
BODY_BYTES_MAX = 8 << 20
"""A megabyte of message, each byte of it escaped, and what stands around it."""
ALL_BODIES_BYTES_MAX = 512 << 20
"""The limit for all clients together: many with large bodies can't take all memory."""
BODY_S_MAX = 30.0
CONNECTIONS_MAX = 4096
BACKLOG = 1024
SWEEP_S = 1.0
STOP_S = 10.0
"""How long requests that are under way may take when the server ends."""

LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}  # fmt: skip
NAMES: dict[bytes, str] = {}
"""Names of headers as text: clients send the same few again and again."""
NAMES_MAX = 1000


@dataclass(slots=True)
class Request:
    """A request, all of it."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    """By name in lower case; what came twice is joined by commas."""
    body: bytes
    client: str
    is_last: bool
    """The client, or HTTP/1.0, wants the connection closed after the answer."""


class AddressError(PenstockError, OSError):
    """Nobody can listen there; another address may do."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        """What the operating system said about it."""
        known = {
            errno.EADDRINUSE: "is in use: stop who listens there, or choose another port",
            errno.EADDRNOTAVAIL: "is no address of this machine",
            errno.EACCES: "is not for this user: choose a port from 1024 on",
        }
        if isinstance(error, socket.gaierror):
            text = "is no address of this machine"
        else:
            text = known.get(error.errno or 0, f"can't be listened on: {error}")
        super().__init__(f"{host}:{port} {text}")
        self.errno: int | None = error.errno


class Connection(asyncio.Protocol):
    """One client. It is answered one request at a time, in order."""

    deadline_s: float
    work: asyncio.Future[Any] | None

    def __init__(self, listener: Listener) -> None:
        """Nothing has come yet."""
        self._listener = listener
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._client = ""
        self._is_head, self._body_bytes = True, 0
        self._other_bytes, self._taken_bytes, self._has_ended = 0, 0, False
        """Bytes besides the body; of bodies in this piece; whether a request ended in it."""
        self._url, self._headers, self._body = b"", {}, []  # type: ignore[var-annotated]
        self._held_bytes = 0
        """The bytes of bodies that have come and are not answered."""
        self._ahead: deque[Request] = deque()
        self._now: Request | None = None
        self._is_over = self._is_full = False
        self.deadline_s = listener.now_s + HEAD_S_MAX
        self.work = None
        """What the answer waits for: cancelled when the client hangs up."""

    # ── the transport ──────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._client = f"{peer[0]}:{peer[1]}" if peer else ""
        if not self._listener.enter(self):
            self._refuse(503)

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone: what it had asked for is given up."""
        self._is_over = True
        self._ahead.clear()
        self._let_go(self._held_bytes)
        self._listener.leave(self)
        if self.work is not None:
            self.work.cancel()

    def pause_writing(self) -> None:
        """The client does not read its answers: it gets no further ones."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The client reads again: the next answer may be sent."""
        self._is_full = False
        self._next()

    def data_received(self, data: bytes) -> None:
        """Parses what the client has sent."""
        if self._is_over:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # Nothing else is spoken here: the request is answered, and is the last one.
        except httptools.HttpParserError:
            self._refuse(400)
        self._count(len(data))

    def _count(self, data_bytes: int) -> None:
        """Bounds what a request takes besides its body: its head, and what chunks and trailers say.

        What follows the end of a request in the same piece is not counted, as it is one piece.
        """
        self._other_bytes += data_bytes - self._taken_bytes
        if self._has_ended:
            self._other_bytes = 0
        self._has_ended, self._taken_bytes = False, 0
        if self._other_bytes > (HEAD_BYTES_MAX if self._is_head else FRAMING_BYTES_MAX):
            self._refuse(431 if self._is_head else 413)

    # ── the parser ─────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """Called by the parser at the beginning of a request."""
        self._is_head, self._body_bytes = True, 0
        self._url, self._headers, self._body = b"", {}, []

    def on_url(self, url: bytes) -> None:
        """A part of its URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. What comes after the body says nothing: it could change what was signed."""
        if not self._is_head:
            return
        known = NAMES.get(name) or _named(name)
        text = value.decode("latin-1")
        headers = self._headers
        if known in headers:
            if known == "host":
                self._refuse(400)  # Which of them was meant is anyone's guess.
            text = f"{headers[known]},{text}"
        headers[known] = text

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_head = False
        self.deadline_s = self._listener.now_s + BODY_S_MAX
        length = self._headers.get("content-length")
        if length is not None and int(length) > BODY_BYTES_MAX:
            self._refuse(413)
        elif self._headers.get("expect", "").lower() == "100-continue" and not self._is_over:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, piece: bytes) -> None:
        """A part of the body."""
        self._body_bytes += len(piece)
        self._taken_bytes += len(piece)
        if self._body_bytes > BODY_BYTES_MAX:
            self._body = []
            self._refuse(413)
        elif not self._is_over:
            self._body.append(piece)
            self._held_bytes += len(piece)
            self._listener.held_bytes += len(piece)
            if self._listener.held_bytes > ALL_BODIES_BYTES_MAX:
                self._body = []
                self._refuse(503)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._is_over:
            return
        self._is_head = self._has_ended = True
        url, _, query = self._url.decode("latin-1").partition("?")
        is_last = not self._parser.should_keep_alive() or self._parser.should_upgrade()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        request = Request(
            self._parser.get_method().decode("latin-1"), url if url[:1] == "/" else _path(url),
            query, self._headers, body, self._client, is_last,
        )  # fmt: skip
        self._body = []
        if self._now is None and not self._is_full:
            self._begin(request)
        else:
            self._ahead.append(request)
            self._transport.pause_reading()

    # ── answers ────────────────────────────────────────────────────────────────────────────

    def _begin(self, request: Request) -> None:
        self._now, self.deadline_s = request, math.inf
        self._listener.application(request, self)

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Sends the answer to the request that is being worked on."""
        request, self._now, self.work = self._now, None, None
        if self._is_over or request is None:
            return
        self._let_go(len(request.body))
        listener = self._listener
        self.deadline_s = listener.now_s + HEAD_S_MAX
        is_last = request.is_last or listener.is_stopping
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        close = "connection: close\r\n" if is_last else ""
        head = f"{LINES[status]}{lines}{close}{listener.date}content-length: {len(body)}\r\n\r\n"
        encoded = head.encode("latin-1", "replace")
        self._transport.write(encoded if request.method == "HEAD" else encoded + body)
        if is_last:
            self._end()
        elif self._ahead:
            self._listener.loop.call_soon(self._next)

    def _next(self) -> None:
        if self._ahead and self._now is None and not self._is_over and not self._is_full:
            self._begin(self._ahead.popleft())
            if not self._ahead and not self._is_over:
                self._transport.resume_reading()

    def _refuse(self, status: int) -> None:
        """An answer without a request: what came is none, or too much of one."""
        if self._is_over:
            return
        if self._now is None:
            head = f"{LINES[status]}connection: close\r\ncontent-length: 0\r\n\r\n"
            self._transport.write(head.encode())
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._ahead.clear()
        self._transport.close()

    def _let_go(self, body_bytes: int) -> None:
        self._held_bytes -= body_bytes
        self._listener.held_bytes -= body_bytes

    def expire(self) -> None:
        """Time is up: for a head, for a body, or for an answer that nobody reads."""
        if not self._is_head:
            self._refuse(408)
        elif self._transport.get_write_buffer_size():
            self.abort()
        else:
            self._end()

    def abort(self) -> None:
        """At once, whatever is still to be sent."""
        self._is_over = True
        self._transport.abort()

    def end_if_idle(self) -> None:
        """The server ends, after requests that are being answered have their answer."""
        if self._now is None and not self._is_over:
            self._end()


def _named(name: bytes) -> str:
    text = name.decode("latin-1").lower()
    if len(NAMES) < NAMES_MAX:
        NAMES[name] = text
    return text


def _path(url: str) -> str:
    """The path in a URL that has the host in it, as proxies send it."""
    try:
        return (httptools.parse_url(url.encode("latin-1")).path or b"/").decode("latin-1")
    except httptools.HttpParserInvalidURLError:
        return "/"


Application = Callable[[Request, Connection], None]


class Listener:
    """A socket that listens, and everyone who came by it."""

    application: Application
    date: str
    held_bytes: int
    """The bytes of all clients' bodies that have come and are not answered."""
    is_stopping: bool
    loop: asyncio.AbstractEventLoop
    now_s: float
    port: int

    def __init__(self, application: Application) -> None:
        """Needs the running event loop. Nobody can come yet: see `open`."""
        self.application, self.loop = application, asyncio.get_running_loop()
        self.is_stopping, self.port, self.held_bytes = False, 0, 0
        self._connections: set[Connection] = set()
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep()

    async def open(self, host: str, port: int) -> None:
        """Listens, there too if it does already. A port that is taken is an error."""
        try:
            server = await self.loop.create_server(
                lambda: Connection(self), host, port, backlog=BACKLOG, reuse_port=False
            )
        except OSError as error:
            raise AddressError(host, port, error) from error
        self._servers.append(server)
        self.port = self.port or server.sockets[0].getsockname()[1]

    def enter(self, connection: Connection) -> bool:
        """A client has come; false: there are too many."""
        if len(self._connections) >= CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        self._nobody.clear()
        return True

    def leave(self, connection: Connection) -> None:
        """Takes a connection that has ended off the list."""
        self._connections.discard(connection)
        if not self._connections:
            self._nobody.set()

    def _sweep(self) -> None:
        """Hangs up on those whose time is up. One timer for all: a request sets none."""
        self.now_s = self.loop.time()
        self.date = f"date: {formatdate(time.time(), usegmt=True)}\r\n"
        for connection in [one for one in self._connections if one.deadline_s < self.now_s]:
            connection.expire()
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)

    def stop_listening(self) -> None:
        """Nobody new; those who ask nothing are let go."""
        self.is_stopping = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.end_if_idle()

    async def close(self) -> None:
        """Returns when everyone has an answer, or took too long."""
        self.stop_listening()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nobody.wait(), STOP_S)
        for connection in list(self._connections):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
