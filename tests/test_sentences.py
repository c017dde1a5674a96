"""Plain English in the source: a sentence says who does what. Let the numbers fall."""

from __future__ import annotations

import ast
import re

from tests.test_tidy import RUST, SOURCE, files, lines_matching, nodes, wrong_in

HIDDEN_SUBJECTS = re.compile(r"\b(?:whoever|nobody|someone|somebody|anybody)\b", re.I)
HIDDEN_SUBJECTS_MAX = 10
# A sentence that names no subject, a docstring that is the rest of a sentence never said, and one
# that a translator wrote: bytes are not JSON, rather than no JSON.
RIDDLES = re.compile(
    r"\b[Ww]hoever\b|(?:\"\"\"|//[/!] )Of |\bis no (?:JSON|UTF-8|gzip|base64|text)\b"
)
SHORT_DOCSTRINGS_MAX = 30
DOCSTRING_WORDS_MIN = 4


def short_docstrings(text: str) -> list[str]:
    return [
        f"line {node.lineno}: {node.name}: {doc}"
        for node in nodes(text)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (doc := ast.get_docstring(node)) and len(doc.split()) < DOCSTRING_WORDS_MIN
    ]


def test_sentences_name_who_does_it() -> None:
    rooms = ("disk", "sidecar", "formats", "engine")
    paths = [path for room in rooms for path in files("*.py", under=SOURCE / room)]
    found = wrong_in(paths, lambda text: lines_matching(text, HIDDEN_SUBJECTS))
    assert len(found) <= HIDDEN_SUBJECTS_MAX, found


def test_no_sentence_is_a_riddle() -> None:
    paths = [*files("*.py", "*.pyi", under=SOURCE), *files("*.rs", under=RUST)]
    assert wrong_in(paths, lambda text: lines_matching(text, RIDDLES)) == []


def test_a_riddle_is_noticed() -> None:
    riddles = ("/// Of this lender.", "# Whoever dies in it", 'f"the body is no JSON: {error}"')
    for line in ('"""Of one queue."""', *riddles):
        assert lines_matching(line, RIDDLES)
    assert not lines_matching('"""The path of a URL. Of two names the last counts."""', RIDDLES)


def test_docstrings_say_something() -> None:
    below = [path for room in ("disk", "sidecar", "formats") for path in (SOURCE / room).rglob("*")]
    paths = files("*.py", under=SOURCE)
    assert wrong_in([path for path in below if path in paths], short_docstrings) == []
    assert len(wrong_in(paths, short_docstrings)) <= SHORT_DOCSTRINGS_MAX


def test_a_docstring_that_says_nothing_is_noticed() -> None:
    text = 'def f():\n    """The value."""\ndef g():\n    """The value at `at`."""'
    assert short_docstrings(text) == ["line 1: f: The value."]
    assert lines_matching("# Whoever dies in it", HIDDEN_SUBJECTS)
