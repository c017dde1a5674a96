"""Two parties that take turns at one folder: a Beat and penstock, each ending in order or killed.

Both do the same few things, told beforehand: put these events, take so many, ack so many. What
they were given comes back, and the model in `Turns` knows what it must have been.
"""

from __future__ import annotations

import json
import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import Queue
from tests.originals.beats.beat import Beat, Event

Step = tuple[str, Any]
"""`("put", events)`, `("take", count)` or `("ack", count)`."""
SEGMENT_BYTES = 16384

WORDS = (
    "plain", "", "tab\tand\nnewline", 'a "quoted" \\ one', "<b>&amp;</b>", "naïve café ßüß",
    "日本語のログ", "emoji 😀🎉 beside \"quotes\"", "line\u2028separators\u2029",
    "\x00\x01\x1f control \x7f", "x" * 300,
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 23, 24, -24, -25, 127, 128, -128, -129, -200, -256, -257, 255, 256, 32767, -32769,
    65535, 65536, -65536, 2**31, -(2**31) - 1, 2**32, -(2**32), 2**53 + 1, -(2**53) - 1,
    2**63 - 1, -(2**63),
)  # fmt: skip
FLOATS = (0.1, -2.5, 1 / 3, 1e-7, 123456789.123, 5e-324, 1.7976931348623157e308, -1e300 / 7)


def as_message(event: Event) -> tuple[bytes, dict[str, Any]]:
    """Body and options of the put that stores this event."""
    headers = {"beats.meta": json.dumps(event["meta"]), "beats.flags": str(+event["guaranteed"])}
    body = json.dumps(event["fields"], ensure_ascii=False).encode()
    return body, {"headers": headers, "timestamp_ns": event["timestamp_ns"]}


def as_event(message: Any) -> Event:
    """A message of a Beats queue, field by field."""
    return {
        "timestamp_ns": message.timestamp_ns,
        "guaranteed": bool(int(message.headers["beats.flags"]) & 1),
        "meta": json.loads(message.headers["beats.meta"]),
        "fields": json.loads(message.body),
    }


def exact(event: Event) -> str:
    """Equal texts for events that are equal in every value and type."""
    return json.dumps(event, sort_keys=True)


def is_misread(number: int) -> bool:
    """Whether a Beat that writes this integer reads another one."""
    argument = -1 - number
    return any(1 << bits - 1 <= argument < 1 << bits for bits in (8, 16, 32))


class Maker:
    """Random events, each with a serial number. What a Beat can't bring back when it has put it
    itself is left out where one puts it (`careful`): some negative integers in CBOR; in JSON whole
    floats, and escapes beside text that is not ASCII."""

    def __init__(self, chance: random.Random) -> None:
        """From this source of chance."""
        self.chance, self.serial = chance, 0

    def event(self, *, careful: bool = False) -> Event:
        """The next one."""
        self.serial += 1
        fields = self._map(3, careful=careful) | {"serial": self.serial}
        meta = self._map(1, careful=careful) if self.chance.random() < 0.5 else {}
        if self.chance.random() < 0.3:
            meta["_id"] = f"id-{self.serial}"
        time = self.chance.choice((0, 1_700_000_000_123_456_789, -5, self.chance.getrandbits(60)))
        guaranteed = self.chance.random() < 0.3
        time = time + self.serial or 1
        return {"timestamp_ns": time, "guaranteed": guaranteed, "meta": meta,
                "fields": fields}  # fmt: skip

    def _map(self, depth: int, *, careful: bool) -> dict[str, Any]:
        names = self.chance.sample(("a", "host.name", "ключ", "k" * 30, "message", "n"), 3)
        return {name: self._value(depth, careful=careful) for name in names}

    def _value(self, depth: int, *, careful: bool) -> Any:
        kind = self.chance.randrange(8 if depth else 6)
        if kind == 0:
            return self.chance.choice((None, True, False))
        if kind == 1:
            number = self.chance.choice(NUMBERS)
            return abs(number) if careful and is_misread(number) else number
        if kind == 2:
            return self.chance.getrandbits(63) - (1 << 62)
        if kind == 3:
            real = self.chance.choice(FLOATS)
            real = real if self.chance.random() < 0.5 else self.chance.random() * real / 3
            return 0.5 if careful and real.is_integer() else real
        if kind in (4, 5):
            text = self.chance.choice(WORDS)
            return "naïve 日本語" if careful and not text.isascii() else text
        if kind == 6:
            return self._map(depth - 1, careful=careful)
        return [self._value(depth - 1, careful=careful) for _ in range(self.chance.randrange(4))]


def penstock_turn(path: Path, steps: list[Step], *, killed: bool, **options: Any) -> list[Event]:
    """A turn of penstock, in a process of its own; the events that it took."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer: Any = _penstock_steps(path, steps, writing if killed else None, options)
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        _say(writing, answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = json.loads(pipe.read() or b'"it said nothing"')
    os.waitpid(child, 0)
    if isinstance(found, str):
        raise AssertionError(found)
    return list(found)


def _say(writing: int, answer: Any) -> None:
    raw = json.dumps(answer).encode()
    while raw:
        raw = raw[os.write(writing, raw) :]


def _penstock_steps(
    path: Path, steps: list[Step], dying: int | None, options: dict[str, Any]
) -> list[Event]:
    given: dict[str, Any] = {"durability": "process", "segment_bytes": SEGMENT_BYTES} | options
    taken: list[Any] = []
    events: list[Event] = []
    with Queue(path, **given) as queue:
        for what, value in steps:
            if what == "put":
                for event in value:
                    body, more = as_message(event)
                    queue.put(body, **more)
            elif what == "take":
                found = queue.get_many(value)
                taken += found
                events += [as_event(message) for message in found]
            else:
                for message in taken[:value]:
                    message.ack()
                del taken[:value]
        if dying is not None:
            _say(dying, events)
            os.kill(os.getpid(), signal.SIGKILL)
    return events


def beat_turn(
    release: str, path: Path, layout: str, steps: list[Step], *, killed: bool
) -> list[Event]:
    """A turn of a Beat; the events that it took."""
    beat = Beat(release, path, layout, SEGMENT_BYTES)
    events: list[Event] = []
    for what, value in steps:
        if what == "put":
            beat.put(*value)
        elif what == "take":
            found = beat.get(value)
            events += found
            if len(found) < value:
                beat.kill()
                came = [event["fields"]["serial"] for event in events]
                raise AssertionError(f"{len(found)} of {value} came; all that came: {came}")
        else:
            beat.ack(value)
    if killed:
        beat.kill()
    else:
        beat.close()
    return events


@dataclass
class Turns:
    """What is in the queue, by the parties' own words."""

    release: str
    path: Path
    layout: str
    seed: int
    pending: list[Event] = field(default_factory=list)
    """Put and not acked, in order."""
    again: list[Event] = field(default_factory=list)
    """Acked by a Beat, which may send them once more: it forgets its first ack of a session."""
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begins."""
        self.chance = random.Random(self.seed)
        self.maker = Maker(self.chance)

    def run(self, turns: int) -> None:
        """So many turns, then everything is drained and compared."""
        is_beats = self.chance.random() < 0.5
        for _ in range(turns):
            drain = self.chance.random() < 0.25
            self.turn(is_beats=is_beats, killed=self.chance.random() < 0.4, drain=drain)
            # A Beat can't read back the compressed segments that it left itself.
            is_beats = not is_beats if self.layout.endswith("lz4") else self.chance.random() < 0.5
        self.turn(is_beats=is_beats, killed=False, drain=True)

    def turn(self, *, is_beats: bool, killed: bool, drain: bool = False) -> None:
        """One party opens the queue, does something, and ends."""
        steps, puts = self._steps(drain=drain, careful=is_beats)
        brief = [(what, len(v) if what == "put" else v) for what, v in steps]
        who = f"Beat {self.release}" if is_beats else "penstock"
        self.story.append(f"{who} {brief} {'killed' if killed else 'closed'}")
        try:
            if is_beats:
                got = beat_turn(self.release, self.path, self.layout, steps, killed=killed)
            else:
                options = {"format": "beats", "layout": self.layout}
                got = penstock_turn(self.path, steps, killed=killed, **options)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._told()}") from None
        self._settle(got, sum(v for what, v in steps if what == "ack"), puts, is_beats=is_beats)

    def _steps(self, *, drain: bool, careful: bool) -> tuple[list[Step], list[Event]]:
        if drain:
            count = len(self.pending)
            return [("take", count), ("ack", count)], []
        steps: list[Step] = []
        puts: list[Event] = []
        taken = acked = 0
        for _ in range(self.chance.randrange(1, 5)):
            what = self.chance.choice(("put", "put", "take", "ack"))
            if what == "put":
                new = [
                    self.maker.event(careful=careful) for _ in range(self.chance.randrange(1, 12))
                ]
                puts += new
                steps.append(("put", new))
            elif what == "take" and (left := len(self.pending) + len(puts) - taken) > 0:
                count = self.chance.randint(1, left)
                taken += count
                steps.append(("take", count))
            elif taken > acked:
                count = self.chance.randint(1, taken - acked)
                acked += count
                steps.append(("ack", count))
        return steps, puts

    def _told(self) -> str:
        waiting = [event["fields"]["serial"] for event in self.pending]
        head = f"seed {self.seed}, layout {self.layout}, waiting before the last turn: {waiting}"
        return "\n".join((head, *self.story))

    def _settle(self, got: list[Event], acked: int, puts: list[Event], *, is_beats: bool) -> None:
        story = self._told()
        serials = [event["fields"]["serial"] for event in self.again]
        first = got[0]["fields"]["serial"] if got else None
        start = serials.index(first) if first in serials else len(serials)
        again, stream = self.again[start:], [*self.again[start:], *self.pending, *puts]
        wanted = stream[: len(got)]
        if list(map(exact, got)) != list(map(exact, wanted)):
            numbers = [[event["fields"].get("serial") for event in some] for some in (got, wanted)]
            pairs = zip(got, wanted, strict=False)
            unequal = next((pair for pair in pairs if exact(pair[0]) != exact(pair[1])), None)
            raise AssertionError(f"got {numbers[0]}, wanted {numbers[1]}, {unequal}\n{story}")
        acks, self.pending = stream[:acked], [*self.pending, *puts][max(0, acked - len(again)) :]
        if is_beats:
            self.again = [*self.again[:start], *again[acked:], *acks] if acks else self.again
            self.again.sort(key=lambda event: int(event["fields"]["serial"]))
        elif acks:
            self.again = again[acked:]
