"""More than two clusters at once: the parameters of an estimator, and its fit."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base.validation import check_count, check_number
from volmar.guidance.guide import Guide
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.start_search import SAMPLE
from volmar.margin.engine.starts import k_way_start, principal_scores
from volmar.margin.feature_space.space import FeatureSpace
from volmar.margin.multiway.descent import balanced_weights, maximise_margins
from volmar.rows import sums_by_label

# Default minimum cluster size, as a share of the smallest cluster of the start. On speech, waves,
# letters and 28 kinds of artificial groups, with a quarter more clusters collapsed. With a share
# of n / n_clusters, clusters also collapsed, or small groups were split.
MIN_SIZE = 0.5
# Average number of rows per cluster in the sample for k-means.
START_ROWS_PER_CLUSTER = 100
# Default number of runs of k-means.
N_INIT = 10
# Parameters that are only used for two clusters, with their only allowed value and a remedy.
TWO_ONLY = {
    "threshold": ("adaptive", "Use threshold='adaptive'"),
    "mode": ("default", "Use mode='default'"),
    "balance": (None, "Use min_cluster_size to limit the sizes"),
    "balance_unit": ("margin", "Use balance_unit='margin'"),
}


def check_joint(model: Any) -> None:
    """Raise an error for parameters that have no meaning with multiway="joint"."""
    k = model.n_clusters
    for name, (only, remedy) in TWO_ONLY.items():
        value = getattr(model, name)
        if value is not None and value != only:
            raise ValueError(
                f"{name}={value!r} has no meaning for n_clusters={k} with multiway='joint'. "
                f"{remedy}, or use multiway='recursive'."
            )
    if isinstance(model.init, str) and model.init == "random":
        raise ValueError(
            "init='random' is only possible for two clusters, because the objective cannot be "
            f"compared between starts of n_clusters={k}. Use init='k-means', labels, or "
            "multiway='recursive'."
        )
    size = model.min_cluster_size
    if isinstance(size, Integral):
        check_count("min_cluster_size", size)
    elif size is not None and np.ndim(size) == 0:  # the guide checks an array
        check_number("min_cluster_size", size, low=0.0, high=1.0 / k, open_low=True)
    C = model._value_of("C")
    if C < 1.0:
        raise ValueError(f"C={C:g} is too small. Below 1 the margin grows without limit. Raise C.")


def joint_start(space: FeatureSpace, weights: Any, k: int, seed: int, n_init: int | None) -> Any:
    """Return the labels of k-means on the rows, or on kernel principal components."""
    rows = space.start_rows()
    if rows is None:
        rows = principal_scores(space, k, np.random.default_rng(seed))
    max_rows = max(SAMPLE, START_ROWS_PER_CLUSTER * k)
    return k_way_start(rows, k, weights, seed, n_init=n_init or N_INIT, max_rows=max_rows)


def cluster_jointly(
    space: FeatureSpace,
    weights: Any,
    labels: Any,
    k: int,
    min_cluster_size: float | None,
    *,
    C: float,
    guide: Guide | None = None,
    **settings: Any,
) -> MarginResult:
    """Return k clusters by `maximise_margins`, with the same weight for all clusters of the start.

    `min_cluster_size` is the minimum number of rows (or weight) of a cluster, or their share. If
    None, it is half of the smallest cluster of the start. Limits of a `guide` replace
    `min_cluster_size`; if it has upper limits only, the lower limit is half of the smallest
    cluster of the start.
    """
    sizes = sums_by_label(labels, weights, k)
    if sizes.min() <= 0:
        found = np.count_nonzero(sizes)
        raise ValueError(
            f"the start has rows of positive weight in only {found} of n_clusters={k} clusters, "
            "because X has too few different rows. Lower n_clusters."
        )
    if guide is not None and guide.high is not None and guide.low is None:
        guide = replace(guide, low=np.full(k, MIN_SIZE * float(sizes.min())))
    min_share = _min_share(min_cluster_size if guide is None else None, sizes, weights)
    balanced = space.reweighted(balanced_weights(labels, weights, sizes))
    result = maximise_margins(
        balanced,
        labels,
        k,
        C=C,
        min_share=min_share,
        size_shares=space.shares,
        guide=guide,
        **settings,
    )
    if result.normal is None:
        share = f"at least {min_share:.2g} of the rows in each"
        raise ValueError(
            f"no margin was found for n_clusters={k} clusters with {share} at C={C:g} "
            f"({result.status.value}). Lower n_clusters, C or min_cluster_size, or start from "
            "other labels (init)."
        )
    return result


def _min_share(size: float | None, sizes: NDArray, weights: Any) -> float:
    """Return the minimum share of the rows in a cluster, from the sizes of the start."""
    total, k = float(sizes.sum()), sizes.size
    if size is None:
        return MIN_SIZE * float(sizes.min()) / total
    if isinstance(size, Integral):
        if int(size) * k > total:
            raise ValueError(
                f"min_cluster_size={size} for each of n_clusters={k} clusters is more than the "
                f"{total:g} rows (or their weight). Lower one of them."
            )
        return int(size) / total
    # Without weights the minimum is a whole number of rows: a third of 100 is 33.
    return float(size) if weights is not None else max(np.floor(size * total), 1.0) / total
