"""Soft-label maximum volume clustering: MVC-SL of JMLR 2013 and SL-MVC of AISTATS 2011."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_choice, check_count, check_number, shown
from volmar._warn import warn_user
from volmar.base.clusterer import Clusterer
from volmar.base.guided import GuidedUnweightedMixin
from volmar.base.outcome import OneCluster
from volmar.base.recursion import RecursiveResult
from volmar.base.validation import check_start_labels
from volmar.graphs.graph import Graph, build_graph, make_similarity, row_weights
from volmar.guidance.guide import Guide
from volmar.operators.protocol import EigenPairs, SPDOperator
from volmar.solvers import Status
from volmar.volume.descent import Allowed
from volmar.volume.multiway import (
    MultiwayProblem,
    MultiwayVolumeResult,
    OneAgainstRest,
    cluster_jointly,
)
from volmar.volume.problem import VolumeProblem
from volmar.volume.two_way import (
    MAX_REFINE,
    SMALL,
    TwoWayProblem,
    VolumeResult,
    candidates,
    cluster_in_two,
    given_start,
    is_tied,
    n_pairs_needed,
)

# ---- soft label parameters


MODES = ("default", "paper", "aistats")
MATRICES = ("laplacian", "kernel")
MULTIWAY = ("joint", "recursive")
# Parameters without effect on a joint search for more than two clusters, with their defaults.
TWO_WAY = {"reg": 1e-2, "n_candidates": None, "tol": 1e-6}


def check_parameters(model: Any) -> None:
    """Raise an error for parameters that are invalid for any data."""
    check_choice("mode", model.mode, MODES)
    check_choice("multiway", model.multiway, MULTIWAY)
    if isinstance(model.Q, str):
        check_choice("Q", model.Q, MATRICES)
    check_number("reg", model.reg, low=0.0, open_low=True)
    check_number("tol", model.tol, low=0.0, open_low=True)
    if model.balance is not None:
        check_number("balance", model.balance, low=0.0)
    for name in ("n_candidates", "max_iter"):
        if getattr(model, name) is not None:
            check_count(name, getattr(model, name))
    if isinstance(model.init, str):
        check_choice("init", model.init, ["auto"])
    elif model.n_candidates is not None:
        raise ValueError(
            f"n_candidates={model.n_candidates} has no effect if init is given, which is then the "
            "only start. Leave one of them out."
        )
    if model.eta0 is not None:
        check_number("eta0", model.eta0)
        if model.mode == "default":
            raise ValueError(
                f"eta0={shown(model.eta0)} has no effect with mode='default', which computes "
                "the multiplier. Leave it out, or use mode='paper'."
            )
    if isinstance(model.n_clusters, Integral) and int(model.n_clusters) > 2:
        _check_multiway(model)


def _check_multiway(model: Any) -> None:
    given = f"n_clusters={shown(model.n_clusters)} and multiway={model.multiway!r}"
    if model._is_recursive():
        if not isinstance(model.Q, str) and not callable(model.Q):
            raise ValueError(
                f"Q must be a name or a function of the similarities with {given}. A matrix "
                "of all rows does not fit the rows of one cluster. Pass a function, or use "
                "multiway='joint'."
            )
        return
    if model.mode != "default":
        raise ValueError(
            f"mode={model.mode!r} cannot find more than two clusters jointly, got {given}. "
            "Use mode='default', or multiway='recursive'."
        )
    for name, default in TWO_WAY.items():
        if getattr(model, name) != default:
            raise ValueError(
                f"{name}={getattr(model, name)!r} has no effect with {given}. Leave it out, or "
                "use multiway='recursive'."
            )


def check_definite(operator: SPDOperator, pairs: EigenPairs, *, is_named: bool) -> None:
    """Raise an error if the matrix Q is not positive definite."""
    scale = max(map(abs, operator.bounds))
    if pairs.values[0] > 1e-13 * scale:
        return
    remedy = "Add a multiple of the identity to it."
    if is_named:
        remedy = "Divide the similarities by their maximum, so that none exceeds 1."
    raise ValueError(
        "Q must be positive definite, but its smallest eigenvalue is "
        f"{pairs.values[0]:.3g}. {remedy}"
    )


# ---- paper mode


# The similarities of the papers' experiments (JMLR 8.1 and 8.2, AISTATS 5).
PAPER_AFFINITY = MappingProxyType({"paper": "gaussian", "aistats": "cosine_knn"})
PAPER_SIMILARITY: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "gaussian": {"sigma": "mean/10", "self_loops": True},
        "local_scaling": {"n_neighbors": 7, "graph": "dense", "self_loops": True},
        "cosine_knn": {"n_neighbors": 7},
        "nearest_neighbors": {"n_neighbors": 7},
    }
)
ILL_DEFINED = (
    "Q is ill-defined (JMLR section 8.1): more than ten of its eigenvalues are within 1e-4 of the "
    "second. Only the ten smallest, starting from the second, are tried. Use a larger sigma or "
    "another affinity, or set n_candidates."
)


def paper_graph(X: Any, mode: str, affinity: Any, *, sigma: Any, n_neighbors: Any) -> Graph:
    """Build the graph of a paper mode, with the papers' settings for affinities given by name."""
    given = {"sigma": sigma, "n_neighbors": n_neighbors}
    affinity = PAPER_AFFINITY[mode] if affinity is None else affinity
    if not isinstance(affinity, str) or affinity not in PAPER_SIMILARITY:
        return build_graph(X, affinity, **given)
    params = {name: value for name, value in given.items() if value is not None}
    defaults = dict(PAPER_SIMILARITY[affinity])
    if "n_neighbors" in defaults:
        defaults["n_neighbors"] = min(defaults["n_neighbors"], X.shape[0] - 1)
    unknown = [name for name in params if name not in defaults]
    if unknown:
        return build_graph(X, affinity, **given)  # raises an error with the reason
    return build_graph(X, make_similarity(affinity, **{**defaults, **params}))


def break_words(n_iter: int, reg: float, *, has_break: bool) -> str:
    """Return a message on why Algorithm 1 stopped early after `n_iter` steps, with a remedy.

    `has_break` is whether the algorithm stops at JMLR's bound on the multiplier. Otherwise it
    stops only if a quadratic program has no minimum.
    """
    if not has_break:
        why = f"the quadratic program of step {n_iter + 1} has no minimum"
    else:
        why = (
            f"the multiplier of step {n_iter + 1} reaches reg times the smallest eigenvalue of Q, "
            "beyond which a quadratic program need not have a minimum"
        )
    what = f"the soft responses of step {n_iter}" if n_iter else "the start"
    return (
        f"{why}, and Algorithm 1 returns {what}. Lower reg={reg:g}, pass init or eta0 (see the "
        "notes of the class), or use mode='default'"
    )


# ---- guided


JOINT = (VolumeResult, MultiwayVolumeResult)


def seed_weights(seeds: NDArray) -> NDArray:
    """Return row weights: 1 for ordinary rows, and a total of n for the seeds.

    As in `spread_labels`, all classes have the same total weight, regardless of their number of
    seeds. The weight of a seed is at least 1.
    """
    known = seeds >= 0
    weights = np.ones(seeds.size)
    if known.any():
        counts = np.bincount(seeds[known])
        share = seeds.size / np.count_nonzero(counts)
        weights[known] = np.maximum(share / counts[seeds[known]], 1.0)
    return weights


def _is_same_start(free: NDArray, start: NDArray, guide: Guide) -> bool:
    """Return whether a start equals the clusters of the unguided fit, up to renumbering."""
    shared = np.zeros((int(free.max()) + 1, guide.k))
    unknown = guide.seeds < 0
    np.add.at(shared, (free[unknown], start[unknown]), 1)
    renamed = np.argmax(shared, axis=1)[free]
    return np.array_equal(guide.place(np.eye(guide.k)[renamed]).labels, start)


class GuidedVolume(GuidedUnweightedMixin):
    """Guided fits of `SoftLabelMVC`; must precede `Clusterer` in the list of base classes."""

    #: Problem of the unguided fit to the same rows.
    _known: TwoWayProblem | MultiwayProblem | None = None
    #: Whether the start differs from that of the unguided fit.
    _starts_elsewhere = False

    _fitted: Any
    _guide: Any
    field_: Any
    labels_: Any
    mode: str
    result_: Any

    def _fit_guided(self, *args: Any, **kwargs: Any) -> bool:
        if self.mode != "default":
            raise ValueError(
                f"mode={self.mode!r} is the paper's algorithm, which takes no known labels (y), "
                "links or size limits. Use mode='default', or leave them out."
            )
        return super()._fit_guided(*args, **kwargs)

    def _similarities(self, X: Any, free: Any) -> Any:
        if isinstance(free.result_, JOINT):
            return free._fitted.graph.W
        return X if self._is_pairwise() else None  # type: ignore[attr-defined]

    def _reuse(self, free: Any) -> None:
        """Reuse graph and eigenpairs of the unguided fit, and check whether the start differs."""
        known, k = getattr(free, "_fitted", None), self.n_clusters
        kind = TwoWayProblem if k == 2 else MultiwayProblem
        if isinstance(known, kind) and getattr(known, "n_clusters", 2) == k:
            self._known = known
        if self._guide.is_seeded:
            self._starts_elsewhere = not _is_same_start(free.labels_, self.init, self._guide)

    def _known_problem(self) -> TwoWayProblem | MultiwayProblem:
        known, n = self._known, self._guide.seeds.size
        assert known is not None
        del self._known
        if isinstance(known, MultiwayProblem):
            return replace(known, init=check_start_labels("init", self.init, n, self.n_clusters))
        return replace(known, init=given_start(self.init, n, two_sided=True))

    def _allowed(self) -> Allowed | None:
        """Return the labellings that the guide allows; None without a guide."""
        guide = self._guide
        if guide is None:
            return None
        elsewhere = vars(self).pop("_starts_elsewhere", False)  # of this fit, not of the model
        weights = seed_weights(guide.seeds) if elsewhere else None
        anchors = guide.seeds >= 0 if elsewhere else None

        def place(x: NDArray) -> NDArray:
            if guide.k == 2:
                return 2.0 * guide.place_sides(x).labels - 1.0
            return guide.place(x).labels

        return Allowed(place, weights, anchors, has_limits=guide.limits is not None)

    def _problem_of_labels(
        self, problem: TwoWayProblem | MultiwayProblem, labels: NDArray
    ) -> TwoWayProblem | MultiwayProblem:
        """Return the solved problem. For two guided clusters, it has the labels as `sides`."""
        if self._guide is None or isinstance(problem, MultiwayProblem):
            return problem
        return replace(problem, problem=replace(problem.problem, sides=2.0 * labels - 1.0))

    def _training_scores(self, X: Any) -> NDArray:
        if not isinstance(self.result_, JOINT):
            return super()._training_scores(X)
        if not isinstance(self.result_, MultiwayVolumeResult):
            return self.field_
        if np.array_equal(self._guide.place(self.field_).labels, self.labels_):
            return self.field_
        return np.eye(self.n_clusters)[self.labels_]  # a cluster was held, or the start is kept


# ---- soft label mvc


# Accuracy of the eigenvectors. A start that is refined needs only rough ones, because the
# refinement corrects their errors. They are always accurate relative to the next eigenvalue, below
# which the refinement corrects nothing.
EXACT_TOL = 1e-6
ROUGH_TOL = 3e-3
# Joint search for more than two clusters. The eigenvalues bound the normalised cut and must be
# accurate enough to detect missed ones. Small clusters need more accurate fields.
MULTIWAY_TOL = 1e-4


class SoftLabelMVC(GuidedVolume, Clusterer):
    r"""Soft-label maximum volume clustering (Niu, Dai, Shang and Sugiyama 2011, 2013).

    Finds soft responses h, one number per row, that are large in absolute value and smooth on the
    similarity graph (JMLR eq. 4, with the balance constraint of eq. 5):

    .. math:: \min_h \; -2 \|h\|_1 + \gamma \, h'Qh \quad
              \text{s.t.} \quad \|h\|_2 = 1, \; |1'h| \le b

    with :math:`Q = L_{sym} + I / n` of the graph. Clusters are the signs of h. The start is the
    second eigenvector of Q, cut at its mean.

    ``mode="paper"`` is Algorithm 1 of JMLR as printed, at any `reg`: sequential quadratic
    programming from up to ten eigenvectors, with each quadratic program solved in closed form
    (see the notes). With the paper's settings it is equivalent to one linear solve: the first
    step returns the smoothest field x that agrees with the start, ``min x'Qx`` subject to
    ``y'x = sqrt(n)``, ``|1'x| <= b``, and all later steps only rescale magnitudes.
    ``mode="default"`` computes that field directly and repeats the step from the signs of the
    field until at most two labels in a thousand move. The roughness ``x'Qx`` never increases. If
    the normalised cut has increased nevertheless, the labels of the start are kept. Then h is
    computed exactly for those labels.

    More than two clusters are found jointly (``multiway="joint"``), which goes beyond the papers.
    The start is k-means on the k smallest eigenvectors of Q, with rows of unit length. Each step
    computes the field of each cluster against the rest, scales all fields to the same roughness,
    :math:`x_j'Qx_j = 1`, and moves every row to the cluster with the largest field value. The
    agreement :math:`\sum_j y_j'x_j` of labels and fields never decreases. Of the start and all
    steps, the labels with the smallest normalised cut are kept.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    affinity : str, callable or Similarity, optional
        Similarity of rows: "density_scaling" (default of the default mode: locally scaled and
        weighted by the density, see `volmar.graphs.density_scaling_similarity`), "local_scaling"
        (the same without the density), "gaussian" (default of the paper mode,
        ``sigma="mean/10"``), "cosine_knn" (default of the AISTATS mode), "nearest_neighbors",
        "precomputed", a function of two blocks of rows, or a recipe such as
        ``GaussianSimilarity(sigma="mean/4")`` (see `volmar.graphs`). Affinities given by name have
        no self-loops in the default mode; the paper modes use the paper's versions (dense, with
        :math:`W_{ii} = 1`, except the k-NN graphs). Recipes and matrices are used as given.
    {sigma}
    {n_neighbors}
    reg : float, default=0.01
        :math:`\gamma`, the weight of smoothness. It has no influence on the labels from 1e-6 up to
        about sqrt(n). Far above that, h approaches the eigenvector of Q.
    balance : float, optional
        b, the maximum absolute value of the sum of soft responses. If None, 1/n (1e-7 in the
        AISTATS mode, 0 for each field in a joint search for more than two clusters). Values from
        sqrt(n) on impose no constraint; in a joint search, all but one cluster would then lose
        their rows.
    n_candidates : int, optional
        Number of eigenvectors to start from, from the second on. If None, 1 in the default and
        AISTATS modes; in the paper mode, all within 1e-4 of the second eigenvalue, at most ten.
        The start with the lowest objective is used. The default mode compares objectives at
        reg = sqrt(n), because at the paper's 0.01 they would measure balance alone. More
        candidates act as a prior for clusters of equal size: they help if the sizes are equal, and
        hurt otherwise. See the notes for why v1 is never a candidate.
    init : "auto", array of shape (n_samples,) or fitted clusterer, default="auto"
        If "auto", the candidates (JMLR eq. 9). An array with two distinct values holds labels. Any
        other array holds soft responses h0, which are scaled to norm 1; the default mode uses
        their signs. For more than two clusters jointly, an array with n_clusters distinct labels.
        If a clusterer fitted to the same columns, its clusters are the start, and clusters that
        match keep their numbers.
    eta0 : float, optional
        Initial multiplier of the norm constraint, in the paper modes only. If None, 0 as in JMLR
        (-0.001 in the AISTATS mode). Must be below reg times the smallest eigenvalue of Q.
    Q : {"laplacian", "kernel"}, matrix, SPDOperator or callable, default="laplacian"
        The matrix of pairwise information. "laplacian" is :math:`L_{sym} + I/n` (without the shift
        in the AISTATS mode), "kernel" is :math:`nI - W`, used by the paper for Isolet. A symmetric
        positive definite matrix of the training rows, or a function of the similarities W that
        returns one, is used as given.
    mode : {"default", "paper", "aistats"}, default="default"
        "paper" is JMLR 2013, "aistats" its first version (Q without shift, another initial
        multiplier and stopping rule, one candidate).
    multiway : {"joint", "recursive"}, default="joint"
        Search for more than two clusters. "joint" finds all clusters together, in the default mode
        only; `reg`, `n_candidates` and `tol` must then have their default values. "recursive"
        splits clusters in two repeatedly, in any mode. Try it if the graph has more small
        components than clusters: the eigenvectors at the start of "joint" then separate only those
        components.
    tol : float, default=1e-6
        Stopping tolerance of the paper modes; accuracy of the norm of h in the default mode.
    max_iter : int, optional
        Maximum number of steps. If None, 100 in the paper modes and 20 in the default mode. In
        the default mode, 1 gives the paper's labels.
    min_cluster_size, max_cluster_size : int, float or array of shape (n_clusters,), optional
        Minimum and maximum cluster size: a number of rows, a fraction of them, or one value per
        cluster (in the order of `classes_` if `y` is passed to `fit`). Only with mode="default".
    random_state : int, RandomState or None, default=None
        Random seed of k-means at the start of a joint search for more than two clusters. Fits with
        two clusters are deterministic.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. Clusters are numbered by size, 0 is the largest; h is
        positive in cluster 1. If `y` is passed to `fit`, labels are the classes in `classes_`, and
        h is positive in ``classes_[1]``.
    {classes_}
    {broken_links_}
    h_ : ndarray of shape (n_samples,) or (n_samples, n_clusters)
        Soft responses, of norm 1. With a small `reg` they are nearly constant in each cluster. For
        more than two clusters, the columns of `field_` scaled to norm 1.
    field_ : ndarray of shape (n_samples,) or (n_samples, n_clusters)
        Smooth field that defines the clusters. Its magnitude measures how deep inside its cluster
        a row is. More than two clusters have one column each, scaled to :math:`x'Qx = 1`; the
        largest value of a row is in the column of its cluster, unless the start is kept.
    {n_neighbors_}
    neighbor_recall_ : float or None
        Fraction of the true nearest neighbours in the graph. It is measured on a sample if the
        search is approximate (more than 20,000 rows and more than 8 features). None if there was
        no search.
    {sigma_}
    eigenvalues_ : ndarray
        Smallest eigenvalues of Q that were computed.
    n_candidates_ : int
        Number of starts tried, for two clusters. With the paper's rule, the size of its set V
        without v1, at most ten.
    ill_defined_ : bool
        Whether the paper's rule has found more than ten eigenvalues within 1e-4 of the second, for
        two clusters. The paper calls such a Q ill-defined (section 8.1), and `fit` warns.
    balance_ : float or ndarray of shape (n_clusters,)
        :math:`1'h`.
    n_moved_ : int
        Number of labels that differ between the start and the end.
    degenerate_ : bool
        Whether the start is arbitrary: the graph has more components than clusters, or the last
        eigenvalue in use and the next (second and third, for two clusters) are tied. With
        1,500 rows or more, ties are checked only when this attribute is first read.
    objective_ : float
        Objective at `h_`. For more than two clusters jointly, the normalised cut of the labels.
    result_ : VolumeResult or MultiwayVolumeResult
        Certified result. `residuals` are those of a stationary point (gradient of the Lagrangian,
        relative; norm; balance). `gap` is NaN for two clusters: the problem is not convex, and at
        a small `reg` every labelling is a local minimum, so that a bound would be meaningless.
    problem_ : VolumeProblem
        Q, `reg` and the balance, for two clusters only. ``result_.check(problem_)`` recomputes the
        residuals. After a fit with labels, links or size limits, it is the problem for the labels
        found, with ``-2 y'h`` in place of ``-2 |h|_1``.
    tree_ : SplitTree
        The splits, for more than two clusters with multiway="recursive".
        `h_`, `field_`, `eigenvalues_`, `balance_` and `n_moved_` are then attributes of the models
        of its nodes.
    n_iter_ : int
        Number of steps taken.
    {graph:n_features_in_}

    See Also
    --------
    NormalizedSpectralClustering : Starts from the same graph, any number of clusters.
    NormalizedCut : The best threshold on one eigenvector.

    Notes
    -----
    *The paper mode.* The parameters default to the values of JMLR section 8.2 (reg = 0.01,
    balance = 1/n, tol = 1e-6), the starts are those of eq. 9 and section 8.1, and eta is updated
    by eq. 7. As printed, if eta reaches :math:`\gamma \lambda_1`, the previous iterate is returned
    with `result_.status` STOPPED, because the next quadratic program need not have a minimum. From
    a `reg` of about :math:`\sqrt n / (\lambda_2 - \lambda_1)` on, that iterate is the start.
    Three things differ from the paper. First, v1 is not a candidate. The paper's set V includes it
    if :math:`\lambda_2 - \lambda_1 < 10^{-4}`, but v1 of a Laplacian (the square roots of the
    degrees; if both eigenvalues are equal, the basis is chosen so) separates rows with many edges
    from rows with few, not clusters. Second, h is scaled to norm 1 before objectives are compared,
    because an unfinished h is longer and would win. Third, with ``balance=0``, which the paper
    uses only for a limit, a run is STOPPED only if a quadratic program has no minimum. The same
    holds for the AISTATS mode, which has no bound on eta.

    *The limits of JMLR section 4* for :math:`\gamma \to \infty` are limits of the problem. The
    default mode reaches them. Algorithm 1 reaches spectral clustering with ``balance=0``. With a
    balance above 0 it stops at once from eq. 9, and converges from an ``init`` that is the target
    eigenvector of Q: v1 for the centred kernel matrices of k-means and for SMIC, whose first
    eigenvector is not trivial.

    *Labels, links and size limits* (`fit` with `y`, `must_link`, `cannot_link`;
    `max_cluster_size`) restrict the labels. Every step takes the allowed labels that agree best
    with the fields, so that the roughness still never increases. The start is that of the method
    itself, or labels spread from `y` along the graph if these predict held-out labels better.
    In the latter case the given labels have the same total weight in the fields as all other rows,
    divided equally among the classes, and the fields must follow each of them: the diagonal of Q
    is doubled at labelled rows (unless Q is an operator without a matrix). More than two clusters
    with ``multiway="recursive"`` are then refined jointly, and `tree_` is
    absent. Only with mode="default".

    `decision_function` extends the fields to new rows by the mean over the training rows, weighted
    by similarity. `labels_` comes from the training graph, but `predict` uses only the
    similarities of a row to the training rows. It may therefore assign a few training rows at the
    border differently. It also assigns rows far from all training rows, without a warning.

    Scale the features first if their units differ (`sklearn.preprocessing.StandardScaler`),
    because the graph depends on distances only.

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
        min_cluster_size: float | ArrayLike | None = None,
        max_cluster_size: float | ArrayLike | None = None,
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
        self.min_cluster_size = min_cluster_size
        self.max_cluster_size = max_cluster_size
        self.random_state = random_state

    @property
    def problem_(self) -> VolumeProblem:
        """The solved problem, for two clusters only; see the attributes of the class."""
        check_is_fitted(self, "result_")
        if isinstance(self.result_, VolumeResult):
            return self._fitted.problem
        raise AttributeError(
            f"problem_ exists for two clusters only, got n_clusters={self.n_clusters}."
        )

    @property
    def degenerate_(self) -> bool:
        """Whether the start is arbitrary; see the attributes of the class."""
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
        return np.asarray(row_weights(self._extension, X) @ self.field_)

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
        # One more eigenpair than clusters if LAPACK computes it anyway.
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
            # The balance of AISTATS 2011, section 5.
            balance = 1e-7 if self.mode == "aistats" else 1.0 / operator.n
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
        """Return Q, and its trivial eigenvector if that is known."""
        operator = graph.operator(self.Q, shift=0.0 if self.mode == "aistats" else None)
        is_laplacian = isinstance(self.Q, str) and self.Q == "laplacian"
        return operator, np.sqrt(graph.degrees) if is_laplacian else None

    def _run(
        self, problem: TwoWayProblem | MultiwayProblem, seed: int
    ) -> VolumeResult | MultiwayVolumeResult:
        allowed = self._allowed()
        if isinstance(problem, MultiwayProblem):
            operator = problem.operator
            step = OneAgainstRest(
                operator if allowed is None else allowed.operator(operator),
                problem.n_clusters,
                problem.balance,
                rtol=MULTIWAY_TOL,
                weights=None if allowed is None else allowed.weights,
            )
            max_iter = self.max_iter or MAX_REFINE
            return cluster_jointly(problem, step, max_iter=max_iter, seed=seed, allowed=allowed)
        return cluster_in_two(
            problem,
            mode=self.mode,
            tol=self.tol,
            max_iter=self.max_iter,
            eta0=self.eta0,
            allowed=allowed,
        )

    def _publish(
        self, problem: TwoWayProblem | MultiwayProblem, result: VolumeResult | MultiwayVolumeResult
    ) -> None:
        self._fitted = self._problem_of_labels(problem, result.labels)
        self._extension = self._fitted.graph.extension
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
                f"All rows are in one cluster, because balance={self.balance} does not constrain "
                "the sum of soft responses. Lower balance (1/n by default)."
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
