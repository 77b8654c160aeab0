r"""LGMMC: maximum margin clustering by label generation.

For weights alpha of the rows the most violated labelling maximises the convex function
|sum_i alpha_i y_i z_i|^2 over y in {-1, 1}^n with |sum_i y_i| at most a limit. That is NP-hard.
Its linearisation at a labelling, sum_i y_i alpha_i <z_i, v> with v = sum_j alpha_j y_j z_j, is
maximised by sorting. The maximiser is never worse than the labelling of the linearisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator

from volmar._checks import check_choice, check_count, check_number
from volmar._eigen import eigsh
from volmar.base.clusterer import Clusterer
from volmar.margin.feature_space.kernel import KernelRepresentation, KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.solvers import Result, Status
from volmar.solvers.label_kernel_svm import LabelKernelResult, solve_label_kernel_svm

MAX_STEPS = 100
MAX_WIDENINGS = 20

# ------------------------------------------------------------------ violated labellings


Space = LinearSpace | KernelSpace


def images(space: Space, V: NDArray) -> tuple[NDArray, NDArray]:
    """Return the scores of the vectors sum_i V_ik z_i, shape (n, k), and their squared norms."""
    # A space takes a single vector without an axis for it.
    scores = space.scores(space.vector(V[:, 0] if V.shape[1] == 1 else V)).reshape(V.shape)
    return scores, np.einsum("ik,ik->k", V, scores)


def balanced_labels(f: NDArray, alpha: NDArray, limit: float) -> NDArray:
    """Return the labels y, ``|sum(y)| <= limit``, that maximise sum_i y_i alpha_i f_i.

    These are the signs of f if they are balanced; otherwise the rows with the lowest cost change
    sides. Rows with an alpha of 0 have no cost and change first, those nearest to zero before
    others.
    """
    n, allowed = f.size, int(limit)
    n_positive = int(np.count_nonzero(f > 0))
    low, high = (n - allowed + 1) // 2, (n + allowed) // 2
    if low <= n_positive <= high:
        return np.where(f > 0, 1, -1).astype(np.int8)
    order = np.lexsort((f, alpha * f))
    y = np.full(n, -1, dtype=np.int8)
    y[order[n - min(max(n_positive, low), high) :]] = 1
    return y


def climb(space: Space, alpha: NDArray, Y: NDArray, limit: float) -> tuple[NDArray, float]:
    """Relabel by sorting until the square stops rising, from the labellings in the rows of Y.

    Return the best labelling with its square, which is never below that of a start. `limit`, the
    maximum of ``|sum(y)|``, must be at least 1 if n is odd.
    """
    best, following = np.full(len(Y), -np.inf), Y
    Y, rising = Y.copy(), np.arange(len(Y))
    for _ in range(MAX_STEPS):
        scores, squares = images(space, (alpha * following).T)
        # A relative rise of a square below this is rounding.
        rises = squares > best[rising] * (1.0 + 1e-9)
        rising = rising[rises]
        Y[rising], best[rising] = following[rises], squares[rises]
        if not rising.size:
            break
        following = np.array([balanced_labels(f, alpha, limit) for f in scores[:, rises].T])
    return Y[best.argmax()], float(best.max())


def largest_possible_square(space: Space, alpha: NDArray, rng: np.random.Generator) -> float:
    r"""Return an upper bound of the square of every labelling, balanced or not.

    By the inequality of Cauchy and Schwarz, with weights alpha of sum 1,
    :math:`|\sum_i \alpha_i y_i z_i|^2 = \max_{|u|=1} (\sum_i \alpha_i y_i z_i'u)^2 \le
    \max_{|u|=1} \sum_i \alpha_i (z_i'u)^2`,
    the largest eigenvalue of the weighted covariance. For many rows it is found by
    Lanczos iterations with a random start, and increased by a thousandth: a larger eigenvalue
    would have a share of at most a thousandth in the vector found, although the iterations
    increase its share in the start. Infinity is returned if they do not converge.
    """
    rows = np.flatnonzero(alpha > 0)
    n, root = rows.size, np.sqrt(alpha[rows])

    def product(V: NDArray) -> NDArray:
        scaled = np.zeros((alpha.size, V.size // n))
        scaled[rows] = root[:, None] * V.reshape(n, -1)
        return root[:, None] * images(space, scaled)[0][rows]

    # Maximum number of rows for which the eigenvalue is computed by LAPACK.
    if n <= 50:
        whole = product(np.eye(n))
        rounding = n * float(np.finfo(np.float64).eps)
        return float(np.linalg.eigvalsh(0.5 * (whole + whole.T))[-1]) * (1.0 + rounding)
    operator = LinearOperator((n, n), matvec=lambda x: product(x).ravel(), dtype=np.float64)
    v0 = rng.standard_normal(n)
    try:
        # The residual is much smaller than the increase: a larger one could miss larger
        # eigenvalues if many are similar.
        value = eigsh(operator, k=1, v0=v0, tol=1e-6, maxiter=300, return_eigenvectors=False)[0]
    except ArpackNoConvergence:
        return float("inf")
    return float(value) * (1.0 + 1e-3)


# ------------------------------------------------------------------ the relaxation


@dataclass(frozen=True, repr=False)
class LabelGenerationResult(Result):
    """Solution of the relaxation over the labellings generated, and labels from it.

    `objective`, the primal value over the labellings generated, is a certified upper bound of the
    relaxation, and `bound`, the eigenvalue bound of `largest_possible_square` at `alpha`, a lower
    one; `gap` is their difference. The residuals are relative to the objective: "master gap" is
    the certified distance to the optimum over the labellings generated, and "violation" the amount
    by which the most violated labelling *found* would lower it (the most violated one of all is
    NP-hard to find, so 0 is not a proof). `labels` are the signs of the scores <w, z_i>, or of the
    leading eigenvector of the mixture. `rho` is the margin of the scores, `labelled_objective` the
    value of the problem before relaxation, and `weights` are those of the labellings (mu).
    """

    _optimum: ClassVar[str] = "the optimum of the relaxation"
    _signed = ("scores", "normal")

    bound: float = -np.inf
    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    normal: Any = None
    rho: float = float("nan")
    labelled_objective: float = float("nan")
    weights: NDArray = field(default_factory=lambda: np.empty(0))
    alpha: NDArray = field(default_factory=lambda: np.empty(0))
    n_labellings: int = 0


def generate_labels(
    space: Space,
    *,
    C: float,
    limit: float,
    n_init: int = 10,
    tol: float = 1e-2,
    max_iter: int = 50,
    seed: int = 0,
    reading: str = "margin",
) -> LabelGenerationResult:
    r"""Solve the relaxation by cutting planes, and derive labels from it.

    With centred rows :math:`z_i` and the set B of labellings with :math:`|\sum_i y_i|` at most
    `limit`, the relaxation is

    .. math:: \max_{\alpha \ge 0, 1'\alpha = 1} \min_{y \in B} \;
              -\tfrac12 \Big|\sum_i \alpha_i y_i z_i\Big|^2
              - \frac{1}{2C} \sum_i \alpha_i^2 .

    Every round solves it over the labellings generated so far (`solve_label_kernel_svm`, whose
    weights mu are a point of the convex hull of all yy'), and searches for a violated labelling
    from `n_init` starts. The rounds, at most `max_iter`, end once violation and gap, relative to
    the objective, are at most `tol`. `limit` must be at least 1 if n is odd.

    The programme is solved in the span of normals :math:`\sum_i \alpha_i y_i z_i`, to which those
    of its solution are added until the gap in the whole space is small. A point of the span is
    also one of the whole space, so its primal value is an upper bound there. The dual value is
    computed in the whole space.

    `reading` sets how labels are found: "margin", the signs of the scores with the widest margin,
    or "eigenvector", the signs of the leading eigenvector of the mixture.
    """
    rng = np.random.default_rng(seed)
    search = _Search(space, C, limit, n_init, tol, reading, rng)
    found = search.find_violated()
    for _ in range(max_iter):
        if found is None:
            break
        search.solve_with(found)
        found = search.find_violated()
    status = Status.CONVERGED if found is None else Status.MAX_ITER
    if status is Status.CONVERGED and not search.master_gap <= tol:
        status = Status.FAILED
    return search.result(status)


@dataclass
class _Search:
    space: Space
    C: float
    limit: float
    n_init: int
    tol: float
    reading: str
    rng: np.random.Generator
    upper: float = np.inf
    master_gap: float = np.inf
    violation: float = np.inf

    def __post_init__(self) -> None:
        n = self.space.n_rows
        self.alpha = np.full(n, 1.0 / n)
        self.Y, self.mu = np.empty((0, n)), np.empty(0)
        # An orthonormal basis of the span of the normals, as coefficients of the rows.
        self.basis = np.empty((n, 0))
        self.history: list[float] = []

    # ------------------------------------------------------------------ new labellings

    def find_violated(self) -> NDArray | None:
        """Return a labelling violated by more than `tol`; None if several searches find none."""
        self.violation = 0.0
        others = self._graph_starts()
        # Number of unsuccessful searches before the end. A single search can miss violated
        # labellings if many are similar.
        for _ in range(5):
            starts = np.array([*self._starts(), *others])
            y, square = climb(self.space, self.alpha, starts, self.limit)
            if not len(self.Y):
                return y
            fall = (self.upper - self._value(square, self.alpha)) / abs(self.upper)
            self.violation = max(self.violation, fall)
            if fall > self.tol:
                return y
            others = []
        return None

    def _value(self, square: float, alpha: NDArray) -> float:
        return -0.5 * (square + float(alpha @ alpha) / self.C)

    def _sides(self, F: NDArray) -> list[NDArray]:
        return [balanced_labels(f, self.alpha, self.limit) for f in F.T]

    def _starts(self) -> list[NDArray]:
        """Return labels: those in use, and sides of random directions.

        The directions have the covariance of the weighted rows.
        """
        order = np.argsort(-self.mu)[: self.n_init // 2]
        in_use = [self.Y[t] for t in order if self.mu[t] > 0]
        noise = self.rng.standard_normal((self.alpha.size, self.n_init - len(in_use)))
        return in_use + self._sides(images(self.space, np.sqrt(self.alpha)[:, None] * noise)[0])

    def _graph_starts(self) -> list[NDArray]:
        """Return the signs of each axis of the kernel's graph, and its halves at the median.

        The best labellings of narrow kernels are far from those found from random directions.
        """
        axes = self.space.graph_axes
        centers = np.median(axes, axis=0) if axes.size else 0.0
        return self._sides(np.hstack([axes, axes - centers]))

    # ------------------------------------------------------------------ the programme over them

    def solve_with(self, y: NDArray) -> None:
        self.Y = np.vstack([self.Y, y])
        found, self.master_gap = self._solve(self.Y, np.append(self.mu, float(not self.history)))
        self.upper, self.mu, self.alpha = found.objective, found.weights, found.alpha
        self.history.append(self.upper)

    def _solve(self, Y: NDArray, mu: NDArray) -> tuple[LabelKernelResult, float]:
        """Solve the programme over labellings, and return its gap in the whole space."""
        V = (self.alpha * Y).T[:, -1:]
        alpha = self.alpha
        for _ in range(MAX_WIDENINGS):
            found = solve_label_kernel_svm(
                self._widened(V), Y, C=self.C, tol=0.1 * self.tol, weights=mu, alpha=alpha
            )
            mu, alpha = found.weights, found.alpha
            V = (alpha * Y).T
            _, squares = images(self.space, V)
            lower = self._value(float(squares.max()), alpha)
            gap = max(found.objective - lower, 0.0) / abs(found.objective)
            if gap <= 0.3 * self.tol:
                break
            V = V[:, (mu > 0) | (squares == squares.max())]
        return found, gap

    def _widened(self, V: NDArray) -> NDArray:
        """Add vectors to the basis, and return the coordinates of the rows in it.

        Directions are left out if they shorten no vector by more than a share of the tolerance.
        """
        _, squares = images(self.space, V)
        V = V[:, squares > 0] / np.sqrt(squares[squares > 0])
        basis = np.hstack([self.basis, V])
        scores, _ = images(self.space, basis)
        gram = basis.T @ scores
        values, vectors = np.linalg.eigh(0.5 * (gram + gram.T))
        kept = values > 0.01 * self.tol
        scaled = vectors[:, kept] / np.sqrt(values[kept])
        self.basis = basis @ scaled
        return scores @ scaled

    # ------------------------------------------------------------------ labels

    def result(self, status: Status) -> LabelGenerationResult:
        order = [t for t in np.argsort(-self.mu, kind="stable") if self.mu[t] > 0]
        Y, mu = self.Y[order], self.mu[order]
        c = _rank_one(Y, mu)
        U = (c @ Y)[None] if self.reading == "eigenvector" else np.vstack([Y, c @ Y])
        V = (self.alpha * U).T
        F, squares = images(self.space, V)
        reads = [_own_margin(np.abs(f), q, self.C) for f, q in zip(F.T, squares, strict=True)]
        best = int(np.argmin([value for _, value in reads]))
        rho, value = reads[best]
        labels = (F[:, best] > 0).astype(np.int64)
        if self.reading == "eigenvector":
            labels = (U[0] > 0).astype(np.int64)
            value = self._solve((2.0 * labels - 1.0)[None], np.ones(1))[0].objective
        bound = self._value(largest_possible_square(self.space, self.alpha, self.rng), self.alpha)
        return LabelGenerationResult(
            objective=self.upper,
            gap=max(self.upper - bound, 0.0),
            residuals={"master gap": self.master_gap, "violation": self.violation},
            status=status,
            n_iter=len(self.history),
            history=tuple(self.history),
            bound=bound,
            labels=labels,
            scores=F[:, best],
            normal=self.space.vector(V[:, best]),
            rho=rho,
            labelled_objective=value,
            weights=mu,
            alpha=self.alpha,
            n_labellings=len(self.Y),
        )


def _rank_one(Y: NDArray, mu: NDArray) -> NDArray:
    """Return c with u = sum_t c_t y_t the leading eigenvector of sum_t mu_t y_t y_t'.

    It solves the eigenproblem of the T x T matrix sqrt(mu_t mu_s) y_t'y_s. The normal of the
    mixture is sum_i alpha_i u_i z_i, which is that of the labelling if there is only one.
    """
    root = np.sqrt(mu)
    c: NDArray = root * np.linalg.eigh(np.outer(root, root) * (Y @ Y.T))[1][:, -1]
    # The sign is arbitrary; choose it so that the first labelling keeps its sign.
    return c * np.sign(c[0] or 1.0)


def _own_margin(sizes: NDArray, square: float, C: float) -> tuple[float, float]:
    """Return the best margin of scores for their own labels, and the objective at the best length.

    With |w| = 1, at length s and margin s r the objective is s^2 (1 + C sum (r - |f_i|)_+^2) / 2 -
    s r. At the best s it is -r^2 / (2 + 2 C sum (r - |f_i|)_+^2), which is minimal at
    C sum (r - |f_i|)_+ |f_i| = 1.
    """
    if not square > 0.0 or not sizes.any():
        return float("nan"), 0.0
    length = float(np.sqrt(square))
    sizes = sizes / length
    ordered = np.sort(sizes)
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    with np.errstate(divide="ignore", over="ignore"):
        candidates = (1.0 / C + squares) / sums
    k = int(np.argmax(candidates <= np.append(ordered[1:], np.inf)))
    r = float(candidates[k])
    slack = np.maximum(r - sizes, 0.0)
    return r * length, -0.5 * r**2 / (1.0 + C * float(slack @ slack))


# ------------------------------------------------------------------ the estimator


class LabelGenerationInputs(NamedTuple):
    """The rows, C of the formula, and the maximum of the absolute sum of a labelling."""

    space: Space
    C: float
    limit: float


class LGMMC(KernelRepresentation, Clusterer):
    r"""Maximum margin clustering by label generation (Li, Tsang, Kwok and Zhou).

    Maximum margin clustering with squared errors, for centred rows
    :math:`z_i = \phi(x_i) - \bar\phi` and the set B of labellings with :math:`|\mathrm{mean}(y)|`
    at most `balance`,

    .. math:: \min_{y \in B} \min_{w, \rho, \xi} \; \tfrac12 \|w\|^2 - \rho
              + \frac{C}{2 n s} \sum_i \xi_i^2 \quad\text{s.t.}\quad
              y_i \langle w, z_i \rangle \ge \rho - \xi_i,
              \qquad s = \frac1n \sum_i \|z_i\|^2,

    is relaxed to the convex hull of all :math:`yy'` (JMLR 2013, section 7.1):

    .. math:: \min_{\mu} \max_{\alpha \ge 0, 1'\alpha = 1} \; -\tfrac12 \alpha' \Big(
              \sum_{y \in B} \mu_y K \circ yy' + \frac{n s}{C} I \Big) \alpha .

    No convex relaxation of the labels alone is tighter. Labellings are generated one at a time:
    each maximises :math:`\|\sum_i \alpha_i y_i z_i\|^2` at the current :math:`\alpha`.

    Parameters
    ----------
    {recursive:n_clusters}
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a callable that takes two matrices, or "precomputed".
        "linear" uses the rows themselves, in linear time and memory.
    {gamma}
    {degree}
    {coef0}
    {kernel_params}
    C : float, optional
        Weight of margin errors, between 1e-10 and 1e10. If None, 30 (1 with mode="paper", which
        uses the papers' C). C has no units: the papers' C is C / (n s). If C is small (about 3),
        all rows have the same weight in the solution, and the labels are those of balanced
        k-means. If C is large, few rows are inside the margin, and the solution mixes more
        labellings.
    balance : float, optional
        Maximum of :math:`|\mathrm{mean}(y)|` over generated labellings y (of -1 and 1). 0 means
        halves, or as near to halves as an odd number of rows allows. If None, 0.5 (0.3 with
        mode="paper"). The papers' b is n times `balance`; they print no value, and the authors set
        theirs from the true classes.
    mode : {"default", "paper"}, default="default"
        "paper" is the problem of JMLR section 7.1 as printed: rows not centred, so that
        hyperplanes pass through the origin and not through the mean of the rows, C in the paper's
        units, and labels from the leading eigenvector of the mixture of labellings. The papers do
        not specify the search for a labelling: here it starts from random sides, and from the
        leading eigenvectors of the kernel's random walk.
    n_init : int, default=10
        Number of starts of the search for each labelling.
    tol : float, default=0.01
        Minimum violation, relative to the objective, for a labelling to be added.
    max_iter : int, default=50
        Maximum number of labellings.
    random_state : int, RandomState or None, default=None
        Random seed of the starts.

    Attributes
    ----------
    {labels_}
    {recursive:tree_}
    coef_ : ndarray of shape (1, n_features)
        w in units of the margin. Only available for kernel="linear".
    dual_coef_ : ndarray of shape (n_samples,)
        Coefficients of k(x_j, x) in units of the margin. Not available for kernel="linear".
    intercept_ : ndarray of shape (1,)
        Constant of the decision function.
    {gamma_}
    status_ : Status
        How the search ended.
    objective_ : float
        Value of the relaxation over the labellings generated, below 0.
    result_ : LabelGenerationResult
        Result with the attributes `bound`, `gap`, `weights` (mu), `n_labellings` and
        `labelled_objective`.
    n_iter_ : int
        Number of labellings generated.
    {kernel:n_features_in_}

    See Also
    --------
    KernelCPMMC : Margin errors that are not squared, by local descent.
    SDPMMC, GMMC : Other relaxations of maximum margin clustering.

    Notes
    -----
    *Certificates.* `objective_` is an upper bound of the value of the relaxation: further
    labellings can only lower it. It is within ``residuals["master gap"]`` of the optimum over the
    labellings generated. The search stops when five rounds of starts find no violated labelling,
    which is not a proof: on pure noise, further starts still find violations above `tol`, and a
    larger `n_init` leaves fewer. ``result_.bound`` is a valid lower bound from the largest
    eigenvalue of the weighted covariance of the rows. No labelling in B has a value below it.

    *Labels.* Candidates are the normals :math:`v_t = \sum_i \alpha_i y_{ti} z_i` of the labellings
    in use, and that of the leading eigenvector of :math:`\sum_t \mu_t y_t y_t'`. The one with the
    lowest objective before relaxation (``labelled_objective``) is kept, and labels are the signs
    of its scores; `balance` is not imposed on them.

    *Large C.* The solution is then a mixture of many very different labellings, and labels may
    change with `random_state`. Compare ``result_.labelled_objective``: lower is better.

    *Paper mode.* With a Gaussian kernel all rows lie on the same side of the origin. With
    ``mode="paper"`` two clusters result only from the balance constraint, and the labels, which
    come from the mixture of labellings, may differ from the signs of `decision_function` on the
    training rows. For Gaussian kernels the paper's section 8.2 sets :math:`\sigma` to a tenth of
    the mean distance: ``gamma = 50 / mean_distance(X) ** 2`` (see `volmar.graphs.distances`).

    The margin has the units of X: scale the features if their units differ.

    References
    ----------
    Y.-F. Li, I. W. Tsang, J. T. Kwok, Z.-H. Zhou (2009), Tighter and convex maximum margin
    clustering, AISTATS. Niu, Dai, Shang and Sugiyama (2013), JMLR 14, section 7.1.

    Examples
    --------
    >>> from volmar import LGMMC
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_circles(200, noise=0.02, factor=0.2, random_state=0)
    >>> model = LGMMC(gamma="4*scale", random_state=0).fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    >>> model.result_.bound <= model.objective_ < 0
    True
    """

    _multiway = "recursive"
    _accepts_sparse = False
    # JMLR section 8.2 tries C = 0.001, 1 and 1000, and prints no balance. 0.3 is the looser of
    # the two values in use for these methods (0.03 for classes of equal size).
    _mode_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"C": 30.0, "balance": 0.5},
        "paper": {"C": 1.0, "balance": 0.3},
    }

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        C: float | None = None,
        balance: float | None = None,
        mode: str = "default",
        n_init: int = 10,
        tol: float = 0.01,
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
        self.balance = balance
        self.mode = mode
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        self._check_kernel()
        check_choice("mode", self.mode, ("default", "paper"))
        if self.C is not None:
            # Limits of C. Beyond them only rounding changes: all rows have the same weight in the
            # solution, or the margin is hard.
            check_number("C", self.C, low=1e-10, high=1e10)
        if self.balance is not None:
            check_number("balance", self.balance, low=0.0)
        check_count("n_init", self.n_init)
        check_number("tol", self.tol, low=0.0, high=0.5, open_low=True)
        check_count("max_iter", self.max_iter)
        if self.balance is not None and self.balance >= 1.0:
            raise ValueError(
                f"balance={self.balance:g} allows all rows on one side. Use a value below 1, or "
                "leave it out."
            )

    def _centers(self) -> bool:
        return self.mode != "paper"

    def _n_starts(self) -> int:
        return 1  # each search for a labelling restarts by itself

    def _problem(self, X: Any, weights: Any) -> LabelGenerationInputs:  # noqa: ARG002 -- no weights
        space, n = self._feature_space(X.astype(np.float64, copy=False), None), X.shape[0]
        spread = self._spread(space)
        C, mean = float(self._value_of("C")), float(self._value_of("balance"))
        # An odd number of rows has no halves, and a labelling never has all rows on one side.
        limit = min(max(mean * n, 1.0) + 1e-12 * n, n - 1.0)
        C = C if self.mode == "paper" else C / (n * spread)
        return LabelGenerationInputs(space, C, limit)

    def _run(self, prepared: LabelGenerationInputs, seed: int) -> LabelGenerationResult:
        result = generate_labels(
            prepared.space,
            C=prepared.C,
            limit=prepared.limit,
            n_init=self.n_init,
            tol=self.tol,
            max_iter=self.max_iter,
            seed=seed,
            reading="eigenvector" if self.mode == "paper" else "margin",
        )
        if np.ptp(result.labels) == 0:
            raise ValueError(
                "all rows are on one side of the hyperplane found, up to rounding. Check that the "
                "rows of X differ, or scale X."
            )
        return result

    def _publish(self, prepared: LabelGenerationInputs, result: LabelGenerationResult) -> None:
        self._publish_hyperplane(prepared.space.hyperplane(result.normal, result.rho, t=0.0))

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, LabelGenerationResult):
            return super()._status_words(result)
        if result.status is Status.MAX_ITER:
            return (
                f"after {result.n_iter} labellings another one is still violated by "
                f"{result.residuals['violation']:.1e} of the objective. Raise max_iter or tol, "
                "lower C, or raise balance"
            )
        return (
            f"rounding errors keep the gap over the labellings at "
            f"{result.residuals['master gap']:.1e} of the objective. Raise tol, scale X, or use "
            "float64"
        )
