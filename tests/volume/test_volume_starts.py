"""Eigenvectors to start from."""

import numpy as np
import pytest
from helpers.volume_problems import start_of

from volmar.datasets import make_two_moons
from volmar.graphs import laplacian, local_scaling_similarity
from volmar.operators import as_operator
from volmar.solvers import Status
from volmar.volume.descent import FirstStep, sqp
from volmar.volume.problem import VolumeProblem, signs
from volmar.volume.two_way import candidates, is_tied, n_pairs_needed


def test_candidates_follow_the_papers_rule():
    values = np.concatenate([[0.019, 0.02], 0.02 + 1e-5 * np.arange(1, 12)])
    Q = as_operator(np.diag(values))
    pairs = Q.smallest_eigenpairs(n_pairs_needed(values.size, None))
    found = candidates(pairs)
    np.testing.assert_allclose(found.values, values[1:11])
    assert found.degenerate is False
    assert candidates(pairs, n_candidates=3).values.size == 3
    assert found.ill_defined is True
    some = as_operator(np.diag(values[:11])).smallest_eigenpairs(11)
    assert candidates(some).ill_defined is False  # v2 to v11: ten
    closer = np.concatenate([[values[1] - 1e-5], values[1:11]])  # and v1, which is no start
    with_first = candidates(as_operator(np.diag(closer)).smallest_eigenpairs(11))
    assert with_first.ill_defined is True
    np.testing.assert_allclose(with_first.values, closer[1:])
    far = as_operator(np.diag([0.01, 0.02, 0.5, 0.6])).smallest_eigenpairs(4)
    assert candidates(far).values.size == 1


def test_the_trivial_vector_comes_first_in_a_graph_of_two_parts():
    block = np.ones((5, 5))
    W = np.block([[block, np.zeros((5, 3))], [np.zeros((3, 5)), np.ones((3, 3))]])
    operator = as_operator(laplacian(W), shift=1 / 8)
    found = candidates(operator.smallest_eigenpairs(3), trivial=np.sqrt(W.sum(0)), n_candidates=1)
    assert len(set(found.labels(0)[:5])) == len(set(found.labels(0)[5:])) == 1
    assert found.labels(0)[0] != found.labels(0)[-1]
    assert not found.degenerate


def test_ties_are_seen():
    assert is_tied(np.array([0.1, 0.2, 0.2 + 1e-6]))
    assert not is_tied(np.array([0.1, 0.2, 0.21]))
    square = np.array([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    pairs = as_operator(laplacian(square), shift=0.25).smallest_eigenpairs(3)
    assert candidates(pairs, n_candidates=1).degenerate


@pytest.mark.parametrize("solve", ["sqp", "first step"])
def test_a_start_with_all_rows_on_one_side_is_refused(solve):
    n = 6
    problem = VolumeProblem(as_operator(np.eye(n)), 1e-2, 1 / n)
    attempts = {
        "sqp": lambda: sqp(problem, np.ones(n) / np.sqrt(n), np.ones(3)),
        "first step": lambda: FirstStep(problem.operator, problem.balance)(np.ones(n)),
    }
    with pytest.raises(ValueError, match="not distinguish"):
        attempts[solve]()


def test_the_aistats_start_moves_fewer_labels():
    """eta0 = -0.001 smooths with a shift of 0.1 instead of 1/n (notes, 0.2)."""
    n = 600
    moved = np.zeros(2, dtype=int)
    for seed in range(5):
        X, _ = make_two_moons(n, noise=0.08, random_state=seed)
        L = laplacian(local_scaling_similarity(X, n_neighbors=10, graph="knn")).toarray()
        h0 = start_of(L)
        for j, (Q, eta0, algorithm) in enumerate(
            [(L + np.eye(n) / n, 0.0, "jmlr"), (L, -1e-3, "aistats")]
        ):
            problem = VolumeProblem(as_operator(Q), 1e-2, 1e-7)
            values = np.linalg.eigvalsh(Q)[:3]
            found = sqp(problem, h0, values, eta0=eta0, algorithm=algorithm)
            assert found.status is Status.CONVERGED
            moved[j] += np.sum(signs(found.h) != signs(h0))
    assert moved[1] < moved[0] / 2
