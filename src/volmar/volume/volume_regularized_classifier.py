"""The classifier of approximate volume regularisation: few labels, many rows, one graph."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_random_state
from volmar._input import check_labelled_rows, check_rows, kind_of_classes
from volmar._memory import explain_memory
from volmar._threads import one_thread
from volmar.base.outcome import finite_scores, fresh_fit, quiet
from volmar.base.validation import check_choice, check_number
from volmar.base.warn import warn_user
from volmar.graphs.graph import build_graph
from volmar.operators import SPDOperator
from volmar.solvers import Status
from volmar.volume.avr import AVRProblem, AVRResult, solve_avr, solve_one_against_rest

__all__ = ["VolumeRegularizedClassifier"]

MATRICES = ("laplacian", "kernel")
UNLABELLED = -1


class VolumeRegularizedClassifier(ClassifierMixin, BaseEstimator):
    r"""Approximate volume regularisation (AVR), a transductive classifier.

    Finds soft responses h, one number a row, that agree with the labels of a few rows and are
    smooth on the similarity graph of all (JMLR eq. 25; El-Yaniv, Pechyony and Vapnik 2008):

    .. math:: \min_h \; -\frac{1}{m} h'y + \gamma \, h'Qh \quad \text{s.t.} \quad \|h\|_2 = t

    y is +1 on the labelled rows of `classes_[1]`, -1 on those of `classes_[0]` and 0 on the
    unlabelled ones, m is the number of labelled rows and :math:`Q = L_{sym} + I/n` of the graph.
    Classes are the signs of h. The problem is not convex and yet solved exactly: its conditions
    are one linear system and one equation for the multiplier, whose smallest root is searched for
    (eq. 26). With more than two classes, each against all others is such a problem with the same
    Q, and the largest response wins.

    Parameters
    ----------
    affinity : str, callable or Similarity, default="local_scaling"
        How similar rows are: "local_scaling" (on the graph of nearest neighbours),
        "density_scaling" (the default of the clusterers; labels show where the border is, and it
        is no better on average here), "gaussian", "cosine_knn", "nearest_neighbors",
        "precomputed", a function of two blocks of rows, or a recipe such as
        ``GaussianSimilarity(sigma="mean/4")`` (see `volmar.graphs`). Named ones come without
        self-loops; recipes and matrices are used as given.
    sigma : float or str, optional
        Width of the Gaussian similarity, a number or a rule such as "mean/4".
    n_neighbors : int, optional
        Neighbours of the affinities that have them; if not given, 7, and log2(n) + 3 for
        "density_scaling".
    reg : float, default=1.0
        :math:`\gamma`, the weight of smoothness: the larger it is, the further labels spread. At
        the default `scale` and Q, labels keep to their rows and those next to them below 1/2, and
        everything goes to one class above the larger of 1/2 and
        :math:`\sqrt{m/n} / (2 (\lambda_2 - \lambda_1))`, or so; what lies between is useful. Wide
        Gaussian similarities leave nothing between: use 0.1 with them. (At most
        :math:`1 / (2 \gamma)^2` of :math:`|h|^2` can be in eigenvectors of eigenvalues above 1,
        the rough half of the spectrum: a quarter at the default.)
    scale : float, optional
        t, the norm of h. Classes depend on the product of `reg` and `scale` alone. None is
        :math:`1/\sqrt{m}`, at which what `reg` does hardly depends on how many rows are labelled.
    Q : {"laplacian", "kernel"}, matrix, SPDOperator or callable, default="laplacian"
        The matrix of pairwise information. "laplacian" is :math:`L_{sym} + I/n`, "kernel" is
        :math:`nI - W`. A symmetric positive definite matrix of the training rows, or a function
        of the similarities W that returns one, is used as given. Multiples of the identity in it
        change nothing; `reg` is in its units.
    tol : float, default=1e-8
        Accuracy of the norm of h in the search for the multiplier.
    random_state : int, RandomState or None, default=None
        Taken for the sake of one interface: the method is deterministic.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes of labelled rows, sorted.
    transduction_ : ndarray of shape (n_samples,)
        Class of each training row, by h. A labelled row may get another class than its own.
    h_ : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Soft responses, positive for `classes_[1]`; a column a class where there are more than
        two. They are no probabilities, and there is no `predict_proba`: their size says how far a
        row is from the labels.
    n_neighbors_ : int or None
        Number of neighbours that the similarity was built with; None where it has none.
    sigma_ : float or None
        Width of the Gaussian similarity, the number used; None where it has none.
    objective_ : float
        Objective at `h_`, summed over the columns.
    result_ : AVRResult
        Certified result. `gap` bounds the distance of the objective to the global minimum, by
        the dual problem, and `undecided` names the rows whose class is not determined.
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
    :math:`\frac{\alpha}{1 - \alpha} = \gamma / (\gamma / n - \eta)`: of `reg` and `scale` on one
    hand and `alpha` on the other each determines the other, and `alpha` goes to 1 as `reg` grows.

    The decision is the paper's, sign(h), without any correction for unequal class shares. The
    smoothest vector on the graph has one sign throughout, and what it contributes to h is the sum
    of the labels (weighted by the roots of the degrees): where more rows of one class are
    labelled than of the other, h leans to that class everywhere, the more so the larger `reg` is,
    until every row is in it. The same happens at a `reg` far too large with equal numbers, by
    whatever small difference there is. Label as many rows of each class, lower `reg`, or, where
    the shares of the classes are known, cut `h_` at the quantile that gives them. With more than
    two classes each problem is unbalanced by itself; that the largest response wins makes up for
    it as far as the classes have equal numbers of labels.

    `transduction_` belongs to the training graph; `predict` sees a row through its similarities
    to the training rows alone, and may place a few training rows differently.

    Label classes by anything but -1, which is scikit-learn's mark of an unlabelled row. Labels
    that are strings need an array of ``dtype=object`` to hold -1 too.

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
        """Spread the labels of some rows over all.

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
        with fresh_fit(self, X):
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        X, y = check_labelled_rows(X, y, estimator=self, min_rows=2)
        if self._is_precomputed() and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"a precomputed matrix must be square for fit, got shape {X.shape}: pass "
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
        self._row_weights = graph.row_weights
        self._warn_of(result)

    @one_thread()
    @explain_memory
    def decision_function(self, X: ArrayLike) -> NDArray:
        """Return the mean of h over the training rows, weighted by their similarity to each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            New rows, or similarities to the training rows where those were precomputed.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Two classes: positive for `classes_[1]`. More: the largest of a row is its class.
        """
        check_is_fitted(self, "result_")
        rows = check_rows(X, estimator=self, reset=False)
        with quiet():
            scores = np.asarray(self._row_weights(rows) @ self.h_)
        return finite_scores(scores, rows, self)

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the classes of rows by the sign of `decision_function`, or its largest column.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            New rows, or similarities to the training rows where those were precomputed.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes.
        """
        return self._classes_of(self.decision_function(X))

    def __sklearn_tags__(self):
        """Tell scikit-learn which input is taken."""
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
            # Its square is divided by.
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
                f"reg={self.reg} with scale={scale:.3g} is so large that the labels are lost in "
                "rounding beside the graph. Lower reg or scale."
            ) from error

    def _classes_of(self, scores: NDArray) -> NDArray:
        chosen = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[chosen.astype(np.intp)]

    def _status_words(self, result: AVRResult) -> str:
        if result.status is not Status.DEGENERATE:
            return (
                f"the residual of the search for the multiplier at reg={self.reg} is "
                f"{result.residuals['stationarity']:.1e}. Use another reg, or a larger tol (it is "
                f"{self.tol})"
            )
        return (
            f"the labels lean to no side of the smoothest vector on the graph at reg={self.reg}, "
            "and two mirror images are equally good. Lower reg or scale, or label one row more"
        )

    def _warn_of(self, result: AVRResult) -> None:
        n, n_undecided = result.h.shape[0], int(result.undecided.sum())
        empty = np.setdiff1d(self.classes_, self.transduction_)
        if not result.status.ok:
            return  # the fit warns of that
        if empty.size:
            warn_user(
                f"No row is put into {', '.join(map(repr, empty.tolist()))}: at reg={self.reg} "
                "the majority of the labels outweighs the graph. Lower reg or scale, or label as "
                "many rows of each class."
            )
        elif n_undecided:
            warn_user(
                f"The class of {n_undecided} of {n} rows is not determined (see "
                "result_.undecided): they lie half-way between labels, in a part of the graph "
                "without any, or so far from them that rounding outweighs what arrives. Label "
                f"some of them, raise reg (it is {self.reg}), or use a larger n_neighbors or "
                "another affinity."
            )


def encode_labels(y: NDArray) -> tuple[NDArray, NDArray[np.intp]]:
    """Return the sorted classes and the number of each row's class, -1 for unlabelled rows."""
    if y.dtype.kind == "O":
        labelled = np.array([isinstance(one, str) or one != UNLABELLED for one in y], dtype=bool)
    else:
        labelled = np.ones(y.size, dtype=bool) if y.dtype.kind in "US" else y != UNLABELLED
    given = y[labelled]
    if not given.size:
        raise ValueError(
            f"y has no labelled row: all {y.size} are -1. Label a row of each class, or cluster "
            "without labels by SoftLabelMVC."
        )
    if any(isinstance(one, str) and one == str(UNLABELLED) for one in given):
        raise ValueError(
            "y has the string '-1' among its classes, which is what -1 becomes in an array of "
            "strings. Mark unlabelled rows by the number -1, in an array of dtype=object."
        )
    if given.dtype.kind == "O" and any(one is None for one in given):
        raise ValueError("y has None among its classes. Mark unlabelled rows by the number -1.")
    try:
        classes, inverse = np.unique(given, return_inverse=True)
        if given.dtype.kind == "O" and not isinstance(classes[0], str):
            # Numbers, in an array of objects: scikit-learn would not know them.
            classes = np.array(classes.tolist())
        kind_of_classes(classes[inverse])
    except TypeError as error:
        kinds = sorted({type(one).__name__ for one in given.tolist()})
        raise ValueError(
            f"y has classes that cannot be sorted ({', '.join(kinds)}). Make them all strings or "
            "all numbers; unlabelled rows stay -1."
        ) from error
    if classes.size < 2:
        raise ValueError(
            f"y has 1 class among its labelled rows, {classes.tolist()[0]!r}, and at least 2 are "
            "needed. "
            "Label rows of another class."
        )
    codes = np.full(y.size, UNLABELLED, dtype=np.intp)
    codes[labelled] = inverse
    return classes, codes


def signed_labels(codes: NDArray[np.intp], n_classes: int) -> NDArray[np.float64]:
    """Return +1, -1 and 0 for unlabelled: one column for two classes, one against the rest else.

    With two classes the column is that of the second.
    """
    columns = np.arange(n_classes) if n_classes > 2 else np.array([1])
    signed = np.where(codes[:, None] == columns, 1.0, -1.0)
    signed[codes == UNLABELLED] = 0.0
    return signed
