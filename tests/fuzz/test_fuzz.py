"""Some fuzz cases with a fixed seed; ``make fuzz`` runs many with a fresh one."""

import numpy as np
import pytest

import volmar
from fuzz.__main__ import cases_of
from fuzz.domains.metamorphic import make_groups
from fuzz.runner import run_cases
from volmar.diagnostics import drift

SEED, N_CASES, N_PARTS = 25, 200, 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(N_PARTS))
def test_hostile_input_keeps_the_contract(part):
    cases = cases_of(SEED, N_CASES)[part::N_PARTS]
    findings, outcomes = run_cases(cases)
    assert not findings, "\n\n".join(map(str, findings))
    assert sum(outcomes.values()) == len(cases)


@pytest.mark.slow
@pytest.mark.parametrize(
    "n_new", [1, 5, 50, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 3, 10, 20))]
)
def test_false_alarms_of_drift_are_as_frequent_as_alpha(n_new):
    """At most the share of p-values below 0.05 that 200 draws of uniform ones can have."""
    n_alarms, n_draws = 0, 200
    for seed in range(n_draws):
        X, _ = make_groups(np.random.default_rng(seed), [[0, 0], [0, 1]], [80, 120 + n_new])
        model = volmar.KernelKMeans(2, gamma="scale", n_init=1, random_state=0).fit(X[n_new:])
        n_alarms += drift(model, X[:n_new], X[n_new:]).p_value <= 0.05
    # Mean 10 and standard deviation 3.1; 22 or more have a probability below 0.001.
    assert n_alarms < 22
