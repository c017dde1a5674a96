"""One SQS queue on top of a penstock queue and one group of it.

A message is a message of penstock: its id is the MessageId, its key the MessageGroupId of a FIFO
queue, its timestamp the SentTimestamp; the rest stands in headers whose names begin with `sqs.`.
Leases, delays, order inside a group and receive counts are the engine's. What is kept here is what
SQS alone has: deduplication, attempts to receive, and receipt handles that nobody can forge.

Nothing here waits for the disk: before a client is answered, its request waits for `Commits`.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import os
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

from penstock import _core
from penstock.clock import moment
from penstock.engine import deadletter, facts
from penstock.engine.group import Group
from penstock.engine.queue import Queue
from penstock.engine.table import remaining
from penstock.errors import ReceiptError
from penstock.formats import registry
from penstock.records import dataclass, field
from penstock.sqs import attributes, errors
from penstock.sqs.digests import Attributes

DEDUPLICATION_S = 300
ATTEMPT_S = 300
DELAY_MAX_S = 900
ANSWER_S = 0.1
"""A delay counts from when its sender is answered, which is after the sync."""
SEQUENCE_BASE = 18_000_000_000_000_000_000
PROOF_BYTES = 16

FORMATS: dict[str, dict[str, Any]] = {
    "penstock": {},
    "vqs": {"format": "vqs", "layout": "stage4"},
}
"""What a new queue may be, and how it is made: as a folder."""
BACK_S = 30

TRACE = "sqs.trace"
ATTRIBUTES, SYSTEM, SENDER = "sqs.attributes", "sqs.system", "sqs.sender"
GROUP, DEDUPLICATION = "sqs.group", "sqs.deduplication"
RECEIVES, SOURCE, SENT = "sqs.receives", "sqs.source", "sqs.sent"
SEQUENCE = "sqs.sequence"


@dataclass(slots=True)
class Outgoing:
    """A message that a client sends."""

    body: bytes
    attributes: Attributes
    system: Attributes
    trace: str
    """What tracing says about the request; a system attribute says it before."""
    delay_s: int | None
    group: str | None
    deduplication: str | None
    sender: str


@dataclass(frozen=True, slots=True)
class Sent:
    """What the sender is told."""

    id: str
    sequence: str | None


@dataclass(slots=True)
class Attempt:
    """What a receive with an attempt id got."""

    until_ns: int
    offsets: list[int]
    receipts: list[str]
    answers: list[_core.Message]


@dataclass(slots=True)
class Record:
    """What is kept about a queue besides its messages."""

    attributes: dict[str, str]
    created_s: int
    modified_s: int
    tags: dict[str, str] = field(default_factory=dict)
    scope: str = "queue"
    """Where deduplication ids must be new. It stays as it was when the queue was made."""
    purged_s: float = 0.0
    deleted_s: float = 0.0
    tasks: list[dict[str, Any]] = field(default_factory=list)


def number_in(message: _core.Message, name: str) -> int | None:
    """A number that the endpoint writes in a header. Programs of this host may have put anything
    there; that is none."""
    said = message.headers.get(name, "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 19 else None


class SqsQueue:
    """An open queue, with what SQS knows of it beyond its messages."""

    arn: str
    name: str
    path: Path
    record: Record
    is_fifo: bool
    store: Queue
    group: Group
    attributes: dict[str, str]
    numbers: dict[str, int]

    def __init__(
        self, arn: str, name: str, path: Path, record: Record, secret: bytes, clock: _core.Clock,
        *, format: str = "penstock",
    ) -> None:  # fmt: skip
        """Opens the messages at `path`, or makes room for them in a queue of this format."""
        self.arn, self.name, self.path, self.record = arn, name, path, record
        self.is_fifo = name.endswith(".fifo")
        key = hmac.digest(secret, arn.encode() + b"%d" % record.created_s, "sha256")
        self._proofs = hashlib.blake2b(key=key, digest_size=PROOF_BYTES)
        self.clock = clock
        is_new = registry.is_empty(path)
        # Only our own format keeps what is done for as long as deduplication needs it.
        new = FORMATS["penstock" if self.is_fifo else format] if is_new else {}
        self.store = Queue(path, clock=clock, durability="process", **new)
        if is_new:
            # Ours is to wait for `Commits`; programs of this host open it as any other queue.
            self.store.set_options(durability=None)
        self.group = self.store.group(
            release_on_exit=False, key_batches=self.is_fifo, visibility_s=30,
            max_in_flight=attributes.IN_FLIGHT_MAX if self.is_fifo else 1 << 20,
        )  # fmt: skip
        self.group.bury = self._bury
        self.dead_letters: SqsQueue | None = None
        self._room = 0
        """As many may be received before anyone counts again what is out."""
        self._durable = 0
        """Up to here it is on the disk, and further by now."""
        self._seen: OrderedDict[tuple[str, str], tuple[int, Sent]] = OrderedDict()
        """By scope and deduplication id: until when, and what its sender was told."""
        self._due_ns: list[int] = []
        """When messages that are held back come, the next one first."""
        self._received: dict[int, tuple[int, int]] = {}
        """By offset, when it was received: for the first time, and the last time, in ms."""
        self._has_received = False
        """Whether that has changed since it was kept."""
        self._back: dict[int, tuple[str, int]] = {}
        """Leases of messages whose groups are at the back, each until so many were handed out."""
        self._handed_out = 0
        self._attempts: OrderedDict[str, Attempt] = OrderedDict()
        self.waiting: deque[Any] = deque()
        """Receives that wait for a message: the longest waiting first."""
        self.watch: _core.Watch | None = None
        self._remember()
        self.refresh()

    # ── what the queue is ──────────────────────────────────────────────────────────────────

    def refresh(self) -> None:
        """The record's attributes were changed."""
        self.attributes = attributes.whole(self.record.attributes, is_fifo=self.is_fifo)
        numbers = attributes.NUMBERS.keys() & self.attributes.keys()
        self.numbers = {name: int(self.attributes[name]) for name in numbers}
        policy = self.attributes.get("RedrivePolicy")
        most = int(json.loads(policy)["maxReceiveCount"]) if policy else 0
        if self.group.options.max_receives != most:
            self.group.configure(max_receives=most)
        self.group.core.expire_after(self.numbers["MessageRetentionPeriod"])

    @property
    def dead_letter_arn(self) -> str | None:
        """Where messages go that were received too often."""
        policy = self.attributes.get("RedrivePolicy")
        return json.loads(policy)["deadLetterTargetArn"] if policy else None

    def _remember(self) -> None:
        """What a server before this one knew is still in the log, and in the group's table."""
        if self.is_fifo:
            self._remember_sent()
        now_ns, boot_ns = self.clock.wall_now_ns(), self.clock.boot_now_ns()
        for _, state, _, deadline_ns in self.group.core.outstanding():
            if state == "delayed":
                self._due_ns.append(now_ns + deadline_ns - boot_ns)
        for message in self._recent(DELAY_MAX_S, self.group.core.next):
            if message.due_ns and message.due_ns > now_ns:
                self._due_ns.append(message.due_ns)
        heapify(self._due_ns)

    def _remember_sent(self) -> None:
        now_ns = self.clock.wall_now_ns()
        for message in self._recent(DEDUPLICATION_S, 0):
            until_ns = (message.timestamp_ns or 0) + DEDUPLICATION_S * 1_000_000_000
            deduplication = message.headers.get(DEDUPLICATION)
            if deduplication and SOURCE not in message.headers and until_ns > now_ns:
                key = self._scope(message.key), deduplication
                self._seen.setdefault(key, (until_ns, self._sent(message)))

    def _recent(self, seconds: int, start: int) -> Iterator[_core.Message]:
        """Messages of the last `seconds` from `start` on, also those that are done."""
        if not self.store.store.capabilities.timestamps:
            yield from remaining(self.store.store, start)
            return
        since = moment(self.clock.wall_now_ns() - seconds * 1_000_000_000)
        first = next(iter(self.store.scan(start=since)), None)
        if first is not None and first.offset is not None:
            yield from remaining(self.store.store, max(first.offset, start))

    # ── sending ────────────────────────────────────────────────────────────────────────────

    def send(self, outgoings: list[Outgoing]) -> list[Sent]:
        """Appends messages, those left out whose deduplication id was there in the last five
        minutes."""
        return [(self._send_once if self.is_fifo else self._send)(one) for one in outgoings]

    def _send(self, outgoing: Outgoing) -> Sent:
        message_id = new_id()
        self._put(outgoing, message_id, self._headers(outgoing))
        return Sent(message_id, None)

    def _send_once(self, outgoing: Outgoing) -> Sent:
        now_ns = self.clock.wall_now_ns()
        deduplication = self.deduplication_of(outgoing)
        key = self._scope(outgoing.group), deduplication
        if known := self._duplicate(key, now_ns):
            return known
        message_id, headers = new_id(), self._headers(outgoing)
        headers[DEDUPLICATION] = deduplication
        offset = self._put(outgoing, message_id, headers)
        sent = Sent(message_id, self._sequence(offset))
        self._seen[key] = (now_ns + DEDUPLICATION_S * 1_000_000_000, sent)
        return sent

    def _headers(self, outgoing: Outgoing) -> dict[str, str]:
        headers = {SENDER: outgoing.sender}
        if outgoing.attributes:
            headers[ATTRIBUTES] = _json(outgoing.attributes)
        if outgoing.system:
            headers[SYSTEM] = _json(outgoing.system)
        elif outgoing.trace:
            headers[TRACE] = outgoing.trace
        if outgoing.deduplication:
            headers[DEDUPLICATION] = outgoing.deduplication
        if outgoing.group and not self.is_fifo:
            headers[GROUP] = outgoing.group
        if not self.store.store.capabilities.timestamps:
            headers[SENT] = str(self.clock.wall_now_ns() // 1_000_000)
        return headers

    def _put(self, outgoing: Outgoing, message_id: str, headers: dict[str, str]) -> int:
        is_own = outgoing.delay_s is not None and not self.is_fifo
        return self.store.put(
            outgoing.body, id=message_id, key=outgoing.group if self.is_fifo else None,
            headers=headers, delay=self._held(outgoing.delay_s if is_own else None),
        )  # fmt: skip

    def _held(self, delay_s: int | None) -> float | None:
        """How long a message is held back: as it says itself, or as the queue does."""
        if delay_s is None:
            delay_s = self.numbers["DelaySeconds"]
        if delay_s == 0:
            return None
        held_s = delay_s + ANSWER_S
        heappush(self._due_ns, self.clock.wall_now_ns() + int(held_s * 1e9))
        return held_s

    def _scope(self, group: str | None) -> str:
        """Where a deduplication id must be new: in the queue, or in the message group."""
        return (group or "") if self.record.scope == "messageGroup" else ""

    def deduplication_of(self, outgoing: Outgoing) -> str:
        """The id it was sent with, or one made from its body."""
        if outgoing.deduplication:
            return outgoing.deduplication
        self.check_deduplicates()
        return hashlib.sha256(outgoing.body).hexdigest()

    def check_deduplicates(self) -> None:
        """A refusal unless the body of a message may stand for its deduplication id."""
        if self.attributes.get("ContentBasedDeduplication") != "true":
            raise errors.invalid(
                "The queue should either have ContentBasedDeduplication enabled or "
                "MessageDeduplicationId provided explicitly"
            )

    def _duplicate(self, key: tuple[str, str], now_ns: int) -> Sent | None:
        while self._seen and (oldest := next(iter(self._seen.values())))[0] <= now_ns:
            del oldest
            self._seen.popitem(last=False)
        known = self._seen.get(key)
        return known[1] if known and known[0] > now_ns else None

    @staticmethod
    def _sequence(offset: int) -> str:
        return str(SEQUENCE_BASE + offset)

    def _sent(self, message: _core.Message) -> Sent:
        return Sent(self.id_of(message), self._sequence(message.offset or 0))

    def id_of(self, message: _core.Message) -> str:
        """The MessageId: of what others put here without one, made from where it is."""
        return message.id or str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.arn}/{message.offset}"))

    # ── receiving ──────────────────────────────────────────────────────────────────────────

    def receive(self, count: int, visibility_s: int | None) -> list[_core.Message]:
        """Up to `count` messages, leased."""
        if visibility_s is None:
            visibility_s = self.numbers["VisibilityTimeout"]
        if self.group.core.is_gone:
            return []
        self._bring_forward(is_all=False)
        found = self.group.get_many(count, 0, visibility=visibility_s)
        if self._back and len(found) < count:
            self._bring_forward(is_all=True)
            found += self.group.get_many(count - len(found), 0, visibility=visibility_s)
        self._room -= len(found)
        self._handed_out += len(found)
        if visibility_s == 0:
            for message in found:
                message.settle(False)
        return found

    def _put_back(self, offset: int, receipt: str) -> None:
        """The message's group comes after everything that waits now.

        The engine hands out by age, so the message stays leased until the others had their turn;
        should this process die, the lease runs out.
        """
        waiting = facts.waiting(self.group, "ready", "blocked")
        if not waiting:
            self.group.nack(receipt)
            return
        self.group.extend(receipt, BACK_S)
        self._back[offset] = receipt, self._handed_out + waiting

    def _bring_forward(self, *, is_all: bool) -> None:
        """Gives the messages at the back whose turn has come to the group again."""
        if not self._back:
            return
        for offset, (receipt, until) in list(self._back.items()):
            if is_all or until <= self._handed_out:
                del self._back[offset]
                with suppress(ReceiptError):
                    self.group.nack(receipt)

    def is_durable(self, found: list[_core.Message]) -> bool:
        """Whether messages are on the disk, so that not even a power cut takes them back."""
        last = max([message.offset or 0 for message in found])
        if last >= self._durable:
            self._durable = self.store.offsets().durable
        return last < self._durable

    def is_over_limit(self) -> bool:
        """Whether as many messages are out as may be."""
        if self.is_fifo:
            return False
        if self._room <= 0:
            self._room = attributes.IN_FLIGHT_MAX - self.leased_count()
        return self._room <= 0

    def leased_count(self) -> int:
        """How many messages are in flight."""
        return self.group.core.counts()["leased"]

    def receives_of(self, message: _core.Message) -> int:
        """How often it was received, here and in the queue that it died in."""
        return message.receives + (number_in(message, RECEIVES) or 0)

    def note_received(self, message: _core.Message, now_ms: int) -> int:
        """It is being handed out; answers when it was for the first time, in ms."""
        offset = message.offset or 0
        known = self._received.get(offset)
        first_ms = now_ms if known is None else known[0]
        self._received[offset] = first_ms, now_ms
        self._has_received = True
        return first_ms

    def received(self) -> dict[str, tuple[int, int]] | None:
        """What is to be kept about messages that were received; none: it is kept already."""
        if not self._has_received:
            return None
        self._has_received = False
        return {str(offset): times for offset, times in self._received.items()}

    def remember_received(self, kept: dict[str, Any]) -> None:
        """What a server before this one has kept."""
        cursor = self.group.cursor
        for offset, (first_ms, last_ms) in kept.items():
            if int(offset) >= cursor:
                self._received[int(offset)] = int(first_ms), int(last_ms)

    def attempt(self, attempt_id: str, visibility_s: int | None) -> list[_core.Message] | None:
        """What the same attempt got before, if none of it was deleted or changed meanwhile."""
        now_ns = self.clock.boot_now_ns()
        while self._attempts and next(iter(self._attempts.values())).until_ns <= now_ns:
            self._attempts.popitem(last=False)
        known = self._attempts.get(attempt_id)
        if known is None:
            return None
        seconds = self.numbers["VisibilityTimeout"] if visibility_s is None else visibility_s
        stands = [self.group.standing(offset) for offset in known.offsets]
        if [one[1] if one else "" for one in stands] != known.receipts:
            del self._attempts[attempt_id]
            return None
        for receipt in known.receipts:
            self.group.extend(receipt, seconds)
        return known.answers

    def note_attempt(self, attempt_id: str, found: list[_core.Message]) -> None:
        """Remembers what an attempt got. Nothing is no answer to repeat."""
        if found:
            until_ns = self.clock.boot_now_ns() + ATTEMPT_S * 1_000_000_000
            offsets = [message.offset or 0 for message in found]
            receipts = [message.receipt or "" for message in found]
            self._attempts[attempt_id] = Attempt(until_ns, offsets, receipts, found)

    def forget_attempts(self, offset: int) -> None:
        """A message was deleted or changed: attempts that got it are not repeated."""
        if not self._attempts:
            return
        gone = [name for name, one in self._attempts.items() if offset in one.offsets]
        for name in gone:
            del self._attempts[name]

    # ── receipt handles ────────────────────────────────────────────────────────────────────

    def handle(self, message: _core.Message) -> str:
        """The receipt handle of a message that is out. A new one each time: it has the lease."""
        receipt = message.receipt or ""
        return f"{receipt}-{self._proof(receipt)}"

    def _proof(self, receipt: str) -> str:
        # Not `hmac`, which gives way to other threads even for a few bytes. A copy, because taking
        # in the key takes as long as the receipt.
        proof = self._proofs.copy()
        proof.update(receipt.encode())
        return proof.hexdigest()

    def lease_of(self, handle: str) -> tuple[str, int]:
        """The engine's receipt and the offset in a handle, or a refusal."""
        receipt, _, proof = handle.rpartition("-")
        if not handle.isascii() or not hmac.compare_digest(proof, self._proof(receipt)):
            raise errors.no_receipt(handle)
        return receipt, int(receipt.rpartition("-")[2], 16)

    def delete(self, handle: str) -> None:
        """The message is done; so it is the second time, and by an old handle if not FIFO."""
        receipt, offset = self.lease_of(handle)
        self.forget_attempts(offset)
        if self.is_fifo and (stands := self.group.standing(offset)) and stands[1] != receipt:
            raise errors.ended_receipt(handle)
        try:
            self.group.ack(receipt)
        except ReceiptError:
            self.group.ack_at(offset)
        self._received.pop(offset, None)
        self._back.pop(offset, None)

    def change_visibility(self, handle: str, seconds: int) -> None:
        """The message comes back after `seconds`, counted from now."""
        receipt, offset = self.lease_of(handle)
        stands = self.group.standing(offset)
        if stands is None:
            raise errors.gone_message(handle)
        state, current = stands
        if self.is_fifo and current != receipt:
            raise errors.ended_receipt(handle)
        if state != "leased":
            return  # Its time is over, and Amazon says nothing about that.
        self._check_total(offset, seconds)
        self.forget_attempts(offset)
        self._back.pop(offset, None)
        if seconds:
            self.group.extend(current, seconds)
        elif self.is_fifo:
            self._put_back(offset, current)
        else:
            self.group.nack(current)

    def _check_total(self, offset: int, seconds: int) -> None:
        """A refusal if a message would be away for more than twelve hours in one go."""
        now_ms = self.clock.wall_now_ns() // 1_000_000
        received_ms = self._received[offset][1] if offset in self._received else now_ms
        most = attributes.NUMBERS["VisibilityTimeout"].high
        if seconds and now_ms - received_ms + seconds * 1000 > most * 1000:
            reason = f"Total VisibilityTimeout for the message is beyond the limit [{most} seconds]"
            raise errors.value("VisibilityTimeout", seconds, reason)

    # ── dead letters ───────────────────────────────────────────────────────────────────────

    def _bury(self, message: _core.Message, reason: str | None = None) -> None:
        """Received too often: it goes to the dead letters, and counts on there.

        On the disk there before it is acked here: a crash in between leaves it in both.
        """
        if self.dead_letters is None or message.offset is None:
            return  # The policy names a queue that is gone: it stays, and comes again.
        headers = message.headers | {
            RECEIVES: str(self.receives_of(message)),
            SOURCE: self.arn,
            SENT: str(self.sent_ms(message)),
        }
        if self.is_fifo:
            headers.setdefault(SEQUENCE, self.sequence_of(message))
        self.dead_letters.adopt(message, headers, id=self.id_of(message))
        self.dead_letters.store.sync()
        message.settle(True)
        self._received.pop(message.offset, None)

    def adopt(self, message: _core.Message, headers: dict[str, str], *, id: str) -> None:
        """Takes a message over that was in another queue."""
        self.store.put_many([deadletter.copy_of(message, headers, id=id)])

    def sequence_of(self, message: _core.Message) -> str:
        """The sequence number of a message in a FIFO queue."""
        return message.headers.get(SEQUENCE) or self._sequence(message.offset or 0)

    def sent_ms(self, message: _core.Message) -> int:
        """When the message was sent, in milliseconds since 1970."""
        known = number_in(message, SENT)
        return (message.timestamp_ns or 0) // 1_000_000 if known is None else known

    # ── all of it ──────────────────────────────────────────────────────────────────────────

    def counts(self) -> dict[str, int]:
        """The three counts of messages that every queue tells."""
        now_ns = self.clock.wall_now_ns()
        while self._due_ns and self._due_ns[0] <= now_ns:
            heappop(self._due_ns)
        waiting = facts.waiting(self.group, "delayed", "ready", "blocked")
        delayed = min(len(self._due_ns), waiting)
        back, leased = len(self._back), self.group.core.counts()["leased"]
        found = waiting - delayed + back, max(leased - back, 0), delayed
        return dict(zip(attributes.COUNTS, found, strict=True))

    def purge(self) -> None:
        """Everything that is there now is done."""
        self.group.seek("latest")
        self._due_ns.clear()
        self._received.clear()
        self._back.clear()
        self._attempts.clear()

    def forget_done(self) -> None:
        """Forgets when messages were received that are gone, by whatever way."""
        cursor = self.group.cursor
        gone = [offset for offset in self._received if offset < cursor]
        for offset in gone:
            del self._received[offset]

    def trim(self) -> None:
        """Frees what everyone is done with; what deduplication still needs stays."""
        if self.store.store.capabilities.deletes_consumed:
            return  # It frees that by itself.
        before = self.group.cursor
        if self.is_fifo:
            since_ns = self.clock.wall_now_ns() - DEDUPLICATION_S * 1_000_000_000
            recent = next(iter(self.store.scan(start=moment(since_ns))), None)
            if recent is not None and recent.offset is not None:
                before = min(before, recent.offset)
        self.store.trim(before)

    def __iter__(self) -> Iterator[_core.Message]:
        """Every message in the log, also those that are done."""
        return iter(self.store.scan())

    def close(self) -> None:
        """Closes the queue; messages that stand at the back go back to the group first."""
        if not self.store.is_closed:
            self._bring_forward(is_all=True)
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        self.store.close()


class Ids:
    """Ids that nobody else has: a random start for each process, and a number."""

    def __init__(self) -> None:
        """Draws a start now, and another one in every forked child."""
        self.begin()
        os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        """Draws another random start, so that a forked child makes other ids."""
        self._start = str(uuid.uuid4())[:24]
        self._number = itertools.count(int.from_bytes(os.urandom(5)))

    def __call__(self) -> str:
        """One that looks like any UUID of version 4."""
        return f"{self._start}{next(self._number):012x}"


new_id: Ids = Ids()


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
