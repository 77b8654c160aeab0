"""Last step of MSPC: move its hyperplane to a nearby minimum of the density."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base.row_density import row_density
from volmar.base.validation import check_choice
from volmar.evidence import hump_test
from volmar.metrics.separation_bound import probability
from volmar.separation.bound import bound
from volmar.separation.gep import RegularizedCorrelation, SeparationResult, mean_difference
from volmar.separation.problem import SeparationRows
from volmar.separation.starts import StartRows, start_rows
from volmar.separation.two_groups import both_sides, mean_differences
from volmar.solvers.hyperplane_density import HyperplaneDensity
from volmar.solvers.minimum_density import MinimumDensityResult, descend

# Significance level at which both halves of the rows must show a gap.
LEVEL = 0.01
# Distance beyond the cut up to which the density is searched, in standard deviations.
SLACK = 0.1
# Maximum share of the smaller side that may change sides; beyond it the split is another one.
NEAR = 0.2
# Minimum regularisation, because the correlation matrix of half of the rows may be singular.
MIN_REG = 1e-3
# End of the descent.
MAX_ITER, TOL = 200, 1e-6


def check_polish(model: Any) -> None:
    """Raise an error for an unknown `polish`, or for parameters that exclude it."""
    if model.polish is None:
        return
    check_choice("polish", model.polish, ["density"])
    for name, without in (("mode", "paper"), ("multiway", "pairwise")):
        if getattr(model, name) == without:
            raise ValueError(
                f"polish={model.polish!r} cannot be combined with {name}={without!r}. Leave out "
                "one of the two."
            )


def polished(
    polish: str | None, rows: SeparationRows, result: SeparationResult, seed: int
) -> SeparationResult:
    """Return the minimum density hyperplane near that of a result, or the result itself.

    The result is unchanged if `polish` is None, or if held-out rows show no gap along its
    direction (`has_gap`). It is also unchanged if the new hyperplane has no deeper valley, leaves
    less than the minimum weight on a side, or is a different split: more than a fifth of the
    smaller side has changed sides. The bound is computed again for the new labels; `residuals` are
    those of the density.
    """
    if polish is None or not has_gap(rows, result, seed):
        return result
    z, unit_length = rows.z, float(np.linalg.norm(result.w))
    problem, unit = row_density(z, 0.0)
    start = result.w / unit_length
    before = problem.projections(start)
    threshold = result.threshold / (unit_length * unit)
    offset = abs(threshold) / problem.deviation(before) + SLACK
    problem = replace(problem, offset=offset)
    found = descend(problem, start, max_iter=MAX_ITER, tol=TOL)
    is_deeper = found.relative_depth > problem.relative_depth(before, threshold)
    old, new = before > threshold, found.labels
    smaller, smaller_now = (_smaller(problem.shares @ labels) for labels in (old, new))
    moved = float(problem.shares @ (old != new))
    if not is_deeper or smaller_now < rows.min_share or moved > NEAR * smaller:
        return result
    return _separation(rows, result, found, problem, unit)


def has_gap(rows: SeparationRows, result: SeparationResult, seed: int) -> bool:
    """Return whether held-out rows have more than one mode along the direction of a result.

    With many features, the rows of the fit would always show a gap. Therefore the direction is
    estimated from one half of a sample, by the labels of the result, and tested on the other half
    (`volmar.evidence.hump_test`), and vice versa. Both tests must show a gap.
    """
    rng = np.random.default_rng(seed)
    sample, chosen = start_rows(rows.X, rows.z, rng)
    labels = sample.Z @ result.w.astype(sample.Z.dtype) > result.threshold
    numbers, copies = np.unique(chosen, return_inverse=True)
    is_first = rng.permutation(numbers.size) < numbers.size // 2
    first = is_first[copies]  # copies of a row go to the same half
    return all(
        _p_value(sample, labels, learn, max(result.reg, MIN_REG), rng) <= LEVEL
        for learn in (first, ~first)
    )


def _smaller(share: float) -> float:
    return float(min(share, 1.0 - share))


def _p_value(
    sample: StartRows, labels: NDArray, learn: NDArray, reg: float, rng: np.random.Generator
) -> float:
    """Return the p-value of unimodality of the held-out rows along a direction.

    The direction is that of the `learn` rows and their labels.
    """
    Z, sides = sample.Z[learn], labels[learn][:, None]
    if not both_sides(sides).all():
        return 1.0
    Z = Z - Z.mean(axis=0)
    correlation = np.asarray(Z.T @ Z, dtype=np.float64) / len(Z)
    w = RegularizedCorrelation(correlation, reg).solve(mean_differences(Z, sides))
    projections = sample.dithered[~learn] @ w[:, 0].astype(Z.dtype)
    return hump_test(projections.astype(np.float64), rng).p_value


def _separation(
    rows: SeparationRows,
    before: SeparationResult,
    found: MinimumDensityResult,
    problem: HyperplaneDensity,
    unit: float,
) -> SeparationResult:
    """Convert a minimum density hyperplane to a result of MSPC, with the bound of its labels."""
    z = rows.z
    w, threshold = found.normal, found.threshold * unit
    labels = z.scores(w) > threshold
    difference = mean_difference(z, labels)
    share = float(problem.shares @ labels)
    explained = share * (1 - share) * difference @ rows.with_reg(before.reg).solve(difference)
    kappa2 = float(bound(np.array(explained), np.array(share)))
    return replace(
        before,
        objective=-kappa2,
        residuals=found.residuals,
        status=found.status,
        n_iter=before.n_iter + found.n_iter,
        history=(*before.history, -kappa2),
        labels=labels,
        w=w,
        threshold=threshold,
        lower_bound=probability(kappa2),
    )
