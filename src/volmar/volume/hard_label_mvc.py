"""Hard-label maximum volume clustering: MVC-HL of JMLR 2013 and HL-MVC of AISTATS 2011."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar import _memory
from volmar._checks import shown
from volmar.base import Clusterer, Status
from volmar.base.relaxation import RelaxationMixin
from volmar.base.validation import check_choice, check_number
from volmar.base.warn import warn_user
from volmar.graphs import make_similarity
from volmar.graphs.graph import Graph, build_graph
from volmar.solvers import (
    ElliptopeResult,
    solve_elliptope_barrier,
    solve_elliptope_saddle,
    solve_label_mixture,
)
from volmar.solvers.box_qp import BoxQP
from volmar.solvers.elliptope_barrier import MAX_ROWS
from volmar.solvers.elliptope_problem import ElliptopeProblem
from volmar.solvers.elliptope_rounding import RoundedResult
from volmar.volume.hard_label_problem import HardLabelProblem

MATRICES = ("similarity",)
RELAXATIONS = ("sdp", "label_generation")
# The share of the largest weight that is sure to leave eta negative.
SAFETY = 0.9


class HardLabelResult(RoundedResult):
    """Solution of the relaxation, with the labels rounded from it."""


class HardLabelInputs(NamedTuple):
    """The problem of a fit with its weight, and what new rows are compared by."""

    graph: Graph
    problem: HardLabelProblem
    reg: float


class HardLabelMVC(RelaxationMixin, Clusterer):
    r"""Hard-label maximum volume clustering (Niu, Dai, Shang and Sugiyama 2011, 2013).

    Relaxes labels y to a correlation matrix M in the place of yy' and solves (JMLR eq. 13, in
    saddle form)

    .. math:: \min_{M, \eta} \; \max_{0 \le \alpha \le C} \; 2 \cdot 1'\alpha
              - \alpha'(\gamma Q \circ M - \eta I)\alpha - \eta
              \quad \text{s.t.} \quad M \succeq 0, \; M_{ii} = 1, \; 1'M1 \le n b

    with :math:`Q = W + I/n`, to a certified gap. Labels are the signs of the leading eigenvector
    of the centred M.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. More than 2 are found by splitting again: the part whose split
        separates best is split next (see `tree_`). "auto": only where held-out rows confirm the
        split, by their distances to its border (see `volmar.evidence.split_test`).
    affinity : str, callable or Similarity, default="gaussian"
        How similar rows are, as in `SoftLabelMVC`. The Gaussian's are positive semi-definite;
        what others (k-NN graphs, mostly) lack to be so is added to their diagonal, which changes
        neither M nor labels. Named ones come with :math:`W_{ii} = 1`, but for k-NN graphs.
    sigma : float or str, optional
        Width of the Gaussian similarity; "mean/10" if not given, as in the paper.
    n_neighbors : int, optional
        Neighbours of the affinities that have them; if not given, log2(n) + 3 for
        "density_scaling" and 7 for the others.
    reg : float, optional
        :math:`\gamma`. Where it is so large that eta would not be negative, the relaxation says
        little of clusters: `fit` refuses it, or, with ``mode="paper"``, solves it and warns. If
        None, 1, or where that might be too large (rows in tight groups) 0.9 of what is sure
        not to be, :math:`\sqrt n` over the largest eigenvalue of Q. With ``mode="paper"`` always
        1, of the paper's candidates 0.001, 1 and 1000 (JMLR section 8.2) the one in the middle.
    Q : "similarity", matrix, SPDOperator or callable, default="similarity"
        The matrix of pairwise information. "similarity" is :math:`W + I/n`. A symmetric positive
        definite matrix of the training rows, such as a kernel matrix (AISTATS Theorem 2), or a
        function of W that returns one, is used as given; entries may be negative. New rows are
        compared by `affinity` in any case.
    relaxation : {"sdp", "label_generation"}, default="sdp"
        What takes the place of the labellings yy'. "sdp": all correlation matrices, eq. 13.
        "label_generation": mixtures :math:`\sum_t \mu_t y_t y_t'` of labellings within the
        balance, which JMLR section 9 proposes and leaves open; labellings are generated as they
        are needed, as in `LGMMC`. No convex relaxation of the labels alone is tighter. The gap is
        certified by the bound of eq. 13 (for up to 16 rows by all labellings), and stays open
        where that relaxation is not tight. Not with ``mode="paper"``.
    C : float, default=1
        Upper bound of each alpha, at least :math:`1 / \sqrt n`; without effect from 1 on.
    balance : float or None, default=1
        b, a bound on the mean of M's row sums; for M = yy' it is :math:`(n_1 - n_0)^2 \le n b`.
        It holds for M: labels, which are rounded from M, may differ in size by more. None for no
        constraint, which is the paper's, and lets the best M be all ones. Without effect with
        ``mode="paper"``.
    row_balance : bool, default=False
        Whether b bounds the size of every row sum of M, :math:`|M1| \le b`, which for M = yy' is
        :math:`|n_1 - n_0| \le b`. Stricter, and slow to converge. Without effect where there is
        no bound.
    rounding : {"centred", "random"}, default="centred"
        "random" takes the best of 100 random projections of M besides, among those whose groups
        differ no more in size than the centred rounding's. Without effect with ``mode="paper"``.
    mode : {"default", "paper"}, default="default"
        "paper" is the relaxation as printed: no bound on row sums, any `reg`, and labels from the
        leading eigenvector of M cut at its mean. JMLR section 8.2 has C = 1 and the sigma of
        the default; AISTATS section 5 has C = 1e4, which is the same problem. Similarities are not
        negative, and without a bound on row sums M = 11', one cluster, is always a solution. Where
        it is the only one, ``result_.one_cluster`` says so and `fit` warns.
    tol : float, default=1e-5
        Relative gap to stop at: over the value, or what M can change of it where that is less.
    max_iter : int, default=1000
        Most iterations of the outer descent.
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; no limit if not given. The
        strongest splits are made first, and a warning is given where others are left.
    random_state : int, RandomState or None, default=None
        Seed of the start, and of random rounding.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest.
    tree_ : SplitTree
        The splits, where there are more than two clusters; what belongs to one hyperplane is then
        found at ``tree_.splits()[i].model``, not here.
    alpha_ : ndarray of shape (n_samples,)
        Inner maximiser: how much each row takes part.
    reg_ : float
        :math:`\gamma`.
    sigma_ : float or None
        Width of the Gaussian similarity; None for others.
    n_neighbors_ : int or None
        Number of neighbours that the similarity was built with; None where it has none.
    objective_ : float
        Value of the relaxation.
    result_ : HardLabelResult
        Certified result: `gap` bounds the distance to the optimum by a dual point; `rank` and
        `spread` say how near M is to two groups, `one_cluster` whether it is one; `factor` is V
        with M = VV'.
    n_iter_ : int
        Iterations of the outer descent.
    n_features_in_ : int
        Number of features (of training rows, with affinity="precomputed").

    See Also
    --------
    SoftLabelMVC : The same principle without a semi-definite program, for large n.

    Notes
    -----
    The papers call eq. 11 a relaxation of eq. 10, but the direction over y is reversed: eq. 10
    takes the minimum over labellings, eq. 11 to 13 relax the *maximum*. It clusters all the same
    because Q is a similarity here, where the soft-label method takes a Laplacian; with a Laplacian
    it would return a maximum cut. The same holds of the alternative in JMLR section 9: as printed,
    a minimum over the mixture *and* over alpha, it is the minimum over single labellings.
    ``relaxation="label_generation"`` is the minimum over mixtures of the maximum over alpha, with
    eta for the norm of alpha as in eq. 11.

    `decision_function` is :math:`\sum_j p_{xj} \alpha_j y_j`, with :math:`p_{xj}` the similarities
    of a new row to the training rows over their sum.

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
        n_clusters: int | str = 2,
        *,
        affinity: Any = "gaussian",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        reg: float | None = None,
        Q: Any = "similarity",
        relaxation: str = "sdp",
        C: float = 1.0,
        balance: float | None = 1.0,
        row_balance: bool = False,
        rounding: str = "centred",
        mode: str = "default",
        tol: float = 1e-5,
        max_iter: int = 1000,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.Q = Q
        self.relaxation = relaxation
        self.C = C
        self.balance = balance
        self.row_balance = row_balance
        self.rounding = rounding
        self.mode = mode
        self.tol = tol
        self.max_iter = max_iter
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        y = 2.0 * np.asarray(self.labels_, dtype=np.float64) - 1.0
        return np.asarray(self._row_weights(X) @ (self.alpha_ * y))

    def _check_parameters(self) -> None:
        self._check_relaxation()
        if self.reg is not None:
            check_number("reg", self.reg, low=0.0, open_low=True)
        if self.balance is not None:
            check_number("balance", self.balance, low=0.0)
        check_choice("relaxation", self.relaxation, RELAXATIONS)
        if self.mode == "paper" and self.relaxation != "sdp":
            raise ValueError(
                f"relaxation={self.relaxation!r} is not solved in the papers, and mode='paper' "
                "has no rule for it. Use mode='default', or relaxation='sdp'."
            )
        if isinstance(self.Q, str):
            check_choice("Q", self.Q, MATRICES)
        elif not callable(self.Q) and self.n_clusters != 2:
            raise ValueError(
                f"Q must be 'similarity' or a function of the similarities with n_clusters="
                f"{shown(self.n_clusters)}: a matrix of all rows does not fit their parts. Give a "
                "function, or use n_clusters=2."
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
        """Return Q: of the similarities, or as given."""
        if not isinstance(self.Q, str):
            problem = HardLabelProblem.given(graph.operator(self.Q))
            if _is_constant(problem.Q):
                raise ValueError(
                    "all entries of Q beside its diagonal are the same, and nothing tells two "
                    "clusters apart. Use another Q."
                )
            return problem
        if _is_constant(W):
            raise ValueError(
                "all rows of X are equally similar, and nothing tells two clusters apart. Use a "
                "narrower similarity (a smaller sigma), or check X."
            )
        return HardLabelProblem.of(W)

    def _graph_of(self, X: Any) -> Graph:
        given = {"sigma": self.sigma, "n_neighbors": self.n_neighbors}
        if isinstance(self.affinity, str) and self.affinity == "gaussian":
            if self.n_neighbors is not None:
                return build_graph(X, self.affinity, **given)  # which says why it cannot be
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
        bound, n = self._bound(), problem.Q.shape[0]
        settings: dict[str, Any] = {
            "reg": reg,
            "C": float(self.C),
            "tol": self.tol,
            "max_iter": self.max_iter,
        }
        if self.relaxation == "label_generation":
            limit = None
            if bound is not None:
                limit = bound if self.row_balance else float(np.sqrt(n * bound))
            found = solve_label_mixture(problem.Q, limit=limit, random_state=seed, **settings)
        else:
            found = solve_elliptope_saddle(
                problem.Q,
                balance=bound,
                row_balance=self.row_balance,
                random_state=seed,
                **settings,
            )
        if found.status is not Status.DEGENERATE:
            return found
        is_small = n <= MAX_ROWS
        if self.mode == "paper" and is_small:
            return solve_elliptope_barrier(problem.Q, **settings)
        other = f"mode='paper', which solves it for up to {MAX_ROWS} rows" if is_small else ""
        raise ValueError(
            f"reg={reg:g} is too large for these data: eta would not be negative, and the "
            "relaxation would only make Q o M definite. Use reg="
            f"{SAFETY * problem.safe_reg(float(self.C)):.3g}, which never is{other and ', or '}"
            f"{other}."
        )

    def _bound(self) -> float | None:
        is_free = self.mode == "paper" or self.balance is None
        return None if is_free else float(self.balance)

    def _publish(self, prepared: HardLabelInputs, result: HardLabelResult) -> None:
        # New rows are compared with the training rows; W is not needed for it.
        self._row_weights = prepared.graph.row_weights
        self.reg_ = prepared.reg
        self.n_neighbors_ = prepared.graph.n_neighbors
        self.sigma_ = prepared.graph.sigma
        self.alpha_ = result.a
        if result.bound_rest is not None:
            reg = SAFETY * prepared.problem.safe_reg(float(self.C))
            warn_user(
                f"reg={prepared.reg:g} is so large that eta is not negative ({result.eta:.3g}): "
                "the relaxation makes Q o M as definite as it can be, and M says little of the "
                f"clusters. Use reg={reg:.3g}, which is never too large."
            )
            return
        remedy = "Use"
        if self._bound() is None:
            remedy = "Use mode='default', or" if self.mode == "paper" else "Use balance, or"
        self._warn_of_relaxation(result, f"{remedy} a wider similarity")


def _is_constant(W: Any) -> bool:
    """Whether all similarities of three or more rows are the same up to rounding, and not 0."""
    n = W.shape[0]
    if n < 3 or (sparse.issparse(W) and W.nnz < n * (n - 1)):
        return False
    dense = W.toarray() if sparse.issparse(W) else W
    beside = dense[~np.eye(n, dtype=bool)]
    return bool(beside.min() > 0 and np.ptp(beside) <= n * np.finfo(np.float64).eps * beside.max())


def _unshifted(found: ElliptopeResult, by: float) -> ElliptopeResult:
    """Return the result for Q without the multiple of the identity that was added to it."""
    return replace(
        found,
        objective=found.objective + by,
        lower_bound=found.lower_bound + by,
        eta=found.eta - by,
        history=tuple(value + by for value in found.history),
    )
