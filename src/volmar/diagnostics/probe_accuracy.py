"""Accuracy with which a classifier trained on half of the rows predicts the other clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from sklearn.metrics import mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information
from sklearn.neighbors import NearestNeighbors

from volmar._checks import check_choice, check_count, check_random_state
from volmar._input import check_matrix
from volmar.metrics.contingency import encode_labels

__all__ = ["PROBES", "ProbeAccuracy", "ProbedRows", "probe_accuracy"]

PROBES = ("neighbors", "linear")
N_NEIGHBORS = 10
# Regulariser added to the within-cluster covariance, relative to the mean of its non-zero
# eigenvalues.
REG = 0.1


@dataclass(frozen=True)
class ProbeAccuracy:
    r"""Accuracy of the predicted clusters of held-out rows.

    Attributes
    ----------
    score : float
        Fraction of the maximum possible information, :math:`(I - E) / (\log k - E)`. It is 1 for
        clusters of equal size that are predicted without error, about 0 for uninformative
        predictions, and 0 for a single cluster.
    information : float
        :math:`I`, the mutual information of the clusters and their predictions, in nats. It is at
        most `entropy`.
    entropy : float
        Entropy of the cluster sizes in nats, :math:`\log k` if they are equal.
    accuracy : float
        Fraction of the rows that are predicted correctly.
    balanced_accuracy : float
        Mean of that fraction over the clusters, corrected for chance. It is 0 if one cluster is
        predicted for all rows or there is a single cluster, and 1 without errors.
    n_clusters : int
        :math:`k`, the number of clusters.
    """

    score: float
    information: float
    entropy: float
    accuracy: float
    balanced_accuracy: float
    n_clusters: int


def probe_accuracy(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    probe: str = "neighbors",
    max_rows: int = 5000,
    random_state: int | np.random.RandomState | None = None,
) -> ProbeAccuracy:
    r"""Measure how well the clusters of held-out rows are predicted by a classifier.

    Each half of the rows is predicted by a classifier trained on the other half. With the clusters
    :math:`c` and their predictions :math:`\hat c`, the score is their mutual information,
    corrected for chance, as a fraction of the maximum for :math:`k` clusters:

    .. math::

        \frac{I(c, \hat c) - E}{\log k - E}, \qquad I(c, \hat c) = H(c) - H(c \mid \hat c),

    where :math:`E` is the mean of :math:`I` over random permutations of the predictions. Errors of
    the classifier increase :math:`H(c \mid \hat c)`, and clusters of unequal size have a low
    entropy :math:`H(c)`. One large cluster with a few outliers is easily predicted but has a low
    score.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR, in columns of comparable units.
    labels : array of shape (n,)
        Labels of any kind. Noise (-1) is treated as a cluster.
    probe : {"neighbors", "linear"}, default="neighbors"
        Classifier. "neighbors" is a vote of the 10 nearest rows of the other half. "linear" is
        linear discriminant analysis with a regularised covariance.
    max_rows : int, default=5000
        Maximum number of rows that are used. If there are more, a random sample is used.
    random_state : int, RandomState or None, default=None
        Random seed of the sample and of the halves.

    Returns
    -------
    ProbeAccuracy

    See Also
    --------
    choose_labels : The labelling with the highest score.
    volmar.metrics.separation_score : Separation of clusters by their means and covariances.
    volmar.evidence.label_test : Test of whether given clusters are separated.

    Notes
    -----
    The idea is that of TURTLE [1]_: good labels can be learnt and generalised by a simple
    classifier. The objective of TURTLE is the cross-entropy of a linear classifier less the
    entropy of the mean label. Here the labels are given, they are evaluated on held-out rows, and
    both terms are in the same unit.

    **A high score is not evidence of groups.** The score compares labellings of the same rows. Two
    halves of a single normal group are predicted well, too. Linear methods, including k-means,
    make clusters that the linear probe predicts by construction, even if their borders cross dense
    regions. Nearest neighbours disagree at such borders and can follow curved clusters; they are
    therefore the default. In turn, they favour clusters from a neighbour graph.

    Labellings with different numbers of clusters are on the same scale, and splitting a group
    lowers the score. Merging separated groups into clusters of equal size does not, so the score
    does not determine the number of clusters.

    The cost is a search for neighbours among `max_rows` rows; for the linear probe it is
    O(n d² + d³), or O(n² d + n³) with fewer rows than columns.

    References
    ----------
    .. [1] A. Gadetsky, Y. Jiang and M. Brbic. Let go of your labels with unsupervised transfer.
           ICML 2024.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from volmar.datasets import make_blobs
    >>> from volmar.diagnostics import probe_accuracy
    >>> X, y = make_blobs(300, centers=3, random_state=0)
    >>> round(probe_accuracy(X, y, random_state=0).score, 2)
    1.0
    >>> six = KMeans(6, random_state=0).fit_predict(X)
    >>> probe_accuracy(X, six, random_state=0).score < 0.9
    True
    """
    rows = ProbedRows(X, probe, max_rows, random_state)
    return rows.accuracy_of(labels, "labels")


class ProbedRows:
    """Rows in two random halves, which are used for all labellings; each predicts the other.

    The parameters are those of `probe_accuracy`.
    """

    def __init__(
        self,
        X: ArrayLike,
        probe: str,
        max_rows: int,
        random_state: int | np.random.RandomState | None,
    ) -> None:
        check_choice("probe", probe, PROBES)
        check_count("max_rows", max_rows, low=4)
        rows = check_matrix(X, min_rows=4)
        rng = check_random_state(random_state)
        self.n_rows = rows.shape[0]
        self._drawn = rng.permutation(self.n_rows)[:max_rows]
        half = self._drawn.size // 2
        halves = self._drawn[:half], self._drawn[half:]
        kind = _NearestRows if probe == "neighbors" else _Discriminants
        self._probes = [kind(rows[a], rows[b]) for a, b in (halves, halves[::-1])]
        self._halves = [halves, halves[::-1]]

    def accuracy_of(self, labels: ArrayLike, name: str) -> ProbeAccuracy:
        """Return the accuracy of predicted labels; `name` is used in error messages."""
        codes, k = encode_labels(labels, name, self.n_rows)
        pairs = zip(self._probes, self._halves, strict=True)
        found = [
            (codes[test], probe.predictions(*np.unique(codes[train], return_inverse=True)))
            for probe, (train, test) in pairs
        ]
        true, predicted = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return _accuracy(true, predicted, k)


class _NearestRows:
    """Majority vote of the nearest training rows; nearer rows decide ties."""

    def __init__(self, train: Any, test: Any) -> None:
        count = min(N_NEIGHBORS, train.shape[0])
        search = NearestNeighbors(n_neighbors=count).fit(train)
        self._nearest = search.kneighbors(test, return_distance=False)

    def predictions(self, names: NDArray, codes: NDArray) -> NDArray:
        """Return labels of the test rows, given those of the training rows."""
        n, count = self._nearest.shape
        # The sum of all additions by rank is less than one vote.
        weights = 1.0 + (count - np.arange(count)) / (count + 1.0) ** 2
        votes = sparse.csr_array(
            (
                np.tile(weights, n),
                (np.repeat(np.arange(n), count), codes[self._nearest].ravel()),
            ),
            shape=(n, names.size),
        )
        return names[np.asarray(votes.argmax(axis=1)).ravel()]


class _Discriminants:
    r"""Linear discriminant analysis with a regularised within-cluster covariance.

    With the means M (k, d), the rows R less their means and S = R'R / m + c I, the scores of a row
    x are x S^-1 M' - diag(M S^-1 M') / 2 + log(shares). Rows are centred by the mean of the
    training rows. For more columns than rows, S^-1 = (I - R' (R R' + m c I)^-1 R) / c.
    """

    def __init__(self, train: Any, test: Any) -> None:
        mean = np.asarray(train.mean(axis=0), dtype=np.float64).ravel()
        self._is_wide = train.shape[1] > train.shape[0]
        if self._is_wide:
            within, across = _products(train, train), _products(test, train)
            at, of = train @ mean, test @ mean
            square = mean @ mean
            self._within = within - at[:, None] - at[None, :] + square
            self._across = across - of[:, None] - at[None, :] + square
        else:
            self._train, self._test = (_dense(part) - mean for part in (train, test))

    def predictions(self, names: NDArray, codes: NDArray) -> NDArray:
        """Return labels of the test rows, given those of the training rows."""
        m, k = codes.size, names.size
        sizes = np.bincount(codes, minlength=k)
        # The means are `average` times the rows.
        shape = (k, m)
        average = sparse.csr_array((1.0 / sizes[codes], (codes, np.arange(m))), shape=shape)
        if self._is_wide:
            scores, squares = self._by_products(average, codes)
        else:
            means = average @ self._train
            rest = self._train - means[codes]
            covariance = rest.T @ rest / m
            covariance[np.diag_indices_from(covariance)] += _shift(covariance, len(covariance))
            solved = linalg.solve(covariance, means.T, assume_a="pos")
            scores, squares = self._test @ solved, np.einsum("kd,dk->k", means, solved)
        return names[(scores - squares / 2 + np.log(sizes / m)).argmax(axis=1)]

    def _by_products(self, average: Any, codes: NDArray) -> tuple[NDArray, NDArray]:
        m = codes.size
        by_mean = average @ self._within  # M A'
        rest = self._within - by_mean[codes]  # R A'
        to_means = rest @ average.T  # R M'
        rest = rest - (rest @ average.T)[:, codes]  # R R'
        shift = _shift(rest / m, m)
        rest[np.diag_indices_from(rest)] += m * shift
        solved = linalg.solve(rest, to_means, assume_a="pos")
        of_means = self._across @ average.T  # B M'
        scores = of_means - (self._across - of_means[:, codes]) @ solved
        squares = np.einsum("km,mk->k", by_mean, average.T.toarray())
        squares = squares - np.einsum("mk,mk->k", to_means, solved)
        return scores / shift, squares / shift


def _shift(covariance: NDArray, rank: int) -> float:
    """Return the regulariser of the diagonal; 1 if the covariance is zero."""
    return REG * float(np.trace(covariance)) / rank or 1.0


def _products(a: Any, b: Any) -> NDArray:
    found = a @ b.T
    found = found.toarray() if sparse.issparse(found) else found
    return np.asarray(found, dtype=np.float64)


def _dense(rows: Any) -> NDArray:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64)


def _accuracy(true: NDArray, predicted: NDArray, k: int) -> ProbeAccuracy:
    n = true.size
    shares = np.bincount(true) / n
    shares = shares[shares > 0]
    entropy = float(-(shares * np.log(shares)).sum()) + 0.0
    hits = true == predicted
    if k == 1:
        return ProbeAccuracy(0.0, 0.0, 0.0, 1.0, 0.0, 1)
    information = float(mutual_info_score(true, predicted))
    table = contingency_matrix(true, predicted, sparse=True)
    chance = float(expected_mutual_information(table, n))
    room = np.log(k) - chance
    present = np.unique(true, return_inverse=True)[1]
    recalls = np.bincount(present, weights=hits) / np.bincount(present)
    balanced = (float(recalls.mean()) - 1.0 / k) / (1.0 - 1.0 / k)
    score = float((information - chance) / room) if room > 1e-9 else 0.0
    return ProbeAccuracy(score, information, entropy, float(hits.mean()), balanced, k)
