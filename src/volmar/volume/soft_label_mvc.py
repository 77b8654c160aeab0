"""Soft-label maximum volume clustering: MVC-SL of JMLR 2013 and SL-MVC of AISTATS 2011."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from volmar.base import Clusterer, Status
from volmar.base.clusterer import OneCluster
from volmar.base.graph import Graph, build_graph
from volmar.base.validation import check_choice, check_count, check_number
from volmar.graphs import make_similarity
from volmar.operators import EigenPairs, SPDOperator
from volmar.volume.alternation import alternate
from volmar.volume.pairwise import pairwise_operator
from volmar.volume.problem import VolumeProblem, signs
from volmar.volume.refinement import FirstStep, refine
from volmar.volume.sqp import SoftResponses, sqp
from volmar.volume.starts import Candidates, candidates, is_tied, n_pairs_needed

MODES = ("fast", "paper", "aistats")
MATRICES = ("laplacian", "kernel")
# AISTATS 2011, section 5: the balance, and the multiplier at the start.
AISTATS_BALANCE = 1e-7
AISTATS_ETA = -1e-3
# Accuracy of the field where it is computed by iteration, and of eigenvectors: the start needs
# rough ones only, because the refinement moves what they got wrong.
FIELD_RTOL = 1e-3
EXACT_TOL = 1e-6
ROUGH_TOL = 3e-3
MAX_REFINE = 20
MAX_SQP = 100
# The similarities of the papers' own experiments (JMLR 8.1 and 8.2, AISTATS 5).
PAPER_AFFINITY = {"paper": "gaussian", "aistats": "cosine_knn"}
PAPER_SIMILARITY: dict[str, dict[str, Any]] = {
    "gaussian": {"sigma": "mean/10", "self_loops": True},
    "local_scaling": {"n_neighbors": 7, "graph": "dense", "self_loops": True},
    "cosine_knn": {"n_neighbors": 7},
    "nearest_neighbors": {"n_neighbors": 7},
}


@dataclass(frozen=True, repr=False)
class VolumeResult(SoftResponses):
    """Soft responses with the labels they stand for and the start they came from.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Sides of the soft responses, 0 and 1.
    start : ndarray of shape (n,)
        h0: signs of `chosen_vector` about its mean, over sqrt(n).
    second_vector, chosen_vector : ndarray of shape (n,)
        Eigenvector v2 of Q, and the candidate that gave the lowest objective (the same unless
        there were several).
    n_moved : int
        Labels that differ between the start and the end.
    """

    labels: NDArray = dataclasses.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    start: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    second_vector: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    chosen_vector: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    n_moved: int = 0


@dataclass(frozen=True)
class _Fitted:
    """What all candidates share."""

    graph: Graph
    problem: VolumeProblem
    pairs: EigenPairs
    starts: Candidates
    step: FirstStep


class SoftLabelMVC(Clusterer):
    r"""Soft-label maximum volume clustering (Niu, Dai, Shang and Sugiyama 2011, 2013).

    Finds soft responses h, one number a row, that are large in absolute value and smooth on the
    similarity graph (JMLR eq. 4, with the balance constraint of eq. 5):

    .. math:: \min_h \; -2 \|h\|_1 + \gamma \, h'Qh \quad
              \text{s.t.} \quad \|h\|_2 = 1, \; |1'h| \le b

    with :math:`Q = L_{sym} + I / n` of the graph; clusters are the signs of h. The start is the
    second eigenvector of Q, cut at its mean.

    ``mode="paper"`` is Algorithm 1 of JMLR to the letter: sequential quadratic programming from
    up to ten eigenvectors, with each quadratic program solved in closed form. With the paper's
    settings it is one linear solve in disguise: the first step returns the smoothest field x that
    agrees with the start, ``min x'Qx`` subject to ``y'x = sqrt(n)``, ``|1'x| <= b``, and all
    later steps only rescale magnitudes. ``mode="fast"`` computes that field directly, repeats the
    step from the field's own signs until at most two labels in a thousand move (roughness ``x'Qx``
    never rises on the way), and solves for h exactly with those labels.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters; there is no rule for more than 2 yet.
    affinity : str, callable or Similarity, optional
        How similar rows are: "local_scaling" (default of the fast mode, on the graph of nearest
        neighbours), "gaussian" (default of the paper mode, ``sigma="mean/10"``), "cosine_knn"
        (default of the AISTATS mode), "nearest_neighbors", "precomputed", a function of two blocks
        of rows, or a recipe such as ``GaussianSimilarity(sigma="mean/4")`` (see `volmar.graphs`).
        Named ones come without self-loops in the fast mode; in the paper modes they are the
        paper's (dense, with :math:`W_{ii} = 1`, but for the k-NN graphs). Recipes and matrices are
        used as given.
    sigma : float or str, optional
        Width of the Gaussian similarity, a number or a rule such as "mean/4".
    n_neighbors : int, optional
        Neighbours of the affinities that have them; 7 if not given.
    reg : float, default=0.01
        :math:`\gamma`, the weight of smoothness. It has no influence on the labels from 1e-6 up to
        about sqrt(n); far above, h turns into the eigenvector of Q.
    balance : float, optional
        b, how far from zero the sum of soft responses may be. 1/n if not given (1e-7 in the
        AISTATS mode); sqrt(n) and above leave it free.
    n_candidates : int, optional
        Eigenvectors to start from, from the second on. None is 1 in the fast and the AISTATS mode
        and the paper's rule in the paper mode (all within 1e-4 of the second eigenvalue, at most
        ten). The lowest objective wins. In the fast mode objectives are compared at reg =
        sqrt(n): at the paper's 0.01 they would be a measure of balance alone. More candidates
        are a prior for clusters of equal size: they help where the sizes are equal, and hurt
        where they are not.
    Q : {"laplacian", "kernel"}, matrix, SPDOperator or callable, default="laplacian"
        The matrix of pairwise information. "laplacian" is :math:`L_{sym} + I/n` (without the shift
        in the AISTATS mode), "kernel" is :math:`nI - W`, used by the paper for Isolet. A symmetric
        positive definite matrix of the training rows, or a function of the similarities W that
        returns one, is used as given.
    mode : {"fast", "paper", "aistats"}, default="fast"
        "paper" is JMLR 2013, "aistats" its first version (Q without shift, another start of the
        multiplier and stopping rule, one candidate).
    tol : float, default=1e-6
        Stopping threshold of the paper modes; accuracy of the norm of h in the fast mode.
    max_iter : int, optional
        Most steps of the quadratic programming (100 if not given), or of the repetition in the
        fast mode (20 if not given; 1 stops at the paper's labels).
    random_state : int, RandomState or None, default=None
        Taken for the sake of one interface: the method is deterministic.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row: 1 where h is not negative.
    h_ : ndarray of shape (n_samples,)
        Soft responses, of norm 1. At a small `reg` all of a cluster are nearly the same.
    field_ : ndarray of shape (n_samples,)
        The smooth field behind them; its magnitude does say how deep inside its cluster a row is.
    eigenvalues_ : ndarray
        Smallest eigenvalues of Q that were computed.
    balance_ : float
        :math:`1'h`.
    n_moved_ : int
        Labels that differ between the start and the end.
    degenerate_ : bool
        Whether the start is arbitrary: the graph has more than two components, or the second and
        third eigenvalue are tied. From 1,500 rows on, ties are looked for when this is first read.
    objective_ : float
        Objective at `h_`.
    result_ : VolumeResult
        Certified result: `residuals` are those of a stationary point (gradient of the Lagrangian,
        relative; norm; balance). `gap` is NaN: the problem is not convex, and at a small `reg`
        every labelling is a local minimum, so that no bound would mean anything.
    n_iter_ : int
        Steps taken.
    n_features_in_ : int
        Number of features (of training rows, with affinity="precomputed").

    See Also
    --------
    NormalizedSpectralClustering : Starts from the same graph, any number of clusters.
    NormalizedCut : The best threshold on one eigenvector.

    Notes
    -----
    `decision_function` extends the field to new rows harmonically: the mean of the field over the
    training rows, weighted by similarity. `labels_` belong to the training graph; `predict` sees a
    row through its similarities to the training rows alone, so that it may place a few training
    rows at the border differently. It places rows far from all training rows too, without a word.

    Scale the features first where their units differ (`sklearn.preprocessing.StandardScaler`): the
    graph sees distances only.

    References
    ----------
    Niu, Dai, Shang and Sugiyama (2013), Maximum volume clustering: a new discriminative clustering
    approach, JMLR 14, sections 3.2, 4 and 8. Niu, Dai, Shang and Sugiyama (2011), Maximum volume
    clustering, AISTATS.

    Examples
    --------
    >>> from volmar import SoftLabelMVC
    >>> from volmar.datasets import make_two_moons
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_moons(300, random_state=0)
    >>> model = SoftLabelMVC().fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    >>> model.result_.is_certified(1e-6)
    True
    """

    _max_clusters = 2
    _is_tied: bool | None

    def __init__(
        self,
        n_clusters=2,
        *,
        affinity=None,
        sigma=None,
        n_neighbors=None,
        reg=1e-2,
        balance=None,
        n_candidates=None,
        Q="laplacian",
        mode="fast",
        tol=1e-6,
        max_iter=None,
        random_state=None,
    ):
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.balance = balance
        self.n_candidates = n_candidates
        self.Q = Q
        self.mode = mode
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X, y=None):  # noqa: ARG002 -- scikit-learn's signature
        """Find the two clusters of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR, or similarities with affinity="precomputed".
        y : ignored
            For compatibility with scikit-learn.

        Returns
        -------
        self
        """
        return self._fit(X)

    @property
    def degenerate_(self) -> bool:
        """Whether the start is arbitrary; see the class."""
        check_is_fitted(self, "result_")
        if isinstance(self.result_, OneCluster):
            return False
        fitted = self._fitted
        operator = fitted.problem.operator
        if fitted.graph.components[0] > 2 or self.result_.status is Status.DEGENERATE:
            return True
        if fitted.starts.degenerate:
            return True
        if fitted.pairs.values.size > 2 or operator.n < 3:
            return False
        if self._is_tied is None:
            self._is_tied = is_tied(operator.smallest_eigenpairs(3).values)
        return self._is_tied

    def _scores(self, X: Any) -> NDArray:
        return np.asarray(self._fitted.graph.row_weights(X) @ self.field_)

    def _check_parameters(self) -> None:
        check_choice("mode", self.mode, MODES)
        if isinstance(self.Q, str):
            check_choice("Q", self.Q, MATRICES)
        check_number("reg", self.reg, low=0.0, open_low=True)
        check_number("tol", self.tol, low=0.0, open_low=True)
        if self.balance is not None:
            check_number("balance", self.balance, low=0.0)
        for name in ("n_candidates", "max_iter"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    def _problem(self, X: Any, weights: NDArray | None) -> _Fitted:  # noqa: ARG002 -- no weights here
        graph = self._build_graph(X)
        graph.warn_of_components(2)
        operator, trivial = self._operator(graph)
        n_candidates = self.n_candidates
        if n_candidates is None and self.mode != "paper":
            n_candidates = 1
        balance = self.balance
        if balance is None:
            balance = AISTATS_BALANCE if self.mode == "aistats" else 1.0 / operator.n
        problem = VolumeProblem(operator, float(self.reg), float(balance))
        step = FirstStep(operator, problem.balance, rtol=FIELD_RTOL)
        tol = EXACT_TOL
        if self.mode == "fast":
            if trivial is not None:
                _ = step.ones_image  # first: what it factorises serves the eigenvectors too
            tol = EXACT_TOL if self.max_iter == 1 else ROUGH_TOL
        n_pairs = n_pairs_needed(operator.n, n_candidates, with_next=self.mode != "fast")
        pairs = operator.smallest_eigenpairs(n_pairs, tol=tol)
        if trivial is None:
            self._check_definite(operator, pairs)
        starts = candidates(pairs, trivial=trivial, n_candidates=n_candidates)
        return _Fitted(graph, problem, pairs, starts, step)

    def _check_definite(self, operator: SPDOperator, pairs: EigenPairs) -> None:
        """Refuse a given Q, or n I - W, that is not positive definite."""
        scale = max(map(abs, operator.bounds))
        if pairs.values[0] > 1e-13 * scale:
            return
        remedy = "Add a multiple of the identity to it."
        if isinstance(self.Q, str):
            remedy = "Divide the similarities by their largest, so that none is above 1."
        raise ValueError(
            f"Q must be positive definite, its smallest eigenvalue is {pairs.values[0]:.3g}. "
            f"{remedy}"
        )

    def _build_graph(self, X: Any) -> Graph:
        affinity = self.affinity
        given = {"sigma": self.sigma, "n_neighbors": self.n_neighbors}
        if self.mode == "fast":
            return build_graph(X, "local_scaling" if affinity is None else affinity, **given)
        affinity = PAPER_AFFINITY[self.mode] if affinity is None else affinity
        if not isinstance(affinity, str) or affinity not in PAPER_SIMILARITY:
            return build_graph(X, affinity, **given)
        params = {name: value for name, value in given.items() if value is not None}
        defaults = dict(PAPER_SIMILARITY[affinity])
        if "n_neighbors" in defaults:
            defaults["n_neighbors"] = min(defaults["n_neighbors"], X.shape[0] - 1)
        unknown = [name for name in params if name not in defaults]
        if unknown:
            return build_graph(X, affinity, **given)  # which says why it cannot be
        return build_graph(X, make_similarity(affinity, **{**defaults, **params}))

    def _operator(self, graph: Graph) -> tuple[SPDOperator, NDArray | None]:
        """Q, and its trivial eigenvector where that is known."""
        operator = pairwise_operator(graph, self.Q, shift=0.0 if self.mode == "aistats" else None)
        is_laplacian = isinstance(self.Q, str) and self.Q == "laplacian"
        return operator, np.sqrt(graph.degrees) if is_laplacian else None

    def _run(self, problem: _Fitted, seed: int) -> VolumeResult:  # noqa: ARG002 -- deterministic
        solve = self._fast if self.mode == "fast" else self._paper
        chosen, found = solve(problem)
        start = problem.starts.labels(chosen)
        labels = signs(found.h)
        n_moved = int(np.sum(start != labels))
        status = found.status
        is_arbitrary = problem.starts.degenerate or problem.graph.components[0] > 2
        # An eigenvector of L_sym at 1 and above parts rows from their own neighbours, which says
        # nothing unless there are two rows only.
        if isinstance(self.Q, str) and self.Q == "laplacian" and start.size > 2:
            is_arbitrary |= bool(problem.pairs.values[1] >= 1.0)
        if is_arbitrary and status.ok:
            status = Status.DEGENERATE
        fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(SoftResponses)}
        return VolumeResult(
            **{**fields, "status": status},
            labels=(labels > 0).astype(np.int64) if np.ptp(labels) else np.zeros(labels.size),
            start=start / np.sqrt(start.size),
            second_vector=problem.starts.vectors[:, 0],
            chosen_vector=problem.starts.vectors[:, chosen],
            n_moved=min(n_moved, labels.size - n_moved),
        )

    def _paper(self, given: _Fitted) -> tuple[int, SoftResponses]:
        """Algorithm 1 from every candidate; the lowest objective wins."""
        aistats = self.mode == "aistats"
        return _lowest(
            sqp(
                given.problem,
                given.starts.labels(j) / np.sqrt(given.problem.n),
                given.pairs.values,
                eta0=AISTATS_ETA if aistats else 0.0,
                stopping="squares" if aistats else "norms",
                tol=self.tol,
                max_iter=self.max_iter or MAX_SQP,
            )
            for j in range(given.starts.values.size)
        )

    def _fast(self, given: _Fitted) -> tuple[int, SoftResponses]:
        """First step and its repetition from every candidate, then h for the best labels."""
        problem, starts = given.problem, given.starts
        refined = [
            refine(given.step, starts.labels(j), max_iter=self.max_iter or MAX_REFINE)
            for j in range(starts.values.size)
        ]
        chosen = 0
        if len(refined) > 1:
            chosen = int(np.argmin([_natural_objective(problem, one.y) for one in refined]))
        best = refined[chosen]
        found = alternate(problem, best.y, given.pairs.values, tol=self.tol)
        moved = not np.array_equal(signs(found.h), best.y)
        return chosen, dataclasses.replace(
            found,
            field=found.h if moved else best.field.x,
            field_residual=np.nan if moved else best.field.residual(problem.operator),
            n_iter=len(best.roughness),
            status=found.status if best.settled or self.max_iter == 1 else Status.MAX_ITER,
        )

    def _publish(self, problem: _Fitted, result: VolumeResult) -> None:
        self._fitted = problem
        self._is_tied = None
        self.h_ = result.h
        self.field_ = result.field
        self.eigenvalues_ = problem.pairs.values
        self.balance_ = float(result.h.sum())
        self.n_moved_ = result.n_moved
        if not result.labels.any():
            warnings.warn(
                f"All rows are in one cluster: balance={self.balance} leaves the sum of soft "
                "responses free. Lower it (1/n by default).",
                UserWarning,
                stacklevel=2,
            )


def _natural_objective(problem: VolumeProblem, y: NDArray) -> float:
    """Objective at reg = sqrt(n) of the balanced h that the labels y stand for.

    There smoothness and balance weigh alike: h = (y - mean) over its norm costs
    -2 sqrt(n (1 - mean^2)) + sqrt(n) h'Qh.
    """
    h = y - y.mean()
    square = float(h @ h)
    if square == 0.0:
        return np.inf
    return float(np.sqrt(y.size) * (h @ problem.operator.matvec(h)) / square - 2 * np.sqrt(square))


def _lowest(found: Iterable[SoftResponses]) -> tuple[int, SoftResponses]:
    """Index and value of the lowest objective; the first of equals."""
    return min(enumerate(found), key=lambda pair: pair[1].objective)
