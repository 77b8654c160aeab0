"""MSPC with more columns than rows: same result as by the correlation matrix of columns."""

import sys
import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from volmar import MSPC, DiscriminativeKMeans, LDAKMeans, MinimaxProbabilityMachine
from volmar.metrics import clustering_error
from volmar.rows.standardized import standardized_columns


def groups(n=60, d=90, k=2, shift=2.0, informative=10, seed=0):
    """Return rows of k groups in columns of different units, and the groups."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    X = rng.normal(size=(n, d))
    for group in range(1, k):
        X[y == group, informative * group : informative * (group + 1)] += shift
    return X * 10.0 ** rng.uniform(-2, 2, d), y


@pytest.fixture
def by_columns(monkeypatch):
    """Make fits use the correlation matrix of the columns for any shape of X."""

    def fitted(model, X, *args, **kwargs):
        with monkeypatch.context() as patch:
            for name in ("mspc.standardized", "mspc.exactly_standardized"):
                patch.setattr(f"volmar.separation.{name}", standardized_columns)
            machine = "volmar.separation.minimax_probability_machine"
            patch.setattr(f"{machine}.standardized", standardized_columns)
            return model.fit(X, *args, **kwargs)

    return fitted


@pytest.mark.parametrize("solver", ["gep", "mpm", "eig"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_from_given_labels_it_is_the_answer_of_the_columns(by_columns, solver, weighted, mode):
    X, y = groups()
    weights = None
    if weighted:
        weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
        weights[:3] = 0.0
    init = np.where(np.random.default_rng(2).random(len(y)) < 0.2, 1 - y, y)
    params = {"solver": solver, "init": init, "mode": mode, "tol": 0.0}
    row = MSPC(**params).fit(X, sample_weight=weights)
    column = by_columns(MSPC(**params), X, sample_weight=weights)
    np.testing.assert_array_equal(row.labels_, column.labels_)
    for name in ("objective_", "msp_", "msp_lower_bound_"):
        assert getattr(row, name) == pytest.approx(getattr(column, name), rel=1e-8)
    np.testing.assert_allclose(row.side_probability_, column.side_probability_, atol=1e-8)
    counted = slice(None) if weights is None else weights > 0
    np.testing.assert_allclose(
        row.decision_function(X)[counted], column.decision_function(X)[counted], atol=1e-7
    )
    if solver == "eig" and mode == "paper":
        return  # X'q in the features' own units is taken by its part in the span of the rows
    scale = np.abs(column.coef_).max(axis=0) + X.std(axis=0) ** -1.0
    np.testing.assert_allclose(row.coef_ / scale, column.coef_ / scale, atol=1e-7)


@pytest.mark.parametrize("solver", ["gep", "mpm"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_race_finds_the_same_groups(by_columns, solver, dtype):
    X, y = groups(shift=3.0)
    X, tolerance = X.astype(dtype), {np.float64: 1e-8, np.float32: 1e-4}[dtype]
    row = MSPC(solver=solver, random_state=0).fit(X)
    column = by_columns(MSPC(solver=solver, random_state=0), X)
    np.testing.assert_array_equal(row.labels_, column.labels_)
    assert row.objective_ == pytest.approx(column.objective_, rel=tolerance)
    assert clustering_error(y, row.labels_) == 0.0


def test_more_than_two_clusters(by_columns):
    X, y = groups(n=75, d=120, k=3, shift=3.0)
    row = MSPC(3, random_state=0).fit(X)
    column = by_columns(MSPC(3, random_state=0), X)
    assert clustering_error(y, row.labels_) == 0.0
    np.testing.assert_array_equal(row.labels_, column.labels_)
    assert row.objective_ == pytest.approx(column.objective_, rel=1e-8)
    np.testing.assert_array_equal(row.predict(X), row.labels_)


def test_dense_and_sparse_rows_agree():
    X, _ = groups()
    X[np.abs(X) < X.std(axis=0) / 2] = 0.0
    dense = MSPC(random_state=0).fit(X)
    thin = MSPC(random_state=0).fit(sparse.csr_array(X))
    np.testing.assert_array_equal(dense.labels_, thin.labels_)
    np.testing.assert_allclose(dense.coef_, thin.coef_, rtol=1e-5, atol=1e-9)


def test_one_column_of_two_groups_among_thousands():
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(120, 2000))
        y = np.arange(120) % 2
        X[y == 1, 1234] += 8.0
        found.append(clustering_error(y, MSPC(random_state=seed).fit(X).labels_))
    assert np.mean(found) <= 0.02


def test_wide_rows_with_discriminants_of_all():
    X, y = groups(n=150, d=800, k=3, shift=1.5, informative=100)
    model = MSPC(3, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    assert model.coef_.shape == (3, 800)  # all clusters have competed for all rows
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_binary_columns_do_not_win_by_their_gaps():
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2
    X = np.hstack([rng.integers(0, 2, (100, 300)).astype(float), rng.normal(size=(100, 100))])
    X[y == 1, 300:340] += 2.0
    assert clustering_error(y, MSPC(random_state=0).fit(X).labels_) <= 0.02


def test_without_a_regulariser_it_is_refused():
    X, y = groups()
    with pytest.raises(ValueError, match="reg=0 is too small"):
        MSPC(reg=0.0, init=y).fit(X)
    with pytest.raises(ValueError, match="larger reg"):
        MinimaxProbabilityMachine(reg=0.0).fit(X, y)


def test_equal_rows_are_refused():
    with pytest.raises(ValueError, match="rows of X are the same"):
        MSPC().fit(np.ones((4, 9)))


def test_the_minimax_machine(by_columns):
    X, y = groups(shift=1.0)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    row = MinimaxProbabilityMachine().fit(X, y, sample_weight=weights)
    column = by_columns(MinimaxProbabilityMachine(), X, y, sample_weight=weights)
    assert row.separation_probability_ == pytest.approx(column.separation_probability_, rel=1e-8)
    np.testing.assert_allclose(row.decision_function(X), column.decision_function(X), atol=1e-7)
    np.testing.assert_allclose(row.coef_, column.coef_, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("solver", ["gep", "mpm", "eig"])
def test_paper_mode_takes_the_whole_span_of_many_rows(monkeypatch, by_columns, solver):
    """Beyond 2000 rows the default searches among 100 principal directions."""
    module = sys.modules["volmar.rows.standardized"]
    monkeypatch.setattr(module, "EXACT_ROWS", 20)
    monkeypatch.setattr(module, "COMPONENTS", 5)
    X, _ = groups(shift=1.0)
    row = MSPC(solver=solver, mode="paper", random_state=0).fit(X)
    assert row.kept_variance_ == pytest.approx(1.0)
    assert MSPC(solver=solver, random_state=0).fit(X).kept_variance_ < 0.5
    column = by_columns(MSPC(solver=solver, mode="paper", random_state=0), X)
    np.testing.assert_array_equal(row.labels_, column.labels_)
    assert row.objective_ == pytest.approx(column.objective_, rel=1e-8)


WIDE = [MSPC(solver=s, mode=m) for s in ("gep", "mpm", "eig") for m in ("default", "paper")]
WIDE += [MinimaxProbabilityMachine(), LDAKMeans(n_init=2), DiscriminativeKMeans(n_init=2)]


@pytest.mark.parametrize("model", WIDE, ids=str)
def test_no_matrix_of_all_pairs_of_columns(model):
    """60 rows of 4000 columns: the correlations of these would be 128 MB."""
    X, y = groups(d=4000, informative=400)
    model.set_params(random_state=0)
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8.0 * 4000**2 / 4
    assert np.unique(model.predict(X)).size == 2
