"""Starts of soft-label maximum volume clustering: eigenvectors of Q, cut at their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._vectors import check_vector
from volmar.base.validation import check_start_labels
from volmar.operators import EigenPairs
from volmar.volume.problem import signs

# The paper's candidates have eigenvalues within this distance of the second.
WINDOW = 1e-4
MAX_CANDIDATES = 10
# Eigenvalues count as equal if they differ by at most this fraction of their scale.
SAME = 1e-9
# The second and third eigenvalue count as tied if they differ by at most this fraction of the
# distance between the first and the second.
TIED = 1e-3
# Below this number of rows, eigenpairs are computed by LAPACK.
SMALL = 1500
# Deviations from the mean below this fraction of the largest entry are rounding error.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Candidates:
    """Eigenvectors to start from, ordered by eigenvalue from v2 on, without the trivial one."""

    vectors: NDArray
    values: NDArray
    degenerate: bool  # whether v2 is arbitrary: its eigenvalue is tied with the third or the first
    ill_defined: bool = False  # JMLR 8.1: more than ten eigenvalues in the window about the second

    def labels(self, j: int) -> NDArray:
        """Return the signs of candidate j about its mean (JMLR eq. 9, times sqrt(n)).

        Entries that differ from the mean only by rounding are all put on the positive side.
        """
        vector = self.vectors[:, j]
        centred = vector - vector.mean()
        return signs(np.where(np.abs(centred) <= ROUNDING * np.abs(vector).max(), 0.0, centred))


def n_pairs_needed(n: int, n_candidates: int | None, *, with_next: bool = False) -> int:
    """Return the number of eigenpairs to compute: the trivial one and the candidates.

    One more eigenpair shows whether the last candidate is tied. It is included in three cases:
    LAPACK computes it anyway; the paper's rule needs it to find the last candidate; or `with_next`
    is set, because quadratic programs need three eigenvalues to detect whether they have a
    minimum.
    """
    if n_candidates is None:
        return min(n, 2 + MAX_CANDIDATES)
    return min(n, 1 + n_candidates + (n < SMALL or with_next))


def is_tied(values: NDArray, n_used: int = 2) -> bool:
    """Return whether the last eigenvalue in use and the next are too close to separate.

    With two in use, the second and third are then so close that v2 is arbitrary.
    """
    spread = values[n_used - 1] - values[0]
    smallest = SAME * max(abs(values[-1]), np.finfo(float).tiny)
    return bool(values[n_used] - values[n_used - 1] <= TIED * max(spread, smallest))


def candidates(
    pairs: EigenPairs, *, trivial: NDArray | None = None, n_candidates: int | None = None
) -> Candidates:
    r"""Pick starts from the smallest eigenpairs of Q, `n_pairs_needed` in number.

    `trivial` is an eigenvector of the smallest eigenvalue that carries no information about
    clusters (the square roots of the degrees, for a normalised Laplacian). If that eigenvalue is
    repeated (a disconnected graph), the eigenvectors are rotated so that `trivial` is the first.
    With two components, v2 then separates them, regardless of the computed basis. `n_candidates`
    counts from v2 on. If None, the paper's rule is used,
    :math:`|\lambda_i - \lambda_2| < 10^{-4}`, with at most the ten nearest, and Q is "ill-defined"
    if there are more.

    As printed, the rule includes v1 if :math:`\lambda_2 - \lambda_1 < 10^{-4}`. Here v1 counts
    towards "ill-defined" but is never a start: v1 of a normalised Laplacian, the square roots of
    the degrees, separates rows with many edges from rows with few, independently of the clusters.
    """
    values, vectors = pairs.values, pairs.vectors
    scale = max(abs(values[-1]), np.finfo(float).tiny)
    n_lowest = int(np.sum(values - values[0] <= SAME * scale))
    turned = trivial is not None and n_lowest > 1
    if trivial is not None and n_lowest > 1:
        vectors = vectors.copy()
        vectors[:, :n_lowest] = _trivial_first(vectors[:, :n_lowest], trivial)
    if values.size == 1:
        raise ValueError(
            "a start needs at least two eigenpairs of Q, but Q has one row. Use more rows."
        )
    ill_defined = False
    if n_candidates is None:
        window = np.flatnonzero(np.abs(values - values[1]) < WINDOW)
        ill_defined = window.size > MAX_CANDIDATES
        near = window[window > 0][:MAX_CANDIDATES]
    else:
        near = np.arange(1, min(1 + n_candidates, values.size))
    tied_below = n_lowest > 1 and not turned
    tied_above = values.size > 2 and is_tied(values)
    return Candidates(vectors[:, near], values[near], tied_below or tied_above, ill_defined)


def given_start(init: Any, n: int, *, two_sided: bool) -> NDArray:
    """Return the soft responses h0, of norm 1, of the parameter `init`.

    An `init` with two distinct values holds labels, of which the larger is the positive side. Any
    other `init` holds soft responses, which need both signs if `two_sided`.
    """
    given = np.asarray(init)
    if given.shape == (n,) and (given.dtype.kind in "OSU" or np.unique(given).size == 2):
        return (2.0 * check_start_labels("init", init, n, 2) - 1.0) / np.sqrt(n)
    soft = check_vector("init", init, n)
    sides = signs(soft) if two_sided else soft
    if np.ptp(sides) == 0:
        raise ValueError(
            "init must hold labels of two clusters or soft responses "
            + ("of both signs" if two_sided else "that differ")
            + f", got {n} entries from {soft.min():.3g} to {soft.max():.3g}."
        )
    soft = soft / np.abs(soft).max()  # squares of tiny or huge entries would under- or overflow
    return soft / np.linalg.norm(soft)


def _trivial_first(block: NDArray, trivial: NDArray) -> NDArray:
    """Rotate an orthonormal basis so that its first vector is the projection of `trivial`."""
    along = block.T @ trivial
    if not np.linalg.norm(along) > 0:
        return block
    rotation = np.linalg.qr(np.column_stack([along, np.eye(along.size)]))[0]
    return block @ rotation
