"""A queue against a list: whatever is done in whatever order, the list says what must come out."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.model import machine

MODELS: dict[str, type[machine.Model]] = {
    "penstock": machine.Model, "zbus": machine.Zbus, "beats": machine.Beats, "vqs": machine.Vqs,
    "mfq": machine.Mfq, "compressed": machine.Compressed, "encrypted": machine.Encrypted,
}  # fmt: skip
HISTORIES = {"compressed": 15, "encrypted": 15}


def run(model: type[machine.Model], histories: int, steps: int) -> None:
    case = model.TestCase
    case.settings = settings(
        max_examples=histories, stateful_step_count=steps, deadline=None, print_blob=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    case().runTest()


@pytest.mark.parametrize("kind", MODELS)
def test_the_queue_does_what_the_list_says(kind: str) -> None:
    run(MODELS[kind], HISTORIES.get(kind, 60), 50)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("part", range(80))
def test_the_queue_does_what_the_list_says_for_a_long_time(kind: str, part: int) -> None:
    # In parts, each of which goes through all formats: a run that has no time for all goes on.
    run(MODELS[kind], 40 if kind not in HISTORIES else 10, 100)
