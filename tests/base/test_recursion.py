"""Recursive splitting: the tree, its scores, and k > 2 with every binary method."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import volmar
from volmar.base.recursion import RecursiveResult
from volmar.datasets import make_blobs
from volmar.graphs.graph import make_similarity

BINARY = ["GMMC", "HardLabelMVC", "IterSVR", "LGMMC", "MultivariateMMC", "NormalizedCut"]
BINARY += ["SDPMMC", "SKMMC"]


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(72, centers=3, n_features=3, separation=12.0, random_state=0)


@pytest.mark.parametrize("name", BINARY)
def test_a_binary_method_finds_three_blobs(name, blobs):
    X, y = blobs
    model = getattr(volmar, name)(3, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    assert isinstance(model.result_, RecursiveResult)
    scores = model.decision_function(X)
    assert scores.shape == (72, 3)
    np.testing.assert_array_equal(scores.argmax(axis=1), model.predict(X))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert [leaf.n_rows for leaf in model.tree_.leaves()] == np.bincount(model.labels_).tolist()
    again = clone(model).fit(X)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.labels_)


def test_scores_are_those_of_the_way_down(blobs):
    """By hand: follow every row from the root, and compare with the largest score."""
    X, _ = blobs
    X = np.vstack([X, np.random.default_rng(0).normal(scale=8.0, size=(200, 3))])
    tree = volmar.IterSVR(3, random_state=0).fit(X[:72]).tree_

    def walk(row):
        node = tree.root
        while not node.is_leaf:
            node = node.children[int(node.score(row)[0] > 0)]
        return node.label

    chosen = tree.scores(X).argmax(axis=1)
    np.testing.assert_array_equal([walk(X[i : i + 1]) for i in range(len(X))], chosen)


def test_a_row_on_the_border_goes_to_the_first_side():
    class Half:
        def decision_function(self, X):
            return X[:, 0]

    from volmar.base.tree import SplitNode, SplitTree

    leaves = [SplitNode(1, 1.0, label=j) for j in range(3)]
    inner = SplitNode(2, 2.0, model=Half(), children=(leaves[1], leaves[2]), rank=2)
    tree = SplitTree(SplitNode(3, 3.0, model=Half(), children=(leaves[0], inner), rank=1))
    scores = tree.scores(np.array([[0.0], [1.0], [-1.0]]))
    assert scores.argmax(axis=1).tolist() == [0, 2, 0]


def test_weight_two_is_a_row_twice(blobs):
    X, _ = blobs
    weights = np.random.default_rng(3).integers(1, 3, 72)
    weighted = volmar.SKMMC(3, random_state=0).fit(X, sample_weight=weights)
    repeated = volmar.SKMMC(3, random_state=0).fit(np.repeat(X, weights, axis=0))
    one, two = np.repeat(weighted.labels_, weights), repeated.labels_
    assert adjusted_rand_score(one, two) == 1.0
    assert [node.weight for node in weighted.tree_.splits()] == [
        node.weight for node in repeated.tree_.splits()
    ]


def test_precomputed_matrices_are_cut_with_their_rows(blobs):
    X, y = blobs
    K = X @ X.T
    model = volmar.LGMMC(3, kernel="precomputed", random_state=0).fit(K)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    np.testing.assert_array_equal(model.predict(K[:7]), model.labels_[:7])
    W = sparse.csr_array(make_similarity("local_scaling").build(X)[0])
    cut = volmar.NormalizedCut(3, affinity="precomputed", random_state=0).fit(W)
    assert adjusted_rand_score(y, cut.labels_) == 1.0


def test_sparse_rows(blobs):
    X, _ = blobs
    dense = volmar.CPMMC(3, multiway="recursive", random_state=0).fit(X)
    csr = volmar.CPMMC(3, multiway="recursive", random_state=0).fit(sparse.csr_array(X))
    np.testing.assert_array_equal(dense.labels_, csr.labels_)
    for one, other in zip(dense.tree_.splits(), csr.tree_.splits(), strict=True):
        assert [j for j, _ in one.leading] == [j for j, _ in other.leading]
        np.testing.assert_allclose(
            [v for _, v in one.leading], [v for _, v in other.leading], rtol=1e-6
        )


def test_start_labels_cannot_be_split(blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="init holds one entry per row"):
        volmar.IterSVR(3, init=y).fit(X)


def test_fewer_different_rows_than_clusters_is_said():
    X = np.repeat([[0.0, 0.0], [9.0, 0.0]], 10, axis=0)
    with pytest.warns(ConvergenceWarning, match="Found 2 .*n_clusters=4"):
        model = volmar.LGMMC(4, random_state=0).fit(X)
    assert set(model.labels_) == {0, 1}
    assert model.decision_function(X).shape == (20,)


def test_warnings_of_splits_come_as_one(blobs):
    X, _ = blobs
    with pytest.warns(ConvergenceWarning, match="2 of 2 splits ended early") as caught:
        model = volmar.SDPMMC(3, max_iter=1, random_state=0).fit(X)
    assert len(caught) == 1
    assert len(model.result_.warnings) >= 2


def test_the_tree_reads_as_text(blobs):
    pandas = pytest.importorskip("pandas")
    X, _ = blobs
    frame = pandas.DataFrame(X, columns=["north", "east", "height"])
    tree = volmar.LGMMC(3, kernel="linear", random_state=0).fit(frame).tree_
    lines = str(tree).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("72 rows, split 1, separated with probability 0.9")
    assert "north" in lines[0] or "east" in lines[0]
    assert sum("cluster" in line for line in lines) == 3


def test_more_clusters_than_rows_is_refused():
    with pytest.raises(ValueError, match=r"^n_clusters=5"):
        volmar.IterSVR(5).fit(np.eye(4))


def test_callbacks_hear_of_splits_and_not_of_their_fits(blobs):
    pytest.importorskip("sklearn.callback", reason="callbacks came with scikit-learn 1.9")

    class Recorder:
        def __init__(self):
            self.heard = []

        def setup(self, estimator, context):
            self.heard.append("setup")

        def on_fit_task_begin(self, estimator, context):
            self.heard.append(context.task_name)

        def on_fit_task_end(self, estimator, context):
            return False

        def teardown(self, estimator, context):
            self.heard.append("teardown")

    recorder = Recorder()
    volmar.IterSVR(3, random_state=0).set_callbacks(recorder).fit(blobs[0])
    assert recorder.heard == ["setup", "fit", "split 0", "split 1", "teardown"]


@pytest.mark.parametrize("name", ["NormalizedCut", "HardLabelMVC", "SoftLabelMVC"])
def test_parts_of_a_given_graph_are_scored_by_their_own_rows(name):
    """Rows of one component have no similarity to the splits of the others."""
    settings = {"multiway": "recursive"} if name == "SoftLabelMVC" else {}
    W = sparse.csr_array(sparse.block_diag([np.ones((5, 5)) - np.eye(5)] * 3))
    model = getattr(volmar, name)(3, affinity="precomputed", random_state=0, **settings).fit(W)
    assert adjusted_rand_score(np.repeat([0, 1, 2], 5), model.labels_) == 1.0
    np.testing.assert_array_equal(model.predict(W), model.labels_)
    with pytest.raises(ValueError, match=r"^row 1 of X"):
        model.predict(np.vstack([W.toarray()[:1], np.zeros(15)]))


@pytest.mark.parametrize("name", ["HardLabelMVC", "SoftLabelMVC"])
def test_a_part_may_have_rows_without_neighbours(name):
    """Splits of a thin graph leave isolated rows in a part, which must not end the fit."""
    rng = np.random.default_rng(2)
    W = np.triu(rng.random((30, 30)) * (rng.random((30, 30)) < 0.08), 1)
    W[np.arange(29), np.arange(1, 30)] += 0.01
    W += W.T
    settings = {"multiway": "recursive"} if name == "SoftLabelMVC" else {}
    model = getattr(volmar, name)(12, affinity="precomputed", random_state=0, **settings).fit(W)
    assert len(set(model.labels_)) == 12
    assert model.decision_function(W).shape == (30, 12)


def test_a_score_that_fails_keeps_a_part_whole(blobs, monkeypatch):
    X, _ = blobs
    whole = volmar.LGMMC._split_probability

    def refuse_parts(self, model, rows, weights):
        if rows.shape[0] < len(X):
            raise ValueError("no score for a part.")
        return whole(self, model, rows, weights)

    monkeypatch.setattr(volmar.LGMMC, "_split_probability", refuse_parts)
    with pytest.warns(ConvergenceWarning, match="none .*no score"):
        assert volmar.LGMMC(3, random_state=0).fit(X).tree_.n_leaves == 2


def test_deep_trees_are_scored():
    class Half:
        def decision_function(self, X):
            return X[:, 0]

    from volmar.base.tree import SplitNode, SplitTree

    depth = 2000
    node = SplitNode(1, 1.0, label=depth)
    for label in reversed(range(depth)):
        leaf = SplitNode(1, 1.0, label=label)
        node = SplitNode(2, 2.0, model=Half(), children=(leaf, node), rank=label + 1)
    scores = SplitTree(node).scores(np.array([[-1.0], [2.0]]))
    assert scores.argmax(axis=1).tolist() == [0, depth]
    # All clusters of the other side were separated from the first row at the first split.
    assert set(scores[0, 1:]) == {-1.0}


@pytest.mark.parametrize("name", [*BINARY, "CPMMC", "KernelCPMMC", "MSPC", "SoftLabelMVC"])
@pytest.mark.parametrize("k", [1, 3])
def test_every_fit_has_a_status(name, k, blobs):
    model = getattr(volmar, name)(k, random_state=0).fit(blobs[0])
    assert model.status_ is model.result_.status
    assert len(set(model.labels_)) == k


def test_an_interrupted_fit_leaves_nothing(blobs, monkeypatch):
    X, _ = blobs
    model = volmar.MSPC(3, random_state=0).fit(X)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    # After the tree was grown, before rows were moved between clusters.
    monkeypatch.setattr("volmar.separation.discriminants.settle_clusters", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert [name for name in vars(model) if name.endswith("_") and name[0] != "_"] == []


def test_a_fit_ended_by_a_callback_warns(blobs):
    pytest.importorskip("sklearn.callback", reason="callbacks came with scikit-learn 1.9")

    class Stop:
        def setup(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context):
            return True

        def teardown(self, estimator, context):
            pass

    with pytest.warns(ConvergenceWarning, match="callback ended"):
        model = volmar.IterSVR(3, random_state=0).set_callbacks(Stop()).fit(blobs[0])
    assert model.tree_.n_leaves == 2


def test_names_are_drawn_as_they_are(blobs):
    """Dollar signs do not start a formula, and long names do not overlap."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from volmar.plots import TreeDisplay

    model = volmar.LGMMC(3, kernel="linear", random_state=0).fit(blobs[0])
    names = ["$\\frac{$", "cost_$_{", "n" * 60]
    display = TreeDisplay.from_estimator(model, feature_names=names)
    display.figure_.canvas.draw()
    lines = {line for text in display.ax_.texts for line in text.get_text().splitlines()}
    assert max(map(len, lines)) <= 32
    drawn = {line[:-2] for line in lines if not line.startswith("split")}
    assert drawn <= {*names[:2], "n" * 29 + "…"}
    plt.close(display.figure_)


@pytest.mark.parametrize("name", [name for name in volmar.CLUSTERERS if name != "AutoClusterer"])
@pytest.mark.parametrize("given", ["auto", "3"])
def test_the_number_of_clusters_is_a_number(name, given, blobs):
    match = rf"^n_clusters must be a number, got '{given}'\..*AutoClusterer"
    with pytest.raises(ValueError, match=match):
        getattr(volmar, name)(given).fit(blobs[0])


def test_normalized_cut_splits_clusters_before_halves_of_one():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), [400, 100, 100, 50, 50, 50, 50, 50])
    X = rng.normal(size=(850, 8)) + 9.0 * np.eye(8)[y]
    model = volmar.NormalizedCut(8).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
