"""Where soft-label maximum volume clustering starts: eigenvectors of Q, cut at their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._vectors import check_vector
from volmar.base.validation import check_start_labels
from volmar.operators import EigenPairs
from volmar.volume.problem import signs

# The paper's candidates have eigenvalues within this of the second, and there are at most ten.
WINDOW = 1e-4
MOST = 10
# Eigenvalues count as the same below this share of their scale, and the second and third as tied
# below this share of what parts the first and the second.
SAME = 1e-9
TIED = 1e-3
SMALL = 1500
ROUNDING = 1e-12


@dataclass(frozen=True)
class Candidates:
    """Eigenvectors to start from, by eigenvalue, v2 first, the trivial one left out."""

    vectors: NDArray
    values: NDArray
    degenerate: bool  # whether v2 is arbitrary: its eigenvalue is tied with the third or the first
    ill_defined: bool = False  # JMLR 8.1: more than ten eigenvalues in the window about the second

    def labels(self, j: int) -> NDArray:
        """Signs of candidate j about its mean (JMLR eq. 9, times sqrt(n)).

        What differs from the mean by rounding only is on one side with it.
        """
        vector = self.vectors[:, j]
        centred = vector - vector.mean()
        return signs(np.where(np.abs(centred) <= ROUNDING * np.abs(vector).max(), 0.0, centred))


def n_pairs_needed(n: int, n_candidates: int | None, *, with_next: bool = False) -> int:
    """Eigenpairs to ask for: the trivial one and the candidates.

    One more shows whether the last of them is tied. It is asked for where LAPACK computes it
    anyway, by the paper's rule, which needs to see where the candidates end, and `with_next`:
    quadratic programs need three eigenvalues to tell whether they have a minimum.
    """
    if n_candidates is None:
        return min(n, 2 + MOST)
    return min(n, 1 + n_candidates + (n < SMALL or with_next))


def is_tied(values: NDArray, n_used: int = 2) -> bool:
    """Whether the last eigenvalue in use and the next are too close to tell their vectors apart.

    With two in use: whether the second and third are too close for v2 to mean anything.
    """
    spread = values[n_used - 1] - values[0]
    least = SAME * max(abs(values[-1]), np.finfo(float).tiny)
    return bool(values[n_used] - values[n_used - 1] <= TIED * max(spread, least))


def candidates(
    pairs: EigenPairs, *, trivial: NDArray | None = None, n_candidates: int | None = None
) -> Candidates:
    r"""Pick starts from the smallest eigenpairs of Q, as many as `n_pairs_needed` says.

    `trivial` is an eigenvector of the smallest eigenvalue that says nothing about clusters (the
    roots of the degrees, for a normalised Laplacian). Where that eigenvalue is repeated (a graph
    in pieces) the eigenvectors are turned so that this is the first of them: of two components, v2
    then tells one from the other, whatever basis was computed. `n_candidates` counts from v2 on;
    None is the paper's rule, :math:`|\lambda_i - \lambda_2| < 10^{-4}`, at most the ten nearest,
    and Q is "ill-defined" where there are more.

    As printed, the rule takes in v1 where :math:`\lambda_2 - \lambda_1 < 10^{-4}`. It counts there
    for "ill-defined", but is no start: v1 of a normalised Laplacian, the roots of the degrees,
    tells rows of many edges from rows of few, whatever the clusters are.
    """
    values, vectors = pairs.values, pairs.vectors
    scale = max(abs(values[-1]), np.finfo(float).tiny)
    n_lowest = int(np.sum(values - values[0] <= SAME * scale))
    turned = trivial is not None and n_lowest > 1
    if trivial is not None and n_lowest > 1:
        vectors = vectors.copy()
        vectors[:, :n_lowest] = _trivial_first(vectors[:, :n_lowest], trivial)
    if values.size == 1:
        raise ValueError("a start needs two eigenpairs of Q at least, and Q has one row.")
    ill_defined = False
    if n_candidates is None:
        window = np.flatnonzero(np.abs(values - values[1]) < WINDOW)
        ill_defined = window.size > MOST
        near = window[window > 0][:MOST]
    else:
        near = np.arange(1, min(1 + n_candidates, values.size))
    tied_below = n_lowest > 1 and not turned
    tied_above = values.size > 2 and is_tied(values)
    return Candidates(vectors[:, near], values[near], tied_below or tied_above, ill_defined)


def given_start(init: Any, n: int, *, two_sided: bool) -> NDArray:
    """Return the soft responses h0, of norm 1, of an `init` that a user gave.

    Two different values are labels, of which the larger is the positive side; more are soft
    responses, of both signs where it must be `two_sided`.
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
    soft = soft / np.abs(soft).max()  # squares of tiny or huge entries leave the range of floats
    return soft / np.linalg.norm(soft)


def _trivial_first(block: NDArray, trivial: NDArray) -> NDArray:
    """Turn an orthonormal basis so that its first vector is the projection of `trivial`."""
    along = block.T @ trivial
    if not np.linalg.norm(along) > 0:
        return block
    rotation = np.linalg.qr(np.column_stack([along, np.eye(along.size)]))[0]
    return block @ rotation
