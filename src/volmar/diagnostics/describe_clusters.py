"""Differences between clusters in each column, with tests of which are real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.stats import false_discovery_control
from sklearn.preprocessing import StandardScaler

from volmar._checks import check_count, check_number, check_random_state
from volmar._clones import fitted_labels, refuse_pairwise, seeded
from volmar._warn import collecting
from volmar.diagnostics.cluster_description import FOUND_AGAIN, ClusterDescription
from volmar.diagnostics.column_profiles import (
    Features,
    as_features,
    n_rows_of,
    take_rows,
)
from volmar.metrics.contingency import as_array, distinct_labels
from volmar.rows.anywhere import count_labels, draw_from_collection
from volmar.rows.blocks import is_dask
from volmar.rows.tiled import cluster_moments

Progress = Callable[[int, int], None]


class Standardised(NamedTuple):
    """Features in units of their standard deviations; a feature is ``values * scale + centre``.

    Dense `values` (n, p) are centred, with 0 for missing values. `known` is a mask of the values
    that are not missing, None if there are none missing. Sparse values are not centred. `varies`
    is a mask of the features that are not constant.
    """

    values: Any
    known: NDArray | None
    centre: NDArray
    scale: NDArray
    varies: NDArray

    def take(self, rows: NDArray) -> Standardised:
        """Return the given rows, on the same scale."""
        known = None if self.known is None else self.known[rows]
        return self._replace(values=self.values[rows], known=known)


def standardised(values: Any) -> Standardised:
    """Return features in units of their standard deviations, without overflow."""
    is_sparse = sparse.issparse(values)
    size = abs(values).max(axis=0).toarray().ravel() if is_sparse else None
    if size is None:
        size = np.fmax.reduce(np.abs(values), axis=0, initial=0.0)
    size = np.maximum(size, np.finfo(float).tiny)
    scaled = (
        sparse.csr_array(values @ sparse.diags_array(1.0 / size)) if is_sparse else values / size
    )
    scaler = StandardScaler(copy=False, with_mean=not is_sparse)
    with np.errstate(invalid="ignore"):
        out = scaler.fit_transform(scaled)
    mean, spread = np.nan_to_num(scaler.mean_), np.sqrt(np.nan_to_num(scaler.var_))
    varies = spread > 1e-14 * np.maximum(np.abs(mean), np.finfo(float).tiny)
    scale = size * np.where(varies, spread, 1.0)
    if is_sparse:
        return Standardised(sparse.csr_array(out), None, np.zeros(size.size), scale, varies)
    known = ~np.isnan(out)
    out[~known] = 0.0
    out[:, ~varies] = 0.0
    return Standardised(out, None if known.all() else known, mean * size, scale, varies)


class Contrasts(NamedTuple):
    """Comparison of each of k clusters with the rows of the other clusters, without noise.

    `inside` and `outside` (k, p) are means of the known values in standardised units, NaN if there
    are none. `effect` is their difference divided by the pooled standard deviation; it is 0 for
    equal means and infinite if neither side varies. `t` is the difference divided by its standard
    error for a cluster drawn at random from the rows, ``diff / sqrt(v (1 / n_in + 1 / n_out))``
    with v the variance of all rows. It is an increasing function of the pooled t statistic, has
    mean 0 over random draws for any distribution of the feature, and is finite if neither side
    varies.
    """

    inside: NDArray
    outside: NDArray
    effect: NDArray
    t: NDArray


def contrasts(rows: Standardised, codes: NDArray, k: int) -> Contrasts:
    """Compare each of the clusters 0 to k - 1 with the others; a code of -1 is noise."""
    sizes, means, within = cluster_moments(rows.values, codes, k, rows.known)
    count = np.broadcast_to(sizes if sizes.ndim == 2 else sizes[:, None], means.shape)
    total, square = count * means, within + count * means**2
    rest_count, rest_total = count.sum(axis=0) - count, total.sum(axis=0) - total
    with np.errstate(divide="ignore", invalid="ignore"):
        inside, outside = total / count, rest_total / rest_count
        rest_within = square.sum(axis=0) - square - rest_total * outside
        n_both = count + rest_count
        pooled = np.sqrt((within + np.maximum(rest_within, 0.0)) / np.maximum(n_both - 2, 1))
        variance = square.sum(axis=0) / n_both - (total.sum(axis=0) / n_both) ** 2
        variance = np.maximum(variance, 0.0)
        difference = inside - outside
        # Smaller values are rounding error of the difference of two sums of squares.
        flat = pooled <= 1e-7 * np.sqrt(variance)
        effect = np.where(flat, np.sign(difference) * np.inf, difference / pooled)
        effect = np.where(np.abs(difference) <= 1e-12, 0.0, effect)
        t = difference / np.sqrt(variance * (1.0 / count + 1.0 / rest_count))
    empty = (count == 0) | (rest_count == 0)
    effect = np.where(empty, np.nan, effect)
    t = np.where(empty | ~np.isfinite(t) | ~rows.varies, 0.0, t)
    return Contrasts(inside, outside, effect, t)


# ----------------------------------------------------------- tests of differences between clusters

# Clusters maximise differences, so p-values computed on the same rows are invalid: in pure noise
# every column that determines the clusters has a tiny p-value. The agreement of two sets of rows
# that were clustered independently is a valid criterion. For a column that does not differ, the
# sign of its difference in one set is positive or negative with equal probability in the other.


def disjoint_subsets(codes: NDArray, n_subsets: int, rng: np.random.RandomState) -> list[NDArray]:
    """Return random disjoint subsets of the rows, stratified by cluster."""
    order = rng.permutation(codes.size)
    order = order[np.argsort(codes[order], kind="stable")]
    # The subsets take turns along the clusters, starting with a random one.
    turn = (np.arange(codes.size) + rng.randint(n_subsets)) % n_subsets
    return [np.sort(order[turn == i]) for i in range(n_subsets)]


class Refit:
    """Clusters subsets of the rows, and tests on which differences they agree.

    `given` is the input of the estimator. `codes` are the k clusters of all rows, -1 for noise.
    """

    def __init__(self, rows: Standardised, given: Any, codes: NDArray, k: int, estimator: Any):
        self.rows, self.given, self.codes, self.estimator = rows, given, codes, estimator
        self.shape = (k, rows.values.shape[1])

    def tested(
        self, n_subsets: int, q: float, tell: Progress, rng: np.random.RandomState
    ) -> dict[str, NDArray]:
        """Return `real`, `evidence` and `found_again`, as in `ClusterDescription`."""
        t, overlap = np.zeros((n_subsets, *self.shape)), np.zeros((n_subsets, self.shape[0]))
        refused = []
        for i, subset in enumerate(disjoint_subsets(self.codes, n_subsets, rng)):
            with collecting():  # the fit to all rows has warned already
                try:
                    labels = fitted_labels(self.estimator, take_rows(self.given, subset))
                    t[i], overlap[i] = self._compared(subset, labels)
                except ValueError as error:
                    refused.append(error)
            tell(i + 1, n_subsets)
        if len(refused) == n_subsets:
            raise ValueError(
                f"no subset of the rows could be clustered by {type(self.estimator).__name__}: "
                f"{refused[0]} Pass its input as model_input, or pass only labels for a "
                "description without tests."
            ) from refused[0]
        found_again = overlap.mean(axis=0)
        is_claim = found_again >= FOUND_AGAIN
        if is_claim.size == 2:  # the second cluster mirrors the first
            is_claim = np.array([is_claim.all(), False])
        claims = is_claim[:, None] & self.rows.varies
        evidence, real = np.ones(self.shape), np.zeros(self.shape, dtype=bool)
        if claims.any():
            evidence[claims] = sign_flip_p_values(t[:, claims])
            real[claims] = false_discovery_control(evidence[claims]) <= q
        if is_claim.size == 2:
            real[1], evidence[1] = real[0], evidence[0]
        return {"real": real, "evidence": evidence, "found_again": found_again}

    def _compared(self, subset: NDArray, labels: NDArray) -> tuple[NDArray, NDArray]:
        """Return t by cluster and feature, and the Jaccard index of each cluster."""
        k = self.shape[0]
        names, overlap = _counterparts(self.codes[subset], labels, k)
        # Rows of clusters without a counterpart belong to none of the k clusters.
        found = contrasts(self.rows.take(subset), names, max(k, names.max(initial=0) + 1))
        return found.t[:k], overlap


def _counterparts(codes: NDArray, labels: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """Match the clusters of a subset to those of all rows, maximising the sum of Jaccard indices.

    Returns the matched cluster of each row (k and above without a counterpart, -1 for noise), and
    the Jaccard index of each cluster with its counterpart.
    """
    noise = labels == -1
    found = np.unique(labels[~noise])
    other = np.where(noise, found.size, np.searchsorted(found, labels))
    table = np.zeros((k + 1, found.size + 1))
    np.add.at(table, (np.where(codes < 0, k, codes), other), 1)
    both = table[:k, : found.size]
    union = table.sum(axis=1)[:k, None] + table.sum(axis=0)[None, : found.size] - both
    jaccard = both / np.maximum(union, 1)
    own, match = linear_sum_assignment(-jaccard)
    overlap = np.zeros(k)
    overlap[own] = jaccard[own, match]
    name = np.append(k + np.arange(found.size), -1)
    name[match] = own
    return name[other], overlap


def sign_flip_p_values(t: NDArray) -> NDArray:
    """Return exact two-sided p-values of symmetry about 0, for columns of t (n_subsets, m).

    A p-value is the fraction of the ``2 ** n_subsets`` sign choices whose sum is at least as far
    from 0 as the observed one. It is at least ``2 ** (1 - n_subsets)``.
    """
    n_subsets, m = t.shape
    # Opposite sign choices give the same absolute sum, so half of them suffice.
    numbers = np.arange(2 ** (n_subsets - 1))[:, None]
    signs = 1.0 - 2.0 * ((numbers >> np.arange(n_subsets)) & 1)
    seen = np.abs(t.sum(axis=0)) * (1 - 1e-9)
    p = np.empty(m)
    step = max(1, 4_000_000 // len(numbers))
    for start in range(0, m, step):
        some = slice(start, start + step)
        p[some] = np.mean(np.abs(signs @ t[:, some]) >= seen[some], axis=0)
    return p


# ------------------------------------------------------------------------- description of clusters


# Minimum number of rows of a subset for sign flips, in total and per cluster.
MIN_ROWS, MIN_ROWS_PER_CLUSTER = 20, 6


def describe_clusters(
    X: ArrayLike,
    labels_or_model: Any,
    *,
    estimator: Any = None,
    model_input: Any = None,
    q: float = 0.05,
    n_subsets: int = 16,
    n_typical: int = 3,
    max_rows: int = 20_000,
    feature_names: Sequence[str] | None = None,
    ids: ArrayLike | None = None,
    progress: Progress | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> ClusterDescription:
    r"""Describe each cluster by its size, typical rows and the columns that distinguish it.

    Every cluster is compared with the rows of the other clusters, by the means inside and outside
    and by a standardised difference. Typical rows are those nearest to the mean of their cluster,
    in units of the standard deviations of the columns (linear time).

    **Which differences are real.** P-values of columns are invalid on the rows that were
    clustered, because clusters are chosen to differ. Therefore the estimator clusters K disjoint
    subsets of the rows independently, and each cluster of a subset is matched to the cluster of
    all rows with the largest overlap. A claim (this cluster differs in this column) is real if the
    subsets agree on it. Their t statistics are independent, and if the column does not differ,
    each is positive or negative with equal probability. Flipping their signs gives an exact
    p-value of at least :math:`2^{1 - K}`, and Benjamini and Hochberg's procedure controls the
    false discovery rate `q` over all claims of the table. K is the smallest number for which a
    single real claim of m can be found, :math:`2^{1 - K} \le q / m`, or fewer if there are too
    few rows.

    A *real* difference means that the cluster would be found again in other rows, and would differ
    there in the same direction. No claim is made for a cluster that is not found again (mean
    Jaccard index with its counterparts below 0.8), as in noise. Small clusters may not be found
    again because the subsets are small. In that case fewer, larger subsets are tried too, as long
    as :math:`2^{1 - K} \le q`, and used if more clusters are found again in them; they find real
    claims only if many are. All effects are shown, whether or not they are real. If a single
    elongated group is cut in two, the pieces are found again and their columns do differ.
    `split_test` tests whether the *clusters* are real.

    Parameters
    ----------
    X : array, CSR array or DataFrame of shape (n, d)
        The columns to describe (pandas or polars): numbers, dates, ordered categories (pandas),
        and text, booleans or categories, whose levels are compared by their shares. Missing
        values, including infinities, are left out of means, and the share of missing values is
        compared, too. From a dask array or DataFrame, 20,000 rows are drawn at random; `sizes` and
        `n_noise` refer to all rows.
    labels_or_model : array of shape (n,) or clusterer
        Labels from any tool, with -1 for noise, or a clusterer, fitted or not. With labels alone
        nothing is tested, because the method that made them cannot be applied to subsets, and
        subsets of labels that were made from all rows are not independent.
    estimator : clusterer, optional
        Clusterer for the subsets. If None, the given model; if its `n_clusters` is "auto", with
        the number of clusters found. Must be the method by which given labels were made.
    model_input : array or DataFrame of n rows, optional
        Input of the estimator, such as scaled or coded columns. If None, X.
    q : float, default=0.05
        False discovery rate, the expected fraction of false claims among those called real.
    n_subsets : int, default=16
        Maximum number of disjoint subsets, from 2 to 16. Fewer are used if a subset would have
        fewer than 20 rows or six per cluster, or if fewer are enough for a single real claim.
    n_typical : int, default=3
        Number of typical rows per cluster.
    max_rows : int, default=20000
        Maximum number of rows for the tests. If there are more, a random sample stratified by
        cluster is used. Everything else is computed from all rows.
    feature_names : sequence of str, optional
        Names of the columns. If None, those of the DataFrame, or x0, x1, ...
    ids : array of shape (n,), optional
        Names of the rows. If None, their indices from 0.
    progress : callable, optional
        Called with (done, total) after each subset.
    random_state : int, RandomState or None, default=None
        Random seed of the subsets, and of the estimator if it has none.

    Returns
    -------
    ClusterDescription
        `table` is a DataFrame, and ``print`` shows one sentence per cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar import MSPC
    >>> from volmar import describe_clusters
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 4))
    >>> X[:200, :2] += [6.0, -5.0]
    >>> found = describe_clusters(X, MSPC(random_state=0), random_state=0,
    ...                           feature_names=["income", "age", "height", "noise"])
    >>> print(found.sentence(0))
    cluster 0: 400 rows (67 %); lower income (-5.9 sd), higher age (+5.2 sd); typical row: 267
    """
    check_number("q", q, low=0.0, high=1.0, open_low=True)
    check_count("n_subsets", n_subsets, low=2, high=16)
    check_count("n_typical", n_typical)
    check_count("max_rows", max_rows, low=2)
    if is_dask(X):
        options: dict[str, Any] = {
            "q": q,
            "n_subsets": n_subsets,
            "n_typical": n_typical,
            "max_rows": max_rows,
        }
        options |= {"progress": progress, "feature_names": feature_names}
        rng = check_random_state(random_state)
        return _of_collection(X, labels_or_model, estimator, model_input, ids, rng, options)
    n = n_rows_of(X)
    if n < 1:
        raise ValueError("X has no rows. Pass at least one row.")
    rng = check_random_state(random_state)
    given = X if model_input is None else model_input
    if n_rows_of(given) != n:
        raise ValueError(f"model_input must have the {n} rows of X, got {n_rows_of(given)} rows.")
    labels, model = _labels_and_model(labels_or_model, given, n, rng)
    features = as_features(X, feature_names)
    names = np.arange(n) if ids is None else as_array(ids, "ids")
    if names.shape != (n,):
        raise ValueError(f"ids must have shape ({n},), one for each row, got {names.shape}.")

    is_noise = labels == -1
    clusters = np.unique(labels[~is_noise])
    codes = np.where(is_noise, -1, np.searchsorted(clusters, labels))
    k = clusters.size
    rows = standardised(features.values)
    compared = contrasts(rows, codes, k)
    model = estimator if estimator is not None else model
    note = _why_untested(model, k)
    tested: dict[str, Any] = dict.fromkeys(("real", "evidence", "found_again"))
    if not note:
        refuse_pairwise(model)
        model = _with_count(seeded(model, int(rng.randint(2**31 - 1))), k)
        n_parts = -(-n // max_rows)
        chosen = np.arange(n) if n_parts < 2 else disjoint_subsets(codes, n_parts, rng)[0]
        n_claims = int(np.count_nonzero(rows.varies)) * (1 if k == 2 else k)
        smallest = max(MIN_ROWS, MIN_ROWS_PER_CLUSTER * k)
        # Not more subsets than a single real claim needs, because fewer subsets are larger.
        most, least = _min_subsets(q / max(n_claims, 1)), _min_subsets(q)
        most = min(n_subsets, chosen.size // smallest, most)
        if most < least:
            note = (
                f"Not tested: a false discovery rate of {q:g} needs {least} subsets of "
                f"{smallest} rows, and there are {chosen.size:,} rows in at most {n_subsets} "
                "subsets."
            )
    if not note:
        some = (rows, given) if chosen.size == n else (rows.take(chosen), take_rows(given, chosen))
        refit = Refit(*some, codes[chosen], k, model)
        n_again = -1
        for count in range(most, least - 1, -2):
            found = refit.tested(count, q, progress or (lambda *_: None), rng)
            # The choice must not depend on the claims that are real: the tests would be invalid.
            again = int(np.sum(found["found_again"] >= FOUND_AGAIN))
            if again > n_again:
                n_subsets, tested, n_again = count, found, again
            if again == k:
                break
        on = f" of {chosen.size:,} rows" if chosen.size < n else ""
        note = (
            f"Real at a false discovery rate of {q:g}: {n_subsets} disjoint subsets{on} "
            f"({chosen.size // n_subsets:,} rows each), clustered independently, agree on the "
            "difference (sign flips)."
        )
    inside, outside, effect = _in_units(features, rows, compared)
    return ClusterDescription(
        clusters=clusters.tolist(),
        sizes=np.bincount(codes[codes >= 0], minlength=k),
        n_noise=int(np.count_nonzero(is_noise)),
        typical=[names[found] for found in _typical_rows(rows, codes, compared, n_typical)],
        columns=features.columns,
        kinds=features.kinds,
        levels=features.levels,
        orders=features.orders,
        inside=inside,
        outside=outside,
        spread=rows.scale * rows.varies,
        effect=effect,
        **tested,
        q=q,
        note=note,
        remarks=features.notes,
    )


def _of_collection(
    X: Any,
    labels: Any,
    estimator: Any,
    model_input: Any,
    ids: Any,
    rng: np.random.RandomState,
    options: dict[str, Any],
) -> ClusterDescription:
    """Describe a random sample of a dask collection, with the cluster sizes of all rows."""
    if hasattr(labels, "fit"):
        model = labels
        estimator = model if estimator is None else estimator
        if not hasattr(model, "labels_"):
            model = seeded(model, int(rng.randint(2**31 - 1)))
            model.fit(X if model_input is None else model_input)
        labels = model.labels_
    seed = int(rng.randint(2**31 - 1))
    drawn = draw_from_collection(X, labels, ids, seed=seed)
    some, names = drawn.beside
    few = None if model_input is None else draw_from_collection(model_input, seed=seed).rows
    found = describe_clusters(
        drawn.rows,
        some,
        estimator=estimator,
        model_input=few,
        ids=drawn.numbers if names is None else names,
        random_state=int(rng.randint(2**31 - 1)),
        **options,
    )
    if drawn.numbers.size == drawn.n_rows:
        return found
    counts = count_labels(labels)
    shown = f"computed from {drawn.numbers.size:,} of {drawn.n_rows:,} rows, drawn at random"
    return replace(
        found,
        sizes=np.array([counts[label] for label in found.clusters]),
        n_noise=counts.get(-1, 0),
        remarks=[*found.remarks, shown],
    )


def _labels_and_model(
    given: Any, X: Any, n: int, rng: np.random.RandomState
) -> tuple[NDArray, Any]:
    """Return the labels, and the clusterer that made them (None for given labels)."""
    if isinstance(given, type):
        raise TypeError(
            f"labels_or_model must be labels or a clusterer, got the class {given.__name__}. Pass "
            f"an instance: {given.__name__}()."
        )
    if not hasattr(given, "fit") and not hasattr(given, "fit_predict"):
        labels = as_array(given, "labels_or_model")
        if labels.shape != (n,):
            raise ValueError(
                f"labels_or_model must be a clusterer or labels of shape ({n},), one per row of "
                f"X, got shape {labels.shape}."
            )
        if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels % 1 == 0).all():
            labels = labels.astype(np.int64)
        if labels.dtype.kind not in "iubUSO":
            raise TypeError(
                f"labels must be integers or text, got dtype {labels.dtype}. Use -1 for noise."
            )
        distinct_labels(labels, "labels_or_model")
        return labels, None
    steps = getattr(given, "steps", None)
    last = steps[-1][1] if steps else given
    own = getattr(last, "labels_", None)
    if own is not None and np.shape(own) == (n,):
        return np.asarray(own), given
    if any(name.endswith("_") and not name.startswith("_") for name in vars(last)):
        if hasattr(given, "predict"):
            return np.asarray(given.predict(X)), given
        raise ValueError(
            f"labels_or_model: {type(given).__name__} was fitted to other rows and cannot predict "
            f"the {n} rows of X. Pass the rows to which it was fitted, or an unfitted clone."
        )
    return fitted_labels(seeded(given, int(rng.randint(2**31 - 1))), X), given


def _with_count(model: Any, k: int) -> Any:
    """Replace n_clusters="auto" by the number of clusters that was found."""
    strings = [name for name, value in model.get_params().items() if isinstance(value, str)]
    return model.set_params(**{n: k for n in strings if n.split("__")[-1] == "n_clusters"})


def _why_untested(model: Any, k: int) -> str:
    if k < 2:
        return "Not tested: there is a single cluster."
    if model is None:
        return (
            "Not tested: labels alone do not determine how other rows would be clustered. Pass "
            "the estimator that made them."
        )
    return ""


def _min_subsets(q: float) -> int:
    """Return the smallest K with ``2 ** (1 - K) <= q``, for which a p-value of q is possible."""
    return max(2, int(np.ceil(1 - np.log2(q))))


def _in_units(
    features: Features, rows: Standardised, compared: Contrasts
) -> tuple[NDArray, NDArray, NDArray]:
    """Return means in the units of the table, and effects: Cohen's h for shares."""
    inside = compared.inside * rows.scale + rows.centre
    outside = compared.outside * rows.scale + rows.centre
    effect = np.where(rows.varies | np.isnan(compared.effect), compared.effect, 0.0)
    of_share = np.flatnonzero(np.isin(features.kinds, ("share", "missing")))
    # Sums of 0 and 1 in standardised units have rounding errors, counts do not.
    one, two = (np.clip(means[:, of_share].round(12) + 0.0, 0, 1) for means in (inside, outside))
    inside[:, of_share], outside[:, of_share] = one, two
    effect[:, of_share] = 2 * (np.arcsin(np.sqrt(one)) - np.arcsin(np.sqrt(two)))
    return inside, outside, effect


def _typical_rows(
    rows: Standardised, codes: NDArray, compared: Contrasts, count: int
) -> list[NDArray]:
    """Return the rows of each cluster that are nearest to its mean, nearest first."""
    means, Z, known = np.nan_to_num(compared.inside), rows.values, rows.known
    square = np.asarray((Z.multiply(Z) if sparse.issparse(Z) else Z**2).sum(axis=1)).ravel()
    sizes = (means**2).sum(axis=1) if known is None else known @ (means**2).T
    distance = square[:, None] - 2 * (Z @ means.T) + sizes
    if known is not None:  # scale the distance over the known values to all columns
        distance /= np.maximum(known.sum(axis=1), 1)[:, None]
    every = [np.flatnonzero(codes == c) for c in range(len(means))]
    return [
        own[np.argsort(distance[own, c], kind="stable")[:count]] for c, own in enumerate(every)
    ]
