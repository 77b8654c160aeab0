"""Choice among several labellings by how well clusters are predicted on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar.diagnostics.probe_accuracy import ProbeAccuracy, ProbedRows

__all__ = ["LabelChoice", "choose_labels"]


@dataclass(frozen=True, eq=False)
class LabelChoice:
    """Labellings ranked by how well their clusters are predicted. ``print`` shows a table.

    Attributes
    ----------
    name : str
        Name of the labelling with the highest score; in a tie, of the first one.
    labels : ndarray of shape (n,)
        Labels of that labelling.
    scores : dict of str to ProbeAccuracy
        Scores of all labellings, in descending order.
    """

    name: str
    labels: NDArray = field(repr=False)
    scores: dict[str, ProbeAccuracy] = field(repr=False)

    def __str__(self) -> str:
        """List the labellings with their scores."""
        head = ["labels", "score", "accuracy", "balanced", "entropy", "clusters"]
        lines = [head]
        for name, one in self.scores.items():
            values = (one.score, one.accuracy, one.balanced_accuracy, one.entropy)
            lines.append([name, *(f"{value:.3f}" for value in values), str(one.n_clusters)])
        widths = [max(len(line[j]) for line in lines) for j in range(len(head))]
        return "\n".join(
            "  ".join(
                [
                    line[0].ljust(widths[0]),
                    *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)),
                ]
            )
            for line in lines
        )


def choose_labels(
    X: ArrayLike,
    candidates: Mapping[str, Any],
    *,
    probe: str = "neighbors",
    max_rows: int = 5000,
    random_state: int | np.random.RandomState | None = None,
) -> LabelChoice:
    """Choose among labellings of the same rows, without known classes.

    The labelling with the highest score of `probe_accuracy` is returned. All labellings are
    compared on the same halves of the same rows, so that the differences of scores are more
    accurate than the scores themselves.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR, in columns of comparable units.
    candidates : dict of str to labels or clusterer
        At least one candidate. Labels are arrays of shape (n,). Clusterers must be fitted to X and
        have `labels_`.
    probe : {"neighbors", "linear"}, default="neighbors"
        Classifier that predicts clusters; see `probe_accuracy`.
    max_rows : int, default=5000
        Maximum number of rows that are used. If there are more, a random sample is used.
    random_state : int, RandomState or None, default=None
        Random seed of the sample and of the halves.

    Returns
    -------
    LabelChoice

    See Also
    --------
    probe_accuracy : The score and its limitations.
    compare_numbers : Comparison of numbers of clusters.
    volmar.table_clusterer.compare_methods : Comparison of methods on a table.

    Notes
    -----
    The choice was evaluated on seven data sets with known classes (digits, MNIST, USPS, letter,
    satellite, isolet, 20 Newsgroups), with at most 6,000 rows each and the true number of
    clusters. ``make bench NAME="label_choice --full"`` repeats the evaluation with other samples
    of the rows.

    - Among labellings by eight methods, the score of "neighbors" has a mean rank correlation of
      about 0.6 with the adjusted Rand index, and "linear" of 0.4. Silhouette and Calinski-Harabasz
      have none. The correlation depends on the data set: on satellite it is zero or negative.
    - The labelling chosen by "neighbors" is better than a random one, that of k-means and the one
      chosen by the silhouette. It is **no better than always using** `SoftLabelMVC`, the best of
      the eight methods on these data sets.
    - Among labellings by one method, with different seeds and with or without scaling rows to unit
      length, "linear" is the better probe for six of the eight methods. It gains 0.01 to 0.02 in
      adjusted Rand index over a random labelling, while the best labelling gains 0.01 to 0.04.

    Use it to reject poor labellings, and to choose among settings if there is no other criterion.
    Do not expect it to find the best method. All data sets except MNIST and isolet were used while
    the score was designed.

    Examples
    --------
    >>> from volmar import CPMMC, SoftLabelMVC
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.diagnostics import choose_labels
    >>> X, _ = make_two_circles(400, random_state=0)
    >>> candidates = {
    ...     "margin": CPMMC(random_state=0).fit(X),
    ...     "volume": SoftLabelMVC(random_state=0).fit(X),
    ... }
    >>> choose_labels(X, candidates, random_state=0).name
    'volume'
    """
    if not isinstance(candidates, Mapping) or not candidates:
        raise TypeError(
            "candidates must be a dict of names to labels or fitted clusterers with at least one "
            f"entry, got {'an empty one' if candidates == {} else type(candidates).__name__}. "
            "Pass, for example, {'a': labels, 'b': MSPC(3).fit(X)}."
        )
    rows = ProbedRows(X, probe, max_rows, random_state)
    labels = {str(name): _labels_of(name, given) for name, given in candidates.items()}
    found = {name: rows.accuracy_of(one, f"candidates[{name!r}]") for name, one in labels.items()}
    ranked = dict(sorted(found.items(), key=lambda item: -item[1].score))
    best = next(iter(ranked))
    return LabelChoice(best, np.asarray(labels[best]), ranked)


def _labels_of(name: Any, given: Any) -> Any:
    if not hasattr(given, "fit"):
        return given
    if isinstance(given, type) or not hasattr(given, "labels_"):
        what = given.__name__ if isinstance(given, type) else type(given).__name__
        raise TypeError(
            f"candidates[{name!r}] is a {what} without labels_. Fit it to X first, or pass the "
            "labels that its fit_predict(X) returns."
        )
    return given.labels_
