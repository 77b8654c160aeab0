"""Fits of the margin estimators with labels of some rows, links and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base.guided import GuidedMixin
from volmar.base.guided_tree import grow_guided_tree
from volmar.base.recursion import RecursiveResult
from volmar.guidance.guide import Guide, Placement
from volmar.guidance.starts import aligned_labels
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.guided_labels import has_limits
from volmar.margin.engine.start_search import Origin
from volmar.margin.engine.unequal_sizes import HALVES

# A start counts as the clusters found without a guide if it differs from them in at most this
# share of the rows.
SAME = 0.02
# Default C of a fit from labels that spread from the given ones, if these have a margin at it. At
# the usual default half of the rows are inside the margin, and the fit would return to the
# clusters found without a guide.
SEEDED_C = 10.0


class GuidedMarginMixin(GuidedMixin):
    """A clusterer on the margin engine that takes labels of some rows, links and sizes."""

    C: Any
    gamma: Any
    mode: str
    n_clusters: Any
    result_: Any
    tree_: Any
    _guide: Guide | None
    _origin: Origin | None

    @property
    def _keeps_minimum(self) -> bool:
        """Whether the method itself handles a `min_cluster_size` that is a single number."""
        return self._is_joint()  # type: ignore[attr-defined]

    def _fit_guided(self, *args: Any) -> Any:
        if self.mode == "paper":
            raise ValueError(
                f"mode='paper' of {type(self).__name__} accepts no labels of rows, links or size "
                "limits. Use mode='default', or leave these out."
            )
        try:
            found = super()._fit_guided(*args)
        finally:
            self._forget_start()
        if hasattr(self, "tree_"):
            self.tree_.feature_names = getattr(self, "feature_names_in_", None)
        return found

    def _guided_params(self, free: Any, /) -> dict[str, Any]:
        params = super()._guided_params(free)  # type: ignore[misc]
        is_tree = isinstance(getattr(free, "result_", None), RecursiveResult)
        if is_tree and "multiway" in self.get_params(deep=False):  # type: ignore[attr-defined]
            params["multiway"] = "recursive"
        return params

    def _begin_at(self, start: NDArray, free: Any) -> None:
        if free is None:
            return
        takes_sizes = C = None
        if _is_same(free.labels_, start, int(self.n_clusters)):
            balance = getattr(free, "balance_", None)
            takes_sizes = None if balance is None else balance != HALVES
        else:
            is_adaptive = self._value_of("threshold") == "adaptive"  # type: ignore[attr-defined]
            C = SEEDED_C if self.C is None and is_adaptive else None
        self._origin = Origin(free.init, takes_sizes, C)
        if self.n_clusters == 2 and isinstance(free.result_, RecursiveResult):
            self._take_width(free.tree_.splits())

    def _take_width(self, splits: list[Any]) -> None:
        """Use the kernel width of the first split if no width was given."""
        is_open = getattr(self, "_is_width_open", None)
        gamma = getattr(splits[0].model, "gamma_", None) if splits else None
        if is_open is not None and is_open() and gamma is not None:
            self.gamma = gamma

    def _forget_start(self) -> None:
        super()._forget_start()
        vars(self).pop("_origin", None)

    def _fit_once(self, X: Any, weights: Any) -> None:
        guide = self._guide
        if guide is None or guide.k == 2 or not self._is_recursive():  # type: ignore[attr-defined]
            super()._fit_once(X, weights)  # type: ignore[misc]
            return
        init = "auto" if self._origin is None else self._origin.init
        grown = grow_guided_tree(self, X, weights, self.init, guide, init=init)
        self.tree_, result = grown
        self._set_result(result)  # type: ignore[attr-defined]

    def _placed_rows(self, X: Any, guide: Guide) -> Placement:
        if has_limits(guide) or not isinstance(self.result_, MarginResult):
            return super()._placed_rows(X, guide)
        # The certificate holds for the labels of the descent.
        labels = self.result_.labels
        of_pairs = labels[guide.apart]
        broken = guide.apart[of_pairs[:, 0] == of_pairs[:, 1]]
        return Placement(labels, np.zeros(guide.k), broken)


def _is_same(labels: NDArray, others: NDArray, k: int) -> bool:
    """Return whether two labellings are nearly the same up to the numbering of clusters."""
    if labels.max() >= k or others.max() >= k:
        return False
    return bool(np.mean(aligned_labels(labels, others, k) != others) <= SAME)
