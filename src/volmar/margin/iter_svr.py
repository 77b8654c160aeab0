"""IterSVR: maximum margin clustering by iterated support vector regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_choice, check_count, check_number
from volmar.base.clusterer import Clusterer
from volmar.base.validation import check_cluster_size, check_start_labels
from volmar.margin.engine.starts import k_means_start, principal_start, random_start
from volmar.margin.feature_space.kernel import KernelRepresentation, KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.solvers import Result, Status
from volmar.solvers.l1_regression import L1RegressionResult, solve_l1_regression

# ------------------------------------------------------------------ cuts of scores


class ScoreCut(NamedTuple):
    """Labels of the two sides of a cut of scores: 1 if score + bias > 0."""

    labels: NDArray
    bias: float


class SortedScores:
    """Sorted scores, with the places where they may be cut.

    Rows with equal scores stay together, and each side has at least `floor` rows. If no cut
    satisfies this, the most even one is allowed.
    """

    def __init__(self, scores: NDArray, floor: float):
        self.scores = scores
        self.values = np.sort(scores)
        self.sums = np.concatenate([[0.0], np.cumsum(self.values)])
        between = np.flatnonzero(np.diff(self.values) > 0) + 1
        smaller = np.minimum(between, scores.size - between)
        allowed = smaller >= floor - 1e-9 * scores.size
        #: Numbers of rows below a cut, ascending.
        self.cuts = between[allowed] if allowed.any() else between[[smaller.argmax()]]

    def split(self, cut: int, bias: float | None = None) -> ScoreCut:
        """Return the labels of a cut, with the bias nearest to `bias` that gives them."""
        low, high = float(self.values[cut - 1]), float(self.values[cut])
        middle = 0.5 * (low + high)
        if bias is not None:
            # Minimum distance of the threshold from the two nearest rows, as a share of the gap
            # between them.
            room = 0.1 * (high - low)
            middle = min(max(-bias, low + room), high - room)
        # There is no number between neighbours in floating point: use the lower one.
        middle = min(middle, float(np.nextafter(high, low)))
        return ScoreCut((self.scores - middle > 0).astype(np.int64), -middle)

    def distances(self, x: NDArray, low: NDArray | int, high: NDArray | int) -> NDArray:
        """Return sum_i |x - value_i| over the sorted rows from `low` to below `high`."""
        at = np.clip(np.searchsorted(self.values, x), low, high)
        S = self.sums
        return x * (at - low) - (S[at] - S[low]) + (S[high] - S[at]) - x * (high - at)


def lowest_loss_cut(scores: NDArray, floor: float, bias: float) -> ScoreCut:
    r"""Return the labels that minimise the L1 loss of given scores, over a common bias too.

    .. math:: \min_{b, y} \; \sum_i |y_i - g_i - b|, \qquad y_i = \pm 1,

    where each side has at least `floor` rows. For a given b the rows above a cut have label
    1, and the loss is unimodal in the cut: the best cut is at the change of sign, or the nearest
    one that is allowed. In b the minimum is at some y_i - g_i, since everywhere else the loss is
    linear or has a concave kink. Of equally good biases the one nearest to `bias` is taken.
    """
    line = SortedScores(scores, floor)
    candidates = np.concatenate([1.0 - line.values, -1.0 - line.values])
    # The allowed cuts are all places between different scores in a range. If the cut at the change
    # of sign is outside of it, the nearest end of the range is the best.
    cuts = np.searchsorted(line.values, -candidates, side="right")
    cuts = np.clip(cuts, line.cuts[0], line.cuts[-1])
    losses = line.distances(1.0 - candidates, cuts, line.values.size)
    losses += line.distances(-1.0 - candidates, 0, cuts)
    good = np.flatnonzero(losses <= losses.min() + 1e-12 * scores.size)
    best = good[np.abs(candidates[good] - bias).argmin()]
    return line.split(int(cuts[best]), float(candidates[best]))


def widest_gap_cut(scores: NDArray, floor: float, bias: float) -> ScoreCut:
    """Return the cut in the middle of the widest gap with `floor` rows on each side.

    Of equally wide gaps the one nearest to `bias` is taken.
    """
    line = SortedScores(scores, floor)
    gaps = line.values[line.cuts] - line.values[line.cuts - 1]
    good = line.cuts[gaps >= gaps.max() * (1 - 1e-12)]
    middles = 0.5 * (line.values[good] + line.values[good - 1])
    return line.split(int(good[np.abs(middles + bias).argmin()]))


# ------------------------------------------------------------------ the iteration

BiasRule = Callable[[NDArray, float, float], ScoreCut]
RULES = {"balance": lowest_loss_cut, "gap": widest_gap_cut}


@dataclass(frozen=True, repr=False)
class IterSVRResult(Result):
    """Labels that are reproduced by a cut of the scores of their own regression.

    `gap` is the duality gap of the last regression, and no bound for other labels. The residual
    "switched" is the share of the rows for which the cut changed the labels of the regression, 0
    at a fixed point. The scores are <w, z_i> + `bias`, the bias set by the rule; `intercept` is
    that of the regression.
    """

    _optimum: ClassVar[str] = "the optimum for these labels"
    _signed = ("scores", "normal", "bias", "intercept")

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    normal: NDArray = field(default_factory=lambda: np.empty(0))
    bias: float = 0.0
    intercept: float = 0.0


class Round(NamedTuple):
    """A regression, the labels that it was given, and the cut of its scores."""

    given: NDArray
    fit: L1RegressionResult
    cut: ScoreCut


def iterate_svr(
    space: LinearSpace | KernelSpace,
    labels: NDArray,
    C: float,
    rule: BiasRule,
    *,
    floor: float,
    tol: float = 1e-3,
    max_iter: int = 50,
) -> IterSVRResult:
    """Alternate L1 regression on the labels and labels from the regression's scores.

    `rule` returns a `ScoreCut` for scores <w, z_i>, the minimum number of rows of a side (`floor`)
    and the bias of the regression. `tol` is the relative duality gap of the regressions. See the
    Notes of `IterSVR` for when the objective falls. The status is CYCLE if earlier labels recur;
    the round of the cycle with the lowest objective is returned. It is DEGENERATE if a regression
    is no better than a constant; the previous round is returned, or no labels if it was the first.
    It is FAILED if the labels no longer change, but their regression did not reach `tol`.
    """
    given = (np.asarray(labels) > 0).astype(np.int64)
    rounds: dict[bytes, Round] = {}
    history: list[float] = []
    best: Round | None = None
    status = Status.MAX_ITER
    while len(history) < max_iter:
        fit = solve_l1_regression(space, 2.0 * given - 1.0, C, tol=tol)
        history.append(fit.objective)
        g = fit.scores - fit.intercept
        if np.ptp(g) == 0.0 or _is_constant(fit, given, C, tol):
            status = Status.DEGENERATE
            break
        best = Round(given, fit, rule(g, floor, fit.intercept))
        if np.array_equal(best.cut.labels, given):
            status = Status.CONVERGED if fit.status.ok else Status.FAILED
            break
        rounds[given.tobytes()] = best
        given = best.cut.labels
        if given.tobytes() in rounds:
            status = Status.CYCLE
            cycle = list(rounds.values())[list(rounds).index(given.tobytes()) :]
            best = min(cycle, key=lambda one: one.fit.objective)
            break
    if best is None:
        return IterSVRResult(np.inf, status=status, n_iter=len(history), history=tuple(history))
    return IterSVRResult(
        objective=best.fit.objective,
        gap=best.fit.gap,
        residuals={"switched": float(np.mean(best.given != best.cut.labels))},
        status=status,
        n_iter=len(history),
        history=tuple(history),
        labels=best.cut.labels,
        scores=best.fit.scores - best.fit.intercept + best.cut.bias,
        normal=best.fit.normal,
        bias=best.cut.bias,
        intercept=best.fit.intercept,
    )


def _is_constant(fit: L1RegressionResult, labels: NDArray, C: float, tol: float) -> bool:
    """Return whether a constant, the label of the larger side, is as good as the regression.

    This is the case at every C if the mean of the smaller side is also a weighted mean of rows of
    the larger side, in which no row counts more than it would in the mean of the smaller side.
    """
    share = float(labels.mean())
    constant = 2.0 * C * labels.size * min(share, 1.0 - share)
    return constant - (fit.objective - fit.gap) <= tol * constant


# ------------------------------------------------------------------ the estimator


class IterSVRInputs(NamedTuple):
    """Inputs that all starts share; `floor` is the minimum number of rows of a side."""

    space: LinearSpace | KernelSpace
    C: float
    floor: float


class IterSVR(KernelRepresentation, Clusterer):
    r"""Maximum margin clustering by iterated support vector regression (Zhang et al., 2007).

    Alternates a regression on labels :math:`y_i = \pm 1` with the L1 (Laplacian) loss

    .. math:: \min_{w, b} \; \tfrac12 \|w\|^2
              + C \sum_i |y_i - \langle w, \phi(x_i) \rangle - b|

    with new labels, found by a cut of the scores :math:`\langle w, \phi(x_i) \rangle`, until the
    labels no longer change. Unlike the hinge loss, the L1 loss also penalises rows far beyond the
    margin, so the labels can move away from their start.

    Parameters
    ----------
    {recursive:n_clusters}
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a callable that takes two matrices, or "precomputed".
        "linear" uses the rows themselves.
    {gamma}
    {degree}
    {coef0}
    {kernel_params}
    C : float or "scale", default="scale"
        Weight of the loss. "scale" is ``10 / sum_i |phi(x_i) - mean|^2``. The larger C, the closer
        the regression fits the given labels, including those of the start. The paper uses 500.
    bias : {"gap", "balance"}, default="gap"
        How scores are cut in two. "gap" cuts in the widest gap. "balance", the paper's rule, cuts
        where the L1 loss is lowest; for small C this is always the most uneven cut that
        `min_cluster_size` allows.
    min_cluster_size : int or float, default=0.3
        Minimum cluster size, a count or a fraction of the rows. The paper's balance constraint
        :math:`|\sum_i y_i| \le l` is the fraction (1 - l / n) / 2. If no cut satisfies the
        minimum, the most even cut is made.
    init : str or array of shape (n_samples,), default="k-means"
        Labels to start from. "k-means" clusters the rows; it is "principal" if the kernel is
        precomputed. "principal" and "random" split the rows at the mean along the leading kernel
        principal component or along a random direction. An array holds the labels themselves.
    tol : float, default=1e-3
        Tolerance of the certified duality gap of each regression, relative to its objective.
    max_iter : int, default=50
        Maximum number of regressions.
    random_state : int, RandomState or None, default=None
        Random seed of the starts.

    Attributes
    ----------
    {labels_}
    {recursive:tree_}
    coef_ : ndarray of shape (1, n_features)
        w. Only available for kernel="linear".
    dual_coef_ : ndarray of shape (n_samples,)
        Coefficients of k(x_j, x); their sum is zero. Not available for kernel="linear".
    intercept_ : ndarray of shape (1,)
        Constant of the decision function, set by `bias`.
    {gamma_}
    C_ : float
        The C used.
    status_ : Status
        How the iteration ended.
    objective_ : float
        Objective of the regression that was kept: the last one, the best of a cycle, or the one
        before a degenerate one.
    result_ : IterSVRResult
        Result with the gap of that regression, and the objectives of all regressions in `history`.
    n_iter_ : int
        Number of regressions.
    {kernel:n_features_in_}

    See Also
    --------
    KernelCPMMC : The same problem with the hinge loss, certified as a whole.

    Notes
    -----
    With bias="balance" regression and cut minimise the same objective over labels that respect
    `min_cluster_size`, and if no two rows have the same score, it never rises (by more than `tol`)
    from the second regression on. With bias="gap" it may rise and labels may recur, which ends the
    iteration with `Status.CYCLE` and a warning. For uneven labels the L1 loss can be lowest for a
    constant function, for any C, as is common for small values of `min_cluster_size`; the
    iteration then ends with `Status.DEGENERATE` and a warning. If a regression does not reach
    `tol`, as happens for very large C, it ends with `Status.FAILED` and a warning.

    The factor 10 of C="scale" follows from :math:`|\beta_i| \le C` in
    :math:`w = \sum_i \beta_i \phi(x_i)`: scores reach the targets along a direction only if it has
    more than a tenth of the variance. For a much smaller C the most uneven cut has the lowest
    loss; for a much larger C the regression fits any labels and never leaves its start.

    References
    ----------
    K. Zhang, I. W. Tsang, J. T. Kwok (2007), Maximum margin clustering made practical, ICML; IEEE
    Trans. Neural Networks 20 (2009).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from volmar import IterSVR
    >>> from volmar.metrics import clustering_error
    >>> digits = load_digits()
    >>> pair = (digits.target == 2) | (digits.target == 7)
    >>> model = IterSVR(random_state=0).fit(digits.data[pair])
    >>> bool(clustering_error(digits.target[pair], model.labels_) < 0.05)
    True
    >>> bool(model.result_.gap <= 1e-3 * model.objective_)
    True
    """

    _multiway = "recursive"
    _accepts_sparse = False

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        C: float | str = "scale",
        bias: str = "gap",
        min_cluster_size: float = 0.3,
        init: Any = "k-means",
        tol: float = 1e-3,
        max_iter: int = 50,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.C = C
        self.bias = bias
        self.min_cluster_size = min_cluster_size
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        self._check_kernel()
        if isinstance(self.C, str):
            check_choice("C", self.C, ["scale"])
        else:
            check_number("C", self.C, low=0.0, open_low=True)
        check_choice("bias", self.bias, RULES)
        check_cluster_size(self.min_cluster_size)
        if isinstance(self.init, str):
            check_choice("init", self.init, ("k-means", "principal", "random"))
        check_number("tol", self.tol, low=0.0, high=0.1, open_low=True)
        check_count("max_iter", self.max_iter)

    # ------------------------------------------------------------------ fit

    def _problem(self, X: Any, weights: Any) -> IterSVRInputs:  # noqa: ARG002 -- no weights here
        space, n = self._feature_space(X, None), X.shape[0]
        variance = self._spread(space)
        # Value of C="scale" if the squared distances of all rows from their mean sum to 1.
        C = 10.0 / (n * variance) if isinstance(self.C, str) else float(self.C)
        # Largest C in the same units. Beyond it 1 is lost to rounding in 1 + C * variance.
        largest = 1e15 / (n * variance)
        if largest < C:
            raise ValueError(
                f"C={C:g} is too large for floating-point arithmetic with these rows. Lower C to "
                f"{1e-6 * largest:.1g} or less, or scale X."
            )
        size = self.min_cluster_size
        share = int(size) / n if isinstance(size, Integral) else float(size)
        if share > 0.5:
            raise ValueError(
                f"min_cluster_size={size} is more than half of the {n} rows, but there are 2 "
                f"clusters. Lower it to at most {n // 2}."
            )
        return IterSVRInputs(space, C, share * n)

    def _run(self, prepared: IterSVRInputs, seed: int) -> IterSVRResult:
        result = iterate_svr(
            prepared.space,
            self._start(prepared.space, seed),
            prepared.C,
            RULES[self.bias],
            floor=prepared.floor,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        if result.labels.size == 0:
            raise ValueError(
                f"the regression on the labels of the start is no better than a constant at "
                f"C={prepared.C:.3g}. The labels are too uneven, or unrelated to the rows. Use "
                "another init, or raise C."
            )
        return result

    def _start(self, space: LinearSpace | KernelSpace, seed: int) -> NDArray:
        if not isinstance(self.init, str):
            return check_start_labels("init", self.init, space.n_rows, 2)
        rng = np.random.default_rng(seed)
        if self.init == "random":
            return random_start(space, rng)
        if self.init == "principal" or space.start_rows() is None:
            return principal_start(space, rng)
        return k_means_start(space.start_rows(), None, seed)

    # ------------------------------------------------------------------ fitted

    def _publish(self, prepared: IterSVRInputs, result: IterSVRResult) -> None:
        self.C_ = prepared.C
        self._publish_hyperplane(prepared.space.hyperplane(result.normal, rho=1.0, t=result.bias))

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, IterSVRResult):
            return super()._status_words(result)
        if result.status is Status.DEGENERATE:
            return (
                "the regression on the labels found is no better than a constant at "
                f"C={self.C_:.3g}, because the labels are too uneven. "
                f"Raise min_cluster_size (now {self.min_cluster_size:g}) or C"
            )
        if result.status is Status.FAILED:
            return (
                f"rounding errors stopped the last regression at a duality gap of "
                f"{result.gap:.2g}, above tol={self.tol:g} times its objective of "
                f"{result.objective:.3g}, at C={self.C_:.3g}. Raise tol, lower C, or use float64 "
                "rows"
            )
        other = ", or bias='balance'" if self.bias == "gap" else ""
        return (
            f"the labels still changed after {result.n_iter} regressions: "
            f"{100 * result.residuals['switched']:.2g}% of the rows would switch sides. Raise "
            f"max_iter, or try another init{other}"
        )
