"""SoftLabelMVC on symmetric graphs, matrices that are not definite, short runs."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from volmar import SoftLabelMVC
from volmar.datasets import make_two_moons
from volmar.solvers import Status


def path(n):
    return np.eye(n, k=1) + np.eye(n, k=-1)


def clique(n):
    return np.ones((n, n)) - np.eye(n)


def twice(W, between):
    """Two copies of a graph, each node joined to its twin."""
    return np.kron(np.eye(2), W) + np.kron(path(2), between * np.eye(len(W)))


SMALL_GRAPHS = {
    "path": path(10),
    "K4": clique(4),
    "K33": np.kron(path(2), np.ones((3, 3))),
    "ladder": twice(path(10), 1.0),
    "cliques": twice(clique(10), 0.5),
}


@pytest.mark.filterwarnings("ignore:SoftLabelMVC ended with the status DEGENERATE")
@pytest.mark.parametrize("reg", [10, 1e3, 1e6, 1e11])
@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_symmetric_graphs_at_a_large_reg(name, reg):
    """Repeated eigenvalues and labels orthogonal to eigenvectors: hard cases throughout."""
    model = SoftLabelMVC(affinity="precomputed", reg=reg).fit(SMALL_GRAPHS[name])
    assert model.result_.residuals["stationarity"] < 1e-6
    assert model.result_.residuals["norm"] < 1e-9
    assert model.result_.residuals["balance"] < 1e-9


@pytest.mark.parametrize("reg", [1e-2, 1.0, 1e2, 1e4])
def test_aistats_at_a_large_reg_is_certified(reg):
    model = SoftLabelMVC(affinity="precomputed", mode="aistats", reg=reg)
    residuals = model.fit(path(10)).result_.residuals
    assert max(residuals.values()) < 1e-6


def test_aistats_with_an_active_balance_may_not_converge():
    """At a large reg, eq. 6 of AISTATS differs from the multiplier of the program."""
    model = SoftLabelMVC(affinity="precomputed", mode="aistats", reg=1e4, balance=0.3)
    with pytest.warns(ConvergenceWarning, match="MAX_ITER.*100 steps"):
        model.fit(path(10))
    assert model.result_.status is Status.MAX_ITER
    assert model.n_iter_ == 100


@pytest.mark.filterwarnings("ignore:SoftLabelMVC ended with the status")
@pytest.mark.parametrize("n", [60, 200])
def test_the_field_has_the_signs_of_the_labels(n):
    """At a large reg later steps move labels, and the first field has other signs."""
    X, _ = make_two_moons(n, noise=0.12, random_state=0)
    model = SoftLabelMVC(mode="paper", reg=1e5).fit(X)
    np.testing.assert_array_equal(model.field_ >= 0, model.labels_ == 1)


@pytest.mark.parametrize(
    ("Q", "remedy"),
    [
        ("kernel", "Divide the similarities"),
        (np.diag(np.arange(20.0) - 5.0), "multiple of the identity"),
        (np.diag(np.arange(20.0)), "multiple of the identity"),
    ],
    ids=["kernel", "indefinite", "singular"],
)
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_a_matrix_that_is_not_positive_definite_is_refused(Q, remedy, mode):
    W = 100.0 * np.ones((20, 20))
    with pytest.raises(ValueError, match=f"Q must be positive definite.*{remedy}"):
        SoftLabelMVC(affinity="precomputed", Q=Q, mode=mode).fit(W)


def test_a_fit_that_is_cut_short_warns():
    X, _ = make_two_moons(400, noise=0.2, random_state=1)
    full = SoftLabelMVC().fit(X)
    assert full.n_iter_ > 2
    assert full.result_.status is Status.CONVERGED
    with pytest.warns(ConvergenceWarning, match="max_iter=2.*Raise max_iter"):
        short = SoftLabelMVC(max_iter=2).fit(X)
    assert short.result_.status is Status.MAX_ITER


@pytest.mark.parametrize("affinity", ["local_scaling", "gaussian", "nearest_neighbors"])
@pytest.mark.parametrize("seed", range(50, 60))
def test_one_cluster_is_predicted_as_it_is_numbered(affinity, seed):
    X = np.random.default_rng(seed).normal(size=(20, 2))
    model = SoftLabelMVC(affinity=affinity, balance=1e6, Q="kernel", reg=100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    assert 0 in model.labels_
    if not model.labels_.any():
        assert not model.predict(X).any()
