"""MSPC-EIG: the relaxation, which is the first principal component of standardised rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar._checks import fix_signs
from volmar.rows import Standardized
from volmar.separation.gep import SeparationResult
from volmar.solvers import Status


def separation_eig(z: Standardized, *, unscaled: bool = False) -> SeparationResult:
    """Cut the first principal component of the standardised rows at zero (Theorem 3).

    The relaxed q of MSPC eq. 6 is the leading left singular vector of X Lambda^-1/2 for *every*
    reg > 0, because s / (s + reg) grows with s: the regularisation has no effect, and q is the
    first principal component of the standardised rows. It costs one eigenvector of the
    correlation matrix.

    Parameters
    ----------
    z : Standardized
        The rows.
    unscaled : bool, default=False
        Threshold XX'q as the paper did instead of q. The paper takes it for the same; it is not,
        and it depends on the features' scales.
    """
    p = z.kept.size
    values, vectors = linalg.eigh(z.correlation, subset_by_index=(max(p - 2, 0), p - 1))
    w: NDArray = fix_signs(vectors[:, -1])
    if unscaled:
        q = z.scores(w)
        v = q if z.rows.weights is None else z.rows.weights * q
        scale = z.scale[z.kept]
        # X'q in the features' own units, as a direction of z.
        w = z.combine(v) * scale**2
        w /= np.linalg.norm(w)
    residual = float(np.linalg.norm(z.correlation @ vectors[:, -1] - values[-1] * vectors[:, -1]))
    tied = p > 1 and values[-1] - values[0] < 1e-10 * values[-1]
    return SeparationResult(
        objective=-float(values[-1]),
        residuals={"eigenvector": residual},
        status=Status.DEGENERATE if tied else Status.CONVERGED,
        n_iter=1,
        history=(-float(values[-1]),),
        labels=z.scores(w) > 0,
        w=w,
        threshold=0.0,
    )
