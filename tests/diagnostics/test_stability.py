"""Stability under resampling."""

import numpy as np
import pytest
from helpers.groups import blobs
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmar import MSPC
from volmar.diagnostics import ResamplingStability, stability


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(3).normal(size=(240, 4))


@pytest.mark.parametrize(
    "estimator",
    [
        MSPC(),
        KMeans(2, n_init=2),
        make_pipeline(StandardScaler(), KMeans(2, n_init=2)),
        GaussianMixture(2),
        AgglomerativeClustering(2),
    ],
    ids=lambda estimator: str(estimator).replace("\n", ""),
)
def test_blobs_are_stable(estimator):
    X = blobs(distance=9.0)
    result = stability(X, estimator, n_resamples=6, random_state=0)
    assert result.agreement == 1.0
    assert result.spread == 0.0
    assert result.n_failed == 0
    assert len(np.unique(result.labels)) == 2
    assert set(result.confidence[~np.isnan(result.confidence)]) == {1.0}
    again = stability(X, estimator, n_resamples=6, random_state=0)
    np.testing.assert_array_equal(again.confidence, result.confidence)


def test_five_clusters_of_noise_are_not(noise):
    result = stability(noise, KMeans(5, n_init=1), n_resamples=10, random_state=0)
    assert result.agreement < 0.6
    assert result.agreements.shape == (10,)
    assert result.agreement == pytest.approx(result.agreements.mean())
    assert result.spread == pytest.approx(result.agreements.std())
    assert "change a lot" in str(result)


def test_confidence_is_low_at_the_border():
    X = blobs(400, distance=4.0, d=2)
    result = stability(X, KMeans(2, n_init=2), share=0.3, n_resamples=30, random_state=0)
    near = abs(X[:, 1] - 2) < 0.3
    assert np.nanmean(result.confidence[near]) < 0.95
    assert np.nanmin(result.confidence[abs(X[:, 1] - 2) > 1.5]) == 1.0


class Replay(ClusterMixin, BaseEstimator):
    """Labels from a column that holds them; in subsets of the rows, one of them is moved."""

    def __init__(self, n_rows=None):
        self.n_rows = n_rows

    def fit(self, X, y=None):
        self.labels_ = X[:, 0].astype(int).copy()
        if len(X) < self.n_rows:
            self.labels_ += 5  # other names, and two clusters joined
            self.labels_[self.labels_ == 6] = 5
        return self


def test_clusters_are_matched_by_their_rows():
    """0 (50 rows) and 1 (10 rows) are joined in every subset: 1 has no partner, 0 and 2 do."""
    X = np.repeat([0.0, 1.0, 2.0], [50, 10, 40])[:, None]
    result = stability(X, Replay(100), n_resamples=12, random_state=0)
    expected = np.repeat([1.0, 0.0, 1.0], [50, 10, 40])
    seen = ~np.isnan(result.confidence)
    np.testing.assert_array_equal(result.confidence[seen], expected[seen])
    assert 0 < result.agreement < 1


class Fussy(ClusterMixin, BaseEstimator):
    """Clusterer that fails without the one large row."""

    def __init__(self, least=50.0):
        self.least = least

    def fit(self, X, y=None):
        if X.max() < self.least:
            raise ValueError("no large row")
        self.labels_ = (X[:, 0] > 0).astype(int)
        return self


def test_parts_that_fail_are_counted():
    X = blobs(50)
    X[0, 3] = 100.0
    result = stability(X, Fussy(), share=0.5, n_resamples=20, random_state=0)
    assert 0 < result.n_failed < 20
    assert result.agreements.size == 20 - result.n_failed
    # That row is in every subset that did not fail.
    assert result.confidence[0] == 1.0
    assert f"{result.n_failed} subsets could not be clustered" in str(result)
    with pytest.raises(ValueError, match="no large row"):
        stability(blobs(50), Fussy(), random_state=0)


class OnlyAll(Fussy):
    def fit(self, X, y=None):
        if len(X) < self.least:
            raise ValueError("too few rows")
        return super().fit(X * 1e9)


def test_no_part_could_be_clustered():
    with pytest.raises(ValueError, match=r"20 subsets .* Raise share"):
        stability(blobs(50), OnlyAll(50), random_state=0)


def test_progress_is_reported():
    told = []
    stability(
        blobs(60),
        KMeans(2, n_init=1),
        n_resamples=3,
        progress=lambda *done: told.append(done),
        random_state=0,
    )
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_two_jobs_find_what_one_does(noise):
    one, two = (
        stability(noise, KMeans(3, n_init=1), n_resamples=4, n_jobs=n_jobs, random_state=0)
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.agreements, two.agreements)
    np.testing.assert_array_equal(one.confidence, two.confidence)


def test_noise_labels_and_sparse_rows():
    X = blobs(distance=12.0, d=2)
    result = stability(X, DBSCAN(eps=0.8), n_resamples=4, random_state=0)
    assert result.labels.min() == 0
    assert result.agreement > 0.5
    thin = stability(sparse.csr_array(X), KMeans(2, n_init=1), n_resamples=3, random_state=0)
    assert thin.agreement == 1.0


def test_rows_in_no_part_have_no_confidence():
    result = stability(blobs(), KMeans(2, n_init=1), share=0.05, n_resamples=2, random_state=0)
    unseen = np.isnan(result.confidence)
    assert 0.8 < unseen.mean() < 1


@pytest.mark.parametrize(
    ("agreement", "words"),
    [(0.95, "hardly change"), (0.7, "change somewhat"), (0.2, "change a lot")],
)
def test_stability_in_words(agreement, words):
    confidence = np.array([1.0, 0.8, 0.5, np.nan, np.nan])
    result = ResamplingStability(agreement, 0.1, np.empty(0), confidence, np.zeros(5))
    assert str(result) == (
        f"The clusters {words} when rows are left out (adjusted Rand index {agreement:.2f} ± "
        "0.10). 33 % of the rows change their cluster in more than one case of five."
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_resamples": 1}, ValueError, "^n_resamples"),
        ({"share": 0.0}, ValueError, "^share .*got 0.0"),
        ({"share": 1.0}, ValueError, "^share=1.0"),
        ({"share": 0.001}, ValueError, "is 0, but a subset must have at least 2 rows"),
        ({"X": blobs() * np.nan}, ValueError, "Input X contains NaN"),
        ({"estimator": KMeans}, TypeError, "^estimator .*got the class KMeans"),
        ({"estimator": MSPC(kernel="precomputed")}, ValueError, "takes a precomputed matrix"),
        ({"estimator": StandardScaler()}, TypeError, "^estimator .*fit_predict"),
    ],
)
def test_bad_input_to_stability(options, error, message):
    options = {"X": blobs(), "estimator": KMeans(2, n_init=1), "random_state": 0, **options}
    with pytest.raises(error, match=message):
        stability(**options)
