"""More than two clusters at once, for the estimators that can."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base.validation import check_choice, check_count, check_number, check_start_labels
from volmar.margin.clusterer import ANNEALING_STEP, SAMPLE, MarginClusterer, Prepared
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.starts import k_way_start, principal_scores
from volmar.margin.multiway.descent import maximise_margins
from volmar.margin.multiway.nearest_mean import balanced_weights

__all__ = ["JointClusterer"]

# Least size of a cluster, as a share of the smallest of the start. On speech, waves, letters and
# 28 kinds of artificial groups a quarter let more of them collapse, and a share of n / n_clusters
# either did, too, or broke small groups up.
LEAST_SIZE = 0.5
# First price on the way to a larger C: at lower ones the hinge gives up whole clusters.
FIRST_PRICE = 2.0
# Runs of k-means.
N_INIT = 10
# Parameters of two clusters that the joint problem has no place for, and what to do instead.
TWO_ONLY = {
    "threshold": ("adaptive", "Use threshold='adaptive'"),
    "mode": ("default", "The papers' loops are for two: use mode='default'"),
    "balance": (None, "Leave it out; min_cluster_size limits the sizes"),
    "balance_unit": ("margin", "Use balance_unit='margin'"),
}


class JointClusterer(MarginClusterer):
    """A `MarginClusterer` that finds more than two clusters at once, or by splitting again.

    Its views can change the weights of their rows (`View.reweighted`).
    """

    multiway: str
    min_cluster_size: Any

    def _is_joint(self) -> bool:
        many = isinstance(self.n_clusters, Integral) and int(self.n_clusters) > 2
        return many and self.multiway == "joint"

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        check_choice("multiway", self.multiway, ["joint", "recursive"])
        super()._check_parameters()
        if self._is_joint():
            self._check_joint()
        elif self.min_cluster_size is not None:
            raise ValueError(
                f"min_cluster_size={self.min_cluster_size!r} is for more than two clusters with "
                "multiway='joint'. Leave it out; balance limits the sizes of two clusters."
            )

    def _check_joint(self) -> None:
        for name, (only, remedy) in TWO_ONLY.items():
            value = getattr(self, name)
            if value != only:
                raise ValueError(
                    f"{name}={value!r} has no meaning for n_clusters={self.n_clusters} at once. "
                    f"{remedy}, or use multiway='recursive'."
                )
        if isinstance(self.init, str) and self.init == "random":
            raise ValueError(
                "init='random' is for two clusters: the objective does not compare starts of "
                f"n_clusters={self.n_clusters}. Use 'k-means', labels, or multiway='recursive'."
            )
        size = self.min_cluster_size
        if isinstance(size, Integral):
            check_count("min_cluster_size", size)
        elif size is not None:
            check_number(
                "min_cluster_size", size, low=0.0, high=1.0 / self.n_clusters, open_low=True
            )

    def _check_bounded(self) -> None:
        if not self._is_joint():
            super()._check_bounded()
        elif self.C < 1.0:
            raise ValueError(
                f"C={self.C:g} is too small: below 1 the margin grows without limit. Raise C."
            )

    def _least_share(self, sizes: NDArray, weights: NDArray | None) -> float:
        """Return the least share of the rows in a cluster, from the sizes of the start."""
        size, k = self.min_cluster_size, self.n_clusters
        total = float(sizes.sum())
        if size is None:
            return LEAST_SIZE * float(sizes.min()) / total
        if isinstance(size, Integral):
            if int(size) * k > total:
                raise ValueError(
                    f"min_cluster_size={size} for each of n_clusters={k} is more than the "
                    f"{total:g} rows (or their weight). Lower one of them."
                )
            return int(size) / total
        # Rows are whole: a third of 100 is 33.
        return float(size) if weights is not None else max(np.floor(size * total), 1.0) / total

    # ------------------------------------------------------------------ fit

    def _solve(self, prepared: Prepared, seed: int) -> MarginResult:
        if not self._is_joint():
            return super()._solve(prepared, seed)
        view, weights, k = prepared.view, prepared.weights, self.n_clusters
        labels = self._joint_start(prepared, seed)
        sizes = np.bincount(labels, weights, minlength=k)
        if sizes.min() <= 0:
            found = np.count_nonzero(sizes)
            raise ValueError(
                f"the start has rows of positive weight in {found} of n_clusters={k} clusters: X "
                "has too few different rows. Lower n_clusters."
            )
        least_share = self._least_share(sizes, weights)
        result = maximise_margins(
            view.reweighted(balanced_weights(labels, weights, k)).source,
            labels,
            k,
            C=float(self.C),
            path=list(self._joint_prices()),
            least_share=least_share,
            size_shares=view.source.shares,
            tol=self.tol,
            max_iter=self._most_steps(),
        )
        if result.normal is None:
            share = f"at least {least_share:.2g} of the rows in each"
            raise ValueError(
                f"no n_clusters={k} clusters with {share} have a margin at C={self.C:g} "
                f"({result.status.value}). Lower n_clusters, C or min_cluster_size, or start from "
                "other labels (init)."
            )
        return result

    def _joint_prices(self) -> Iterable[float]:
        if not isinstance(self.anneal, str):
            yield from self.anneal
            return
        price = FIRST_PRICE
        while price < self.C:
            yield price
            price *= ANNEALING_STEP

    def _joint_start(self, prepared: Prepared, seed: int) -> NDArray:
        view, k = prepared.view, self.n_clusters
        if not isinstance(self.init, str):
            return check_start_labels("init", self.init, view.source.n_rows, k)
        rows = view.start_rows()
        if rows is None:
            rows = principal_scores(view.source, k, np.random.default_rng(seed))
        n_init = N_INIT if self.n_init is None else self.n_init
        return k_way_start(rows, k, prepared.weights, seed, n_init=n_init, most_rows=SAMPLE)
