"""Edges of the margin engine that a review found: each failed once."""

import numpy as np
import pytest
from scipy import sparse

from volmar import SKMMC, MultivariateMMC
from volmar.margin.cpmmc import CPMMC
from volmar.margin.engine.descent import maximise_margin
from volmar.margin.engine.nested import relabelling_outside
from volmar.margin.engine.problem import HingeLoss, MarginProblem
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.kernel_cpmmc import KernelCPMMC
from volmar.solvers import Status


def overlapping(seed):
    rng = np.random.default_rng(seed)
    return np.vstack([rng.standard_normal((45, 3)), rng.standard_normal((15, 3)) + 2])


@pytest.mark.parametrize(("seed", "balance"), [(26, 0.3), (13, 0.2), (21, 0.2)])
def test_a_C_at_which_w_0_is_best_is_not_a_silent_success(seed, balance):
    X = overlapping(seed)
    model = CPMMC(C=10, balance=balance, tol=1e-7, max_iter=5000, random_state=0).fit(X)
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
        problem = MarginProblem(LinearSpace(X), HingeLoss(), tau=0.05)
        q = maximise_margin(problem, r.integers(0, 2, 40), C=3.0, path=(2.7,), tol=0.01)
        assert q.status is Status.CONVERGED, (seed, q)
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
    model = KernelCPMMC(kernel="linear", random_state=0).fit(X)
    exact = CPMMC(random_state=0).fit(X.astype(np.float64))
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-6)
    np.testing.assert_array_equal(model.labels_, exact.labels_)


def test_paper_loop_inner_limit_is_not_converged(rng):
    X = overlapping(0)
    problem = MarginProblem(LinearSpace(X), HingeLoss())
    q = relabelling_outside(problem, X[:, 0] > 1, C=10.0, cut_tol=1e-6, cccp_tol=1e9, max_iter=2)
    assert q.residuals["violation"] > 1e-6
    assert q.status is Status.MAX_ITER


def test_fixed_balance_of_1_or_more_names_balance(rng):
    X = overlapping(0)
    with pytest.raises(ValueError, match="balance"):
        CPMMC(threshold="fixed", C=1, balance=1.5, random_state=0).fit(X)


def two_groups(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.standard_normal((n, 2)) + 5.0 * y[:, None] * np.eye(2)[0], y


def test_sparse_single_precision_rows_far_from_the_origin():
    X, _ = two_groups()
    near = SKMMC(random_state=0).fit(X)
    far = SKMMC(random_state=0).fit(sparse.csr_matrix((X + 300).astype(np.float32)))
    # No RBF kernel has an objective below -1/2; rounded distances once gave -3.
    assert far.objective_ == pytest.approx(near.objective_, rel=0.05)
    assert np.mean(far.labels_ != near.labels_) in (0.0, 1.0)


def test_rows_without_weight_are_no_landmarks():
    X, y = two_groups()
    rng = np.random.default_rng(1)
    far = np.vstack([X, rng.uniform(-1000, 1000, (600, 2))])
    weights = np.r_[np.ones(60), np.zeros(600)]
    model = KernelCPMMC(method="nystroem", n_landmarks=20, gamma=0.1, random_state=0)
    labels = model.fit(far, sample_weight=weights).labels_[:60]
    assert np.mean(labels == y) in (0.0, 1.0)


def test_more_landmarks_than_rows_are_no_matter_of_memory():
    X, y = two_groups()
    model = KernelCPMMC(method="nystroem", n_landmarks=10**9, random_state=0).fit(X)
    assert np.mean(model.labels_ == y) in (0.0, 1.0)


def test_a_width_beyond_all_distances_is_reported():
    X, _ = two_groups()
    with pytest.warns(UserWarning, match="Only one basis vector"):
        SKMMC(gamma=5e-15, random_state=0).fit(X)


@pytest.mark.parametrize("gamma", [1e-300, 1e300])
def test_widths_out_of_range_are_refused(gamma):
    with pytest.raises(ValueError, match="out of range"):
        SKMMC(gamma=gamma).fit(two_groups()[0])


def test_one_row_with_weight_is_refused():
    X, _ = two_groups()
    weights = np.zeros(60)
    weights[3] = 1.0
    models = (SKMMC(), CPMMC(), KernelCPMMC(method="nystroem"))
    for model in models:
        with pytest.raises(ValueError, match="positive sample_weight, 1"):
            model.fit(X, sample_weight=weights)


def test_a_search_that_finds_nothing_more_ends():
    X, _ = two_groups()
    model = SKMMC(n_basis=10**9, random_state=0).fit(X)
    assert len(model.basis_vectors_) <= 50


@pytest.mark.parametrize("loss", ["error", "rand", "fbeta", "nmi"])
def test_converged_means_within_tol_of_the_objective(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3)) + 1.5 * (np.arange(80) % 2)[:, None]
    for C in (1.3, 3.0, 10.0):
        model = MultivariateMMC(loss=loss, C=C, tol=0.3, random_state=0).fit(X)
        assert model.status_ is Status.CONVERGED
        assert model.result_.is_certified(0.3)


def test_annealing_values_not_below_C_are_refused():
    with pytest.raises(ValueError, match="anneal contains 5"):
        CPMMC(C=2, anneal=(1.2, 5.0)).fit(two_groups()[0])


def test_a_wide_box_and_a_small_C_are_both_named():
    X, _ = two_groups()
    with pytest.raises(ValueError, match="threshold='adaptive'"):
        SKMMC(threshold="fixed", balance=100.0, random_state=0).fit(X)
    with pytest.raises(ValueError, match="Lower balance"):
        SKMMC(balance_unit="score", balance=1e9, random_state=0).fit(X)
