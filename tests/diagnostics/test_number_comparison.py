"""Comparison of numbers of clusters: results, flows of rows, and plots."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import DBSCAN, KMeans
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmar import MSPC, AutoClusterer
from volmar.datasets import make_blobs
from volmar.diagnostics import compare_numbers
from volmar.diagnostics.compare_numbers import NumberOfClusters, alluvium
from volmar.metrics import separation_score


@pytest.fixture(scope="module")
def three():
    return make_blobs(300, centers=3, random_state=0)[0]


@pytest.fixture(scope="module")
def found(three):
    return compare_numbers(three, KMeans(n_init=3, random_state=0), range(2, 6), random_state=0)


def test_every_number_has_its_scores(three, found):
    assert found.numbers == [2, 3, 4, 5]
    assert found.method == "KMeans"
    for one in found.found:
        labels = KMeans(one.n_clusters, n_init=3, random_state=0).fit_predict(three)
        np.testing.assert_array_equal(np.sort(one.sizes), np.sort(np.bincount(labels)))
        assert one.sizes.sum() == 300
        assert one.separation == pytest.approx(separation_score(three, one.labels))
        assert one.silhouette == pytest.approx(silhouette_score(three, one.labels))
        assert 0 <= one.p_value <= 1
        assert -0.5 <= one.stability <= 1
    right = found.found[1]
    assert (right.n_supported, right.is_supported, found.largest_supported) == (3, True, 3)
    assert right.stability > 0.95
    assert found.found[3].n_supported == 3
    assert not found.found[3].is_supported


def test_noise_supports_no_number():
    X = np.random.default_rng(0).normal(size=(400, 5))
    found = compare_numbers(X, MSPC(), [2, 3, 4], random_state=0)
    assert [one.n_supported for one in found.found] == [1, 1, 1]
    assert found.largest_supported == 1


def test_flows_are_the_rows_that_clusters_share(found):
    for i in range(3):
        table = found.flows(i)
        np.testing.assert_array_equal(table.sum(axis=1), found.found[i].sizes)
        np.testing.assert_array_equal(table.sum(axis=0), found.found[i + 1].sizes)
    for i in (-1, 3):
        with pytest.raises(IndexError, match="between 0 and 2"):
            found.flows(i)


def test_blocks_do_not_overlap_and_bands_fill_them(found):
    blocks, flows = alluvium(found)
    for level in range(4):
        here = sorted((b for b in blocks if b.level == level), key=lambda b: b.top)
        assert all(a.bottom < b.top for a, b in pairwise(here))
        assert here[0].top >= -1e-12
        assert here[-1].bottom <= 1 + 1e-12
        for block in here:
            leaving = [f.left for f in flows if f.level == level]
            inside = [
                f for f in leaving if block.top - 1e-9 <= f[0] and f[1] <= block.bottom + 1e-9
            ]
            if level < 3:
                assert sum(b - a for a, b in inside) == pytest.approx(block.bottom - block.top)
    reference = found.found[1].labels
    assert {b.colour for b in alluvium(found, reference)[0] if b.level == 1} == {0, 1, 2}


def test_the_words(found):
    words = str(found)
    assert words.splitlines()[0].split()[:2] == ["clusters", "separated"]
    assert len(words.splitlines()) == 6
    assert "from 300 rows" in found.note


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: make_pipeline(StandardScaler(), KMeans(n_init=2)),
        lambda: GaussianMixture(random_state=0),
        AutoClusterer,
    ],
)
def test_any_clusterer_that_takes_a_number(make, three):
    estimator = make()
    found = compare_numbers(three, estimator, [2, 3], random_state=0)
    assert [one.sizes.size for one in found.found] == [2, 3]
    again = compare_numbers(three, make(), [2, 3], random_state=0)
    np.testing.assert_array_equal(found.found[1].labels, again.found[1].labels)
    assert found.found[1].stability == again.found[1].stability


def test_sparse_float32_and_the_caller_s_estimator_is_left_alone(three):
    model = KMeans(7, n_init=2, random_state=0)
    plain = compare_numbers(three, model, [3], random_state=0)
    for X in (sparse.csr_array(three), three.astype(np.float32), three.tolist()):
        found = compare_numbers(X, model, [3], random_state=0)
        assert found.found[0].separation == pytest.approx(plain.found[0].separation, rel=1e-3)
    assert model.n_clusters == 7
    assert not hasattr(model, "labels_")


def test_many_rows_are_a_sample():
    X, _ = make_blobs(3000, centers=3, random_state=0)
    found = compare_numbers(X, KMeans(n_init=1), [2, 3], max_rows=500, random_state=0)
    assert found.rows.size == 500
    assert np.unique(found.rows).size == 500
    assert found.n_all == 3000
    assert "a sample of 500 of 3,000 rows" in found.note
    assert found.found[1].n_supported == 3


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("SDPMMC", (600, 2), 250),  # cubic in the number of rows
        ("LGMMC", (600, 2), 600),
        ("KMeans", (600, 5000), 250),  # 10 million entries x clusters, for 8 clusters
        ("KMeans", (600, 2), 600),
    ],
)
def test_slow_methods_and_wide_rows_are_compared_on_fewer_rows(name, shape, size, monkeypatch):
    """The work is limited by the rows, not by the clock: every number is compared."""

    class Quick(KMeans):
        pass

    Quick.__name__ = name
    X = np.random.default_rng(0).normal(size=shape)
    monkeypatch.setattr(
        sys.modules["volmar.diagnostics.compare_numbers"],
        "_one_number",
        lambda rows, model, k, *_: NumberOfClusters(
            k, np.array([len(rows)]), None, np.nan, np.nan, np.nan, np.nan, np.zeros(len(rows))
        ),
    )
    found = compare_numbers(X, Quick(n_init=1), random_state=0)
    assert found.rows.size == size
    assert found.numbers == list(range(2, 9))
    assert not found.skipped


def test_few_rows():
    X = np.random.default_rng(0).normal(size=(12, 2))
    found = compare_numbers(X, KMeans(n_init=1), random_state=0)
    assert found.numbers == [2, 3, 4, 5, 6]
    # Clusters of a dozen rows cannot be tested.
    assert all(one.n_supported is None for one in found.found)
    assert np.isnan(found.found[0].p_value)
    assert "from 12 rows" in str(found)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"estimator": DBSCAN()}, ValueError, "^estimator .*n_clusters"),
        ({"numbers": [1, 2]}, ValueError, "numbers must be"),
        ({"numbers": [900]}, ValueError, "half of the 300 rows"),
        ({"numbers": []}, ValueError, "no number between 2"),
        ({"max_rows": 2}, ValueError, "max_rows must be"),
        ({"n_resamples": 0}, ValueError, "n_resamples must be"),
        ({"X": np.ones((3, 2))}, ValueError, "minimum of 4 is required"),
        ({"X": np.full((9, 2), np.nan)}, ValueError, "X contains NaN"),
        (
            {"estimator": KMeans(n_init=1, algorithm="nonsense")},
            ValueError,
            "KMeans failed",
        ),
    ],
)
def test_bad_input(change, error, message, three):
    given = {"X": three, "estimator": KMeans(n_init=1), "numbers": [2, 3]} | change
    with pytest.raises(error, match=message):
        compare_numbers(given.pop("X"), **given)
