"""Trees with cells and merged leaves: scores, pickles, saved models, weights, sizes."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from volmar import CPMMC, MSPC
from volmar.base.recursion import CellSplit
from volmar.base.tree import SplitNode, SplitTree
from volmar.evidence.held_out import make_split
from volmar.evidence.pairs import LinearCells
from volmar.models import load_model, save_model


class Column:
    """Scores by one column, cut at a place."""

    def __init__(self, column=0, cut=0.0):
        self.column, self.cut = column, cut

    def decision_function(self, X):
        return X[:, self.column] - self.cut


def leaf(label):
    return SplitNode(1, 1.0, label=label)


def quarters():
    """Left and right, each of them below and above."""
    pairs = [(leaf(0), leaf(1)), (leaf(2), leaf(3))]
    inner = [
        SplitNode(2, 2.0, model=Column(1), children=pair, rank=number + 2)
        for number, pair in enumerate(pairs)
    ]
    return SplitTree(SplitNode(4, 4.0, model=Column(0), children=tuple(inner), rank=1))


POINTS = np.random.default_rng(0).normal(size=(50, 2))
QUARTER = 2 * (POINTS[:, 0] > 0) + (POINTS[:, 1] > 0)


# ---------------------------------------------------------------------- merged leaves


@pytest.mark.parametrize("new", [[0, 1, 0, 2], [0, 1, 2, 1], [0, 1, 2, 3], [0, 0, 1, 2]])
def test_merged_leaves_have_one_score(new):
    """The score of merged leaves is that of the nearest leaf."""
    plain = quarters().scores(POINTS)
    tree = quarters()
    tree.relabel(np.array(new))
    k = max(new) + 1
    assert tree.n_leaves == k
    assert len(tree.leaves()) == 4
    scores = tree.scores(POINTS)
    assert scores.shape == (50, k)
    for label in range(k):
        members = np.flatnonzero(np.array(new) == label)
        np.testing.assert_array_equal(scores[:, label], plain[:, members].max(axis=1))
    np.testing.assert_array_equal(scores.argmax(axis=1), np.array(new)[QUARTER])


@pytest.mark.parametrize("new", [[0, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 0]])
def test_two_clusters_of_merged_leaves_have_one_column(new):
    tree = quarters()
    tree.relabel(np.array(new))
    scores = tree.scores(POINTS)
    assert tree.n_leaves == 2
    assert scores.shape == (50,)
    np.testing.assert_array_equal(scores > 0, np.array(new)[QUARTER] == 1)


def test_all_leaves_merged_are_one_cluster():
    tree = quarters()
    tree.relabel(np.zeros(4, dtype=int))
    assert tree.n_leaves == 1
    np.testing.assert_array_equal(tree.scores(POINTS), 0.0)


def test_a_part_without_any_rows_is_scored():
    tree = quarters()
    tree.relabel(np.array([0, 1, 0, 2]))
    right = POINTS[POINTS[:, 0] > 0]
    np.testing.assert_array_equal(
        tree.scores(right).argmax(axis=1), np.where(right[:, 1] > 0, 2, 0)
    )
    assert tree.scores(POINTS[:0]).shape == (0, 3)


# ---------------------------------------------------------------------- deep trees


def chain(depth):
    node = leaf(depth)
    for label in reversed(range(depth)):
        node = SplitNode(2, 2.0, model=Column(), children=(leaf(label), node), rank=label + 1)
    return SplitTree(node, ["north", "east"])


@pytest.mark.parametrize(
    "copied",
    [lambda tree: pickle.loads(pickle.dumps(tree)), copy.deepcopy],
    ids=["pickle", "copy"],
)
def test_deep_trees_are_copied(copied):
    tree = chain(3000)
    again = copied(tree)
    assert again is not tree
    assert again.root is not tree.root
    assert again.n_leaves == 3001
    assert again.feature_names == tree.feature_names
    assert str(again) == str(tree)
    assert str(tree).count("\n") == 6000
    rows = np.array([[-1.0, 0.0], [2.0, 0.0]])
    np.testing.assert_array_equal(again.scores(rows), tree.scores(rows))
    assert [leaf.label for leaf in again.leaves()] == [leaf.label for leaf in tree.leaves()]


def test_a_pickle_keeps_everything_of_a_node():
    tree = MSPC("auto", random_state=0).fit(four_blobs()[0]).tree_
    again = pickle.loads(pickle.dumps(tree))
    for one, other in zip(tree.nodes(), again.nodes(), strict=True):
        for name in ("n_rows", "weight", "rank", "label", "leading", "reason", "warnings"):
            assert getattr(one, name) == getattr(other, name)
        np.testing.assert_equal([other.p_value, other.probability], [one.p_value, one.probability])
        assert type(other.model) is type(one.model)
    assert str(again) == str(tree)


# ---------------------------------------------------------------------- cells as a node


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_a_split_by_cells_scores_as_its_cells(convert, rng):
    X, _ = four_blobs()
    cells = make_split(X, rng)
    split = CellSplit(cells, cells.predict(X))
    np.testing.assert_array_equal(
        split.decision_function(convert(X)), cells.decision_function(convert(X))
    )
    np.testing.assert_array_equal(split.decision_function(X) > 0, split.labels_)
    assert split.result_.objective == 0.0


@pytest.mark.parametrize("sides", [[False, True], [True, False]])
def test_two_cells_have_a_normal(sides, rng):
    cells = LinearCells(rng.normal(size=(2, 3)), rng.normal(size=2), np.array(sides))
    split = CellSplit(cells, np.zeros(1, dtype=np.int64))
    X = rng.normal(size=(20, 3))
    differences = np.diff(split.decision_function(X))
    np.testing.assert_allclose(differences, np.diff(X @ split.coef_[0]))
    three = LinearCells(rng.normal(size=(3, 3)), rng.normal(size=3), np.array([True, False, True]))
    assert not hasattr(CellSplit(three, np.zeros(1, dtype=np.int64)), "coef_")


# ---------------------------------------------------------------------- estimators


def four_blobs(n=400, seed=0, std=1.0):
    rng = np.random.default_rng(seed)
    centers = 5.0 * np.array([[0.0, 0.0], [1.1, 0.2], [0.2, 1.2], [1.3, 1.4]])
    y = np.arange(n) % 4
    return centers[y] + std * rng.normal(size=(n, 2)), y


def equidistant(k=5, distance=5.0, n=1000, d=8, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return rng.normal(size=(n, d)) + distance / np.sqrt(2.0) * np.eye(d)[y], y


@pytest.mark.parametrize("seed", range(3))
def test_groups_at_equal_distance_are_all_found(seed):
    X, y = equidistant(seed=seed)
    model = MSPC("auto", random_state=0).fit(X)
    assert len(set(model.labels_)) == 5
    # The nearest of the true centres is right about as often.
    nearest = np.argmax(X[:, :5], axis=1)
    assert adjusted_rand_score(y, model.labels_) > adjusted_rand_score(y, nearest) - 0.03
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def with_cells():
    """Return a fitted model with cells in its tree, and its rows."""
    for seed in range(20):
        X, _ = equidistant(seed=seed, n=600)
        for model in (MSPC("auto", random_state=0), CPMMC("auto", random_state=0)):
            model.fit(X)
            if any(isinstance(node.model, CellSplit) for node in model.tree_.splits()):
                return model, X
    raise AssertionError("no tree has cells")


def test_models_with_cells_are_saved(tmp_path):
    model, X = with_cells()
    new = X[::3] + 0.1
    save_model(tmp_path / "one.volmar", model)
    again = load_model(tmp_path / "one.volmar").model
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    np.testing.assert_array_equal(again.decision_function(new), model.decision_function(new))
    assert str(again.tree_) == str(model.tree_)
    np.testing.assert_array_equal(again.tree_.scores(new), model.tree_.scores(new))
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(new), model.predict(new))


@pytest.mark.parametrize("estimator", [MSPC("auto"), CPMMC("auto")], ids=["MSPC", "CPMMC"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows_give_the_same_tree(estimator, dtype):
    X = four_blobs()[0].astype(dtype)
    dense, thin = (
        clone(estimator).set_params(random_state=0).fit(rows) for rows in (X, sparse.csr_array(X))
    )
    assert adjusted_rand_score(dense.labels_, thin.labels_) > 0.99
    np.testing.assert_array_equal(thin.predict(sparse.csr_array(X)), thin.labels_)
    assert dense.tree_.n_leaves == thin.tree_.n_leaves == 4


@pytest.mark.parametrize("estimator", [MSPC("auto"), CPMMC("auto")], ids=["MSPC", "CPMMC"])
def test_rows_without_weight_do_not_change_the_clusters(estimator):
    X, y = four_blobs()
    rng = np.random.default_rng(1)
    # A fifth group with weight 0, and rows between the others.
    more = np.vstack([X, rng.normal(20.0, 1.0, (80, 2)), rng.uniform(-2, 8, (40, 2))])
    weights = np.repeat([1.0, 0.0], [400, 120])
    plain = clone(estimator).set_params(random_state=0).fit(X)
    weighted = clone(estimator).set_params(random_state=0).fit(more, sample_weight=weights)
    assert len(set(plain.labels_)) == 4
    assert adjusted_rand_score(plain.labels_, weighted.labels_[:400]) > 0.98
    assert adjusted_rand_score(y, weighted.predict(X)) > 0.95


@pytest.mark.parametrize("min_cluster_size", [60, 0.15])
def test_clusters_are_not_smaller_than_asked_for(min_cluster_size):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(c, 1.0, (n, 2)) for c, n in ((0, 180), (9, 180), (20, 40))])
    free = MSPC("auto", random_state=0).fit(X)
    assert sorted(np.bincount(free.labels_)) == [40, 180, 180]
    model = MSPC("auto", min_cluster_size=min_cluster_size, random_state=0).fit(X)
    assert np.bincount(model.labels_).min() >= 60
    assert len(set(model.labels_)) == 2


@pytest.mark.parametrize("unit", [0.1, 1.0, 10.0])
def test_the_unit_of_weights_does_not_matter(unit):
    X = np.random.default_rng(0).normal(size=(500, 4))
    X[:60, 1] += 7.0
    weights = np.full(500, unit)
    kept = MSPC("auto", min_cluster_size=0.1, random_state=0).fit(X, sample_weight=weights)
    assert sorted(np.bincount(kept.labels_)) == [60, 440]
    large = MSPC("auto", min_cluster_size=0.2, random_state=0).fit(X, sample_weight=weights)
    assert large.labels_.max() == 0


@pytest.mark.parametrize("seed", range(6))
def test_no_blob_is_cut_by_the_tree(seed):
    X, y = four_blobs(600, seed, std=0.9)
    model = MSPC("auto", random_state=seed).fit(X)
    assert len(set(model.labels_)) == 4
    assert adjusted_rand_score(y, model.labels_) > 0.95


def test_constant_rows_are_one_cluster():
    model = MSPC("auto", random_state=0).fit(np.full((100, 3), 4.0))
    assert model.labels_.max() == 0
    assert MSPC("auto", random_state=0).fit(np.eye(3)).labels_.max() == 0


def test_wide_rows_end():
    X = np.random.default_rng(0).normal(size=(120, 1500))
    assert MSPC("auto", random_state=0).fit(X).labels_.max() == 0
    X[:60, :300] += 2.0
    model = MSPC("auto", random_state=0).fit(X)
    assert adjusted_rand_score(np.arange(120) < 60, model.labels_) == 1.0
    np.testing.assert_array_equal(model.predict(X), model.labels_)


# ------------------------------------------------------------ merging and confirmed splits


def crabs_like(seed, n=50):
    """Two species of two sexes: five lengths with a common size factor and small differences."""
    rng = np.random.default_rng(seed)
    species, sex = np.repeat([0, 1], 2 * n), np.tile(np.repeat([0, 1], n), 2)
    size = rng.normal(0.0, 0.22, 4 * n)[:, None] * [1.0, 0.95, 1.05, 1.05, 1.1]
    shape = np.outer(species - 0.5, [0.072, 0.0, -0.024, -0.06, 0.072])
    shape += np.outer(sex - 0.5, [0.0, 0.072, -0.012, -0.012, -0.012])
    lengths = np.log([15.5, 12.7, 32.0, 36.4, 14.0]) + size + shape
    return np.exp(lengths + rng.normal(0.0, 0.022, lengths.shape)).round(1), species


def test_merging_keeps_splits_that_held_out_rows_have_confirmed():
    """A sex within one species has no valley towards the other species along the discriminants
    of the three clusters, but along the split between the species."""
    found = []
    for seed in range(20):
        X, species = crabs_like(seed)
        labels = MSPC("auto", random_state=seed).fit(X).labels_
        counts = [np.bincount(species[labels == label]).max() for label in np.unique(labels)]
        found.append(sum(counts) / species.size)
    assert np.sum(np.array(found) > 0.9) >= 19


def unequal_groups(n, seed=0):
    """A wide and a small group in two columns, both with long tails to one side."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    X = np.exp(0.6 * rng.normal(size=(n, 2)))
    X[:, 0] += 4.0 * y
    return X, y


@pytest.mark.parametrize("n", [20_000, 60_000, 200_000])
def test_pieces_that_a_split_cut_off_are_merged_for_any_number_of_rows(n):
    da = pytest.importorskip("dask.array")
    X, y = unequal_groups(n)
    model = MSPC("auto", random_state=0).fit(X)
    assert len(model.tree_.leaves()) > model.tree_.n_leaves  # something was merged
    assert adjusted_rand_score(y, model.labels_) > 0.95
    blocks = MSPC("auto", random_state=0).fit(da.from_array(X, chunks=(n // 4, 2)))
    assert adjusted_rand_score(y, np.asarray(blocks.labels_)) > 0.95
