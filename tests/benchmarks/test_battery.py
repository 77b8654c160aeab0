"""Data of the battery benchmark: the foreign sets, and pieces without groups."""

import importlib

import numpy as np
import pytest


@pytest.fixture
def data(benchmarks_here):
    return importlib.import_module("benchmarks.battery_data")


def test_sets_are_prepared_as_in_the_published_runs(data):
    sets = data.battery()
    if not sets:
        pytest.skip("no data folder: set VOLMAR_DATA or put shared/data beside the checkout")
    scores = data.published()
    for one in sets:
        np.testing.assert_allclose(one.X.mean(axis=0), 0.0, atol=1e-9)
        assert all(y.shape == (len(one.X),) for y in one.references)
        assert min(one.numbers()) >= 2
        assert scores.loc[one.name, "k-means"] <= 1.0


def test_pieces_have_rows_and_repeat(data):
    for name, draw in {**data.PIECES, **data.COLUMNS}.items():
        X = draw(np.random.default_rng(3), 50)
        assert X.shape[0] == 50, name
        assert np.isfinite(X).all(), name
        np.testing.assert_array_equal(X, draw(np.random.default_rng(3), 50))


def test_groups_are_far_enough_apart(data):
    for draw in data.GROUPS.values():
        X, y = draw(np.random.default_rng(0))
        centres = np.array([X[y == j].mean(axis=0) for j in range(y.max() + 1)])
        apart = np.linalg.norm(centres[:, None] - centres, axis=2) + 99 * np.eye(len(centres))
        assert apart.min() > 4.5


def test_a_method_that_splits_everything_is_seen(data, monkeypatch):
    bench = importlib.import_module("benchmarks.bench_battery")
    halves = bench._shares_split(lambda X, seed: np.arange(len(X)) % 2, data.CURVED, (20,), 2)
    whole = bench._shares_split(lambda X, seed: np.zeros(len(X), int), data.CURVED, (20,), 2)
    assert set(halves.values()) == {1.0}
    assert set(whole.values()) == {0.0}
    given = {"4 x 4": data.GROUPS["4 x 4 groups, 6 sd"]}
    truth = given["4 x 4"](np.random.default_rng(0))[1]
    assert bench._share_exact(lambda X, seed: truth, given, 1) == 1.0
    assert bench._share_exact(lambda X, seed: truth // 2, given, 1) == 0.0
