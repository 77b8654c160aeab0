"""Labels under limits of sizes, against linear programs and brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from volmar.guidance import transport as transport_module
from volmar.guidance.guide import Guide
from volmar.guidance.transport import Limits, dual_value, smooth_offsets, transport


def value_of_linear_program(gains, weights, limits):
    m, k = gains.shape
    once = np.kron(np.eye(m), np.ones(k))
    loads = np.kron(weights, np.eye(k))
    found = linprog(
        -(weights[:, None] * gains).ravel(),
        A_ub=np.r_[loads, -loads],
        b_ub=np.r_[limits.high, -limits.low],
        A_eq=once,
        b_eq=np.ones(m),
    )
    assert found.status == 0
    return -found.fun


def drawn(seed, is_even):
    """Return gains, weights and feasible limits."""
    rng = np.random.default_rng(seed)
    m, k = rng.integers(4, 40), rng.integers(2, 6)
    weights = np.ones(m) if is_even else rng.uniform(0.2, 3.0, m)
    gains = rng.standard_normal((m, k)) + (seed % 3) * np.arange(k)
    total = weights.sum()
    low, high = rng.uniform(0, total / k, k), rng.uniform(total / k, total, k)
    kind = seed % 5
    if kind == 1:
        low[:] = 0.0
    if kind == 2:
        high[:] = total
    if kind == 3:
        low = high = np.full(k, total / k)
    if is_even:
        low, high = np.floor(low), np.ceil(high)
    return gains, weights, Limits(low, high)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("is_even", [True, False])
def test_bound_is_the_value_of_the_linear_program(seed, is_even):
    gains, weights, limits = drawn(seed, is_even)
    found = transport(gains, weights, limits)
    value = value_of_linear_program(gains, weights, limits)
    assert found.bound == pytest.approx(value, abs=1e-7)
    assert dual_value(gains, weights, limits, found.offsets) == pytest.approx(value, abs=1e-7)
    assert found.split.size <= gains.shape[1]
    if is_even:  # attained without splitting rows, by the largest scores
        loads = np.bincount(found.labels, minlength=gains.shape[1])
        assert (loads >= limits.low).all()
        assert (loads <= limits.high).all()
        assert gains[np.arange(weights.size), found.labels].sum() == pytest.approx(value, abs=1e-7)
        np.testing.assert_array_equal(np.argmax(gains + found.offsets, axis=1), found.labels)


def test_many_rows_start_from_a_sample_and_look_at_borders_only(monkeypatch):
    rng = np.random.default_rng(0)
    gains = rng.standard_normal((12_000, 4)) + np.array([2.0, 1.0, 0.0, 0.0])
    limits = Limits(np.zeros(4), np.full(4, 3000.0))
    looked_at = []
    plain = transport_module._Search.__init__

    def noted(self, *args):
        plain(self, *args)
        looked_at.append(self.moves.size)

    monkeypatch.setattr(transport_module._Search, "__init__", noted)
    found = transport(gains, np.ones(12_000), limits)
    assert looked_at == [transport_module.NEAR_ROWS]
    np.testing.assert_array_equal(np.bincount(found.labels), 3000)
    own = gains[np.arange(12_000), found.labels].sum()
    assert own == pytest.approx(found.bound, rel=1e-12)
    again = transport(gains, np.ones(12_000), limits, found.offsets)
    np.testing.assert_array_equal(again.labels, found.labels)


def test_all_rows_are_looked_at_where_the_borders_were_not_enough(monkeypatch):
    """With a start so wrong that no path exists among the rows near its borders."""
    rng = np.random.default_rng(1)
    gains = rng.standard_normal((6000, 3))
    limits = Limits(np.full(3, 2000.0), np.full(3, 2000.0))
    monkeypatch.setattr(transport_module, "smooth_offsets", lambda *_: np.zeros(3))
    monkeypatch.setattr(transport_module, "ROWS_PER_MOVE", 0)
    monkeypatch.setattr(transport_module, "NEAR_ROWS", 2)
    found = transport(gains, np.ones(6000), limits)
    own = gains[np.arange(6000), found.labels].sum()
    assert own == pytest.approx(found.bound, rel=1e-12)
    np.testing.assert_array_equal(np.bincount(found.labels), 2000)


def test_smooth_offsets_leave_little_to_move():
    rng = np.random.default_rng(2)
    gains = rng.standard_normal((3000, 6)) + np.arange(6)
    limits = Limits(np.full(6, 400.0), np.full(6, 600.0))
    offsets = smooth_offsets(gains, np.ones(3000), limits)
    loads = np.bincount(np.argmax(gains + offsets, axis=1), minlength=6)
    assert limits.excess(loads) <= 30
    free = np.bincount(np.argmax(gains, axis=1), minlength=6)
    assert limits.excess(free) > 1000


def test_equal_gains_are_divided():
    found = transport(np.zeros((10, 3)), np.ones(10), Limits(np.full(3, 3.0), np.full(3, 4.0)))
    assert sorted(np.bincount(found.labels)) == [3, 3, 4]


@pytest.mark.parametrize("seed", range(30))
def test_units_and_weights_by_brute_force(seed):
    """Labels are within feasible limits, and at most `gap` below the optimum."""
    rng = np.random.default_rng(seed)
    n, k = 7, int(rng.integers(2, 4))
    units = np.unique(rng.integers(0, 5, n), return_inverse=True)[1] if seed % 2 else None
    weights = rng.integers(1, 4, n).astype(float)
    gains = rng.standard_normal((n, k))
    seeds = np.full(n, -1)
    seeds[0] = rng.integers(k)
    if units is not None:
        seeds[units == units[0]] = seeds[0]
    low, high = np.full(k, 2.0), np.full(k, np.ceil(weights.sum() / k) + 1)
    best = -np.inf
    for labels in itertools.product(range(k), repeat=n):
        c = np.array(labels)
        loads = np.bincount(c, weights, k)
        is_allowed = (loads >= low).all() and (loads <= high).all()
        is_allowed &= c[0] == seeds[0]
        if units is not None:
            is_allowed &= all(np.ptp(c[units == unit]) == 0 for unit in np.unique(units))
        if is_allowed:
            best = max(best, float(weights @ gains[np.arange(n), c]))
    guide = Guide(k, seeds, units, low=low, high=high, weights=weights)
    given = np.bincount(seeds[seeds >= 0], weights[seeds >= 0], k)
    if (given > high).any():
        with pytest.raises(ValueError, match="Check min_cluster_size"):
            guide.place(gains)
        return
    placed = guide.place(gains)
    loads = np.bincount(placed.labels, weights, k)
    is_within = (loads >= low - 1e-9).all() and (loads <= high + 1e-9).all()
    assert is_within == np.isfinite(best)
    assert (placed.excess == 0) == is_within
    assert placed.labels[0] == seeds[0]
    if is_within:
        value = float(weights @ gains[np.arange(n), placed.labels])
        assert value <= best + 1e-9
        assert value + placed.gap >= best - 1e-9


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(4, 60),
    k=st.integers(2, 6),
    seed=st.integers(0, 10_000),
    is_seeded=st.booleans(),
)
def test_rows_of_one_weight_are_always_within_the_limits(n, k, seed, is_seeded):
    rng = np.random.default_rng(seed)
    gains = rng.standard_normal((n, k)).round(1)  # with ties
    high = np.ceil(n / k) + rng.integers(0, 3, k)
    low = np.minimum(rng.integers(0, n // k + 1, k), high)
    seeds = np.full(n, -1)
    if is_seeded:
        seeds[: k // 2] = np.arange(k // 2)
    placed = Guide(k, seeds, low=low.astype(float), high=high).place(gains)
    loads = np.bincount(placed.labels, minlength=k)
    assert (loads >= low).all() or is_seeded
    assert (loads <= high).all()
    assert placed.excess == 0
    assert placed.gap <= 1e-9
    np.testing.assert_array_equal(placed.labels[seeds >= 0], seeds[seeds >= 0])


def test_weightless_rows_follow_the_others():
    gains = np.column_stack([np.linspace(-1.0, 1.0, 9), np.zeros(9)])
    weights = np.ones(9)
    weights[4] = 0.0
    guide = Guide(2, np.full(9, -1), high=np.array([2.0, 8.0]), weights=weights)
    placed = guide.place(gains)
    assert placed.labels.tolist() == [1, 1, 1, 1, 1, 1, 1, 0, 0]
    np.testing.assert_array_equal(np.argmax(gains + placed.offsets, axis=1), placed.labels)
