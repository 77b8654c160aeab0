"""Distances to a curved border: known lengths, all kinds of rows, no valley without a gap."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import make_moons

from volmar import SoftLabelMVC
from volmar.evidence import walks as borders
from volmar.evidence.dither import column_resolutions, dithered_scores
from volmar.evidence.humps import hump_test
from volmar.evidence.walks import Border, fitted_border


def rng(seed=0):
    return np.random.default_rng(seed)


def walk_scores(model, seen, unseen, draw):
    """Return the distances of dithered rows to the border of a fitted model."""
    resolutions = column_resolutions(seen)
    border = fitted_border(model.labels_, seen, resolutions, draw, name=type(model).__name__)
    return dithered_scores(border.distances, unseen, resolutions, draw)


def moons(n=400, noise=0.1, seed=0):
    X, y = make_moons(n, noise=noise, random_state=seed)
    return X, y.astype(bool)


def circles(n=400, seed=0):
    """Rows on circles of radius 1 and 3, and which of them are on the outer one."""
    draw = rng(seed)
    outer = draw.random(n) < 0.5
    angle = draw.uniform(0, 2 * np.pi, n)
    radius = np.where(outer, 3.0, 1.0)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), outer


def by_hand(seen, sides, row):
    """Follow one walk point by point."""

    def side(p):
        means = [
            np.sort(np.linalg.norm(seen[sides == s] - p, axis=1))[:3].mean() for s in (True, False)
        ]
        return means[0] < means[1]

    own = side(row)
    others = seen[sides != own]
    end = others[np.argmin(np.linalg.norm(others - row, axis=1))]
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        if side(row + middle * (end - row)) == own:
            low = middle
        else:
            high = middle
    return (1 if own else -1) * low * np.linalg.norm(end - row)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_lengths_are_those_of_a_walk_step_by_step(d):
    seen = rng().normal(size=(60, d))
    sides = np.sin(2 * seen[:, 0]) > 0.2
    rows = rng(1).normal(size=(25, d))
    found = Border(seen, sides, rng()).distances(rows)
    expected = [by_hand(seen, sides, row) for row in rows]
    # A walk may cross the border more than once; bisection finds one of the crossings.
    close = np.isclose(found, expected, atol=0.02)
    assert close.mean() >= 0.96
    np.testing.assert_array_equal(found > 0, np.array(expected) > 0)


def test_the_border_of_two_circles_is_between_them():
    seen, outer = circles()
    X, side = circles(200, seed=1)
    found = Border(seen, outer, rng()).distances(X)
    np.testing.assert_array_equal(found > 0, side)
    np.testing.assert_allclose(np.abs(found), 1.0, atol=0.15)


def test_length_grows_with_the_way_across_an_empty_gap():
    seen = rng().normal(size=(400, 2))
    seen[200:, 0] += 20
    row = np.column_stack([np.linspace(3, 17, 15), np.zeros(15)])
    found = Border(seen, np.arange(400) >= 200, rng()).distances(row)
    np.testing.assert_allclose(np.diff(found), 1.0, atol=0.1)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        sparse.csr_matrix,
        sparse.csr_array,
        lambda X: 1e120 * X,
        lambda X: 1e-120 * X,
        lambda X: X + 1e6,
        lambda X: (X + 1e4).astype(np.float32).astype(np.float64),
        lambda X: np.hstack([X, np.full((len(X), 3), 7.0)]),
        np.asfortranarray,
    ],
    ids=["f4", "csr_matrix", "csr", "huge", "tiny", "far", "coarse", "constant", "F"],
)
def test_rows_of_every_kind(change):
    (seen, sides), (X, _) = moons(), moons(200, seed=1)
    plain = Border(seen, sides, rng()).distances(X)
    one, other = change(seen), change(X)
    unit = np.linalg.norm(np.asarray(one[0] - one[1]).ravel()) if not sparse.issparse(one) else 1.0
    unit = unit / np.linalg.norm(seen[0] - seen[1]) if not sparse.issparse(one) else 1.0
    found = Border(one, sides, rng()).distances(other) / unit
    assert found.dtype == np.float64
    # Rounding may move a row from one end of a walk to another.
    assert np.isclose(found, plain, atol=5e-3).mean() > 0.97


def test_a_dense_border_takes_sparse_rows_and_the_other_way_round():
    (seen, sides), (X, _) = moons(), moons(50, seed=1)
    plain = Border(seen, sides, rng()).distances(X)
    for one, other in ((sparse.csr_array(seen), X), (seen, sparse.csr_array(X))):
        np.testing.assert_allclose(Border(one, sides, rng()).distances(other), plain, atol=1e-9)


def test_a_row_far_beyond_the_seen_ones_has_a_finite_distance():
    seen, sides = moons()
    X = np.array([[1e150, 0.0], [0.0, -1e150], [0.0, 0.0]])
    assert np.isfinite(Border(1e-100 * seen, sides, rng()).distances(X)).all()


def test_one_side_only_has_no_border():
    X = rng().normal(size=(30, 2))
    for side in (np.zeros(30, dtype=bool), np.ones(30, dtype=bool)):
        np.testing.assert_array_equal(Border(X, side, rng()).distances(X), 0.0)


def test_a_side_of_one_row():
    seen = rng().normal(size=(50, 2))
    seen[7] = [10.0, 0.0]
    found = Border(seen, np.arange(50) == 7, rng()).distances(np.array([[10.0, 1.0], [0, 0]]))
    assert found[0] > 0 > found[1]
    assert 2.0 < found[0] < 6.0


def test_copies_of_rows():
    """Every row five times, and new rows that lie on seen ones."""
    seen, sides = moons(100)
    border = Border(np.repeat(seen, 5, axis=0), np.repeat(sides, 5), rng())
    found = border.distances(seen)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found > 0, sides)
    same = Border(np.zeros((10, 2)), np.arange(10) < 5, rng()).distances(np.zeros((3, 2)))
    np.testing.assert_array_equal(same, 0.0)


def test_of_many_seen_rows_some_are_drawn(monkeypatch):
    monkeypatch.setattr(borders, "MAX_ROWS", 200)
    seen, sides = moons(5000)
    sides[:] = False
    sides[:10] = True  # at least three rows of a side are kept
    border = Border(seen, sides, rng())
    assert border._seen.shape[0] == 203
    assert border._sides.sum() == 3


def test_blocks_do_not_matter(monkeypatch):
    (seen, sides), (X, _) = moons(), moons(99, seed=1)
    whole = Border(seen, sides, rng()).distances(X)
    monkeypatch.setattr(borders, "BLOCK", 400 * 10)
    np.testing.assert_allclose(Border(seen, sides, rng()).distances(X), whole, rtol=1e-12)
    assert Border(seen, sides, rng()).distances(X[:0]).shape == (0,)


def test_bad_input_to_the_border():
    X = rng().normal(size=(20, 2))
    with pytest.raises(ValueError, match=r"^sides"):
        Border(X, [True, False, True], rng())
    with pytest.raises(ValueError, match=r"^rows has 5 columns"):
        Border(X, X[:, 0] > 0, rng()).distances(np.ones((4, 5)))


# ---------------------------------------------------------------------- no valley without a gap


@pytest.mark.parametrize("d", [2, 10])
def test_a_border_through_one_mode_leaves_no_valley(d):
    """Cut by a plane, by an ellipsoid and at random, normal rows are not bimodal."""
    rejected = 0
    for seed in range(6):
        X = rng(seed).normal(size=(600, d))
        cuts = X[:, 0] > 0, (X**2).sum(axis=1) > d, np.sin(3 * X[:, 1]) > 0
        scores = Border(X[:300], cuts[seed % 3][:300], rng()).distances(X[300:])
        rejected += hump_test(scores, rng()).p_value <= 0.05
    assert rejected == 0


def test_a_gap_is_a_valley():
    (seen, sides), (X, _) = moons(600), moons(300, seed=1)
    assert hump_test(Border(seen, sides, rng()).distances(X), rng()).p_value < 0.01


# ---------------------------------------------------------------------- scores of a model


def test_walk_scores_are_distances_to_the_border_of_the_labels():
    (seen, _), (X, _) = moons(), moons(100, seed=1)
    model = SoftLabelMVC(random_state=0).fit(seen)
    found = walk_scores(model, seen, X, rng())
    np.testing.assert_array_equal(found, Border(seen, model.labels_ == 1, rng()).distances(X))
    assert np.mean((found > 0) == model.predict(X)) > 0.97


def test_noise_belongs_to_neither_side():
    X = np.concatenate([rng().normal(size=(200, 2)) * 0.3, [[3.0, 0.0]]])
    X[100:200] += [6, 0]
    model = DBSCAN(eps=0.5).fit(X)
    assert set(model.labels_) == {-1, 0, 1}
    kept = model.labels_ >= 0
    np.testing.assert_array_equal(
        walk_scores(model, X, X, rng()),
        Border(X[kept], model.labels_[kept] == 1, rng()).distances(X),
    )


def test_one_cluster_scores_nothing_and_three_are_refused():
    X = rng().normal(size=(90, 2))
    np.testing.assert_array_equal(walk_scores(DBSCAN(eps=9).fit(X), X, X[:5], rng()), 0.0)
    with pytest.raises(ValueError, match=r"^estimator .*KMeans"):
        walk_scores(KMeans(3, n_init=1).fit(X), X, X, rng())


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_columns_of_few_values_are_dithered(convert):
    """A binary column along which the rows were split is not a gap."""
    draw = rng(4)
    X = np.column_stack([draw.normal(size=(600, 2)), draw.integers(0, 2, 600) * 4.0])
    seen, unseen = X[:300], X[300:]
    model = KMeans(2, n_init=2, random_state=0).fit(seen)
    found = walk_scores(model, convert(seen), convert(unseen), rng())
    assert hump_test(found, rng()).p_value > 0.05
    raw = Border(seen, model.labels_ == 1, rng()).distances(unseen)
    assert hump_test(raw, rng()).p_value < 0.05
