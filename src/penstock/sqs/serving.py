"""The server: an event loop in a thread of its own.

with penstock.sqs.server() as endpoint:
    boto3.client("sqs", **endpoint.client_options)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import _core
from penstock import clock as clocks
from penstock.disk import files
from penstock.engine import kept_files, optional_packages
from penstock.errors import FormatError, OptionError, PenstockError, StorageError
from penstock.formats import registry
from penstock.records import dataclass
from penstock.sqs.auth import LOCAL, Credentials, Verifier
from penstock.sqs.catalog import ACCOUNT, COOL_DOWN_S, REGION, Catalog, Namespace

LOOPBACK = {"localhost", "127.0.0.1", "::1"}
HOME_ACCOUNT, HOME_REGION = "123456789012", "us-east-1"
DEFAULT_PORT = 9324


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """How an endpoint is served."""

    root: Path
    """The folder of the queues."""

    host: str = "127.0.0.1"
    """The address to listen on; without signatures a loopback one."""

    port: int = DEFAULT_PORT
    """The port; 0: any that is free."""

    also_ports: tuple[int, ...] = ()
    """Further ports of the same address, for clients that have another one written down."""

    auth: bool = True
    """Requests must be signed."""

    credentials: Credentials | None = None
    """Who may sign; none: a key pair that is kept in the root, made when there is none."""

    account: str = HOME_ACCOUNT
    """The account whose queues stand in the root itself."""

    region: str = HOME_REGION
    """Their region."""

    relaxed: bool = False
    """A deleted queue's name is free again at once."""

    format: str = "penstock"
    """What new standard queues are kept in: `penstock` or `vqs`. FIFO queues are in `penstock`."""

    allow_hosts: tuple[str, ...] = ()
    """Names in the Host header that are served without signatures, besides the loopback ones."""

    log_requests: bool = False
    """Every request is logged, under `penstock.sqs.access`."""

    def __post_init__(self) -> None:
        """Refuses what can't be."""
        if not ACCOUNT.fullmatch(self.account):
            raise OptionError("account", self.account, "twelve digits")
        if not REGION.fullmatch(self.region):
            raise OptionError("region", self.region, "a region's name, such as us-east-1")
        if not self.auth and self.host not in LOOPBACK:
            text = "a loopback address, such as 127.0.0.1, because requests need no signature"
            raise OptionError("host", self.host, text)
        if _is_queue(self.root):
            raise OptionError("root", self.root, "a folder that holds queues, not a queue itself")
        if self.format not in ("penstock", "vqs"):
            raise OptionError("format", self.format, "penstock or vqs")
        if not 0 <= self.port <= 65535:
            raise OptionError("port", self.port, "0 to 65535")
        for port in self.also_ports:
            if not 1 <= port <= 65535:
                raise OptionError("also_port", port, "1 to 65535")


def _is_queue(path: Path) -> bool:
    try:
        registry.sniff(path)
    except (PenstockError, OSError):
        return False
    return True


class Server:
    """An endpoint that runs in a thread of this process."""

    port: int

    def __init__(
        self, options: ServerOptions, clock: clocks.ManualClock | _core.Clock | None = None
    ) -> None:
        """Keeps the options; `start` opens the port."""
        self.options = options
        self._clock = clocks.native(clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_up = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._lock: Any = None
        self.port = options.port
        self.credentials = options.credentials

    # ── what clients need ──────────────────────────────────────────────────────────────────

    @property
    def url(self) -> str:
        """The address at which the server answers."""
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return f"http://{host}:{self.port}"

    @property
    def client_options(self) -> dict[str, str]:
        """What `boto3.client("sqs", **…)` takes."""
        pair = self.credentials or Credentials("test", "test")
        return {
            "endpoint_url": self.url,
            "region_name": self.options.region,
            "aws_access_key_id": pair.access_key,
            "aws_secret_access_key": pair.secret_key,
        }

    # ── life ───────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Returns when it answers; raises what kept it from doing so."""
        self._thread = threading.Thread(target=self._run, name="penstock-sqs", daemon=True)
        self._thread.start()
        self._is_up.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def ask_to_stop(self) -> None:
        """Ends soon; `wait` tells when. A signal handler may ask."""
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # It ended by itself.
                self._loop.call_soon_threadsafe(self._stopping.set)

    def stop(self) -> None:
        """Ends: requests that are under way are answered, everything is synced."""
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join()

    def wait(self) -> None:
        """Waits until the server ends."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(1.0)  # In pieces: a signal ends none of them, but is heard between.

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        _need_extra(self.options)
        from penstock.sqs.endpoint import Access, Endpoint

        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        options = self.options
        root = Path(options.root)
        if root.exists() and not root.is_dir():
            raise StorageError(root, "is a file; the queues need a folder")
        files.make_folder(root)
        files.make_folder(root / ".sqs")
        self._lock = _core.FolderLock.take(root / ".sqs")
        if self._lock is None:
            raise PenstockError(f"{root}: another server has it; stop that one first")
        try:
            home = Namespace(options.account, options.region)
            cool_down_s = 0 if options.relaxed else COOL_DOWN_S
            catalog = Catalog(
                root, home, self._clock, cool_down_s=cool_down_s, format=options.format
            )
            verifier = self._verifier(root)
            hosts = frozenset({*LOCAL, options.host, *options.allow_hosts})
            endpoint = Endpoint(catalog, Access(verifier, hosts), log_requests=options.log_requests)
            try:
                await self._listen(endpoint)
            finally:
                await endpoint.close()
        finally:
            self._lock.close()

    def _verifier(self, root: Path) -> Verifier | None:
        if not self.options.auth:
            return None
        if self.credentials is None:
            self.credentials = _kept_credentials(root / ".sqs" / "credentials.json")
        return Verifier({self.credentials.access_key: self.credentials.secret_key})

    async def _listen(self, endpoint: Any) -> None:
        from penstock.sqs.connections import Listener

        listener = Listener(endpoint)
        try:
            for port in (self.options.port, *self.options.also_ports):
                await listener.open(self.options.host, port)
            self.port = listener.port
            self._is_up.set()
            await self._stopping.wait()  # type: ignore[union-attr]
            listener.stop_listening()
            endpoint.stop_waiting()
        finally:
            await listener.close()


def _loop_factory() -> Any:
    """Uvloop's event loop where it is installed: it wakes up in half the time."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _need_extra(options: ServerOptions) -> None:
    """An error that names the extra, before anything is made."""
    for module in ("httptools", "msgspec", *(["botocore"] if options.auth else [])):
        optional_packages.load(module, "sqs", "the SQS endpoint")


def _kept_credentials(path: Path) -> Credentials:
    advice = "restore it, or delete it for a new key pair; clients of the old one are refused then"
    found = kept_files.read(path, "key pair", advice)
    if found is None:
        made = Credentials.generated()
        files.write_json(path, {"access_key": made.access_key, "secret_key": made.secret_key})
        return made
    access_key, secret_key = found.get("access_key"), found.get("secret_key")
    if not (access_key and isinstance(access_key, str) and isinstance(secret_key, str)):
        raise FormatError(path, "no key pair: it lacks access_key or secret_key", advice)
    return Credentials(access_key, secret_key)


@contextlib.contextmanager
def server(
    root: str | os.PathLike[str] | None = None, *,
    clock: clocks.ManualClock | _core.Clock | None = None, **options: Any,
) -> Iterator[Server]:  # fmt: skip
    """An endpoint for a test, or inside a program: any free port, no waiting after a delete.

    Without `root` its queues are in a temporary folder and go with it. The options are those of
    `ServerOptions`.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-sqs-")) if root is None else Path(root)
    usual: dict[str, Any] = {"root": folder, "port": 0, "auth": False, "relaxed": True}
    running = Server(ServerOptions(**usual | options), clock)
    try:
        running.start()
        try:
            yield running
        finally:
            running.stop()
    finally:
        if root is None:
            shutil.rmtree(folder, ignore_errors=True)


class JsonLines(logging.Formatter):
    """Log records as JSON, one a line."""

    FIELDS = ("client", "action", "status", "request_id", "seconds")

    def format(self, record: logging.LogRecord) -> str:
        """Writes a record as one line of JSON."""
        shown = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        shown |= {name: getattr(record, name) for name in self.FIELDS if hasattr(record, name)}
        if record.exc_info:
            shown["error"] = self.formatException(record.exc_info)
        return json.dumps(shown)
