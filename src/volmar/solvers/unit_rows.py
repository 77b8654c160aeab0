"""Minimisation over matrices V with unit rows, the factors of correlation matrices VV'."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize


def unit_rows(U: NDArray) -> NDArray:
    """Scale rows to unit length; a zero row becomes constant."""
    norms = np.linalg.norm(U, axis=1, keepdims=True)
    return np.divide(U, norms, out=np.full_like(U, 1 / np.sqrt(U.shape[1])), where=norms > 0)


def minimise_over_unit_rows(
    value_and_gradient: Callable[[NDArray], tuple[float, NDArray]], V: NDArray, max_iter: int
) -> tuple[NDArray, int]:
    """Run L-BFGS from V, normalising rows on the way in; return the end and the iterations."""
    shape = V.shape

    def of_unit_rows(flat: NDArray) -> tuple[float, NDArray]:
        U = flat.reshape(shape)
        norms = np.linalg.norm(U, axis=1, keepdims=True)
        W = U / norms
        value, gradient = value_and_gradient(W)
        gradient -= W * np.einsum("ij,ij->i", W, gradient)[:, None]
        return value, (gradient / norms).ravel()

    options = {
        "maxiter": max_iter,
        "maxfun": 2 * max_iter + 20,
        "maxcor": 20,
        "ftol": 1e-16,
        "gtol": 1e-10,
    }
    found = minimize(of_unit_rows, V.ravel(), jac=True, method="L-BFGS-B", options=options)
    return unit_rows(found.x.reshape(shape)), int(found.nit)
