"""The test of given clusters: known answers, held-out rows, the tree, bad input."""

import pickle

import numpy as np
import pandas as pd
import pytest
from helpers.groups import ring, two
from helpers.label_tests import chain, three
from scipy import sparse
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from volmar.evidence import label_test, space


def noise(kind, n, seed):
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return rng.normal(size=(n, 4))
    if kind == "exponential":
        return rng.exponential(size=(n, 3))
    if kind == "heavy tails":
        return rng.standard_t(3, size=(n, 3))
    if kind == "counts":
        return rng.poisson(2.0, size=(n, 4)).astype(float)
    return rng.normal(size=(n, 5)) @ (np.eye(5) + 0.9)  # correlated


# ---------------------------------------------------------------------- level


@pytest.mark.parametrize(
    "cluster",
    [
        lambda X: KMeans(2, n_init=3, random_state=0).fit_predict(X),
        lambda X: KMeans(5, n_init=3, random_state=0).fit_predict(X),
        lambda X: GaussianMixture(3, random_state=0, reg_covar=1e-3).fit_predict(X),
        lambda X: AgglomerativeClustering(4).fit_predict(X),
    ],
    ids=["kmeans-2", "kmeans-5", "mixture-3", "ward-4"],
)
@pytest.mark.parametrize("kind", ["normal", "exponential", "heavy tails", "counts", "correlated"])
def test_pieces_of_noise_are_merged(kind, cluster):
    X = noise(kind, 400, 7)
    result = label_test(X, cluster(X), random_state=0)
    assert result.n_real == 1
    assert not any(result.is_real.values())
    assert len(np.unique(result.merged_labels)) == 1 + len(result.untested)


def test_the_label_of_a_held_out_row_does_not_choose_it():
    """Two halves of one Gaussian have a gap by construction if rows are selected by labels."""
    X = np.random.default_rng(0).normal(size=(2000, 2))
    # Rows near the border have no cluster: there is a wide gap between the two clusters.
    labels = np.where(X[:, 0] > 0.7, 1, np.where(X[:, 0] < -0.7, 0, -1))
    result = label_test(X, labels, random_state=0)
    assert result.n_real == 1
    without = label_test(X[labels >= 0], labels[labels >= 0], random_state=0)
    assert without.n_real == 2  # the rows themselves are gone
    np.testing.assert_array_equal(result.merged_labels == -1, labels == -1)
    assert result.n_noise == np.count_nonzero(labels == -1)


def test_a_gap_elsewhere_does_not_separate_labels():
    X, _ = two(600, distance=8.0)
    drawn = np.random.default_rng(0).integers(0, 2, 600)
    for seed in range(3):
        assert label_test(X, drawn, random_state=seed).n_real == 1
    # A border through the middle of the right group, far from the gap.
    through = X[:, 0] > 8.0
    result = label_test(X, through, random_state=0)
    assert result.n_real == 1
    assert "no gap was found at any border" in result.summary
    # A cluster that consists of two groups is still separated from a third.
    at = np.array([[0.0, 0.0], [8.0, 0.0], [16.0, 0.0]])
    X = at[np.arange(600) % 3] + np.random.default_rng(0).normal(size=(600, 2))
    assert label_test(X, X[:, 0] > 12.0, random_state=0).n_real == 2


# ---------------------------------------------------------------------- power


@pytest.mark.parametrize("distance", [4.0, 6.0])
def test_too_many_clusters_are_merged_to_the_groups(distance):
    X, y = three(distance)
    given = KMeans(6, n_init=3, random_state=0).fit_predict(X)
    result = label_test(X, given, random_state=0)
    assert result.n_real == 3
    assert adjusted_rand_score(y, result.merged_labels) > 0.8
    assert not any(result.is_real.values())
    assert sorted(len(group) for group in result.groups) == [2, 2, 2]


def test_groups_are_kept():
    X, y = three(5.0)
    result = label_test(X, y, random_state=0)
    assert result.n_real == 3
    assert result.is_real == {0: True, 1: True, 2: True}
    np.testing.assert_array_equal(result.merged_labels, y)


def test_many_groups_of_which_no_direction_shows_all():
    k, y = 6, np.arange(1500) % 6
    X = np.random.default_rng(0).normal(size=(1500, 8))
    X[:, :k] += 5.0 / np.sqrt(2.0) * np.eye(k)[y]
    assert label_test(X, y, random_state=0).n_real == k


def test_a_small_cluster_beside_a_large_one():
    X, _ = two(1000)
    y = (np.arange(1000) < 30).astype(int)
    X[:, 0] = np.random.default_rng(1).normal(size=1000) + 7.0 * y
    assert label_test(X, y, random_state=0).n_real == 2


def test_two_close_groups_and_one_far_away():
    y = np.arange(900) % 3
    at = np.array([[0.0, 0.0], [5.0, 0.0], [40.0, 5.0]])
    X = at[y] + np.random.default_rng(0).normal(size=(900, 2))
    result = label_test(X, y, random_state=0)
    assert result.n_real == 3
    assert result.tree[0].tested == ((0,), (1,))


@pytest.mark.parametrize(
    ("X", "y"),
    [
        make_moons(500, noise=0.08, random_state=0),
        make_circles(500, noise=0.05, factor=0.4, random_state=0),
    ],
    ids=["moons", "circles"],
)
def test_curved_clusters_are_kept(X, y):
    result = label_test(X, y, random_state=0)
    assert result.n_real == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X + 1e8,
        lambda X: (X + 1e3).astype(np.float32),
        lambda X: 1e-100 * X,
        sparse.csr_array,
    ],
    ids=["offset", "float32", "tiny", "sparse"],
)
def test_curved_clusters_in_any_kind_of_rows(change):
    X, y = make_circles(500, noise=0.05, factor=0.4, random_state=0)
    result = label_test(change(X), y, random_state=0)
    assert result.n_real == 2


def test_clusters_and_noise_of_hdbscan():
    X, _ = make_moons(500, noise=0.08, random_state=1)
    X = np.vstack([X, np.random.default_rng(0).uniform(-1.5, 2.5, size=(20, 2))])
    labels = HDBSCAN(min_cluster_size=25, copy=True).fit_predict(X)
    assert (labels == -1).any()
    result = label_test(X, labels, random_state=0)
    assert result.n_real == 2
    assert result.n_noise == np.count_nonzero(labels == -1)
    assert f"{result.n_noise} rows without a cluster" in str(result)


def test_a_ring_between_two_rings():
    rng = np.random.default_rng(0)
    y = np.arange(900) % 3
    angle, radius = rng.uniform(0, 2 * np.pi, 900), 1 + 2 * y + 0.15 * rng.normal(size=900)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    result = label_test(X, y, random_state=0)
    assert result.n_real == 3
    # The inner and the outer ring have the middle one between them.
    assert {join.tested for join in result.tree} == {((0,), (1,)), ((1,), (2,))}


def chainlink(n=400, seed=0):
    """Two rings in space, each through the other."""
    rng = np.random.default_rng(seed)
    y, angle = np.arange(2 * n) % 2, rng.uniform(0, 2 * np.pi, 2 * n)
    x, z = np.cos(angle), np.sin(angle)
    X = np.column_stack([x + y, np.where(y, 0, z), np.where(y, z, 0)])
    return X + 0.08 * rng.normal(size=X.shape), y


def lsun(seed=0):
    """Two bars at a right angle, and a round group beside them."""
    rng = np.random.default_rng(seed)
    bars = (
        rng.uniform(size=(200, 2)) * [0.5, 4.0],
        rng.uniform(size=(200, 2)) * [4.0, 0.5] + [1, 0],
    )
    X = np.vstack([*bars, rng.normal([3.5, 2.8], 0.35, (100, 2))])
    return X, np.repeat([0, 1, 2], [200, 200, 100])


@pytest.mark.parametrize("seed", range(3))
def test_bars_and_linked_rings(seed):
    X, y = lsun(seed)
    assert label_test(X, y, random_state=0).n_real == 3
    X, y = chainlink(seed=seed)
    assert label_test(X, y, random_state=0).n_real == 2
    # The halves of each ring.
    halves = 2 * y + (X[:, 1] + X[:, 2] > 0)
    result = label_test(X, halves, random_state=0)
    assert set(result.groups) == {(0, 1), (2, 3)}


@pytest.mark.parametrize("seed", range(3))
def test_arcs_of_a_ring_and_pieces_of_moons_are_joined(seed):
    X = ring(600, seed)
    assert label_test(X, X[:, 0] > 0, random_state=0).n_real == 1
    X, y = make_moons(500, noise=0.05, random_state=seed)
    pieces = KMeans(8, n_init=3, random_state=0).fit_predict(X)
    result = label_test(X, pieces, random_state=0)
    assert result.n_real == 2
    assert adjusted_rand_score(y, result.merged_labels) > 0.8


def test_many_clusters_between_others():
    """Far clusters are tested although others lie on the way between them."""
    at = np.stack(np.meshgrid(*[np.arange(4) * 8.0] * 2), -1).reshape(-1, 2)
    y = np.arange(800) % 16
    X = at[y] + np.random.default_rng(0).normal(size=(800, 2))
    assert label_test(X, y, random_state=0).n_real == 16
    pieces = KMeans(40, n_init=3, random_state=0).fit_predict(X)
    result = label_test(X, pieces, min_cluster_size=10, random_state=0)
    assert result.n_real >= 14


def test_groups_in_two_of_many_columns():
    y = np.arange(600) % 3
    X = np.random.default_rng(0).normal(size=(600, 60))
    X[y == 1, 0] += 6.0
    X[y == 2, 1] += 6.0
    assert label_test(X, y, random_state=0).n_real == 3


def test_the_order_of_rows_and_the_names_do_not_matter():
    X, y = three(4.0)
    order = np.random.default_rng(0).permutation(len(X))
    result = label_test(X[order], np.array(["c", "a", "b"])[y[order]], random_state=0)
    assert result.n_real == label_test(X, y, random_state=0).n_real == 3
    cut = label_test(X[order], X[order, 0] > 0.1, random_state=0)
    assert cut.n_real == label_test(X, X[:, 0] > 0.1, random_state=0).n_real


def test_columns_of_few_values_are_dithered():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    X[:, 0] = rng.integers(0, 2, 400) * 10.0
    assert label_test(X, X[:, 0], random_state=0).n_real == 1  # a column of two values, no more


# ---------------------------------------------------------------------- the result


def test_a_chain_of_500_clusters_prints_and_pickles():
    result = chain(500)
    assert result.n_real == 250
    assert len(result.groups) == 250
    assert all(len(group) == 2 for group in result.groups)
    again = pickle.loads(pickle.dumps(result))
    assert again.tree == result.tree
    assert str(again) == str(result)
    assert len(result.sentences) == 499


def test_sentences_and_names():
    X, y = three()
    names = np.array(["left", "right", "top"])[y]
    names[(y == 2) & (X[:, 0] > 2.5)] = "tip"
    names[:4] = "rare"
    result = label_test(X, names, random_state=0)
    assert result.merged_labels.dtype == names.dtype
    assert result.n_real == 3
    assert result.untested == ("rare",)
    assert set(result.groups) == {("left",), ("right",), ("tip", "top")}
    assert result.is_real == {
        "left": True,
        "right": True,
        "tip": False,
        "top": False,
        "rare": False,
    }
    assert (result.merged_labels[:4] == "rare").all()
    counts = {name: int((names == name).sum()) for name in ("tip", "top")}
    assert result.sentences[0] == (
        f"Clusters tip and top ({counts['tip']} and {counts['top']} rows) are not separated "
        f"(p = {result.p_values[0]:.2g}, level {result.tree[0].level:.2g}): merge them."
    )
    assert "Cluster rare (4 rows) is too small to test and is left unchanged." in result.sentences
    assert str(result).splitlines()[0] == (
        "4 tested clusters form 3 groups that are separated from each other (level 0.05)."
    )
    assert "lusters tip + top" in str(result)
    larger = max(counts, key=counts.__getitem__)
    assert set(np.unique(result.merged_labels)) == {"left", "right", "rare", larger}
    last = result.tree[-1]
    assert sorted((*last.left, *last.right)) == ["left", "right", "tip", "top"]
    assert last.n_left + last.n_right == 596
    assert all(join.is_real == (join.p_value <= join.level) for join in result.tree)


def test_one_testable_cluster_leaves_nothing_to_test():
    X, _ = two(100)
    labels = np.where(np.arange(100) < 90, 0, 1)
    result = label_test(X, labels, random_state=0)
    assert result.tree == ()
    assert result.n_real == 1
    assert result.untested == (1,)
    np.testing.assert_array_equal(result.merged_labels, labels)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        sparse.csr_array,
        lambda X: pd.DataFrame(X, columns=["a", "b", "c"]),
        lambda X: X * [1e-6, 1.0, 1e6],
        lambda X: X + 1e6,
        lambda X: X * 1e100,
        lambda X: np.column_stack([X, np.ones(len(X)), X[:, 0]]),
        lambda X: np.round(10 * X).astype(int),
        lambda X: X[:, :1],
    ],
    ids=[
        "float32",
        "sparse",
        "frame",
        "units",
        "offset",
        "huge",
        "constant",
        "integers",
        "one-column",
    ],
)
def test_any_kind_of_rows(change):
    X, y = two()
    assert label_test(change(X), y, random_state=0).n_real == 2
    X, y = two(distance=0.0)
    labels = KMeans(2, n_init=3, random_state=0).fit_predict(X)
    assert label_test(change(X), labels, random_state=0).n_real == 1


@pytest.mark.parametrize(
    "labels",
    [
        lambda y: np.where(y, "b", "a"),
        lambda y: np.where(y, "b", "a").astype(object),
        lambda y: np.where(y, b"b", b"a"),
        lambda y: y.astype(bool),
        lambda y: y.astype(float),
        lambda y: y.tolist(),
        lambda y: pd.Series(np.where(y, "b", "a")).astype("category"),
        lambda y: y.astype(np.uint8),
    ],
)
def test_any_kind_of_labels(labels):
    X, y = two()
    result = label_test(X, labels(y), random_state=0)
    assert result.n_real == 2
    assert list(result.merged_labels) == list(labels(y))


@pytest.mark.parametrize(
    ("values", "noise_label"),
    [((0, 1, -1), -1), (("0", "1", "-1"), -1), (("a", "b", "out"), "out"), ((0, 1, 7), 7)],
)
def test_rows_without_a_cluster(values, noise_label):
    X, y = two()
    codes = y.copy()
    codes[:30] = 2
    labels = np.array(values)[codes]
    result = label_test(X, labels, noise_label=noise_label, random_state=0)
    assert result.n_noise == 30
    assert result.n_real == 2
    np.testing.assert_array_equal(result.merged_labels, labels)
    as_cluster = label_test(X, labels, noise_label=None, random_state=0)
    assert len(as_cluster.clusters) == 3


def test_same_seed_same_result_and_progress():
    X, y = three()
    seen = []
    first = label_test(X, y, random_state=3, progress=lambda *done: seen.append(done))
    second = label_test(X, y, random_state=3)
    assert first.tree == second.tree
    assert seen == [(0, 2), (2, 2)]
    turned = label_test(X, 2 - y, random_state=3)
    assert turned.n_real == first.n_real


def test_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr(space, "MAX_ROWS_OF_FEW", 400)
    X, y = two(5000)
    y[:30] = 2  # few rows, of which the sample has some
    X[:30] += 20.0
    result = label_test(X, y, random_state=0)
    assert result.n_real == 3
    assert result.sizes == (2485, 2485, 30)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(299), r"^labels .*\(300,\)"),
        (np.zeros((300, 2)), r"got shape \(300, 2\)"),
        (np.where(np.arange(300) == 7, np.nan, 1.0), "^labels .*position 7"),
        (["a"] * 299 + [None], "^labels .*None at position"),
        (pd.array([1] * 299 + [None], dtype="Int64"), "^labels .*position 299"),
        (np.zeros(300), r"^labels .*cluster \(0.0\)"),
        (np.where(np.arange(300) < 9, -1, 4), r"^labels .*cluster \(4\)"),
        (np.full(300, -1), "^labels .*noise_label=None"),
        (np.arange(300) // 15, "min_cluster_size=20 .*15"),
    ],
)
def test_labels_that_cannot_be_tested_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        label_test(two()[0], labels)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"alpha": 0.0}, ValueError, "alpha must be greater than 0"),
        ({"alpha": "much"}, TypeError, "alpha must be a number"),
        ({"min_cluster_size": 5}, ValueError, "min_cluster_size must be at least 10"),
        ({"min_cluster_size": 20.5}, TypeError, "^min_cluster_size .*integer"),
    ],
)
def test_parameters_are_checked(parameters, error, message):
    X, y = two()
    with pytest.raises(error, match=message):
        label_test(X, y, **parameters)


def test_rows_are_checked():
    X, y = two()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        label_test(X, y)
    with pytest.raises(ValueError, match=r"^X .*StandardScaler"):
        label_test(np.full((300, 2), 1e300), y)
    with pytest.raises(TypeError, match="labels has dtype datetime64"):
        label_test(two()[0], np.where(y, np.datetime64("2020-01-01"), np.datetime64("2021-01-01")))
    with pytest.raises(TypeError, match="labels must be of one type"):
        label_test(two()[0], np.array([1, "a"] * 150, dtype=object))
    assert label_test(np.zeros((300, 2)), y, random_state=0).n_real == 1  # all rows the same
