"""Stability of a clustering under resampling of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import adjusted_rand_score

from volmar._checks import check_count, check_number, check_random_state
from volmar._clones import fitted_labels, refuse_pairwise, seeded
from volmar._input import check_matrix
from volmar._notebook import html_card
from volmar._threads import in_jobs
from volmar._warn import collecting
from volmar.metrics import matched_labels
from volmar.rows.anywhere import draw_from_collection
from volmar.rows.blocks import is_dask


@dataclass(frozen=True, repr=False)
class ResamplingStability:
    """Agreement of clusterings of random subsets of the rows with the clustering of all rows.

    Attributes
    ----------
    agreement : float
        Mean adjusted Rand index between the clusters of a subset and those of all rows on it. It
        is 1 if leaving rows out changes nothing, and about 0 if the clusters are arbitrary.
    spread : float
        Standard deviation of the adjusted Rand index.
    agreements : ndarray of shape (n_resamples - n_failed,)
        Adjusted Rand index of each subset that could be clustered.
    confidence : ndarray of shape (n,)
        Fraction of the subsets with a row in which it stayed in its cluster. NaN for rows in no
        subset.
    labels : ndarray of shape (n,)
        Clusters of all rows.
    n_failed : int
        Number of subsets that could not be clustered.
    """

    agreement: float
    spread: float
    agreements: NDArray = field(repr=False)
    confidence: NDArray = field(repr=False)
    labels: NDArray = field(repr=False)
    n_failed: int = 0

    def __str__(self) -> str:
        """Return a sentence with the agreement and the fraction of unstable rows."""
        words = "hardly change" if self.agreement >= 0.9 else "change somewhat"
        words = words if self.agreement >= 0.6 else "change a lot"
        unsure = float(np.mean(self.confidence[~np.isnan(self.confidence)] < 0.8))
        failed = f" {self.n_failed} subsets could not be clustered." if self.n_failed else ""
        return (
            f"The clusters {words} when rows are left out (adjusted Rand index "
            f"{self.agreement:.2f} ± {self.spread:.2f}). {100 * unsure:.0f} % of the rows change "
            f"their cluster in more than one case of five.{failed}"
        )

    def __repr__(self) -> str:
        """Return the agreement and its spread; ``print`` shows a sentence."""
        return f"ResamplingStability(agreement={self.agreement:.3g}, spread={self.spread:.2g})"

    def _repr_html_(self) -> str:
        """Show the sentence and the mean confidence per cluster in a notebook."""
        rows: list[list[str | int]] = []
        for label in np.unique(self.labels):
            inside = self.labels == label
            known = self.confidence[inside & ~np.isnan(self.confidence)]
            stays = float(known.mean()) if known.size else float("nan")
            rows.append([f"cluster {label}", int(inside.sum()), f"{stays:.2f}"])
        header = ["Cluster", "Rows", "Mean confidence"]
        return html_card("Stability under resampling", [str(self)], header, rows)


def stability(
    X: ArrayLike,
    estimator: Any,
    *,
    n_resamples: int = 20,
    share: float = 0.8,
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> ResamplingStability:
    """Cluster random subsets of the rows, and compare with the clusters of all rows.

    Clusters of a subset are matched with those of all rows so that as many rows as possible agree.
    A stable clustering need not be real: a single mode may be cut in its middle every time. Use
    `split_test` to test this.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR. Pairwise matrices are not supported. From a dask array or DataFrame,
        20,000 rows are drawn at random, and subsets are drawn from these.
    estimator : clusterer
        Any clusterer with scikit-learn's interface, or a pipeline that ends in one. Noise (-1)
        is treated as a cluster.
    n_resamples : int, default=20
        Number of subsets.
    share : float, default=0.8
        Fraction of the rows in a subset, drawn without replacement.
    n_jobs : int, optional
        Number of Python threads, which share the rows, as in `joblib.Parallel`. The result does
        not depend on it.
    progress : callable, optional
        Called with (done, total) after each subset.
    random_state : int, RandomState or None, default=None
        Random seed of the subsets, and of the estimator if it has none; all fits use the same
        seed.

    Returns
    -------
    ResamplingStability

    Examples
    --------
    >>> from volmar import MSPC
    >>> from volmar.datasets import make_blobs
    >>> from volmar.diagnostics import stability
    >>> X, _ = make_blobs(200, random_state=0)
    >>> stability(X, MSPC(), n_resamples=5, random_state=0).agreement > 0.95
    True
    """
    check_count("n_resamples", n_resamples, low=2)
    check_number("share", share, low=0.0, high=1.0, open_low=True)
    refuse_pairwise(estimator)
    if is_dask(X):
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        X = draw_from_collection(X, seed=seed).rows
    rows: Any = check_matrix(X)
    n = rows.shape[0]
    size = round(share * n)
    if not 2 <= size < n:
        raise ValueError(
            f"share={share} of {n} rows is {size}, but a subset must have at least 2 rows and not "
            "all rows. Use a share such as 0.8, or more rows."
        )
    rng = check_random_state(random_state)
    estimator = seeded(estimator, int(rng.randint(2**31 - 1)))
    labels = np.unique(fitted_labels(estimator, rows), return_inverse=True)[1]
    parts = [np.sort(rng.choice(n, size, replace=False)) for _ in range(n_resamples)]
    found = in_jobs(lambda part: _clusters(estimator, rows[part]), parts, n_jobs, share_rows=True)
    stayed, seen = np.zeros(n), np.zeros(n)
    agreements: list[float] = []
    if progress is not None:
        progress(0, n_resamples)
    for done, (part, other) in enumerate(zip(parts, found, strict=True), start=1):
        if other is not None:
            agreements.append(adjusted_rand_score(labels[part], other))
            own = np.unique(labels[part], return_inverse=True)[1]
            stayed[part] += matched_labels(own, other) == own
            seen[part] += 1
        if progress is not None:
            progress(done, n_resamples)
    if not agreements:
        raise ValueError(
            f"none of the {n_resamples} subsets of {size} rows could be clustered. Raise share, "
            "or check the estimator on a subset of the rows."
        )
    return ResamplingStability(
        float(np.mean(agreements)),
        float(np.std(agreements)),
        np.array(agreements),
        np.divide(stayed, seen, out=np.full(n, np.nan), where=seen > 0),
        labels,
        n_resamples - len(agreements),
    )


def _clusters(estimator: Any, X: Any) -> NDArray | None:
    with collecting():  # the fit to all rows has warned already
        try:
            return fitted_labels(estimator, X)
        except ValueError:
            return None
