"""Hard-label maximum volume clustering: MVC-HL of JMLR 2013 and HL-MVC of AISTATS 2011."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackNoConvergence

from volmar import _memory
from volmar._checks import check_choice, check_number, shown
from volmar._eigen import eigenvalues, eigsh
from volmar._warn import warn_user
from volmar.base.clusterer import Clusterer
from volmar.base.relaxation import RelaxationMixin
from volmar.graphs.graph import Graph, build_graph, make_similarity, row_weights
from volmar.operators.protocol import SPDOperator
from volmar.solvers import Status, solve_elliptope_barrier, solve_elliptope_saddle
from volmar.solvers.box_qp import BoxQP
from volmar.solvers.elliptope import ElliptopeProblem, ElliptopeResult, RoundedResult
from volmar.solvers.elliptope_barrier import MAX_ROWS

# Above this size the extreme eigenvalues of Q are computed by the Lanczos method.
DENSE_UP_TO = 500
# The default reg is at most this fraction of the largest value that guarantees eta <= 0.
SAFETY = 0.9


# ---- the matrix Q, and bounds on its weight


@dataclass(frozen=True)
class HardLabelProblem:
    r"""Q = W + I/n, shifted to be positive semi-definite, or a given Q.

    Because the diagonal of M is 1 and \|a\| = 1, adding c I to Q subtracts :math:`\gamma c` from
    the objective of the relaxation and adds it to eta. M, a and the labels do not change.
    """

    Q: Any  # ndarray or CSR matrix
    shift: float  # c; 0 if W + I/n is positive semi-definite
    largest: float  # bound on the largest eigenvalue of Q

    @classmethod
    def of(cls, W: Any) -> HardLabelProblem:
        """Return the problem for a dense or sparse similarity matrix W."""
        n = W.shape[0]
        Q = _raised(W, 1.0 / n)
        low, high = spectrum_ends(Q)
        # By rounding, a semi-definite matrix may have eigenvalues just below zero.
        shift = -low if low < -1e-12 * high else 0.0
        return cls(_raised(Q, shift) if shift else Q, shift, high + shift)

    @classmethod
    def given(cls, operator: SPDOperator) -> HardLabelProblem:
        """Return the problem for a given Q; raise an error if it is not positive definite."""
        Q = _matrix_of(operator)
        low, high = spectrum_ends(Q)
        if low <= 1e-13 * max(abs(low), high):
            raise ValueError(
                f"Q must be positive definite, but its smallest eigenvalue is {low:.3g}. Add a "
                "multiple of the identity to it."
            )
        return cls(Q, 0.0, high)

    def safe_reg(self, C: float) -> float:
        r"""Return a reg up to which eta is not positive for any M.

        Let :math:`H = \gamma Q \circ M` and a the maximiser at eta = 0. Because M is a correlation
        matrix, no eigenvalue of H exceeds :math:`\gamma` times the largest eigenvalue of Q. If
        \|a\| < 1, fewer than :math:`1 / C^2` entries are at C, and the other m have
        :math:`(Ha)_i \ge 1`. Then :math:`\sqrt m \le \|Ha\| < \gamma \lambda_1(Q)`. Hence
        \|a\| is at least 1 up to :math:`\gamma = \sqrt m / \lambda_1(Q)`, and a negative or zero
        eta brings it back to 1.
        """
        n = self.Q.shape[0]
        n_at_end = int(np.ceil(1 / min(C, 1.0) ** 2 - 1e-9)) - 1
        return float(np.sqrt(max(n - n_at_end, 1)) / self.largest)


def spectrum_ends(Q: Any) -> tuple[float, float]:
    """Return a lower and an upper bound on the eigenvalues of a symmetric matrix.

    For more than 500 rows they are computed by the Lanczos method, widened by the residuals. If it
    does not converge, they are the bounds of Gershgorin's theorem.
    """
    n = Q.shape[0]
    if n <= DENSE_UP_TO:
        values = eigenvalues(Q.toarray() if sparse.issparse(Q) else Q)
        return float(values[0]), float(values[-1])
    radii = np.asarray(abs(Q).sum(axis=1)).ravel() - np.abs(Q.diagonal())
    low = float((Q.diagonal() - radii).min())
    high = float((Q.diagonal() + radii).max())
    is_definite = low >= 0 or _is_definite(Q)
    low = max(low, 0.0 if is_definite else _end(Q, "SA", low))
    return low, min(high, _end(Q, "LA", high))


def _is_definite(Q: Any) -> bool:
    """Return whether a dense Q has a Cholesky factor; False for a sparse Q, which is not tried."""
    if sparse.issparse(Q):
        return False
    try:
        linalg.cholesky(Q, lower=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    return True


def _end(Q: Any, which: str, otherwise: float) -> float:
    v0 = np.random.default_rng(0).standard_normal(Q.shape[0])
    try:
        value, vector = eigsh(Q, k=1, which=which, tol=1e-4, v0=v0, maxiter=500)
    except ArpackNoConvergence:
        return otherwise
    residual = float(np.linalg.norm(Q @ vector[:, 0] - value[0] * vector[:, 0]))
    return float(value[0]) + (residual if which == "LA" else -residual)


def _matrix_of(operator: SPDOperator) -> Any:
    matrix = getattr(operator, "matrix", None)
    if matrix is None:
        return np.asarray(operator.matvec(np.eye(operator.n)), dtype=np.float64)
    return _raised(matrix.astype(np.float64), float(getattr(operator, "shift", 0.0)))


def _raised(Q: Any, by: float) -> Any:
    if sparse.issparse(Q):
        return sparse.csr_matrix(Q + by * sparse.identity(Q.shape[0]))
    raised: NDArray = Q.copy()
    raised.flat[:: len(raised) + 1] += by
    return raised


# ---- the estimator


class HardLabelResult(RoundedResult):
    """Solution of the relaxation, with the labels rounded from it."""


class HardLabelInputs(NamedTuple):
    """The problem and the weight `reg` of a fit, with the graph that places new rows."""

    graph: Graph
    problem: HardLabelProblem
    reg: float


class HardLabelMVC(RelaxationMixin, Clusterer):
    r"""Hard-label maximum volume clustering (Niu, Dai, Shang and Sugiyama 2011, 2013).

    Replaces yy' for labels y by a correlation matrix M and solves (JMLR eq. 13, in saddle form)

    .. math:: \min_{M, \eta} \; \max_{0 \le \alpha \le C} \; 2 \cdot 1'\alpha
              - \alpha'(\gamma Q \circ M - \eta I)\alpha - \eta
              \quad \text{s.t.} \quad M \succeq 0, \; M_{ii} = 1, \; 1'M1 \le n b

    with :math:`Q = W + I/n`, to a certified duality gap. Labels are the signs of the leading
    eigenvector of the centred M.

    Parameters
    ----------
    {recursive:n_clusters}
    affinity : str, callable or Similarity, default="gaussian"
        Similarity of rows, as in `SoftLabelMVC`. The Gaussian similarity is positive
        semi-definite. To others, such as most k-NN graphs, a multiple of the identity is added,
        which changes neither M nor the labels. :math:`W_{ii}` is 1 for "gaussian" and 0 for the
        graphs of neighbours.
    sigma : float or str, optional
        Width of the Gaussian similarity. If None, "mean/10" as in the paper.
    {n_neighbors}
    reg : float, optional
        :math:`\gamma`. If it is so large that eta would not be negative, the relaxation carries
        little information about clusters: `fit` raises an error, or with ``mode="paper"`` solves
        the problem and warns. If None, 1; if 1 might be too large (rows in tight groups), 0.9 of a
        value that never is, :math:`\sqrt n` divided by the largest eigenvalue of Q. With
        ``mode="paper"``, None always means 1, the middle one of the paper's candidates 0.001, 1
        and 1000 (JMLR section 8.2).
    Q : "similarity", matrix, SPDOperator or callable, default="similarity"
        The matrix of pairwise information. "similarity" is :math:`W + I/n`. A symmetric positive
        definite matrix of the training rows, such as a kernel matrix (AISTATS Theorem 2), or a
        function of W that returns one, is used as given; entries may be negative. New rows are
        always compared by `affinity`.
    C : float, default=1
        Upper bound of each alpha, at least :math:`1 / \sqrt n`. Values above 1 have the same
        effect as 1.
    balance : float or None, default=1
        b, a bound on the mean of the row sums of M. For M = yy' it is
        :math:`(n_1 - n_0)^2 \le n b`. The bound holds for M: the labels, which are rounded from
        M, may be less balanced. If None, there is no constraint, as in the paper, and the best M
        may be all ones. No effect with ``mode="paper"``.
    row_balance : bool, default=False
        If True, b bounds the absolute value of every row sum of M, :math:`|M1| \le b`, which for
        M = yy' is :math:`|n_1 - n_0| \le b`. This is stricter and slow to converge. No effect if
        there is no bound.
    rounding : {"centred", "random"}, default="centred"
        "random" also tries 100 random projections of M and takes the best labelling among those
        that are at least as balanced as the centred one. No effect with ``mode="paper"``.
    mode : {"default", "paper"}, default="default"
        "paper" is the relaxation as printed: no bound on row sums, any `reg`, and labels from the
        leading eigenvector of M cut at its mean. JMLR section 8.2 uses C = 1 and the default
        sigma; AISTATS section 5 uses C = 1e4, which is the same problem. Because similarities are
        not negative, M = 11', a single cluster, is always a solution without a bound on row sums.
        If it is the only one, ``result_.one_cluster`` is True and `fit` warns.
    tol : float, default=1e-5
        Stopping tolerance for the relative gap. The gap is divided by the objective, or by the
        range over which M can change the objective if that is smaller.
    max_iter : int, default=1000
        Maximum number of iterations of the outer descent.
    random_state : int, RandomState or None, default=None
        Random seed of the start and of random rounding.

    Attributes
    ----------
    {labels_}
    {recursive:tree_}
    alpha_ : ndarray of shape (n_samples,)
        Inner maximiser, the weight of each training row in the decision function.
    reg_ : float
        :math:`\gamma`.
    {sigma_}
    {n_neighbors_}
    objective_ : float
        Objective of the relaxation.
    result_ : HardLabelResult
        Certified result. `gap` bounds the distance to the optimum by a dual point. `rank` and
        `spread` measure how close M is to two clusters, `one_cluster` is True if M is a
        single cluster, and `factor` is V with M = VV'.
    n_iter_ : int
        Number of iterations of the outer descent.
    {graph:n_features_in_}

    See Also
    --------
    SoftLabelMVC : The same principle without a semi-definite program, for large n.

    Notes
    -----
    The papers call eq. 11 a relaxation of eq. 10, but the direction over y is reversed: eq. 10
    takes the minimum over labellings, while eq. 11 to 13 relax the *maximum*. The method clusters
    nevertheless, because Q is a similarity here and a Laplacian in the soft-label method. With a
    Laplacian it would return a maximum cut.

    `decision_function` is :math:`\sum_j p_{xj} \alpha_j y_j`, where :math:`p_{xj}` are the
    similarities of a new row to the training rows, normalised to sum to 1.

    References
    ----------
    Niu, Dai, Shang and Sugiyama (2013), Maximum volume clustering: a new discriminative clustering
    approach, JMLR 14, section 3.3.

    Examples
    --------
    >>> from volmar import HardLabelMVC
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_circles(60, random_state=0)
    >>> model = HardLabelMVC(random_state=0).fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    """

    _multiway = "recursive"

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        affinity: Any = "gaussian",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        reg: float | None = None,
        Q: Any = "similarity",
        C: float = 1.0,
        balance: float | None = 1.0,
        row_balance: bool = False,
        rounding: str = "centred",
        mode: str = "default",
        tol: float = 1e-5,
        max_iter: int = 1000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.Q = Q
        self.C = C
        self.balance = balance
        self.row_balance = row_balance
        self.rounding = rounding
        self.mode = mode
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        y = 2.0 * np.asarray(self.labels_, dtype=np.float64) - 1.0
        return np.asarray(row_weights(self._extension, X) @ (self.alpha_ * y))

    def _check_parameters(self) -> None:
        self._check_relaxation()
        if self.reg is not None:
            check_number("reg", self.reg, low=0.0, open_low=True)
        if self.balance is not None:
            check_number("balance", self.balance, low=0.0)
        if isinstance(self.Q, str):
            check_choice("Q", self.Q, ("similarity",))
        elif not callable(self.Q) and self.n_clusters != 2:
            raise ValueError(
                "Q must be 'similarity' or a function of the similarities with n_clusters="
                f"{shown(self.n_clusters)}. A matrix of all rows does not fit the rows of one "
                "cluster. Pass a function, or use n_clusters=2."
            )

    def _problem(self, X: Any, weights: NDArray | None) -> HardLabelInputs:  # noqa: ARG002 -- no weights here
        graph = self._graph_of(X)
        W = graph.W.astype(np.float64, copy=False)
        n = W.shape[0]
        if not sparse.issparse(W):
            _memory.require_memory(
                6 * 8.0 * n**2, f"the relaxation of {n} rows", "Use a sparse affinity."
            )
        problem = self._matrix(graph, W)
        if self.reg is not None:
            return HardLabelInputs(graph, problem, float(self.reg))
        safe = SAFETY * problem.safe_reg(float(self.C))
        return HardLabelInputs(graph, problem, 1.0 if self.mode == "paper" else min(1.0, safe))

    def _matrix(self, graph: Graph, W: Any) -> HardLabelProblem:
        if not isinstance(self.Q, str):
            problem = HardLabelProblem.given(graph.operator(self.Q))
            if _is_constant(problem.Q):
                raise ValueError(
                    "all off-diagonal entries of Q are equal, so that it does not distinguish any "
                    "clusters. Use another Q."
                )
            return problem
        if _is_constant(W):
            raise ValueError(
                "all rows of X are equally similar, so that there are no clusters to find. Use a "
                "narrower similarity (a smaller sigma), or check X."
            )
        return HardLabelProblem.of(W)

    def _graph_of(self, X: Any) -> Graph:
        given = {"sigma": self.sigma, "n_neighbors": self.n_neighbors}
        if isinstance(self.affinity, str) and self.affinity == "gaussian":
            if self.n_neighbors is not None:
                return build_graph(X, self.affinity, **given)  # raises an error with the reason
            sigma = "mean/10" if self.sigma is None else self.sigma
            return build_graph(X, make_similarity("gaussian", sigma=sigma, self_loops=True))
        return build_graph(X, self.affinity, **given)

    def _run(self, prepared: HardLabelInputs, seed: int) -> HardLabelResult:
        problem, reg = prepared.problem, prepared.reg
        found = self._solve(problem, reg, seed)
        inner = BoxQP(problem.Q.shape[0], float(self.C), unit_norm=True)

        def value(y: NDArray) -> float:
            signed = sparse.diags_array(y) @ problem.Q @ sparse.diags_array(y)
            return inner.solve(reg * signed).value

        rounded = self._rounded(found.factor, value, seed)
        room = 1.0
        if found.bound_rest is None:
            saddle = ElliptopeProblem(problem.Q, reg=reg, C=float(self.C), balance=self._bound())
            room = saddle.room_beside_one(self.tol)
        unshifted = _unshifted(found, reg * problem.shift)
        return HardLabelResult.of(unshifted, rounded, room_beside_one=room)

    def _solve(self, problem: HardLabelProblem, reg: float, seed: int) -> ElliptopeResult:
        settings: dict[str, Any] = {"reg": reg, "C": float(self.C)}
        settings.update(tol=self.tol, max_iter=self.max_iter)
        balance = {"balance": self._bound(), "row_balance": self.row_balance}
        found = solve_elliptope_saddle(problem.Q, random_state=seed, **balance, **settings)
        if found.status is not Status.DEGENERATE:
            return found
        is_small = problem.Q.shape[0] <= MAX_ROWS
        if self.mode == "paper" and is_small:
            return solve_elliptope_barrier(problem.Q, **settings)
        other = f"mode='paper', which solves it for up to {MAX_ROWS} rows" if is_small else ""
        raise ValueError(
            f"reg={reg:g} is too large for these data: eta would not be negative, and the "
            "relaxation would only make Q o M definite. Use reg="
            f"{SAFETY * problem.safe_reg(float(self.C)):.3g}, which is never too large"
            f"{other and ', or '}{other}."
        )

    def _bound(self) -> float | None:
        is_free = self.mode == "paper" or self.balance is None
        return None if is_free else float(self.balance)

    def _publish(self, prepared: HardLabelInputs, result: HardLabelResult) -> None:
        # New rows are compared with the training rows, for which W is not needed.
        self._extension = prepared.graph.extension
        self.reg_ = prepared.reg
        self.n_neighbors_ = prepared.graph.n_neighbors
        self.sigma_ = prepared.graph.sigma
        self.alpha_ = result.a
        if result.bound_rest is not None:
            reg = SAFETY * prepared.problem.safe_reg(float(self.C))
            warn_user(
                f"reg={prepared.reg:g} is so large that eta is not negative ({result.eta:.3g}). "
                "The relaxation then makes Q o M as definite as possible, and M has little "
                f"information about clusters. Use reg={reg:.3g}, which is never too large."
            )
            return
        remedy = "Use"
        if self._bound() is None:
            remedy = "Use mode='default', or" if self.mode == "paper" else "Use balance, or"
        self._warn_of_relaxation(result, f"{remedy} a wider similarity")


def _is_constant(W: Any) -> bool:
    """Return whether all similarities of three or more rows are equal up to rounding, not 0."""
    n = W.shape[0]
    if n < 3 or (sparse.issparse(W) and W.nnz < n * (n - 1)):
        return False
    dense = W.toarray() if sparse.issparse(W) else W
    beside = dense[~np.eye(n, dtype=bool)]
    return bool(beside.min() > 0 and np.ptp(beside) <= n * np.finfo(np.float64).eps * beside.max())


def _unshifted(found: ElliptopeResult, by: float) -> ElliptopeResult:
    """Return the result for Q before the multiple of the identity was added."""
    return replace(
        found,
        objective=found.objective + by,
        lower_bound=found.lower_bound + by,
        eta=found.eta - by,
        history=tuple(value + by for value in found.history),
    )
