"""MSPC.partial_fit: moments of batches, and clusters estimated from them."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from volmar import MSPC
from volmar.metrics import clustering_error
from volmar.models import load_model, save_model
from volmar.rows.anywhere import as_rows
from volmar.separation.batch_moments import BatchMoments, hyperplane_from_moments


def blobs(n, k, seed=0, d=5, spread=1.8):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d)) * 4
    y = rng.integers(k, size=n)
    return centers[y] + spread * rng.normal(size=(n, d)), y


def in_batches(model, X, size, weights=None):
    for start in range(0, X.shape[0], size):
        part = slice(start, start + size)
        model.partial_fit(X[part], sample_weight=None if weights is None else weights[part])
    return model


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_of_batches_are_those_of_all_rows(k, offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4)) * [1, 2, 3, 4] + offset
    weights, labels = rng.uniform(0, 2, 90), rng.integers(k, size=90)
    labels[30:40] = 0  # a batch with one cluster only
    found = None
    for start in range(0, 90, 10):
        part = slice(start, start + 10)
        batch = BatchMoments.of_rows(
            as_rows(X[part], sample_weight=weights[part]), labels[part], k
        )
        found = batch if found is None else found.joined(batch)
    assert (found.n_rows, found.n_batches) == (90, 9)
    # By the definitions, about the mean.
    mean = np.average(X, axis=0, weights=weights)
    second = (weights[:, None] * (X - mean)).T @ (X - mean)
    scale = second.diagonal().max()
    digits = 1e-12 if offset == 0 else 1e-9
    np.testing.assert_allclose(found.mean - mean, 0, atol=1e-12 * max(offset, 1))
    np.testing.assert_allclose(found.second, second, atol=digits * scale)
    for j in range(k):
        own = labels == j
        assert found.weight[j] == pytest.approx(weights[own].sum())
        center = np.average(X[own], axis=0, weights=weights[own])
        np.testing.assert_allclose(found.means[j] - center, 0, atol=1e-11 * max(offset, 1))
    if k == 2:
        own = labels == 1
        centred = X[own] - np.average(X[own], axis=0, weights=weights[own])
        expected = (weights[own][:, None] * centred).T @ centred
        np.testing.assert_allclose(found.second_of_1, expected, atol=digits * scale)
    else:
        assert found.second_of_1 is None


def test_discriminants_are_those_of_the_formula():
    """By inverting the pooled covariance within clusters, in the units of the columns."""
    X, _ = blobs(400, 3)
    model = in_batches(MSPC(3, random_state=0), X, 100)
    moments, reg = model.batch_moments_, model.reg_
    total = moments.second / moments.total_weight
    shares = moments.weight / moments.total_weight
    centred = moments.means - moments.mean
    within = total - (shares[:, None] * centred).T @ centred
    inverse = np.linalg.inv(within + reg * np.diag(total.diagonal()))
    np.testing.assert_allclose(model.coef_, centred @ inverse, rtol=1e-8, atol=1e-10)
    offsets = -0.5 * np.einsum("jd,de,je->j", centred, inverse, centred)
    np.testing.assert_allclose(model.intercept_ + model.coef_ @ moments.mean, offsets, rtol=1e-8)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_array_equal(scores.argmax(axis=1), model.predict(X))


def test_hyperplane_maximises_the_bound_and_is_cut_in_the_middle():
    X, _ = blobs(400, 2)
    model = in_batches(MSPC(random_state=0), X, 100)
    moments = model.batch_moments_
    middle = moments.means.mean(axis=0)
    assert model.decision_function(middle[None])[0] == pytest.approx(0, abs=1e-10)
    # Scores are in units of the distance between the means.
    scores = model.decision_function(moments.means)
    assert scores[1] - scores[0] == pytest.approx(1)
    z = moments.standardized()
    best = hyperplane_from_moments(moments, z, model.reg_)
    difference = z.from_rows((moments.means[1] - moments.means[0])[:, None])[:, 0]
    regular = z.correlation + model.reg_ * np.eye(z.size)

    def ratio(w):
        return (w @ difference) ** 2 / (w @ regular @ w)

    rng = np.random.default_rng(0)
    for _ in range(50):
        assert ratio(best.w + 0.1 * rng.normal(size=z.size)) < ratio(best.w)
    assert model.msp_lower_bound_ == pytest.approx(best.lower_bound)
    assert model.msp_lower_bound_ <= model.msp_
    # The sides from the moments equal those of a second pass over the rows.
    one, other = moments.sides(z)
    assert one.weight + other.weight == pytest.approx(moments.total_weight)
    assert ((model.side_probability_ > 0.3) & (model.side_probability_ < 1)).all()


@pytest.mark.parametrize("k", [2, 3, 5])
def test_batches_give_the_clusters_of_one_fit(k):
    X, y = blobs(2600, k, seed=k, d=6)
    train, test = X[:2000], X[2000:]
    whole = MSPC(k, random_state=0).fit(train)
    model = in_batches(MSPC(k, random_state=0), train, 200)
    assert model.n_samples_seen_ == 2000
    assert clustering_error(whole.predict(test), model.predict(test)) < 0.02
    assert clustering_error(y[2000:], model.predict(test)) < 0.05
    # The order of the later batches hardly matters.
    order = np.random.default_rng(1).permutation(1800) + 200
    shuffled = in_batches(MSPC(k, random_state=0), train[np.r_[:200, order]], 200)
    assert np.mean(shuffled.predict(test) != model.predict(test)) < 0.01


@pytest.mark.parametrize("k", [2, 3])
def test_first_batch_is_a_fit_and_its_names_stay(k):
    X, _ = blobs(300, k)
    whole, model = MSPC(k, random_state=0).fit(X), MSPC(k, random_state=0).partial_fit(X)
    np.testing.assert_array_equal(model.labels_, whole.labels_)
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    smallest = np.bincount(whole.labels_).argmin()
    # With many new rows the smallest cluster becomes the largest, and keeps its number.
    more = np.repeat(X[whole.labels_ == smallest], 20, axis=0)
    model.partial_fit(more)
    assert np.mean(model.predict(X) == whole.labels_) > 0.95
    assert model.batch_moments_.weight.argmax() == smallest
    assert not hasattr(model, "tree_")


@pytest.mark.parametrize("k", [2, 3])
def test_labels_are_those_of_the_last_batch(k):
    X, _ = blobs(250, k)
    model = in_batches(MSPC(k, random_state=0), X, 100)
    np.testing.assert_array_equal(model.labels_, model.predict(X[200:]))
    np.testing.assert_array_equal(model.result_.labels, model.labels_)
    assert model.n_iter_ == 3
    assert 0 <= model.result_.residuals["moves"] <= 1


@pytest.mark.parametrize("k", [2, 3])
def test_a_batch_of_one_row(k):
    X, _ = blobs(201, k)
    model = MSPC(k, random_state=0).partial_fit(X[:200])
    before = model.batch_moments_
    model.partial_fit(X[200:])
    assert model.n_samples_seen_ == 201
    assert model.labels_.shape == (1,)
    changed = model.batch_moments_.weight - before.weight
    assert sorted(changed) == [0] * (k - 1) + [1]
    with pytest.raises(ValueError, match=r"minimum of 2|at least 2"):
        MSPC(k).partial_fit(X[:1])


@pytest.mark.parametrize("k", [2, 3])
def test_weights_are_repeated_rows(k):
    X, _ = blobs(300, k)
    weights = np.random.default_rng(0).integers(1, 4, 300).astype(float)
    model = in_batches(MSPC(k, random_state=0, init="k-means"), X, 150, weights)
    twice = MSPC(k, random_state=0, init="k-means")
    twice.partial_fit(X[:150], sample_weight=weights[:150])
    twice.partial_fit(np.repeat(X[150:], weights[150:].astype(int), axis=0))
    np.testing.assert_allclose(model.coef_, twice.coef_, rtol=1e-8)


@pytest.mark.parametrize("k", [2, 3])
def test_sparse_and_float32_agree(k):
    X, _ = blobs(400, k)
    X[np.abs(X) < 1.0] = 0.0
    model = in_batches(MSPC(k, random_state=0), X, 200)
    of_csr = in_batches(MSPC(k, random_state=0), sparse.csr_array(X), 200)
    np.testing.assert_allclose(of_csr.coef_, model.coef_, rtol=1e-6, atol=1e-9)
    single = in_batches(MSPC(k, random_state=0), X.astype(np.float32), 200)
    np.testing.assert_allclose(single.coef_, model.coef_, rtol=2e-2, atol=1e-3)
    assert single.decision_function(X[:3].astype(np.float32)).dtype == np.float32


def test_more_columns_than_rows_of_a_batch():
    X, y = blobs(120, 2, d=30)
    model = in_batches(MSPC(random_state=0), X, 20)
    assert clustering_error(y, model.predict(X)) < 0.05


def test_a_column_that_varies_later():
    X, _ = blobs(400, 2)
    X = np.c_[X, np.r_[np.zeros(200), np.random.default_rng(0).normal(size=200)]]
    model = MSPC(random_state=0).partial_fit(X[:200])
    assert model.coef_[0, -1] == 0
    model.partial_fit(X[200:])
    assert model.coef_[0, -1] != 0


def test_wrong_batches_leave_the_model_as_it_is():
    X, _ = blobs(300, 3)
    model = MSPC(3, random_state=0).partial_fit(X)
    coef = model.coef_
    with pytest.raises(ValueError, match="4 features"):
        model.partial_fit(X[:, :4])
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.where(X > 3, np.nan, X))
    with pytest.raises(ValueError, match="sample_weight"):
        model.partial_fit(X, sample_weight=np.ones(3))
    assert model.coef_ is coef
    assert model.n_samples_seen_ == 300
    with pytest.raises(ValueError, match="differs from the 3 clusters"):
        model.set_params(n_clusters=4).partial_fit(X)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"n_clusters": "auto"}, "n_clusters='auto'"),
        ({"n_clusters": 1}, "n_clusters=1"),
        ({"kernel": "rbf"}, "kernel='rbf'"),
        ({"solver": "eig"}, "solver='eig'"),
        ({"mode": "paper"}, "mode='paper'"),
    ],
)
def test_parameters_without_batches_are_refused(params, named):
    with pytest.raises(ValueError, match=named):
        MSPC(**params).partial_fit(blobs(50, 2)[0])


def test_fit_and_partial_fit_are_not_mixed():
    X, _ = blobs(200, 2)
    model = MSPC(random_state=0).fit(X)
    with pytest.warns(UserWarning, match=r"fitted by fit.*init=model"):
        model.partial_fit(X[:100])
    assert model.n_samples_seen_ == 100
    begun = clone(model).partial_fit(X)
    begun.fit(X)
    assert not hasattr(begun, "batch_moments_")
    assert not hasattr(begun, "n_samples_seen_")


def test_too_few_different_rows_to_begin_with():
    model = MSPC(3, random_state=0)
    X = np.repeat([[0.0, 0.0], [5.0, 1.0]], 10, axis=0)
    with pytest.warns(Warning, match="Found 2"), pytest.raises(ValueError, match="larger batch"):
        model.partial_fit(X)
    assert not hasattr(model, "result_")


@pytest.mark.parametrize("k", [2, 3])
def test_a_saved_model_goes_on(k, tmp_path):
    X, _ = blobs(300, k)
    model = in_batches(MSPC(k, random_state=0), X[:200], 100)
    save_model(tmp_path / "model.volmar", model)
    loaded = load_model(tmp_path / "model.volmar").model
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    loaded.partial_fit(X[200:])
    model.partial_fit(X[200:])
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert loaded.n_samples_seen_ == 300


def test_labels_of_some_rows_are_refused():
    X, truth = blobs(300, 3)
    model = MSPC(3, random_state=0).partial_fit(X, truth)
    np.testing.assert_array_equal(model.labels_, MSPC(3, random_state=0).fit(X).labels_)
    before = model.labels_.copy()
    some = np.where(truth == 0, 5, -1)
    for y in (some, np.where(some < 0, np.nan, some), [None if one < 0 else "a" for one in some]):
        for one in (model, MSPC(3)):
            with pytest.raises(ValueError, match="y holds labels of some rows"):
                one.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"^y .*value"):
        model.partial_fit(X, truth[1:])
    assert model.n_samples_seen_ == 300
    np.testing.assert_array_equal(model.labels_, before)
    assert model.partial_fit(X, truth).n_samples_seen_ == 600
