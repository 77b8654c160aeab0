"""Clusters of unequal size: the sizes of a start as balance, for all methods of the margin."""

from __future__ import annotations

import pickle
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from volmar import (
    CPMMC,
    SKMMC,
    KernelCPMMC,
    MultivariateMMC,
)
from volmar.margin.engine.descent import maximise_margin
from volmar.margin.engine.problem import HingeLoss, MarginProblem
from volmar.margin.engine.starts import (
    HALVES,
    are_unequal,
    equal_weights,
    margin_between,
    shares_of_sides,
    unequal_start,
)
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LandmarkSpace, LinearSpace
from volmar.metrics import clustering_error
from volmar.models import load_model, save_model
from volmar.rows.kernel import NystroemMap

# Every method, with the parameter that requests halves, the former default.
HALVED = {
    CPMMC: {"balance": 0.05},
    KernelCPMMC: {"balance": 0.05},
    SKMMC: {"balance": 0.05},
    MultivariateMMC: {"balance": 0.05},
}
WEIGHTED = [CPMMC, KernelCPMMC, SKMMC]


def blobs(n=200, share=0.1, distance=8.0, d=2, seed=0):
    """Two spherical groups; the second has this share of the rows."""
    rng = np.random.default_rng(seed)
    y = (rng.permutation(n) < round(share * n)).astype(int)
    return rng.normal(size=(n, d)) + np.outer(y, np.full(d, distance / np.sqrt(d))), y


def quietly(model, X, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, **more)


# ---------------------------------------------------------------------- every method


@pytest.mark.parametrize("kind", HALVED)
@pytest.mark.parametrize(("share", "distance", "d"), [(0.1, 8.0, 2), (0.2, 7.0, 5)])
def test_a_small_group_is_found(kind, share, distance, d):
    X, y = blobs(share=share, distance=distance, d=d)
    model = kind(random_state=0).fit(X)
    assert clustering_error(y, model.labels_) <= 0.02
    assert sorted(model.balance_) == pytest.approx(sorted([share, 1 - share]), abs=0.02)
    # In the order of the clusters.
    assert model.balance_[1] == pytest.approx(model.labels_.mean(), abs=0.02)
    assert np.mean(model.predict(X) == model.labels_) >= 0.98


@pytest.mark.parametrize("kind", HALVED)
def test_a_given_balance_is_kept(kind):
    """A given balance splits a group in halves: the same data with the former default."""
    X, y = blobs()
    model = quietly(kind(random_state=0, **HALVED[kind]), X)
    assert model.balance_ == HALVES
    assert clustering_error(y, model.labels_) > 0.1


@pytest.mark.parametrize("kind", HALVED)
def test_equal_groups_stay_halves(kind):
    X, y = blobs(n=120, share=0.5, distance=6.0, d=3)
    one, other = (quietly(kind(random_state=0, **more), X) for more in ({}, HALVED[kind]))
    assert one.balance_ == HALVES
    assert clustering_error(y, one.labels_) == 0.0
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert one.objective_ == other.objective_


@pytest.mark.parametrize("kind", HALVED)
def test_the_certificate_is_that_of_the_problem_solved(kind):
    X, _ = blobs(n=120)
    result = kind(random_state=0).fit(X).result_
    assert result.status.ok
    assert result.gap <= 0.02 * abs(result.objective)


@pytest.mark.parametrize("kind", HALVED)
@pytest.mark.parametrize("form", [sparse.csr_matrix, np.float32])
def test_sparse_and_single_rows(kind, form):
    X, y = blobs()
    model = kind(random_state=0).fit(form(X) if form is sparse.csr_matrix else X.astype(form))
    assert clustering_error(y, model.labels_) <= 0.02
    assert max(model.balance_) == pytest.approx(0.9, abs=0.02)


def test_a_kernel_matrix():
    """Without rows, k-means in the feature space or the leading component is used."""
    X, y = blobs(share=0.15)
    model = quietly(KernelCPMMC(kernel="precomputed", random_state=0), rbf_kernel(X, gamma=0.02))
    assert clustering_error(y, model.labels_) <= 0.03
    assert max(model.balance_) == pytest.approx(0.85, abs=0.02)


@pytest.mark.parametrize("kind", [CPMMC, SKMMC, MultivariateMMC])
def test_three_groups_of_70_20_10(kind):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [140, 40, 20])
    centres = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0], [9.0, 9.0, 0.0]])
    model = kind(3, random_state=0).fit(centres[y] + rng.normal(size=(200, 3)))
    assert clustering_error(y, model.labels_) <= 0.01


@pytest.mark.parametrize("kind", HALVED)
def test_the_sizes_survive_a_model_file(kind, tmp_path):
    X, _ = blobs(n=80)
    model = kind(random_state=0).fit(X)
    save_model(tmp_path / "model.volmar", model)
    for again in (pickle.loads(pickle.dumps(model)), load_model(tmp_path / "model.volmar").model):
        assert tuple(again.balance_) == model.balance_
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


# ---------------------------------------------------------------------- the problem solved


def test_the_weighted_mean_score_is_in_the_box():
    X, _ = blobs()
    model = CPMMC(random_state=0).fit(X)
    f = model.decision_function(X)
    q = equal_weights(model.labels_, None, model.balance_)
    assert abs(np.average(f, weights=q)) <= 0.05 + 1e-6
    assert abs(f.mean()) > 0.5
    np.testing.assert_allclose(f, model.result_.scores / model.result_.rho, atol=1e-10)


def test_it_is_the_fit_with_these_weights():
    """From the same labels, with halves and the weights that make the sides equal."""
    X, y = blobs(distance=6.0, share=0.2)
    one = CPMMC(init=y, tol=1e-6, random_state=0).fit(X)
    q = equal_weights(y, None, shares_of_sides(y, None))
    other = CPMMC(init=y, tol=1e-6, balance=0.05, random_state=0).fit(X, sample_weight=q)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-5)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=1e-3)


def test_the_multivariate_losses_keep_their_weights():
    X, y = blobs(distance=6.0, share=0.2)
    model = MultivariateMMC(loss="rand", init=y, random_state=0).fit(X)
    f = model.decision_function(X)
    means = [f[y == side].mean() for side in (0, 1)]
    assert abs(sum(means)) <= 2 * 0.05 + 1e-6
    assert clustering_error(y, model.labels_) <= 0.01


def test_c_is_read_as_for_halves():
    """1/C of the weight is inside the margin, and the smallest C is the same."""
    X, _ = blobs(n=1000, distance=6.0)
    for C in (2.0, 5.0):
        model = CPMMC(C=C, random_state=0).fit(X)
        q = equal_weights(model.labels_, None, shares_of_sides(model.labels_, None))
        inside = np.average(np.abs(model.decision_function(X)) < 1.0, weights=q)
        assert inside == pytest.approx(1.0 / C, abs=0.1)
    assert CPMMC(C=1.06, random_state=0).fit(X).balance_ != HALVES
    with pytest.raises(ValueError, match=r"C=1\.05 is too small"):
        CPMMC(C=1.05).fit(X)


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
@pytest.mark.parametrize("unit", ["margin", "score"])
def test_every_form_of_the_problem(threshold, unit):
    X, y = blobs()
    C = 2.0 if threshold == "adaptive" else 50.0
    model = CPMMC(threshold=threshold, balance_unit=unit, C=C, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) <= 0.02


def test_the_paper_has_halves():
    X, _ = blobs()
    for kind, parameters in ((CPMMC, {}), (SKMMC, {}), (MultivariateMMC, {})):
        one = quietly(kind(mode="paper", C=10.0, random_state=0, **parameters), X)
        other = quietly(kind(mode="paper", C=10.0, balance=0.0, random_state=0, **parameters), X)
        assert one.balance_ == HALVES
        np.testing.assert_array_equal(one.labels_, other.labels_)
        assert one.objective_ == other.objective_


def test_sizes_of_the_labels_given():
    X, y = blobs()
    wrong = np.where(np.arange(len(y)) % 17 == 0, 1 - y, y)
    model = CPMMC(init=wrong, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    assert model.balance_ == pytest.approx(shares_of_sides(wrong, None))


# ---------------------------------------------------------------------- weights and blocks


@pytest.mark.parametrize("kind", WEIGHTED)
def test_weights_are_sizes(kind):
    """A group of half of the rows and a tenth of the weight is a small one."""
    X, y = blobs(share=0.5)
    model = kind(random_state=0).fit(X, sample_weight=np.where(y, 1.0, 9.0))
    assert clustering_error(y, model.labels_) <= 0.02
    assert max(model.balance_) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("kind", WEIGHTED)
def test_rows_without_weight_have_no_effect(kind):
    X, y = blobs()
    far = np.vstack([X, np.random.default_rng(1).normal([80.0, -60.0], size=(300, 2))])
    weights = np.repeat([1.0, 0.0], [len(X), 300])
    model = kind(random_state=0).fit(far, sample_weight=weights)
    assert clustering_error(y, model.labels_[: len(X)]) <= 0.02
    assert max(model.balance_) == pytest.approx(0.9, abs=0.02)


LANDMARKS = KernelCPMMC(method="nystroem", n_landmarks=20, random_state=0)
SPARSE = SKMMC(random_state=0, max_basis=8)


@pytest.mark.parametrize(
    ("model", "n", "is_weighted"),
    [
        (CPMMC(random_state=0), 400, False),
        (CPMMC(random_state=0), 2500, True),
        (LANDMARKS, 400, True),
        (LANDMARKS, 2500, False),
        (SPARSE, 400, True),
        (SPARSE, 2500, False),
    ],
)
def test_blocks_give_the_answer_of_memory(model, n, is_weighted):
    X, y = blobs(n=n, share=0.2, distance=7.0, d=5)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, n) if is_weighted else None
    here = clone(model).fit(X, sample_weight=weights)
    with dask.config.set(scheduler="synchronous"):
        there = clone(model).fit(da.from_array(X, chunks=(n // 3, 5)), sample_weight=weights)
        np.testing.assert_array_equal(there.labels_.compute(), here.labels_)
    assert there.balance_ == pytest.approx(here.balance_, abs=1e-12)
    assert min(here.balance_) < 0.25
    assert clustering_error(y, here.labels_) <= 0.01
    np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), atol=1e-7)


def test_labels_given_in_blocks():
    X, y = blobs(n=600)
    with dask.config.set(scheduler="synchronous"):
        lazy = da.from_array(X, chunks=(200, 2))
        model = CPMMC(init=da.from_array(y, chunks=200), random_state=0).fit(lazy)
        assert clustering_error(y, model.labels_.compute()) == 0.0
    assert model.balance_ == pytest.approx((0.9, 0.1))


# ---------------------------------------------------------------------- the choice


def start_of(X, labels):
    """Return the results for these labels with halves and with their own sizes."""
    view = LinearSpace(X)
    problem = MarginProblem(view, HingeLoss(), tau=0.05)
    even = maximise_margin(problem, labels, C=1.2 / 0.95, tol=0.1)
    return even, unequal_start(view, labels, None, even)


def test_a_tail_is_no_group():
    """In a single group, a cut through the tail has a smaller margin than halves."""
    X = np.random.default_rng(0).normal(size=(500, 2))
    for share in (0.05, 0.1, 0.2):
        labels = (X[:, 0] > np.quantile(X[:, 0], 1 - share)).astype(int)
        _, found = start_of(X, labels)
        # The descent may lead the cut back to the middle, where it is halves as well.
        assert found is None or min(shares_of_sides(found.result.labels, None)) > 0.3


def test_a_few_outliers_are_no_group():
    """They have a wide margin and a small part of the variance."""
    X, y = blobs(n=400, share=0.5, distance=6.0)
    X[:3] = [20.0, -15.0]
    even, found = start_of(X, (np.arange(400) < 3).astype(int))
    assert found is None
    model = CPMMC(random_state=0).fit(X)
    assert clustering_error(y[3:], model.labels_[3:]) <= 0.01
    assert even.normal is not None


def test_equal_sides_are_not_tried():
    assert not are_unequal(np.array([0, 1, 0, 1]), None)
    assert not are_unequal(np.zeros(4), None)
    assert are_unequal(np.array([0, 0, 0, 1]), None)
    assert not are_unequal(np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 1.0, 3.0]))
    assert not are_unequal(np.array([0, 0, 1]), np.array([1.0, 1.0, 0.0]))


def test_the_value_at_one_is_the_spread_between_the_sides():
    """And at C it is the mean distance of the nearest 1/C of the weight."""
    X, y = blobs(n=60, share=0.3)
    _, found = start_of(X, y)
    result, r = found.result, shares_of_sides(y, None)
    np.testing.assert_array_equal(result.labels, y)
    f = result.scores / np.sqrt(result.square)
    difference = f[y == 1].mean() - f[y == 0].mean()
    assert margin_between(result, None, 1.0) == pytest.approx(r[0] * r[1] * difference**2)
    q = equal_weights(y, None, r) / len(y)
    rho = np.linspace(0.0, np.abs(f).max(), 20001)
    for C in (2.0, 7.0):
        best = np.max(rho - C * np.maximum(rho[:, None] - np.abs(f), 0.0) @ q)
        value = 4 * r[0] * r[1] * best**2
        assert margin_between(result, None, C) == pytest.approx(value, rel=1e-3)


def test_equal_weights_are_equal_and_keep_the_total(rng):
    labels = (rng.random(50) < 0.2).astype(int)
    for weights in (None, rng.uniform(0.0, 2.0, 50)):
        q = equal_weights(labels, weights, shares_of_sides(labels, weights))
        assert q[labels == 1].sum() == pytest.approx(q[labels == 0].sum())
        assert q.sum() == pytest.approx(50 if weights is None else weights.sum())


def test_lengths_of_kernels():
    X, _ = blobs(n=30)
    assert not LinearSpace(X).has_equal_lengths
    assert KernelSpace(rbf_kernel(X)).has_equal_lengths
    assert not KernelSpace(X @ X.T).has_equal_lengths
    for kernel, expected in (("rbf", True), ("polynomial", False), (rbf_kernel, False)):
        landmarks = NystroemMap(kernel, landmarks=np.arange(10)).fit(X)
        view = LandmarkSpace(landmarks, landmarks.transform(X))
        assert view.has_equal_lengths == expected
        assert view.sampled(np.arange(20)).has_equal_lengths == expected


@pytest.mark.parametrize("kind", HALVED)
def test_rows_that_are_all_the_same_are_refused_as_before(kind):
    with pytest.raises(ValueError, match=r"identical|both sides|differ"):
        quietly(kind(random_state=0), np.ones((20, 2)))


def test_bad_balance():
    X, _ = blobs(n=20)
    for kind in (CPMMC, KernelCPMMC, SKMMC, MultivariateMMC):
        with pytest.raises(ValueError, match="balance must be at least 0"):
            kind(balance=-0.1).fit(X)
        with pytest.raises(ValueError, match="balance=1 allows all"):
            kind(balance=1.0).fit(X)
    with pytest.raises(ValueError, match="Use min_cluster_size to limit"):
        CPMMC(3, balance=0.05).fit(X)


def test_rows_that_a_kernel_cannot_tell_apart_are_refused_with_a_reason():
    X = np.random.default_rng(285517036).standard_cauchy(size=(26, 4)) * 1e-17
    with pytest.raises(ValueError, match="no hyperplane"):
        SKMMC(2, gamma=40.2, random_state=0).fit(X)
