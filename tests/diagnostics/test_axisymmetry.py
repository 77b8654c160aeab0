"""The search for a reflection of Q."""

import numpy as np
import pytest
from helpers.reflections import (
    all_axes,
    is_an_axis,
    kernel,
    polygon,
    shifted_laplacian,
    small_matrices,
)
from hypothesis import given, settings

from volmar.diagnostics import stability_report
from volmar.diagnostics.conditions import find_axis


@given(small_matrices())
@settings(max_examples=120, deadline=None)
def test_axes_against_all_permutations(Q):
    axes = all_axes(Q, 1e-9)
    found, is_decided, _ = find_axis(Q, threshold=1e-9, max_work=1e9)
    assert is_decided
    assert (found is not None) is bool(axes)
    if axes:
        assert any(np.array_equal(found, axis) for axis in axes)


@given(small_matrices(max_rows=6, max_value=5))
@settings(max_examples=120, deadline=None)
def test_equality_within_a_threshold_is_not_transitive(Q):
    """0, 0.7 and 1.4 fall into one class at a threshold of 1, and 0 still is not 1.4."""
    found, is_decided, _ = find_axis(0.7 * Q, threshold=1.0, max_work=1e9)
    assert is_decided
    assert (found is not None) is bool(all_axes(0.7 * Q, 1.0))
    if found is not None:
        assert is_an_axis(0.7 * Q, found, 1.0)


def without_involution(m, rng):
    """2m rows whose symmetries are the m rotations; none of an odd m is its own inverse."""
    weights = rng.permutation(m) + 1.0
    block = weights[(np.arange(m) - np.arange(m)[:, None]) % m]
    return np.block([[5 * np.eye(m), block], [block.T, 7 * np.eye(m)]])


def latin_square_graph(k, rng):
    """A strongly regular graph: rows look alike until one of them is singled out."""
    square = (np.arange(k)[:, None] + np.arange(k)) % k
    for _ in range(400):
        # Exchange a cycle between two lines, then take lines of another direction.
        first, second = rng.choice(k, 2, replace=False)
        where = np.argsort(square[first])
        cycle = [int(rng.integers(k))]
        while (following := int(where[square[second, cycle[-1]]])) != cycle[0]:
            cycle.append(following)
        square[np.ix_([first, second], cycle)] = square[np.ix_([second, first], cycle)]
        square = square.T.copy() if rng.random() < 0.5 else np.argsort(square, axis=1)
    row, column = np.repeat(np.arange(k), k), np.tile(np.arange(k), k)
    lines = (row, column, square.ravel())
    return np.any([line[:, None] == line for line in lines], axis=0).astype(float)


def cases_of_200():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(100, 3))
    mirrored = np.vstack([half, half * [1, 1, -1]])[rng.permutation(200)]
    copy = rng.normal(size=(200, 2))
    copy[17] = copy[120]
    yield "random", kernel(rng.normal(size=(200, 3))), False
    yield "mirrored", kernel(mirrored), True
    yield "mirrored-laplacian", shifted_laplacian(mirrored), True
    yield "polygon", kernel(polygon(200)), True
    yield "copied-point", kernel(copy), True
    yield "all-alike", np.ones((200, 200)) + np.eye(200), True
    yield "rotations-only", without_involution(101, rng), False
    yield "rotations-by-half", without_involution(100, rng), True
    yield "latin-square", latin_square_graph(14, rng), False


@pytest.mark.parametrize(
    ("Q", "symmetric"), [pytest.param(Q, found, id=name) for name, Q, found in cases_of_200()]
)
def test_two_hundred_rows_are_decided(Q, symmetric):
    report = stability_report(Q)
    assert report.axisymmetric is symmetric
    if symmetric:
        assert is_an_axis(Q, report.axis, 1e-9 * np.abs(Q).max())
        assert report.si_symmetric
    else:
        assert report.axis is None


@pytest.mark.parametrize("values", [(1, 3, 4, 5, 2), (3, 5, 4, 1, 2), (4, 3, 1, 2, 5)])
def test_a_hinge_that_only_backtracking_opens(values):
    """Two copies of rows with equal colours change places, and a third copy has to stay."""
    link, stem, inner, own, other = values
    graph = latin_square_graph(8, np.random.default_rng(0))
    assert find_axis(graph, threshold=0.0, max_work=1e9)[:2] == (None, True)
    same, none = np.eye(64), np.zeros((64, 64))
    one, zero = np.ones((64, 1)), np.zeros((64, 1))
    Q = np.block(
        [
            [inner * graph, link * same, link * same, zero, zero],
            [link * same, none, none, stem * one, zero],
            [link * same, none, none, zero, stem * one],
            [zero.T, stem * one.T, zero.T, np.full((1, 1), own), np.full((1, 1), other)],
            [zero.T, zero.T, stem * one.T, np.full((1, 1), other), np.full((1, 1), own)],
        ]
    )
    found, *_ = find_axis(Q, threshold=1e-9, max_work=1e9)
    rows = np.arange(64)
    np.testing.assert_array_equal(found, np.concatenate([rows, rows + 128, rows + 64, [193, 192]]))


def test_rotations_alone_are_no_axis():
    Q = without_involution(3, np.random.default_rng(1))
    rotation = np.array([1, 2, 0, 4, 5, 3])
    np.testing.assert_array_equal(Q, Q[np.ix_(rotation, rotation)])
    assert not all_axes(Q, 0)
    assert stability_report(Q).axisymmetric is False


def test_the_work_limit_is_said_and_kept():
    Q = latin_square_graph(10, np.random.default_rng(2))
    report = stability_report(Q, max_work=1e6)
    assert report.axisymmetric is None
    assert report.axis is None
    assert report.si_symmetric is None
    assert 1e6 < report.work < 1.1e6
    assert "not decided after" in str(report)
    assert "raise max_work" in str(report)
    assert stability_report(Q).axisymmetric is False
