"""MultivariateMMC: maximum margin clustering with losses of the whole labelling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from volmar.base.kernel import N_LANDMARKS
from volmar.base.validation import check_choice, check_number
from volmar.margin.clusterer import MarginClusterer, MarginInputs
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.losses import Loss
from volmar.margin.engine.multivariate_losses import ErrorLoss, FBetaLoss, NMILoss, RandLoss
from volmar.margin.engine.nested import cutting_planes_outside
from volmar.margin.feature_space.representation import KernelRepresentation
from volmar.margin.feature_space.space import FeatureSpace

# One over the largest loss of labels in two equal halves: the smallest C that bounds rho.
UNITS = {"error": 0.5, "rand": 2.0, "fbeta": 2.0, "nmi": 1.0}


class MultivariateMMC(KernelRepresentation, MarginClusterer):
    r"""Maximum margin clustering with a multivariate loss (Zhao, Kwok and Zhang).

    In place of single margin errors, a loss :math:`\Delta` between the labels
    :math:`y = \mathrm{sign} f` and all other labellings y' is held below the margin:

    .. math:: \min_{w, t, \rho \ge 0} \; \tfrac12 \|w\|^2 - \rho + C u \max_{y'} \Bigl(
              \rho \Delta(y', y) - \frac1n \sum_i (y_i - y'_i) f_i \Bigr),
              \qquad f_i = \langle w, z_i \rangle + t, \quad |t| \le b \rho

    (the paper's eq. 12 with means in the place of sums, centred rows z and an adaptive margin;
    ``threshold="fixed"`` has :math:`\rho = 1`). u = 1 / max :math:`\Delta` makes C = 1 the
    smallest for every loss, so that ``loss="error"`` is `CPMMC` at the same C (Theorem 2).

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. The losses are defined for 2; more are found by splitting again: the
        part whose split separates best is split next (see `tree_`). "auto": only where held-out
        rows confirm that there is more than one group (see `volmar.evidence.split_test`).
    loss : {"nmi", "rand", "fbeta", "error"}, default="nmi"
        One less the normalised mutual information, one less the Rand index, one less the F measure
        of pairs, or the error rate.
    beta : float, default=1.5
        Of loss="fbeta": above 1, splitting a cluster costs more than joining two.
    kernel : str or callable, default="linear"
        "linear", the name of a scikit-learn kernel, a function of two matrices, or "precomputed".
        Kernels other than linear take the whole kernel matrix, or landmarks (see `method`).
    gamma : float, str or None, default="scale"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2". "scale" is
        1 / (n_features * variance of X), "4*scale" and "scale/4" are multiples of it; None is
        1 / n_features. Other kernels have no use for it.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    method : {"exact", "nystroem"}, default="exact"
        How kernels other than linear are represented; as for `KernelCPMMC`.
    n_landmarks : int, default=100
        Landmarks of method="nystroem".
    C : float, default=1.2
        Weight of the loss, at least 1 / (1 - balance) with the adaptive threshold. These losses
        charge the first flips more than the error rate does at the same C (four times as much for
        "rand"), so that a C near the smallest is nearest to `CPMMC` with its default.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        Whether the margin :math:`\rho` is found, or is 1 as in the paper.
    balance : float, optional
        b: how far from 0 the mean score may be. 0 puts it at 0. If not given it is 0.05, and
        clusters of unequal size may count as balanced (see Notes and `balance_`); with
        mode="paper" it is 0.05 and no more.
    balance_unit : {"margin", "score"}, default="margin"
        Whether `balance` is in units of :math:`\rho` or of f; the paper's l is n times the latter.
        With mode="paper" and with the fixed threshold it is the latter always.
    anneal : "auto" or tuple of float, default="auto"
        Values below C to pass through first: 1.2, 3, 7.5 and so on, those given, or none, ().
    init : {"auto", "k-means", "random"} or array of shape (n_samples,), default="auto"
        As for `CPMMC`.
    n_init : int, default=4
        Starts to compare.
    tol : float, default=0.01
        Certified gap, relative to the objective, at which to stop.
    max_iter : int, optional
        Maximum number of steps (default 1000); with mode="paper" of cuts, and of relabellings for
        each (default 100).
    mode : {"default", "paper"}, default="default"
        "paper": the paper's Algorithms 1 and 2 (cutting planes outside, relabelling inside, every
        cut computed again for new labels), from k-means, without annealing; `tol`, `anneal` and
        `n_init` have no part in it. Its threshold is
        "fixed": say so too.
    cut_tol : float, optional
        The paper's :math:`\epsilon`, 0.01 if not given. Only with mode="paper".
    cccp_tol : float, optional
        Share of the objective at which relabelling ends, 0.01 if not given (the paper's 1 %). Only
        with mode="paper".
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; no limit if not given. The
        strongest splits are made first, and a warning is given where others are left.
    random_state : int, RandomState or None, default=None
        Seed of starts and landmarks.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest.
    tree_ : SplitTree
        The splits, where there are more than two clusters; what belongs to one hyperplane is then
        found at ``tree_.splits()[i].model``, not here.
    coef_ : ndarray of shape (1, n_features)
        w in units of the margin; only for kernel="linear".
    intercept_ : ndarray of shape (1,)
        Offset; only for kernel="linear".
    balance_ : tuple of float
        Shares of the rows (of their weight) in cluster 0 and 1 that count as balanced: halves, or
        the sizes that ``balance=None`` took from the start. Only where there are two clusters.
    status_ : Status
        How the descent ended. CYCLE, which can happen for "fbeta" and "nmi": no hyperplane is
        better for the labels found *and* for its own labels.
    objective_ : float
        The minimised objective. It compares starts, not losses or values of C.
    result_ : MarginResult
        Certified result: with the labels found no hyperplane is better by more than `gap`.
    n_iter_ : int
        Steps.
    n_features_in_ : int
        Number of features (of training rows, with kernel="precomputed").

    See Also
    --------
    CPMMC : The error rate, faster.

    Notes
    -----
    `decision_function` is in units of the margin.

    The most violated labelling is found exactly in O(n log n) for every loss (the paper scans
    O(n^2) contingency tables; see `volmar.margin.engine.multivariate_losses`).

    Relabelling lowers the objective for "error" and "rand", whose losses depend on the number of
    flips only. For "fbeta" and "nmi" no such theorem holds (the paper's step to it takes a
    piecewise constant function for a convex one); a relabelling is accepted only where the
    objective falls. Started alike, these losses give about the same labels as the error rate.

    *Unequal sizes.* With ``balance=None`` a start of unequal size may count as balanced, as for
    `CPMMC`. The losses count rows, which keep their weights: z is then centred midway between the
    means of the start's sides, and no more changes.

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

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        loss: str = "nmi",
        beta: float = 1.5,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        method: str = "exact",
        n_landmarks: int = N_LANDMARKS,
        C: float = 1.2,
        threshold: str = "adaptive",
        balance: float | None = None,
        balance_unit: str = "margin",
        anneal: str | Sequence[float] = "auto",
        init: str | ArrayLike = "auto",
        n_init: int = 4,
        tol: float = 0.01,
        max_iter: int | None = None,
        mode: str = "default",
        cut_tol: float | None = None,
        cccp_tol: float | None = None,
        alpha: float = 0.05,
        max_clusters: int | None = None,
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
        self.method = method
        self.n_landmarks = n_landmarks
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
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, UNITS)
        super()._check_parameters()
        self._check_representation()
        check_number("beta", self.beta, low=0.0, high=1e6, open_low=True)

    def _unit(self) -> float:
        return UNITS[self.loss]

    def _loss(self, space: FeatureSpace) -> Loss:  # noqa: ARG002 -- rows have no weights here
        losses: dict[str, Loss] = {
            "error": ErrorLoss(),
            "rand": RandLoss(),
            "fbeta": FBetaLoss(float(self.beta)),
            "nmi": NMILoss(),
        }
        return losses[self.loss]

    def _reweighted(self, space: FeatureSpace, weights: Any) -> FeatureSpace:
        """Return the rows centred by these weights; in the losses all rows count alike."""
        space = space.reweighted(weights)
        space.shares = None
        return space

    def _publish(self, inputs: MarginInputs, result: MarginResult) -> None:
        super()._publish(inputs, result)
        if self._is_linear():
            self.coef_ = self._hyperplane.coef[None, :]
            self.intercept_ = np.array([self._hyperplane.intercept])
