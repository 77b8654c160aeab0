"""Dithering: a single column of few values is no evidence, several that agree are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volmar import MSPC, AutoClusterer
from volmar.evidence import split_test
from volmar.evidence.dither import column_resolutions, dithered, spread_ties
from volmar.metrics import clustering_error


def columns(seed=0, n=600):
    rng = np.random.default_rng(seed)
    return {
        "continuous": rng.normal(size=n),
        "rounded": np.round(rng.normal(size=n), 1),
        "cents": np.round(rng.normal(size=n), 3),
        "integers": np.floor(rng.uniform(0, 40, n)),
        "constant": np.full(n, 3.0),
        "binary": (rng.random(n) < 0.4).astype(float),
        "codes": rng.choice([3.0, 6.0, 7.0], n, p=[0.55, 0.05, 0.4]),
        "polarised": rng.choice([1.0, 2.0, 3.0, 4.0, 5.0], n, p=[0.4, 0.07, 0.06, 0.07, 0.4]),
    }


def test_resolution_is_the_step_of_many_values_and_zero_of_continuous_ones():
    made = columns()
    found = dict(zip(made, column_resolutions(np.column_stack(list(made.values()))), strict=True))
    assert found["continuous"] == found["constant"] == found["cents"] == 0
    assert found["rounded"] == pytest.approx(0.1)
    assert found["integers"] == pytest.approx(1)


@given(
    scale=st.sampled_from([1e-300, 1e-5, 1.0, 1e12, 1e300]),
    shift=st.sampled_from([0.0, 1.0, -7.0]),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_resolution_follows_the_unit(scale, shift, dtype):
    scale = 1e30 if dtype is np.float32 and scale > 1e30 else scale
    scale = 1e-30 if dtype is np.float32 and scale < 1e-30 else scale
    x = columns()["integers"]
    found = column_resolutions(((x + shift) * scale).astype(dtype)[:, None])
    np.testing.assert_allclose(found, scale, rtol=1e-4)


def test_rows_that_alternate():
    X = np.column_stack([np.arange(5000) % 2, np.arange(5000) % 3]).astype(float)
    assert column_resolutions(X).all()


def test_continuous_rows_come_back_as_they_are():
    X = np.random.default_rng(0).normal(size=(50, 3))
    assert dithered(X, column_resolutions(X), np.random.default_rng(0)) is X


def test_noise_stays_within_the_resolution_and_in_the_dtype():
    X = np.column_stack([columns()["continuous"], columns()["integers"]]).astype(np.float32)
    noisy = dithered(X, np.array([0.0, 1.0]), np.random.default_rng(0))
    assert noisy.dtype == np.float32
    np.testing.assert_array_equal(noisy[:, 0], X[:, 0])
    assert 0.4 < np.abs(noisy[:, 1] - X[:, 1]).max() <= 0.5
    assert len(np.unique(X[:, 1])) == 40  # X itself is left alone


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (2, 3)])
def test_hardly_any_rows(shape):
    np.testing.assert_array_equal(column_resolutions(np.zeros(shape)), np.zeros(shape[1]))


def test_binary_columns_are_no_clusters():
    rng = np.random.default_rng(0)
    noise = np.column_stack([rng.normal(size=(400, 3)), rng.random((400, 4)) < 0.5])
    assert not split_test(noise, random_state=0).is_real
    assert AutoClusterer(random_state=0).fit(noise).tree_.n_leaves == 1


def test_binary_columns_that_agree_are_clusters():
    rng = np.random.default_rng(0)
    y = rng.random(400) < 0.5
    agree = (y[:, None] ^ (rng.random((400, 9)) < 0.05)).astype(float)
    X = np.column_stack([rng.normal(size=(400, 3)), agree])
    assert split_test(X, random_state=0).is_real
    assert clustering_error(y, MSPC(random_state=0).fit(X).labels_) < 0.05


def test_a_binary_column_does_not_hide_groups_in_the_others():
    rng = np.random.default_rng(1)
    y = rng.random(500) < 0.3
    X = np.column_stack([rng.normal(size=500) + 6 * y, rng.random((500, 5)) < 0.5])
    assert clustering_error(y, MSPC(random_state=0).fit(X).labels_) < 0.03


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_values_much_nearer_to_each_other_than_their_span(recwarn, seed):
    values = np.sort(np.random.default_rng(seed).normal(size=4))
    values[1:3] = values[0] + np.array([1e-6, 2e-6])
    assert 0 <= column_resolutions(np.repeat(values, 5)[:, None])[0] <= 2 * np.ptp(values)
    assert not recwarn.list


def test_ties_are_spread_to_the_values_that_are_as_frequent():
    rng = np.random.default_rng(0)
    inches = rng.normal(68, 4, 2000)
    inches[300:] = inches[300:].round()
    spread = spread_ties(inches[:, None], rng)[:, 0]
    assert np.unique(spread).size == 2000
    assert np.abs(spread - inches).max() <= 4.0
    near = np.abs(inches - 68) < 3.4
    assert np.abs(spread - inches)[near].max() <= 0.5
    zeros = np.where(rng.random(2000) < 0.4, 0.0, rng.lognormal(8.5, 0.8, 2000))
    spread = spread_ties(zeros[:, None], rng)[:, 0]
    assert np.array_equal(spread[zeros > 0], zeros[zeros > 0])
    assert spread[zeros == 0].max() > np.median(zeros[zeros > 0])


def test_codes_are_uniform_and_continuous_columns_unchanged():
    rng = np.random.default_rng(1)
    X = np.c_[rng.choice([3.0, 6.0, 7.0], 3000, p=[0.45, 0.1, 0.45]), rng.normal(size=3000)]
    spread = spread_ties(X, rng)
    assert np.array_equal(spread[:, 1], X[:, 1])
    counts = np.histogram(spread[:, 0], 10)[0]
    assert counts.min() > 250
    order = np.argsort(spread[:, 0])
    assert (np.diff(X[order, 0]) >= 0).all()  # the order of the values is kept


def test_values_shared_by_groups_count_once():
    rng = np.random.default_rng(2)
    group = rng.integers(0, 40, 4000)
    shared = rng.normal(size=(40, 2))[group]
    spread = spread_ties(shared, rng)
    assert abs(np.corrcoef(spread.T)[0, 1]) < 0.1
    assert np.histogram(spread[:, 0], 10)[0].min() > 300
