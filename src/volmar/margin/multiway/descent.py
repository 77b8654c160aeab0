"""The descent to k clusters: weights and offsets of the start, then the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.sample import first_sample
from volmar.margin.feature_space.space import VectorSpace
from volmar.margin.multiway.cluster_sizes import shares_of_clusters, size_prices
from volmar.margin.multiway.problem import MultiwayHinge, MultiwayMarginProblem
from volmar.solvers import Status


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

        J is minimal in rho where 1/C of the rows are inside the margin. The offsets are 0 where
        that many are on the wrong side.
        """
        order = np.argsort(self.margins)
        total = np.cumsum(self.shares[order])
        at = min(int(np.searchsorted(total, 1.0 / C)), order.size - 1)
        rho = float(self.margins[order[at]])
        return self.offsets / rho if rho > 0 else np.zeros_like(self.offsets)


def maximise_margins(
    space: VectorSpace,
    labels: NDArray,
    k: int,
    *,
    C: float,
    path: Sequence[float] = (),
    min_share: float = 0.0,
    size_shares: NDArray | None = None,
    tol: float = 1e-2,
    max_iter: int = 1000,
    seed: int | None = None,
) -> MarginResult:
    """Find k clusters (at least 3) that their own widest margins cannot improve.

    The offsets of the scores are those of the rule of the nearest mean of the start, in units of
    the margin at each C of `path`; the descent is that of `maximise_margin` on
    `MultiwayMarginProblem`. All of the labels 0 to k - 1 must be present. The scores and t of the
    result, which labels go by, are about the mean of the rows by `size_shares`. Where C has no
    margin for the labels of a smaller value, it is the result of that, and DEGENERATE. With a
    `seed`, a sample of many rows goes first, and all rows begin where it led to (`first_sample`).
    """
    rule = NearestMean.of(space, labels, k, min_share, size_shares)
    labels = rule.labels

    def problem_at(value: float) -> MultiwayMarginProblem:
        return MultiwayMarginProblem(
            space,
            MultiwayHinge(rule.in_margins(value), space.shares),
            min_share=min_share,
            size_shares=size_shares,
            min_m=1.0 / value,
        )

    values = [*sorted(value for value in path if value < C), C]
    best, offsets, n_iter, n_passes = None, np.zeros(k), 0, 2
    sample = None if seed is None else first_sample(problem_at(C), labels, seed)
    if sample is not None:
        few = sample.labels
        for value in values[:-1]:
            problem = problem_at(value).on(sample.problem.space, sample.chosen)
            found = maximise_margin(problem, few, C=value, tol=tol, max_iter=max_iter)
            few = found.labels if found.labels.size else few
            n_iter += found.n_iter
        sample, values = sample._replace(labels=few), values[-1:]
    for value in values:
        problem = problem_at(value)
        result = maximise_margin(
            problem,
            labels,
            C=value,
            tol=tol,
            max_iter=max(max_iter - n_iter, 1),
            sample=sample,
        )
        n_iter, n_passes = n_iter + result.n_iter, n_passes + result.n_passes
        if result.normal is not None:
            best, labels, offsets = result, result.labels, result.rho * problem.offsets
        if result.status not in (Status.CONVERGED, Status.CYCLE):
            break
    if best is None:
        return replace(result, n_iter=n_iter, n_passes=n_passes)
    plain = best.scores - offsets.astype(best.scores.dtype)
    mean = np.average(plain, axis=0, weights=size_shares)
    scores = plain + best.t.astype(plain.dtype)
    return replace(
        best,
        status=result.status,
        n_iter=n_iter,
        n_passes=n_passes,
        scores=scores,
        t=best.t + mean,
    )
