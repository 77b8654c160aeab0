"""Edges of the margin engine that a review found: each failed once."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from volmar.margin.cpmmc import CPMMC
from volmar.margin.engine import maximise_margin
from volmar.margin.kernel_cpmmc import KernelCPMMC
from volmar.margin.losses import HingeLoss
from volmar.margin.nested import relabelling_outside
from volmar.margin.problem import MarginProblem
from volmar.margin.sources import LinearSource
from volmar.rows import as_rows
from volmar.solvers import Status


def overlapping(seed):
    rng = np.random.default_rng(seed)
    return np.vstack([rng.standard_normal((45, 3)), rng.standard_normal((15, 3)) + 2])


@pytest.mark.parametrize(("seed", "balance"), [(26, 0.3), (13, 0.2), (21, 0.2)])
def test_a_price_at_which_w_0_is_best_is_not_a_silent_success(seed, balance):
    X = overlapping(seed)
    try:
        model = CPMMC(C=10, balance=balance, tol=1e-7, max_iter=5000, random_state=0).fit(X)
    except (ValueError, ConvergenceWarning):
        return
    assert model.status_ is Status.CONVERGED
    assert model.objective_ < 0
    assert model.result_.gap <= 1e-6 * abs(model.objective_)


def test_equal_rows_many():
    with pytest.raises(ValueError, match="rows of X differ"):
        CPMMC(init="random", random_state=0).fit(np.ones((2500, 2)))


def test_the_gap_is_within_tol_after_a_path():
    for seed in range(60):
        r = np.random.default_rng(seed)
        X = r.standard_normal((40, 3))
        problem = MarginProblem(LinearSource(as_rows(X)), HingeLoss(), tau=0.05)
        q = maximise_margin(problem, r.integers(0, 2, 40), C=3.0, path=(2.7,), tol=0.01)
        if q.status is Status.CONVERGED:
            assert q.gap <= 0.01 * abs(q.lower_bound) * (1 + 1e-9), (seed, q)


def test_equal_rows_default_kernel():
    with pytest.raises(ValueError, match="rows of X differ"):
        KernelCPMMC(init="random", random_state=0).fit(np.ones((30, 2)))


def test_kernels_that_are_not_psd_name_the_kernel(rng):
    K = rng.standard_normal((30, 30))
    with pytest.raises(ValueError, match="kernel"):
        KernelCPMMC(kernel="precomputed", random_state=0).fit(K + K.T)


@pytest.mark.parametrize("offset", [1e3, 1e4])
def test_linear_kernel_float32_offset(rng, offset):
    X = rng.standard_normal((300, 20)).astype(np.float32) + np.float32(offset)
    KernelCPMMC(kernel="linear", random_state=0).fit(X)


def test_paper_loop_inner_limit_is_not_converged(rng):
    X = overlapping(0)
    problem = MarginProblem(LinearSource(as_rows(X)), HingeLoss())
    q = relabelling_outside(problem, X[:, 0] > 1, C=10.0, cut_tol=1e-6, cccp_tol=1e9, max_iter=2)
    assert q.status is not Status.CONVERGED or q.residuals["violation"] <= 1e-6


def test_fixed_balance_of_1_or_more_names_balance(rng):
    X = overlapping(0)
    with pytest.raises(ValueError, match="balance"):
        CPMMC(threshold="fixed", C=1, balance=1.5, random_state=0).fit(X)
