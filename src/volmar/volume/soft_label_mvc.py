"""Soft-label maximum volume clustering: MVC-SL of JMLR 2013 and SL-MVC of AISTATS 2011."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from volmar.base import Clusterer, Status
from volmar.base.one_cluster import OneCluster
from volmar.base.recursion import PartRows, RecursiveResult
from volmar.base.validation import check_start_labels
from volmar.base.warn import warn_user
from volmar.graphs.graph import Graph, build_graph
from volmar.operators import SPDOperator
from volmar.volume.guided import GuidedVolume
from volmar.volume.multiway import (
    MultiwayProblem,
    MultiwayVolumeResult,
    OneAgainstRest,
    cluster_jointly,
)
from volmar.volume.paper_mode import AISTATS_BALANCE, ILL_DEFINED, break_words, paper_graph
from volmar.volume.problem import VolumeProblem
from volmar.volume.soft_label_parameters import check_definite, check_parameters
from volmar.volume.starts import SMALL, candidates, given_start, is_tied, n_pairs_needed
from volmar.volume.two_way import MAX_REFINE, TwoWayProblem, VolumeResult, cluster_in_two

__all__ = ["SoftLabelMVC", "VolumeResult"]

# Accuracy of eigenvectors: a start that is refined needs rough ones only, because the refinement
# moves what they got wrong.
EXACT_TOL = 1e-6
ROUGH_TOL = 3e-3
# More than two clusters at once: their eigenvalues bound the normalised cut and are accurate
# enough to be checked for missed ones; small clusters need more accurate fields.
MULTIWAY_TOL = 1e-4
MULTIWAY_RTOL = 1e-4


class SoftLabelMVC(GuidedVolume, Clusterer):
    r"""Soft-label maximum volume clustering (Niu, Dai, Shang and Sugiyama 2011, 2013).

    Finds soft responses h, one number a row, that are large in absolute value and smooth on the
    similarity graph (JMLR eq. 4, with the balance constraint of eq. 5):

    .. math:: \min_h \; -2 \|h\|_1 + \gamma \, h'Qh \quad
              \text{s.t.} \quad \|h\|_2 = 1, \; |1'h| \le b

    with :math:`Q = L_{sym} + I / n` of the graph; clusters are the signs of h. The start is the
    second eigenvector of Q, cut at its mean.

    ``mode="paper"`` is Algorithm 1 of JMLR as printed, at any `reg`: sequential quadratic
    programming from up to ten eigenvectors, with each quadratic program solved in closed form
    (see the notes). With the paper's settings it is one linear solve in disguise: the first
    step returns the smoothest field x that agrees with the start, ``min x'Qx`` subject to
    ``y'x = sqrt(n)``, ``|1'x| <= b``, and all later steps only rescale magnitudes.
    ``mode="default"`` computes that field directly, repeats the step from the field's own
    signs until at most two labels in a thousand move (roughness ``x'Qx`` never rises on the
    way), and solves for h exactly with those labels.

    More clusters are found at once (``multiway="joint"``), beyond the papers. From the k-means
    clusters of the k smallest eigenvectors of Q (rows of unit length), the field of each cluster
    against the rest is computed, all fields are scaled to the same roughness, :math:`x_j'Qx_j =
    1`, and every row moves to the cluster whose field is largest there; and again. The agreement
    :math:`\sum_j y_j'x_j` of labels and fields never falls on the way.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. "auto": as many as held-out rows confirm, by splitting again; a split
        is tested by the distances of rows to its border (see `volmar.evidence.split_test` and
        `tree_`).
    affinity : str, callable or Similarity, optional
        How similar rows are: "density_scaling" (default of the default mode: locally scaled and
        weighted by the density, see `volmar.graphs.density_scaling_similarity`), "local_scaling"
        (the same without the density), "gaussian" (default of the paper mode,
        ``sigma="mean/10"``), "cosine_knn" (default of the AISTATS mode), "nearest_neighbors",
        "precomputed", a function of two blocks of rows, or a recipe such as
        ``GaussianSimilarity(sigma="mean/4")`` (see `volmar.graphs`). Named ones come without
        self-loops in the default mode; in the paper modes they are the paper's (dense, with
        :math:`W_{ii} = 1`, but for the k-NN graphs). Recipes and matrices are used as given.
    sigma : float or str, optional
        Width of the Gaussian similarity, a number or a rule such as "mean/4".
    n_neighbors : int, optional
        Neighbours of the affinities that have them; if not given, log2(n) + 3 for
        "density_scaling" and 7 for the others.
    reg : float, default=0.01
        :math:`\gamma`, the weight of smoothness. It has no influence on the labels from 1e-6 up to
        about sqrt(n); far above, h turns into the eigenvector of Q.
    balance : float, optional
        b, how far from zero the sum of soft responses may be. 1/n if not given (1e-7 in the
        AISTATS mode, 0 for each field of more than two clusters at once); sqrt(n) and above leave
        it free, by which all but one of many clusters would lose their rows.
    n_candidates : int, optional
        Number of eigenvectors to start from, from the second on. If not given, 1 in the default
        and the AISTATS mode and the paper's rule in the paper mode (all within 1e-4 of the second
        eigenvalue, at most ten). The lowest objective wins. In the default mode objectives are
        compared at reg = sqrt(n): at the paper's 0.01 they would be a measure of balance alone.
        More candidates are a prior for clusters of equal size: they help where the sizes are
        equal, and hurt where they are not. See the notes for why v1 is never one.
    init : "auto", array of shape (n_samples,) or fitted clusterer, default="auto"
        "auto": candidates (JMLR eq. 9). An array of two different values holds labels, any other
        soft responses, h0, scaled to norm 1, of which the default mode takes the signs. More than
        two clusters at once take that many labels. A fitted clusterer of the same columns:
        its clusters are the start, and keep their numbers where they match.
    eta0 : float, optional
        Where the multiplier of the norm starts, in the paper modes only. If None, the papers' 0
        (-0.001 in the AISTATS mode). Must be below reg times the smallest eigenvalue of Q.
    Q : {"laplacian", "kernel"}, matrix, SPDOperator or callable, default="laplacian"
        The matrix of pairwise information. "laplacian" is :math:`L_{sym} + I/n` (without the shift
        in the AISTATS mode), "kernel" is :math:`nI - W`, used by the paper for Isolet. A symmetric
        positive definite matrix of the training rows, or a function of the similarities W that
        returns one, is used as given.
    mode : {"default", "paper", "aistats"}, default="default"
        "paper" is JMLR 2013, "aistats" its first version (Q without shift, another start of the
        multiplier and stopping rule, one candidate).
    multiway : {"joint", "recursive"}, default="joint"
        How more than two clusters are found: all at once, in the default mode only (and `reg`,
        `n_candidates` and `tol` have no effect), or by splitting in two again and again, in any
        mode. Try the latter where the graph falls into more small components than clusters: the
        eigenvectors that the joint way starts from tell those apart and nothing else.
    tol : float, default=1e-6
        Stopping threshold of the paper modes; accuracy of the norm of h in the default mode.
    max_iter : int, optional
        Maximum number of steps of the quadratic programming (default 100), or of the repetition
        in the default mode (default 20; 1 stops at the paper's labels).
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; no limit if not given. The
        strongest splits are made first, and a warning is given where others are left.
    min_cluster_size, max_cluster_size : int, float or array of shape (n_clusters,), optional
        Minimum and maximum cluster size: a number of rows, a fraction of them, or one for each
        cluster (in the order of `classes_` where `fit` is given labels). Only with mode="default".
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine": the method sees rows of unit length; sparse X of more than 1000 columns as text
        (idf, singular vectors). See the page *Embeddings and text*.
    text_components : int, "auto" or None, default="auto"
        Singular vectors to which metric="cosine" reduces sparse rows. "auto": 100 for more than
        1000 columns, otherwise no reduction. None: no reduction.
    random_state : int, RandomState or None, default=None
        Seed of k-means at the start of more than two clusters. Two are found without chance.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest, and h is positive in 1. By name
        where `fit` was given labels of rows, of which the first class is 0.
    classes_ : ndarray of shape (n_clusters,)
        Names of the clusters, which `labels_` holds; only where `fit` was given labels of rows.
    broken_links_ : ndarray of shape (n_pairs, 2)
        Pairs of `cannot_link` in one cluster; only where `fit` was given any.
    h_ : ndarray of shape (n_samples,) or (n_samples, n_clusters)
        Soft responses, of norm 1. At a small `reg` all of a cluster are nearly the same. For more
        than two clusters the columns of `field_`, scaled to norm 1.
    field_ : ndarray of shape (n_samples,) or (n_samples, n_clusters)
        The smooth field behind them; its magnitude does say how deep inside its cluster a row is.
        More clusters have a field each, of :math:`x'Qx = 1`; the largest of a row is its cluster.
    n_neighbors_ : int or None
        Number of neighbours that the similarity was built with; None where it has none.
    neighbor_recall_ : float or None
        Share of the true nearest neighbours that the graph was built with, measured on a sample
        where the search is approximate (more than 20,000 rows of more than 8 features); None where
        there was no search.
    sigma_ : float or None
        Width of the Gaussian similarity, the number used; None where it has none.
    eigenvalues_ : ndarray
        Smallest eigenvalues of Q that were computed.
    n_candidates_ : int
        Starts that were tried, for two clusters: with the paper's rule the size of its set V, v1
        left out, and at most ten.
    ill_defined_ : bool
        Whether the paper's rule has found more than ten eigenvalues within 1e-4 of the second, for
        two clusters. The paper calls such a Q ill-defined (section 8.1); a warning is given.
    balance_ : float or ndarray of shape (n_clusters,)
        :math:`1'h`.
    n_moved_ : int
        Labels that differ between the start and the end.
    degenerate_ : bool
        Whether the start is arbitrary: the graph has more components than clusters, or the last
        eigenvalue in use and the next (second and third, for two clusters) are tied. From 1,500
        rows on, ties are looked for when this is first read.
    objective_ : float
        Objective at `h_`; the normalised cut of the labels for more than two clusters at once.
    result_ : VolumeResult or MultiwayVolumeResult
        Certified result: `residuals` are those of a stationary point (gradient of the Lagrangian,
        relative; norm; balance). `gap` is NaN for two clusters: the problem is not convex, and at
        a small `reg` every labelling is a local minimum, so that no bound would mean anything.
    problem_ : VolumeProblem
        Q, `reg` and the balance; only of two clusters. ``result_.check(problem_)`` computes the
        residuals again. After a fit with labels, links or sizes it is the problem for the labels
        that were found, with ``-2 y'h`` in place of ``-2 |h|_1``.
    tree_ : SplitTree
        The splits, with ``multiway="recursive"`` and more than two clusters; `h_`, `field_`,
        `eigenvalues_`, `balance_` and `n_moved_` are then those of its nodes' models.
    n_iter_ : int
        Steps taken.
    row_map_ : RowMap
        The map of rows with metric="cosine"; only then.
    n_features_in_ : int
        Number of features (of training rows, with affinity="precomputed").

    See Also
    --------
    NormalizedSpectralClustering : Starts from the same graph, any number of clusters.
    NormalizedCut : The best threshold on one eigenvector.

    Notes
    -----
    *The paper mode.* Parameters left at their defaults have the values of JMLR section 8.2
    (reg = 0.01, balance = 1/n, tol = 1e-6), starts are those of eq. 9 and section 8.1, eta is
    updated by eq. 7, and where it reaches :math:`\gamma \lambda_1` the iterate before is
    returned, as printed. `result_.status` is then STOPPED: the next quadratic program need not
    have a minimum. From a `reg` of about :math:`\sqrt n / (\lambda_2 - \lambda_1)` on that is
    the start itself. Three things are not as printed. v1 is no candidate: the paper's set V
    takes it in where :math:`\lambda_2 - \lambda_1 < 10^{-4}`, but v1 of a Laplacian (the roots
    of the degrees; where the two eigenvalues are equal, the basis is chosen so) tells rows of
    many edges from rows of few, not clusters. h is scaled to norm 1 before objectives are
    compared: an unfinished h is longer and would win. With ``balance=0``, which the paper uses
    for a limit only, and in the AISTATS mode, which has no break, a run is STOPPED only where
    a quadratic program has no minimum.

    *The limits of JMLR section 4* for :math:`\gamma \to \infty` are limits of the problem. The
    default mode reaches them. Algorithm 1 reaches spectral clustering with ``balance=0``; with
    a balance above 0 it breaks off at once from eq. 9, and converges from ``init`` = v, the
    eigenvector of Q that is wanted: v1 for the centred kernel matrices of k-means and for
    SMIC, whose first eigenvector is not trivial.

    *Labels, links and sizes* (`fit` with `y`, `must_link`, `cannot_link`; `max_cluster_size`) say
    which labels are allowed. Fields are those of allowed labels, and every step takes the allowed
    labels that agree most with them, so that roughness still never rises. The start is that of the
    method itself, or labels that spread from `y` along the graph where held-out labels speak for
    these. From the latter the given labels count as much in the fields as all others together,
    each class alike. More than two clusters with ``multiway="recursive"`` or n_clusters="auto" are
    then refined at once, and `tree_` is absent. The papers' modes take nothing of this.

    `decision_function` extends the field (or fields) to new rows harmonically: the mean over the
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
    >>> model.result_.check(model.problem_).is_stationary(1e-6)
    True

    Three pairs of moons side by side, six clusters:

    >>> import numpy as np
    >>> rows = np.vstack([X + [3.5 * i, 0] for i in range(3)])
    >>> model = SoftLabelMVC(n_clusters=6, random_state=0).fit(rows)
    >>> clustering_error(np.concatenate([y + 2 * i for i in range(3)]), model.labels_)
    0.0
    >>> model.decision_function(rows).shape
    (900, 6)
    """

    _fitted: Any
    _is_tied: bool | None

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        affinity: Any = None,
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        reg: float = 1e-2,
        balance: float | None = None,
        n_candidates: int | None = None,
        init: Any = "auto",
        eta0: float | None = None,
        Q: Any = "laplacian",
        mode: str = "default",
        multiway: str = "joint",
        tol: float = 1e-6,
        max_iter: int | None = None,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        min_cluster_size: float | ArrayLike | None = None,
        max_cluster_size: float | ArrayLike | None = None,
        metric: str = "euclidean",
        text_components: int | str | None = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.balance = balance
        self.n_candidates = n_candidates
        self.init = init
        self.eta0 = eta0
        self.Q = Q
        self.mode = mode
        self.multiway = multiway
        self.tol = tol
        self.max_iter = max_iter
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.min_cluster_size = min_cluster_size
        self.max_cluster_size = max_cluster_size
        self.metric = metric
        self.text_components = text_components
        self.random_state = random_state

    @property
    def problem_(self) -> VolumeProblem:
        """The problem of two clusters that was solved; see the class."""
        check_is_fitted(self, "result_")
        if isinstance(self.result_, VolumeResult):
            return self._fitted.problem
        raise AttributeError(f"problem_ is that of two clusters, not {self.n_clusters}.")

    @property
    def degenerate_(self) -> bool:
        """Whether the start is arbitrary; see the class."""
        check_is_fitted(self, "result_")
        if isinstance(self.result_, OneCluster):
            return False
        if isinstance(self.result_, RecursiveResult):
            return any(node.model.degenerate_ for node in self.tree_.splits())
        fitted, k = self._fitted, self.field_.shape[1] if self.field_.ndim == 2 else 2
        if fitted.init is not None:
            return False
        if fitted.is_degenerate or self.result_.status is Status.DEGENERATE:
            return True
        operator = fitted.operator
        if fitted.pairs.values.size > k or operator.n <= k:
            return False
        if self._is_tied is None:
            self._is_tied = is_tied(operator.smallest_eigenpairs(k + 1).values, k)
        return self._is_tied

    def _scores(self, X: Any) -> NDArray:
        return np.asarray(self._fitted.graph.row_weights(X) @ self.field_)

    def _check_parameters(self) -> None:
        check_parameters(self)

    def _problem(self, X: Any, weights: NDArray | None) -> TwoWayProblem | MultiwayProblem:  # noqa: ARG002 -- no weights here
        if self._known is not None:
            return self._known_problem()
        given = {"sigma": self.sigma, "n_neighbors": self.n_neighbors}
        if self.mode == "default":
            affinity = "density_scaling" if self.affinity is None else self.affinity
            graph = build_graph(X, affinity, **given)
        else:
            graph = paper_graph(X, self.mode, self.affinity, **given)
        graph.warn_of_components(self.n_clusters)
        operator, trivial = self._operator(graph)
        if self.n_clusters > 2:
            return self._multiway_problem(graph, operator, is_laplacian=trivial is not None)
        return self._two_way_problem(graph, operator, trivial)

    def _multiway_problem(
        self, graph: Graph, operator: SPDOperator, *, is_laplacian: bool
    ) -> MultiwayProblem:
        n, k = operator.n, self.n_clusters
        # One more than clusters where LAPACK computes it anyway.
        pairs = operator.smallest_eigenpairs(min(n, k + (n < SMALL)), tol=MULTIWAY_TOL)
        if not is_laplacian:
            check_definite(operator, pairs, is_named=isinstance(self.Q, str))
        balance = 0.0 if self.balance is None else float(self.balance)
        init = None if isinstance(self.init, str) else check_start_labels("init", self.init, n, k)
        shift = 1.0 / n if is_laplacian else None
        return MultiwayProblem(graph, operator, pairs, k, balance, shift, init)

    def _two_way_problem(
        self, graph: Graph, operator: SPDOperator, trivial: NDArray | None
    ) -> TwoWayProblem:
        n_candidates = self.n_candidates
        if n_candidates is None and self.mode != "paper":
            n_candidates = 1
        balance = self.balance
        if balance is None:
            balance = AISTATS_BALANCE if self.mode == "aistats" else 1.0 / operator.n
        problem = VolumeProblem(operator, float(self.reg), float(balance))
        is_refined = self.mode == "default" and self.max_iter != 1
        n_pairs = n_pairs_needed(operator.n, n_candidates, with_next=self.mode != "default")
        pairs = operator.smallest_eigenpairs(n_pairs, tol=ROUGH_TOL if is_refined else EXACT_TOL)
        if trivial is None:
            check_definite(operator, pairs, is_named=isinstance(self.Q, str))
        starts = candidates(pairs, trivial=trivial, n_candidates=n_candidates)
        init = None
        if not isinstance(self.init, str):
            init = given_start(self.init, operator.n, two_sided=self.mode == "default")
        return TwoWayProblem(graph, problem, pairs, starts, trivial is not None, init)

    def _operator(self, graph: Graph) -> tuple[SPDOperator, NDArray | None]:
        """Q, and its trivial eigenvector where that is known."""
        operator = graph.operator(self.Q, shift=0.0 if self.mode == "aistats" else None)
        is_laplacian = isinstance(self.Q, str) and self.Q == "laplacian"
        return operator, np.sqrt(graph.degrees) if is_laplacian else None

    def _run(
        self, problem: TwoWayProblem | MultiwayProblem, seed: int
    ) -> VolumeResult | MultiwayVolumeResult:
        allowed = self._allowed()
        if isinstance(problem, MultiwayProblem):
            step = OneAgainstRest(
                problem.operator,
                problem.n_clusters,
                problem.balance,
                rtol=MULTIWAY_RTOL,
                weights=None if allowed is None else allowed.weights,
            )
            most = self.max_iter or MAX_REFINE
            return cluster_jointly(problem, step, max_iter=most, seed=seed, allowed=allowed)
        return cluster_in_two(
            problem,
            mode=self.mode,
            tol=self.tol,
            max_iter=self.max_iter,
            eta0=self.eta0,
            allowed=allowed,
        )

    def _fit_from(self, part: PartRows, sides: NDArray) -> None:
        """Leave splits of n_clusters="auto" to their eigenvectors."""

    def _publish(
        self, problem: TwoWayProblem | MultiwayProblem, result: VolumeResult | MultiwayVolumeResult
    ) -> None:
        self._fitted = self._problem_of_labels(problem, result.labels)
        self._is_tied = None
        self.h_ = result.h
        self.field_ = result.field
        self.eigenvalues_ = problem.pairs.values
        self.n_neighbors_ = problem.graph.n_neighbors
        self.sigma_ = problem.graph.sigma
        self.neighbor_recall_ = problem.graph.recall
        self.balance_ = float(result.h.sum()) if result.h.ndim == 1 else result.h.sum(axis=0)
        self.n_moved_ = result.n_moved
        if isinstance(result, VolumeResult):
            self.n_candidates_, self.ill_defined_ = result.n_candidates, result.ill_defined
            if self.ill_defined_:
                warn_user(ILL_DEFINED)
        if not result.labels.any():
            warn_user(
                f"All rows are in one cluster: balance={self.balance} leaves the sum of soft "
                "responses free. Lower it (1/n by default)."
            )

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, (VolumeResult, MultiwayVolumeResult)):
            return super()._status_words(result)
        if result.status is Status.STOPPED:
            has_break = self.mode == "paper" and self.problem_.balance > 0
            return break_words(result.n_iter, self.reg, has_break=has_break)
        if result.status is Status.MAX_ITER and self.mode != "default":
            return f"{result.n_iter} steps of Algorithm 1 were too few. Raise max_iter or tol"
        if result.status is Status.DEGENERATE:
            return self._fitted.graph.component_words(self.n_clusters)
        return ""
