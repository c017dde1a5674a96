"""Our `dataclass` does what the standard library's does, and loads none of what that needs."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from penstock import records


def classes(dataclass: Callable[..., Any], field: Callable[..., Any]) -> list[Any]:
    """The same classes, made by either."""

    @dataclass(frozen=True, slots=True)
    class Place:
        """A place."""

        path: str
        at: int = 0

        @property
        def shown(self) -> str:
            return f"{self.path}:{self.at}"

    @dataclass(slots=True)
    class Count:
        total: int
        names: list[str] = field(default_factory=list)
        by: dict[str, int] = field(default_factory=dict)

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        limit: ClassVar[int] = 7
        size: int = 1
        word: str = "a"

        def __post_init__(self) -> None:
            if self.size > self.limit:
                raise ValueError("too large")

    return [Place, Count, Options]


OURS = classes(records.dataclass, records.field)
THEIRS = classes(dataclasses.dataclass, dataclasses.field)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """How one class is made."""

    which: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


CASES = [
    Case(0, ("a",), {}), Case(0, ("a", 3), {}), Case(0, (), {"path": "a", "at": 3}),
    Case(0, (), {}), Case(0, ("a", 1, 2), {}), Case(0, ("a",), {"nosuch": 1}),
    Case(1, (1,), {}), Case(1, (1, ["x"]), {"by": {"y": 2}}),
    Case(2, (), {}), Case(2, (), {"size": 3}), Case(2, (3,), {}), Case(2, (), {"size": 9}),
]  # fmt: skip


def outcome(work: Callable[[], Any]) -> Any:
    """What it answers, or raises."""
    try:
        return work()
    except Exception as error:
        return type(error)


def facts_of(kinds: list[Any], case: Case) -> Any:
    """All that can be seen of a class and an object of it."""
    cls = kinds[case.which]
    value = outcome(lambda: cls(*case.args, **case.kwargs))
    if isinstance(value, type):
        return value
    other = cls(*case.args, **case.kwargs)
    known = [(one.name, one.type, one.kw_only) for one in dataclasses.fields(value)]
    is_hashable = isinstance(outcome(lambda: hash(value) == hash(other)), bool)
    return {
        "repr": repr(value).rpartition("<locals>.")[2],
        "equal": (value == other, value != other, value == 7),
        "hash": is_hashable,
        "set": outcome(lambda: setattr(other, known[0][0], 5)),
        "match": cls.__match_args__,
        "asdict": dataclasses.asdict(value),
        "fields": known,
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_objects_are_made_shown_and_compared_as_the_standard_library_does(case: Case) -> None:
    assert facts_of(OURS, case) == facts_of(THEIRS, case)


def test_values_are_replaced_and_each_object_has_its_own_lists() -> None:
    place, count, _ = OURS
    assert records.replace(place("a", 3), at=4) == place("a", 4)
    assert dataclasses.replace(place("a", 3), at=4) == place("a", 4)
    assert records.asdict(place("a")) == {"path": "a", "at": 0}
    one, other = count(1), count(1)
    one.names.append("x")
    assert (one.names, other.names) == (["x"], [])
    assert not hasattr(one, "__dict__")
    assert place("a", 3).shown == "a:3"
    with pytest.raises(AttributeError):
        one.nosuch = 1


@records.dataclass(frozen=True, slots=True)
class Sent:
    """Travels."""

    name: str
    count: int = 1


def test_frozen_objects_are_copied_and_pickled() -> None:
    sent = Sent("a", 3)
    for other in (pickle.loads(pickle.dumps(sent)), copy.copy(sent), copy.deepcopy(sent)):
        assert other == sent
        assert hash(other) == hash(sent)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sent.name = "b"  # type: ignore[misc]


def test_one_may_derive_from_a_record_by_either_decorator() -> None:
    @dataclasses.dataclass(frozen=True)
    class Theirs(Sent):
        more: int = 2

    @records.dataclass(frozen=True, slots=True)
    class Ours(Sent):
        more: int = 2

    for kind in (Theirs, Ours):
        assert (kind("a").name, kind("a", 1, 5).more) == ("a", 5)
        assert [one.name for one in dataclasses.fields(kind)] == ["name", "count", "more"]
