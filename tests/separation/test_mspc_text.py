"""MSPC on sparse rows of very many columns, in their leading principal directions."""

import sys
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD

from volmar import MSPC
from volmar.metrics import clustering_error
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import row_space

MODULE = sys.modules["volmar.rows.standardized"]
leading_space = MODULE.leading_space


def topics(n, d, k, seed=0):
    """Return counts of words, more or less frequent by topic, and the topics."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    frequent = 1.0 / np.arange(10, d + 10)
    rows, columns = [], []
    for topic in range(k):
        p = frequent * np.exp(rng.normal(size=d) * (rng.random(d) < 0.2))
        documents = np.flatnonzero(y == topic)
        lengths = rng.poisson(60, documents.size)
        rows.append(np.repeat(documents, lengths))
        columns.append(rng.choice(d, lengths.sum(), p=p / p.sum()))
    places = np.concatenate(rows).astype(np.int32), np.concatenate(columns).astype(np.int32)
    X = sparse.csr_matrix((np.ones(places[0].size), places), shape=(n, d))
    X.sum_duplicates()
    return X, y


@pytest.mark.parametrize("make", [sparse.csr_array, lambda X: X.toarray()], ids=["csr", "dense"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_leading_space_is_that_of_the_eigenvectors(make, weighted, monkeypatch):
    monkeypatch.setattr(MODULE, "COMPONENTS", 3)
    X, _ = topics(120, 200, 3)
    weights = np.random.default_rng(0).uniform(0.0, 2.0, 120) if weighted else None
    rows = as_rows(make(X), sample_weight=weights)
    exact, few = row_space(rows), leading_space(rows)
    values = np.sort(np.linalg.eigvalsh(exact.correlation))[::-1][:3]
    assert few.size == 4
    np.testing.assert_allclose(few.correlation.diagonal()[:3], values, rtol=1e-2)
    assert few.kept_variance == pytest.approx(values.sum() / few.kept.size, rel=1e-2)
    V = few.basis @ np.eye(3)
    np.testing.assert_allclose(V.T @ V, np.eye(3), atol=1e-10)
    w = np.random.default_rng(1).normal(size=4)
    np.testing.assert_allclose(
        (X.toarray() - few.mean) @ few.coefficients(w), few.scores(w), atol=1e-8
    )
    assert few.leaves_structure is False


def test_it_tells_where_structure_is_left(monkeypatch):
    monkeypatch.setattr(MODULE, "COMPONENTS", 2)
    monkeypatch.setattr(MODULE, "EXACT_ROWS", 50)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6)) @ rng.normal(size=(6, 300)) + 0.1 * rng.normal(size=(100, 300))
    X[:50] += 1.0
    with pytest.warns(UserWarning, match="2 principal directions"):
        model = MSPC(random_state=0).fit(X)
    assert 0.1 < model.kept_variance_ < 0.9


@pytest.mark.parametrize("k", [2, 3])
def test_it_finds_topics_as_well_as_k_means_on_a_truncated_svd(k):
    X, y = topics(2400, 4000, k)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MSPC(k, random_state=0).fit(X)
    reduced = TruncatedSVD(100, random_state=0).fit_transform(X)
    rival = KMeans(k, n_init=10, random_state=0).fit(reduced)
    error = clustering_error(y, model.labels_)
    assert error < 0.05
    assert error <= clustering_error(y, rival.labels_)
    assert model.coef_.shape[1] == 4000
    assert 0.0 < model.kept_variance_ < 0.5
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_matrix_that_does_not_fit_in_memory_is_not_formed(monkeypatch):
    standardized = sys.modules["volmar.rows.standardized"]
    monkeypatch.setattr(standardized, "available_memory", lambda: 1000)
    monkeypatch.setattr(standardized, "FITTING_COLUMNS", 100)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 150))
    X[:150, :20] += 2.0
    model = MSPC(random_state=0).fit(X)
    assert model.kept_variance_ < 1.0
    assert clustering_error(np.arange(300) < 150, model.labels_) < 0.02
