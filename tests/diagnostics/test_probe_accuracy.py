"""Held-out predictions of clusters, and the choice of labels by them."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.neighbors import KNeighborsClassifier

from volmar import MSPC
from volmar.datasets import make_blobs, make_two_moons
from volmar.diagnostics import LabelChoice, ProbeAccuracy, choose_labels, probe_accuracy
from volmar.diagnostics.probe_accuracy import PROBES, REG, _accuracy, _Discriminants, _NearestRows

both = pytest.mark.parametrize("probe", PROBES)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(400, centers=4, n_features=4, random_state=0)


@both
def test_true_groups_are_predicted_and_random_labels_are_not(blobs, probe):
    X, y = blobs
    right = probe_accuracy(X, y, probe=probe, random_state=0)
    assert right.score > 0.97
    assert right.balanced_accuracy > 0.97
    assert right.n_clusters == 4
    assert right.entropy == pytest.approx(np.log(4), abs=0.01)
    noise = np.random.default_rng(0).permutation(y)
    wrong = probe_accuracy(X, noise, probe=probe, random_state=0)
    assert abs(wrong.score) < 0.03
    assert abs(wrong.balanced_accuracy) < 0.1


@both
def test_degenerate_labels_lose(blobs, probe):
    X, y = blobs
    outliers = np.zeros(len(X), dtype=int)
    outliers[np.argsort(X[:, 0])[-8:]] = 1  # one large cluster and a few extreme rows
    single = np.zeros(len(X), dtype=int)
    merged = np.minimum(y, 1)  # three groups in one
    choice = choose_labels(
        X,
        {"outliers": outliers, "single": single, "merged": merged, "right": y},
        probe=probe,
        random_state=0,
    )
    assert choice.name == "right"
    assert choice.scores["single"].score == 0.0
    assert choice.scores["single"].accuracy == 1.0
    assert choice.scores["outliers"].accuracy > 0.97
    assert choice.scores["outliers"].score < 0.2


@both
def test_too_many_clusters_lose(blobs, probe):
    X, _ = blobs
    many = {str(k): KMeans(k, n_init=5, random_state=0).fit(X) for k in (4, 6, 10, 20)}
    assert choose_labels(X, many, probe=probe, random_state=0).name == "4"


def test_a_row_for_each_cluster_has_score_zero(blobs):
    X, _ = blobs
    found = probe_accuracy(X, np.arange(len(X)), random_state=0)
    assert found.score == pytest.approx(0.0, abs=1e-6)
    assert found.accuracy == 0.0


@both
def test_names_of_clusters_and_a_factor_do_not_matter(blobs, probe):
    X, _ = blobs
    labels = KMeans(6, random_state=0, n_init=1).fit_predict(X)
    first = probe_accuracy(X, labels, probe=probe, random_state=0)
    names = np.array(["f", "b", "e", "a", "d", "c"])[labels]
    again = probe_accuracy(1000.0 * X, names, probe=probe, random_state=0)
    assert again.score == pytest.approx(first.score, abs=1e-9)


@both
@pytest.mark.parametrize("n_columns", [4, 300])
def test_sparse_rows_and_float32_agree_with_dense(probe, n_columns):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    X = rng.normal(size=(120, n_columns)) + 2 * np.eye(3, n_columns)[labels]
    X[np.abs(X) < 0.5] = 0.0
    dense = probe_accuracy(X, labels, probe=probe, random_state=0)
    assert dense.score > 0.05
    given = sparse.csr_array(X)
    assert probe_accuracy(given, labels, probe=probe, random_state=0) == dense
    small = probe_accuracy(X.astype(np.float32), labels, probe=probe, random_state=0)
    assert small.score == pytest.approx(dense.score, abs=0.03)


def test_score_is_adjusted_mutual_information_where_sizes_are_equal():
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(5), 40)
    predicted = np.where(rng.random(200) < 0.7, true, rng.permutation(true))
    found = _accuracy(true, predicted, 5)
    # For equal sizes, H(c) = log k is the maximum of both entropies.
    wanted = adjusted_mutual_info_score(true, predicted, average_method="max")
    assert found.score == pytest.approx(wanted)
    assert found.accuracy == pytest.approx(np.mean(true == predicted))
    assert found.balanced_accuracy == pytest.approx((found.accuracy - 0.2) / 0.8)


def test_linear_probe_is_discriminant_analysis():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), 30)
    train = rng.normal(size=(120, 6)) @ rng.normal(size=(6, 6)) + 0.8 * np.eye(4, 6)[codes]
    test = rng.normal(size=(200, 6)) @ rng.normal(size=(6, 6))
    found = _Discriminants(train, test).predictions(np.arange(4), codes)
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=REG / (1 + REG))
    np.testing.assert_array_equal(found, model.fit(train, codes).predict(test))


def test_wide_rows_have_the_scores_of_the_formula():
    rng = np.random.default_rng(0)
    codes = np.array([0] * 12 + [1] * 8 + [2] * 5)
    train, test = rng.normal(1.0, 1.0, (25, 40)), rng.normal(1.0, 1.0, (30, 40))
    found = _Discriminants(train, test).predictions(np.array([3, 5, 7]), codes)
    means = np.stack([train[codes == c].mean(axis=0) for c in range(3)])
    rest = train - means[codes]
    covariance = rest.T @ rest / 25
    covariance += REG * np.trace(covariance) / 25 * np.eye(40)
    solved = np.linalg.solve(covariance, (means - train.mean(axis=0)).T)
    centred = means - train.mean(axis=0)
    scores = (test - train.mean(axis=0)) @ solved - np.diag(centred @ solved) / 2
    scores += np.log(np.bincount(codes) / 25)
    np.testing.assert_array_equal(found, np.array([3, 5, 7])[scores.argmax(axis=1)])
    assert np.unique(found).size == 3


def test_neighbours_probe_is_the_nearest_neighbours_classifier():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(200, 3)), rng.normal(size=(100, 3))
    codes = (train[:, 0] > 0).astype(int) + (train[:, 1] > 0)
    found = _NearestRows(train, test).predictions(np.arange(3), codes)
    model = KNeighborsClassifier(10).fit(train, codes)
    votes = np.sort(model.predict_proba(test), axis=1)
    clear = votes[:, -1] > votes[:, -2]
    np.testing.assert_array_equal(found[clear], model.predict(test)[clear])
    for row in np.flatnonzero(~clear):  # in a tie, any label with the largest number of votes
        assert model.predict_proba(test[[row]])[0, found[row]] == votes[row, -1]


def test_bent_groups_need_the_neighbours():
    X, y = make_two_moons(500, random_state=0)
    straight = KMeans(2, n_init=5, random_state=0).fit_predict(X)
    candidates = {"k-means": straight, "moons": y}
    assert choose_labels(X, candidates, random_state=0).name == "moons"


def test_few_columns_do_not_hide_the_clusters_in_the_middle():
    X = np.repeat(np.arange(6.0), 40)[:, None] + np.random.default_rng(0).normal(0, 0.05, (240, 1))
    y = np.repeat(np.arange(6), 40)
    assert probe_accuracy(X, y, probe="linear", random_state=0).score > 0.99


@both
def test_constant_rows(probe):
    X = np.ones((40, 3))
    found = probe_accuracy(X, np.arange(40) % 2, probe=probe, random_state=0)
    assert abs(found.score) < 0.2
    assert np.isfinite(found.score)


def test_rows_are_drawn_and_repeatable(blobs):
    X, y = blobs
    first = probe_accuracy(X, y, max_rows=100, random_state=3)
    assert first == probe_accuracy(X, y, max_rows=100, random_state=3)
    assert first.n_clusters == 4
    assert isinstance(first, ProbeAccuracy)


def test_choice_takes_labels_and_clusterers_and_prints_a_table(blobs):
    X, y = blobs
    model = MSPC(3, random_state=0).fit(X)
    choice = choose_labels(X, {"three": model, "four": y}, random_state=0)
    assert isinstance(choice, LabelChoice)
    assert choice.name == "four"
    np.testing.assert_array_equal(choice.labels, y)
    assert list(choice.scores) == ["four", "three"]
    assert choice.scores["three"] == probe_accuracy(X, model.labels_, random_state=0)
    lines = str(choice).splitlines()
    assert lines[0].split() == ["labels", "score", "accuracy", "balanced", "entropy", "clusters"]
    assert lines[1].startswith("four")
    assert len({len(line) for line in lines}) == 1


def test_equal_scores_take_the_first(blobs):
    X, y = blobs
    assert choose_labels(X, {"b": y, "a": 3 - y}, random_state=0).name == "b"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probe": "svm"}, "probe"),
        ({"max_rows": 3}, "max_rows"),
        ({"labels": [0, 1]}, "labels must have one label for each of the 400 rows"),
        ({"X": [[1.0], [2.0], [3.0]], "labels": [0, 1, 0]}, "minimum of 4"),
    ],
)
def test_bad_input_is_refused(blobs, change, message):
    X, y = blobs
    given = {"X": X, "labels": y} | change
    with pytest.raises(ValueError, match=message):
        probe_accuracy(given.pop("X"), given.pop("labels"), **given)


def test_bad_candidates_are_refused(blobs):
    X, y = blobs
    with pytest.raises(TypeError, match="candidates must be a dict"):
        choose_labels(X, [y])
    with pytest.raises(TypeError, match="an empty one"):
        choose_labels(X, {})
    with pytest.raises(TypeError, match=r"candidates\['m'\] is a MSPC without labels_"):
        choose_labels(X, {"m": MSPC()})
    with pytest.raises(ValueError, match=r"candidates\['short'\] must have one label"):
        choose_labels(X, {"short": y[:-1]})
