"""Fewer distinct rows than clusters: one warning, and copies of a row in one cluster."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import volmar
from volmar.base.clusterer import count_distinct_rows


@pytest.mark.parametrize("name", volmar.CLUSTERERS)
@pytest.mark.parametrize("n_distinct", [2, 3])
def test_copies_of_a_row_are_in_one_cluster(name, n_distinct):
    kinds = np.random.default_rng(0).permutation(np.repeat(np.arange(n_distinct), 5))
    X = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 2.0]])[kinds]
    said = f"Found {n_distinct} clusters where n_clusters=5: X has only {n_distinct} different"
    with pytest.warns(ConvergenceWarning, match=said) as caught:
        model = getattr(volmar, name)(5, random_state=0).fit(X)
    assert len(caught) == 1
    assert model.n_clusters == 5
    first = [model.labels_[np.flatnonzero(kinds == kind)[0]] for kind in range(n_distinct)]
    assert sorted(first) == list(range(n_distinct))
    np.testing.assert_array_equal(model.labels_, np.array(first)[kinds])
    assert np.isfinite(model.decision_function(X)).all()


def test_rows_of_no_weight_do_not_count():
    X = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 2.0], [7.0, 3.0]] * 5)
    with pytest.warns(ConvergenceWarning, match="only 2 different rows"):
        model = volmar.MSPC(3, random_state=0).fit(X, sample_weight=[1, 1, 0, 0] * 5)
    np.testing.assert_array_equal(model.labels_[:2], [0, 1])


def test_start_labels_are_left_to_the_method():
    X = np.array([[0.0, 0.0], [1.0, 1.0]] * 3)
    with pytest.raises(ValueError, match="X has too few different rows"):
        volmar.CPMMC(3, init=[0, 1, 2, 1, 0, 1]).fit(X, sample_weight=[1, 1, 0, 1, 1, 1])


def test_as_many_different_rows_as_clusters_are_no_concern():
    X = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 2.0]] * 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = volmar.LDAKMeans(3, random_state=0).fit(X)
    assert set(model.labels_) == {0, 1, 2}


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, np.asfortranarray])
def test_the_count_stops_at_the_maximum(make):
    X = np.repeat(np.arange(12.0).reshape(6, 2), 3, axis=0)
    X[0, 0] = -0.0
    assert count_distinct_rows(make(X), None, 100) == 6
    assert count_distinct_rows(make(X), None, 4) == 4
    assert count_distinct_rows(make(X), np.arange(18) < 4, 100) == 2
