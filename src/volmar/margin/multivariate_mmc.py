"""MultivariateMMC: maximum margin clustering with losses of the whole labelling."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from volmar._checks import check_choice, check_number
from volmar.base.kernel import used_gamma
from volmar.margin.clusterer import MarginClusterer, MarginInputs
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.multivariate_losses import ErrorLoss, FBetaLoss, NMILoss, RandLoss
from volmar.margin.engine.nested import cutting_planes_outside
from volmar.margin.engine.problem import Loss
from volmar.margin.engine.starts import BALANCE
from volmar.margin.feature_space.kernel import KernelRepresentation, KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.feature_space.space import FeatureSpace
from volmar.solvers import Status

# One over the largest loss of labels in two equal halves: the smallest C for which rho is bounded.
UNITS = {"error": 0.5, "rand": 2.0, "fbeta": 2.0, "nmi": 1.0}
# C of the default mode, and the value of C="scale" for rows with a mean square of 1.
DEFAULT_C, SCALE = 1.2, 10.0
_RULE = re.compile(r"(?:([\d.]+)\s*\*\s*)?scale(?:\s*/\s*([\d.]+))?")


class MultivariateMMC(KernelRepresentation, MarginClusterer):
    r"""Maximum margin clustering with a multivariate loss (Zhao, Kwok and Zhang).

    In place of the margin errors of single rows, the objective has a loss :math:`\Delta` between
    the labels :math:`y = \mathrm{sign} f` and all other labellings y':

    .. math:: \min_{w, t, \rho \ge 0} \; \tfrac12 \|w\|^2 - \rho + C u \max_{y'} \Bigl(
              \rho \Delta(y', y) - \frac1n \sum_i (y_i - y'_i) f_i \Bigr),
              \qquad f_i = \langle w, z_i \rangle + t, \quad |t| \le b \rho

    (the paper's eq. 12 with means in place of sums, centred rows z and an adaptive margin;
    ``threshold="fixed"`` sets :math:`\rho = 1`). The factor u is one over the largest
    :math:`\Delta` of two equal halves: 1/2 for "error", 2 for "rand" and "fbeta", and 1 for "nmi".
    With it C = 1 is the smallest C for every loss, and ``loss="error"`` is `CPMMC` at the same C
    (Theorem 2).

    Parameters
    ----------
    {recursive:n_clusters}
    loss : {"nmi", "rand", "fbeta", "error"}, default="nmi"
        One minus the normalised mutual information ("nmi"), one minus the Rand index ("rand"), one
        minus the F measure of pairs ("fbeta"), or the error rate ("error").
    beta : float, default=1.5
        Weight of the recall in loss="fbeta". With a value above 1, splitting a cluster costs more
        than joining two.
    kernel : str or callable, default="linear"
        "linear", the name of another scikit-learn kernel, a callable that takes two matrices, or
        "precomputed". Kernels other than "linear" use the whole kernel matrix.
    {gamma}
    {degree}
    {coef0}
    {kernel_params}
    C : float, str or None, default=None
        Weight of the loss, at least 1 / (1 - balance) with the adaptive threshold. At the same C
        the first changed labels cost more with these losses than with the error rate (four times
        as much for "rand"). A C close to the minimum is therefore most similar to the default of
        `CPMMC`. With the fixed threshold C has units, those of 1 over a squared distance: "scale"
        is ``10 / mean_i |phi(x_i) - mean|^2``, and "3*scale" and "scale/10" are multiples of it.
        If None, 1.2, or "scale" with mode="paper" and the fixed threshold (see Notes).
    threshold : {"adaptive", "fixed"} or None, default=None
        With "adaptive", the margin :math:`\rho` is optimised. With "fixed", it is 1. If None,
        "adaptive", or the paper's "fixed" with mode="paper".
    balance : float, optional
        Maximum absolute value b of the mean score. With 0 the mean score is 0. If None, b is 0.05
        and clusters of unequal size may count as balanced (see Notes and `balance_`). With
        mode="paper", None means 0.
    balance_unit : {"margin", "score"}, default="margin"
        Unit of `balance`: the margin :math:`\rho`, or the score f. With mode="paper" or the fixed
        threshold the unit is always f. For the paper's l see Notes.
    anneal : "auto" or tuple of float, default="auto"
        Smaller values of C for which the problem is solved first. "auto" means 1.2, 3, 7.5 and so
        on. The empty tuple means none.
    init : {"auto", "k-means", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        As for `CPMMC`.
    n_init : int, default=4
        Number of starts to compare.
    {margin:tol}
    max_iter : int, optional
        Maximum number of steps. If None, 1000. With mode="paper", maximum number of cuts and of
        relabellings per cut; None then means 100.
    mode : {"default", "paper"}, default="default"
        "paper" is the paper's Algorithms 1 and 2 (cutting planes in the outer loop, relabelling in
        the inner loop, all cuts recomputed for new labels) with the fixed threshold, from k-means
        and without annealing; `tol`, `anneal` and `n_init` are not used. See Notes for details
        that the paper leaves open, and for a known failure.
    cut_tol : float, optional
        The paper's :math:`\epsilon`, for which it gives no value. If None, 0.01. Only used with
        mode="paper".
    cccp_tol : float, optional
        The paper's :math:`\alpha`: relabelling stops once the objective changes by a smaller
        share. If None, the paper's 0.01. Only used with mode="paper".
    random_state : int, RandomState or None, default=None
        Random seed of the starts.

    Attributes
    ----------
    {labels_}
    {recursive:tree_}
    coef_ : ndarray of shape (1, n_features)
        w in units of the margin. Only available for kernel="linear".
    intercept_ : ndarray of shape (1,)
        Intercept. Only available for kernel="linear".
    C_ : float
        The C used. Only available for two clusters.
    gamma_ : float or None
        The kernel coefficient used; None for kernels without one. Only available for two clusters.
    {margin:balance_}
    status_ : Status
        How the descent ended. CYCLE, which is possible for "fbeta" and "nmi", means that no
        hyperplane is better both for the labels found *and* for its own labels.
    objective_ : float
        Objective at the solution. It can be compared between starts, but not between losses or
        values of C.
    result_ : MarginResult
        Certified result: for the labels found, no hyperplane is better by more than `gap`.
    n_iter_ : int
        Number of steps.
    {kernel:n_features_in_}

    See Also
    --------
    CPMMC : The error rate as loss; faster.

    Notes
    -----
    `decision_function` is in units of the margin.

    The most violated labelling is found exactly in O(n log n) time for every loss (the paper scans
    O(n^2) contingency tables; see `volmar.margin.engine.multivariate_losses`).

    Relabelling lowers the objective for "error" and "rand", whose losses depend only on the number
    of changed labels. For "fbeta" and "nmi" this does not hold in general (the paper's proof
    treats a piecewise constant function as convex); a relabelling is accepted only if the
    objective falls. From the same start, these losses give about the same labels as the error
    rate.

    *The paper's C and l.* The paper uses sums where means are used here: its scores are f / n, and
    its objective is the one above divided by :math:`n^2`. Its C, :math:`C_p`, is therefore
    ``C = C_p * n**2 / u`` here, with u as above, and its l is `balance` (fixed threshold). In its
    Theorem 2 :math:`\Delta` is twice the *number* of errors, n times that of loss="error"; there
    ``C = 2 * n * C_p`` and ``balance = l / n``. The paper's scores have no intercept in eq. 10,
    but one in eq. 1, which is a special case by Theorem 2. Here they have one.

    *Details that the paper leaves open.* The paper chooses C and l from a grid that it does not
    print, gives no :math:`\epsilon`, and does not describe the initialisation of w (its results
    are means of 50 random runs). mode="paper" uses the C at which the scores of two groups about
    reach the margin ("scale"), l = 0, :math:`\epsilon` = 0.01 and k-means with one random start.
    There are then always rows on both sides. With a larger l and a smaller C all scores may be on
    one side, which raises an error.

    *A known failure of the paper's algorithm.* If C is far above "scale", relabelling and cutting
    planes undo each other. With ``C=10`` on the raw digits 3 and 8 (850 times "scale") and
    loss="nmi", the normalised mutual information falls from 0.72 for k-means to below 0.1 after
    100 cuts and stays below 0.15 after 400. A cut is then still violated by 0.5, and the status is
    MAX_ITER. Use a smaller C ("scale" gives 0.82 after 5 cuts), or mode="default", whose objective
    never rises.

    *Unequal sizes.* With ``balance=None`` a start with clusters of unequal size may count as
    balanced, as for `CPMMC`. The rows z are then centred midway between the means of the two sides
    of the start. Nothing else changes: all rows have the same weight in the losses.

    References
    ----------
    B. Zhao, J. Kwok, C. Zhang, Maximum margin clustering with multivariate loss function.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from volmar import MultivariateMMC
    >>> from sklearn.metrics import normalized_mutual_info_score
    >>> digits = load_digits()
    >>> pair = (digits.target == 1) | (digits.target == 7)
    >>> model = MultivariateMMC(C=10, random_state=0).fit(digits.data[pair])
    >>> round(normalized_mutual_info_score(digits.target[pair], model.labels_), 2)
    1.0
    """

    _paper_loop = staticmethod(cutting_planes_outside)
    # The paper's cccp_tol; it gives no other value. C is a rule, see `_weight_rule`.
    _mode_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"threshold": "adaptive", "balance": BALANCE, "max_iter": 1000},
        "paper": {
            "threshold": "fixed",
            "balance": 0.0,
            "max_iter": 100,
            "cut_tol": 0.01,
            "cccp_tol": 0.01,
        },
    }

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        loss: str = "nmi",
        beta: float = 1.5,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        C: float | str | None = None,
        threshold: str | None = None,
        balance: float | None = None,
        balance_unit: str = "margin",
        anneal: str | Sequence[float] = "auto",
        init: Any = "auto",
        n_init: int = 4,
        tol: float = 0.01,
        max_iter: int | None = None,
        mode: str = "default",
        cut_tol: float | None = None,
        cccp_tol: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.loss = loss
        self.beta = beta
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.C = C
        self.threshold = threshold
        self.balance = balance
        self.balance_unit = balance_unit
        self.anneal = anneal
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.mode = mode
        self.cut_tol = cut_tol
        self.cccp_tol = cccp_tol
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, UNITS)
        if isinstance(self.C, str):
            _factor(self.C)
            if self._value_of("threshold") == "adaptive":
                raise ValueError(
                    f"C={self.C!r} depends on the scale of the rows, which C with the adaptive "
                    "threshold does not. Give a number of at least 1, or use threshold='fixed'."
                )
        super()._check_parameters()
        self._check_kernel()
        check_number("beta", self.beta, low=0.0, high=1e6, open_low=True)

    def _value_of(self, name: str) -> Any:
        value = super()._value_of(name)
        if name != "C":
            return value
        rule = self._weight_rule()
        # Before the rows are known, C for rows with a mean square of 1.
        return getattr(self, "C_", _factor(rule)) if isinstance(rule, str) else rule

    def _weight_rule(self) -> Any:
        """Return C as a number, or the rule that determines it from the rows."""
        if self.C is not None:
            return self.C
        is_printed = self.mode == "paper" and self._value_of("threshold") == "fixed"
        return "scale" if is_printed else DEFAULT_C

    def _unit(self) -> float:
        return UNITS[self.loss]

    def _problem(self, X: Any, weights: Any) -> MarginInputs:
        inputs = super()._problem(X, weights)
        rule = self._weight_rule()
        self.C_ = self._scaled(rule, inputs.space) if isinstance(rule, str) else float(rule)
        return inputs

    def _scaled(self, rule: str, space: KernelSpace | LinearSpace) -> float:
        C = _factor(rule) / self._spread(space)
        if not 0.0 < C < math.inf:
            raise ValueError(
                f"C={rule!r} is out of range for rows of this scale: {C:g}. Scale X, or give C "
                "as a number."
            )
        return C

    def _loss(self, space: FeatureSpace) -> Loss:  # noqa: ARG002 -- rows have no weights here
        losses: dict[str, Loss] = {
            "error": ErrorLoss(),
            "rand": RandLoss(),
            "fbeta": FBetaLoss(float(self.beta)),
            "nmi": NMILoss(),
        }
        return losses[self.loss]

    def _reweighted(self, space: FeatureSpace, weights: Any) -> FeatureSpace:
        """Return the rows centred by these weights; all rows have the same weight in the loss."""
        space = space.reweighted(weights)
        space.shares = None
        return space

    def _resolved_gamma(self, X: Any, weights: Any) -> float | None:
        gamma = super()._resolved_gamma(X, weights)
        self.gamma_ = used_gamma(self.kernel, gamma, X)
        return gamma

    def _publish(self, inputs: MarginInputs, result: MarginResult) -> None:
        super()._publish(inputs, result)
        if self._is_linear():
            self.gamma_ = None
            self.coef_ = np.atleast_2d(self._hyperplane.coef.T)
            self.intercept_ = np.atleast_1d(self._hyperplane.intercept)

    def _status_words(self, result: Any) -> str:
        # A tree of splits has a C_ and a violation per split.
        is_own = isinstance(result, MarginResult) and self.mode == "paper"
        if not is_own or result.status is not Status.MAX_ITER:
            return super()._status_words(result)
        return (
            f"after {result.n_iter} cuts the largest violation is "
            f"{result.residuals['violation']:.2g}, above "
            f"cut_tol={self._value_of('cut_tol'):g}. Lower C (now {self.C_:.3g}), use "
            "mode='default', or raise max_iter or cut_tol"
        )


def _factor(rule: str) -> float:
    """Return the value of C="scale", or of a multiple, for rows with a mean square of 1."""
    match = _RULE.fullmatch(rule.strip())
    try:
        factor = SCALE * float(match[1] or 1) / float(match[2] or 1)  # type: ignore[index]
    except (TypeError, ValueError, ZeroDivisionError):
        factor = 0.0
    if not 0.0 < factor < math.inf:
        raise ValueError(
            "C must be a positive number, None, 'scale' or a multiple of it such as '3*scale' or "
            f"'scale/10', got {rule!r}."
        )
    return factor
