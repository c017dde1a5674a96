"""How much a format may answer in a way of its own."""

from __future__ import annotations

import ast
import inspect

from penstock.formats import contract

ANSWERS_MAX = 46
"""It only goes down."""


def answers_of(name: str) -> list[tuple[str, set[str]]]:
    """The methods of a class that a format may give anew, each with its decorators."""
    body = ast.parse(inspect.getsource(contract)).body
    found = next(one for one in body if isinstance(one, ast.ClassDef) and one.name == name)
    methods = [one for one in found.body if isinstance(one, ast.FunctionDef)]
    known = [(one.name, {ast.unparse(by) for by in one.decorator_list}) for one in methods]
    return [(name, by) for name, by in known if "final" not in by and not name.startswith("_")]


def test_the_contract_of_a_format_stays_small() -> None:
    answers = answers_of("Format")
    assert len(answers) <= ANSWERS_MAX
    assert len([name for name, by in answers if "abstractmethod" in by]) <= 11


def test_what_a_format_says_of_groups_stays_small() -> None:
    assert len(answers_of("OwnGroups")) <= 12
