"""Choice of the start of a fit: the best of several labellings, with equal or unequal sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.losses import HingeLoss
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.engine.starts import best_start, k_means_start, principal_start, random_start
from volmar.margin.engine.unequal_sizes import (
    SCREENING_C,
    SCREENING_TOL,
    are_unequal,
    unequal_start,
)
from volmar.margin.feature_space.space import FeatureSpace
from volmar.rows import drawn_rows, is_in_memory

# Maximum number of rows on which starts are compared.
SAMPLE = 2000


class Start(NamedTuple):
    """Labels to start from, and whether sides of their sizes count as balanced."""

    labels: Any
    is_unequal: bool = False


class Way(NamedTuple):
    """A value of C, and the smaller values to solve for first."""

    C: float
    path: list[float]


class Origin(NamedTuple):
    """Where the start of a guided fit comes from.

    Attributes
    ----------
    init : str
        Start of the fit without a guide.
    takes_sizes : bool or None
        Whether sides of the sizes of the start count as balanced. If None, they do if they are
        unequal.
    C : float or None
        Weight of margin errors if the start differs from the clusters found without a guide.
    """

    init: Any
    takes_sizes: bool | None
    C: float | None


class _Sample(NamedTuple):
    """Rows on which starts are compared, their weights and their indices (None for all rows)."""

    space: FeatureSpace
    weights: NDArray | None
    chosen: NDArray | None = None


@dataclass(frozen=True)
class StartSearch:
    """The choice of a start. Starts are compared by J at a small C, with equal halves.

    `tau` is the half width of the balance box, in units of the margin if `is_relative`. With
    `takes_sizes`, sides of the sizes of the start may count as balanced (see `unequal_start`).
    """

    space: FeatureSpace
    weights: Any
    seed: int
    tau: float
    is_relative: bool
    takes_sizes: bool

    def best(self, kinds: Sequence[str]) -> Start | None:
        """Return the best of several starts of the kinds "k-means" and "random".

        Starts with meaningful sizes, such as k-means, are also tried with these sizes. Return None
        if no hyperplane has rows on both sides and k-means of all rows is not possible.
        """
        sample = self._sample()
        candidates = self.candidates(kinds, sample)
        is_alone = len(candidates) == 1 and sample.space is self.space
        if is_alone and not self.takes_sizes:
            return Start(candidates[0])
        best, of = self._screened(sample, candidates), sample.space
        unequal = None
        if self.takes_sizes:
            informed = [c for c, kind in zip(candidates, kinds, strict=True) if kind != "random"]
            if not informed and best.normal is not None:
                informed = [best.labels]
            for labels in informed:
                found = unequal_start(sample.space, labels, sample.weights, best)
                if found is not None:
                    unequal, (best, of) = found, found
        if best.normal is None:
            is_here = is_in_memory(self.space.start_rows())
            return Start(self.candidates(kinds[:1])[0]) if is_here else None
        if is_alone and unequal is None:
            return Start(candidates[0])
        labels = best.labels
        if sample.space is not self.space:
            score = of.hyperplane(best.normal, best.rho, best.t)
            labels = score(self.space.start_rows()) > 0
        return Start(labels, unequal is not None)

    def plain(self, kind: str) -> NDArray:
        """Return labels without a descent: those of k-means, or a random half of the rows.

        This is how the papers' loops start here, for rows in memory. The papers do not specify
        their start; "auto" is k-means.
        """
        if kind == "random":
            return np.random.default_rng(self.seed).permutation(np.arange(self.space.n_rows) % 2)
        return self.candidates(["k-means"])[0]

    def given(self, labels: Any, *, keeps_sizes: bool) -> Start:
        """Return given labels; with `keeps_sizes` unequal sides need not have a wider margin."""
        if not self.takes_sizes:
            return Start(labels)
        if keeps_sizes:
            return Start(labels, are_unequal(labels, self.weights))
        sample = self._sample()
        few = labels if sample.chosen is None else labels[sample.chosen]
        even = self._screened(sample, [few])
        found = unequal_start(sample.space, few, sample.weights, even)
        return Start(labels, found is not None)

    def candidates(self, kinds: Sequence[str], of: _Sample | None = None) -> list[NDArray]:
        """Return a labelling of each kind; "k-means" without rows is `principal_start`."""
        space, weights, _ = _Sample(self.space, self.weights) if of is None else of
        rng = np.random.default_rng(self.seed)
        labels = []
        for kind in kinds:
            if kind == "random":
                labels.append(random_start(space, rng))
            elif space.start_rows() is None:
                labels.append(principal_start(space, rng))
            else:
                labels.append(k_means_start(space.start_rows(), weights, self.seed))
        return labels

    def _screened(self, sample: _Sample, candidates: list[NDArray]) -> MarginResult:
        problem = MarginProblem(
            sample.space,
            HingeLoss(sample.space.shares),
            tau=self.tau,
            balance="relative" if self.is_relative else "absolute",
        )
        C = SCREENING_C / (1.0 - min(self.tau, 0.99)) if self.is_relative else SCREENING_C
        return best_start(problem, candidates, C=C, tol=SCREENING_TOL)

    def _sample(self) -> _Sample:
        """Return the rows on which starts are compared: a sample, or all rows if there are few."""
        chosen = drawn_rows(
            self.space.n_rows, self.weights, SAMPLE, np.random.default_rng(self.seed)
        )
        part = self.space.sampled(chosen)
        if part is None or part is self.space:
            return _Sample(self.space, self.weights)
        return _Sample(part, None if self.weights is None else self.weights[chosen], chosen)
