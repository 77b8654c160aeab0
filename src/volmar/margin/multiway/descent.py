"""The descent to k clusters: weights and offsets of the start, then the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """Return weights with which every cluster has the weight 1/k, in proportion inside it.

    A cluster far smaller than the others has little to say in a sum over all rows. The hinge
    would give it up: 1/C of all rows may be inside the margin, and all of its rows are fewer.
    `sizes` are those of the k clusters, by the weights.
    """
    each = 1.0 if weights is None else weights
    return row_wise(share_of_cluster, labels, each, 1.0 / (sizes.size * sizes))


@dataclass(frozen=True)
class NearestMean:
    r"""The rule of the nearest mean, :math:`\langle \mu_p, z \rangle - \frac12 \|\mu_p\|^2`.

    `offsets` are :math:`-\frac12 \|\mu_p\|^2` less their mean, `margins` by how much the score of
    a row's own cluster is above the others', and `shares` the p_i.
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
        """Return the rule of given labels: two passes.

        Where a cluster has less than the minimum share, the labels are those of the rule with the
        offsets of `sized_labels`, which are then part of its own. Without a solution they stay.
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
        """Return the offsets in units of the margin that the rule has at C.

        J is minimal in rho where 1/C of the rows are inside the margin. The offsets are 0 where
        that many are on the wrong side.
        """
        rho = weighted_quantile(self.margins, self.shares, 1.0 / C)
        return self.offsets / rho if rho > 0 else np.zeros_like(self.offsets)


# ------------------------------------------------------------------ of each row


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
    """Return by how much the score of a row's own cluster is above the others'."""
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
    loss: Callable[[NDArray], Any] | None = None,
    unit: float = 1.0,
    guide: Guide | None = None,
) -> MarginResult:
    """Find k clusters (at least 3) that their own widest margins cannot improve.

    The offsets of the scores are those of the rule of the nearest mean of the start, in units of
    the margin at each C of `path`; the descent is that of `maximise_margin` on
    `MultiwayMarginProblem`. All of the labels 0 to k - 1 must be present. The scores and t of the
    result, which labels go by, are about the mean of the rows by `size_shares`. Where C has no
    margin for the labels of a smaller value, it is the result of that, and DEGENERATE. With a
    `seed`, a sample of many rows goes first, and all rows begin where it led to (`first_sample`).

    `loss` makes another loss than the hinge of the offsets, whose values are multiplied by `unit`.
    What its search may have missed, its `error`, is part of objective and gap.

    With a `guide` all labels are those that it allows; `labels` must be among these.
    """
    rule = NearestMean.of(space, labels, k, min_share, size_shares)
    labels = rule.labels

    problems = [
        MultiwayMarginProblem(
            space,
            MultiwayHinge(rule.in_margins(value), space.shares)
            if loss is None
            else loss(rule.in_margins(value)),
            min_share=min_share,
            size_shares=size_shares,
            min_m=1.0 / (unit * value),
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
            of = problem
        if result.status not in (Status.CONVERGED, Status.CYCLE):
            break
    if best is None:
        return replace(result, n_iter=n_iter, n_passes=n_passes)
    if loss is not None:
        error = of.loss.error(labels, best.scores, best.rho) / of.min_m  # type: ignore[attr-defined]
        J, gap = best.objective + error, best.gap + error
        residuals = {"relative gap": gap / abs(J) if J else 0.0}
        best = replace(best, objective=J, gap=gap, residuals=residuals)
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
