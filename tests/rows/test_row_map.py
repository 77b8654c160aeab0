"""Rows of unit length, weights of words, truncated SVD."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from volmar.rows.row_map import RowMap, fit_row_map, unit_rows


@pytest.fixture(scope="module")
def counts():
    """Counts of 1200 words in 150 documents of three topics."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(1200, 0.05), size=3)
    rows = [rng.multinomial(80, topics[i % 3]) for i in range(150)]
    return sparse.csr_array(np.array(rows, dtype=np.float64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_have_unit_length_and_zeros_stay(dtype):
    X = np.random.default_rng(0).normal(size=(20, 5)).astype(dtype)
    X[3] = 0.0
    for rows in (X, sparse.csr_array(X)):
        found = unit_rows(rows)
        assert found.dtype == dtype
        assert type(found) is type(rows)
        dense = found.toarray() if sparse.issparse(found) else found
        np.testing.assert_allclose(dense, normalize(X), rtol=1e-6)
        assert (dense[3] == 0).all()


def test_counts_are_weighted_as_by_scikit_learn(counts):
    found = fit_row_map(counts, text_components=None).transform(counts)
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-12)


def test_new_rows_must_be_counts_where_the_fit_had_counts(counts):
    found = fit_row_map(counts, text_components=3)
    np.testing.assert_allclose(found.transform(counts[:3].toarray()), found.transform(counts)[:3])
    for wrong in (counts[:3] / 2, -counts[:3].toarray()):
        with pytest.raises(ValueError, match="X must contain counts of words"):
            found.transform(wrong)


@pytest.mark.parametrize("factor", [0.5, -1.0])
def test_other_entries_are_taken_as_weighted(counts, factor):
    found = fit_row_map(factor * counts, text_components=None)
    assert found.idf is None


def test_few_columns_are_no_text_unless_a_number_is_given(counts):
    few = counts[:, :1000]
    for components in ("auto", None):
        found = fit_row_map(few, text_components=components)
        assert found.idf is None
        assert found.components is None
    found = fit_row_map(few, text_components=5)
    assert found.idf is not None
    assert found.components.shape == (5, 1000)
    assert fit_row_map(counts, text_components="auto").components.shape == (100, 1200)


def test_dense_rows_are_no_text(counts):
    found = fit_row_map(counts.toarray(), text_components=5)
    assert found.idf is None
    assert found.components is None


def test_components_are_those_of_a_truncated_svd(counts):
    found = fit_row_map(counts, text_components=3, seed=1)
    svd = TruncatedSVD(3, algorithm="arpack", random_state=0)
    expected = normalize(
        svd.fit_transform(TfidfTransformer(sublinear_tf=True).fit_transform(counts))
    )
    ours = found.transform(counts)
    np.testing.assert_allclose(ours @ ours.T, expected @ expected.T, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1.0)


def test_there_are_at_most_as_many_components_as_rows(counts):
    assert fit_row_map(counts, text_components=100).components.shape == (100, 1200)
    assert fit_row_map(counts[:40], text_components=100).components.shape == (40, 1200)


def test_weight_two_is_a_row_written_twice(counts):
    weights = np.ones(150)
    weights[:60], weights[60:80] = 2.0, 0.0
    twice = sparse.vstack([counts[:60], counts[:60], counts[80:]], format="csr")
    ours = fit_row_map(counts, weights=weights, text_components=3)
    expected = fit_row_map(twice, text_components=3)
    np.testing.assert_allclose(ours.idf, expected.idf, rtol=1e-12)
    a, b = ours.transform(counts), expected.transform(counts)
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-2)


def test_explicit_zeros_are_no_words(counts):
    stored = counts.copy()
    stored.data[:10] = 0.0
    without = stored.copy()
    without.eliminate_zeros()
    np.testing.assert_array_equal(
        fit_row_map(stored, text_components=None).idf,
        fit_row_map(without, text_components=None).idf,
    )


def test_nothing_is_edited(counts):
    before = counts.copy()
    fit_row_map(counts, text_components=3).transform(counts)
    RowMap().transform(counts)
    np.testing.assert_array_equal(counts.data, before.data)
