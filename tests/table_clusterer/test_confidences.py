"""Confidences of rows in their clusters."""

import numpy as np
import pytest

from volmar import TableClusterer
from volmar.table_clusterer.estimator import confidence_of, score_slopes

pd = pytest.importorskip("pandas")


def overlapping(sep, n, k=2, d=5, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(d, d)))[0][:k] * sep / np.sqrt(2)
    y = rng.integers(0, k, n)
    return centres[y] + rng.normal(size=(n, d)), y


@pytest.mark.parametrize(("k", "sep"), [(2, 2.5), (2, 4.0), (3, 4.0)])
def test_confidences_of_normal_groups_are_near_the_share_of_right_rows(k, sep):
    X, y = overlapping(sep, 3000, k, seed=11)
    clusterer = TableClusterer(k, clusterer="MSPC", scale="none").fit(X)
    counts = np.zeros((k, k))
    np.add.at(counts, (clusterer.labels_, y), 1)
    is_right = counts.argmax(axis=1)[clusterer.labels_] == y
    confidence = clusterer.confidence_
    assert abs(confidence.mean() - is_right.mean()) < 0.03
    low = np.argsort(confidence)[:600]  # the 20 % of rows with the lowest confidence
    assert abs(confidence[low].mean() - is_right[low].mean()) < 0.08


def test_confidences_rise_with_the_distance_from_the_border():
    scores = np.concatenate([np.linspace(-3, -0.5, 50), np.linspace(0.5, 3, 50)])
    labels = (scores > 0).astype(int)
    slopes = score_slopes(scores, labels)
    confidence = confidence_of(scores, labels, slopes)
    order = np.argsort(np.abs(scores))
    assert (np.diff(confidence[order]) >= 0).all()
    assert confidence_of(np.zeros(2), np.array([0, 0]), slopes).tolist() == [0.5, 0.5]
    # The result is the same in other units, and with an outlier among the scores.
    again = confidence_of(1e9 * scores, labels, score_slopes(1e9 * scores, labels))
    np.testing.assert_allclose(again, confidence)
    far = np.append(scores, 1e6)
    with_outlier = score_slopes(far, (far > 0).astype(int))
    assert np.isfinite(list(with_outlier.values())).all()


def test_confidences_of_degenerate_scores():
    assert score_slopes(np.zeros(5), np.zeros(5, int)) == {}
    np.testing.assert_array_equal(confidence_of(np.zeros(5), np.zeros(5, int), {}), 1.0)
    two = np.array([-1.0, 1.0])
    confidence = confidence_of(two, np.array([0, 1]), score_slopes(two, np.array([0, 1])))
    assert ((confidence >= 0.5) & (confidence <= 1)).all()
