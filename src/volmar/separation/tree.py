"""More than two clusters of MSPC: repeated splits, then competing discriminants."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_random_state
from volmar._clones import silent_clone
from volmar.base import WeightedClusterer
from volmar.base.blocks import without_vectors
from volmar.base.kernel import KernelMixin
from volmar.base.numbering import order_by_size
from volmar.base.recursion import CellSplit, GrownTree, PartRows
from volmar.evidence import HeldOutTest
from volmar.guidance.guide import Guide
from volmar.guidance.knowledge import Seeds
from volmar.rows import (
    as_rows,
    constant_vector,
    drawn_rows,
    in_one_pass,
    is_in_memory,
    lazy_vector,
    of_rows,
)
from volmar.rows.tiled import TILE_ROWS
from volmar.separation.multiway import (
    MANY_CLUSTERS,
    LargestDiscriminant,
    hyperplane_in_valley,
    k_means_starts,
    refine_leaves,
    refine_on_all,
)
from volmar.separation.polish import polished
from volmar.separation.problem import SeparatingPlanes, SeparationRows
from volmar.separation.relabelling import MultiwaySeparationResult
from volmar.separation.seeded_blocks import seeded_clusters, seeded_sample
from volmar.separation.two_way import TwoWaySolver, cross_fit_probability

# Maximum number of rows for cross-fitting; the error of the probability is then 0.01 to 0.02.
CROSS_FIT_ROWS = 4000
# Attributes of a split that are also set on the model if the tree has only this split.
OF_A_SPLIT = (
    "coef_",
    "intercept_",
    "gamma_",
    "reg_",
    "msp_",
    "msp_lower_bound_",
    "polished_",
    "side_probability_",
    "kept_variance_",
)


class SeparationTree(KernelMixin, WeightedClusterer):
    """Base class of `MSPC` that finds more than two clusters, or the number of clusters."""

    _postpones = True
    _hurdle: float = 0.0
    polish: str | None
    _cluster_floor: float = 0.0
    _n_halves: int = 2
    min_cluster_size: float | ArrayLike | None
    min_cluster_weight_: float
    _planes: SeparatingPlanes

    @abstractmethod
    def _solver(self) -> TwoWaySolver:
        """Return the solver for two clusters, from the parameters of the same names."""

    @abstractmethod
    def _minimum_share(self, n: int, k: int) -> float:
        """Return the minimum share of a cluster, for n rows in k clusters."""

    @abstractmethod
    def _problem(
        self,
        X: Any,
        weights: Any,
        k: int | None = None,
        *,
        n_rows: int | None = None,
        feature_map: Any = None,
    ) -> SeparationRows:
        """Return the standardised rows, or their standardised kernel features.

        k is given if clusters of a tree compete, and `n_rows` if X is a sample of that many rows.
        """

    @abstractmethod
    def _publish_clusters(
        self, rows: SeparationRows, result: MultiwaySeparationResult, reg: float
    ) -> None:
        """Set the fitted attributes of k clusters with discriminants or machines."""

    def _fit_tree(self, X: Any, weights: Any, steps: Iterable[int]) -> GrownTree:
        """Split repeatedly; then let all clusters compete for all rows.

        With many rows, clusters are refined on a sample first, and then on all rows.
        """
        n = X.shape[0]
        self.min_cluster_weight_ = self._minimum_in_tree(n, weights)
        self._cluster_floor = self._smallest_leaf(n, weights)
        grown = super()._fit_tree(X, weights, steps)
        del self._cluster_floor
        k, sample = self.tree_.n_leaves, grown.sample
        if len(self.tree_.leaves()) == 2:
            if not sample.is_whole and hasattr(self.tree_.root.model, "coef_"):
                self._refit_root(X, weights)
            for name in OF_A_SPLIT:
                if hasattr(self.tree_.root.model, name):
                    setattr(self, name, getattr(self.tree_.root.model, name))
        is_tested = self.n_clusters == "auto"
        if k <= 2:
            return grown
        rows = self._problem(sample.X, sample.weights, k, n_rows=n)
        models = [node.model for node in self.tree_.splits()]
        regs = [model.reg_ for model in models if hasattr(model, "reg_")]
        reg = min(regs, default=rows.reg)
        starts, solver, seed = [grown.sample_labels()], self._solver(), None
        if k == self.n_clusters and solver.races and not self._is_pairwise():
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            starts += k_means_starts(rows, k, seed)
        if self._previous is not None:
            old = self._previous.labels[sample.numbers]
            starts += [old] if np.array_equal(np.unique(old), np.arange(k)) else []
        found = refine_leaves(rows, reg, starts, k, keeps=is_tested, seed=seed, **solver.steps)
        if found is None:
            return grown
        best = found.result
        if sample.is_whole:
            order = self._cluster_order(best.labels, sample.weights, k)
            counts = np.bincount(best.labels, minlength=k)
        else:
            everything = self._problem(X, weights, k, feature_map=rows.feature_map)
            best, sums = refine_on_all(rows, everything, reg, found, **solver.steps)
            rows, counts = everything, sums.n_rows
            order = order_by_size(sums.weight, sums.first)
            if self._previous is not None:
                order = self._cluster_order(best.labels, weights, k)
        self.tree_.relabel(np.argsort(order))
        best = best.renumbered(order)
        self._publish_clusters(rows, best, reg)
        if sample.is_whole and not is_in_memory(X):
            labels = of_rows(X, LargestDiscriminant(self._planes), np.int64)
            best = replace(best, labels=labels)
        self._set_result(best)
        self.tree_.sizes = tuple(counts[order].tolist())
        return grown

    def _guided_params(self, free: Any) -> dict[str, Any]:
        """Return the smallest regularisation of the model without guidance and of its splits."""
        models = [node.model for node in free.tree_.splits()] if hasattr(free, "tree_") else []
        regs = [model.reg_ for model in [free, *models] if hasattr(model, "reg_")]
        return {"reg": min(regs)} if regs else {}

    def _fit_seeded_blocks(self, X: Any, weights: Any, seeds: Seeds, /) -> None:
        """Fit a sample with known labels, and continue from there with all rows."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        names, numbers = seeds
        sample = seeded_sample(X, weights, numbers, names.size, seed)
        few = silent_clone(self).set_params(random_state=seed)
        few.n_features_in_ = X.shape[1]
        guide = Guide(0, sample.seeds, weights=sample.weights)
        once = few._fit_guided(sample.X, sample.weights, names, guide)
        classes = few.classes_
        if classes.size < 2:
            self._take_over(few)
            rows = as_rows(X)
            self._set_result(replace(few.result_, labels=constant_vector(rows, 0, np.int64)))
            labels = constant_vector(rows, classes[0], classes.dtype)
        else:
            model = silent_clone(self).set_params(n_clusters=classes.size, reg=few.reg_)
            model.n_features_in_ = X.shape[1]
            model._guide = replace(guide, k=classes.size)  # keeps the numbers of the clusters
            planes, result = few._planes, few.result_
            rows = model._problem(X, weights, classes.size, feature_map=planes.feature_map)
            momentum, steps = 0.0 if self.mode == "paper" else 1.0, self._solver().steps
            steps |= {"max_iter": 0} if once else {}
            one = seeded_clusters(rows, numbers, planes, result, momentum=momentum, **steps)
            model._finish(rows, one, weights)
            self._take_over(model)
            labels = one.labels.astype(np.int64).choose(classes)
        self.classes_ = classes
        self.labels_ = lazy_vector(labels)

    def _refit_root(self, X: Any, weights: Any) -> None:
        """Fit the only split of a tree to all rows, starting from the split of a sample.

        A hyperplane in a valley of the density, not at an optimum of the bound, is not moved.
        """
        root, solver = self.tree_.root, self._solver()
        sampled, planes = root.model, root.model._planes
        model = silent_clone(self).set_params(n_clusters=2, random_state=sampled.random_state)
        self._hand_on(model).n_features_in_ = X.shape[1]
        rows = model._problem(X, weights, 2, feature_map=planes.feature_map)
        z = rows.z
        w = z.direction(planes.coefficients)
        cut = float(planes.threshold + planes.coefficients @ (planes.mean - z.mean))
        if sampled.result_.history:
            result = solver.solve_from(rows, w, cut, sampled.reg_)
            result = polished(self.polish, rows, result, int(sampled.random_state))
        else:
            result = replace(sampled.result_, labels=z.scores(w) > cut, w=w, threshold=cut)
        second = result.labels.astype(bool)
        n_second, weight = in_one_pass(
            lambda: (
                int(second.sum()),
                float((second if weights is None else weights * second).sum()),
            ),
            second,
        )
        model._finish(rows, result, weights)
        sizes = [(root.n_rows - n_second, root.weight - weight), (n_second, weight)]
        is_turned = float(model.result_.w @ result.w) < 0
        for label, (node, size) in enumerate(
            zip(root.children, sizes[::-1] if is_turned else sizes, strict=True)
        ):
            node.label, (node.n_rows, node.weight) = label, size
        labels = model.labels_
        vars(model).pop("_previous", None)
        root.model = model if is_in_memory(X) else without_vectors(model)
        self._set_result(replace(self.result_, labels=labels))
        self.tree_.sizes = tuple(node.n_rows for node in root.children)

    def _minimum_in_tree(self, n: int, weights: NDArray | None) -> float:
        """Return the minimum weight of a cluster; NaN without a single `min_cluster_size`."""
        if not isinstance(self.n_clusters, str):
            self._minimum_share(n, self.n_clusters)  # raises an error if no labels could meet it
        size: Any = self.min_cluster_size
        if size is None or np.ndim(size) > 0:
            return float("nan")
        count = int(size) if isinstance(size, Integral) else int(np.ceil(float(size) * n))
        return float(count) if weights is None else count / n * float(weights.sum())

    def _smallest_leaf(self, n: int, weights: Any) -> float:
        """Return the minimum weight of a leaf for a given number of clusters.

        If `min_cluster_size` is None, each split has its own minimum, a share of its part. With
        many clusters some would then be single rows of small parts. Returns 0 for "auto", whose
        splits are tested.
        """
        is_chosen = self.min_cluster_size is not None or self._solver().mode == "paper"
        if isinstance(self.n_clusters, str) or is_chosen:
            return 0.0
        total = float(n if weights is None else weights.sum())
        return self._minimum_share(n, self.n_clusters) * total

    def _minimum_in_part(self, part: PartRows) -> float | None:
        if np.isnan(self.min_cluster_weight_):
            share = self._cluster_floor / part.weight
            if share > 0.5:
                raise ValueError(
                    f"a part of {part.X.shape[0]} rows is too small for two clusters of at least "
                    f"{self._cluster_floor:.3g} rows each. Lower min_cluster_size or n_clusters."
                )
            own = self._minimum_share(part.X.shape[0], 2)
            return share if share > own else None
        share = self.min_cluster_weight_ / part.weight
        if share > 0.5:
            raise ValueError(
                f"min_cluster_size={self.min_cluster_size} is more than half of the weight of "
                f"a part of {part.X.shape[0]} rows. Lower min_cluster_size."
            )
        return share

    def _fit_part(self, part: PartRows, **params: Any) -> Any:
        return super()._fit_part(part, min_cluster_size=self._minimum_in_part(part), **params)

    def _of_part(self, part: PartRows) -> dict[str, Any]:
        """With many clusters, splits are one of several starts: races use one half only."""
        is_one_start = not isinstance(self.n_clusters, str) and self.n_clusters >= MANY_CLUSTERS
        return super()._of_part(part) | ({"_n_halves": 1} if is_one_start else {})

    def _make_split(self, part: PartRows, outcome: HeldOutTest) -> Any:
        split = super()._make_split(part, outcome)
        if not isinstance(split, CellSplit):
            return split
        X, weights = part.X, part.weights
        sizes = np.bincount(split.labels_, weights, 2)
        if sizes.min() / sizes.sum() < (self._minimum_in_part(part) or 0.0):
            return None
        if not hasattr(split, "coef_"):
            return split
        model = silent_clone(self).set_params(n_clusters=2, random_state=part.seed)
        model.n_features_in_ = X.shape[1]
        rows = model._problem(X, weights)
        model._finish(rows, hyperplane_in_valley(rows.z, split, rows.reg), weights)
        return model

    def _split_probability(self, model: Any, X: Any, weights: NDArray | None) -> float:
        """Return the held-out bound of the race, or else cross-fit two halves of the rows."""
        raced = float(model.result_.held_out_bound)
        if np.isfinite(raced):
            return raced
        if X.shape[0] > CROSS_FIT_ROWS and not self._is_pairwise():
            rng = np.random.default_rng(int(model.random_state))
            chosen = drawn_rows(X.shape[0], weights, CROSS_FIT_ROWS, rng)
            X, weights = X[chosen], None if weights is None else weights[chosen]
        return cross_fit_probability(
            X,
            weights,
            model._problem,
            model._solver(),
            int(model.random_state),
            pairwise=self._is_pairwise(),
        )

    def _split_worth(self, model: Any, probability: float) -> float:
        """Return the held-out score: parts with a valley are split before parts without one."""
        score = getattr(model.result_, "held_out_score", np.nan)
        return float(score) if np.isfinite(score) else probability

    # ------------------------------------------------------------------ prediction

    def _predicted(self, X: Any) -> NDArray[np.int64]:
        """Return the clusters of rows in memory, with the scores of one tile of rows at a time."""
        check_is_fitted(self, "result_")
        if not isinstance(self.result_, MultiwaySeparationResult):
            return super()._predicted(X)
        rows = self._validate(X, reset=False)
        labels = np.empty(rows.shape[0], dtype=np.int64)
        for start in range(0, rows.shape[0], TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            labels[tile] = np.argmax(self._finite_scores(rows[tile]), axis=1)
        return labels
