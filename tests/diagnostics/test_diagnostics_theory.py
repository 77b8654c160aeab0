"""Stability theory: every definition by brute force, the papers' theorems as they stand.

Theorems 11 and 13 of JMLR (4 and 5 of AISTATS) are refuted here, theorem 10 for two rows.
"""

import itertools
import math

import numpy as np
import pytest
from helpers.reflections import SIGMA, all_axes, kernel, polygon, shifted_laplacian, small_matrices
from hypothesis import assume, given, settings
from scipy import sparse

from volmar.diagnostics import stability_report
from volmar.operators import as_operator
from volmar.solvers import Status
from volmar.volume.descent import alternate, minimise_given_labels
from volmar.volume.problem import VolumeProblem

# JMLR section 5.1 and figure 2; X5' of AISTATS section 3.4 with the scale of X4' there.
X4 = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=float)
X4_PRIME = np.array([[0, 0], [1, 0], [1, 0.5], [0, 0.5]])
X4_SECOND = np.sqrt(
    [[0, 0], [math.log(5 / 3), 0], [math.log(10 / 3), 0], [math.log(5 / 3), math.log(2)]]
)
X5_PRIME = np.vstack([2 * X4_PRIME, [[1, 0.5]]])


def random_symmetric(rng, n):
    A = rng.normal(size=(n, n))
    return A + A.T


def partitions(n):
    """One sign vector for each of the 2^(n-1) partitions."""
    for rest in itertools.product([1.0, -1.0], repeat=n - 1):
        yield np.array([1.0, *rest])


def smallest_of_eq_20(Q):
    """Smallest left side of JMLR eq. 20 over all pairs of partitions, without sorting."""
    signs = np.array(list(partitions(len(Q))))
    i, j = np.triu_indices(len(signs), 1)
    plus, minus = signs[i] + signs[j], signs[i] - signs[j]
    return np.abs(np.einsum("pi,ij,pj->p", plus, Q, minus) / 4).min()


# ------------------------------------------------------------------ the papers' examples


@pytest.mark.parametrize("make", [kernel, shifted_laplacian])
@pytest.mark.parametrize("sigma", [SIGMA, 0.8])
@pytest.mark.parametrize(
    ("X", "n_axes", "anisotropic"),
    [(X4, 5, False), (X4_PRIME, 3, True), (X4_SECOND, 0, True), (X5_PRIME, 3, True)],
    ids=["X4", "X4'", "X4''", "X5'"],
)
def test_figure_2_as_printed(X, n_axes, anisotropic, sigma, make):
    Q = make(X, sigma)
    report = stability_report(Q)
    assert report.irreducible
    assert report.anisotropic is anisotropic
    axes = all_axes(Q, 1e-9)
    assert len(axes) == n_axes
    assert report.axisymmetric is (n_axes > 0)
    if n_axes:
        assert any(np.array_equal(report.axis, axis) for axis in axes)
    # X4'' balances 0.6 = 0.3 + 0.3, in the kernel and at this width alone.
    balanced = make is kernel and sigma == SIGMA
    assert report.si_symmetric is (n_axes > 0 or balanced)


def test_the_square_has_two_best_partitions_and_the_rectangle_one():
    for X, n_best in ((X4, 2), (X4_PRIME, 1)):
        problem = VolumeProblem(as_operator(shifted_laplacian(X)), 1.0, 1e-9)
        values = np.linalg.eigvalsh(problem.operator.matrix)
        balanced = [y for y in partitions(4) if y.sum() == 0]
        found = np.array(
            [problem.objective(minimise_given_labels(problem, y, values).h) for y in balanced]
        )
        assert np.sum(found <= found.min() + 1e-9) == n_best


def test_the_centre_of_the_rectangle_can_go_either_way():
    """X5' has distinct eigenvalues, and still two best partitions: v2 is zero at the centre."""
    Q = shifted_laplacian(X5_PRIME)
    assert stability_report(Q).anisotropic
    v2 = np.linalg.eigh(Q)[1][:, 1]
    assert abs(v2[4]) < 1e-12
    assert np.abs(v2[:4]).min() > 0.1
    problem = VolumeProblem(as_operator(Q), 1.0, 0.5)
    values = np.linalg.eigvalsh(Q)
    found = {
        tuple(y): problem.objective(minimise_given_labels(problem, y, values).h)
        for y in partitions(5)
    }
    best = min(found.values())
    ties = {y for y, value in found.items() if value <= best + 1e-9}
    assert ties == {(1, -1, -1, 1, 1), (1, -1, -1, 1, -1)}


def test_twin_minima_along_an_axis():
    """JMLR theorem 12, which holds: the mirror image of a minimum is one."""
    Q = shifted_laplacian(X5_PRIME)
    axis = stability_report(Q).axis
    problem = VolumeProblem(as_operator(Q), 0.3, np.inf)
    values = np.linalg.eigvalsh(Q)
    y = np.array([1.0, -1.0, 1.0, 1.0, 1.0])
    h = alternate(problem, y, values).h
    twin = h[axis]
    assert problem.objective(twin) == pytest.approx(problem.objective(h), rel=1e-12)
    assert problem.certificate(twin).residuals["stationarity"] < 1e-9
    assert not np.array_equal(np.sign(twin), np.sign(h))
    assert not np.array_equal(np.sign(twin), -np.sign(h))


# ------------------------------------------------------------------ SI-symmetry


@pytest.mark.parametrize("n", range(2, 9))
def test_si_gap_against_all_pairs(n, rng):
    for _ in range(3):
        Q = random_symmetric(rng, n)
        report = stability_report(Q)
        assert report.si_symmetric is False
        gap = smallest_of_eq_20(Q)
        assert report.si_gap * np.abs(Q).max() == pytest.approx(gap, abs=1e-13)
        y, z = report.si_pair
        assert abs(y @ Q @ y - z @ Q @ z) / 4 == pytest.approx(gap, abs=1e-13)


@given(small_matrices(max_rows=7, max_value=9))
@settings(max_examples=60, deadline=None)
def test_si_symmetry_against_all_pairs(Q):
    report = stability_report(Q)
    assert report.si_symmetric is bool(smallest_of_eq_20(Q) < 1e-9)
    y, z = report.si_pair
    assert abs(int(y @ z)) < len(Q)
    if report.si_symmetric:
        assert y @ Q @ y == pytest.approx(z @ Q @ z, abs=1e-9)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_definition_5_letter_by_letter(n, rng):
    """Eq. 19 over all signs and all K: similarity equals dissimilarity in a block.

    Remark 6 prints each of the two sums as plus or minus the full one. Only their difference is.
    """
    for Q in (random_symmetric(rng, n), np.round(2 * random_symmetric(rng, n))):
        smallest = np.inf
        for delta in itertools.product([-1, 1], repeat=n):
            for size in range(1, n):
                for K in itertools.combinations(range(n), size):
                    rest = [j for j in range(n) if j not in K]
                    same = sum(Q[i, j] for i in K for j in rest if delta[i] == delta[j])
                    different = sum(Q[i, j] for i in K for j in rest if delta[i] != delta[j])
                    full = sum(delta[i] * delta[j] * Q[i, j] for i in K for j in rest)
                    assert same - different == pytest.approx(full, abs=1e-12)
                    smallest = min(smallest, abs(same - different))
        report = stability_report(Q)
        assert report.si_symmetric is bool(smallest < 1e-9)
        assert report.si_gap * np.abs(Q).max() == pytest.approx(smallest, abs=1e-12)


@given(small_matrices(max_rows=6))
@settings(max_examples=60, deadline=None)
def test_theorem_10_from_three_rows_on(Q):
    assume(len(Q) > 2)
    report = stability_report(Q)
    if report.axisymmetric or not report.irreducible:
        assert smallest_of_eq_20(Q) < 1e-9


def test_si_symmetry_of_many_rows_is_left_open_or_follows(rng):
    Q = random_symmetric(rng, 21)
    report = stability_report(Q)
    assert report.si_symmetric is None
    assert math.isnan(report.si_gap)
    assert report.si_pair is None
    assert "not decided for 21 rows" in str(report)
    Q[:, 5] = Q[5] = 0.0
    Q[5, 5] = 1.0
    report = stability_report(Q)
    assert report.si_symmetric
    np.testing.assert_array_equal(report.isolated, [5])
    y, z = report.si_pair
    assert y @ Q @ y == pytest.approx(z @ Q @ z, abs=1e-12)


def test_chance_is_not_taken_for_symmetry(rng):
    """Two of 2^17 values are within 1e-9 by coincidence; ties are decided at rounding error."""
    report = stability_report(random_symmetric(rng, 18))
    assert report.si_symmetric is False
    assert 0 < report.si_gap < 1e-8


# ------------------------------------------------------------------ the rest of the report


def test_isolated_rows_and_blocks():
    Q = np.diag([2.0, 0.0, 1.0, 1.0, 1.0])
    Q[2, 3] = Q[3, 2] = 0.5
    report = stability_report(Q)
    assert not report.irreducible
    np.testing.assert_array_equal(report.isolated, [0, 4])  # row 1 has Q_ii = 0
    assert "rows 0, 4" in str(report)
    blocks = np.kron(np.eye(2), [[2.0, 1.0], [1.0, 3.0]])
    assert stability_report(blocks).irreducible


def test_eigengap_is_found_where_it_is(rng):
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    values = np.array([0.1, 0.5, 0.9, 0.90004, 1.5, 2.0])
    report = stability_report(basis * values @ basis.T)
    assert report.anisotropic
    assert report.eigengap == pytest.approx(2e-5, rel=1e-6)
    assert report.eigengap_at == 2
    np.testing.assert_allclose(report.closest_eigenvalues, values[2:4])
    assert not stability_report(basis * values @ basis.T, tol=1e-4).anisotropic
    assert not stability_report(np.eye(4), tol=0.0).anisotropic


def test_every_kind_of_matrix_gives_the_same_report():
    Z = np.random.default_rng(0).normal(size=(12, 4))
    Z[6:] = Z[:6]
    Q = 30 * np.eye(12) - Z @ Z.T
    operators = [as_operator(Q), as_operator(sparse.csr_matrix(Q))]
    for given_Q in [Q, Q.tolist(), sparse.csr_array(Q), *operators]:
        report = stability_report(given_Q)
        assert report.axisymmetric
        assert not report.anisotropic
        assert report.frozen_below == pytest.approx(stability_report(Q).frozen_below)


@pytest.mark.parametrize(
    ("Q", "kwargs", "error", "match"),
    [
        (np.ones((3, 2)), {}, ValueError, r"^Q .*got shape \(3, 2\)"),
        ([[1.0, 0.5], [0.2, 1.0]], {}, ValueError, "Q must be symmetric"),
        ([[1.0]], {}, ValueError, "minimum of 2"),
        ([[1.0, np.nan], [np.nan, 1.0]], {}, ValueError, "Q contains NaN"),
        (np.eye(3), {"tol": -1.0}, ValueError, "tol must be at least 0"),
        (np.eye(3), {"max_rows_for_si": 30}, ValueError, "^max_rows_for_si"),
        (np.eye(3), {"max_work": np.inf}, ValueError, "max_work must be"),
    ],
)
def test_bad_input_of_the_report(Q, kwargs, error, match):
    with pytest.raises(error, match=match):
        stability_report(Q, **kwargs)


def test_the_report_in_words(rng):
    text = str(stability_report(kernel(rng.normal(size=(7, 2)))))
    for phrase in (
        "irreducible:  yes",
        "anisotropic:  yes",
        "axisymmetric: no exchange",
        "SI-symmetric: no",
        "(JMLR 13, AISTATS 5) is false",
    ):
        assert phrase in text
    assert "exchange 0 with 1, 2 with 3" in str(stability_report(kernel(X4)))
    many = np.vstack([polygon(20), 2 * polygon(20)])
    assert "and 15 more" in str(stability_report(kernel(many)))


# ------------------------------------------------------------------ theorems that fail


def reduced_hessian(problem, found):
    """Smallest eigenvalue of reg Q - eta I on the directions that |h| = 1 leaves free."""
    h = found.h / np.linalg.norm(found.h)
    free = np.linalg.svd(h[None])[2][1:].T
    A = problem.reg * problem.operator.matrix - found.multiplier * np.eye(problem.n)
    return np.linalg.eigvalsh(free.T @ A @ free)[0]


def strict_minima(problem):
    """Return the partitions with a strict local minimum, by exact alternation from each."""
    values = np.linalg.eigvalsh(problem.operator.matrix)
    kept = []
    for y in partitions(problem.n):
        found = alternate(problem, y, values)
        if found.status is not Status.CONVERGED or not np.array_equal(np.sign(found.h), y):
            continue
        assert found.residuals["stationarity"] < 1e-8
        assert np.abs(found.h).min() > 1e-6  # inside the orthant, where the problem is smooth
        if reduced_hessian(problem, found) > 1e-6:
            kept.append((y, found))
    return kept


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize("make", [kernel, shifted_laplacian])
def test_theorem_13_fails_every_partition_is_a_strict_local_minimum(n, make):
    """Theorem 13 of JMLR, 5 of AISTATS and (with the kernel) corollary 14 claim there is one."""
    X = np.random.default_rng(13).normal(size=(n, 2))
    operator = as_operator(make(X, 1.0))
    report = stability_report(operator)
    assert report.irreducible
    assert report.anisotropic
    assert report.axisymmetric is False
    assert report.si_symmetric is False
    assert operator.smallest_eigenpairs(1).values[0] > 0
    if make is kernel:
        assert np.ptp(operator.matrix.diagonal()) == 0
    assert report.frozen_below > 0.01  # the papers' reg
    for reg in (0.01, 0.999 * report.frozen_below):
        minima = strict_minima(VolumeProblem(operator, reg, np.inf))
        assert len(minima) == 2 ** (n - 1)
        # Not even the multiplier is shared, which the proof takes for granted.
        assert np.ptp([found.multiplier for _, found in minima]) > 1e-5
    # This holds at a small reg only: a large one leaves few minima.
    assert len(strict_minima(VolumeProblem(operator, 1e3, np.inf))) < 2 ** (n - 2)


def test_the_threshold_is_the_one_derived(rng):
    A = rng.normal(size=(6, 6))
    Q = A @ A.T
    expected = math.sqrt(6) / (2 * np.abs(Q).sum(axis=1).max() + np.linalg.eigvalsh(Q)[-1])
    assert stability_report(Q).frozen_below == pytest.approx(expected)


@pytest.mark.parametrize("n", [5, 6, 8])
def test_theorem_11_fails_an_asymmetric_matrix_with_a_repeated_eigenvalue(n):
    """I + the cosines of n points in n - 2 dimensions: constant diagonal, rank n - 2 above I."""
    X = np.random.default_rng(11).normal(size=(n, n - 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Q = np.eye(n) + X @ X.T
    np.testing.assert_allclose(Q.diagonal(), 2.0)
    report = stability_report(Q)
    assert report.irreducible
    assert report.si_symmetric is False
    assert report.si_gap > 1e-6
    assert not report.anisotropic
    assert report.eigengap_at == 0
    np.testing.assert_allclose(report.closest_eigenvalues, 1.0)


def test_theorem_10_fails_for_two_rows():
    report = stability_report([[1.0, 0.5], [0.5, 1.0]])
    assert report.axisymmetric
    np.testing.assert_array_equal(report.axis, [1, 0])
    assert report.si_symmetric is False
    assert report.si_gap == 0.5
