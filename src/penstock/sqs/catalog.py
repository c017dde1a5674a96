"""The queues below one folder.

    ROOT/orders/                                        a queue of the home account and region
    ROOT/.sqs/123456789012/us-east-1/orders.json        what is kept about it: attributes, tags …
    ROOT/.sqs/123456789012/us-east-1/orders.received.json    when messages were received
    ROOT/.sqs/111111111111/eu-west-1/orders/            a queue of another account or region
    ROOT/.sqs/secret                                    what receipt handles are signed with
    ROOT/.sqs/trash/                                    queues that are being deleted

Queues of the home account and region stand in the folder itself, so that programs of this host
find them by name, and queues that such programs made are served. A record is replaced as a whole
and synced. A queue is made before its record and goes after its record says so: what a server that
dies in between leaves, the next start completes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from penstock import _core
from penstock.disk import files
from penstock.engine import kept_files
from penstock.errors import FormatError, PenstockError
from penstock.formats import registry
from penstock.logs import logger
from penstock.records import asdict, dataclass, fields
from penstock.sqs import attributes, errors
from penstock.sqs.queues import Record, SqsQueue

NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo", re.ASCII)
ACCOUNT = re.compile(r"\d{12}", re.ASCII)
REGION = re.compile(r"[a-z]{2,4}(-[a-z]{1,12}){1,3}-\d{1,2}", re.ASCII)
COOL_DOWN_S = 60
QUEUES_MAX = 10_000
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Namespace:
    """An account and a region: inside them a name is that of one queue."""

    account: str
    region: str

    def arn(self, name: str) -> str:
        """What a queue here is called everywhere."""
        return f"arn:aws:sqs:{self.region}:{self.account}:{name}"


def check_name(name: object) -> str:
    """A queue's name, or a refusal. What passes is one component of a path, and not hidden."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise errors.invalid(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    return name


class Catalog:
    """Every queue of an endpoint."""

    root: Path
    home: Namespace
    clock: _core.Clock

    def __init__(
        self, root: Path, home: Namespace, clock: _core.Clock, *,
        cool_down_s: float = COOL_DOWN_S, format: str = "penstock",
    ) -> None:  # fmt: skip
        """Reads what is kept; queues are opened when they are first used."""
        self.root, self.home, self.clock = root, home, clock
        self.cool_down_s: float = cool_down_s
        self._format = format
        self._known: dict[Namespace, dict[str, Record]] = {}
        self._unreadable: set[tuple[Namespace, str]] = set()
        """Queues whose records are damaged: they are not served, and nothing is made in their
        place."""
        self._open: dict[str, SqsQueue] = {}
        for folder in (root, root / ".sqs"):
            files.make_folder(folder)
        self._secret = self._load_secret()
        self._load()

    # ── finding ────────────────────────────────────────────────────────────────────────────

    def names(self, namespace: Namespace) -> list[str]:
        """Every queue of an account and region, in order."""
        known = self._known.get(namespace, {})
        return sorted(name for name, record in known.items() if not record.deleted_s)

    def find(self, namespace: Namespace, name: str) -> SqsQueue:
        """The queue of this name, or a refusal."""
        arn = namespace.arn(name)
        found = self._open.get(arn)
        if found is not None:
            return found
        record = self._known.get(namespace, {}).get(name)
        if record is None or record.deleted_s:
            record = self._found_on_disk(namespace, name)
        if record is None:
            raise errors.no_queue()
        return self._opened(namespace, name, record)

    def by_arn(self, arn: str) -> SqsQueue | None:
        """The queue of this ARN; none where there is none."""
        match = attributes.ARN.fullmatch(arn)
        if match is None:
            return None
        try:
            return self.find(Namespace(match["account"], match["region"]), match["name"])
        except errors.Refusal:
            return None

    def record_of(self, namespace: Namespace, name: str) -> Record | None:
        """What is kept about a queue, whether it is open or not."""
        record = self._known.get(namespace, {}).get(name)
        return None if record is None or record.deleted_s else record

    def with_tasks(self) -> list[SqsQueue]:
        """Queues whose messages are being moved, by their records."""
        return [
            self.find(namespace, name)
            for namespace, known in self._known.items()
            for name, record in list(known.items())
            if record.tasks and not record.deleted_s
        ]

    def opened(self) -> list[SqsQueue]:
        """The queues that this process has open."""
        return list(self._open.values())

    def sources_of(self, namespace: Namespace, arn: str) -> list[str]:
        """Names of the queues whose dead letters go to `arn`."""
        known = self._known.get(namespace, {})
        return [
            name for name in self.names(namespace)
            if f'"{arn}"' in known[name].attributes.get("RedrivePolicy", "")
        ]  # fmt: skip

    # ── changing ───────────────────────────────────────────────────────────────────────────

    def create(
        self, namespace: Namespace, name: str, said: dict[str, str], tags: dict[str, str]
    ) -> SqsQueue:
        """Makes a queue, or finds the one that is there and the same."""
        known = self._known.setdefault(namespace, {})
        record = known.get(name)
        now_s = self.clock.wall_now_ns() / 1e9
        if record is not None and record.deleted_s:
            self._await_cool_down(record, now_s)
            record = None
        if record is None:
            record = self._found_on_disk(namespace, name)
        if record is not None:
            self._compare(name, record, said)
            return self.find(namespace, name)
        self._check_dead_letters(namespace, name, said)
        scope = said.get("DeduplicationScope", "queue")
        record = Record(said, int(now_s), int(now_s), tags, scope=scope)
        try:
            found = self._opened(namespace, name, record)
        except BaseException:
            self._throw_away(
                self._path_of(namespace, name)
            )  # Or half a queue would be found later.
            raise
        known[name] = record
        self.keep(found)
        return found

    def _await_cool_down(self, record: Record, now_s: float) -> None:
        if now_s - record.deleted_s < self.cool_down_s:
            raise errors.Refusal(
                "QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another "
                "with the same name.",
            )

    def _compare(self, name: str, record: Record, said: dict[str, str]) -> None:
        known = attributes.whole(record.attributes, is_fifo=name.endswith(".fifo"))
        other = attributes.difference(known, said)
        if other is not None:
            raise errors.Refusal(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute "
                f"{other}",
            )

    def change(self, queue: SqsQueue, changes: dict[str, str]) -> None:
        """Changes attributes of a queue and keeps them in its record."""
        namespace = self.namespace_of(queue)
        self._check_dead_letters(namespace, queue.name, changes)
        queue.record.attributes = attributes.changed(queue.record.attributes, changes)
        queue.record.modified_s = self.clock.wall_now_ns() // 1_000_000_000
        self.keep(queue)
        queue.refresh()
        self._link(queue)

    def _check_dead_letters(self, namespace: Namespace, name: str, said: dict[str, str]) -> None:
        """The queue for dead letters must be there, of the same kind, and allow it."""
        if not (policy := said.get("RedrivePolicy")):
            return
        arn = json.loads(policy)["deadLetterTargetArn"]
        match = attributes.ARN.fullmatch(arn)
        text = f"Value {policy} for parameter RedrivePolicy is invalid. Reason: "
        if match is None or Namespace(match["account"], match["region"]) != namespace:
            raise errors.invalid(
                text + "Dead-letter target owner should be the same as the source."
            )
        record = self.record_of(namespace, match["name"])
        if record is None:
            raise errors.Refusal(
                "InvalidParameterValueException", text + "Dead letter target does not exist."
            )
        if match["name"].endswith(".fifo") != name.endswith(".fifo"):
            raise errors.invalid(
                text + "Dead-letter queue must be same type of queue as the source."
            )
        self._check_allowed(namespace.arn(name), record, text)

    def _check_allowed(self, source: str, record: Record, text: str) -> None:
        if not (allow := record.attributes.get("RedriveAllowPolicy")):
            return
        found = json.loads(allow)
        is_named = source in (found.get("sourceQueueArns") or [])
        if found["redrivePermission"] == "denyAll" or (
            found["redrivePermission"] == "byQueue" and not is_named
        ):
            raise errors.invalid(
                text + "Dead-letter queue does not allow this queue to use it: see its "
                "RedriveAllowPolicy."
            )

    def keep(self, queue: SqsQueue) -> None:
        """Writes the record, synced."""
        self._write(self.namespace_of(queue), queue.name, queue.record)

    def keep_received(self, queue: SqsQueue) -> None:
        """Writes when messages were received, if that has changed."""
        times = queue.received()
        if times is not None:
            files.write_json(self._received_path(self.namespace_of(queue), queue.name), times)

    def _received_path(self, namespace: Namespace, name: str) -> Path:
        return self._folder_of(namespace) / f"{name}.received.json"

    def delete(self, queue: SqsQueue) -> None:
        """Removes a queue and its messages; its name is blocked for a while."""
        namespace = self.namespace_of(queue)
        queue.record.deleted_s = self.clock.wall_now_ns() / 1e9
        self._write(namespace, queue.name, queue.record)
        del self._open[queue.arn]
        for other in self._open.values():
            if other.dead_letters is queue:
                other.dead_letters = None
        queue.group.core.retire()  # Programs of this host that consume from it are told.
        queue.close()
        self._received_path(namespace, queue.name).unlink(missing_ok=True)
        self._throw_away(queue.path)

    def _throw_away(self, path: Path) -> None:
        if not path.exists():
            return
        goal = self.root / ".sqs" / "trash" / os.urandom(8).hex()
        path.rename(goal)
        _core.sync_folder(path.parent)
        shutil.rmtree(goal, ignore_errors=True)

    def namespace_of(self, queue: SqsQueue) -> Namespace:
        """The account and region of a queue."""
        _, _, _, region, account, _ = queue.arn.split(":")
        return Namespace(account, region)

    # ── opening ────────────────────────────────────────────────────────────────────────────

    def _opened(self, namespace: Namespace, name: str, record: Record) -> SqsQueue:
        arn, path = namespace.arn(name), self._path_of(namespace, name)
        queue = SqsQueue(arn, name, path, record, self._secret, self.clock, format=self._format)
        try:
            kept = files.read_json(self._received_path(namespace, name)) or {}
            queue.remember_received(kept)
        except (PenstockError, ValueError, TypeError) as error:
            logger("sqs").warning("%s: first receives begin anew: %s", name, error)
        self._open[arn] = queue
        self._link(queue)
        return queue

    def _link(self, queue: SqsQueue) -> None:
        """Opens the queue for its dead letters, which may send its own further still."""
        arn = queue.dead_letter_arn
        queue.dead_letters = None if arn is None or arn == queue.arn else self.by_arn(arn)

    def _path_of(self, namespace: Namespace, name: str) -> Path:
        if namespace == self.home:
            return self.root / name
        return self._folder_of(namespace) / name

    def _folder_of(self, namespace: Namespace) -> Path:
        return self.root / ".sqs" / namespace.account / namespace.region

    def _found_on_disk(self, namespace: Namespace, name: str) -> Record | None:
        """A queue that a program of this host made, without us."""
        path = self._path_of(namespace, name)
        if (namespace, name) in self._unreadable:
            text = f"What is kept about queue {name!r} is damaged; the log names the file."
            raise errors.Refusal("InternalFailure", text)
        if namespace != self.home or not NAME.fullmatch(name) or not path.is_dir():
            return None
        if registry.is_empty(path) or path.is_symlink():
            return None
        made_s = int(path.stat().st_mtime)
        record = Record({"FifoQueue": "true"} if name.endswith(".fifo") else {}, made_s, made_s)
        self._known.setdefault(namespace, {})[name] = record
        self._write(namespace, name, record)
        return record

    def _write(self, namespace: Namespace, name: str, record: Record) -> None:
        folder = self._folder_of(namespace)
        for one in (folder.parent, folder):
            files.make_folder(one)
        files.write_json(folder / f"{name}.json", asdict(record))

    def _load(self) -> None:
        files.drop_temporaries(self.root / ".sqs")
        shutil.rmtree(self.root / ".sqs" / "trash", ignore_errors=True)
        files.make_folder(self.root / ".sqs" / "trash")
        for namespace in self._namespaces():
            for path in self._folder_of(namespace).glob("*.json"):
                if not NAME.fullmatch(path.stem):
                    continue
                try:
                    record = _record(path)
                except PenstockError as error:
                    logger("sqs").error("%s", error)
                    self._unreadable.add((namespace, path.stem))
                    continue
                self._known.setdefault(namespace, {})[path.stem] = record
                if record.deleted_s:
                    self._throw_away(self._path_of(namespace, path.stem))
        for path in self.root.iterdir():
            if self.home not in self._known or path.name not in self._known[self.home]:
                try:
                    self._found_on_disk(self.home, path.name)
                except PenstockError as error:
                    logger("sqs").warning("%s is not served: %s", path, error)

    def _namespaces(self) -> Iterator[Namespace]:
        for account in (self.root / ".sqs").iterdir():
            if ACCOUNT.fullmatch(account.name):
                for region in account.iterdir():
                    if REGION.fullmatch(region.name):
                        yield Namespace(account.name, region.name)

    def _load_secret(self) -> bytes:
        path = self.root / ".sqs" / "secret"
        if not path.exists():
            _core.replace_file(path, os.urandom(SECRET_BYTES), synced=True)
        found = files.read_bytes(path)
        if len(found) != SECRET_BYTES:
            text = f"{len(found)} bytes where the secret of all receipt handles has {SECRET_BYTES}"
            advice = "restore it, or delete it: handles that clients have are refused then"
            raise FormatError(path, text, advice)
        return found

    def close(self) -> None:
        """Closes every queue, whatever one of them raises."""
        with ExitStack() as steps:
            for queue in self._open.values():
                steps.callback(queue.close)
                steps.callback(self.keep_received, queue)
            self._open = {}


def _record(path: Path) -> Record:
    advice = "the queue is not served; restore the file, or delete it for the usual attributes"
    found = kept_files.read(path, "record of a queue", advice) or {}
    known = {one.name for one in fields(Record)}
    try:
        record = Record(**{name: value for name, value in found.items() if name in known})
        texts = {**record.attributes, **record.tags}
        if not all(isinstance(one, str) for one in texts.values()):
            raise TypeError("attributes and tags are texts")
    except TypeError as error:
        raise FormatError(path, f"no record of a queue: {error}", advice) from error
    return record
