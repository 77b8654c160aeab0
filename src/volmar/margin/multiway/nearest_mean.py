"""What a start of k clusters says before the descent: weights of the rows, and offsets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volmar.margin.feature_space.space import VectorSpace
from volmar.margin.multiway.cluster_sizes import shares_of_clusters, size_prices


def balanced_weights(labels: NDArray, weights: NDArray | None, k: int) -> NDArray:
    """Return weights with which every cluster has the weight 1/k, in proportion inside it.

    A cluster far smaller than the others has little to say in a sum over all rows. The hinge
    would give it up: 1/C of all rows may be inside the margin, and all of its rows are fewer.
    """
    sizes = np.bincount(labels, weights, minlength=k)
    each = np.ones(labels.size) if weights is None else weights
    return each / (k * sizes[labels])


@dataclass(frozen=True)
class NearestMean:
    r"""The rule of the nearest mean, :math:`\langle \mu_p, z \rangle - \frac12 \|\mu_p\|^2`.

    `offsets` are :math:`-\frac12 \|\mu_p\|^2` less their mean, `margins` by how much the score of
    a row's own cluster is above the others', and `shares` the p_i.
    """

    labels: NDArray
    offsets: NDArray
    margins: NDArray
    shares: NDArray

    @classmethod
    def of(
        cls,
        space: VectorSpace,
        labels: NDArray,
        k: int,
        min_share: float = 0.0,
        size_shares: NDArray | None = None,
    ) -> NearestMean:
        """Return the rule of given labels: two passes.

        Where a cluster has less than the minimum share, the labels are those of the rule with the
        offsets of `size_prices`, which are then part of its own. Without a solution they stay.
        """
        n = labels.size
        rows = np.arange(n)
        p = np.full(n, 1.0 / n) if space.shares is None else space.shares
        sizes = np.bincount(labels, p, minlength=k)
        v = np.zeros((n, k), dtype=space.dtype)
        v[rows, labels] = p / sizes[labels]
        f = space.scores(space.vector(v)).astype(np.float64, copy=False)
        offsets = -0.5 * np.einsum("ij,ij->j", v, f)
        f += offsets
        if shares_of_clusters(labels, k, size_shares).min() < min_share:
            b = size_prices(f, size_shares, min_share)
            if b is not None:
                f, offsets = f + b, offsets + b
                labels = np.argmax(f, axis=1)
        own = f[rows, labels]
        f[rows, labels] = -np.inf
        return cls(labels, offsets - offsets.mean(), own - f.max(axis=1), p)

    def in_margins(self, C: float) -> NDArray:
        """Return the offsets in units of the margin that the rule has at C.

        J is least in rho where 1/C of the rows are inside the margin. The offsets are 0 where
        that many are on the wrong side.
        """
        order = np.argsort(self.margins)
        total = np.cumsum(self.shares[order])
        at = min(int(np.searchsorted(total, 1.0 / C)), order.size - 1)
        rho = float(self.margins[order[at]])
        return self.offsets / rho if rho > 0 else np.zeros_like(self.offsets)
