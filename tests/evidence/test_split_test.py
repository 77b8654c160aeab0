"""The test of a split: known answers, held-out rows, bad input."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from helpers.groups import blobs, ring
from scipy import sparse
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.datasets import make_moons
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmar import CPMMC, MSPC, AutoClusterer, SoftLabelMVC
from volmar.datasets import make_two_circles
from volmar.evidence import split_test

# The function has replaced its module as an attribute of the package.
MODULE = importlib.import_module("volmar.evidence.split_test")


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(3).normal(size=(240, 4))


def arc(n=300, noise=0.1, seed=0):
    """Half a ring: one piece."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, n)
    return np.column_stack([np.cos(angle), np.sin(angle)]) + noise * rng.normal(size=(n, 2))


def circles(n=400):
    return make_two_circles(n, noise=0.03, factor=0.3, random_state=0)[0]


# ---------------------------------------------------------------------- level and power


@pytest.mark.parametrize(
    "piece",
    [
        lambda rng: rng.normal(size=(200, 3)),
        lambda rng: rng.exponential(size=(200, 3)),
        lambda rng: rng.standard_t(4, (200, 3)),
        lambda rng: rng.uniform(size=(200, 2)),
        lambda rng: arc(200, seed=rng.integers(99)),
        lambda rng: ring(300, seed=rng.integers(99)),
        lambda rng: rng.normal(size=(200, 40)),
    ],
    ids=["normal", "exponential", "t", "uniform", "arc", "ring", "columns"],
)
def test_a_single_piece_is_rarely_split(piece):
    rejected = sum(
        split_test(piece(np.random.default_rng(seed)), random_state=seed).is_real
        for seed in range(6)
    )
    assert rejected <= 1


@pytest.mark.parametrize(
    "X",
    [
        blobs(),
        blobs(60, d=2),
        blobs(500, share=0.08, distance=8.0),
        blobs(400, d=60),
        make_moons(400, noise=0.08, random_state=0)[0],
        circles(),
    ],
    ids=["blobs", "few", "small", "columns", "moons", "circles"],
)
def test_groups_are_real(X):
    result = split_test(X, random_state=0)
    assert result.is_real
    assert 0.2 <= result.effect <= 1.0
    assert str(result).startswith("There is more than one group (p ")


def test_it_is_the_first_split_of_the_tree():
    X = make_moons(400, noise=0.08, random_state=1)[0]
    root = AutoClusterer(random_state=0).fit(X).tree_.root
    result = split_test(X, random_state=0)
    assert (result.p_value, result.effect) == (root.p_value, root.effect)


def test_scores_are_distances_of_held_out_rows_to_the_border():
    X = blobs()
    scores = split_test(X, random_state=0).scores
    assert 100 < scores.size <= 240
    assert 0.3 < np.mean(scores > 0) < 0.7
    assert np.mean(np.abs(scores) < 0.1 * np.abs(scores).max()) < 0.02


# ---------------------------------------------------------------------- estimators


@pytest.mark.parametrize(
    "estimator",
    [
        MSPC(),
        CPMMC(),
        KMeans(2, n_init=2),
        GaussianMixture(2),
        make_pipeline(StandardScaler(), MSPC()),
        make_pipeline(PCA(2), KMeans(2, n_init=2)),
    ],
    ids=lambda estimator: str(estimator).replace("\n", ""),
)
def test_estimators_of_every_kind(estimator, noise):
    before = repr(estimator.get_params())
    first, second = (split_test(blobs(), estimator, random_state=1) for _ in range(2))
    assert first.is_real
    assert first.repeats == 1.0
    assert first.p_value == second.p_value
    np.testing.assert_array_equal(first.scores, second.scores)
    assert not split_test(noise, estimator, random_state=1).is_real
    assert repr(estimator.get_params()) == before
    assert not hasattr(estimator, "n_features_in_")


@pytest.mark.parametrize(
    "estimator",
    [
        SpectralClustering(2, gamma=20.0),
        AgglomerativeClustering(2, linkage="single"),
        DBSCAN(eps=0.3),
        make_pipeline(make_pipeline(StandardScaler()), make_pipeline(SoftLabelMVC())),
    ],
    ids=["spectral", "single linkage", "DBSCAN", "nested"],
)
def test_curved_borders_of_estimators(estimator):
    found = split_test(circles(), estimator, random_state=0)
    assert found.is_real
    assert found.effect > 0.8


@pytest.mark.parametrize("piece", [arc, ring])
def test_an_estimator_that_cuts_one_piece(piece):
    X = piece(400)
    for estimator in (KMeans(2, n_init=2), SoftLabelMVC()):
        assert not split_test(X, estimator, random_state=0).is_real
    # One of two circles' hyperplane passes through both.
    assert not split_test(circles(), KMeans(2, n_init=2), random_state=0).is_real


def test_a_half_has_no_part_in_its_own_sides(monkeypatch):
    seen = []

    def kept(X, estimator, rng):
        seen.append(len(X))
        return (X[:, 1] > 3).astype(int)

    monkeypatch.setattr(MODULE, "_fitted_labels", kept)
    told = []
    found = split_test(
        blobs(), KMeans(2), progress=lambda *where: told.append(where), random_state=0
    )
    assert found.is_real
    assert seen == [240] + [120] * 6
    assert told == [(i, 7) for i in range(8)]


def test_one_cluster_is_no_split(noise):
    X = np.random.default_rng(0).normal(size=(100, 2))
    found = split_test(X, DBSCAN(eps=50), random_state=0)
    assert (found.p_value, found.repeats, found.scores.size) == (1.0, 0.0, 0)
    X[3] = 30.0
    single = AgglomerativeClustering(2, linkage="single")
    assert not split_test(X, single, random_state=0).is_real
    with pytest.raises(ValueError, match=r"^estimator .*noise"):
        split_test(noise, DBSCAN(eps=1e-9, min_samples=2), random_state=0)


# ---------------------------------------------------------------------- any kind of rows


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        sparse.csr_matrix,
        sparse.csc_array,
        lambda X: X.tolist(),
        lambda X: 1e90 * X,
        lambda X: 1e-90 * X,
        lambda X: X + 1e6,
        lambda X: np.hstack([X, np.full((len(X), 2), 5.0)]),
        lambda X: X * np.array([1e-8, 1.0, 1e8, 1.0]),
        lambda X: X[:, [1]],
        lambda X: np.round(10 * X).astype(int),
        lambda X: X[np.random.default_rng(0).permutation(len(X))],
    ],
    ids=[
        *("f4", "csr", "csc", "list", "huge", "tiny", "offset", "constant", "mixed", "one"),
        *("int", "permuted"),
    ],
)
def test_rows_of_every_kind(change, noise):
    assert split_test(change(blobs()), random_state=0).p_value < 0.01
    assert not split_test(change(noise), random_state=0).is_real


def test_the_rows_are_left_alone():
    X = blobs()
    before = X.copy()
    X.setflags(write=False)
    split_test(X, random_state=0)
    split_test(X, KMeans(2, n_init=1), random_state=0)
    np.testing.assert_array_equal(X, before)


def test_random_states():
    X = blobs(120, distance=3.0)
    state = np.random.get_state()[1].copy()
    by_number, again, by_state = (
        split_test(X, random_state=seed) for seed in (7, 7, np.random.RandomState(7))
    )
    for same in (again, by_state):
        assert same.p_value == by_number.p_value
        np.testing.assert_array_equal(same.scores, by_number.scores)
    np.testing.assert_array_equal(np.random.get_state()[1], state)


def test_one_row_that_differs_is_no_group():
    X = np.ones((100, 3))
    X[4] = 0.0
    assert not split_test(X, random_state=0).is_real


def test_words(noise):
    real = split_test(blobs(), random_state=0)
    assert "the density at the border between them is at least" in str(real)
    assert "level 0.05" in str(real)
    unsettled = str(replace(real, repeats=0.6))
    assert "Only 60 % of the halves of the rows find this border again." in unsettled
    hint = str(replace(real, p_value=0.052))
    assert hint.startswith("Not enough evidence for more than one group (p = 0.052, level 0.05)")
    kept = split_test(noise, random_state=0)
    assert str(kept).startswith("No evidence for more than one group (p = ")
    assert not replace(real, effect=0.1).is_real
    assert "scores" not in repr(real)
    assert "<table" in real._repr_html_()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alpha": 0}, ValueError, "^alpha .*got 0"),
        ({"alpha": 1.5}, ValueError, "^alpha .*got 1.5"),
        ({"alpha": "small"}, TypeError, "^alpha .*got 'small'"),
        ({"random_state": "zero"}, ValueError, "^random_state"),
        ({"X": blobs(23)}, ValueError, "^X .*least 24"),
        ({"X": np.ones((90, 2))}, ValueError, "all 90 rows of X"),
        ({"X": sparse.csr_array((90, 2))}, ValueError, "all 90 rows of X"),
        ({"X": blobs() * np.nan}, ValueError, "Input X contains NaN"),
        ({"X": 1e160 * blobs()}, ValueError, "^X .*magnitude"),
        ({"X": np.arange(100.0)}, ValueError, "Expected 2D array"),
        ({"estimator": KMeans(3)}, ValueError, "^estimator .*n_clusters=3"),
        ({"estimator": AutoClusterer()}, ValueError, "AutoClusterer has n_clusters='auto'"),
        ({"estimator": make_pipeline(PCA(2), MSPC(4))}, ValueError, "MSPC has n_clusters=4"),
        ({"estimator": MSPC}, TypeError, "^estimator .*class MSPC"),
        ({"estimator": "kmeans"}, TypeError, "^estimator .*got str"),
        ({"estimator": MSPC(kernel="precomputed")}, ValueError, "^estimator .*precomputed"),
        ({"estimator": StandardScaler()}, TypeError, "^estimator .*labels_"),
        ({"estimator": GaussianMixture(3)}, ValueError, "^estimator .*GaussianMixture"),
    ],
)
def test_bad_input_to_the_split_test(options, error, message):
    options = {"X": blobs(), "random_state": 0, **options}
    with pytest.raises(error, match=message):
        split_test(**options)
