"""Comparison of several numbers of clusters, and the layout of their flow chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import adjusted_rand_score, silhouette_score

from volmar._checks import check_count, check_random_state
from volmar._clones import fitted_labels, refuse_pairwise, repeatable_rows, seeded
from volmar._input import check_matrix
from volmar._text import aligned
from volmar._warn import collecting
from volmar.evidence.label_test import label_test
from volmar.metrics import separation_score

# Maximum number of rows of a resample, and for silhouettes.
MAX_SAMPLE = 1000


@dataclass(frozen=True, eq=False)
class NumberOfClusters:
    """Results for one number of clusters; `sizes` may have fewer entries than were requested.

    `n_supported` is the number of clusters that `label_test` finds separated, None if the test was
    not possible, and `p_value` the largest of the borders between clusters. `stability` is the
    mean adjusted Rand index with the clusters of random halves of the rows. Values that cannot be
    computed are NaN.
    """

    n_clusters: int
    sizes: NDArray
    n_supported: int | None
    p_value: float
    separation: float
    silhouette: float
    stability: float
    labels: NDArray = field(repr=False)

    @property
    def is_supported(self) -> bool:
        """Whether every cluster is separated from the others."""
        return self.n_supported == self.sizes.size


@dataclass(frozen=True, eq=False)
class NumberComparison:
    """Comparison of clusterings with different numbers of clusters.

    Attributes
    ----------
    found : list of NumberOfClusters
        Results for each number, in ascending order.
    rows : ndarray of shape (n_rows,)
        Indices of the rows that were clustered.
    n_all : int
        Number of rows of X.
    method : str
        Name of the clusterer.
    skipped : list of int
        Numbers that were skipped, because the fit failed.
    """

    found: list[NumberOfClusters] = field(repr=False)
    rows: NDArray = field(repr=False)
    n_all: int
    method: str
    skipped: list[int]

    @property
    def numbers(self) -> list[int]:
        """The numbers of clusters that were compared."""
        return [one.n_clusters for one in self.found]

    @property
    def largest_supported(self) -> int:
        """Largest number for which every cluster is separated from the others; 1 if none."""
        return max((one.n_clusters for one in self.found if one.is_supported), default=1)

    def flows(self, i: int) -> NDArray:
        """Return the numbers of rows (k, m) that clusters of ``found[i]`` and the next share."""
        if not 0 <= i < len(self.found) - 1:
            raise IndexError(
                f"i must be between 0 and {len(self.found) - 2}, got {i}. Flows go from one of "
                f"the {len(self.found)} numbers to the next."
            )
        before, after = self.found[i], self.found[i + 1]
        k, m = before.sizes.size, after.sizes.size
        return np.bincount(before.labels * m + after.labels, minlength=k * m).reshape(k, m)

    @property
    def note(self) -> str:
        """Summary of the method and the rows."""
        n = self.rows.size
        of = f"{n:,} rows" if n == self.n_all else f"a sample of {n:,} of {self.n_all:,} rows"
        text = f"Made by {self.method} from {of}."
        if self.skipped:
            listed = ", ".join(str(one) for one in self.skipped)
            text += f" Skipped, because the fit failed: {listed}."
        return text

    def __str__(self) -> str:
        """Return a table of the numbers with their scores."""
        head = ["clusters", "separated", "largest p", "separation", "silhouette", "stability"]
        lines = [[*head, "sizes"]]
        for one in self.found:
            values = (one.p_value, one.separation, one.silhouette, one.stability)
            lines.append(
                [
                    str(one.n_clusters),
                    "" if one.n_supported is None else str(one.n_supported),
                    *("" if np.isnan(value) else f"{value:.2g}" for value in values),
                    " ".join(str(size) for size in np.sort(one.sizes)[::-1]),
                ]
            )
        return "\n".join([*aligned(lines, str.rjust), self.note])


def compare_numbers(
    X: ArrayLike,
    estimator: Any = None,
    numbers: Iterable[int] = range(2, 9),
    *,
    max_rows: int = 5000,
    n_resamples: int = 2,
    progress: Callable[[int, int], None] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> NumberComparison:
    """Cluster rows into 2, 3, ... clusters and compare evidence, scores and stability.

    No single score determines the number of clusters. The number of separated clusters is the only
    value with an error rate: it counts the clusters that are separated on held-out rows. The
    scores measure how well each clustering describes the rows, and the stability measures whether
    it would be found again.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR.
    estimator : clusterer, optional
        Any clusterer with a parameter `n_clusters` (`n_components` for mixtures), or a pipeline
        that ends in one. If None, `MSPC`.
    numbers : iterable of int, default=range(2, 9)
        Numbers of clusters. Those above half the number of rows are left out.
    max_rows : int, default=5000
        Maximum number of rows that are clustered. If there are more, a random sample is used. It
        is smaller for methods whose time is not linear in the number of rows, and with very many
        columns.
    n_resamples : int, default=2
        Number of random halves, of at most 1,000 rows, that are clustered again for each number.
    progress : callable, optional
        Called with (done, total) after each number.
    random_state : int, RandomState or None, default=None
        Random seed of the sample and the halves, and of the estimator if it has none.

    Returns
    -------
    NumberComparison
        ``print`` shows one line per number.

    See Also
    --------
    label_test : Test of which given clusters are separated.
    volmar.plots.NumberOfClustersDisplay : Plot of the result.

    Notes
    -----
    The p-values of a number are those of its own borders, at a family-wise level of 5 % for this
    number. They are not corrected for comparing several numbers. To choose the number of clusters,
    use ``n_clusters="auto"``, which is a single test of the whole tree.

    Examples
    --------
    >>> from volmar.datasets import make_blobs
    >>> from volmar.diagnostics import compare_numbers
    >>> X, _ = make_blobs(300, centers=3, random_state=0)
    >>> found = compare_numbers(X, numbers=[2, 3, 4], random_state=0)
    >>> [one.n_supported for one in found.found], found.largest_supported
    ([2, 3, 3], 3)
    """
    check_count("max_rows", max_rows, low=4)
    check_count("n_resamples", n_resamples)
    rows: Any = check_matrix(X, min_rows=4)
    rng = check_random_state(random_state)
    if estimator is None:
        from volmar.separation.mspc import MSPC

        estimator = MSPC()
    refuse_pairwise(estimator)
    model = seeded(estimator, int(rng.randint(2**31 - 1)))
    n, d = rows.shape
    wanted = _checked_numbers(numbers, min(n, max_rows))
    max_rows = min(max_rows, max(repeatable_rows(model, d, wanted[-1]), 2 * wanted[-1]))
    chosen = np.arange(n)
    if n > max_rows:
        chosen = np.sort(rng.choice(n, max_rows, replace=False))
        rows = rows[chosen]
    parameter = _count_parameter(model)
    found: list[NumberOfClusters] = []
    error: ValueError | None = None
    for done, k in enumerate(wanted):
        model.set_params(**{parameter: k})
        try:
            found.append(_one_number(rows, model, k, n_resamples, rng))
        except ValueError as refused:
            error = refused
        if progress is not None:
            progress(done + 1, len(wanted))
    if not found:
        raise ValueError(
            f"{type(estimator).__name__} failed for all numbers of clusters {wanted}: {error}"
        ) from error
    tried = {one.n_clusters for one in found}
    return NumberComparison(
        found, chosen, n, type(_last(estimator)).__name__, [k for k in wanted if k not in tried]
    )


def _checked_numbers(numbers: Iterable[int], n: int) -> list[int]:
    given = [numbers] if isinstance(numbers, int) else list(numbers)
    for one in given:
        check_count("numbers", one, low=2)
    wanted = sorted({int(one) for one in given if one <= max(n // 2, 2)})
    if not wanted:
        raise ValueError(
            f"numbers={given} has no number between 2 and half of the {n} rows. Pass smaller "
            "numbers, such as range(2, 9)."
        )
    return wanted


def _last(estimator: Any) -> Any:
    steps = getattr(estimator, "steps", None)
    return steps[-1][1] if steps else estimator


def _count_parameter(model: Any) -> str:
    """Return the name of the parameter for the number of clusters."""
    names = list(model.get_params())
    prefix = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
    for name in ("n_clusters", "n_components"):
        if prefix + name in names:
            return prefix + name
    raise ValueError(
        f"estimator {type(_last(model)).__name__} has no parameter n_clusters or n_components. "
        "Pass a clusterer that takes the number of clusters, such as MSPC or KMeans."
    )


def _one_number(
    X: Any, model: Any, k: int, n_resamples: int, rng: np.random.RandomState
) -> NumberOfClusters:
    seeds = rng.randint(2**31 - 1, size=3)
    with collecting():  # the scores show poor fits
        labels = np.unique(fitted_labels(model, X), return_inverse=True)[1]
        sizes = np.bincount(labels)
        n_supported, p_value = _evidence(X, labels, int(seeds[0]))
        separation, silhouette = _scores(X, labels, int(seeds[1]))
        stability = _stability(X, model, labels, n_resamples, np.random.RandomState(seeds[2]))
    return NumberOfClusters(
        k, sizes, n_supported, p_value, separation, silhouette, stability, labels
    )


def _evidence(X: Any, labels: NDArray, seed: int) -> tuple[int | None, float]:
    try:
        result = label_test(X, labels, random_state=seed)
    except ValueError:  # clusters that are too small to test
        return None, float("nan")
    if result.untested:
        return None, float("nan")
    return result.n_real, max(result.p_values, default=float("nan"))


def _scores(X: Any, labels: NDArray, seed: int) -> tuple[float, float]:
    if labels.max() < 1:
        return float("nan"), float("nan")
    rng = np.random.RandomState(seed)
    some = np.arange(labels.size)
    if some.size > MAX_SAMPLE:
        some = rng.choice(labels.size, MAX_SAMPLE, replace=False)
    silhouette = float("nan")
    if 2 <= np.unique(labels[some]).size < some.size:
        silhouette = float(silhouette_score(X[some], labels[some]))
    try:
        return float(separation_score(X, labels)), silhouette
    except ValueError:
        return float("nan"), silhouette


def _stability(
    X: Any, model: Any, labels: NDArray, n_resamples: int, rng: np.random.RandomState
) -> float:
    size = min(labels.size // 2, MAX_SAMPLE)
    agreements = []
    for _ in range(n_resamples):
        half = np.sort(rng.choice(labels.size, size, replace=False))
        try:
            agreements.append(adjusted_rand_score(labels[half], fitted_labels(model, X[half])))
        except ValueError:  # too few rows for that number of clusters
            continue
    return float(np.mean(agreements)) if agreements else float("nan")


# ------------------------- layout of an alluvial diagram that compares several numbers of clusters


class Block(NamedTuple):
    """A cluster from `top` to `bottom` (0 to 1), in the colour of most of its rows."""

    level: int
    cluster: int
    top: float
    bottom: float
    colour: int
    n_rows: int


class Flow(NamedTuple):
    """Rows shared by two clusters of successive levels: top and bottom at either end."""

    level: int
    left: tuple[float, float]
    right: tuple[float, float]
    colour: int
    n_rows: int


def alluvium(
    comparison: NumberComparison, reference: NDArray | None = None
) -> tuple[list[Block], list[Flow]]:
    """Return blocks and flows; the blocks of a level are ordered so that few flows cross.

    The labels `reference` of the compared rows determine the colours. If None, those of the
    largest number of clusters that are all separated, or else of the first number.
    """
    found = comparison.found
    if reference is None:
        real = [one.labels for one in found if one.is_supported]
        reference = real[-1] if real else found[0].labels
    orders = _orders(comparison)
    n = comparison.rows.size
    gap = 0.02  # between two blocks, as a fraction of the height
    height = 1.0 - gap * (max(one.sizes.size for one in found) - 1)
    blocks: list[Block] = []
    tops: list[NDArray] = []
    for level, (one, order) in enumerate(zip(found, orders, strict=True)):
        colours = _majority(one.labels, reference, one.sizes.size)
        top = (1.0 - height - gap * (order.size - 1)) / 2
        starts = np.zeros(order.size)
        for cluster in order:
            share = height * one.sizes[cluster] / n
            starts[cluster] = top
            of, n_rows = int(colours[cluster]), int(one.sizes[cluster])
            blocks.append(Block(level, int(cluster), float(top), float(top + share), of, n_rows))
            top += share + gap
        tops.append(starts)
    flows: list[Flow] = []
    for level in range(len(found) - 1):
        table = comparison.flows(level)
        colours = _majority(found[level + 1].labels, reference, table.shape[1])
        leave, arrive = tops[level].copy(), tops[level + 1].copy()
        for a, b in product(orders[level], orders[level + 1]):
            if not table[a, b]:
                continue
            share = height * table[a, b] / n
            left = float(leave[a]), float(leave[a] + share)
            right = float(arrive[b]), float(arrive[b] + share)
            flows.append(Flow(level, left, right, int(colours[b]), int(table[a, b])))
            leave[a] += share
            arrive[b] += share
    return blocks, flows


def _orders(comparison: NumberComparison) -> list[NDArray]:
    """Order the first level by size, and others by the mean position of their rows before."""
    first = comparison.found[0]
    orders = [np.argsort(-first.sizes, kind="stable")]
    for i in range(len(comparison.found) - 1):
        table = comparison.flows(i)
        place = np.argsort(orders[-1])
        mean = place @ table / table.sum(axis=0)
        orders.append(np.lexsort((-table.sum(axis=0), mean)))
    return orders


def _majority(labels: NDArray, reference: NDArray, k: int) -> NDArray:
    m = int(reference.max()) + 1
    return np.bincount(labels * m + reference, minlength=k * m).reshape(k, m).argmax(axis=1)
