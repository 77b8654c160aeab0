"""MultivariateMMC as printed: the paper's units, its defaults and where its algorithm fails."""

import itertools
import warnings

import cvxpy as cp
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score, rand_score

from volmar import MultivariateMMC
from volmar.datasets import make_two_circles
from volmar.margin.multivariate_mmc import SCALE, UNITS
from volmar.metrics import pair_f_measure
from volmar.solvers import Status

LOSSES = ["error", "rand", "fbeta", "nmi"]


def delta(loss, y, other):
    """The paper's losses; that of Theorem 2 as twice the rate of errors."""
    if loss == "error":
        return 2 * np.mean(y != other)
    if loss == "rand":
        return 1 - rand_score(y, other)
    if loss == "fbeta":
        return 1 - pair_f_measure(y, other, beta=1.5)
    return 1 - normalized_mutual_info_score(y, other, average_method="geometric")


def printed_values(X, y, loss, C, balances, count=False):
    """The values of eq. 10 (17 at its labels) with sums over rows and a constraint for every y'.

    The offset is that of eq. 1. With `count` the loss is twice the number of errors.
    """
    n, d = X.shape
    others = np.array(list(itertools.product([-1.0, 1.0], repeat=n)))
    losses = np.array([delta(loss, y, other) for other in others]) * (n if count else 1)
    w, b, xi = cp.Variable(d), cp.Variable(), cp.Variable()
    f = X @ w + b
    cost = cp.Minimize(0.5 * cp.sum_squares(w) + C * xi)
    rows = [(y - others) @ f >= losses - xi, xi >= 0]
    tight = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
    return [
        cp.Problem(cost, [*rows, cp.abs(cp.sum(f)) <= balance]).solve(solver=cp.CLARABEL, **tight)
        for balance in balances
    ]


def nine_rows():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((9, 2)) + np.repeat([[0.0, 0.0], [2.0, 1.0]], [6, 3], axis=0)
    return X + np.array([3.0, -1.0]), (np.arange(9) >= 6).astype(int)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_papers_sums_are_means_at_the_documented_C_and_balance(loss):
    X, start = nine_rows()
    n, balance, printed_C = len(X), 0.2, 0.02
    model = MultivariateMMC(
        loss=loss,
        threshold="fixed",
        C=printed_C * n**2 / UNITS[loss],
        balance=balance,
        init=start,
        anneal=(),
        tol=1e-8,
    ).fit(X)
    assert np.isfinite(model.result_.gap)
    y = np.where(model.labels_ == 1, 1.0, -1.0)
    value, other = printed_values(X, y, loss, printed_C, [balance, balance / n])
    close = {"rel": 1e-6, "abs": model.result_.gap / n**2}
    assert model.objective_ / n**2 == pytest.approx(value, **close)
    # l is the balance, not n times it; and it matters here.
    assert other > 1.001 * value
    assert model.objective_ / n**2 != pytest.approx(other, **close)


def test_with_the_number_of_errors_both_units_divide_by_n():
    X, start = nine_rows()
    n, balance = len(X), 0.9
    settings = {"threshold": "fixed", "init": start, "anneal": (), "tol": 1e-8}
    model = MultivariateMMC(loss="error", C=2 * n * 0.3, balance=balance / n, **settings).fit(X)
    y = np.where(model.labels_ == 1, 1.0, -1.0)
    (value,) = printed_values(X, y, "error", 0.3, [balance], count=True)
    assert model.objective_ == pytest.approx(value, rel=1e-6, abs=model.result_.gap)


# ---------------------------------------------------------------------- defaults


def digits(a, b):
    data = load_digits()
    pair = (data.target == a) | (data.target == b)
    return data.data[pair], data.target[pair]


@pytest.mark.parametrize("loss", LOSSES)
def test_paper_mode_alone_has_the_documented_values(loss):
    X, _ = digits(1, 7)
    alone = MultivariateMMC(loss=loss, mode="paper", random_state=3).fit(X)
    C = SCALE / np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1))
    seed = np.random.RandomState(3).randint(2**31 - 1, size=1)[0]
    spelt = MultivariateMMC(
        loss=loss,
        mode="paper",
        threshold="fixed",
        C=C,
        balance=0.0,
        cut_tol=0.01,
        cccp_tol=0.01,
        max_iter=100,
        init=KMeans(2, n_init=1, random_state=seed).fit(X).labels_,
    ).fit(X)
    assert pytest.approx(C, rel=1e-12) == alone.C_
    assert alone.result_.rho == 1.0
    assert alone.result_.t == 0.0
    assert alone.status_ is Status.CONVERGED
    assert alone.objective_ == pytest.approx(spelt.objective_, rel=1e-9)
    np.testing.assert_array_equal(alone.labels_, spelt.labels_)


def test_the_default_mode_keeps_its_values():
    X, _ = digits(1, 7)
    alone = MultivariateMMC(random_state=0).fit(X)
    spelt = MultivariateMMC(C=1.2, threshold="adaptive", random_state=0).fit(X)
    assert alone.C_ == 1.2
    assert alone.objective_ == spelt.objective_ < 0
    fixed = MultivariateMMC(threshold="fixed", random_state=0).fit(X)
    assert (fixed.C_, fixed.result_.rho) == (1.2, 1.0)
    adaptive = MultivariateMMC(mode="paper", threshold="adaptive", max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning):
        adaptive.fit(X)
    assert adaptive.C_ == 1.2
    assert adaptive.result_.rho != 1.0


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_scale_of_the_rows_does_not_matter_to_C_by_rule(kernel):
    X, _ = digits(8, 9)
    settings = {"mode": "paper", "kernel": kernel, "C": "3*scale", "random_state": 0}
    one, other = (MultivariateMMC(**settings).fit(factor * X) for factor in (1.0, 0.001))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert one.result_.scores == pytest.approx(other.result_.scores, abs=1e-6)
    if kernel == "linear":
        assert pytest.approx(1e6 * one.C_) == other.C_
    tenth = MultivariateMMC(**{**settings, "C": "scale/10"}).fit(X)
    assert pytest.approx(one.C_ / 30) == tenth.C_


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"C": "scale"}, "^C='scale'"),
        ({"C": "scale", "mode": "paper", "threshold": "adaptive"}, "C='scale' depends on the"),
        ({"C": "large", "mode": "paper"}, "^C .*got 'large'"),
        ({"C": "0*scale", "mode": "paper"}, "C must be"),
        ({"C": "scale/0", "mode": "paper"}, "C must be"),
        ({"C": -1.0, "mode": "paper"}, "C must be"),
        ({"threshold": "free"}, "threshold must be"),
    ],
)
def test_rules_for_C_that_have_no_meaning_are_refused(parameters, match):
    X, _ = digits(8, 9)
    with pytest.raises(ValueError, match=match):
        MultivariateMMC(**parameters).fit(X)


def test_paper_mode_of_equal_rows_and_of_indefinite_kernels_is_refused():
    X = np.vstack([np.ones((30, 2)), np.full((1, 2), 1.0 + 1e-15)])
    with pytest.raises(ValueError, match="rows of X are identical"):
        MultivariateMMC(mode="paper", random_state=0).fit(X)
    K = -np.eye(20)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        MultivariateMMC(mode="paper", kernel="precomputed", random_state=0).fit(K)


# ---------------------------------------------------------------------- where it fails


@pytest.mark.parametrize("loss", ["nmi", "rand"])
@pytest.mark.parametrize("factor", [0.2, 0.5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_paper_mode_has_rows_on_both_sides_of_circles(loss, factor, seed):
    """The scores there are far below 1, and any box for their mean could hold all of them."""
    X, _ = make_two_circles(100, noise=0.05, factor=factor, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MultivariateMMC(loss=loss, mode="paper", max_iter=20, random_state=0).fit(X)
    assert np.bincount(model.labels_).min() > 10


def test_a_balance_that_holds_all_scores_names_the_remedy():
    X, _ = digits(8, 9)
    model = MultivariateMMC(mode="paper", C="scale/100", balance=1.0, random_state=0)
    with pytest.raises(ValueError, match=r"balance=1.* raise C"):
        model.fit(X)


def test_the_known_failure_of_the_printed_algorithm_and_its_remedies():
    """C5 of the docs: from k-means down to nothing at a large C, and not at a smaller one."""
    X, y = digits(3, 8)

    def score(labels):
        return normalized_mutual_info_score(y, labels, average_method="geometric")

    start = KMeans(2, n_init=1, random_state=0).fit(X).labels_
    assert score(start) > 0.7
    with pytest.warns(ConvergenceWarning) as caught:
        model = MultivariateMMC(mode="paper", C=10.0, init=start).fit(X)
    assert model.status_ is Status.MAX_ITER
    assert model.result_.residuals["violation"] > 0.3
    assert score(model.labels_) < 0.2
    (message,) = [str(warning.message) for warning in caught]
    assert "Lower C (now 10)" in message
    assert "cut_tol=0.01" in message
    assert "or tol" not in message
    smaller = MultivariateMMC(mode="paper", init=start).fit(X)
    assert smaller.status_ is Status.CONVERGED
    assert score(smaller.labels_) > 0.8
    assert score(MultivariateMMC(C=10.0, init=start).fit(X).labels_) > 0.75


# ---------------------------------------------------------------------- fitted attributes


@pytest.mark.parametrize(
    ("parameters", "gamma"),
    [
        ({}, None),
        ({"kernel": "cosine"}, None),
        ({"kernel": lambda A, B: A @ B.T}, None),
        ({"kernel": "rbf", "gamma": 0.5}, 0.5),
        ({"kernel": "rbf", "gamma": None}, 0.5),
    ],
)
def test_intercept_and_gamma(parameters, gamma):
    X, _ = make_two_circles(60, noise=0.05, factor=0.2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MultivariateMMC(random_state=0, **parameters).fit(X)
    assert model.gamma_ == gamma
    assert hasattr(model, "intercept_") == (not parameters)
    if not parameters:
        assert model.intercept_.shape == (1,)
    by_rule = MultivariateMMC(kernel="rbf", random_state=0).fit(X)
    assert by_rule.gamma_ == pytest.approx(1 / (X.shape[1] * X.var()))


@pytest.mark.parametrize("loss", ["error", "rand"])
def test_a_tree_that_ends_early_in_paper_mode_says_so(loss):
    X = np.random.default_rng(0).normal(size=(150, 1))
    model = MultivariateMMC(3, loss=loss, mode="paper", max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="splits ended early"):
        model.fit(X)
    assert model.tree_.n_leaves == 3
