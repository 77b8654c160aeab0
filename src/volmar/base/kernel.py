"""Shared code of estimators with a `kernel`: parameters, kernel matrix, scores of new rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._checks import check_count, check_number, check_random_state, check_symmetric, shown
from volmar._clones import silent_clone
from volmar._warn import UserMessage, collecting, warn_user
from volmar.base.outcome import fit_steps, status_message
from volmar.graphs.copies import distinct_rows
from volmar.graphs.density_scaling import CutGraph
from volmar.rows.anywhere import as_rows, counted_rows, drawn_rows, scale_gamma, take_rows
from volmar.rows.kernel import Kernel, shifted

# Maximum number of rows for which feature maps are exact, in O(n^3) time.
EXACT_KERNEL_UP_TO = 1000
# Number of landmarks for more rows, or if landmarks are requested without a number.
N_LANDMARKS = 100


@dataclass(frozen=True)
class KernelExpansion:
    """Functions f(x) = sum_j c_j k(x_j, x) of the training rows x_j.

    `rows` are the x_j minus `offset`, which is also subtracted from new rows. `rows` is None if
    kernel values are given instead of rows.
    """

    kernel: Kernel
    rows: Any
    offset: NDArray | None

    @property
    def gamma(self) -> float | None:
        """Coefficient of the kernel; None if it has none or if kernel values are given."""
        return None if self.rows is None else self.kernel.gamma(self.rows.shape[1])

    def __call__(self, X: Any, coefficients: NDArray) -> NDArray:
        """Evaluate functions f, one per column of coefficients, at new rows or kernel values."""
        if self.rows is None:
            return np.asarray(X @ coefficients)
        return self.kernel.sums(X, self.rows, coefficients, self.offset)


class KernelMixin:
    """The parameters `kernel`, `gamma`, `degree`, `coef0` and `kernel_params` of an estimator.

    `_check_kernel` checks the parameters, `_kernel_arguments` returns the arguments of a feature
    map, and `_kernel_matrix` returns the matrix and the expansion that scores new rows. The
    estimator declares the five parameters in its own __init__, and checks memory before it
    requests the matrix. The mixin comes first in the bases:
    ``class Method(KernelMixin, Clusterer)``.
    """

    #: Kernels for which a shift of all rows does not change the clusters. Rows are then centred
    #: first, because a large offset would cost digits.
    _kernels_of_differences: ClassVar[tuple[str, ...]] = ("rbf", "laplacian")

    #: Valid rules for gamma, for error messages.
    _gamma_words: ClassVar[str] = "'scale', 'rms'"

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    kernel_params: Any
    random_state: Any

    def _is_linear(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "linear"

    def _check_kernel(self) -> None:
        """Raise a clear error for kernel parameters that are invalid for any data."""
        self._check_gamma()
        if self.kernel_params is not None and not isinstance(self.kernel_params, Mapping):
            raise TypeError(
                "kernel_params must be a dict of arguments for a callable kernel, or None, got "
                f"{shown(self.kernel_params)}."
            )
        if isinstance(self.kernel, type) or not (
            isinstance(self.kernel, str) or callable(self.kernel)
        ):
            raise TypeError(
                "kernel must be a name or a callable that takes two matrices, got "
                f"{shown(self.kernel)}."
            )
        check_number("degree", self.degree, low=1.0)
        check_number("coef0", self.coef0)

    def _gamma_rule(self) -> Any:
        """Return gamma, or the rule used for "auto" in methods that support it."""
        return self.gamma

    def _check_gamma(self) -> None:
        rule = self._gamma_rule()
        if isinstance(rule, str):
            _parse_gamma(rule, self._gamma_words)
        elif rule is not None:
            check_number("gamma", rule, low=0.0, open_low=True)

    def _kernel_arguments(self, X: Any, weights: Any) -> dict[str, Any]:
        """Return the arguments of `Kernel` and of feature maps; gamma depends on `weights`."""
        return {
            "kernel": self.kernel,
            "gamma": self._resolved_gamma(X, weights),
            "degree": self.degree,
            "coef0": self.coef0,
            "kernel_params": self.kernel_params,
        }

    def _feature_map(self, X: Any, weights: Any, n_components: int | None = None) -> Any:
        """Return a fitted map to features whose inner products are the kernel values.

        X holds the rows, or a precomputed kernel matrix. Rows of weight 0 are left out; apart from
        that, weights affect only gamma. `n_components` is the number of landmarks, or of leading
        components of a precomputed kernel. If None, the map is exact for up to 1000 rows and for a
        precomputed kernel, and uses 100 landmarks otherwise.
        """
        from volmar.rows.kernel import KernelPCAMap, NystroemMap

        arguments = self._kernel_arguments(X, weights)
        is_precomputed = self.kernel == "precomputed"
        points = X if is_precomputed else counted_rows(X, weights)
        n = points.shape[0]
        if n_components is not None:
            n_components = check_count("n_components", n_components, high=n)
        if is_precomputed or (n_components is None and n <= EXACT_KERNEL_UP_TO):
            return KernelPCAMap(n_components, **arguments).fit(points)
        count = N_LANDMARKS if n_components is None else n_components
        landmarks = NystroemMap(**arguments, landmarks=count, random_state=self.random_state)
        return landmarks.fit(points)

    def _kernel_matrix(
        self, X: Any, weights: NDArray | None = None
    ) -> tuple[NDArray, KernelExpansion]:
        """Return the dense kernel matrix of the rows, in their dtype, and its expansion."""
        kernel = Kernel(**self._kernel_arguments(X, weights))
        rows, offset = None, None
        if kernel.precomputed:
            K = X.toarray() if sparse.issparse(X) else X
        else:
            if self.kernel in self._kernels_of_differences and not sparse.issparse(X):
                offset = X.mean(axis=0, dtype=np.float64)
            rows = shifted(X, offset)
            K = kernel(rows, rows)
            if rows is X:
                # The caller may change X later. Also, the product of an array with itself is
                # rounded differently from the product of two equal arrays.
                rows = X.copy()
        check_symmetric(K, "K", what="the kernel matrix")
        return K, KernelExpansion(kernel, rows, offset)

    def _scales_gamma(self) -> bool:
        """Return whether gamma is computed from the rows."""
        is_named = isinstance(self.kernel, str) and self.kernel != "precomputed"
        return is_named and isinstance(self.gamma, str)

    def _resolved_gamma(self, X: Any, weights: Any) -> float | None:
        rule = self._gamma_rule()
        if not isinstance(rule, str):
            return rule
        return gamma_by_rule(rule, X, weights) if self._scales_gamma() else None


def used_gamma(kernel: Any, gamma: float | None, X: Any) -> float | None:
    """Return the coefficient of a kernel on the rows of X, or None if it has none."""
    return None if callable(kernel) else Kernel(kernel, gamma=gamma).gamma(X.shape[1])


def gamma_by_rule(rule: str, X: Any, weights: Any) -> float:
    """Return gamma by a rule: a multiple of "scale" or of "rms", such as "4*scale" or "rms/4".

    "scale" is scikit-learn's rule, 1 / (n_features * variance of all entries of X). With "rms",
    the standard deviation of the Gaussian kernel is the root mean squared distance of two rows.
    This gamma is a quarter of "scale" if all columns have the same mean.
    """
    factor, name = _parse_gamma(rule)
    if name == "scale":
        return factor * scale_gamma(X, weights)
    square = as_rows(X, sample_weight=weights).centered().mean_squared_norm()
    if square == 0.0:
        raise ValueError(
            f"gamma={rule!r} depends on the distances between rows, but all rows of X with "
            "positive weight are equal. Give gamma as a number, or check that X was loaded "
            "correctly."
        )
    return factor / (4.0 * square)


_RULE = re.compile(r"(?:([\d.]+)\s*\*\s*)?(scale|rms)(?:\s*/\s*([\d.]+))?")


def _parse_gamma(gamma: str, words: str = "'scale', 'rms'") -> tuple[float, str]:
    """Return factor and name of a rule, such as (4, "scale") for "4*scale"."""
    match = _RULE.fullmatch(gamma.strip())
    try:
        factor = float(match[1] or 1) / float(match[3] or 1)  # type: ignore[index]
    except (TypeError, ValueError, ZeroDivisionError):
        factor = 0.0
    if match is None or not 0.0 < factor < math.inf:
        raise ValueError(
            f"gamma must be a positive number, None, {words} or a multiple of a rule "
            f"such as '4*scale' or 'scale/4', got {gamma!r}."
        )
    return factor, match[2]


# -------- choice of the width of a Gaussian kernel: the widest that finds the clusters of a graph


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
