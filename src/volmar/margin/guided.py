"""Fits of the margin estimators with labels of some rows, links and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base.guided import GuidedMixin
from volmar.base.guided_tree import grow_guided_tree
from volmar.base.recursion import RecursiveResult
from volmar.guidance.guide import Guide, Placement
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.guided_labels import has_limits
from volmar.margin.engine.unequal_sizes import HALVES, margin_of_labels

# Share of the rows in which labels may differ from clusters whose sizes they take.
SAME = 0.02


class GuidedMarginMixin(GuidedMixin):
    """A clusterer on the margin engine that takes labels of some rows, links and sizes."""

    mode: str
    result_: Any
    tree_: Any
    gamma: Any
    _guide: Guide | None
    _takes_start_sizes: bool | None
    _free_init: Any = "auto"

    def _fit_guided(self, *args: Any) -> None:
        if self.mode == "paper":
            raise ValueError(
                f"mode='paper' of {type(self).__name__} has no labels of rows, links or limits of "
                "sizes. Use mode='default', or leave these out."
            )
        super()._fit_guided(*args)
        if hasattr(self, "tree_"):
            self.tree_.feature_names = getattr(self, "feature_names_in_", None)

    def _guided_params(self, free: Any, /) -> dict[str, Any]:
        params = super()._guided_params(free)  # type: ignore[misc]
        is_tree = isinstance(getattr(free, "result_", None), RecursiveResult)
        if is_tree and "multiway" in self.get_params(deep=False):  # type: ignore[attr-defined]
            params["multiway"] = "recursive"
        return params

    def _guided_fit(self, X: Any, weights: Any, free: Any, start: NDArray, guide: Guide) -> Any:
        try:
            return super()._guided_fit(X, weights, free, start, guide)
        except ValueError:  # no margin with these labels
            return None

    def _begin_at(self, start: NDArray, free: Any) -> None:
        if free is None:
            return
        self._free_init = free.init
        balance = getattr(free, "balance_", None)
        if balance is not None and _is_same(start, free.labels_):
            self._takes_start_sizes = balance != HALVES
        if self.n_clusters == 2 and isinstance(free.result_, RecursiveResult):
            self._take_width(free.tree_.splits())

    def _take_width(self, splits: list[Any]) -> None:
        """Take the width of the first split's kernel, where it is open."""
        is_open = getattr(self, "_is_width_open", None)
        gamma = getattr(splits[0].model, "gamma_", None) if splits else None
        if is_open is not None and is_open() and gamma is not None:
            self.gamma = gamma

    def _fit_once(self, X: Any, weights: Any) -> None:
        guide = self._guide
        if guide is None or guide.k == 2 or not self._is_recursive():  # type: ignore[attr-defined]
            super()._fit_once(X, weights)  # type: ignore[misc]
            return
        self.tree_, result = grow_guided_tree(
            self, X, weights, self.init, guide, init=self._free_init
        )
        self._set_result(result)  # type: ignore[attr-defined]

    def _placed_rows(self, X: Any, guide: Guide) -> Placement:
        if has_limits(guide) or not isinstance(self.result_, MarginResult):
            return super()._placed_rows(X, guide)
        # The certificate is that of the labels of the descent.
        labels = self.result_.labels
        left, right = labels[guide.apart].T if guide.apart.size else (0, 1)
        broken = guide.apart[left == right] if guide.apart.size else guide.apart
        return Placement(labels, np.zeros(guide.k), broken)

    def _start_loss(self, weights: Any) -> float:
        """Return minus the margin, which compares fits with different weights of the sides."""
        C = float(self._value_of("C"))  # type: ignore[attr-defined]
        if isinstance(self.result_, MarginResult):
            return -margin_of_labels(self.result_, weights, C)
        nodes = self.tree_.splits()
        return -sum(node.weight * margin_of_labels(node.model.result_, None, C) for node in nodes)


def _is_same(labels: NDArray, others: NDArray) -> bool:
    """Whether two labellings in two are nearly the same but for their numbers."""
    apart = np.mean((labels > 0) != (others > 0))
    return bool(min(apart, 1.0 - apart) <= SAME)
