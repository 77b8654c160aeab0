"""A ring is bimodal along a line but a single piece; two groups are not."""

import numpy as np
import pytest
from scipy import sparse

from volmar.evidence import way_around
from volmar.evidence.humps import hump_test
from volmar.evidence.way_around import has_way_around


def ring(n=600, noise=0.1, turn=2 * np.pi, seed=0):
    """Rows on a circle, or on a part of it that starts at the right."""
    draw = np.random.default_rng(seed)
    angle = draw.uniform(0, turn, n)
    return np.column_stack([np.cos(angle), np.sin(angle)]) + noise * draw.normal(size=(n, 2))


def letter_s(n=600, noise=0.05, seed=0):
    draw = np.random.default_rng(seed)
    t = draw.uniform(-1.5 * np.pi, 1.5 * np.pi, n)
    X = np.column_stack([np.sin(t), np.sign(t) * (np.cos(t) - 1)])
    return (X + noise * draw.normal(size=(n, 2)))[:, ::-1]


def groups(n=600, distance=4.0, d=2, share=0.5, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[: round(share * n), 0] += distance
    return X


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "make",
    [
        ring,
        lambda seed: ring(300, 0.05, seed=seed),
        lambda seed: ring(2000, 0.2, seed=seed),
        lambda seed: ring(600, 0.05, turn=np.pi, seed=seed),
        lambda seed: ring(2000, 0.15, turn=np.pi, seed=seed),
        lambda seed: letter_s(seed=seed),
    ],
    ids=["ring", "thin ring", "thick ring", "band", "thick band", "S"],
)
def test_one_bent_piece(make, seed):
    X = make(seed=seed)
    assert hump_test(X[:, 0], np.random.default_rng(4)).p_value < 0.05
    assert has_way_around(X, X[:, 0])


@pytest.mark.parametrize("d", [2, 3, 5, 10, 50])
@pytest.mark.parametrize("distance", [3.5, 5.0])
def test_two_groups(d, distance):
    for seed, n in enumerate([150, 300, 600, 1000]):
        X = groups(n, distance, d, seed=seed)
        assert not has_way_around(X, X[:, 0])


def narrow_and_wide(draw):
    X = draw.normal(size=(600, 2))
    X[:300, 1] *= 0.3
    X[300:] = [5.0, 0.0] + X[300:] * [1.0, 3.0]
    return X


def parallel(draw):
    """Two long groups beside each other, askew to the columns."""
    X = draw.normal(size=(600, 2)) * [5.0, 1.0]
    X[:300, 1] += 5.0
    return X @ np.array([[1.0, -1.0], [1.0, 1.0]])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("make", "direction"),
    [
        (narrow_and_wide, [1, 0]),
        (parallel, [1, 1]),
        (lambda draw: groups(1000, 6.0, 3, 0.1, seed=draw.integers(99)), [1, 0, 0]),
        (
            lambda draw: (
                draw.uniform(size=(600, 2)) + 1.3 * np.eye(2)[0] * (draw.random((600, 1)) < 0.5)
            ),
            [1, 0],
        ),
        (
            lambda draw: (
                draw.standard_t(3, (600, 2)) + 6 * np.eye(2)[0] * (draw.random((600, 1)) < 0.5)
            ),
            [1, 0],
        ),
    ],
    ids=["narrow and wide", "parallel", "small", "squares", "heavy tails"],
)
def test_groups_of_other_shapes(make, direction, seed):
    X = make(np.random.default_rng(seed))
    scores = X @ np.array(direction, dtype=float)
    assert hump_test(scores, np.random.default_rng(0)).p_value < 0.05
    assert not has_way_around(X, scores)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        sparse.csr_array,
        sparse.csr_matrix,
        lambda X: 1e300 * X,
        lambda X: 1e-300 * X,
        lambda X: X * [1e-8, 1e8],
        lambda X: X + 1e6,
        lambda X: np.hstack([X, np.full((len(X), 2), 5.0)]),
        lambda X: X @ np.random.default_rng(0).normal(size=(2, 40)),
        np.asfortranarray,
        lambda X: np.round(10 * X),
    ],
    ids=[
        "f4",
        "csr",
        "csr_matrix",
        "huge",
        "tiny",
        "units",
        "far",
        "constant",
        "wide",
        "F",
        "int",
    ],
)
def test_rows_of_every_kind(change):
    for X, expected in ((ring(), True), (groups(), False)):
        assert has_way_around(change(X), X[:, 0]) is expected


@pytest.mark.parametrize("factor", [1e300, 1e-300, -1.0])
def test_units_of_the_scores_do_not_matter(factor):
    for X, expected in ((ring(), True), (groups(), False)):
        assert has_way_around(X, factor * X[:, 0]) is expected
        assert has_way_around(X, X[:, 0] + 1e3) is expected


def test_copies_of_rows_are_not_dense_space():
    X = np.repeat(groups(150), 4, axis=0)
    assert not has_way_around(X, X[:, 0])


def test_nothing_is_said_without_a_valley_or_rows_in_it():
    X = np.random.default_rng(0).normal(size=(300, 2))
    assert not has_way_around(X[:, :1], X[:, 0])  # one column has no way around
    assert not has_way_around(X, np.zeros(300))
    assert not has_way_around(X[:3], X[:3, 0])
    assert not has_way_around(np.ones((50, 2)), np.arange(50) % 2)
    empty = groups(distance=30.0)
    assert not has_way_around(empty, empty[:, 0])


def test_of_many_rows_some_are_looked_at(monkeypatch):
    looked = []
    exact = way_around._is_connected
    monkeypatch.setattr(
        way_around,
        "_is_connected",
        lambda rows, *others: (looked.append(rows.shape), exact(rows, *others))[1],
    )
    X = ring(20_000)
    assert has_way_around(X, X[:, 0])
    assert looked == [(2000, 2)]
    monkeypatch.setattr(way_around, "MAX_ENTRIES", 1200)
    has_way_around(X, X[:, 0])
    assert looked[1] == (600, 2)


def test_bad_input():
    X = ring(50)
    with pytest.raises(ValueError, match=r"^scores .*shape \(3,\)"):
        has_way_around(X, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"^scores .*got nan"):
        has_way_around(X, np.full(50, np.nan))


def test_scores_that_differ_by_rounding_have_no_valley(rng):
    scores = np.where(np.arange(40) < 20, 1.0, np.nextafter(1.0, 2.0))
    assert not has_way_around(rng.normal(size=(40, 2)), scores)
