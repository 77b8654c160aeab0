"""Row sources: each back end agrees with the plain formulas on the dense, centred matrix."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.kernel_approximation import Nystroem

from volmar.rows import tiled
from volmar.rows import tiled as sparse_module
from volmar.rows.anywhere import as_rows
from volmar.rows.protocol import RowSource
from volmar.rows.tiled import DenseRows, MappedRows, SparseRows


class Scaling:
    """A feature map with obvious results: every feature is doubled."""

    def transform(self, X):
        return (X.toarray() if sparse.issparse(X) else X) * X.dtype.type(2)


class Counting(Scaling):
    """Counts the rows that it has mapped."""

    def __init__(self):
        self.rows = 0

    def transform(self, X):
        self.rows += X.shape[0]
        return super().transform(X)


def make(kind, X, **parameters):
    """Return a source of the given kind with the rows of X."""
    if kind == "dense":
        return DenseRows(X, **parameters)
    if kind == "fortran":
        return DenseRows(np.asfortranarray(X), **parameters)
    if kind == "sparse":
        return SparseRows(sparse.csr_array(X), **parameters)
    if kind == "mapped":
        return MappedRows(X / X.dtype.type(2), Scaling(), **parameters)
    return MappedRows(sparse.csr_matrix(X / X.dtype.type(2)), Scaling(), **parameters)


KINDS = ["dense", "fortran", "sparse", "mapped", "mapped sparse"]


@pytest.fixture(params=["one tile", "many tiles"])
def tiling(request, monkeypatch):
    """Run with tiles and blocks larger, and much smaller, than the data."""
    if request.param == "many tiles":
        monkeypatch.setattr(tiled, "TILE_ROWS", 7)
        monkeypatch.setattr(sparse_module, "_BLOCK_ROWS", 7)


def data(density=1.0, n=40, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 2.0
    X[rng.random((n, d)) >= density] = 0.0
    return X, rng


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("density", [1.0, 0.07])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centring", ["none", "offset", "centered"])
def test_back_ends_agree_with_the_formulas(kind, density, weighted, centring, tiling):
    X, rng = data(density)
    n, d = X.shape
    sample_weight = rng.integers(0, 4, size=n).astype(float) if weighted else None
    weights = np.ones(n) if sample_weight is None else sample_weight
    offset = None if centring == "none" else rng.normal(size=d)
    rows = make(kind, X, sample_weight=sample_weight, offset=offset)
    seen = X if offset is None else X - offset
    if centring == "centered":
        rows = rows.centered()
        seen = seen - np.average(seen, axis=0, weights=weights)

    assert isinstance(rows, RowSource)
    assert (rows.n_rows, rows.n_features, rows.dtype) == (n, d, np.float64)
    assert rows.total_weight == weights.sum()
    w, v, center = rng.normal(size=d), rng.normal(size=n), rng.normal(size=d)
    mask = rng.random(n) < 0.4
    close = {"rtol": 1e-11, "atol": 1e-12}
    np.testing.assert_allclose(rows.scores(w), seen @ w, **close)
    np.testing.assert_allclose(rows.combine(v), seen.T @ v, **close)
    mean = np.average(seen, axis=0, weights=weights)
    np.testing.assert_allclose(rows.mean(), mean, **close)
    squares = np.average((seen**2).sum(axis=1), weights=weights)
    np.testing.assert_allclose(rows.mean_squared_norm(), squares, **close)
    for chosen in (None, mask):
        for about in (None, center):
            moments = rows.moments(chosen, center=about)
            c = mean if about is None else about
            part, part_weights = (
                (seen, weights) if chosen is None else (seen[chosen], weights[chosen])
            )
            np.testing.assert_allclose(moments.center, c, **close)
            np.testing.assert_allclose(moments.weight, part_weights.sum(), rtol=1e-14)
            np.testing.assert_allclose(moments.sum, part_weights @ (part - c), **close)
            second = (part - c).T @ (part_weights[:, np.newaxis] * (part - c))
            np.testing.assert_allclose(moments.second, second, **close)
            first_only = rows.moments(chosen, center=about, second=False)
            assert first_only.second is None
            np.testing.assert_allclose(first_only.sum, moments.sum, **close)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("centring", ["none", "offset", "centered"])
def test_blocks_are_their_columns(kind, dtype, centring, tiling):
    X, rng = data(0.6)
    n, d = X.shape
    rows = make(kind, X.astype(dtype), offset=None if centring == "none" else rng.normal(size=d))
    rows = rows.centered() if centring == "centered" else rows
    W, V = rng.normal(size=(d, 3)), rng.normal(size=(n, 3))
    scores, total = rows.scores(W), rows.combine(V)
    assert (scores.dtype, total.dtype) == (dtype, np.float64)
    assert scores.shape == (n, 3)
    assert total.shape == (d, 3)
    rtol = 1e-5 if dtype == np.float32 else 1e-12
    for j in range(3):
        np.testing.assert_allclose(scores[:, j], rows.scores(W[:, j]), rtol=rtol, atol=10 * rtol)
        np.testing.assert_allclose(total[:, j], rows.combine(V[:, j]), rtol=rtol, atol=10 * rtol)


def test_float32_blocks_are_summed_in_float64_across_tiles(monkeypatch):
    """In float32, 2^24 + 1 + ... + 1 loses all the ones."""
    monkeypatch.setattr(tiled, "TILE_ROWS", 1)
    monkeypatch.setattr(tiled, "_MIN_TILE_ROWS", 1)
    X = np.ones((100, 1), dtype=np.float32)
    X[0] = 2.0**24
    total = DenseRows(X).combine(np.ones((100, 2)))
    np.testing.assert_array_equal(total, np.full((1, 2), 2.0**24 + 99))


@pytest.mark.parametrize("kind", KINDS)
def test_bad_blocks_are_named(kind):
    rows = make(kind, np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"^w .*got \(3, 2\)"):
        rows.scores(np.ones((3, 2)))
    with pytest.raises(TypeError, match=r"^v .*got dtype complex128"):
        rows.combine(np.ones((4, 2)) * 1j)


@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.integers(1, 30), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_a_weight_of_two_is_a_row_given_twice(seed, kind, n, d):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    twice = rng.random(n) < 0.5
    weighted = make(kind, X, sample_weight=1.0 + twice).centered()
    doubled = make(kind, np.vstack([X, X[twice]])).centered()
    np.testing.assert_allclose(weighted.offset, doubled.offset, atol=1e-13)
    assert weighted.mean_squared_norm() == pytest.approx(doubled.mean_squared_norm(), abs=1e-12)
    np.testing.assert_allclose(
        weighted.moments().covariance(), doubled.moments().covariance(), atol=1e-12
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS))
@settings(max_examples=40, deadline=None)
def test_scores_and_combine_are_adjoint(seed, kind):
    """v'(Xw) = (X'v)'w, offset included."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(23, 4)) * (rng.random((23, 4)) < 0.5)
    rows = make(kind, X, offset=rng.normal(size=4))
    w, v = rng.normal(size=4), rng.normal(size=23)
    assert v @ rows.scores(w) == pytest.approx(rows.combine(v) @ w, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_of_a_mask_and_its_complement_add_up(kind):
    X, rng = data()
    rows = make(kind, X).centered()
    mask = rng.random(len(X)) < 0.3
    total = rows.moments(mask) + rows.moments(~mask)
    np.testing.assert_allclose(total.second, rows.moments().second, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(total.mean, 0, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_stays_float32(kind):
    X, rng = data()
    rows = make(kind, X.astype(np.float32), sample_weight=rng.random(len(X))).centered()
    assert rows.dtype == np.float32
    assert rows.scores(rng.normal(size=5)).dtype == np.float32
    for array in (rows.combine(rng.normal(size=len(X))), rows.mean(), rows.moments().second):
        assert array.dtype == np.float64


@pytest.mark.parametrize("kind", ["dense", "fortran", "sparse"])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_float32_moments_are_near_float64(kind, offset):
    """About the mean, float32 data of mean 1e3 and sd 1 give covariances accurate to 1e-6."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(20_000, 6)) @ rng.normal(size=(6, 6)) + offset).astype(np.float32)
    exact = np.cov(X.astype(np.float64).T, bias=True)
    rows = make(kind, X)
    error = abs(rows.moments().covariance() - exact).max() / abs(exact).max()
    assert error < 1e-6
    sd = np.sqrt(exact.diagonal().max())
    assert abs(rows.mean() - X.mean(axis=0, dtype=np.float64)).max() < 1e-6 * sd
    norm = rows.centered().mean_squared_norm()
    assert norm == pytest.approx(np.trace(exact), rel=1e-6)
    mask = rng.random(len(X)) < 0.2
    error = abs(rows.moments(mask).covariance() - np.cov(X[mask].astype(float).T, bias=True))
    assert error.max() < 1e-6 * abs(exact).max()


def test_the_plain_product_would_not_do():
    """Without centred tiles, X'X in float32 has no correct digit of the covariance."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(20_000, 4)) + 1e3).astype(np.float32)
    mean = X.mean(axis=0)
    plain = (X.T @ X) / len(X) - np.outer(mean, mean)
    assert abs(plain - np.eye(4)).max() > 0.05
    assert abs(DenseRows(X).moments().covariance() - np.eye(4)).max() < 0.05


@pytest.mark.parametrize(("mean", "low", "high"), [(0.0, 0.0, 1e-6), (1e4, 1e-5, 1e-2)])
def test_what_implicit_centring_costs_in_float32(mean, low, high):
    """Scores of float32 rows with mean 1e4 and sd 1 are accurate to about 1e-3, not 1e-7."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(5000, 20)) + mean).astype(np.float32)
    w, v = rng.normal(size=20), rng.normal(size=5000)
    w /= np.linalg.norm(w)
    rows = DenseRows(X).centered()
    exact = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    w32 = w.astype(np.float32).astype(np.float64)
    error = abs(rows.scores(w) - exact @ w32).max()
    assert low <= error < high
    v32 = v.astype(np.float32).astype(np.float64)
    error = abs(rows.combine(v) - exact.T @ v32).max() / np.linalg.norm(v)
    assert low / 10 <= error < 10 * high


def test_the_offset_is_applied_with_the_rounded_vectors():
    """One w, rounded, in both terms of Xw - offset'w: rows equal to the offset score 0."""
    X = np.full((3, 2), 1e4, dtype=np.float32)
    rows = DenseRows(X, offset=np.full(2, 1e4))
    w = np.array([1 / 3, -2 / 3])
    assert abs(rows.scores(w)).max() < 1e-3
    assert abs(rows.combine(np.array([1 / 3, 1e-3, 1e-6]))).max() < 1e-2


def test_centering_twice_changes_nothing():
    X, _ = data()
    once = DenseRows(X).centered()
    np.testing.assert_allclose(once.centered().offset, once.offset, rtol=1e-15)
    np.testing.assert_array_equal(once.mean(), 0)


def test_a_source_is_not_changed_by_centering():
    X, _ = data()
    rows = DenseRows(X)
    rows.centered().mean()[:] = 7.0
    rows.mean()[:] = 7.0
    assert rows.offset is None
    np.testing.assert_allclose(rows.mean(), X.mean(axis=0), rtol=1e-13)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_data_are_not_copied(order, dtype):
    X = np.asarray(np.ones((5, 3)), dtype=dtype, order=order)
    X.flags.writeable = False
    rows = as_rows(X)
    assert isinstance(rows, DenseRows)
    assert np.shares_memory(rows.X, X)
    assert np.shares_memory(rows.centered().X, X)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_csr_data_are_not_copied(container, dtype):
    X = container(np.eye(4, dtype=dtype))
    rows = as_rows(X)
    assert isinstance(rows, SparseRows)
    assert np.shares_memory(rows.X.data, X.data)
    assert rows.dtype == dtype


@pytest.mark.parametrize("form", ["coo", "csc", "lil", "bsr"])
def test_other_sparse_formats_become_csr(form):
    X = sparse.coo_array(np.arange(6).reshape(3, 2)).asformat(form)
    rows = as_rows(X)
    assert rows.dtype == np.float64
    assert rows.X.format == "csr"
    np.testing.assert_array_equal(rows.scores(np.array([1.0, 10.0])), [10.0, 32.0, 54.0])


def test_repeated_sparse_entries_are_summed_and_the_input_left_alone():
    X = sparse.csr_array((np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    assert as_rows(X).mean_squared_norm() == 9.0
    assert X.nnz == 2


@pytest.mark.parametrize("X", [[[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], dtype=object)])
def test_integers_become_float64(X):
    rows = as_rows(X)
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows.mean(), [2.0, 3.0])


def test_strided_data_are_made_contiguous_once():
    X = np.arange(24.0).reshape(4, 6)
    rows = as_rows(X[:, ::2])
    assert rows.X.flags.c_contiguous
    np.testing.assert_array_equal(rows.combine(np.ones(4)), X[:, ::2].sum(axis=0))


def test_a_mask_reads_only_its_rows():
    X, _ = data(n=500)
    feature_map = Counting()
    rows = MappedRows(X, feature_map)
    mask = np.zeros(500, dtype=bool)
    mask[[3, 77, 400]] = True
    feature_map.rows = 0
    rows.moments(mask, center=np.zeros(5))
    assert feature_map.rows == 3


@pytest.mark.parametrize("kind", ["dense", "fortran", "sparse", "mapped"])
def test_no_pass_makes_a_second_copy_of_the_data(kind, monkeypatch):
    monkeypatch.setattr(tiled, "TILE_ROWS", 256)
    monkeypatch.setattr(sparse_module, "_BLOCK_ROWS", 256)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 20))
    rows = make(kind, X, sample_weight=rng.random(len(X)), offset=np.ones(20))
    w, v, mask = np.ones(20), np.ones(len(X)), rng.random(len(X)) < 0.7
    tracemalloc.start()
    for call in (
        lambda: rows.scores(w),
        lambda: rows.combine(v),
        lambda: rows.centered().moments(mask),
        rows.mean_squared_norm,
    ):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        assert tracemalloc.get_traced_memory()[1] - before < X.nbytes / 4
    tracemalloc.stop()


def test_rows_of_a_scikit_learn_transformer():
    X, rng = data(n=60)
    transformer = Nystroem(n_components=10, random_state=0).fit(X)
    rows, whole = MappedRows(X, transformer), DenseRows(transformer.transform(X))
    w = rng.normal(size=10)
    np.testing.assert_allclose(rows.scores(w), whole.scores(w), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_pickle(kind):
    X, rng = data()
    rows = make(kind, X, sample_weight=rng.random(len(X))).centered()
    again = pickle.loads(pickle.dumps(rows))
    w = rng.normal(size=5)
    np.testing.assert_array_equal(again.scores(w), rows.scores(w))
    np.testing.assert_array_equal(again.moments().second, rows.moments().second)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.ones(3), ValueError, "^X .*got 1.*reshape"),
        (np.ones((0, 3)), ValueError, r"^X .*got shape \(0, 3\)"),
        (sparse.csr_array((3, 0)), ValueError, "^X .*column"),
        (np.ones((2, 2)) * 1j, TypeError, "^X .*got dtype complex128"),
        ([["a", "b"]], TypeError, "X must hold real numbers"),
        (np.array([["a", 1]], dtype=object), TypeError, "X must hold real numbers"),
    ],
)
def test_bad_data_are_named(X, error, message):
    with pytest.raises(error, match=message):
        as_rows(X)


@pytest.mark.parametrize(
    ("sample_weight", "error", "message"),
    [
        (
            [1.0, 2.0],
            ValueError,
            r"^sample_weight .*got shape \(2,\)",
        ),
        ([1.0, -2.0, 1.0], ValueError, "^sample_weight .*got -2"),
        ([1.0, np.nan, 1.0], ValueError, "^sample_weight .*got nan"),
        ([0.0, 0.0, 0.0], ValueError, "^sample_weight .*positive"),
        (["a", "b", "c"], TypeError, "sample_weight must hold real numbers"),
    ],
)
def test_bad_weights_are_named(sample_weight, error, message):
    with pytest.raises(error, match=message):
        as_rows(np.eye(3), sample_weight=sample_weight)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_arguments_are_named(kind):
    rows = make(kind, np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"^w .*got \(2, 1\)"):
        rows.scores(np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"^v .*got \(2,\).*per row"):
        rows.combine(np.ones(2))
    with pytest.raises(ValueError, match=r"^mask .*int"):
        rows.moments(np.array([0, 1, 2, 3]))
    with pytest.raises(ValueError, match=r"^mask\b"):
        rows.moments(np.ones(3, dtype=bool))
    with pytest.raises(ValueError, match=r"^center"):
        rows.moments(center=np.ones(3))
    with pytest.raises(ValueError, match=r"^offset"):
        make(kind, np.ones((4, 2)), offset=np.ones(1))


def test_the_wrong_back_end_is_named():
    with pytest.raises(TypeError, match=r"^X .*SparseRows"):
        DenseRows(sparse.csr_array(np.eye(2)))
    with pytest.raises(TypeError, match=r"^X .*got ndarray.*DenseRows or as_rows"):
        SparseRows(np.eye(2))

    class SparseOutput:
        def transform(self, X):
            return sparse.csr_array(X)

    with pytest.raises(TypeError, match=r"^feature_map"):
        MappedRows(np.eye(2), SparseOutput())


def test_second_moments_that_do_not_fit_are_refused():
    rows = as_rows(sparse.csr_array(([1.0], ([0], [0])), shape=(2, 3_000_000)))
    np.testing.assert_allclose(rows.mean()[:2], [0.5, 0.0])
    with pytest.raises(MemoryError, match="3000000 features"):
        rows.moments()
