"""How MSPC finds more than two clusters."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from volmar._clones import silent_clone
from volmar.base import Clusterer
from volmar.base.splitting import CellSplit
from volmar.base.validation import check_start_labels
from volmar.evidence import HeldOutTest
from volmar.metrics import separation_along
from volmar.rows import drawn_rows
from volmar.separation.discriminants import pooled_separation, refine_clusters
from volmar.separation.gep import RegularizedCorrelation, SeparationResult
from volmar.separation.pairwise import pairwise_machines
from volmar.separation.relabelling import MultiwaySeparationResult

__all__ = ["ONE_UNIT", "ManyClusters"]

# Features whose standard deviations differ by less than this share have one unit.
ONE_UNIT = 1e-3
# Rows and restarts of k-means, a start of more than two clusters.
MEANS_ROWS, MEANS_STARTS = 4000, 3
# Share of its rows that each cluster of "auto" keeps where all compete for all rows.
KEPT = 0.8
# With more columns than this, and than rows, clusters of "auto" are those of the tree.
WIDE = 500
# Regularisation with which starts are compared: that of `volmar.metrics.separation_score`.
JUDGED_REG = 0.1


class ManyClusters(Clusterer):
    """The part of `MSPC` that splits again, refines by discriminants, or pairs machines."""

    multiway: str
    reg: float | None
    reg_: float
    init: Any
    n_init: int
    kernel: Any
    min_cluster_size: Any
    max_iter: int
    tol: float
    mode: str
    coef_: NDArray
    intercept_: NDArray
    _coefficients: NDArray
    _threshold: Any
    _unit: float
    _pairs: NDArray | None
    _least_share: Any
    _usual_reg: Any

    def _fit_tree(
        self, X: Any, weights: NDArray | None, steps: Iterable[int], at_least: float = 0.0
    ) -> None:
        """Split, and split again; then let all clusters compete for all rows."""
        self._n_rows = X.shape[0]
        self._total_weight = float(self._n_rows if weights is None else weights.sum())
        if not isinstance(self.n_clusters, str):
            self._least_share(self._n_rows)  # refuses what no labels could hold
        super()._fit_tree(X, weights, steps, at_least)
        k = self.tree_.n_leaves
        if len(self.tree_.leaves()) == 2:
            self._publish_split(self.tree_.root.model)
        tested = self.n_clusters == "auto"
        if k <= 2 or (tested and _is_wide(X)):
            return
        prepared = self._problem(X, weights)
        splits = [node.model for node in self.tree_.splits()]
        regs = [model.reg_ for model in splits if hasattr(model, "reg_")]
        regularized = RegularizedCorrelation(
            prepared.z.correlation, min(regs, default=prepared.regularized.reg)
        )
        starts = [self.labels_]
        if not isinstance(self.n_clusters, str) and k == self.n_clusters:
            starts += self._means_labels(prepared)
        found = [self._refined(prepared, regularized, labels, k) for labels in starts]
        results = [result for result in found if result.history]
        if tested and results and not _are_kept(self.labels_, results[0].labels, k):
            return  # what held-out rows have confirmed is the tree
        if results:
            judge = RegularizedCorrelation(prepared.z.correlation, JUDGED_REG)
            best = max(
                results, key=lambda one: pooled_separation(prepared.z, judge, one.labels, k)
            )
            best = best.renumbered(_matched(self.labels_, best.labels, weights, k))
            best = self._number_leaves(best, weights)
            self._set_result(best)
            self._publish_multiway(prepared, best, regularized.reg)

    def _publish_split(self, root: Any) -> None:
        """Set what is known of the one split that is the answer."""
        if not isinstance(root, CellSplit):
            for name, value in vars(root).items():
                if name not in vars(self):
                    setattr(self, name, value)
        elif hasattr(root, "coef_"):
            self.coef_ = root.coef_
            self.intercept_ = root.decision_function(np.zeros((1, root.coef_.shape[1])))

    def _refined(
        self, prepared: Any, regularized: RegularizedCorrelation, labels: NDArray, k: int
    ) -> MultiwaySeparationResult:
        return refine_clusters(
            prepared.z,
            regularized,
            labels,
            k,
            min_weight=prepared.min_weight,
            max_iter=self.max_iter,
            tol=0.0 if self.mode == "paper" else self.tol,
        )

    def _means_labels(self, prepared: Any) -> list[NDArray]:
        """Return the labels of k-means on X as it is given, and on standardised rows.

        Centres are those of a sample. A start with fewer than k clusters is left out.
        """
        if self.init != "auto" or self.mode == "paper" or self._is_pairwise():
            return []
        X, z, k = prepared.X, prepared.z, int(self.n_clusters)
        n, weights = X.shape[0], z.rows.weights
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        chosen = drawn_rows(n, weights, MEANS_ROWS, rng)
        few = None if weights is None else weights[chosen]
        seed = int(rng.integers(2**31 - 1))
        starts: list[NDArray] = []
        for scale in (1.0, 1.0 / z.scale):
            if starts and np.ptp(z.scale) <= ONE_UNIT * z.scale.max():
                break
            rows = _scaled(X, scale)
            model = KMeans(k, n_init=MEANS_STARTS, random_state=seed)
            with warnings.catch_warnings():
                # Of too few different rows there are other starts.
                warnings.simplefilter("ignore", ConvergenceWarning)
                labels = model.fit(rows[chosen], sample_weight=few).predict(rows)
            if np.count_nonzero(np.bincount(labels, weights, k)) == k:
                starts.append(labels.astype(np.int64))
        return starts

    def _fit_part(self, X: Any, weights: NDArray | None, seed: int) -> Any:
        model = silent_clone(self).set_params(n_clusters=2, random_state=seed)
        model.min_cluster_size = self._least_size_in_part(X.shape[0], weights)
        return model.fit(X, sample_weight=weights)

    def _fit_from(self, X: Any, weights: NDArray | None, seed: int, sides: NDArray) -> Any:
        if np.ptp(sides) == 0 or _is_wide(X):
            return None
        model = silent_clone(self).set_params(n_clusters=2, random_state=seed, init=sides)
        try:
            model.min_cluster_size = self._least_size_in_part(X.shape[0], weights)
            return model.fit(X, sample_weight=weights)
        except ValueError:
            return None

    def _make_split(self, X: Any, weights: NDArray | None, seed: int, outcome: HeldOutTest) -> Any:
        model = super()._make_split(X, weights, seed, outcome)
        if not isinstance(model, CellSplit):
            return model
        sizes = np.bincount(model.labels_, weights, 2)
        smaller = sizes.min() / sizes.sum()
        if self.min_cluster_size is not None:
            fewest = self._least_size_in_part(X.shape[0], weights)
            share = fewest / X.shape[0] if isinstance(fewest, Integral) else fewest
            if smaller < share:
                return None
        return self._hyperplane_in_valley(X, weights, seed, model)

    def _hyperplane_in_valley(
        self, X: Any, weights: NDArray | None, seed: int, split: CellSplit
    ) -> Any:
        """Return the estimator of a hyperplane that lies in a valley, and not at the bound's best.

        The bound prefers clusters of equal size, and would leave a small one.
        """
        if not hasattr(split, "coef_") or _is_wide(X):
            return split
        model: Any = silent_clone(self).set_params(n_clusters=2, random_state=seed)
        model.n_features_in_ = X.shape[1]
        prepared = model._problem(X, weights)
        z = prepared.z
        w = (split.coef_[0] * z.scale)[z.kept]
        cut = -float(split.cells.decision_function(np.zeros((1, X.shape[1])))[0])
        labels = split.labels_.astype(bool)
        result = SeparationResult(
            objective=-separation_along(z.scores(w), labels, weights),
            labels=labels,
            w=w,
            threshold=cut - float(split.coef_[0] @ z.mean),
            reg=model._usual_reg(),
        )
        model._finish(prepared, result, weights)
        return model

    def _least_size_in_part(self, n: int, weights: NDArray | None) -> Any:
        """Return `min_cluster_size`, which is of all rows, for a part with n of them."""
        size = self.min_cluster_size
        if size is None:
            return None
        share = float(size)
        count = int(size) if isinstance(size, Integral) else int(np.ceil(share * self._n_rows))
        if weights is None or n == self._n_rows:
            return count
        needed, weight = count / self._n_rows * self._total_weight, float(weights.sum())
        if needed > 0.5 * weight:
            raise ValueError(
                f"min_cluster_size={size} is more than half of the weight of {n} rows. Lower it."
            )
        return needed / weight

    def _split_probability(self, model: Any, X: Any, weights: NDArray | None) -> float:
        """Cross-fit: each half of the rows is judged by a hyperplane from the other half."""
        raced = float(model.result_.held_out_bound)
        if np.isfinite(raced) and self.n_clusters != "fast":
            return raced  # of the race, which also cuts the half that judges: no test of 3/4
        n = X.shape[0]
        order = np.random.default_rng(model.random_state).permutation(n)
        halves = order[: n // 2], order[n // 2 :]
        found = []
        for seen, unseen in (halves, halves[::-1]):
            half = silent_clone(model)
            if isinstance(half.min_cluster_size, Integral):
                half.min_cluster_size = int(half.min_cluster_size) / n  # as a share, of any half
            w = None if weights is None else weights[seen]
            try:
                prepared = half._problem(_part(X, seen, seen, self._is_pairwise()), w)
                half._set_hyperplane(prepared, half._solve(prepared, int(model.random_state)))
            except ValueError:
                return 0.0
            scores = half._scores(_part(X, unseen, seen, self._is_pairwise()))
            w = None if weights is None else weights[unseen]
            found.append(separation_along(scores, scores > 0, w))
        return float(np.mean(found))

    def _split_worth(self, model: Any, probability: float) -> float:
        """Return the held-out score: a part without a valley is split after those with one."""
        score = getattr(model.result_, "held_out_score", np.nan)
        return float(score) if np.isfinite(score) else probability

    # ------------------------------------------------------------------ pairs

    def _run_pairwise(self, prepared: Any, seed: int) -> MultiwaySeparationResult:
        """Start from k-means or given labels, and let the machines of all pairs settle."""
        k, z = self.n_clusters, prepared.z
        labels = self._k_start_labels(prepared, seed)
        found = np.count_nonzero(np.bincount(labels, z.rows.weights, minlength=k))
        if found < k:
            raise ValueError(
                f"the start has rows of positive weight in {found} of n_clusters={k} clusters: X "
                "has too few different rows. Lower n_clusters."
            )
        result = pairwise_machines(
            z,
            labels,
            k,
            self._usual_reg(),
            min_weight=prepared.min_weight,
            max_iter=self.max_iter,
            tol=0.0 if self.mode == "paper" else self.tol,
        )
        if not result.history:
            raise ValueError(
                f"the start leaves a cluster below min_cluster_size={self.min_cluster_size}. "
                "Lower it, lower n_clusters, or give other labels as init."
            )
        return result

    def _k_start_labels(self, prepared: Any, seed: int) -> NDArray:
        X, z = prepared.X, prepared.z
        if not isinstance(self.init, str):
            return check_start_labels("init", self.init, X.shape[0], self.n_clusters)
        if self.init == "auto" and self.mode == "default":
            X = _scaled(X, 1.0 / z.scale)
        kmeans = KMeans(self.n_clusters, n_init=self.n_init, random_state=seed)
        with warnings.catch_warnings():
            # Of too few different rows the caller says so itself.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return kmeans.fit_predict(X, sample_weight=z.rows.weights)

    def _publish_multiway(
        self, prepared: Any, result: MultiwaySeparationResult, reg: float
    ) -> None:
        z = prepared.z
        self.reg_ = reg
        self._z_mean, self._feature_map_ = z.mean, prepared.feature_map
        self._coefficients = z.coefficients(result.directions)
        self._unit, self._threshold = 1.0, -result.offsets
        self._pairs = result.pairs if result.pairs.size else None
        if prepared.feature_map is None and not result.pairs.size:
            self.coef_ = np.ascontiguousarray(self._coefficients.T)
            self.intercept_ = result.offsets - self.coef_ @ z.mean


def _are_kept(labels: NDArray, refined: NDArray, k: int) -> bool:
    """Whether each of k clusters still has most of its rows, and few others."""
    both = np.bincount(labels[labels == refined], minlength=k)
    larger = np.maximum(np.bincount(labels, minlength=k), np.bincount(refined, minlength=k))
    return bool((both >= KEPT * larger).all())


def _matched(leaves: NDArray, labels: NDArray, weights: NDArray | None, k: int) -> NDArray:
    """Return for each of k leaves of the tree the cluster that has most of its rows."""
    shared = np.bincount(leaves * k + labels, weights, minlength=k * k).reshape(k, k)
    return linear_sum_assignment(shared, maximize=True)[1]


def _is_wide(X: Any) -> bool:
    """Whether the covariance matrix of the columns is much larger than the rows."""
    return bool(X.shape[1] > max(X.shape[0], WIDE))


def _scaled(X: Any, scale: Any) -> Any:
    """Return rows in other units, where they are: k-means does not depend on the origin."""
    if np.ndim(scale) == 0:
        return X
    scaled = X.multiply(scale).tocsr() if sparse.issparse(X) else X * scale
    return scaled.astype(X.dtype, copy=False)


def _part(X: Any, rows: NDArray, columns: NDArray, pairwise: bool) -> Any:
    return X[rows][:, columns] if pairwise else X[rows]
