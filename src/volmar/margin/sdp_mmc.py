"""SDPMMC: maximum margin clustering by semi-definite relaxation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_flag
from volmar._eigen import eigenvalues
from volmar._memory import require_memory
from volmar.base.clusterer import Clusterer
from volmar.base.kernel import KernelExpansion, KernelMixin
from volmar.base.relaxation import RelaxationMixin
from volmar.solvers import solve_elliptope_saddle
from volmar.solvers.box_qp import BoxPoint, BoxQP
from volmar.solvers.elliptope import ElliptopeProblem, RoundedResult


@dataclass(frozen=True)
class SDPMMCProblem:
    r"""Kernel support vector machine without intercept, and its dual for given labels.

    For labels y the machine is
    :math:`\min_w \|w\|^2 + C \sum_i \max(0, 1 - y_i \langle w, \phi(x_i) \rangle)`. Its Lagrangian
    is minimal at :math:`w = \frac12 \sum_i \lambda_i y_i \phi(x_i)` with
    :math:`0 \le \lambda \le C`; with :math:`\lambda = 2a` the dual is

    .. math:: \max_{0 \le a \le C/2} \; 2 \cdot 1'a - a'(K \circ yy')a,
              \qquad w = \sum_i a_i y_i \phi(x_i)
    """

    K: NDArray
    box: float

    def machine(self, y: NDArray) -> BoxPoint:
        """Return the dual solution for these labels; its value is also that of the primal."""
        return BoxQP(y.size, self.box, unit_norm=False).solve(self.K * np.outer(y, y))


def definite(K: NDArray, rounding: float = 0.0) -> NDArray:
    """Return K, with a larger diagonal if rounding has left a negative eigenvalue.

    `rounding` is the rounding error of the eigenvalues of K, which matters if K was centred and is
    small compared with the original kernel.
    """
    values = eigenvalues(K)
    lowest, highest = float(values[0]), float(values[-1])
    # A negative eigenvalue of K below this share of the largest is rounding.
    if lowest < -max(1e-6 * highest, rounding):
        raise ValueError(
            "the kernel matrix must be positive semidefinite, but its smallest eigenvalue is "
            f"{lowest:.3g}. Use another kernel, or add {-lowest:.3g} to its diagonal."
        )
    return K if lowest >= 0 else K + abs(lowest) * np.eye(len(K))


@dataclass(frozen=True, repr=False)
class SDPMMCResult(RoundedResult):
    """Solution of the relaxation, the labels rounded from it, and the dual of their machine.

    No labels that satisfy the bound on row sums have a `labelled_objective` below `lower_bound`.
    """

    dual: NDArray = field(default_factory=lambda: np.empty(0))
    labelled_objective: float = float("nan")


class SDPMMCInputs(NamedTuple):
    """The problem of a fit, the row means subtracted from K (or None), and the expansion."""

    problem: SDPMMCProblem
    means: NDArray | None
    expansion: KernelExpansion


class SDPMMC(RelaxationMixin, KernelMixin, Clusterer):
    r"""Maximum margin clustering (Xu, Neufeld, Larson and Schuurmans, NIPS 2004).

    Finds the labels y whose support vector machine has the largest soft margin,

    .. math:: \min_y \min_w \; \|w\|^2 + C \sum_i \max(0, 1 - y_i \langle w, \phi(x_i) \rangle)

    with yy' relaxed to a correlation matrix M (JMLR eq. 22, in saddle form)

    .. math:: \min_M \; \max_{0 \le a \le C/2} \; 2 \cdot 1'a - a'(K \circ M)a
              \quad \text{s.t.} \quad M \succeq 0, \; M_{ii} = 1, \; 1'M1 \le n b

    to a certified gap. Labels are the signs of the leading eigenvector of the centred M.

    Parameters
    ----------
    {recursive:n_clusters}
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a callable that takes two matrices, or "precomputed". It
        must be positive semidefinite.
    {gamma}
    {degree}
    {coef0}
    {kernel_params}
    center : bool, default=True
        Whether the hyperplane passes through the mean of the rows in feature space, and not
        through the origin; see Notes. Ignored with ``mode="paper"``.
    C : float, default=1.0
        Penalty on a row inside the margin. As in `sklearn.svm.SVC` (whose regulariser has a factor
        of 1/2), its effect depends on the scale of the kernel.
    balance : float or None, default=1.0
        Bound b on the mean row sum of M; for M = yy' it is :math:`(n_1 - n_0)^2 \le n b`. The
        bound holds for M; the sizes of the rounded clusters may differ by more. None means no
        constraint. If the sizes of the true groups differ by more, None or a larger b gives better
        labels in less time. Ignored with ``mode="paper"``.
    row_balance : bool, default=False
        Whether b bounds the absolute value of every row sum of M, :math:`|M1| \le b`, which for
        M = yy' is :math:`|n_1 - n_0| \le b`. This is stricter and slow to converge: if the cluster
        sizes differ by more and the kernel is wide, `tol` is not reached. Ignored if there is no
        bound.
    rounding : {"centred", "random"}, default="centred"
        "centred" is the rounding described above. "random" also tries 100 random projections of M
        and takes the best labels among those whose cluster sizes differ by no more than with
        "centred". Ignored with ``mode="paper"``.
    mode : {"default", "paper"}, default="default"
        "paper" is eq. 22 as printed: the kernel is not centred, there is no bound on row sums, C
        is replaced by 2C (a misprint: a is bounded by C), and labels come from the leading
        eigenvector of M, cut at its mean. The default C is the middle one of the paper's
        candidates, 0.001, 1 and 1000 (JMLR section 8.2; 1 and 1e4 in AISTATS section 5). For a
        kernel without negative values M = 11', a single cluster, is then a solution. If it is the
        only one, ``result_.one_cluster`` is True and `fit` issues a warning.
    tol : float, default=1e-5
        Tolerance of the relative gap: the gap divided by the objective, or by the range over which
        M can change the objective if that is smaller.
    max_iter : int, default=2000
        Maximum number of iterations of the outer descent.
    random_state : int, RandomState or None, default=None
        Random seed of the start and of random rounding.

    Attributes
    ----------
    {labels_}
    {recursive:tree_}
    alpha_ : ndarray of shape (n_samples,)
        Inner maximiser of the relaxation.
    dual_coef_ : ndarray of shape (n_samples,)
        Coefficients of `decision_function`.
    intercept_ : ndarray of shape (1,)
        Constant of `decision_function`; 0 if `center` is False.
    {gamma_}
    objective_ : float
        Value of the relaxation.
    result_ : SDPMMCResult
        Certified result. `gap` bounds the distance to the optimum by a dual point, `rank` and
        `spread` measure how close M is to two clusters, `labelled_objective` minus the bound is
        the loss from rounding, and `factor` is V with M = VV'.
    n_iter_ : int
        Number of iterations of the outer descent.
    {kernel:n_features_in_}

    See Also
    --------
    GMMC : A similar problem with an intercept, and a relaxation in n variables.
    HardLabelMVC : The volume in place of the margin, with the same solver.

    Notes
    -----
    *Scale of C.* With C of the primal above, the corner of eq. 22 is :math:`t - C \mu'1`; the
    printed 2C corresponds to twice that C.

    *Centring.* The machine has no intercept. The values of a Gaussian kernel are all positive, so
    all rows lie on the same side of the origin, and without a bound on row sums a single cluster
    is optimal. With a bound the labels are sensible, but the relaxation is badly conditioned,
    because a wide kernel is nearly constant; with more than some hundred rows it may not reach
    `tol`. Centring removes the constant. For a linear kernel it also makes labels independent of
    the origin of the rows. ``center=False`` is for kernels whose origin has a meaning, and for
    narrow kernels, whose rows are nearly orthogonal and have no common direction to remove.

    *New rows.* `decision_function` is the machine trained on the labels,
    :math:`\sum_j a_j y_j k(x_j, x)` (with both sides centred), in units of the margin: support
    vectors at the margin have scores of -1 and 1. As with any soft margin, rows inside it may be
    on the wrong side.

    References
    ----------
    L. Xu, J. Neufeld, B. Larson and D. Schuurmans (2004), Maximum margin clustering, NIPS 17.
    Niu, Dai, Shang and Sugiyama (2013), JMLR 14, section 7.1.

    Examples
    --------
    >>> from volmar import SDPMMC
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_circles(50, noise=0.02, factor=0.2, random_state=0)
    >>> model = SDPMMC(random_state=0).fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    >>> model.result_.is_certified(1e-5)
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
        center: bool = True,
        C: float = 1.0,
        balance: float | None = 1.0,
        row_balance: bool = False,
        rounding: str = "centred",
        mode: str = "default",
        tol: float = 1e-5,
        max_iter: int = 2000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.center = center
        self.C = C
        self.balance = balance
        self.row_balance = row_balance
        self.rounding = rounding
        self.mode = mode
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        return self._expansion(X, self.dual_coef_) + self.intercept_

    def _check_parameters(self) -> None:
        self._check_kernel()
        self._check_relaxation()
        check_flag("center", self.center)

    def _problem(self, X: Any, weights: NDArray | None) -> SDPMMCInputs:  # noqa: ARG002 -- no weights here
        n = X.shape[0]
        require_memory(
            8 * 8.0 * n**2,
            f"the relaxation of {n} rows",
            "Cluster a sample and use predict for the rest, or use SoftLabelMVC.",
        )
        K, expansion = self._kernel_matrix(X)
        # The rounding error of an eigenvalue is at most n times that of an entry.
        rounding = n * float(np.finfo(K.dtype).eps) * float(np.abs(K).max())
        K = K.astype(np.float64, copy=False)
        means = None
        if self.center and self.mode != "paper":
            means = K.mean(axis=1)
            K = K - means - means[:, None] + float(means.mean())
        if (np.ptp(K) if means is None else np.abs(K).max()) <= rounding:
            raise ValueError(
                "all rows of X are identical under the kernel (up to rounding), so there is "
                "nothing to separate. Use a narrower kernel (a larger gamma), or check X."
            )
        box = float(self.C) if self.mode == "paper" else float(self.C) / 2
        problem = SDPMMCProblem(definite((K + K.T) / 2, rounding), box)
        return SDPMMCInputs(problem, means, expansion)

    def _run(self, prepared: SDPMMCInputs, seed: int) -> SDPMMCResult:
        problem = prepared.problem
        balance = None if self.mode == "paper" else self.balance
        found = solve_elliptope_saddle(
            problem.K,
            unit_norm=False,
            C=problem.box,
            balance=balance,
            row_balance=self.row_balance,
            tol=self.tol,
            max_iter=self.max_iter,
            random_state=seed,
        )
        rounded = self._rounded(found.factor, lambda y: problem.machine(y).value, seed)
        machine = problem.machine(rounded.y)
        saddle = ElliptopeProblem(problem.K, C=problem.box, unit_norm=False, balance=balance)
        return SDPMMCResult.of(
            found,
            rounded,
            room_beside_one=saddle.room_beside_one(self.tol),
            dual=machine.a,
            labelled_objective=machine.value,
        )

    def _publish(self, prepared: SDPMMCInputs, result: SDPMMCResult) -> None:
        self._expansion = prepared.expansion
        self.gamma_ = prepared.expansion.gamma
        self.alpha_ = result.a
        # f(x) = sum_j c_j <phi(x) - mu, phi(x_j) - mu>; only c minus its mean matters.
        coefficients = result.dual * (2.0 * result.labels - 1.0)
        self.intercept_ = np.zeros(1)
        if prepared.means is not None:
            coefficients = coefficients - coefficients.mean()
            self.intercept_ = np.array([-float(coefficients @ prepared.means)])
        self.dual_coef_ = coefficients
        remedy = "Use a narrower kernel, or another balance"
        if self.mode == "paper":
            remedy = (
                "Use a narrower kernel, or mode='default', which centres the kernel and bounds "
                "the row sums"
            )
        self._warn_of_relaxation(result, remedy)
