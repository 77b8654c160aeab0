"""GMMC: generalised maximum margin clustering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar._checks import check_count, check_number, fix_signs
from volmar._eigen import eigenpairs
from volmar._memory import require_memory
from volmar._warn import warn_user
from volmar.base.clusterer import Clusterer
from volmar.base.kernel import KernelExpansion, KernelMixin
from volmar.solvers import Result, Status, solve_packing_sdp
from volmar.solvers.packing_sdp import PackingResult, best_multiple

# Eigenvalues below n times this share of the largest are zero up to rounding.
ROUNDING = float(np.finfo(np.float64).eps)
# If another term is this much larger than the kernel, the kernel is lost in double precision.
LARGEST_PART = 1e12


@dataclass(frozen=True)
class GMMCProblem:
    r"""Generalised maximum margin clustering and its convex relaxation (JMLR eq. 23 and 24).

    Eq. 23 is a support vector machine that also minimises over labels. With the kernel matrix
    :math:`K + \delta I`, scores :math:`u_i = f(x_i) = \sum_j (K + \delta I)_{ij} \alpha_j + b` and
    :math:`\lambda = -b` it reads

    .. math:: \min_{u, \lambda} \; (u + \lambda 1)' (K + \delta I)^{-1} (u + \lambda 1)
              + C_e (1'u)^2 \quad \text{s.t.} \quad u_i^2 \ge 1 :

    the squared norm of f and a penalty on the sum of the scores, with every row outside the margin
    on either side. With a finite C rows may be inside it at a cost of
    :math:`C \max(0, 1 - u_i^2)`. Eq. 24 is the dual of the relaxation in which :math:`u u'` is
    replaced by any positive semidefinite matrix.

    *From eq. 24 to features.* Write K for the shifted matrix and
    :math:`B = (I; 1') K^{-1} (I, 1) + C_e (1; 0)(1', 0)`. The first part has the null vector (1;
    -1), on which the second is :math:`C_e n^2`. B is therefore positive definite for every
    positive definite K and :math:`C_e > 0`, and :math:`\gamma = 0` lies in the interior. (Without
    :math:`C_e` the null vector leaves only :math:`\gamma = 0`. The term does not only fix a
    translation, as the paper says: without it all rows could be in one cluster at no cost.) The
    last row of W does not contain :math:`\gamma`, and its diagonal entry is :math:`1'K^{-1}1 > 0`.
    Its Schur complement turns :math:`W \succeq 0` into

    .. math:: M - Diag(\gamma) \succeq 0, \qquad
              M = K^{-1} - \frac{K^{-1} 1 1' K^{-1}}{1' K^{-1} 1} + C_e 1 1'
                = (HKH)^+ + C_e 1 1'

    with the centring matrix :math:`H = I - 1 1' / n`, since the first two terms times HKH are H.
    M is block diagonal in 1 and its complement, and

    .. math:: M^{-1} = HKH + \frac{1 1'}{C_e n^2} = F F'.

    The columns of F are the kernel principal components of the rows, and a constant feature of
    size :math:`1 / (n \sqrt{C_e})`: the intercept, with the weight :math:`C_e`. Congruence with F
    gives :math:`I - F' Diag(\gamma) F \succeq 0`, the packing problem of
    `volmar.solvers.solve_packing_sdp`. It contains no inverse of K, and avoids the instability for
    which the paper shifts K: the shift may be zero, and :math:`C_e` arbitrarily large.

    *The decision function.* :math:`W w = 0` for :math:`w = (u; \lambda)` is
    :math:`M u = \gamma \circ u` with :math:`\lambda = -1'K^{-1}u / 1'K^{-1}1`. So
    :math:`u = F F' \beta` with :math:`\beta = \gamma \circ u`, and the function is

    .. math:: f(x) = \sum_j \alpha_j k(x_j, x) + b, \qquad \alpha = H \beta, \qquad
              b = \frac{1'\beta}{C_e n^2} - \frac1n 1' K \alpha .

    :math:`\gamma_i |u_i|` is the multiplier of row i, and rows with :math:`\gamma_i = 0` are not
    support vectors.
    """

    K: NDArray
    C: float | None
    balance_weight: float
    shift: float

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.K)

    @cached_property
    def _components(self) -> tuple[NDArray, NDArray]:
        """Positive eigenvalues of H (K + shift I) H in ascending order, and their vectors."""
        means = self.K.mean(axis=1) + self.shift / self.n
        centred = self.K - means - means[:, None] + float(means.mean())
        centred.flat[:: self.n + 1] += self.shift
        values, vectors = eigenpairs(0.5 * (centred + centred.T))
        largest = max(abs(values[0]), values[-1])
        # A kernel matrix may be this far from semidefinite, relative to its largest eigenvalue.
        if values[0] < -1e-8 * largest:
            raise ValueError(
                "the kernel matrix must be positive semidefinite, but the smallest eigenvalue of "
                f"the centred matrix is {values[0] - self.shift:.3g}. Use "
                f"shift={1.01 * (self.shift - values[0]):.3g} or more, or another kernel."
            )
        kept = values > self.n * ROUNDING * largest
        return values[kept], vectors[:, kept]

    @cached_property
    def features(self) -> NDArray:
        """F of shape (n, r) with F F' = H (K + shift I) H + 11' / (C_e n^2)."""
        values, vectors = self._components
        constant = np.full((self.n, 1), 1.0 / (self.n * np.sqrt(self.balance_weight)))
        return np.hstack([vectors * np.sqrt(values), constant])

    @property
    def smallest_penalty(self) -> float:
        """C up to which every row is inside the margin, 1 / the largest eigenvalue of F F'."""
        values, _ = self._components
        return float(1.0 / max(values.max(initial=0.0), 1.0 / (self.n * self.balance_weight)))

    @property
    def upper(self) -> float | None:
        """C, or None if it is so large that it has no effect.

        The diagonal of the packing constraint bounds every entry of gamma by the inverse of the
        entry of F F'.
        """
        smallest = float(np.sum(self.features**2, axis=1).min())
        return None if self.C is None or self.C * smallest > LARGEST_PART else self.C

    def check_scales(self) -> None:
        """Raise an error if the kernel is lost to rounding beside shift or balance weight."""
        size = float(np.abs(self.K).max())
        if self.shift > LARGEST_PART * size:
            raise ValueError(
                f"shift={self.shift:.3g} is too large for a kernel whose largest value is "
                f"{size:.3g}. Lower it. The default is the mean of the diagonal divided by n."
            )
        if self.balance_weight * self.n**2 * LARGEST_PART * size < 1.0:
            raise ValueError(
                f"balance_weight={self.balance_weight:.3g} is too small for a kernel whose "
                f"largest value is {size:.3g}. Raise it. The default is 1e4."
            )

    def scores(self, beta: NDArray) -> NDArray:
        """Return u = F F' beta, the scores of the training rows under the shifted kernel."""
        return self.features @ (self.features.T @ beta)

    def objective(self, beta: NDArray) -> float:
        """Return the value of eq. 23 at the scores of `beta`, at their best scale.

        Scores t u give a matrix of rank one in the relaxation. No labels, with any scores, have a
        value below the optimum of the relaxation.
        """
        weights = self.features.T @ beta
        return best_multiple(float(weights @ weights), self.scores(beta) ** 2, self.C)[0]

    def complementarity(self, g: NDArray, beta: NDArray) -> float:
        """Return u'(M - Diag(g))u over u'Mu at the scores u of `beta`; zero if M u = g u."""
        weights = self.features.T @ beta
        return abs(float(1.0 - g @ self.scores(beta) ** 2 / (weights @ weights)))

    def expansion(self, beta: NDArray) -> tuple[NDArray, float]:
        """Return alpha and the intercept b of f(x) = sum_j alpha_j k(x_j, x) + b."""
        alpha = beta - beta.mean()
        constant = float(beta.sum()) / (self.balance_weight * self.n**2)
        return alpha, constant - float(np.mean(self.K @ alpha + self.shift * alpha))


@dataclass(frozen=True, repr=False)
class GMMCResult(Result):
    """Labels of a fit of GMMC, with the solution of the relaxation that gave them.

    The objective is -1'g, the negated value of eq. 24, with g the paper's gamma. I - F' Diag(g) F,
    whose smallest eigenvalue is given, is congruent to W. The scores are f(x_i) with the shift in
    the kernel, in units of the margin; if C is so small that there is no margin, they have mean
    square 1. `alpha` and `intercept` are the function f(x) = sum_j alpha_j k(x_j, x) + intercept.
    The residual "complementarity" is w'Ww of the scores relative to w'(W + Diag(g))w, zero if the
    condition W w = 0 behind eq. 24 holds. If `eigenvalue_ratio`, the second largest eigenvalue of
    the relaxed uu' over the largest, is 0, the relaxation is tight and the labels are globally
    optimal; at 1 another direction is equally good. `labelled_objective` is the value of eq. 23 at
    the scores; no labels have a value below -objective.
    """

    _optimum: ClassVar[str] = "the optimum of the relaxation"
    _signed = ("scores", "alpha", "intercept")

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    g: NDArray = field(default_factory=lambda: np.empty(0))
    smallest_eigenvalue: float = float("nan")
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    alpha: NDArray = field(default_factory=lambda: np.empty(0))
    intercept: float = 0.0
    eigenvalue_ratio: float = float("nan")
    labelled_objective: float = float("nan")


def solve_gmmc(problem: GMMCProblem, *, tol: float = 1e-7, max_iter: int = 100) -> GMMCResult:
    """Solve eq. 24 and return scores and labels."""
    solution = solve_packing_sdp(problem.features, upper=problem.upper, tol=tol, max_iter=max_iter)
    u, excess, ratio = _direction(problem, solution)
    beta = (solution.g + excess) * u
    scores = problem.scores(beta)
    alpha, intercept = problem.expansion(beta)
    status = solution.status
    # If two eigenvalues are this close, relative to the larger, their eigenvectors are arbitrary.
    if status.ok and ratio > 1.0 - 1e-3:
        status = Status.DEGENERATE
    return GMMCResult(
        objective=solution.objective,
        gap=solution.gap,
        residuals={
            **solution.residuals,
            "complementarity": problem.complementarity(solution.g + excess, beta),
        },
        status=status,
        n_iter=solution.n_iter,
        history=solution.history,
        labels=(scores > 0).astype(np.int64),
        g=solution.g,
        smallest_eigenvalue=solution.smallest_eigenvalue,
        scores=scores,
        alpha=alpha,
        intercept=intercept,
        eigenvalue_ratio=ratio,
        labelled_objective=problem.objective(beta),
    )


def _direction(problem: GMMCProblem, solution: PackingResult) -> tuple[NDArray, float, float]:
    """Return u with M u = (g + excess) u, the excess, and the ratio of the top two eigenvalues.

    The range of the relaxed uu' is the null space of W. Its leading eigenvector is the best
    approximation of rank one; if the null space has one dimension, it spans it. If C is so small
    that W has no zero eigenvalue, the relaxed uu' is zero, and the eigenvector of the smallest
    eigenvalue of M - Diag(g) is used instead.
    """
    F, n = problem.features, problem.n
    has_margin = bool(solution.dual.any())
    if has_margin:
        matrix = F @ solution.dual @ F.T
    else:
        A = np.eye(F.shape[1]) - F.T @ (F * solution.g[:, None])
        matrix = F @ linalg.solve(A, F.T, assume_a="pos")
    values, vectors = eigenpairs(0.5 * (matrix + matrix.T), (n - 2, n - 1))
    second, first = float(max(values[0], 0.0)), float(values[1])
    u = fix_signs(vectors[:, 1])
    if has_margin:
        return np.sqrt(first) * u, 0.0, second / first
    return np.sqrt(n) * u, 1.0 / first, second / first


class GMMCInputs(NamedTuple):
    """The problem of a fit, and the kernel expansion that scores new rows."""

    problem: GMMCProblem
    expansion: KernelExpansion


class GMMC(KernelMixin, Clusterer):
    r"""Generalised maximum margin clustering (Valizadegan and Jin, NIPS 2007).

    Finds the kernel support vector machine with the largest margin over all labels, up to a convex
    relaxation. It has an intercept and a penalty on the sum of the scores:

    .. math:: \min_{f, b} \; \|f\|^2 + C_e \Bigl(\sum_i f(x_i)\Bigr)^2
              + C \sum_i \max(0, 1 - f(x_i)^2), \qquad f(x) = \sum_j \alpha_j k(x_j, x) + b

    (JMLR eq. 23). Its relaxation has a dual in n variables (eq. 24), solved to a certified gap.

    Parameters
    ----------
    {recursive:n_clusters}
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a callable that takes two matrices, or "precomputed". It
        must be positive semidefinite after centring and adding `shift`.
    {gamma}
    {degree}
    {coef0}
    {kernel_params}
    C : float or None, default=1.0
        Penalty on a row inside the margin, the paper's :math:`C_\delta`. None means a hard margin.
        As in `sklearn.svm.SVC`, the effect of C depends on the scale of the kernel, and 1 gives
        nearly a hard margin for kernels with k(x, x) = 1. C has an effect between `smallest_C_`,
        up to which all rows are inside the margin, and the largest entry of ``result_.g`` for the
        hard margin. Values of 2 to 10 times `smallest_C_` give a soft margin.
    balance_weight : float, default=1e4
        Penalty on the squared sum of the scores, the paper's :math:`C_e`. The paper's value of 1e4
        makes the mean score practically zero; small values give a single cluster.
    shift : float, optional
        Value added to the diagonal of the kernel matrix. If None, it is the mean of the diagonal
        divided by n: the paper's 1 / n if k(x, x) = 1. 0 is allowed.
    tol : float, default=1e-7
        The iteration stops once the certified gap, relative to the objective, is at most `tol`.
    max_iter : int, default=100
        Maximum number of iterations. Fits usually take 15 to 35.
    random_state : int, RandomState or None, default=None
        Not used, present for a uniform interface. The method is deterministic.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. Clusters are numbered by size: 0 is the largest. Rows of
        cluster 1 have positive scores.
    {recursive:tree_}
    scores_ : ndarray of shape (n_samples,)
        Scores of the training rows, in units of the margin.
    dual_coef_ : ndarray of shape (n_samples,)
        :math:`\alpha`. Its sum is zero.
    intercept_ : ndarray of shape (1,)
        b.
    {gamma_}
    smallest_C_ : float
        Value of C up to which all rows are inside the margin; see Notes.
    objective_ : float
        Negated value of eq. 24.
    result_ : GMMCResult
        Certified result: duality gap, feasibility and complementarity. `eigenvalue_ratio` and
        `labelled_objective` measure the loss from the relaxation.
    n_iter_ : int
        Number of iterations.
    {kernel:n_features_in_}

    See Also
    --------
    KernelKMeans : Labels by the nearest mean in the same feature space.
    SoftLabelMVC : The volume in place of the margin; linear in the number of edges of a graph.

    Notes
    -----
    *Choice of eigenvector.* The paper takes labels from "the eigenvector of W associated with the
    zero eigenvalue". If the relaxation is not tight, which is often the case, W has several of
    them. Here labels are the signs of the leading eigenvector of the relaxed :math:`uu'`, whose
    range is the null space of W. If the null space has one dimension, this is the paper's vector.
    If the two leading eigenvalues are tied, many labellings are equally good: ``result_.status``
    is DEGENERATE, and `fit` issues a warning. There is no ``mode="paper"``.
    ``GMMC()`` is eq. 24 as printed, with the paper's :math:`C_e`,
    :math:`K + I/n` for kernels with k(x, x) = 1, and the middle one of its candidates for C
    (0.001, 1 and 1000; JMLR section 8.2). AISTATS section 5 has the same :math:`C_e`, and 1, 1e3
    and 1e6 for C.

    *Small C.* Up to `smallest_C_`, one over the largest eigenvalue of the centred kernel matrix,
    all :math:`\gamma` of eq. 24 are C, and W has no zero eigenvalue. The labels are then those of
    C = `smallest_C_`, the signs of the first kernel principal component, and `fit` issues a
    warning. For fewer than 1000 rows and k(x, x) = 1 this is the case for the smallest of the
    paper's candidates, 1e-3. The largest, 1e3, is practically the hard margin.

    *New rows.* `decision_function` is f. For training rows it is `scores_` minus `shift` times
    :math:`\alpha_i`, because the shift does not apply to new rows. Support vectors move slightly
    towards the border, and a row next to it may change sides.

    Time is cubic in the number of rows, about 500 n^3 operations. Memory is about 12 matrices of
    size n x n. Scale the features first if their units differ.

    References
    ----------
    H. Valizadegan and R. Jin (2007), Generalized maximum margin clustering and unsupervised
    kernel learning, NIPS 19. Niu, Dai, Shang and Sugiyama (2013), JMLR 14, section 7.1.

    Examples
    --------
    >>> from volmar import GMMC
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_circles(100, noise=0.02, factor=0.2, random_state=0)
    >>> model = GMMC().fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    >>> model.result_.is_certified(1e-6)
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
        C: float | None = 1.0,
        balance_weight: float = 1e4,
        shift: float | None = None,
        tol: float = 1e-7,
        max_iter: int = 100,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.C = C
        self.balance_weight = balance_weight
        self.shift = shift
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        return self._expansion(X, self.dual_coef_) + self.intercept_

    def _check_parameters(self) -> None:
        self._check_kernel()
        if self.C is not None:
            check_number("C", self.C, low=0.0, open_low=True)
        check_number("balance_weight", self.balance_weight, low=0.0, open_low=True)
        if self.shift is not None:
            check_number("shift", self.shift, low=0.0)
        check_number("tol", self.tol, low=0.0, open_low=True)
        check_count("max_iter", self.max_iter)

    def _problem(self, X: Any, weights: NDArray | None) -> GMMCInputs:  # noqa: ARG002 -- no weights here
        n = X.shape[0]
        require_memory(
            14.0 * 8 * n**2,
            f"the semidefinite programme of {n} rows",
            "Cluster a sample and use predict for the rest, or use SoftLabelMVC.",
        )
        K, expansion = self._kernel_matrix(X)
        K = K.astype(np.float64, copy=False)
        # Kernel values that differ by less, relative to the largest, are equal up to rounding.
        if np.ptp(K) <= 1e-14 * np.abs(K).max():
            raise ValueError(
                f"all {n} rows of X are identical under the kernel, whose values are all "
                f"{K.flat[0]:.3g}, so there is nothing to separate. Check that X was loaded "
                "correctly, or use another kernel or gamma."
            )
        shift = max(float(K.diagonal().mean()), 0.0) / n if self.shift is None else self.shift
        C = None if self.C is None else float(self.C)
        problem = GMMCProblem(K, C, float(self.balance_weight), float(shift))
        problem.check_scales()
        return GMMCInputs(problem, expansion)

    def _run(self, prepared: GMMCInputs, seed: int) -> GMMCResult:  # noqa: ARG002 -- deterministic
        return solve_gmmc(prepared.problem, tol=self.tol, max_iter=self.max_iter)

    def _publish(self, prepared: GMMCInputs, result: GMMCResult) -> None:
        self._expansion = prepared.expansion
        self.gamma_ = prepared.expansion.gamma
        self.scores_ = result.scores
        self.dual_coef_ = result.alpha
        self.intercept_ = np.array([result.intercept])
        self.smallest_C_ = prepared.problem.smallest_penalty
        _warn(prepared.problem, result)

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, GMMCResult):
            return super()._status_words(result)
        if result.status is Status.DEGENERATE:
            return (
                "two directions have the same largest margin, and the labels are one choice of "
                "many. Use another kernel, or a soft margin (C of about "
                f"{2 * self.smallest_C_:.3g})"
            )
        return (
            f"the gap is {result.residuals['relative gap']:.1e} of the objective after "
            f"{result.n_iter} iterations. Raise max_iter, tol or shift"
        )


def _warn(problem: GMMCProblem, result: GMMCResult) -> None:
    if problem.C is not None and problem.smallest_penalty >= problem.C:
        warn_user(
            f"All rows are inside the margin at C={problem.C:.3g}, and the labels are the signs "
            "of the first kernel principal component. Raise C above "
            f"{problem.smallest_penalty:.3g}.",
        )
    if np.ptp(result.labels) == 0:
        warn_user(
            "All rows are in one cluster, because "
            f"balance_weight={problem.balance_weight:.3g} is too small a penalty on scores of "
            "one sign. Raise it (the default is 1e4).",
        )
