"""The labelling, among several, whose clusters are predicted best on held-out rows."""

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
    """Labellings ranked by how well their clusters are predicted; printed, a table.

    Attributes
    ----------
    name : str
        The labelling with the highest score, the first of equal ones.
    labels : ndarray of shape (n,)
        Its labels.
    scores : dict of str to ProbeAccuracy
        Of all labellings, the highest score first.
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
    """Choose among labellings of the same rows, without knowing any class.

    The labelling with the highest score of `probe_accuracy` is returned. All of them are judged by
    the same halves of the same rows, so that differences between them are more accurate than the
    scores.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR, in columns of comparable units.
    candidates : dict of str to labels or clusterer
        At least one. Labels are arrays of shape (n,); clusterers are fitted to X and have
        `labels_`.
    probe : {"neighbors", "linear"}, default="neighbors"
        Classifier that predicts clusters; see `probe_accuracy`.
    max_rows : int, default=5000
        At most as many rows, drawn at random, are used.
    random_state : int, RandomState or None, default=None
        Draws rows and halves.

    Returns
    -------
    LabelChoice

    See Also
    --------
    probe_accuracy : The score, and what it does not mean.
    compare_numbers : Numbers of clusters side by side.
    volmar.table_clusterer.compare_methods : Methods side by side on a table.

    Notes
    -----
    How good the choice is was measured on seven sets with known classes (digits, MNIST, USPS,
    letter, satellite, isolet, 20 Newsgroups), at most 6,000 rows each, the number of clusters
    given. ``make bench NAME="label_choice --full"`` repeats it with other draws of the rows.

    - Among labellings of eight methods the score of "neighbors" has a mean rank correlation of
      about 0.6 with the adjusted Rand index, and "linear" of 0.4. Silhouette and Calinski-Harabasz
      have none. The correlation depends on the set: on satellite it is zero or negative.
    - The labelling that "neighbors" chooses is better than a random one, than that of k-means and
      than the one that the silhouette chooses. It is **no better than always taking**
      `SoftLabelMVC`, which is the best of the eight methods on these sets.
    - Among labellings of one method, of different seeds and of rows with and without unit length,
      "linear" is the better one for six of the eight methods. It gains 0.01 to 0.02 in adjusted
      Rand index over a random labelling, where the best one gains 0.01 to 0.04.

    So use it to reject poor labellings, and to choose among settings where nothing else is known.
    Do not expect it to find the best method. All sets but MNIST and isolet were in view when the
    score was designed.

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
