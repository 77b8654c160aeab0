"""Candidates with a curved border, tested on held-out rows."""

import numpy as np
import pytest
from helpers.groups import groups, outcome, ring
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

from volmar import SoftLabelMVC
from volmar.evidence.held_out import LINEAR, held_out_test
from volmar.evidence.walks import MAX_WALKS, Border, fitted_border, walk_candidate


def two_rings(seed=0):
    rng = np.random.default_rng(seed)
    return np.vstack([ring(200, seed, 0.05), 3.0 * ring(200, seed + 99, 0.02)])[
        rng.permutation(400)
    ]


def test_a_walk_is_learnt_on_the_seen_rows():
    seen = []

    class Radius:
        def __init__(self, rows):
            self.labels_ = (np.linalg.norm(rows, axis=1) > 2).astype(int)

    def fit(rows, seed):
        seen.append((rows.shape, seed))
        return Radius(rows)

    found = outcome(two_rings(), [walk_candidate(fit)], n_splits=1)
    assert found.p_value <= 0.05
    assert [shape for shape, _ in seen] == [(200, 2)] * 2
    assert seen[0][1] != seen[1][1]
    inner = np.linalg.norm(two_rings(), axis=1) < 2
    side = found.scores > 0
    assert max(np.mean(side == inner), np.mean(side != inner)) > 0.95


def test_a_half_that_cannot_be_fitted_counts_against_the_split():
    def refuse(rows, seed):
        raise ValueError

    found = outcome(groups(100), [walk_candidate(refuse)])
    assert found.p_value == 1.0
    assert found.separation == 0.0


def test_a_walk_of_noise_is_no_split():
    def fit(rows, seed):
        return KMeans(2, n_init=1, random_state=seed).fit(rows)

    rejected = 0
    for seed in range(10):
        X = np.random.default_rng(seed).normal(size=(300, 3))
        rejected += outcome(X, [walk_candidate(fit)], seed=seed).p_value <= 0.05
    assert rejected <= 2
    assert outcome(groups(300), [walk_candidate(fit)]).p_value <= 0.05


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_the_border_of_two_clusters(convert):
    """Noise belongs to neither; distances are positive on the second side."""
    X = groups(200, distance=10.0)
    labels = np.where(np.arange(200) < 100, 7, 3)
    labels[5] = -1
    rng = np.random.default_rng(0)
    border = fitted_border(labels, convert(X), np.zeros(4), rng, name="Some")
    assert isinstance(border, Border)
    distances = border.distances(X)
    np.testing.assert_array_equal(distances[labels >= 0] > 0, (labels == 7)[labels >= 0])
    far = fitted_border(
        labels, convert(X), np.zeros(4), rng, name="Some", transform=lambda rows: 5.0 * rows
    )
    np.testing.assert_allclose(far.distances(5.0 * X), 5.0 * distances, rtol=1e-6)


def test_three_clusters_have_no_border():
    X = groups(60)
    with pytest.raises(ValueError, match=r"^estimator .*n_clusters=2"):
        fitted_border(np.arange(60) % 3, X, np.zeros(4), np.random.default_rng(0), name="Some")


@pytest.mark.slow
def test_many_rows_in_many_dimensions_do_not_make_a_curved_valley():
    """Walks that start near the border lead sideways: the number of scored rows is limited."""
    rejected = 0
    for seed in range(3):
        draw = np.random.default_rng(60 + seed)
        X = draw.normal(size=(4000, 10))
        candidate = walk_candidate(lambda rows, s: KMeans(2, n_init=1, random_state=s).fit(rows))
        found = held_out_test(X, (candidate,), level=0.05, rng=draw)
        assert found.scores.shape == (MAX_WALKS,)
        assert found.sides.shape == (2, MAX_WALKS)
        rejected += found.p_value <= 0.05
    assert rejected == 0


def test_a_sample_of_walks_sees_a_gap():
    X, y = make_moons(3000, noise=0.08, random_state=0)
    model = SoftLabelMVC("auto", random_state=0).fit(X)
    assert model.tree_.n_leaves == 2
    assert adjusted_rand_score(y, model.labels_) > 0.98


def test_groups_in_more_columns_than_rows():
    """In as many dimensions as rows, every split looks perfect, so fewer are searched."""
    rng = np.random.default_rng(3)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 1500))
    X[:, :300] += rng.normal(size=(3, 300))[y]
    outcome = held_out_test(X, LINEAR, level=0.05, rng=np.random.default_rng(0))
    assert outcome.p_value <= 0.05
    noise = rng.normal(size=(120, 1500))
    assert held_out_test(noise, LINEAR, level=0.05, rng=np.random.default_rng(0)).p_value > 0.05
