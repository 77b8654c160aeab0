"""Soft-label maximum volume clustering with known labels, links between rows and size limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base.guided import GuidedUnweightedMixin
from volmar.base.validation import check_start_labels
from volmar.guidance.guide import Guide
from volmar.volume.multiway import MultiwayProblem, MultiwayVolumeResult
from volmar.volume.refinement import Allowed
from volmar.volume.starts import given_start
from volmar.volume.two_way import TwoWayProblem, VolumeResult

__all__ = ["GuidedVolume", "seed_weights"]

JOINT = (VolumeResult, MultiwayVolumeResult)


def seed_weights(seeds: NDArray) -> NDArray:
    """Return row weights: 1 for ordinary rows, and a total of n for the seeds.

    As in `spread_labels`, all classes have the same total weight, regardless of their number of
    seeds. The weight of a seed is at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.volume.guided import seed_weights
    >>> seed_weights(np.array([0, -1, -1, 1, 1, -1, -1, -1]))
    array([4., 1., 1., 2., 2., 1., 1., 1.])
    """
    known = seeds >= 0
    weights = np.ones(seeds.size)
    if known.any():
        counts = np.bincount(seeds[known])
        share = seeds.size / np.count_nonzero(counts)
        weights[known] = np.maximum(share / counts[seeds[known]], 1.0)
    return weights


def _is_same_start(free: NDArray, start: NDArray, guide: Guide) -> bool:
    """Return whether a start equals the clusters of the unguided fit, up to renumbering."""
    shared = np.zeros((int(free.max()) + 1, guide.k))
    unknown = guide.seeds < 0
    np.add.at(shared, (free[unknown], start[unknown]), 1)
    renamed = np.argmax(shared, axis=1)[free]
    return np.array_equal(guide.place(np.eye(guide.k)[renamed]).labels, start)


class GuidedVolume(GuidedUnweightedMixin):
    """Guided fits of `SoftLabelMVC`; must precede `Clusterer` in the list of base classes."""

    #: Problem of the unguided fit to the same rows.
    _known: TwoWayProblem | MultiwayProblem | None = None
    #: Whether the start differs from that of the unguided fit.
    _starts_elsewhere = False

    _fitted: Any
    _guide: Any
    field_: Any
    labels_: Any
    mode: str
    result_: Any

    def _fit_guided(self, *args: Any, **kwargs: Any) -> bool:
        if self.mode != "default":
            raise ValueError(
                f"mode={self.mode!r} is the paper's algorithm, which takes no known labels (y), "
                "links or size limits. Use mode='default', or leave them out."
            )
        return super()._fit_guided(*args, **kwargs)

    def _similarities(self, X: Any, free: Any) -> Any:
        if isinstance(free.result_, JOINT):
            return free._fitted.graph.W
        return X if self._is_pairwise() else None  # type: ignore[attr-defined]

    def _reuse(self, free: Any) -> None:
        """Reuse graph and eigenpairs of the unguided fit, and check whether the start differs."""
        known, k = getattr(free, "_fitted", None), self.n_clusters
        kind = TwoWayProblem if k == 2 else MultiwayProblem
        if isinstance(known, kind) and getattr(known, "n_clusters", 2) == k:
            self._known = known
        if self._guide.is_seeded:
            self._starts_elsewhere = not _is_same_start(free.labels_, self.init, self._guide)

    def _known_problem(self) -> TwoWayProblem | MultiwayProblem:
        known, n = self._known, self._guide.seeds.size
        assert known is not None
        del self._known
        if isinstance(known, MultiwayProblem):
            return replace(known, init=check_start_labels("init", self.init, n, self.n_clusters))
        return replace(known, init=given_start(self.init, n, two_sided=True))

    def _allowed(self) -> Allowed | None:
        """Return the labellings that the guide allows; None without a guide."""
        guide = self._guide
        if guide is None:
            return None
        elsewhere = vars(self).pop("_starts_elsewhere", False)  # of this fit, not of the model
        weights = seed_weights(guide.seeds) if elsewhere else None
        anchors = guide.seeds >= 0 if elsewhere else None

        def place(x: NDArray) -> NDArray:
            if guide.k == 2:
                return 2.0 * guide.place_sides(x).labels - 1.0
            return guide.place(x).labels

        return Allowed(place, weights, anchors, has_limits=guide.limits is not None)

    def _problem_of_labels(
        self, problem: TwoWayProblem | MultiwayProblem, labels: NDArray
    ) -> TwoWayProblem | MultiwayProblem:
        """Return the solved problem. For two guided clusters, it has the labels as `sides`."""
        if self._guide is None or isinstance(problem, MultiwayProblem):
            return problem
        return replace(problem, problem=replace(problem.problem, sides=2.0 * labels - 1.0))

    def _training_scores(self, X: Any) -> NDArray:
        if not isinstance(self.result_, JOINT):
            return super()._training_scores(X)
        if not isinstance(self.result_, MultiwayVolumeResult):
            return self.field_
        if np.array_equal(self._guide.place(self.field_).labels, self.labels_):
            return self.field_
        return np.eye(self.n_clusters)[self.labels_]  # a cluster was held, or the start is kept
