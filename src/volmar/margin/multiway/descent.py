"""Descent for k clusters: weights and offsets from the start, then the margin engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.guide import Guide
from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.sample import first_sample
from volmar.margin.feature_space.space import VectorSpace
from volmar.margin.multiway.cluster_sizes import shares_of_clusters, sized_labels
from volmar.margin.multiway.problem import MultiwayHinge, MultiwayMarginProblem
from volmar.rows import column_products, row_wise, sums_by_label, weighted_quantile
from volmar.solvers import Status


def balanced_weights(labels: Any, weights: Any, sizes: NDArray) -> Any:
    """Return weights that give every cluster the weight 1/k, and keep proportions within it.

    A cluster much smaller than the others has little influence in a sum over all rows. The hinge
    would give it up: 1/C of all rows may be inside the margin, and the cluster has fewer rows.
    `sizes` are the weighted sizes of the k clusters.
    """
    each = 1.0 if weights is None else weights
    return row_wise(share_of_cluster, labels, each, 1.0 / (sizes.size * sizes))


@dataclass(frozen=True)
class NearestMean:
    r"""The nearest-mean rule with scores :math:`\langle \mu_p, z \rangle - \frac12 \|\mu_p\|^2`.

    `offsets` are :math:`-\frac12 \|\mu_p\|^2` minus their mean, `margins` are the leads of the
    score of each row's own cluster over the others, and `shares` are the p_i.
    """

    labels: Any
    offsets: NDArray
    margins: Any
    shares: Any

    @classmethod
    def of(
        cls,
        space: VectorSpace,
        labels: Any,
        k: int,
        min_share: float = 0.0,
        size_shares: Any = None,
    ) -> NearestMean:
        """Return the rule of given labels, in two passes.

        If a cluster has less than the minimum share, the labels are replaced by those of the rule
        with the offsets of `sized_labels`, which are added to `offsets`. If there are no such
        offsets, the labels stay.
        """
        p = space.full(1.0 / space.n_rows) if space.shares is None else space.shares

        def sizes_of() -> tuple[NDArray, NDArray]:
            return sums_by_label(labels, p, k), shares_of_clusters(labels, k, size_shares)

        sizes, shares = space.in_one_pass(sizes_of)
        v = row_wise(coefficients_of_mean, labels, p, 1.0 / sizes, space.dtype.str)
        means = space.in_one_pass(lambda: space.vector(v))
        f = space.scores(means).astype(np.float64, copy=False)
        offsets = -0.5 * column_products(v, f)
        f += offsets
        if shares.min() < min_share:
            sized = sized_labels(f, size_shares, min_share)
            if sized is not None:
                labels = sized.labels
                f, offsets = f + sized.offsets, offsets + sized.offsets
        return cls(labels, offsets - offsets.mean(), row_wise(lead_of_cluster, f, labels), p)

    def in_margins(self, C: float) -> NDArray:
        """Return the offsets in units of the margin of the rule at C.

        J is minimal in rho if 1/C of the rows are inside the margin. The offsets are 0 if that
        many rows are on the wrong side.
        """
        rho = weighted_quantile(self.margins, self.shares, 1.0 / C)
        return self.offsets / rho if rho > 0 else np.zeros_like(self.offsets)


# ------------------------------------------------------------------ functions of each row


def share_of_cluster(labels: NDArray, weights: NDArray | float, factors: NDArray) -> NDArray:
    """Return the weight of each row times the factor of its cluster."""
    return weights * factors[labels]


def coefficients_of_mean(
    labels: NDArray, shares: NDArray, factors: NDArray, dtype: str
) -> NDArray:
    """Return the share of each row in the mean of its cluster, shape (n, k)."""
    v = np.zeros((labels.size, factors.size), dtype=dtype)
    v[np.arange(labels.size), labels] = shares * factors[labels]
    return v


def lead_of_cluster(f: NDArray, labels: NDArray) -> NDArray:
    """Return the lead of the score of each row's own cluster over the others."""
    rows = np.arange(labels.size)
    others = f.copy()
    others[rows, labels] = -np.inf
    return f[rows, labels] - others.max(axis=1)


def weighted_scores(f: NDArray, shares: NDArray) -> NDArray:
    """Return the scores of each row times its share."""
    return f * shares[:, None]


def maximise_margins(
    space: VectorSpace,
    labels: Any,
    k: int,
    *,
    C: float,
    path: Sequence[float] = (),
    min_share: float = 0.0,
    size_shares: Any = None,
    tol: float = 1e-2,
    max_iter: int = 1000,
    seed: int | None = None,
    guide: Guide | None = None,
) -> MarginResult:
    """Find k clusters (at least 3) whose maximum margin hyperplanes give the same labels again.

    The offsets of the scores are those of the nearest-mean rule of the start, in units of the
    margin at each C of `path`. The descent is `maximise_margin` on `MultiwayMarginProblem`. All of
    the labels 0 to k - 1 must be present. The scores and t of the result, which determine the
    labels, are relative to the mean of the rows weighted by `size_shares`. If the labels of a
    smaller C have no margin at C, the result is that of the smaller C, with the status DEGENERATE.
    If `seed` is given and there are many rows, the descent starts from the result of a sample
    (`first_sample`).

    With a `guide` only allowed labels are used; `labels` must be allowed.
    """
    rule = NearestMean.of(space, labels, k, min_share, size_shares)
    labels = rule.labels

    problems = [
        MultiwayMarginProblem(
            space,
            MultiwayHinge(rule.in_margins(value), space.shares),
            min_share=min_share,
            size_shares=size_shares,
            min_m=1.0 / value,
            guide=guide,
        )
        for value in [*sorted(value for value in path if value < C), C]
    ]
    best, offsets, n_iter, n_passes = None, np.zeros(k), 0, 2
    sample = None if seed is None else first_sample(problems[-1], labels, seed, k)
    if sample is not None:
        *before, last = problems
        for problem in before:
            few = problem.on(sample.problem.space, sample.chosen)
            found = maximise_margin(few, sample.labels, C=1.0 / few.min_m, tol=tol)
            if found.labels.size:
                sample = sample._replace(labels=found.labels)
            n_iter += found.n_iter
        problems = [last]
    for problem in problems:
        result = maximise_margin(
            problem,
            labels,
            C=1.0 / problem.min_m,
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
    if size_shares is None:
        mean = plain.mean(axis=0)
    else:
        mean = row_wise(weighted_scores, plain, size_shares).sum(axis=0)
    scores = plain + best.t.astype(plain.dtype)
    return replace(
        best,
        status=result.status,
        n_iter=n_iter,
        n_passes=n_passes,
        scores=scores,
        t=best.t + mean,
    )
