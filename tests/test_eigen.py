"""Eigenpairs and singular values: a fallback if the first routine fails, and no NaN."""

import numpy as np
import pytest
from scipy import linalg

from volmar import MSPC
from volmar._eigen import eigenpairs, eigenvalues, singular_values, thin_svd


@pytest.fixture
def failing(monkeypatch):
    """Make LAPACK's fastest routines fail, as they do on some clusters of eigenvalues."""
    eigh, eigvalsh = linalg.eigh, linalg.eigvalsh

    def fail(*args, **kwargs):
        raise linalg.LinAlgError("Internal Error.")

    def slow(*args, driver=None, **kwargs):
        return eigh(*args, driver=driver, **kwargs) if driver == "ev" else fail()

    monkeypatch.setattr(linalg, "eigh", slow)
    monkeypatch.setattr(linalg, "eigvalsh", fail)
    monkeypatch.setattr(np.linalg, "svd", fail)
    return eigh, eigvalsh


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_another_routine_takes_the_place_of_one_that_fails(rng, failing, scale):
    eigh, _ = failing
    A = rng.standard_normal((8, 5)) * np.sqrt(scale)
    M = A.T @ A
    values, vectors = eigh(M)
    for subset in (None, (1, 3)):
        part = slice(None) if subset is None else slice(1, 4)
        found, axes = eigenpairs(M, subset)
        np.testing.assert_allclose(found, values[part], rtol=1e-9)
        np.testing.assert_allclose(np.abs(axes), np.abs(vectors[:, part]), atol=1e-9)
        np.testing.assert_allclose(eigenvalues(M, subset), values[part], rtol=1e-9)
    U, singular, V = thin_svd(A)
    np.testing.assert_allclose((U * singular) @ V, A, atol=1e-12 * np.sqrt(scale))
    np.testing.assert_allclose(singular_values(A), np.sqrt(values[::-1]), rtol=1e-9)


@pytest.mark.parametrize("call", [eigenpairs, eigenvalues, singular_values, thin_svd])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_out_of_range_are_refused(call, value):
    M = np.eye(4)
    M[1, 2] = M[2, 1] = value
    with pytest.raises(ValueError, match=r"^numbers") as caught:
        call(M)
    assert type(caught.value) is ValueError


@pytest.mark.usefixtures("failing")
def test_a_kernel_of_rows_that_are_all_alike_far_is_clustered(rng):
    assert set(MSPC(kernel="precomputed", random_state=0).fit(np.eye(40)).labels_) == {0, 1}
    X = rng.standard_normal((60, 3))
    assert set(MSPC(kernel="rbf", gamma=1e4, random_state=0).fit(X).labels_) == {0, 1}
