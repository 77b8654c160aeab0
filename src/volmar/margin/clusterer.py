"""Base class of the estimators that use the margin engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_choice, check_count, check_number, shown
from volmar.base.blocks import given_start, require_in_memory
from volmar.base.clusterer import Clusterer
from volmar.base.guided import GuidedMixin, grow_guided_tree
from volmar.base.recursion import RecursiveResult
from volmar.guidance.guide import Guide, Placement
from volmar.guidance.starts import aligned_labels
from volmar.margin.engine.descent import MarginResult, first_sample, maximise_margin
from volmar.margin.engine.nested import relabelling_outside
from volmar.margin.engine.problem import HingeLoss, Loss, MarginProblem, has_limits
from volmar.margin.engine.starts import (
    BALANCE,
    HALVES,
    SCREENING_C,
    Origin,
    Start,
    StartSearch,
    Way,
    are_unequal,
    equal_weights,
    shares_of_sides,
)
from volmar.margin.feature_space.kernel import not_a_kernel
from volmar.margin.feature_space.space import FeatureSpace
from volmar.margin.multiway import check_joint, cluster_jointly, joint_start
from volmar.rows.anywhere import cluster_sizes
from volmar.solvers import Status
from volmar.solvers.cutting_plane_qp import NotAGramMatrixError

# Ratio of successive values of C in the annealing, and its first value for more than two clusters.
# At smaller values the hinge gives up whole clusters.
ANNEALING_STEP = 2.5
FIRST_JOINT_C = 2.0
ONE_SIDE = (
    "no hyperplane found has rows on both sides. Check that the rows of X differ, or start from "
    "other labels (init)."
)


@dataclass
class MarginInputs:
    """The rows, their sample weights, and the shares of the two sides that count as balanced.

    A run that adopts the sizes of its start replaces `space` by rows with the weights of
    `equal_weights`. The fitted hyperplane belongs to these weights.
    """

    space: Any
    weights: NDArray | None
    balance: tuple[float, float] = HALVES


class MarginClusterer(Clusterer):
    """Parameters, starts and descent of a clusterer on the margin engine.

    A subclass defines the feature space of the rows (`_feature_space`) and, if it is not the
    hinge, the loss (`_loss`). More than two clusters are found by recursive splitting, or at once
    by subclasses that have the parameter `multiway`.
    """

    C: Any
    threshold: str | None
    balance: float | None
    balance_unit: str
    anneal: Any
    init: Any
    n_init: int | None
    tol: float
    max_iter: int | None
    mode: str
    cut_tol: float | None
    cccp_tol: float | None
    multiway: str = "recursive"
    min_cluster_size: Any = None
    max_cluster_size: Any = None
    #: Start of a guided fit.
    _origin: Origin | None = None
    _hyperplane: Any
    _paper_loop: ClassVar[Callable[..., MarginResult]] = staticmethod(relabelling_outside)
    # From the SKMMC paper: C, cut_tol and cccp_tol of sec. 5.1, balance of sec. 5.3.
    _mode_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"C": 2.0, "threshold": "adaptive", "balance": BALANCE, "max_iter": 1000},
        "paper": {
            "C": 10.0,
            "threshold": "adaptive",
            "balance": 0.0,
            "max_iter": 100,
            "cut_tol": 0.01,
            "cccp_tol": 0.1,
        },
    }

    # ------------------------------------------------------------------ for the subclass

    @abstractmethod
    def _feature_space(self, X: Any, weights: NDArray | None) -> FeatureSpace:
        """Return the feature space of the rows."""

    def _loss(self, space: FeatureSpace) -> Loss:
        """Return the loss of margin errors, by default the hinge."""
        return HingeLoss(space.shares)

    def _is_joint(self) -> bool:
        many = isinstance(self.n_clusters, Integral) and int(self.n_clusters) > 2
        return many and not self._is_recursive()

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        check_choice("multiway", self.multiway, ["joint", "recursive"])
        check_choice("mode", self.mode, ["default", "paper"])
        check_choice("threshold", self._value_of("threshold"), ["adaptive", "fixed"])
        check_choice("balance_unit", self.balance_unit, ["margin", "score"])
        largest = check_number("C", self._value_of("C"), low=0.0, open_low=True)
        check_number("balance", self._value_of("balance"), low=0.0)
        if self.n_init is not None:
            check_count("n_init", self.n_init)
        check_count("max_iter", self._value_of("max_iter"))
        check_number("tol", self.tol, low=0.0, high=0.5, open_low=True)
        for name in ("cut_tol", "cccp_tol"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, low=0.0, open_low=True)
                if self.mode != "paper":
                    raise ValueError(
                        f"{name}={value:g} is only used with mode='paper'. Leave it out, or set "
                        "tol instead."
                    )
        if isinstance(self.anneal, str):
            check_choice("anneal", self.anneal, ["auto"])
        elif np.ndim(self.anneal) != 1:
            raise TypeError(
                f"anneal must be 'auto' or a tuple of values below C, got {shown(self.anneal)}."
            )
        else:
            for C in self.anneal:
                check_number("anneal", C, low=1.0)
                if self._value_of("threshold") == "adaptive" and largest <= C:
                    raise ValueError(
                        f"anneal contains {C:g}, which is not below C={largest:g}. Leave this "
                        "value out."
                    )
        if isinstance(self.init, str):
            check_choice("init", self.init, ["auto", "k-means", "random"])
        is_minimum_alone = self.min_cluster_size is not None and self.max_cluster_size is None
        if self._is_joint():
            check_joint(self)
        elif is_minimum_alone and np.ndim(self.min_cluster_size) == 0:
            raise ValueError(
                f"min_cluster_size={shown(self.min_cluster_size)} is only used for more than two "
                "clusters with multiway='joint'. Leave it out. For two clusters, balance limits "
                "the sizes."
            )
        elif self._value_of("threshold") == "adaptive":
            self._check_bounded()

    def _half_width(self) -> float:
        return float(self._value_of("balance"))

    def _is_relative(self) -> bool:
        return self.balance_unit == "margin" and self.mode != "paper"

    def _check_bounded(self) -> None:
        """Raise an error if rho is known to grow without limit at this C."""
        b = self._half_width()
        if self._is_relative() and b >= 1.0:
            raise ValueError(
                f"balance={b:g} allows all scores to be beyond the margin on one side. "
                "Use a balance below 1, leave it out, or use balance_unit='score'."
            )
        smallest, C = 1.0 / (1.0 - b) if self._is_relative() else 1.0, self._value_of("C")
        if smallest > C:
            raise ValueError(
                f"C={C:g} is too small. With the adaptive threshold the margin grows without "
                f"limit below C={smallest:.4g}. Raise C, or use threshold='fixed'."
            )

    def _path(self, first: float, end: float) -> list[float]:
        """Return the values of C to solve for before the last, ascending."""
        if not isinstance(self.anneal, str):
            return sorted(float(C) for C in self.anneal)
        path = [first]
        while path[-1] * ANNEALING_STEP < end:
            path.append(path[-1] * ANNEALING_STEP)
        return path

    def _binary_path(self) -> list[float]:
        # With the fixed threshold C does not determine the share of margin errors.
        is_adaptive = self._value_of("threshold") == "adaptive"
        return self._path(SCREENING_C, self._value_of("C") if is_adaptive else SCREENING_C)

    def _ways(self, path: Callable[[float], list[float]]) -> list[Way]:
        """Return values of C with their paths; the first one with a margin is used.

        At the first values of a path all starts lead to the same labels. A guided fit should stay
        near its start, and takes a path only if the start has no margin at C.
        """
        C = float(self._value_of("C"))
        usual = Way(C, path(C))
        if self._guide is None or not isinstance(self.anneal, str):
            return [usual]
        first = None if self._origin is None else self._origin.C
        own = [] if first is None else [Way(first, [])]
        return [*own, Way(C, []), usual]

    def _max_steps(self) -> int:
        return int(self._value_of("max_iter"))

    def _unit(self) -> float:
        """Return the factor of the loss at C = 1, the smallest at which rho is bounded."""
        return 1.0

    def _n_starts(self) -> int:
        return 1  # starts are compared inside a run

    # ------------------------------------------------------------------ fit

    def _problem(self, X: Any, weights: NDArray | None) -> MarginInputs:
        return MarginInputs(self._feature_space(X, weights), weights)

    def _margin_problem(
        self, space: FeatureSpace, threshold: Any = None, loss: Loss | None = None
    ) -> MarginProblem:
        return MarginProblem(
            space,
            self._loss(space) if loss is None else loss,
            tau=self._half_width(),
            threshold=threshold or self._value_of("threshold"),
            balance="relative" if self._is_relative() else "absolute",
            guide=self._guide,
        )

    def _run(self, inputs: MarginInputs, seed: int) -> MarginResult:
        try:
            if self._is_joint():
                return self._solve_jointly(inputs, seed)
            return self._solve(inputs, seed)
        except NotAGramMatrixError as error:
            raise not_a_kernel(getattr(self, "kernel", "linear")) from error

    def _solve_jointly(self, inputs: MarginInputs, seed: int) -> MarginResult:
        space, weights, k = inputs.space, inputs.weights, self.n_clusters
        if isinstance(self.init, str):
            labels = joint_start(space, weights, k, seed, self.n_init)
        else:
            labels = given_start("init", self.init, space.full(0.0), k)
        size = self.min_cluster_size
        settings: dict[str, Any] = {
            "tol": self.tol,
            "max_iter": self._max_steps(),
            "seed": seed,
            "guide": self._guide,
        }
        if np.ndim(size) > 0:
            size = None  # the guide holds limits per cluster

        def descend(way: Way) -> MarginResult:
            return cluster_jointly(space, weights, labels, k, size, **way._asdict(), **settings)

        *first, last = self._ways(lambda C: self._path(FIRST_JOINT_C, C))
        for way in first:
            with suppress(ValueError):
                result = descend(way)
                if result.status is not Status.DEGENERATE:
                    return result
        return descend(last)

    def _solve(self, inputs: MarginInputs, seed: int) -> MarginResult:
        labels, is_unequal = self._start(inputs, seed)
        if is_unequal:
            inputs.balance = shares_of_sides(labels, inputs.weights)
            weights = equal_weights(labels, inputs.weights, inputs.balance)
            inputs.space = self._reweighted(inputs.space, weights)
        space = inputs.space
        problem = self._margin_problem(space)
        if self.mode == "paper":
            result = self._paper(problem, labels)
        else:
            labels = self._hinge_labels(space, problem, labels)
            result = self._descend(problem, labels, seed)
        if result.labels.size:
            space.prefetch(
                lambda: (np.ptp(result.labels), cluster_sizes(result.labels, inputs.weights, 2))
            )
        return self._checked(result, problem)

    def _renumbered(self, inputs: MarginInputs, result: MarginResult, order: NDArray) -> Any:
        if order[0] == 1:
            inputs.balance = inputs.balance[::-1]
        return result.renumbered(order)

    def _reweighted(self, space: FeatureSpace, weights: Any) -> FeatureSpace:
        return space.reweighted(weights)

    def _hinge_labels(
        self, space: FeatureSpace, problem: MarginProblem, labels: NDArray
    ) -> NDArray:
        """Return the labels at the first C of the path, with the hinge and adaptive threshold.

        With the fixed threshold C has units. For other losses the smallest C corresponds to
        several times that of the hinge, at which more starts end in poor local minima.
        """
        path = self._binary_path()
        is_hinge = problem.threshold == "adaptive" and isinstance(problem.loss, HingeLoss)
        if self._guide is not None or not path or is_hinge:
            return labels
        found = maximise_margin(
            self._margin_problem(space, "adaptive", HingeLoss(space.shares)),
            labels,
            C=path[0],
            tol=self.tol,
            max_iter=self._max_steps(),
        )
        return found.labels if found.labels.size else labels

    def _descend(self, problem: MarginProblem, labels: NDArray, seed: int) -> MarginResult:
        unit, sample = self._unit(), first_sample(problem, labels, seed)
        is_fixed = problem.threshold == "fixed"
        for C, path in self._ways(lambda _: [] if is_fixed else self._binary_path()):
            result = maximise_margin(
                problem,
                labels,
                C=unit * C,
                path=[unit * value for value in path],
                tol=self.tol,
                max_iter=self._max_steps(),
                sample=sample,
            )
            if result.labels.size and result.status is not Status.DEGENERATE:
                break
        return result

    def _paper(self, problem: MarginProblem, labels: NDArray) -> MarginResult:
        return self._paper_loop(
            problem,
            labels,
            C=self._unit() * float(self._value_of("C")),
            cut_tol=self._value_of("cut_tol"),
            cccp_tol=self._value_of("cccp_tol"),
            max_iter=self._max_steps(),
            **self._paper_options(),
        )

    def _paper_options(self) -> dict[str, Any]:
        """Return further arguments of the paper's loop of a subclass."""
        return {}

    def _checked(self, result: MarginResult, problem: MarginProblem) -> MarginResult:
        C = self._value_of("C")
        if result.status is Status.UNBOUNDED:
            raise ValueError(
                f"at C={C:g} and balance={self._half_width():g} the margin grows without "
                "limit. Raise C, or lower balance."
            )
        if result.labels.size == 0 and result.status is Status.FAILED:
            raise ValueError(
                "the quadratic programme of the cuts cannot be solved in floating point at "
                f"C={C:g} for rows of this scale. Scale X, or lower C."
            )
        if result.labels.size == 0 or np.ptp(result.labels) == 0:
            absolute = problem.balance == "absolute" or problem.threshold == "fixed"
            has_other = problem.threshold == "fixed" and self.mode != "paper"
            remedy = "use threshold='adaptive'" if has_other else "raise C"
            if absolute and problem.tau > 0:
                raise ValueError(
                    f"at C={C:g} and balance={self._half_width():g} (in units of the scores) no "
                    f"hyperplane has rows on both sides. Lower balance, or {remedy}."
                )
            if problem.threshold == "fixed":
                raise ValueError(
                    f"at C={C:g} no hyperplane reaches the fixed margin of 1 for rows of this "
                    "scale. Raise C, scale X, or use threshold='adaptive'."
                )
            raise ValueError(ONE_SIDE)
        return result

    # ------------------------------------------------------------------ starts

    def _start(self, inputs: MarginInputs, seed: int) -> Start:
        """Return the start, and whether its sides may be unequal (see `StartSearch`)."""
        space = inputs.space
        search = StartSearch(
            space,
            inputs.weights,
            seed,
            tau=self._half_width(),
            is_relative=self._is_relative(),
            takes_sizes=self.balance is None and self.mode != "paper",
        )
        if not isinstance(self.init, str):
            labels = given_start("init", self.init, space.full(0.0), 2)
            if self._guide is not None:
                takes = None if self._origin is None else self._origin.takes_sizes
                is_unequal = are_unequal(labels, inputs.weights) if takes is None else takes
                return Start(labels, search.takes_sizes and is_unequal)
            return search.given(labels, keeps_sizes=getattr(self, "_keeps_sizes", False))
        if self.mode == "paper":
            require_in_memory(
                space.full(0.0),
                f"{type(self).__name__}(mode='paper')",
                "it starts from k-means or random labels, which need the rows in memory; give "
                "init, the labels to start from",
            )
            return Start(search.plain(self.init))
        # Default number of starts to compare.
        kinds = ["random"] * (4 if self.n_init is None else self.n_init)
        if self.init != "random":
            kinds[0] = "k-means"
        start = search.best(kinds[:1] if self.init == "k-means" else kinds)
        if start is None:
            raise ValueError(ONE_SIDE)
        return start

    # ------------------------------------------------------------------ fitted

    def _publish(self, inputs: MarginInputs, result: MarginResult) -> None:
        self._hyperplane = inputs.space.hyperplane(result.normal, result.rho, result.t)
        self.balance_ = inputs.balance

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, MarginResult):
            return super()._status_words(result)
        if result.status is Status.DEGENERATE:
            of = "fewer cuts" if self.mode == "paper" else "a smaller C"
            return (
                f"at C={self._value_of('C'):g} no hyperplane has a margin with its own labels, "
                f"because the clusters overlap too much. The clusters are those of {of}. Lower C"
            )
        if result.status is Status.CYCLE and self.mode == "paper":
            return (
                "the most violated cut was found again: with its approximation by basis vectors "
                f"it stays violated by {result.residuals['violation']:.1e} of the margin, above "
                "cut_tol. Raise n_basis or cut_tol"
            )
        if result.status in (Status.MAX_ITER, Status.FAILED):
            name, share = next(iter(result.residuals.items()))
            tol = "cut_tol" if self.mode == "paper" else "tol"
            return (
                f"the descent ended early after {result.n_iter} steps, with a {name} of "
                f"{share:.1e}. Raise max_iter or {tol}, or scale X"
            )
        return ""

    def _scores(self, X: Any) -> NDArray:
        return self._hyperplane(X)


# ------------------------------------------------------------------ guided fits


class GuidedMarginMixin(GuidedMixin):
    """A clusterer on the margin engine that takes labels of some rows, links and sizes."""

    C: Any
    gamma: Any
    mode: str
    n_clusters: Any
    result_: Any
    tree_: Any
    _guide: Guide | None
    _origin: Origin | None

    @property
    def _keeps_minimum(self) -> bool:
        """Whether the method itself handles a `min_cluster_size` that is a single number."""
        return self._is_joint()  # type: ignore[attr-defined]

    def _fit_guided(self, *args: Any) -> Any:
        if self.mode == "paper":
            raise ValueError(
                f"mode='paper' of {type(self).__name__} accepts no labels of rows, links or size "
                "limits. Use mode='default', or leave these out."
            )
        try:
            found = super()._fit_guided(*args)
        finally:
            self._forget_start()
        if hasattr(self, "tree_"):
            self.tree_.feature_names = getattr(self, "feature_names_in_", None)
        return found

    def _guided_params(self, free: Any, /) -> dict[str, Any]:
        params = super()._guided_params(free)  # type: ignore[misc]
        is_tree = isinstance(getattr(free, "result_", None), RecursiveResult)
        if is_tree and "multiway" in self.get_params(deep=False):  # type: ignore[attr-defined]
            params["multiway"] = "recursive"
        return params

    def _begin_at(self, start: NDArray, free: Any) -> None:
        if free is None:
            return
        takes_sizes = C = None
        if _is_same(free.labels_, start, int(self.n_clusters)):
            balance = getattr(free, "balance_", None)
            takes_sizes = None if balance is None else balance != HALVES
        else:
            is_adaptive = self._value_of("threshold") == "adaptive"  # type: ignore[attr-defined]
            # Default C of a fit from labels that spread from the given ones, if these have a
            # margin at it. At the usual default half of the rows are inside the margin, and the
            # fit would return to the clusters found without a guide.
            C = 10.0 if self.C is None and is_adaptive else None
        self._origin = Origin(free.init, takes_sizes, C)
        if self.n_clusters == 2 and isinstance(free.result_, RecursiveResult):
            # Use the kernel width of the first split if no width was given.
            splits, is_open = free.tree_.splits(), getattr(self, "_is_width_open", None)
            gamma = getattr(splits[0].model, "gamma_", None) if splits else None
            if is_open is not None and is_open() and gamma is not None:
                self.gamma = gamma

    def _forget_start(self) -> None:
        super()._forget_start()
        vars(self).pop("_origin", None)

    def _fit_once(self, X: Any, weights: Any) -> None:
        guide = self._guide
        if guide is None or guide.k == 2 or not self._is_recursive():  # type: ignore[attr-defined]
            super()._fit_once(X, weights)  # type: ignore[misc]
            return
        init = "auto" if self._origin is None else self._origin.init
        grown = grow_guided_tree(self, X, weights, self.init, guide, init=init)
        self.tree_, result = grown
        self._set_result(result)  # type: ignore[attr-defined]

    def _placed_rows(self, X: Any, guide: Guide) -> Placement:
        if has_limits(guide) or not isinstance(self.result_, MarginResult):
            return super()._placed_rows(X, guide)
        # The certificate holds for the labels of the descent.
        labels = self.result_.labels
        of_pairs = labels[guide.apart]
        broken = guide.apart[of_pairs[:, 0] == of_pairs[:, 1]]
        return Placement(labels, np.zeros(guide.k), broken)


def _is_same(labels: NDArray, others: NDArray, k: int) -> bool:
    """Return whether two labellings are nearly the same up to the numbering of clusters."""
    if labels.max() >= k or others.max() >= k:
        return False
    # A start counts as the clusters found without a guide if it differs from them in at most this
    # share of the rows.
    return bool(np.mean(aligned_labels(labels, others, k) != others) <= 0.02)
