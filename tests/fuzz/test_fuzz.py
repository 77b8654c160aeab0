"""Some fuzz cases with a fixed seed; ``make fuzz`` runs many with a fresh one."""

import pytest

from fuzz.__main__ import cases_of
from fuzz.runner import run_cases

SEED, N_CASES, N_PARTS = 25, 500, 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(N_PARTS))
def test_hostile_input_keeps_the_contract(part):
    cases = cases_of(SEED, N_CASES)[part::N_PARTS]
    findings, outcomes = run_cases(cases)
    assert not findings, "\n\n".join(map(str, findings))
    assert sum(outcomes.values()) == len(cases)
