"""Semi-supervised classification by approximate volume regularisation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_choice, check_number, check_random_state
from volmar._input import check_labelled_rows, check_rows, kind_of_classes
from volmar._memory import explain_memory
from volmar._threads import one_thread
from volmar._warn import warn_user
from volmar.base.outcome import finite_scores, fresh_fit, quiet
from volmar.graphs.graph import build_graph, row_weights
from volmar.operators.protocol import EigenPairs, SPDOperator
from volmar.solvers import Result, Status
from volmar.solvers.result import Certificate
from volmar.volume.descent import _Secular
from volmar.volume.problem import VolumeProblem
from volmar.volume.two_way import SAME

# ---- avr


# Labels count as orthogonal to the lowest eigenvectors if their projection is below this fraction
# of their norm.
ORTHOGONAL = 1e-8
# Maximum number of lowest eigenvectors that are computed to detect the degenerate case.
MAX_PAIRS = 64

# Minimiser on the unit sphere, its multiplier there, and the status.
_Found = tuple[NDArray, float, Status]


# ---------------------------------------------------------------------------------- problem


@dataclass(frozen=True)
class AVRProblem:
    r"""Approximate volume regularisation (JMLR eq. 25; El-Yaniv, Pechyony and Vapnik 2008).

    .. math:: \min_h \; -\frac{1}{m} h'y + \gamma \, h'Qh \quad \text{s.t.} \quad \|h\|_2 = t

    y is +1 and -1 on the m labelled rows and 0 on the others. With :math:`h = t u` this is
    :math:`\min -2y'u + \rho \, u'Qu` over the unit sphere, :math:`\rho = 2 m t \gamma`. The
    direction of h, and therefore the classes, depend on scale and regulariser only through their
    product. Adding a multiple of the identity to Q changes the objective by a constant and leaves
    h unchanged.

    Q is `operator`, :math:`\gamma` is `reg`, t is `scale`. `y` are +1, -1, or 0 for a row without
    label.
    """

    operator: SPDOperator
    y: NDArray
    reg: float
    scale: float

    @property
    def n_labelled(self) -> int:
        """Number m of labelled rows."""
        return int(np.count_nonzero(self.y))

    @property
    def strength(self) -> float:
        r""":math:`\rho = 2 m t \gamma`, the regulariser of the problem on the unit sphere."""
        return 2 * self.n_labelled * self.scale * self.reg

    def objective(self, h: NDArray) -> float:
        """Return the objective of the soft responses h, without rescaling them."""
        smoothness = self.reg * float(h @ self.operator.matvec(h))
        return smoothness - float(h @ self.y) / self.n_labelled

    def certificate(self, h: NDArray, lowest: float | None = None) -> Certificate:
        r"""Recompute the residuals of h from Q, and bound its distance to the minimum.

        "stationarity" is the norm of ``reg Q h - eta h - y / 2m``, half the gradient of the
        Lagrangian at the least-squares multiplier, divided by the larger norm of its first and
        third term. "norm" is the relative difference of the norm of h and the scale.

        On the sphere the Lagrangian has no duality gap. With the residual
        :math:`r = y / 2m - (\gamma Q - \eta I) h`, which is orthogonal to h for the least-squares
        multiplier, and :math:`g = \gamma \lambda_1 - \eta`, the dual value at
        :math:`\eta - \delta` shows that h is within
        :math:`(|r|^2 + \delta^2 t^2) / (g + \delta)` of the minimum; the best :math:`\delta`
        gives :math:`2 t^2 (\sqrt{g^2 + |r|^2 / t^2} - g)`. At a stationary point that is not the
        minimum, g is negative and the gap is large.
        """
        if lowest is None:
            lowest = _lower_bound(self.operator, self.operator.smallest_eigenpairs(1))
        linear = self.y / (2 * self.n_labelled)
        image = self.reg * self.operator.matvec(h)
        square = float(h @ h)
        eta = float(h @ (image - linear)) / square
        residual = float(np.linalg.norm(linear - image + eta * h))
        size = max(float(np.linalg.norm(linear)), float(np.linalg.norm(image)))
        length = float(np.sqrt(square))
        margin = self.reg * lowest - eta
        root = float(np.hypot(margin, residual / length))
        # With a positive margin, root - margin would suffer from cancellation.
        slack = residual**2 / (square * (root + margin)) if margin > 0 else root - margin
        return Certificate(
            float(h @ image) - 2 * float(h @ linear),
            {"stationarity": residual / size, "norm": abs(length / self.scale - 1.0)},
            2 * square * slack,
        )

    def error(self, h: NDArray, eta: float, lowest: float) -> float:
        r"""Bound the error of the responses, up to a rounding difference of the scale.

        With :math:`A = \gamma Q - \eta I`, the vector :math:`A^{-1} y / 2m` is the minimum for the
        scale equal to its norm. For every c it differs from c h by at most
        :math:`|y / 2m - c A h| / (\gamma \lambda_1 - \eta)`, and a positive factor changes no
        sign. The bound is infinite if eta is not below the pole.
        """
        margin = self.reg * lowest - eta
        if not margin > 0:
            return np.inf
        linear = self.y / (2 * self.n_labelled)
        image = self.reg * self.operator.matvec(h) - eta * h
        factor = float(linear @ image) / float(image @ image)
        return float(np.linalg.norm(linear / factor - image)) / margin


# ----------------------------------------------------------------------------------- solver


@dataclass(frozen=True, repr=False)
class AVRResult(Result):
    """Soft responses with their multipliers; one column per class for more than two classes.

    Every column of h has the norm `scale`. `multipliers` are eta of each column, the smallest root
    of JMLR eq. 26, and `errors` bound the error of each column (see `AVRProblem.error`; NaN if the
    status is not CONVERGED).
    """

    _solution = ("h",)

    h: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    multipliers: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    errors: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Mask of the rows whose class is not determined: they are within `errors` of a tie.

        Such rows lie half-way between labels, in a component of the graph without labels, or so
        far from all labels that their response is below the rounding error.
        """
        if self.h.ndim == 1:
            return ~(np.abs(self.h) > self.errors[0])
        rows, best = np.arange(self.h.shape[0]), self.h.argmax(axis=1)
        ahead = self.h[rows, best, None] - self.h
        ahead[rows, best] = np.inf
        return ~np.all(ahead > self.errors + self.errors[best, None], axis=1)


def solve_avr(problem: AVRProblem, *, tol: float = 1e-8) -> AVRResult:
    r"""Find the global minimum of approximate volume regularisation.

    The conditions for a stationary point are (JMLR, above eq. 26)

    .. math:: (\gamma Q - \eta I) h = \frac{y}{2m}, \qquad
              \frac{1}{4 m^2} \sum_i \frac{(v_i'y)^2}{(\gamma\lambda_i - \eta)^2} = t^2,

    and the global minimum is the one with :math:`\eta \le \gamma\lambda_1`, for which
    :math:`\gamma Q - \eta I` is positive semidefinite. As eta increases to that pole, the sum
    grows from 0 to infinity. The root below the pole is therefore unique and the smallest of all,
    unless y is orthogonal to every eigenvector of :math:`\lambda_1`. In that case the sum stays
    finite at the pole. If it is below :math:`t^2` there, all roots of eq. 26 lie beyond the pole
    and none is the minimum. The minimum then has :math:`\eta = \gamma\lambda_1`, with the rest of
    its norm along such an eigenvector in either direction, and the status is DEGENERATE.

    The status is MAX_ITER if the search for the multiplier ended too early and the residual is
    above the square root of `tol`.
    """
    pairs = _lowest_pairs(problem)
    lowest = _lower_bound(problem.operator, pairs)
    found = _at_the_pole(problem, pairs)
    if isinstance(found, float):
        found = _below_the_pole(problem, pairs, found, tol)
    u, eta, status = found
    h = u * (problem.scale / float(np.linalg.norm(u)))
    eta *= problem.reg / problem.strength
    certificate = problem.certificate(h, lowest)
    if certificate.residuals["stationarity"] > np.sqrt(tol):
        status = Status.MAX_ITER
    error = problem.error(h, eta, lowest) if status.ok else np.nan
    return AVRResult(
        **vars(certificate),
        status=status,
        n_iter=1,
        history=(certificate.objective,),
        h=h,
        multipliers=np.array([eta]),
        errors=np.array([error]),
    )


def _lower_bound(operator: SPDOperator, pairs: EigenPairs) -> float:
    """Return a lower bound of the eigenvalues: the first less its residual, or a known bound."""
    return max(float(pairs.values[0] - pairs.residuals[0]), operator.bounds[0])


def _lowest_pairs(problem: AVRProblem) -> EigenPairs:
    """Return the lowest eigenpair, or more of them if y is orthogonal to it.

    In that case all eigenvectors of the lowest eigenvalue and at least one more are returned, at
    most `MAX_PAIRS`. One pair is enough in the ordinary case, and for a Laplacian it is known.
    """
    operator, k = problem.operator, 1
    while True:
        pairs = operator.smallest_eigenpairs(k)
        tied = pairs.values[-1] - pairs.values[0] <= SAME * max(map(abs, operator.bounds))
        if not tied or not _is_orthogonal(problem.y, pairs.vectors):
            return pairs
        if k >= min(MAX_PAIRS, operator.n):
            return pairs
        k = min(2 * k, MAX_PAIRS, operator.n)


def _is_orthogonal(y: NDArray, vectors: NDArray) -> bool:
    return float(np.linalg.norm(vectors.T @ y)) <= ORTHOGONAL * float(np.linalg.norm(y))


def _at_the_pole(problem: AVRProblem, pairs: EigenPairs) -> _Found | float:
    r"""Return the minimiser on the unit sphere if its multiplier is at the pole.

    If y is numerically orthogonal to all lowest eigenvectors V and x is not longer than 1, the
    minimiser is :math:`x + \sqrt{1 - |x|^2} \, v` with
    :math:`x = (\rho Q - \rho\lambda_1 I)^+ y` and v along the projection of y on V. If that
    projection is zero up to rounding, both signs of v give a minimum.

    Otherwise the function returns a distance from the pole at which h is still too long. It is
    :math:`|V'y|`, because the part of h along V alone has norm 1 there, or
    :math:`(|x| - 1) \rho\Delta` with :math:`\Delta = \lambda_2 - \lambda_1`, because
    :math:`|h| \ge |x| \rho\Delta / (\rho\Delta + \mu)` at a distance :math:`\mu`.
    """
    low = pairs.values - pairs.values[0] <= SAME * max(map(abs, problem.operator.bounds))
    V, lowest, rho = pairs.vectors[:, low], float(pairs.values[0]), problem.strength
    along = V.T @ problem.y
    lean = float(np.linalg.norm(along))
    if low.all() or not _is_orthogonal(problem.y, V):
        return lean
    gap = float(pairs.values[~low][0]) - lowest
    x, rest = np.zeros_like(problem.y), problem.y - V @ along
    # Linear solves at a distance from the pole of 1e-3 of the spectral gap: each of four
    # corrections reduces the error by that factor.
    for _ in range(5):
        step = problem.operator.solve(1e-3 * gap - lowest, rest).x / rho
        x = x + step - V @ (V.T @ step)
        rest = problem.y - V @ along - rho * (problem.operator.matvec(x) - lowest * x)
    length = float(np.linalg.norm(x))
    if length > 1 + ORTHOGONAL:
        return max(lean, (length - 1) * rho * gap)
    # Below this fraction of their norm, the sign of the projection is rounding error.
    leans = lean > 1e-13 * float(np.linalg.norm(problem.y))
    direction = V @ along / lean if leans else V[:, 0]
    fill = float(np.sqrt(max(1 - length**2, 0.0)))
    # Just below the pole, at the root of eq. 26 to first order.
    eta = rho * lowest - (lean / fill if leans and fill > 0 else 0.0)
    return x + fill * direction, eta, Status.CONVERGED if leans else Status.DEGENERATE


def _below_the_pole(problem: AVRProblem, pairs: EigenPairs, distance: float, tol: float) -> _Found:
    """Return the minimiser on the unit sphere, at least `distance` below the pole."""
    unit = VolumeProblem(problem.operator, problem.strength, balance=np.inf)
    # The closed-form start is at the pole itself if strength = |y| and no two labelled rows are
    # neighbours, because the diagonal of a normalised Laplacian is 1.
    highest = problem.strength * float(pairs.values[0]) - distance
    best = _Secular(unit, problem.y, None, pairs.values, highest).solve(tol)
    # Far from the labels, responses are small, and their signs could be those of the error of an
    # iterative solve. One step of iterative refinement corrects them.
    rho, u = problem.strength, best.h
    rest = problem.y - rho * problem.operator.matvec(u) + best.eta * u
    u = u + problem.operator.solve(-best.eta / rho, rest).x / rho
    return u, best.eta, Status.CONVERGED


def solve_one_against_rest(
    operator: SPDOperator, Y: NDArray, reg: float, scale: float, *, tol: float = 1e-8
) -> AVRResult:
    """Solve one problem per column of the labels Y (+1, -1 or 0) with the same Q.

    `objective` and `gap` are sums over the classes, `residuals` are maxima. The status is that of
    the first class that has not converged.
    """
    found = [solve_avr(AVRProblem(operator, y, reg, scale), tol=tol) for y in Y.T]
    objective = sum(one.objective for one in found)
    names = found[0].residuals
    return AVRResult(
        objective=objective,
        gap=sum(one.gap for one in found),
        residuals={name: max(one.residuals[name] for one in found) for name in names},
        status=next((one.status for one in found if not one.status.ok), Status.CONVERGED),
        n_iter=1,
        history=(objective,),
        h=np.column_stack([one.h for one in found]),
        multipliers=np.concatenate([one.multipliers for one in found]),
        errors=np.concatenate([one.errors for one in found]),
    )


# ---- volume regularized classifier


MATRICES = ("laplacian", "kernel")
UNLABELLED = -1


class VolumeRegularizedClassifier(ClassifierMixin, BaseEstimator):
    r"""Approximate volume regularisation (AVR), a transductive classifier.

    Finds soft responses h, one number per row, that agree with the labels of a few rows and are
    smooth on the similarity graph of all rows (JMLR eq. 25; El-Yaniv, Pechyony and Vapnik 2008):

    .. math:: \min_h \; -\frac{1}{m} h'y + \gamma \, h'Qh \quad \text{s.t.} \quad \|h\|_2 = t

    y is +1 on the labelled rows of `classes_[1]`, -1 on those of `classes_[0]` and 0 on the
    unlabelled ones, m is the number of labelled rows and :math:`Q = L_{sym} + I/n` of the graph.
    Classes are the signs of h. The problem is not convex but is solved exactly: its optimality
    conditions are a linear system and a scalar equation for the multiplier, whose smallest root is
    computed (eq. 26). With more than two classes, one such problem is solved per class against all
    others with the same Q, and a row gets the class with the largest response.

    Parameters
    ----------
    affinity : str, callable or Similarity, default="local_scaling"
        Similarity of rows: "local_scaling" (on the graph of nearest neighbours),
        "density_scaling" (the default of the clusterers; no better on average here, because the
        labels determine the border), "gaussian", "cosine_knn", "nearest_neighbors",
        "precomputed", a function of two blocks of rows, or a recipe such as
        ``GaussianSimilarity(sigma="mean/4")`` (see `volmar.graphs`). Affinities given by name have
        no self-loops. Recipes and matrices are used as given.
    sigma : float or str, optional
        Width of the Gaussian similarity, a number or a rule such as "mean/4".
    n_neighbors : int, optional
        Number of neighbours, for affinities that use neighbours. If None, log2(n) + 3 for
        "density_scaling" and 7 for the others.
    reg : float, default=1.0
        :math:`\gamma`, the weight of smoothness. The larger it is, the further labels spread. At
        the default `scale` and Q, values below 1/2 restrict labels to their rows and the rows next
        to them. Above about the larger of 1/2 and
        :math:`\sqrt{m/n} / (2 (\lambda_2 - \lambda_1))`, all rows get the same class. The useful
        range lies in between. For wide Gaussian similarities it is empty; use 0.1 with them. (At
        most :math:`1 / (2 \gamma)^2` of :math:`|h|^2`, a quarter at the default, can be in
        eigenvectors with eigenvalues above 1, the rough half of the spectrum.)
    scale : float, optional
        t, the norm of h. Classes depend on `reg` and `scale` only through their product. If None,
        :math:`1/\sqrt{m}`, which makes the effect of `reg` nearly independent of the number of
        labelled rows.
    Q : {"laplacian", "kernel"}, matrix, SPDOperator or callable, default="laplacian"
        The matrix of pairwise information. "laplacian" is :math:`L_{sym} + I/n`, "kernel" is
        :math:`nI - W`. A symmetric positive definite matrix of the training rows, or a function
        of the similarities W that returns one, is used as given. Adding a multiple of the identity
        has no effect. The scale of Q determines the unit of `reg`.
    tol : float, default=1e-8
        Accuracy of the norm of h in the search for the multiplier.
    random_state : int, RandomState or None, default=None
        Not used, present for API consistency. The method is deterministic.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes of labelled rows, sorted.
    transduction_ : ndarray of shape (n_samples,)
        Class of each training row according to h. The class of a labelled row may differ from its
        label.
    h_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Soft responses, positive for `classes_[1]`. For more than two classes, one column per
        class. They are not probabilities, and there is no `predict_proba`: their magnitude depends
        on the distance of a row from the labels.
    n_neighbors_ : int or None
        Number of neighbours of the similarity graph; None for affinities without neighbours.
    sigma_ : float or None
        Width of the Gaussian similarity as a number; None for other affinities.
    objective_ : float
        Objective at `h_`, summed over the columns.
    result_ : AVRResult
        Certified result. `gap` bounds the distance of the objective to the global minimum by
        the dual problem. `undecided` is a mask of the rows whose class is not determined.
    n_features_in_ : int
        Number of features (of training rows, with affinity="precomputed").

    See Also
    --------
    SoftLabelMVC : The same principle without labels.
    sklearn.semi_supervised.LabelSpreading : The same responses for two classes, with another
        parameter (see the notes).

    Notes
    -----
    With the default Q the responses are those of label spreading on the same graph,
    :math:`h \propto (I + \frac{\alpha}{1 - \alpha} L_{sym})^{-1} y`, where
    :math:`\frac{\alpha}{1 - \alpha} = \gamma / (\gamma / n - \eta)`. The product of `reg` and
    `scale` determines `alpha` and vice versa, and `alpha` tends to 1 as `reg` grows.

    The decision is sign(h) as in the paper, without a correction for unequal class sizes. The
    smoothest vector on the graph has constant sign, and its coefficient in h is the sum of the
    labels, weighted by the square roots of the degrees. If more rows of one class are labelled
    than of the other, h is shifted towards that class everywhere. The shift grows with `reg`,
    until every row is in that class. With equal numbers of labels the same happens if `reg` is far
    too large, through any small difference that remains. Label equal numbers of rows per class,
    lower `reg`, or, if the class sizes are known, cut `h_` at the quantile that yields them. With
    more than two classes each problem is unbalanced, which cancels in the comparison of the
    responses as long as the classes have equal numbers of labels.

    `transduction_` comes from the training graph, but `predict` uses only the similarities of a
    row to the training rows. It may assign a few training rows differently.

    The label -1 marks an unlabelled row, as in scikit-learn, and cannot be a class. If the classes
    are strings, y must be an array of ``dtype=object`` to hold the number -1 too.

    References
    ----------
    El-Yaniv, Pechyony and Vapnik (2008), Large margin vs. large volume in transductive learning,
    Machine Learning 72, 173-188. Niu, Dai, Shang and Sugiyama (2013), Maximum volume clustering: a
    new discriminative clustering approach, JMLR 14, section 7.3.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar import VolumeRegularizedClassifier
    >>> from volmar.datasets import make_two_moons
    >>> X, truth = make_two_moons(300, random_state=0)
    >>> y = np.full(300, -1)
    >>> for c in (0, 1):
    ...     few = np.flatnonzero(truth == c)[:3]
    ...     y[few] = c
    >>> model = VolumeRegularizedClassifier().fit(X, y)
    >>> float(np.mean(model.transduction_ != truth))
    0.0
    >>> model.result_.is_certified(1e-6)
    True
    """

    def __init__(
        self,
        *,
        affinity: Any = "local_scaling",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        reg: float = 1.0,
        scale: Any = None,
        Q: Any = "laplacian",
        tol: float = 1e-8,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.scale = scale
        self.Q = Q
        self.tol = tol
        self.random_state = random_state

    @one_thread()
    @explain_memory
    def fit(self, X: Any, y: Any) -> Self:
        """Classify all rows by the labels of some of them.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR, or similarities with affinity="precomputed".
        y : array of shape (n_samples,)
            Classes, -1 for unlabelled rows.

        Returns
        -------
        self
        """
        self._check_parameters()
        with fresh_fit(self, X) as fitted:
            fitted._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        X, y = check_labelled_rows(X, y, estimator=self, min_rows=2)
        if self._is_precomputed() and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"a precomputed matrix must be square for fit, got shape {X.shape}. Pass the "
                "similarities between all pairs of training rows."
            )
        classes, codes = encode_labels(y)
        graph = build_graph(X, self.affinity, sigma=self.sigma, n_neighbors=self.n_neighbors)
        result = self._solve(graph.operator(self.Q), signed_labels(codes, classes.size))
        self.classes_ = classes
        self.h_ = result.h
        self.transduction_ = self._classes_of(result.h)
        self.objective_ = result.objective
        self.result_ = result
        self.n_neighbors_ = graph.n_neighbors
        self.sigma_ = graph.sigma
        self._extension = graph.extension
        self._warn_of(result)

    @one_thread()
    @explain_memory
    def decision_function(self, X: ArrayLike) -> NDArray:
        """Return the mean of h over the training rows, weighted by their similarity to each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            New rows, or their similarities to the training rows with affinity="precomputed".

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, one value per row, positive for `classes_[1]`. For more, one column
            per class; the class of a row is the column with the largest value.
        """
        check_is_fitted(self, "result_")
        rows = check_rows(X, estimator=self, reset=False)
        with quiet():
            scores = np.asarray(row_weights(self._extension, rows) @ self.h_)
        return finite_scores(scores, rows, self)

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the class of each row: the sign or the largest column of `decision_function`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            New rows, or their similarities to the training rows with affinity="precomputed".

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes.
        """
        return self._classes_of(self.decision_function(X))

    def __sklearn_tags__(self):
        """Return the tags that describe the accepted input to scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self._is_precomputed()
        return tags

    def _is_precomputed(self) -> bool:
        return isinstance(self.affinity, str) and self.affinity == "precomputed"

    def _check_parameters(self) -> None:
        if isinstance(self.Q, str):
            check_choice("Q", self.Q, MATRICES)
        check_random_state(self.random_state)
        check_number("reg", self.reg, low=0.0, open_low=True)
        check_number("tol", self.tol, low=0.0, open_low=True)
        if self.scale is not None:
            check_number("scale", self.scale, low=0.0, open_low=True)
            # There is a division by its square.
            check_number("scale", self.scale, low=1e-100)

    def _solve(self, operator: SPDOperator, Y: NDArray) -> AVRResult:
        n_labelled = int(np.count_nonzero(Y[:, 0]))
        scale = float(1 / np.sqrt(n_labelled) if self.scale is None else self.scale)
        reg = float(self.reg)
        try:
            if Y.shape[1] == 1:
                return solve_avr(AVRProblem(operator, Y[:, 0], reg, scale), tol=self.tol)
            return solve_one_against_rest(operator, Y, reg, scale, tol=self.tol)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"reg={self.reg} with scale={scale:.3g} is so large that the effect of the labels "
                "is below rounding error. Lower reg or scale."
            ) from error

    def _classes_of(self, scores: NDArray) -> NDArray:
        chosen = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[chosen.astype(np.intp)]

    def _status_words(self, result: AVRResult) -> str:
        if result.status is not Status.DEGENERATE:
            return (
                f"the residual of the search for the multiplier at reg={self.reg} is "
                f"{result.residuals['stationarity']:.1e}. Use another reg, or a tol larger than "
                f"{self.tol}"
            )
        return (
            "the labels are orthogonal to the smoothest vector on the graph, and two mirror "
            f"images are equally good at reg={self.reg}. Lower reg or scale, or label one more row"
        )

    def _warn_of(self, result: AVRResult) -> None:
        n, n_undecided = result.h.shape[0], int(result.undecided.sum())
        empty = np.setdiff1d(self.classes_, self.transduction_)
        if not result.status.ok:
            return  # fit warns about the status
        if empty.size:
            warn_user(
                f"No row is assigned to {', '.join(map(repr, empty.tolist()))}, because at "
                f"reg={self.reg} the majority of the labels outweighs the graph. Lower reg or "
                "scale, or label equal numbers of rows per class."
            )
        elif n_undecided:
            warn_user(
                f"The class of {n_undecided} of {n} rows is not determined (see "
                "result_.undecided). They lie half-way between labels, in a part of the graph "
                "without labels, or so far from labels that their response is below the rounding "
                f"error. Label some of them, raise reg={self.reg}, or use a larger n_neighbors or "
                "another affinity."
            )


def encode_labels(y: NDArray) -> tuple[NDArray, NDArray[np.intp]]:
    """Return the sorted classes and the class index of each row, -1 for unlabelled rows."""
    if y.dtype.kind == "O":
        labelled = np.array([isinstance(one, str) or one != UNLABELLED for one in y], dtype=bool)
    else:
        labelled = np.ones(y.size, dtype=bool) if y.dtype.kind in "US" else y != UNLABELLED
    given = y[labelled]
    if not given.size:
        raise ValueError(
            f"y has no labelled row, all {y.size} entries are -1. Label at least one row of each "
            "class, or cluster without labels by SoftLabelMVC."
        )
    if any(isinstance(one, str) and one == str(UNLABELLED) for one in given):
        raise ValueError(
            "y contains the string '-1', to which an array of strings converts the number -1. "
            "Mark unlabelled rows by the number -1, in an array of dtype=object."
        )
    if given.dtype.kind == "O" and any(one is None for one in given):
        raise ValueError("y contains None. Mark unlabelled rows by the number -1.")
    try:
        classes, inverse = np.unique(given, return_inverse=True)
        if given.dtype.kind == "O" and not isinstance(classes[0], str):
            # scikit-learn does not recognise numbers in an array of objects.
            classes = np.array(classes.tolist())
        kind_of_classes(classes[inverse])
    except TypeError as error:
        kinds = sorted({type(one).__name__ for one in given.tolist()})
        raise ValueError(
            f"y has classes of types that cannot be sorted ({', '.join(kinds)}). Use only strings "
            "or only numbers, and the number -1 for unlabelled rows."
        ) from error
    if classes.size < 2:
        raise ValueError(
            f"y has 1 class among its labelled rows, {classes.tolist()[0]!r}, but at least 2 are "
            "needed. Label rows of another class."
        )
    codes = np.full(y.size, UNLABELLED, dtype=np.intp)
    codes[labelled] = inverse
    return classes, codes


def signed_labels(codes: NDArray[np.intp], n_classes: int) -> NDArray[np.float64]:
    """Return labels +1 and -1, and 0 for unlabelled rows.

    For two classes there is a single column, +1 for the second class. For more, there is one
    column per class against the rest.
    """
    columns = np.arange(n_classes) if n_classes > 2 else np.array([1])
    signed = np.where(codes[:, None] == columns, 1.0, -1.0)
    signed[codes == UNLABELLED] = 0.0
    return signed
