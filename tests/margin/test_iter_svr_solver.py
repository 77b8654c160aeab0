"""The loop of IterSVR: descent, cycles, degenerate labels."""

import itertools

import numpy as np
import pytest
from helpers.cvxpy_references import l1_value_by_cvxpy
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.iter_svr import IterSVR, iterate_svr, lowest_loss_cut, widest_gap_cut
from volmar.solvers import Status


@pytest.mark.parametrize("C", [0.003, 0.03, 1.0])
@pytest.mark.parametrize("kind", ["features", "kernel"])
def test_the_objective_of_the_lowest_loss_never_rises(rng, C, kind):
    moved = 0
    for _ in range(6):
        X = rng.standard_normal((80, 4)) * [3, 1, 1, 1]
        X[:35, 0] += 5
        space = LinearSpace(X) if kind == "features" else KernelSpace(rbf_kernel(X))
        labels = rng.permutation(80) < 40
        result = iterate_svr(space, labels, C, lowest_loss_cut, floor=30, tol=1e-8, max_iter=200)
        assert result.status is Status.CONVERGED
        assert result.residuals["switched"] == 0.0
        history = np.array(result.history)
        assert np.all(np.diff(history) <= 1e-7 * history[0])
        assert 30 <= result.labels.sum() <= 50
        moved += result.n_iter - 1
    assert moved > 3


def test_uneven_labels_of_one_cloud_are_degenerate(rng):
    """The minimum loss is that of a constant, at every C; the round before is kept."""
    X = rng.standard_normal((200, 3))
    space = LinearSpace(X)
    first = (X[:, 0] > 0).astype(int)
    result = iterate_svr(space, first, 0.02, lowest_loss_cut, floor=8)
    assert result.status is Status.DEGENERATE
    assert result.labels.size == 200
    uneven = rng.permutation(200) < 10
    for C in (0.01, 10.0):
        value = l1_value_by_cvxpy(X, 2.0 * uneven - 1, np.full(200, C))
        assert value == pytest.approx(2 * C * 10, rel=1e-6)
        nothing = iterate_svr(space, uneven, C, lowest_loss_cut, floor=8)
        assert nothing.status is Status.DEGENERATE
        assert nothing.labels.size == 0
    with pytest.raises(ValueError, match="labels of the start"):
        IterSVR(kernel="linear", init=uneven).fit(X)
    with pytest.warns(ConvergenceWarning, match="constant.*min_cluster_size"):
        model = IterSVR(kernel="linear", init=first, bias="balance", min_cluster_size=8).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_cycle_ends_with_the_best_of_it(rng):
    """A rule that goes round in a circle of three labellings."""
    X = rng.standard_normal((20, 3))
    space = LinearSpace(X)
    circle = [X[:, j] > np.median(X[:, j]) for j in range(3)]
    calls = itertools.count()

    def rule(g, floor, bias):
        cut = lowest_loss_cut(g, floor, bias)
        return cut._replace(labels=circle[next(calls) % 3].astype(np.int64))

    result = iterate_svr(space, np.arange(20) % 2, 0.1, rule, floor=1, max_iter=50, tol=1e-7)
    assert result.status is Status.CYCLE
    assert result.n_iter < 12
    assert result.objective == pytest.approx(min(result.history[1:]), rel=1e-6)
    assert result.residuals["switched"] > 0


def test_gap_cycles_or_settles_but_always_ends(rng):
    statuses = set()
    for _ in range(30):
        X = rng.standard_normal((30, 2))
        space = KernelSpace(rbf_kernel(X))
        result = iterate_svr(
            space, rng.permutation(30) < 15, 0.3, widest_gap_cut, floor=3, max_iter=500
        )
        statuses.add(result.status)
        assert result.n_iter < 500
    assert statuses <= {Status.CONVERGED, Status.CYCLE}


def test_a_regression_that_failed_is_not_a_fixed_point_found(groups, start):
    """A tolerance below rounding is not met; the status and a remedy are reported."""
    space = KernelSpace(rbf_kernel(groups, gamma=0.1))
    result = iterate_svr(space, start, 0.5, widest_gap_cut, floor=6, tol=1e-300)
    assert result.residuals["switched"] == 0.0
    assert result.status is Status.FAILED
    with pytest.warns(ConvergenceWarning, match="tol=1e-300"):
        model = IterSVR(init=start, tol=1e-300).fit(groups)
    assert model.status_ is Status.FAILED
    np.testing.assert_array_equal(model.predict(groups), model.labels_)
