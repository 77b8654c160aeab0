"""The papers' bound on the clustering error, from the labels of a random sample of the rows."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.sparse import issparse
from scipy.stats import hypergeom
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_count, check_magnitude, check_number
from volmar._threads import one_thread
from volmar._vectors import check_vector
from volmar.diagnostics.conditions import dense_symmetric
from volmar.metrics.contingency import as_array, distinct_labels, has_missing
from volmar.operators.protocol import SPDOperator
from volmar.volume.problem import signs
from volmar.volume.soft_label_mvc import SoftLabelMVC
from volmar.volume.two_way import VolumeResult

# Constant for sampling without replacement, about 5.05 (El-Yaniv and Pechyony 2009).
C0 = float(np.sqrt(32 * np.log(4 * np.e) / 3))
# Maximum number of rows for which the eigenvalues of a fitted model's Q are computed.
FULL_SPECTRUM = 3000
# Maximum of the arguments, and reciprocal of the minimum width, so that squares do not overflow.
HIGHEST = 1e100


@dataclass(frozen=True)
class BoundTerms:
    r"""The four terms of JMLR eq. 21 for a ramp loss of width rho.

    The ramp is :math:`\ell(z) = \min(1, \max(0, 1 - z / \rho))`. `empirical` is the loss on the
    revealed rows times n / n', `sample_size` :math:`c_0 n / \sqrt{n'}`, `confidence` the term with
    delta, and `complexity` :math:`(n - n') / \rho` times the bound of lemma 18 on the Rademacher
    complexity.
    """

    n: int
    rho: float
    empirical: float
    sample_size: float
    confidence: float
    complexity: float

    @property
    def total(self) -> float:
        """The bound, in rows."""
        return self.empirical + self.sample_size + self.confidence + self.complexity

    @property
    def vacuous(self) -> bool:
        """Whether the bound is vacuous: no two partitions differ in more than n // 2 rows."""
        return self.total >= self.n // 2


@dataclass(frozen=True)
class ErrorBound:
    """Bound on the number of wrong labels, with probability 1 - delta over the revealed rows.

    ``print(bound)`` shows a summary.

    Attributes
    ----------
    n, n_revealed : int
        Number of rows, and number of rows whose label was revealed.
    delta : float
        Probability that the bound fails.
    labels_known : bool
        Whether revealed labels were given. If not, all values are for the best case, in which
        every revealed label agrees with the clusters.
    margin : BoundTerms
        Terms of the theorem with a ramp of width rho.
    printed : BoundTerms
        Terms of the theorem as printed, with a ramp of width 1. They are always vacuous.
    direct : int
        Exact upper confidence limit of the number of errors from the hypergeometric distribution
        of the revealed labels, without the theorem.
    """

    n: int
    n_revealed: int
    delta: float
    labels_known: bool
    margin: BoundTerms
    printed: BoundTerms
    direct: int

    @property
    def total(self) -> float:
        """Bound of the theorem with a ramp of width rho, in rows."""
        return self.margin.total

    @property
    def vacuous(self) -> bool:
        """Whether `total` is vacuous, because no two partitions differ in more rows."""
        return self.margin.vacuous

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return a text with the terms of the bound, and whether it is vacuous."""
        known = self.labels_known
        case = "labels as given" if known else "if every revealed label agrees with the clusters"
        rows = [
            f"{name:14s}{getattr(self.margin, name):12.1f}{getattr(self.printed, name):12.1f}"
            for name in ("empirical", "sample_size", "confidence", "complexity", "total")
        ]
        limit = self.n // 2
        verdict = (
            f"The bound is vacuous: no two partitions of {self.n} rows differ in more than "
            f"{limit} rows."
            if self.vacuous
            else f"The bound is not vacuous: {self.total:.0f} is below {limit}, the maximum "
            "difference of two partitions."
        )
        return "\n".join(
            [
                f"Errors among {self.n} rows, {self.n_revealed} of them revealed at random,",
                f"with probability {1 - self.delta:g}, {case}",
                "",
                f"{'term':14s}{f'rho={self.margin.rho:.2g}':>12s}{'as printed':>12s}",
                *rows,
                "",
                verdict,
                f"Direct limit from the same labels: at most {self.direct} errors.",
            ]
        )


@one_thread()
def error_bound(
    model: SoftLabelMVC | None = None,
    *,
    Q: Any = None,
    reg: float | None = None,
    eta: float | None = None,
    h: ArrayLike | None = None,
    mu: float | None = None,
    revealed: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    n_revealed: int | None = None,
    delta: float = 0.05,
    rho: float | None = None,
) -> ErrorBound:
    r"""Bound the clustering error of soft-label maximum volume clustering (JMLR theorem 19).

    After clustering, the true labels of n' rows drawn at random are revealed. With probability
    :math:`1 - \delta` over the draw L,

    .. math::

        d_H(h, y^*) \le{} & \frac{n}{n'} \min\Bigl\{\sum_{i \in L} \ell(h_i y^*_i / \rho),
                            \sum_{i \in L} \ell(-h_i y^*_i / \rho)\Bigr\}
                            + \frac{c_0 n}{\sqrt{n'}} \\
        & + \sqrt{\frac{2 n^2 (n - n')^2}{n' (2n - 1)(2n - 2n' - 1)} \ln \frac{1}{\delta}}
          + \frac{1}{\rho} \sqrt{\frac{2 (n - n')}{n'}} \min\Bigl\{\sqrt n,
            \Bigl(\sum_i \frac{n}{(\gamma \lambda_i - \eta)^2}\Bigr)^{1/2},
            \Bigl(\sum_i \frac{\mu}{\gamma \lambda_i - \eta}\Bigr)^{1/2}\Bigr\}

    with :math:`\ell(z) = \min(1, \max(0, 1 - z))` and :math:`c_0 = \sqrt{32 \ln(4e) / 3}`. The
    paper has :math:`\rho = 1`. The loss of soft responses of norm 1 is then never small, and the
    bound is above n for any labels. A ramp as narrow as the responses avoids this.

    Parameters
    ----------
    model : SoftLabelMVC, optional
        A fitted model. If None, pass `Q`, `reg` and `eta`.
    Q : array of shape (n, n) or (n,), sparse matrix or SPDOperator, optional
        The matrix, or its eigenvalues.
    reg, eta : float, optional
        :math:`\gamma`, and the multiplier of \|h\| = 1, below :math:`\gamma \lambda_1`. If the
        algorithm has several possible solutions, `eta` is the largest of their multipliers.
    h : array of shape (n,), optional
        Soft responses of norm 1.
    mu : float, optional
        Largest :math:`y'(\gamma Q - \eta I)^{-1} y` over the labels y that the algorithm might
        have returned. If None, the value for `h`, or :math:`\sqrt n`, which always suffices.
    revealed : array of int, optional
        Indices of the rows whose labels were revealed. They must be drawn uniformly, independently
        of labels and clusters.
    labels : array, optional
        True labels of these rows in the same order, with at most two distinct values. If None, the
        bound is for the best case, in which all labels agree with the clusters.
    n_revealed : int, optional
        Number of labels that will be revealed; required if `revealed` is None.
    delta : float, default=0.05
        Probability that the bound fails.
    rho : float, optional
        Width of the ramp. If None, the mean of \|h\|. It must not depend on revealed labels.

    Returns
    -------
    ErrorBound
        ``print`` shows a summary. `total` and `vacuous` are for the ramp of width rho.

    Notes
    -----
    The labels must not have influenced the clustering. If they were used to choose among m
    settings, as the paper intends, pass `delta` / m: all m bounds then hold simultaneously.

    The balance constraint, which the paper's lemma ignores, is taken into account with a `model`:
    if it is active, :math:`\lambda_i` are the eigenvalues of Q on the plane of the constraint. For
    a model of more than 3,000 rows they are not computed, and the minimum is :math:`\sqrt n`.

    For one clustering, found without the labels, none of this is needed: the number of its errors
    among the revealed rows has a hypergeometric distribution. `direct` is the resulting limit, and
    is far below that of the theorem.

    References
    ----------
    Niu, Dai, Shang and Sugiyama (2013), Maximum volume clustering: a new discriminative clustering
    approach, JMLR 14, section 6 and appendix B. El-Yaniv and Pechyony (2009), Transductive
    Rademacher complexity and its applications, JAIR 35.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar import SoftLabelMVC
    >>> from volmar.datasets import make_two_moons
    >>> from volmar.diagnostics import error_bound
    >>> X, y = make_two_moons(1000, random_state=0)
    >>> drawn = np.random.default_rng(0).choice(1000, 500, replace=False)
    >>> bound = error_bound(SoftLabelMVC().fit(X), revealed=drawn, labels=y[drawn])
    >>> bound.vacuous
    True
    >>> bound.direct
    5
    """
    delta = check_number("delta", delta, low=0.0, high=1.0, open_low=True)
    if model is None:
        responses, n, size = _from_arrays(Q, reg, eta, h, mu)
    else:
        given = {"Q": Q, "reg": reg, "eta": eta, "h": h, "mu": mu}
        if names := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"{', '.join(names)} must be None with a model, which determines them."
            )
        responses, n, size = _from_model(model)
    rows, truth, n_revealed = _revealed(revealed, labels, n_revealed, n)
    if responses is None and (rho is None or truth is not None):
        raise ValueError(
            "h=None requires rho, and does not allow labels. Pass h, or pass rho and no labels."
        )
    if rho is None and responses is not None:
        rho = float(np.abs(responses).mean())
    rho = max(check_number("rho", rho, low=0.0, high=HIGHEST, open_low=True), 1.0 / HIGHEST)

    def terms(width: float) -> BoundTerms:
        rest = n - n_revealed
        share = 2.0 * n**2 * rest**2 / (n_revealed * (2 * n - 1) * (2 * rest - 1))
        return BoundTerms(
            n=n,
            rho=width,
            empirical=n * _loss(responses, rows, truth, width),
            sample_size=C0 * n / float(np.sqrt(n_revealed)),
            confidence=float(np.sqrt(share * np.log(1 / delta))),
            complexity=float(np.sqrt(2 * rest / n_revealed)) * size / width,
        )

    n_wrong = 0
    if truth is not None and responses is not None:
        n_wrong = int(np.sum(signs(responses[rows]) != truth))
    return ErrorBound(
        n=n,
        n_revealed=n_revealed,
        delta=delta,
        labels_known=truth is not None,
        margin=terms(rho),
        printed=terms(1.0),
        direct=direct_limit(n, n_revealed, n_wrong, delta),
    )


def _loss(h: NDArray | None, rows: NDArray, truth: NDArray | None, width: float) -> float:
    """Return the mean ramp loss on the revealed rows, for the better naming of the clusters.

    Without labels, it is the loss in the best case. Without h, it is the loss of the best possible
    h, which has the same magnitude on all of these rows and is zero elsewhere.
    """
    if h is None:
        return max(0.0, 1 - 1 / (width * float(np.sqrt(rows.size))))
    agreement = np.abs(h[rows]) if truth is None else h[rows] * truth
    return min(float(np.clip(1 - sign * agreement / width, 0, 1).mean()) for sign in (1, -1))


def _revealed(
    revealed: ArrayLike | None, labels: ArrayLike | None, n_revealed: int | None, n: int
) -> tuple[NDArray[np.intp], NDArray | None, int]:
    """Return the rows to evaluate, their labels as -1 and 1 (or None), and n'."""
    if revealed is None:
        if labels is not None:
            raise ValueError(
                "revealed must hold the indices of the rows of labels, got None. Pass revealed."
            )
        if n_revealed is None:
            raise ValueError("n_revealed and revealed are both None. Pass one of them.")
        return np.arange(n), None, check_count("n_revealed", n_revealed, low=1, high=n - 1)
    rows = as_array(revealed, "revealed")
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not 0 < rows.size < n:
        raise ValueError(
            f"revealed must hold the indices of 1 to {n - 1} rows, got {rows.dtype} of shape "
            f"{rows.shape}."
        )
    if rows.min() < 0 or rows.max() >= n or np.unique(rows).size != rows.size:
        raise ValueError(f"revealed must hold distinct row indices from 0 to {n - 1}.")
    if n_revealed not in (None, rows.size):
        raise ValueError(
            f"n_revealed={n_revealed} contradicts revealed, whose length is {rows.size}. Leave "
            "n_revealed out."
        )
    if labels is None:
        return rows, None, rows.size
    given = as_array(labels, "labels")
    if has_missing(given):
        raise ValueError(
            "labels must hold a label for every revealed row, got NaN or None. Leave such rows "
            "out of both revealed and labels."
        )
    kinds, codes = distinct_labels(given)
    if codes.shape != rows.shape:
        raise ValueError(
            f"labels must hold one label per revealed row, shape {rows.shape}, got {codes.shape}."
        )
    if kinds.size > 2:
        raise ValueError(f"labels must have at most two distinct values, got {kinds.size}.")
    return rows, np.where(codes == 0, -1.0, 1.0), rows.size


def direct_limit(n: int, n_revealed: int, n_wrong: int, delta: float) -> int:
    """Return an upper limit of d_H from `n_wrong` of `n_revealed` labels drawn at random.

    For either naming of the clusters, the upper limit of the errors fails with probability
    delta / 2. It is the maximum number of errors among all rows for which the probability of so
    few errors among the revealed rows is at least delta / 2.
    """

    def max_errors(seen: int) -> int:
        possible = range(seen + 1, n - n_revealed + seen + 1)
        return seen + bisect_right(
            possible, -delta / 2, key=lambda errors: -hypergeom.cdf(seen, n, errors, n_revealed)
        )

    return min(n // 2, max_errors(n_wrong), max_errors(n_revealed - n_wrong))


# ------------------------------------------------------------------ lemma 18


def _from_arrays(
    Q: Any, reg: float | None, eta: float | None, h: ArrayLike | None, mu: float | None
) -> tuple[NDArray | None, int, float]:
    if Q is None or reg is None or eta is None:
        raise ValueError("Q, reg and eta are required without a model. Pass them, or a model.")
    reg = check_number("reg", reg, low=0.0, high=HIGHEST, open_low=True)
    eta = check_number("eta", eta, low=-HIGHEST, high=HIGHEST)
    matrix = None
    if not isinstance(Q, SPDOperator) and not issparse(Q) and as_array(Q, "Q").ndim == 1:
        values = np.sort(check_vector("Q", Q))
        check_magnitude(values, name="Q", may_be_small=True)
    else:
        matrix = dense_symmetric(Q)
        values = linalg.eigvalsh(matrix, check_finite=False)
    n = values.size
    if n < 2 or not np.isfinite(values).all():
        raise ValueError(f"Q must have at least 2 eigenvalues, all of them finite, got {n}.")
    if not eta < reg * values[0]:
        raise ValueError(
            f"eta must be below reg times the smallest eigenvalue of Q, {reg * values[0]:.6g}, "
            f"got {eta:.6g}. Lemma 18 holds for such minima only."
        )
    gaps, root = reg * values - eta, float(np.sqrt(n))
    radius, product = root, root
    responses = None if h is None else check_vector("h", h)
    if responses is not None:
        check_magnitude(responses, name="h", may_be_small=True)
        norm = float(np.linalg.norm(responses))
        if responses.shape != (n,) or not abs(norm - 1) < 1e-3:
            raise ValueError(
                f"h must be a vector of {n} soft responses with norm 1, got shape "
                f"{responses.shape} and norm {norm:.6g}. Divide it by its norm."
            )
        if mu is None and matrix is not None:
            a = reg * (matrix @ responses) - eta * responses  # sign(h) at a minimum
            radius, product = float(np.linalg.norm(a)), float(responses @ a)
        elif mu is None:
            # At a minimum, sign(h)'(reg Q - eta I)^-1 sign(h) = sign(h)'h.
            product = float(np.abs(responses).sum())
    if mu is not None:
        product = check_number("mu", mu, low=0.0, high=HIGHEST)
    return responses, n, _lemma_18(n, gaps, radius, product)


def _lemma_18(n: int, gaps: NDArray, radius: float, mu: float, offset: float = 0.0) -> float:
    r"""Return the minimum in lemma 18 for :math:`h = c 1 + (\gamma Q - \eta I)^{-1} a`.

    `gaps` are the eigenvalues of :math:`\gamma Q - \eta I`, `radius` bounds \|a\|, `mu` bounds
    the product h'a, and `offset` is :math:`|c| n`. If a gap is not positive, only \|h\| = 1 gives
    a bound, and the minimum is :math:`\sqrt n`.
    """
    root = np.sqrt(n)
    if gaps.min() <= 0:
        return float(root)
    with np.errstate(over="ignore", divide="ignore"):  # extreme gaps give terms of 0 or infinity
        second = radius * np.sqrt(np.sum(1 / gaps**2))
        third = np.sqrt(mu * np.sum(1 / gaps))
    return float(min(root, offset / root + min(second, third)))


def _from_model(model: SoftLabelMVC) -> tuple[NDArray, int, float]:
    r"""Apply lemma 18 to a fitted h, on the plane of the balance constraint if it is active.

    On the plane 1'h = t, h = (t/n) 1 + g and g = P(reg Q - eta I)^{-1}P a with a = P(reg Q - eta
    I)g and P the projection along 1. Without the plane, g = h and P = I. The theorem only needs
    that h is in the class of all g whose a has no larger norm and whose g'a is no larger.
    """
    if not isinstance(model, SoftLabelMVC):
        raise TypeError(
            f"model must be a SoftLabelMVC, got {type(model).__name__}. The theorem holds for no "
            "other method. For other soft responses, pass Q, reg, eta and h as keywords."
        )
    check_is_fitted(model, "result_")
    result = model.result_
    if not isinstance(result, VolumeResult):
        raise ValueError(  # noqa: TRY004 - the number of clusters is wrong, not the type
            f"model must have two clusters, got n_clusters={model.n_clusters}. Fit it with "
            "n_clusters=2."
        )
    problem = model.problem_
    n, h, eta = problem.n, result.h, result.multiplier
    on_plane = result.balance_multiplier != 0
    offset = float(h.sum()) if on_plane else 0.0
    g = h - offset / n
    a = problem.reg * problem.operator.matvec(g) - eta * g
    a = a - a.mean() if on_plane else a
    gaps = np.zeros(1)
    if n <= FULL_SPECTRUM:
        values = _eigenvalues(dense_symmetric(problem.operator), on_plane)
        gaps = problem.reg * values - eta
    return h, n, _lemma_18(n, gaps, float(np.linalg.norm(a)), float(g @ a), abs(offset))


def _eigenvalues(Q: NDArray, on_plane: bool) -> NDArray:
    """Return the eigenvalues of Q, or of PQP without the zero of the vector of ones."""
    if on_plane:
        # A Householder reflection maps the first axis to the vector of ones.
        n = len(Q)
        v = np.ones(n) / np.sqrt(n)
        v[0] -= 1.0
        v /= np.linalg.norm(v)
        Qv = Q @ v
        cross = np.outer(v, Qv - (v @ Qv) * v)
        Q = (Q - 2 * (cross + cross.T))[1:, 1:]
    return linalg.eigvalsh(Q, check_finite=False)
