"""Choice of the width of a Gaussian kernel: the widest that finds the clusters of a graph."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_random_state
from volmar._clones import silent_clone
from volmar._warn import UserMessage, collecting, warn_user
from volmar.base.callbacks import fit_steps
from volmar.base.kernel import used_gamma
from volmar.base.outcome import status_message
from volmar.graphs.copies import distinct_rows
from volmar.graphs.density_scaling import CutGraph
from volmar.rows import drawn_rows, take_rows

# Maximum number of rows on which widths are compared, and minimum number of distinct rows.
SAMPLE = 1000
MIN_DISTINCT = 20
# Exponents of the density in the graphs whose clusters are used as starts.
EXPONENTS = (1.0, 2.0)
# Cuts within this factor of the lowest count as equal. The edges of a tenth of a row per cluster
# are added to every cut, so that cuts below that count as equal, too.
TIE = 1.5
FLOOR = 0.1
# Minimum size of the smallest cluster, as a share of n / n_clusters; smaller ones are outliers.
# The second minimum is for clusters that the widest kernel finds only if it starts from them.
# With many columns kernels are wide, and small tight groups inside large ones are common.
SMALLEST, SMALLEST_IN_WIDE = 0.04, 0.5
# Cut that halves the worth of a split when splits are ranked.
CUT_OF_A_SPLIT = 0.01
# Maximum number of times that the widest kernel is halved.
MAX_HALVINGS = 4


class Fitted(NamedTuple):
    """A fitted clusterer and the warnings of its fit."""

    model: Any
    messages: list[UserMessage]


class Trial(NamedTuple):
    """A fit to the sample."""

    width: float
    start: NDArray | None  # None for the method's default start
    cut: float
    fitted: Fitted


def first_good(
    widths: list[float],
    starts: list[NDArray],
    fit: Callable[[float, NDArray | None], Fitted | None],
    cut: Callable[[NDArray, float], float],
    *,
    lowest: float,
) -> Trial | None:
    """Return the trial with the widest kernel whose clusters have about the lowest known cut.

    Widths are tried from the widest to the narrowest, each from all starts. The widest is also
    tried from the method's default start (None). The search ends at the first trial whose cut is
    at most `TIE` times `lowest`, the lowest cut known before. If there is none, the first trial
    within a factor of `TIE` of the lowest cut of all trials is returned. `fit` returns None if the
    method finds no clusters. `cut` takes labels and the minimum size of a cluster, as a share of
    n / n_clusters, and is infinite for labels with smaller clusters.
    """
    trials: list[Trial] = []
    for width in widths:
        own: list[NDArray | None] = [None] if width == widths[0] or not starts else []
        for start in [*own, *starts]:
            fitted = fit(width, start)
            if fitted is None:
                continue
            is_led = start is not None and width == widths[0]
            value = cut(fitted.model.labels_, SMALLEST_IN_WIDE if is_led else SMALLEST)
            trials.append(Trial(width, start, value, fitted))
            if trials[-1].cut <= TIE * lowest:
                return trials[-1]
    if not trials:
        return None
    lowest = min(trial.cut for trial in trials)
    return next(trial for trial in trials if trial.cut <= TIE * lowest)


class GammaWidth:
    """Support for gamma="auto", the choice of the width of a Gaussian kernel.

    The mixin comes before `KernelMixin` and `Clusterer` in the bases, because it calls their
    `_fit_once` and `_resolved_gamma`. The estimator has the parameters `gamma` and `init`, which
    may hold labels. For other kernels, for mode="paper" and if labels are given, widths are not
    compared, and "auto" is the same as "scale".
    """

    #: Whether clusters may keep the sizes of the labels in `init`, in methods that otherwise
    #: enforce more even sizes. Set for labels that were chosen by a comparison of widths.
    _keeps_sizes: bool = False
    _gamma_words: ClassVar[str] = "'auto', 'scale', 'rms'"

    cut_: float
    _cut: float
    gamma: Any
    gamma_: Any
    init: Any
    kernel: Any
    n_clusters: Any
    random_state: Any
    _previous: Any
    _hand_on: Any

    def _is_width_open(self) -> bool:
        return isinstance(self.gamma, str) and self.gamma.strip() == "auto"

    def _chooses_width(self) -> bool:
        """Return whether widths are compared.

        They are not if start labels are given, because a narrow kernel would keep any labels.
        """
        is_paper = getattr(self, "mode", "default") == "paper"
        is_gaussian = isinstance(self.kernel, str) and self.kernel == "rbf"
        is_free = isinstance(self.init, str) and not is_paper
        return self._is_width_open() and is_gaussian and is_free

    def _gamma_rule(self) -> Any:
        return "scale" if self._is_width_open() else self.gamma

    def _resolved_gamma(self, X: Any, weights: Any) -> float | None:
        gamma = super()._resolved_gamma(X, weights)  # type: ignore[misc]
        self.gamma_ = used_gamma(self.kernel, gamma, X)
        return gamma

    def _at_width(self, gamma: float, widest: float) -> dict[str, Any]:  # noqa: ARG002
        return {"gamma": gamma}

    def _adopts_trial(self, n: int) -> bool:  # noqa: ARG002 -- for subclasses
        """Return whether a trial on all n rows is used as the fit.

        A subclass returns False if the fit must agree with that of a dask collection.
        """
        return True

    def _fit_once(self, X: Any, weights: Any) -> None:
        self._cut, self.gamma_ = 0.0, None
        if not self._chooses_width():
            vars(self).update(self._previous_width(X, weights))
            super()._fit_once(X, weights)  # type: ignore[misc]
            return
        widest = float(self._resolved_gamma(X, weights))  # type: ignore[arg-type]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        chosen = drawn_rows(X.shape[0], weights, SAMPLE, np.random.default_rng(seed))
        is_all = chosen.size == X.shape[0]
        few = None if weights is None else np.asarray(weights[chosen])
        rows = take_rows(X, chosen)
        best = self._best_trial(rows, few, widest, seed)
        if best is not None:
            self._cut = best.cut
            if np.isfinite(best.cut):  # infinite if clusters are too small at all widths
                self.cut_ = best.cut
        if best is not None and rows is X and self._adopts_trial(X.shape[0]):
            self._adopt(best.fitted, X)
            return
        params = self._at_width(widest, widest)
        if best is not None:
            params = self._at_width(best.width, widest)
            params["_keeps_sizes"] = best.fitted.model._keeps_sizes
            if not is_all:
                params["init"] = _labels_of(best.fitted.model, X)
            elif best.start is not None:
                params["init"] = best.start
        vars(self).update(params)
        super()._fit_once(X, weights)  # type: ignore[misc]

    def _guided_params(self, free: Any, /) -> dict[str, Any]:
        gamma = getattr(free, "gamma_", None)
        return {"gamma": gamma} if self._chooses_width() and gamma is not None else {}

    def _previous_width(self, X: Any, weights: Any) -> dict[str, Any]:
        """Return parameters with the width of the model to start from, if it has one."""
        model = None if self._previous is None else self._previous.model
        gamma, kernel = getattr(model, "gamma_", None), getattr(model, "kernel", "rbf")
        is_paper = getattr(self, "mode", "default") == "paper"
        if gamma is None or kernel != self.kernel or not self._is_width_open() or is_paper:
            return {}
        widest = float(self._resolved_gamma(X, weights))  # type: ignore[arg-type]
        # Halving the width multiplies gamma by four.
        return {**self._at_width(gamma, widest), "_keeps_sizes": gamma > 2.0 * widest}

    def _split_worth(self, model: Any, probability: float, /) -> float:
        """Return the value by which splits of different parts are ranked; it falls with the cut.

        A narrow kernel separates any labels, so its scores alone are not comparable between parts.
        """
        worth = super()._split_worth(model, probability)  # type: ignore[misc]
        return worth / (1.0 + getattr(model, "_cut", 0.0) / CUT_OF_A_SPLIT)

    def _adopt(self, fitted: Fitted, X: Any) -> None:
        for _ in fit_steps(self, X, 1):
            self._take_over(fitted.model)  # type: ignore[attr-defined]
        repeated = status_message(fitted.model)  # this fit gives the same warning itself
        for message in fitted.messages:
            if message.text != repeated:
                warn_user(*message)

    def _best_trial(
        self, rows: Any, weights: NDArray | None, widest: float, seed: int
    ) -> Trial | None:
        """Return the trial on the chosen rows that `first_good` selects, or None."""
        k = self.n_clusters
        distinct, group = distinct_rows(rows)
        if distinct.shape[0] < max(MIN_DISTINCT, 5 * k):
            return None
        graph = CutGraph(distinct, group, weights)

        widths = _widths(widest, graph.scale)
        floor = FLOOR * k / graph.n_distinct

        def cut(labels: NDArray, smallest: float) -> float:
            shares = graph.shares(labels)
            if shares.size < k or shares.min() < smallest / k:
                return np.inf
            return graph.cut(labels) + floor

        found = [graph.labels(k, b) for b in EXPONENTS]
        if np.array_equal(found[0], found[1]):
            found.pop()
        found = [labels for labels in found if np.isfinite(cut(labels, SMALLEST))]
        lowest = min((cut(labels, SMALLEST) for labels in found), default=0.0)
        starts = found if self.init == "auto" else []

        # With the same seed, a fit from the default start equals a fit with this gamma given.
        own_seed = self.random_state if isinstance(self.random_state, Integral) else seed

        def fit(width: float, start: NDArray | None) -> Fitted | None:
            model = silent_clone(self).set_params(
                **self._at_width(width, widest),
                init=self.init if start is None else start,
                random_state=own_seed,
            )
            self._hand_on(model)._keeps_sizes = width != widest
            try:
                with collecting() as messages:
                    model.fit(rows, sample_weight=weights)
            except ValueError:  # no clusters at this width, or from this start
                return None
            return Fitted(model, messages)

        return first_good(widths, starts, fit, cut, lowest=lowest)


def _widths(widest: float, neighborhood: float) -> list[float]:
    """Return gamma of the widest kernel, and of kernels halved down to half a neighbourhood.

    A narrower kernel fits any labels, and connects new rows to none of them. The width is not
    halved at all if the first half is narrower than a neighbourhood, as often with many columns.
    """
    widths = [widest]
    narrowest = 0.5 * neighborhood
    if 0.5 * _sigma(widest) >= neighborhood > 0.0:
        while len(widths) <= MAX_HALVINGS and 0.5 * _sigma(widths[-1]) >= narrowest:
            widths.append(4.0 * widths[-1])
    return widths


def _sigma(gamma: float) -> float:
    return float(np.sqrt(0.5 / gamma))


def _labels_of(model: Any, X: Any) -> Any:
    scores = model._scores(X)
    labels = scores > 0 if scores.ndim == 1 else np.argmax(scores, axis=1)
    return labels.astype(np.int64)
