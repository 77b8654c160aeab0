"""Plain conjugate gradients on graphs of high dimension; rows in another order on large ones."""

import pickle

import numpy as np
import pytest
from helpers.laplacians import blobs, moons
from scipy import sparse

from volmar import SoftLabelMVC
from volmar.datasets import make_two_moons
from volmar.graphs import density_scaling, density_scaling_similarity
from volmar.operators import sparse as sparse_module
from volmar.operators.sparse import SparseOperator


@pytest.mark.parametrize("rtol", [1e-3, 1e-8])
def test_plain_conjugate_gradients_agree_with_a_direct_solve(rng, rtol):
    n = 4000
    L, root = blobs(n)
    B = rng.standard_normal((n, 2))
    operator = SparseOperator(L, shift=1 / n, bounds=(0, 2), null_space=root)
    assert operator.is_expander
    found = operator.solve(0.0, B, rtol=rtol)
    assert found.method == "cg"
    assert found.residual <= rtol
    direct = operator.factorised(0.0).solve(B)
    # |x - y| <= |Q^-1| |residual|, and beyond the known vector |Q^-1| = 1 / the second eigenvalue.
    gap = operator.smallest_eigenpairs(2).values[1]
    size = np.linalg.norm(B, axis=0).max()
    assert np.linalg.norm(found.x - direct, axis=0).max() <= 2 * rtol * size / gap


def test_plain_conjugate_gradients_that_do_not_end_soon_are_given_up(monkeypatch, rng):
    monkeypatch.setattr(sparse_module, "SHORT_RUN", 2)
    L, root = blobs(4000)
    operator = SparseOperator(L, shift=1e-4, bounds=(0, 2), null_space=root)
    found = operator.solve(0.0, rng.standard_normal(4000))
    assert found.method == "two-level"
    assert found.residual < 1e-7


def test_nothing_is_factorised_to_see_an_expander(monkeypatch):
    def refused(A):
        raise AssertionError("no factors are needed")

    L = blobs(20_000)[0]
    with monkeypatch.context() as patch:
        patch.setattr(sparse_module, "factorise", refused)
        assert sparse_module.predicted_fill(L, enough=15.0) > 15
        assert sparse_module.is_expander(L)
        assert not sparse_module.is_expander(moons(20_000)[0])
    assert sparse_module.predicted_fill(moons(20_000)[0], enough=15.0) < 15


def test_a_ball_goes_on_in_the_next_component():
    L = sparse.csr_matrix(sparse.block_diag([moons(300)[0]] * 10))
    ball = sparse_module._ball_around(L, 2999, 2000)
    assert np.unique(ball).size == 2000
    assert 0.95 < sparse_module._share_inside(L, ball) <= 1.0


@pytest.mark.parametrize("known", [True, False])
def test_the_order_of_rows_changes_nothing(monkeypatch, rng, known):
    L, root = moons(5000)
    scattered = rng.permutation(5000)
    L, root = sparse.csr_matrix(L[scattered][:, scattered]), root[scattered] if known else None
    B = rng.standard_normal((5000, 2))

    def answers():
        operator = SparseOperator(L, shift=1 / 5000, bounds=(0, 2), null_space=root)
        solution, pairs = operator.solve(0.0, B), operator.smallest_eigenpairs(3)
        return operator, solution, pairs

    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 1000)
    there, expected, expected_pairs = answers()
    assert there.local is None
    monkeypatch.setattr(sparse_module, "REORDERED_FROM", 1000)
    operator, solution, pairs = answers()
    order, local = operator.local
    bandwidth = np.abs(np.subtract(*local.matrix.nonzero())).max()
    assert bandwidth < 1000 < np.abs(np.subtract(*L.nonzero())).max()
    assert (local.matrix != L[order][:, order]).nnz == 0
    assert solution.method == expected.method == "two-level"
    scale = abs(expected.x).max()
    np.testing.assert_allclose(solution.x, expected.x, atol=1e-5 * scale)
    assert solution.residual < 1e-7
    np.testing.assert_allclose(pairs.values, expected_pairs.values, atol=1e-9)
    assert pairs.residuals.max() < 4e-6
    again = pickle.loads(pickle.dumps(operator)).solve(0.0, B)
    np.testing.assert_array_equal(again.x, solution.x)


def test_labels_and_graph_do_not_depend_on_the_order_inside(monkeypatch):
    X, _ = make_two_moons(3000, noise=0.1, random_state=0)
    W, expected = density_scaling_similarity(X), SoftLabelMVC().fit(X)
    monkeypatch.setattr(density_scaling, "REORDERED_FROM", 100)
    monkeypatch.setattr(sparse_module, "REORDERED_FROM", 100)
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 100)
    again = density_scaling_similarity(X)
    np.testing.assert_array_equal(again.indices, W.indices)
    np.testing.assert_allclose(again.data, W.data, rtol=1e-12)
    assert (again != again.T).nnz == 0
    model = SoftLabelMVC().fit(X)
    assert np.mean(model.labels_ != expected.labels_) <= 0.002  # tolerance of convergence
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    assert model.result_.check(model.problem_).residuals["stationarity"] < 1e-6
