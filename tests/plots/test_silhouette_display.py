"""The displays of what is in each cluster: silhouettes, columns, effects, numbers, and units."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.metrics import silhouette_samples, silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmar import MSPC
from volmar.datasets import make_blobs
from volmar.diagnostics import compare_numbers, describe_clusters
from volmar.diagnostics.silhouettes import silhouettes
from volmar.plots import (
    ClusterDisplay,
    ColumnProfilesDisplay,
    EffectsDisplay,
    NumberOfClustersDisplay,
    SilhouetteDisplay,
)

pytest.importorskip("matplotlib")

pytestmark = pytest.mark.usefixtures("figures")


@pytest.fixture(scope="module")
def three():
    return make_blobs(300, centers=3, random_state=0)


# ------------------------------------------------------------------------------ silhouettes


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, np.float32])
def test_silhouettes_are_scikit_learn_s_sorted(make, three):
    X, y = three
    found = silhouettes(make(X), y)
    expected = silhouette_samples(X, y)
    for c in range(3):
        np.testing.assert_allclose(found.values[c], np.sort(expected[y == c])[::-1], atol=1e-4)
    assert found.mean == pytest.approx(silhouette_score(X, y), abs=1e-4)
    assert found.n_negative == np.sum(expected < 0)


def test_a_sample_has_about_the_same_mean_and_every_cluster():
    X, _ = make_blobs(6000, centers=2, random_state=0)
    y = np.zeros(6000, dtype=int)
    y[X[:, 0] > np.median(X[:, 0])] = 1
    y[:12] = 2
    found = silhouettes(X, y, max_rows=1500, random_state=0)
    assert found.n_sampled <= 1520
    assert found.n_all == 6000
    assert len(found.values[2]) == 10
    assert found.mean == pytest.approx(silhouette_score(X, y), abs=0.03)


def test_the_display_draws_a_block_a_cluster(three):
    X, y = three
    display = SilhouetteDisplay.from_labels(X, np.array(["a", "b$", "c"])[y])
    blocks = [patch for patch in display.ax_.patches if patch.get_path().vertices.size > 20]
    assert len(blocks) == 3
    assert display.mean == pytest.approx(silhouette_score(X, y))
    words = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert [word.split(":")[0] for word in words] == ["a", "b$", "c"]
    display.figure_.canvas.draw()


def test_a_pipeline_is_measured_where_its_clusterer_is(three):
    X, _ = three
    wide = X * [1.0, 1000.0]
    pipeline = make_pipeline(StandardScaler(), KMeans(3, n_init=3, random_state=0)).fit(wide)
    display = SilhouetteDisplay.from_estimator(pipeline, wide)
    Z = StandardScaler().fit_transform(wide)
    assert display.mean == pytest.approx(silhouette_score(Z, pipeline[-1].labels_))
    model = MSPC(3, random_state=0).fit(X)
    new = SilhouetteDisplay.from_estimator(model, X[:50])
    assert sum(len(one) for one in new.values) == 50


def test_many_clusters_and_single_rows(three):
    X, _ = three
    display = SilhouetteDisplay.from_labels(X, np.arange(300) // 5)
    assert display.ax_.get_ylabel() == "60 clusters"
    lonely = np.zeros(300, dtype=int)
    lonely[0] = 1
    assert SilhouetteDisplay.from_labels(X, lonely).values[1].tolist() == [0.0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(300), "^labels .*1 cluster"),
        (np.arange(300), "^labels .*300 clusters"),
        ([0, 1], r"^labels .*\(300,\)"),
    ],
)
def test_silhouettes_refuse(labels, message, three):
    with pytest.raises(ValueError, match=message):
        SilhouetteDisplay.from_labels(three[0], labels)


# ------------------------------------------------------------------------------ units


def test_principal_components_do_not_follow_units():
    X, y = load_wine(return_X_y=True)
    display = ClusterDisplay.from_labels(X, y)
    scaled = ClusterDisplay.from_labels(X * np.logspace(-6, 6, 13), y)
    np.testing.assert_allclose(np.abs(display.points), np.abs(scaled.points), atol=1e-6)
    # Proline, in milligrams, is no longer the picture.
    proline = abs(np.corrcoef(display.points[:, 0], X[:, 12])[0, 1])
    assert proline < 0.8
    raw = ClusterDisplay.from_labels(X, y, standardize=False)
    assert abs(np.corrcoef(raw.points[:, 0], X[:, 12])[0, 1]) > 0.99
    assert silhouette_score(display.points, y) > silhouette_score(raw.points, y) + 0.2


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_constant_and_huge_columns_are_drawn(scale):
    X = np.random.default_rng(0).normal(size=(40, 4)) * scale
    X[:, 3] = scale
    points = ClusterDisplay.from_labels(X, np.arange(40) % 2).points
    assert np.isfinite(points).all()
    assert points.std() > 0.1
    assert ClusterDisplay.from_labels(X[:1], [0]).points.shape == (1, 2)


# ------------------------------------------------------------------------------ profiles


def test_a_panel_for_each_column_and_cluster():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    frame = pd.DataFrame(
        {
            "cost $": labels + rng.normal(size=90),
            "word": rng.choice(list("abcdefghi"), 90),
            "yes": rng.random(90) < 0.5,
            "day": pd.date_range("2021-01-01", periods=90),
            "count": rng.integers(0, 4, 90),
            "id": [f"r{i}" for i in range(90)],
        }
    )
    display = ColumnProfilesDisplay.from_labels(frame, labels)
    # The column of ids has no distribution.
    assert display.axes_.shape == (5, 3)
    titles = [ax.get_title() for ax in display.axes_[0]]
    assert titles == [f"cluster {c}\n30 rows" for c in range(3)]
    display.figure_.canvas.draw()
    few = ColumnProfilesDisplay(display.profiles).plot(max_columns=2, max_clusters=2)
    assert few.axes_.shape == (2, 2)
    with pytest.raises(ValueError, match=r"^profiles"):
        ColumnProfilesDisplay.from_labels(frame[["id"]], labels)


def test_effects_are_those_of_the_description(three):
    X, y = three
    found = describe_clusters(X, y, feature_names=["a", "b"])
    display = EffectsDisplay(found).plot()
    assert sorted(display.columns_) == ["a", "b"]
    image = display.ax_.get_images()[0].get_array()
    order = [found.columns.index(name) for name in display.columns_]
    np.testing.assert_allclose(image, np.clip(found.effect[:, order].T, -3, 3))
    names = [label.get_text() for label in display.ax_.get_xticklabels()]
    assert names[0] == f"0: {found.names[0]}"
    with pytest.raises(ValueError, match="one cluster"):
        EffectsDisplay(describe_clusters(X, np.zeros(300, dtype=int))).plot()


def test_numbers_are_drawn_with_their_flows(three):
    X, y = three
    found = compare_numbers(X, KMeans(n_init=2), [2, 3, 4], random_state=0)
    display = NumberOfClustersDisplay(found, y).plot()
    assert len(display.axes_[0].patches) == 2 + 3 + 4
    heights = sum(patch.get_height() for patch in display.axes_[0].patches)
    assert heights == pytest.approx(3 * (1 - 3 * 0.02))
    scores = display.axes_[1].get_lines()[0].get_ydata()
    np.testing.assert_allclose(scores, [one.separation for one in found.found])
    display.figure_.canvas.draw()
