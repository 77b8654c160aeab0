"""What the estimators on the margin engine share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from volmar.base import Clusterer, Status
from volmar.base.blocks import given_start, require_in_memory
from volmar.base.validation import (
    check_choice,
    check_count,
    check_number,
)
from volmar.base.warn import warn_user
from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.losses import HingeLoss, Loss
from volmar.margin.engine.nested import relabelling_outside
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.engine.starts import best_start, k_means_start, principal_start, random_start
from volmar.margin.engine.unequal_sizes import (
    BALANCE,
    HALVES,
    SCREENING_C,
    SCREENING_TOL,
    are_unequal,
    equal_weights,
    shares_of_sides,
    unequal_start,
)
from volmar.margin.feature_space.views import View
from volmar.rows import cluster_sizes, drawn_rows
from volmar.solvers.cutting_plane_certificate import NotAGramMatrixError

# Starts to compare.
N_INIT = 4
# Ratio of successive prices on the way to C.
ANNEALING_STEP = 2.5
# Rows on which they are.
SAMPLE = 2000
ONE_SIDE = (
    "no hyperplane found has rows on both sides: check that the rows of X differ, or start from "
    "other labels (init)."
)


@dataclass
class Prepared:
    """What a run needs.

    Attributes
    ----------
    view : View
        The rows. A run that takes the sizes of its start leaves them with the weights of
        `equal_weights` here, which the fitted hyperplane belongs to.
    weights : ndarray of shape (n,), RowVector or None
        Sample weights.
    balance : tuple of float
        Shares of the two sides that count as balanced.
    """

    view: Any
    weights: NDArray | None
    balance: tuple[float, float] = HALVES


class Start(NamedTuple):
    """Labels to start from, and whether sides of their own sizes count as balanced."""

    labels: Any
    is_unequal: bool = False


class Part(NamedTuple):
    """Rows on which starts are compared, with their weights and numbers (None for all rows)."""

    view: View
    weights: NDArray | None
    chosen: NDArray | None = None


class MarginClusterer(Clusterer):
    """Parameters, starts and descent of a clusterer on the margin engine.

    A subclass says how it sees rows (`_view`) and what errors cost (`_loss`).
    """

    C: float
    threshold: str
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
    _hyperplane: Any

    # ------------------------------------------------------------------ for the subclass

    @abstractmethod
    def _view(self, X: Any, weights: NDArray | None) -> View:
        """Return how the rows are seen."""

    @abstractmethod
    def _loss(self, view: View) -> Loss:
        """Return what margin errors cost."""

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        check_choice("mode", self.mode, ["default", "paper"])
        check_choice("threshold", self.threshold, ["adaptive", "fixed"])
        check_choice("balance_unit", self.balance_unit, ["margin", "score"])
        check_number("C", self.C, low=0.0, open_low=True)
        if self.balance is not None:
            check_number("balance", self.balance, low=0.0)
        if self.n_init is not None:
            check_count("n_init", self.n_init)
        if self.max_iter is not None:
            check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, low=0.0, high=0.5, open_low=True)
        for name in ("cut_tol", "cccp_tol"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, low=0.0, open_low=True)
                if self.mode != "paper":
                    raise ValueError(
                        f"{name}={value:g} is a stopping test of the papers' loops. Use it with "
                        "mode='paper', or tol otherwise."
                    )
        if isinstance(self.anneal, str):
            check_choice("anneal", self.anneal, ["auto"])
        elif np.ndim(self.anneal) != 1:
            raise TypeError(
                f"anneal must be 'auto' or a tuple of prices below C, got {self.anneal!r}."
            )
        else:
            for price in self.anneal:
                check_number("anneal", price, low=1.0)
                if self.threshold == "adaptive" and price >= self.C:
                    raise ValueError(
                        f"anneal has the price {price:g}, which is not below C={self.C:g}. Leave "
                        "it out."
                    )
        if isinstance(self.init, str):
            check_choice("init", self.init, ["auto", "k-means", "random"])
        if self.threshold == "adaptive":
            self._check_bounded()

    def _half_width(self) -> float:
        """Return b, how far from 0 the mean score may be."""
        return BALANCE if self.balance is None else float(self.balance)

    def _takes_sizes(self) -> bool:
        """Whether sides of the start's own sizes may count as balanced."""
        return self.balance is None and self.mode != "paper"

    def _check_bounded(self) -> None:
        """Refuse prices at which rho grows without limit, where that can be told beforehand."""
        relative = self.balance_unit == "margin" and self.mode != "paper"
        b = self._half_width()
        if relative and b >= 1.0:
            raise ValueError(
                f"balance={b:g} allows all scores to be beyond the margin on one side. "
                "Use a balance below 1, leave it out, or use balance_unit='score'."
            )
        least = 1.0 / (1.0 - b) if relative else 1.0
        if least > self.C:
            raise ValueError(
                f"C={self.C:g} is too small: with the adaptive threshold the margin grows without "
                f"limit below C={least:.4g}. Raise C, or use threshold='fixed'."
            )

    def _prices(self) -> list[float]:
        """Return the prices to pass through before C, ascending."""
        if not isinstance(self.anneal, str):
            return sorted(float(price) for price in self.anneal)
        # Of the fixed threshold C says nothing about the share of margin errors.
        end = self.C if self.threshold == "adaptive" else 1.5 * SCREENING_C
        prices = [SCREENING_C]
        while prices[-1] * ANNEALING_STEP < end:
            prices.append(prices[-1] * ANNEALING_STEP)
        return prices

    def _most_steps(self) -> int:
        if self.max_iter is None:
            return 100 if self.mode == "paper" else 1000
        return self.max_iter

    def _unit(self) -> float:
        """Return the price of the loss at C = 1, the least at which rho is bounded."""
        return 1.0

    def _n_starts(self) -> int:
        return 1  # starts are compared inside a run

    # ------------------------------------------------------------------ fit

    def _problem(self, X: Any, weights: NDArray | None) -> Prepared:
        return Prepared(self._view(X, weights), weights)

    def _margin_problem(
        self, view: View, threshold: Any = None, loss: Loss | None = None
    ) -> MarginProblem:
        threshold = self.threshold if threshold is None else threshold
        relative = self.balance_unit == "margin" and self.mode != "paper"
        return MarginProblem(
            view.source,
            self._loss(view) if loss is None else loss,
            tau=self._half_width(),
            threshold=threshold,
            balance="relative" if relative else "absolute",
        )

    def _run(self, prepared: Prepared, seed: int) -> MarginResult:
        try:
            return self._solve(prepared, seed)
        except NotAGramMatrixError as error:
            kernel = getattr(self, "kernel", "linear")
            raise ValueError(
                f"kernel={kernel!r} is not positive semi-definite on these rows, so that there is "
                "no margin. Use another, 'rbf' say, or other parameters of it."
            ) from error

    def _solve(self, prepared: Prepared, seed: int) -> MarginResult:
        labels, is_unequal = self._start(prepared, seed)
        if is_unequal:
            prepared.balance = shares_of_sides(labels, prepared.weights)
            weights = equal_weights(labels, prepared.weights, prepared.balance)
            prepared.view = self._reweighted(prepared.view, weights)
        view = prepared.view
        problem = self._margin_problem(view)
        if self.mode == "paper":
            result = self._paper(problem, labels)
        else:
            labels = self._hinge_labels(view, problem, labels)
            result = self._descend(problem, labels, float(self.C))
        if result.labels.size:
            view.source.prefetch(
                lambda: (np.ptp(result.labels), cluster_sizes(result.labels, prepared.weights, 2))
            )
        return self._checked(result, problem)

    def _renumbered(self, prepared: Prepared, result: MarginResult, order: NDArray) -> Any:
        if order[0] == 1:
            prepared.balance = prepared.balance[::-1]
        return result.renumbered(order)

    def _reweighted(self, view: View, weights: Any) -> View:
        """Return the rows with weights that give both sides of the start the same."""
        return view.reweighted(weights)

    def _hinge_labels(self, view: View, problem: MarginProblem, labels: NDArray) -> NDArray:
        """Return labels after the first price of the path with the hinge and adaptive threshold.

        The fixed threshold has no prices without units, and the least prices of other losses are
        those of the hinge several times over, where more starts stick.
        """
        prices = self._prices()
        if not prices or (problem.threshold == "adaptive" and isinstance(problem.loss, HingeLoss)):
            return labels
        found = maximise_margin(
            self._margin_problem(view, "adaptive", HingeLoss(view.source.shares)),
            labels,
            C=prices[0],
            tol=self.tol,
            max_iter=self._most_steps(),
        )
        return found.labels if found.labels.size else labels

    def _descend(self, problem: MarginProblem, labels: NDArray, C: float) -> MarginResult:
        unit = self._unit()
        path = [unit * price for price in self._prices() if price < C]
        if problem.threshold == "fixed":
            path = []
        return maximise_margin(
            problem, labels, C=unit * C, path=path, tol=self.tol, max_iter=self._most_steps()
        )

    def _paper(self, problem: MarginProblem, labels: NDArray) -> MarginResult:
        return relabelling_outside(
            problem,
            labels,
            C=self._unit() * float(self.C),
            cut_tol=0.01 if self.cut_tol is None else self.cut_tol,
            cccp_tol=0.1 if self.cccp_tol is None else self.cccp_tol,
            max_iter=self._most_steps(),
        )

    def _checked(self, result: MarginResult, problem: MarginProblem) -> MarginResult:
        if result.status is Status.UNBOUNDED:
            raise ValueError(
                f"at C={self.C:g} and balance={self._half_width():g} the margin grows without "
                "limit. Raise C, or lower balance."
            )
        if result.labels.size == 0 and result.status is Status.FAILED:
            raise ValueError(
                "the quadratic programme of the cuts cannot be solved in floating point at "
                f"C={self.C:g} for rows of this scale. Scale X, or lower C."
            )
        if result.labels.size == 0 or np.ptp(result.labels) == 0:
            absolute = problem.balance == "absolute" or problem.threshold == "fixed"
            remedy = "use threshold='adaptive'" if problem.threshold == "fixed" else "raise C"
            if absolute and problem.tau > 0:
                raise ValueError(
                    f"at C={self.C:g} and balance={self._half_width():g}, which is in the units "
                    "of the scores, no hyperplane has rows on both sides. Lower balance, or "
                    f"{remedy}."
                )
            if problem.threshold == "fixed":
                raise ValueError(
                    f"at C={self.C:g} the fixed margin of 1 is out of reach for rows of this "
                    "scale. Raise C, scale X, or use threshold='adaptive'."
                )
            raise ValueError(ONE_SIDE)
        return result

    # ------------------------------------------------------------------ starts

    def _start(self, prepared: Prepared, seed: int) -> Start:
        """Return where to start: the best of several, and whether its sides may be unequal.

        Starts are compared at a small C with halves, where J compares them. Those that know of
        sizes, such as k-means, are tried with their own, too (see `unequal_start`).
        """
        view = prepared.view
        if not isinstance(self.init, str):
            return self._given_start(prepared, seed)
        if self.mode == "paper" and self.init == "auto":
            require_in_memory(
                view.start_rows(),
                f"{type(self).__name__}(mode='paper')",
                "it starts from k-means, which takes rows in memory; give init, the labels to "
                "start from",
            )
            return Start(self._candidates(view, prepared.weights, seed, ["k-means"])[0])
        part = self._part(view, prepared.weights, seed)
        kinds = ["random"] * (N_INIT if self.n_init is None else self.n_init)
        if self.init != "random":
            kinds[0] = "k-means"
        if self.init == "k-means":
            kinds = ["k-means"]
        candidates = self._candidates(part.view, part.weights, seed, kinds)
        is_alone = len(candidates) == 1 and part.view is view
        if is_alone and not self._takes_sizes():
            return Start(candidates[0])
        best, of = self._screened(part.view, candidates), part.view
        unequal = None
        if self._takes_sizes():
            informed = [c for c, kind in zip(candidates, kinds, strict=True) if kind != "random"]
            if not informed and best.normal is not None:
                informed = [best.labels]
            for labels in informed:
                found = unequal_start(part.view, labels, part.weights, best)
                if found is not None:
                    unequal, (best, of) = found, found
        if best.normal is None and part.chosen is not None:
            raise ValueError(ONE_SIDE)
        if best.normal is None:
            return Start(self._candidates(view, prepared.weights, seed, kinds[:1])[0])
        if is_alone and unequal is None:
            return Start(candidates[0])
        labels = best.labels
        if part.view is not view:
            labels = (of.hyperplane(best)(view.start_rows()) > 0).astype(np.int64)
        return Start(labels, unequal is not None)

    def _given_start(self, prepared: Prepared, seed: int) -> Start:
        """Return the labels that the user gave."""
        view = prepared.view
        labels = given_start("init", self.init, view.source.full(0.0), 2)
        if not self._takes_sizes():
            return Start(labels)
        if getattr(self, "_keeps_sizes", False):
            return Start(labels, are_unequal(labels, prepared.weights))
        part = self._part(view, prepared.weights, seed)
        few = labels if part.chosen is None else labels[part.chosen]
        even = self._screened(part.view, [few])
        found = unequal_start(part.view, few, part.weights, even)
        return Start(labels, found is not None)

    def _screened(self, view: View, candidates: list[NDArray]) -> MarginResult:
        """Return the best of several starts with halves."""
        return best_start(
            self._margin_problem(view, "adaptive", HingeLoss(view.source.shares)),
            candidates,
            C=self._screening_price(),
            tol=SCREENING_TOL,
        )

    def _part(self, view: View, weights: NDArray | None, seed: int) -> Part:
        """Return the rows on which starts are compared: not too many, and not the fit's own."""
        chosen = drawn_rows(view.source.n_rows, weights, SAMPLE, np.random.default_rng(seed))
        part = view.sampled(chosen)
        if part is None or part is view:
            return Part(view, weights)
        return Part(part, None if weights is None else weights[chosen], chosen)

    def _screening_price(self) -> float:
        price = SCREENING_C
        if self.balance_unit == "margin" and self.mode != "paper":
            price /= 1.0 - min(self._half_width(), 0.99)
        return price

    def _candidates(
        self, view: View, weights: NDArray | None, seed: int, kinds: list[str]
    ) -> list[NDArray]:
        rng = np.random.default_rng(seed)
        labels = []
        for kind in kinds:
            if kind == "random":
                labels.append(random_start(view.source, rng))
            elif view.start_rows() is None:
                labels.append(principal_start(view.source, rng))
            else:
                labels.append(k_means_start(view.start_rows(), weights, seed))
        return labels

    # ------------------------------------------------------------------ fitted

    def _publish(self, prepared: Prepared, result: MarginResult) -> None:
        self._hyperplane = prepared.view.hyperplane(result)
        self.balance_ = prepared.balance
        if result.status is Status.DEGENERATE:
            warn_user(
                f"At C={self.C:g} no hyperplane has a margin with its own labels: the rows are "
                "too mixed for it. The clusters are those of a smaller C. Lower C.",
                ConvergenceWarning,
            )
        elif result.status in (Status.MAX_ITER, Status.FAILED):
            name, share = next(iter(result.residuals.items()))
            warn_user(
                f"The descent ended early after {result.n_iter} steps ({result.status.value}), "
                f"with a {name} of {share:.1e}. Raise max_iter or tol, or scale X.",
                ConvergenceWarning,
            )

    def _scores(self, X: Any) -> NDArray:
        return self._hyperplane(X)
