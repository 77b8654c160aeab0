"""The displays of fitted estimators: what is drawn is what was fitted."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import volmar
from volmar.base import SplitTree
from volmar.base.tree import SplitNode
from volmar.datasets import make_blobs
from volmar.plots import ClusterDisplay, ProjectionDisplay, TreeDisplay

pytestmark = pytest.mark.usefixtures("figures")


@pytest.fixture(scope="module")
def two():
    return make_blobs(150, centers=2, random_state=0)[0]


@pytest.fixture(scope="module")
def three():
    return make_blobs(150, centers=3, random_state=0)[0]


def lines_named(display, name):
    """Horizontal places of the vertical lines from the one of that name on, of the same style."""
    lines = display.ax_.get_lines()
    (first,) = [line for line in lines if line.get_label() == name]
    return sorted(
        line.get_xdata()[0] for line in lines if line.get_linestyle() == first.get_linestyle()
    )


# ---------------------------------------------------------------------- projection


@pytest.mark.parametrize("name", ["CPMMC", "GMMC", "LGMMC", "SDPMMC", "SKMMC", "SoftLabelMVC"])
def test_bars_count_every_row_on_its_side_of_the_border(name, two):
    model = getattr(volmar, name)(random_state=0).fit(two)
    display = ProjectionDisplay.from_estimator(model, two)
    scores = model.decision_function(two)
    np.testing.assert_array_equal(
        display.counts_.sum(axis=1), [(scores <= 0).sum(), (scores > 0).sum()]
    )
    heights = [bar.get_height() for bar in display.ax_.patches]
    assert sum(heights) == len(two)
    assert 0.0 in display.edges_
    assert lines_named(display, "border") == [0.0]
    if name == "SoftLabelMVC":
        assert display.marks == ()
    else:
        assert lines_named(display, "margin") == [-1.0, 1.0]
    display.figure_.canvas.draw()


def test_targets_of_a_regression_are_no_margin(two):
    model = volmar.IterSVR(random_state=0).fit(two)
    assert lines_named(ProjectionDisplay.from_estimator(model, two), "targets") == [-1.0, 1.0]


def test_mspc_shows_means_one_apart_and_the_probability(two):
    model = volmar.MSPC(2, random_state=0).fit(two)
    display = ProjectionDisplay.from_estimator(model, two)
    low, high = lines_named(display, "means")
    assert high - low == pytest.approx(1.0)  # the unit of MSPC's scores
    texts = [text.get_text() for text in display.ax_.texts]
    assert f"separation probability {model.msp_:.2f}" in texts


@pytest.mark.parametrize(("name", "mark"), [("CPMMC", 1.0), ("SKMMC", 2.0), ("MSPC", None)])
def test_more_clusters_show_the_best_less_the_second_best(name, mark, three):
    model = getattr(volmar, name)(3, random_state=0).fit(three)
    display = ProjectionDisplay.from_estimator(model, three, bins=20)
    ordered = np.sort(model.decision_function(three), axis=1)
    np.testing.assert_allclose(display.scores, ordered[:, 2] - ordered[:, 1])
    np.testing.assert_array_equal(display.counts_.sum(axis=1), np.bincount(model.predict(three)))
    assert display.edges_[0] == 0.0
    assert len(display.edges_) == 21
    assert display.marks == (() if mark is None else (mark,))
    if mark == 2.0:
        # Splitting again: at the margin of the nearest border the best score is 1.
        np.testing.assert_allclose(display.scores, 2 * ordered[:, 2])


def test_projection_of_pipelines_new_rows_and_float32(two, rng):
    pipeline = make_pipeline(StandardScaler(), volmar.CPMMC(random_state=0)).fit(two)
    display = ProjectionDisplay.from_estimator(pipeline, two)
    assert display.marks == (-1.0, 1.0)
    assert display.ax_.get_title() == "CPMMC"
    model = volmar.CPMMC(random_state=0).fit(two)
    for n in (1, 7, 1000):
        rows = rng.normal(size=(n, 2)).astype(np.float32) * 10
        assert ProjectionDisplay.from_estimator(model, rows).counts_.sum() == n
    for bins in (1, 2, 3, 50):
        assert ProjectionDisplay.from_estimator(model, two, bins=bins).counts_.sum() == len(two)


def test_projection_refuses(two):
    with pytest.raises(NotFittedError):
        ProjectionDisplay.from_estimator(volmar.CPMMC(), two)
    kmeans = KMeans(2, n_init=1, random_state=0).fit(two)
    with pytest.raises(ValueError, match=r"^estimator .*decision_function"):
        ProjectionDisplay.from_estimator(kmeans, two)
    one = volmar.MSPC(1).fit(two)
    with pytest.raises(ValueError, match=r"one cluster.*n_clusters=2"):
        ProjectionDisplay.from_estimator(one, two)
    model = volmar.MSPC(random_state=0).fit(two)
    for bins in (0, 2.5, True):
        with pytest.raises(ValueError, match=f"bins must be a whole number.*got {bins!r}"):
            ProjectionDisplay.from_estimator(model, two, bins=bins)


# ------------------------------------------------------------------------------ trees


def test_a_tree_of_tests_shows_its_p_values():
    X, _ = make_blobs(300, centers=3, random_state=0)
    tree = volmar.AutoClusterer(random_state=0).fit(X).tree_
    display = TreeDisplay(tree).plot()
    boxes = [text.get_text() for text in display.ax_.texts]
    assert all(node.p_text in box for node, box in zip(tree.splits(), boxes, strict=True))
    below = [label.get_text() for label in display.ax_.get_xticklabels()]
    assert [", ".join(text.split("\n")[-2:]) for text in below] == [
        f"{leaf.p_text}, level {leaf.level:.2g}" for leaf in tree.leaves()
    ]
    assert display.ax_.get_xlabel().replace("\n", " ") == tree.size_note()


def test_a_tree_deeper_than_the_stack_is_drawn():
    node = SplitNode(n_rows=1, weight=1.0, label=0)
    for rank in range(1500, 0, -1):
        leaf = SplitNode(n_rows=1, weight=1.0, label=1)
        node = SplitNode(2, 2.0, rank=rank, probability=0.9, children=(leaf, node))
    display = TreeDisplay(SplitTree(node)).plot()
    assert len(display.ax_.texts) == 1500
    assert display.figure_.get_size_inches().max() <= 200


def test_scores_with_a_far_outlier_have_few_bars():
    scores = np.r_[np.linspace(-1.0, 1.0, 19), 1e12]
    shown = ProjectionDisplay(scores, (scores > 0).astype(int)).plot()
    assert len(shown.edges_) <= 62
    assert shown.counts_.sum() == 20


def test_equal_scores_and_equal_rows_can_be_drawn():
    assert ProjectionDisplay(np.zeros(5), np.zeros(5, int)).plot().counts_.sum() == 5
    ClusterDisplay.from_labels(np.ones((5, 3)), [0, 0, 1, 1, 1])
    with pytest.raises(ValueError, match="X contains NaN"):
        ClusterDisplay.from_labels(np.full((5, 3), np.nan), [0, 0, 1, 1, 1])


def test_lazy_frames_are_refused_without_a_warning():
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame({"a": [0.0, 1.0], "b": [1.0, 2.0]}).lazy()
    with pytest.raises((TypeError, ValueError), match="X"):
        ClusterDisplay.from_labels(lazy, [0, 1])


def test_a_legend_of_many_clusters_names_the_first(rng):
    X = rng.normal(size=(80, 2))
    few = ClusterDisplay.from_labels(X, np.arange(80) % 3).ax_.get_legend()
    assert len(few.get_texts()) == 3
    assert few.get_title().get_text() == ""
    display = ClusterDisplay.from_labels(X, np.arange(80) % 40)
    display.figure_.canvas.draw()  # which warns where nothing is left of the axes
    legend = display.ax_.get_legend()
    assert len(legend.get_texts()) == 16
    assert legend.get_title().get_text() == "the first 16 of 40"
