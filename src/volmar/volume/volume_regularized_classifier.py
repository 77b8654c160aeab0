"""Semi-supervised classification by approximate volume regularisation."""

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
from volmar._warn import warn_user
from volmar.base.outcome import finite_scores, fresh_fit, quiet
from volmar.base.validation import check_choice, check_number
from volmar.graphs.graph import build_graph
from volmar.operators import SPDOperator
from volmar.solvers import Status
from volmar.volume.avr import AVRProblem, AVRResult, solve_avr, solve_one_against_rest

__all__ = ["VolumeRegularizedClassifier"]

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
        self._row_weights = graph.row_weights
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
            scores = np.asarray(self._row_weights(rows) @ self.h_)
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
