"""`AutoClusterer`: the clusters of rows, of any shape, and their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_choice, check_count, check_number, check_random_state
from volmar._input import check_rows
from volmar._memory import explain_memory
from volmar._threads import one_thread
from volmar._warn import warn_user
from volmar.auto.grow import Branch, Groups, Growth, branch_tree, chosen, grow
from volmar.base.blocks import require_in_memory
from volmar.base.numbering import order_by_size
from volmar.base.outcome import forget
from volmar.base.tree import SplitTree
from volmar.base.validation import check_n_clusters
from volmar.evidence.space import (
    MAX_ROWS_OF_FEW,
    Rows,
    Space,
    sampled_numbers,
    smallest_cluster,
    space_of,
)
from volmar.guidance.knowledge import check_seeds, check_size


class AutoClusterer(ClusterMixin, BaseEstimator):
    """Find the clusters of rows, of any shape, and their number.

    The modes of the density of the rows are found, and the borders between them tested: a
    border counts if it is significant *and* the density there is clearly below that of both
    sides, measured along the data. Where no curved border is confirmed, hyperplanes are tried,
    which find groups in a few of many columns. The parts are searched again, so that the clusters
    form a tree.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters. With "auto", only borders that the test confirms. A number cuts the
        same tree elsewhere: confirmed borders first, then candidates by their effect.
    shapes : {"any", "curved", "linear"}, default="any"
        Borders that are tried: of any shape, by neighbours ("curved"), or hyperplanes ("linear").
    alpha : float, default=0.05
        Level of the tests: the probability with which rows of one group are split.
    max_clusters : int, default=50
        Maximum number of clusters with ``n_clusters="auto"``.
    min_cluster_size, max_cluster_size : int or float, default=None
        Minimum and maximum size of a cluster, as a number of rows or as a fraction of the rows.
    random_state : int, RandomState or None, default=None
        Random seed of samples, halves and starts.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each row, numbered by size.
    n_clusters_ : int
        Number of clusters.
    tree_ : volmar.base.tree.SplitTree
        The splits, each with its p-value, its effect and the share of halves that repeat it.
        Clusters have those of their clearest candidate.
    classes_ : ndarray
        Names of the clusters. Only defined for a fit with known labels.

    See Also
    --------
    volmar.TableClusterer : Prepares the columns of a table first.
    volmar.MSPC, volmar.SoftLabelMVC : Linear and curved clusters of a given number.

    Notes
    -----
    Of many rows, a sample is searched: 20,000 rows of up to three columns, 3,000 of more. Columns
    whose standard deviations differ by more than a factor of 10 are divided by them.

    With `y`, links or limits of the sizes, the number of clusters is found without them, and
    `volmar.SoftLabelMVC` or `volmar.MSPC` is fitted with them.

    Examples
    --------
    >>> from volmar import AutoClusterer
    >>> from volmar.datasets import make_two_moons
    >>> X, _ = make_two_moons(400, noise=0.05, random_state=0)
    >>> model = AutoClusterer(random_state=0).fit(X)
    >>> model.n_clusters_
    2
    >>> model.predict([[0.0, 1.0], [1.0, -0.5]]).size
    2
    """

    labels_: NDArray[Any]
    n_clusters_: int
    tree_: SplitTree
    _space: Space
    _groups: Groups
    _order: NDArray[np.int64]
    _guided: Any

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        shapes: str = "any",
        alpha: float = 0.05,
        max_clusters: int = 50,
        min_cluster_size: float | None = None,
        max_cluster_size: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_clusters = n_clusters
        self.shapes = shapes
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.min_cluster_size = min_cluster_size
        self.max_cluster_size = max_cluster_size
        self.random_state = random_state

    @one_thread()
    @explain_memory
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Find the clusters of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, dense or CSR.
        y : array of shape (n_samples,), optional
            Known labels of some rows, with -1 for all others. A `y` without unknown labels is
            ignored.
        must_link : array of shape (n_samples,), optional
            Group ids. Rows with the same id are put in the same cluster, rows with -1 are free.
        cannot_link : array of shape (n_pairs, 2), optional
            Pairs of row numbers that should be in different clusters.
        progress : callable, optional
            Called with the number of rows in finished clusters, and of all rows.

        Returns
        -------
        self
        """
        try:
            return self._fit(X, y, {"must_link": must_link, "cannot_link": cannot_link}, progress)
        except BaseException:
            forget(self)
            raise

    def _fit(
        self,
        X: Any,
        y: ArrayLike | None,
        guide: dict[str, Any],
        progress: Callable[[int, int], None] | None,
    ) -> Self:
        self._check_parameters()
        require_in_memory(X, "AutoClusterer")
        X = check_rows(X, estimator=self, reset=True)
        n = X.shape[0]
        k = None if isinstance(self.n_clusters, str) else check_n_clusters(self.n_clusters, n)
        seeds = check_seeds(y, n)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        numbers = sampled_numbers(X, rng)
        few = X[numbers]
        space = space_of(few, int(rng.integers(2**31 - 1)))
        columns = space.columns(few)
        rows = space.spread(columns, rng)
        how = Growth(
            self.alpha,
            max(self.max_clusters, k or 1),
            smallest_cluster(numbers.size),
            self.shapes,
        )
        branch = chosen(grow(rows, rng, how, progress), rows, k, rng)
        groups = branch.groups()
        is_guided = seeds is not None or any(one is not None for one in guide.values())
        is_limited = self.min_cluster_size is not None or self.max_cluster_size is not None
        fitted: dict[str, Any] = {"_space": space, "_groups": groups, "_guided": None}
        if is_guided or is_limited:
            known = 0 if seeds is None else seeds.names.size
            found = max(groups.n_leaves, known) if k is None else k
            model = self._guided_fit(space.columns(X), y, guide, branch, found)
            fitted |= {"_guided": model, "labels_": model.labels_}
            if hasattr(model, "classes_"):
                fitted["classes_"] = model.classes_
            order = np.arange(groups.n_leaves)
        else:
            labels = groups.predict(_new_rows(space, X))
            sizes = np.bincount(labels, minlength=groups.n_leaves)
            first = np.full(sizes.size, n)
            np.minimum.at(first, labels, np.arange(n))
            order = order_by_size(sizes, first)[: np.count_nonzero(sizes)]
            rank = np.full(sizes.size, -1)
            rank[order] = np.arange(order.size)
            fitted["labels_"] = rank[labels]
        fitted["_order"] = order
        fitted["tree_"] = branch_tree(
            branch, order, self.alpha, vars(self).get("feature_names_in_")
        )
        fitted["n_clusters_"] = int(np.unique(fitted["labels_"]).size)
        if is_guided or is_limited:
            fitted["n_clusters_"] = int(fitted["_guided"].n_clusters)
        vars(self).pop("classes_", None)
        vars(self).update(fitted)
        if k is not None and self.n_clusters_ < k:
            n_distinct = len(np.unique(rows.known, axis=0))
            why = f"X has only {n_distinct} different rows" if n_distinct < k else "some are empty"
            text = f"Found {self.n_clusters_} clusters where n_clusters={k}: {why}."
            warn_user(f"{text} Lower n_clusters.", ConvergenceWarning)
        if k is None and self.n_clusters_ >= self.max_clusters > 1:
            warn_user(
                f"max_clusters={self.max_clusters} was reached, and there may be more clusters. "
                "Look at the columns that separate them (ids, dates or codes?), or raise "
                "max_clusters."
            )
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Assign rows to the clusters.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, dense or CSR.

        Returns
        -------
        ndarray of shape (n_samples,)
            Cluster of each row: that of the nearest row of the fit, or its side of a hyperplane.
        """
        X = self._checked(X)
        if self._guided is not None:
            return self._guided.predict(self._space.columns(X))
        rank = np.zeros(self._groups.n_leaves, dtype=np.int64)
        rank[self._order] = np.arange(self._order.size)
        return rank[self._groups.predict(_new_rows(self._space, X))]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each cluster, whose largest value is at the predicted cluster.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, dense or CSR.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_clusters)
            How much nearer a cluster is than the nearest other, smallest along its path in the
            tree. For two clusters, the score of cluster 1; for one, zeros.
        """
        X = self._checked(X)
        if self._guided is not None:
            return self._guided.decision_function(self._space.columns(X))
        if self.n_clusters_ == 1:
            return np.zeros(X.shape[0])
        scores = self._groups.scores(_new_rows(self._space, X))[:, self._order]
        return 0.5 * (scores[:, 1] - scores[:, 0]) if scores.shape[1] == 2 else scores

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: sparse rows are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return check_rows(X, estimator=self, reset=False)

    def _check_parameters(self) -> None:
        if isinstance(self.n_clusters, str) and self.n_clusters != "auto":
            raise ValueError(
                f'n_clusters must be an integer or "auto", got {self.n_clusters!r}. Use "auto" to '
                "find the number."
            )
        check_choice("shapes", self.shapes, ("any", "curved", "linear"))
        check_number("alpha", self.alpha, low=0.0, high=0.5, open_low=True)
        check_count("max_clusters", self.max_clusters)
        for name in ("min_cluster_size", "max_cluster_size"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))

    def _guided_fit(
        self, X: NDArray, y: Any, guide: dict[str, Any], branch: Branch, k: int
    ) -> Any:
        """Return a clusterer of k clusters that is fitted with the knowledge of the user."""
        from volmar.separation.mspc import MSPC
        from volmar.volume.soft_label_mvc import SoftLabelMVC

        is_curved = self.shapes != "linear" and len(X) <= MAX_ROWS_OF_FEW and branch.is_curved
        kind: Any = SoftLabelMVC if is_curved else MSPC
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        model = kind(
            k,
            min_cluster_size=self.min_cluster_size,
            max_cluster_size=self.max_cluster_size,
            random_state=seed,
        )
        return model.fit(X, y, **guide)


def _new_rows(space: Space, X: Any) -> Rows:
    columns = space.columns(X)
    near = space.nearby(columns)
    return Rows(columns, near, near)
