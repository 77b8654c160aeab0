"""Checks of precomputed similarities."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.points import dense, points

from volmar.graphs import gaussian_similarity
from volmar.graphs.validation import check_similarity


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_precomputed_is_used_as_given(wrap):
    W = gaussian_similarity(points(0))
    np.fill_diagonal(W, 3.0)
    np.testing.assert_array_equal(dense(check_similarity(wrap(W))), W)


def test_rounding_asymmetry_is_averaged_away():
    W = gaussian_similarity(points(0))
    W[2, 5] += 1e-12
    for wrapped in (W, sp.csr_array(W)):
        checked = dense(check_similarity(wrapped))
        np.testing.assert_array_equal(checked, checked.T)
        np.testing.assert_allclose(checked, W, rtol=1e-10)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_bad_precomputed_matrices(wrap):
    W = gaussian_similarity(points(0, n=600))
    W[2, 5] += 0.25
    with pytest.raises(ValueError, match=r"^W .*differ"):
        check_similarity(wrap(W))
    with pytest.raises(ValueError, match=r"shape \(600, 3\)"):
        check_similarity(wrap(W[:, :3]))
    with pytest.raises(ValueError, match=r"smallest -0\.5.*nonnegative"):
        check_similarity(wrap(np.array([[1.0, -0.5], [-0.5, 1.0]])))
    with pytest.raises(ValueError, match="W contains NaN"):
        check_similarity(wrap(np.array([[1.0, np.nan], [np.nan, 1.0]])))
    with pytest.raises(ValueError, match="minimum of 2"):
        check_similarity(wrap(np.array([[1.0]])))


def test_check_leaves_a_messy_sparse_matrix_alone():
    W = sp.csr_array(
        (np.array([1.0, 1.0, 2.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2)
    )
    np.testing.assert_array_equal(check_similarity(W).toarray(), [[0.0, 2.0], [2.0, 0.0]])
    assert W.nnz == 3
