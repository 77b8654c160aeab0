"""views: several groups of columns with equal weight, one labelling."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize

from volmar import CPMMC, MSPC, KernelCPMMC
from volmar.base.views import column_groups
from volmar.models import load_model, save_model

A, B = slice(0, 6), slice(6, None)
MODELS = [
    CPMMC(random_state=0),
    CPMMC(3, random_state=0),
    KernelCPMMC(3, gamma="scale", random_state=0),
    MSPC(random_state=0),
    MSPC(3, random_state=0),
]
LINEAR = [model for model in MODELS if not isinstance(model, KernelCPMMC)]


@pytest.fixture(scope="module")
def table():
    """Three groups in a view of 6 columns, and a view of 60 columns with larger noise."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    first = 4.0 * np.eye(6)[y] + rng.normal(size=(300, 6))
    return np.hstack([first, 10.0 * rng.normal(size=(300, 60)) + 3.0]), y


def with_views(model, views=(A, B), **params):
    return clone(model).set_params(views=list(views), **params)


@pytest.mark.parametrize("model", [one for one in MODELS if one.n_clusters == 3], ids=str)
def test_a_view_of_many_columns_does_not_drown_another(model, table):
    X, y = table
    ours = with_views(model).fit(X)
    assert adjusted_rand_score(y, ours.labels_) > 0.9
    assert adjusted_rand_score(y, ours.predict(X)) > 0.9
    if not isinstance(model, MSPC):
        assert adjusted_rand_score(y, clone(model).fit(X).labels_) < 0.5


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_it_is_the_fit_of_scaled_columns(model, table):
    X = table[0]
    parts = [X[:, A], X[:, B]]
    Z = np.hstack([part / np.sqrt(part.var(axis=0).sum()) for part in parts])
    plain, ours = clone(model).fit(Z), with_views(model).fit(X)
    np.testing.assert_array_equal(ours.labels_, plain.labels_)
    np.testing.assert_allclose(ours.decision_function(X), plain.decision_function(Z), atol=1e-6)
    assert ours.n_features_in_ == 66
    assert ours.views == [A, B]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_units_of_a_view_do_not_matter(model, table):
    X = table[0]
    scaled = X.copy()
    scaled[:, B] *= 1024.0
    first, second = with_views(model).fit(X), with_views(model).fit(scaled)
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_allclose(
        first.decision_function(X), second.decision_function(scaled), atol=1e-6
    )


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_all_views_twice_are_the_same(model, table):
    X = table[0]
    once, twice = with_views(model).fit(X), with_views(model, (A, B, A, B)).fit(X)
    # MSPC regularises single columns, so two copies of a view halve the regularisation.
    least = 0.9 if isinstance(model, MSPC) else 0.99
    assert adjusted_rand_score(once.labels_, twice.labels_) >= least


@pytest.mark.parametrize("model", LINEAR, ids=str)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_mean_of_view_scores_is_the_decision_function(model, metric, table):
    X = table[0]
    ours = with_views(model, metric=metric).fit(X)
    scores = ours.view_scores(X)
    total = ours.decision_function(X)
    assert scores.shape == (2, *total.shape)
    np.testing.assert_allclose(scores.mean(axis=0), total, atol=1e-7 * np.abs(total).max())
    np.testing.assert_allclose(
        ours.view_scores(sparse.csr_array(X)), scores, atol=1e-6 * np.abs(scores).max()
    )


def test_view_scores_show_which_view_decides(table):
    X, _ = table
    scores = CPMMC(3, views=[A, B], random_state=0).fit(X).view_scores(X)
    first, second = (np.ptp(one, axis=1).mean() for one in scores)
    assert first > 2 * second


def test_view_scores_with_limits_of_sizes(table):
    X = table[0]
    model = CPMMC(3, views=[A, B], max_cluster_size=110, random_state=0).fit(X)
    np.testing.assert_allclose(
        model.view_scores(X).mean(axis=0), model.decision_function(X), atol=1e-9
    )


def test_views_may_overlap(table):
    X, y = table
    model = CPMMC(3, views=[A, slice(4, 66)], random_state=0).fit(X)
    assert model.coef_.shape == (3, 68)
    assert adjusted_rand_score(y, model.labels_) > 0.8


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_lengths_of_rows_in_a_view_do_not_matter_with_cosine(model, table):
    X = table[0]
    factors = 2.0 ** np.random.default_rng(0).integers(-9, 9, size=(300, 2))
    other = np.hstack([X[:, A] * factors[:, :1], X[:, B] * factors[:, 1:]])
    first = with_views(model, metric="cosine").fit(X)
    second = with_views(model, metric="cosine").fit(other)
    np.testing.assert_array_equal(first.labels_, second.labels_)
    unit = np.hstack([normalize(X[:, A]), normalize(X[:, B])])
    np.testing.assert_array_equal(first.labels_, with_views(model).fit(unit).labels_)


def test_a_view_of_text(table):
    rng = np.random.default_rng(0)
    X, y = table
    words = 0.7 * rng.dirichlet(np.full(1200, 0.05), size=3) + 0.3 / 1200
    counts = np.array([rng.multinomial(60, words[j]) for j in y], dtype=np.float64)
    both = sparse.hstack([sparse.csr_array(X[:, A]), sparse.csr_array(counts)], format="csr")
    model = MSPC(3, metric="cosine", views=[A, B], random_state=0).fit(both)
    assert model.row_map_.maps[1].components.shape == (100, 1200)
    assert model.coef_.shape == (3, 106)
    assert adjusted_rand_score(y, model.labels_) > 0.95
    assert model.view_scores(both).shape == (2, 300, 3)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_model_files_keep_views(model, table, tmp_path):
    X = table[0]
    ours = with_views(model).fit(X)
    save_model(tmp_path / "model.volmar", ours)
    loaded = load_model(tmp_path / "model.volmar").model
    np.testing.assert_array_equal(loaded.decision_function(X), ours.decision_function(X))
    assert [one.tolist() for one in loaded.views] == [list(range(6)), list(range(6, 66))]
    again = clone(loaded).fit(X)
    np.testing.assert_array_equal(again.labels_, ours.labels_)


def test_weight_two_is_a_row_written_twice(table):
    X = table[0]
    weights = np.where(np.arange(300) < 100, 2.0, 1.0)
    model = CPMMC(3, views=[A, B], init=table[1], random_state=0).fit(X, sample_weight=weights)
    start = np.concatenate([table[1], table[1][:100]])
    twice = CPMMC(3, views=[A, B], init=start, random_state=0).fit(np.vstack([X, X[:100]]))
    np.testing.assert_allclose(model.row_map_.scales, twice.row_map_.scales)
    assert adjusted_rand_score(model.labels_, twice.labels_[:300]) > 0.99


@pytest.mark.parametrize("model", [MODELS[1], MODELS[4]], ids=str)
def test_blocks_have_views(model, table):
    da = pytest.importorskip("dask.array")
    X = table[0]
    blocks = da.from_array(X, chunks=(100, 66))
    ours, expected = with_views(model).fit(blocks), with_views(model).fit(X)
    np.testing.assert_allclose(ours.row_map_.scales, expected.row_map_.scales)
    assert adjusted_rand_score(ours.labels_.compute(), expected.labels_) > 0.95
    np.testing.assert_array_equal(ours.predict(blocks).compute(), ours.predict(X))
    with pytest.raises(TypeError, match="view_scores"):
        ours.view_scores(blocks)


def test_batches_keep_the_first_scales(table):
    X, y = table
    model = MSPC(3, views=[A, B], random_state=0).partial_fit(X[:150])
    scales = model.row_map_.scales
    model.partial_fit(X[150:])
    np.testing.assert_array_equal(model.row_map_.scales, scales)
    assert adjusted_rand_score(y, model.predict(X)) > 0.9


def test_views_by_name(table):
    X = pd.DataFrame(table[0], columns=[f"c{j}" for j in range(66)])
    by_name = CPMMC(3, views=[list(X.columns[:6]), list(X.columns[6:])], random_state=0).fit(X)
    by_number = CPMMC(3, views=[A, B], random_state=0).fit(X)
    np.testing.assert_array_equal(by_name.labels_, by_number.labels_)
    tree = MSPC("auto", views=[B, A], random_state=0).fit(X).tree_
    assert list(tree.feature_names) == [*X.columns[6:], *X.columns[:6]]


def test_ways_to_give_columns():
    mask = np.array([True, False, False, True])
    groups = column_groups([mask, [1, -2], slice(0, 1)], 4, None)
    assert [one.tolist() for one in groups] == [[0, 3], [1, 2], [0]]


@pytest.mark.parametrize(
    ("views", "error", "message"),
    [
        ("all", TypeError, "views must be a list of groups of columns"),
        (3, TypeError, "views must be a list of groups of columns"),
        ([], ValueError, "views is empty"),
        ([slice(0, 60)], ValueError, "leaves out 6 of the 66 columns of X: 60, 61, .*, 64, ..."),
        ([[0, 66]], ValueError, r"views\[0\] has the column 66, but X has 66 columns"),
        ([A, []], ValueError, r"views\[1\] has no columns"),
        ([A, [6, 6]], ValueError, r"views\[1\] has a column twice"),
        ([A, [True, False]], ValueError, r"views\[1\] is a mask of 2 columns, but X has 66"),
        ([A, ["a"]], ValueError, r"views\[1\] has column names, but X has none"),
        ([A, ["a", 3.5, None]], (TypeError, ValueError), r"views\[1\]"),
        (np.array(3), TypeError, "views must be a list of groups of columns"),
        ([A, [[6], [7, 8]]], TypeError, r"views\[1\] must be a slice"),
        ([A, [0.5]], TypeError, r"views\[1\] must be a slice"),
        ([A, slice("a", "b")], TypeError, r"views\[1\] must not be a slice of names"),
    ],
)
@pytest.mark.parametrize("kind", [CPMMC, KernelCPMMC, MSPC])
def test_bad_views(kind, views, error, message, table):
    model = kind(views=views)
    with pytest.raises(error, match=message):
        model.fit(table[0])
    assert not hasattr(model, "row_map_")


def test_unknown_names(table):
    X = pd.DataFrame(table[0], columns=[f"c{j}" for j in range(66)])
    with pytest.raises(ValueError, match=r"views\[0\] has the column 'd', which X does not have"):
        CPMMC(views=[["d"]]).fit(X)


@pytest.mark.parametrize("kind", [KernelCPMMC, MSPC])
def test_pairs_of_rows_have_no_views(kind, table):
    with pytest.raises(ValueError, match="views are groups of columns, but"):
        kind(kernel="precomputed", views=[A]).fit(table[0] @ table[0].T)


def test_view_scores_need_views_and_hyperplanes(table):
    X = table[0]
    with pytest.raises(AttributeError, match="fitted with views"):
        CPMMC(random_state=0).fit(X).view_scores(X)
    with pytest.raises(AttributeError, match="one set of hyperplanes"):
        MSPC(kernel="rbf", views=[A, B], random_state=0).fit(X).view_scores(X)
