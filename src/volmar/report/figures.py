"""The figures of a report: from rows to the few numbers that are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, svds

from volmar._checks import fix_signs
from volmar.report.outcome import Outcome

# Points of the plane, rows and columns of permutations, and features that are listed.
MAX_POINTS = 3000
MAX_PERMUTED_ROWS = 500
MAX_PERMUTED_COLUMNS = 40
N_DRIVERS = 15
N_BINS = 48
# Rows of a dense matrix that are centred at a time.
CHUNK = 100_000
# Below this many columns (or rows) principal components come from LAPACK.
SMALL = 300
# Most entries of a part of the rows that is made dense.
MAX_DENSE = 20_000_000
# Longest name or id that is shown whole.
LONGEST = 120


def as_count(value: float) -> str:
    """Return a whole number with commas."""
    return f"{int(value):,}"


def as_figure(value: float | None, digits: int = 3, *, pad: bool = False) -> str:
    """Round to a few digits, with a true minus sign; a dash for what is no number.

    `pad` keeps zeros at the end, so that the numbers of a column look alike.
    """
    if value is None or not np.isfinite(value):
        return "–"
    if value == 0 or abs(value) < 1e-12:
        return "0"
    if 1e-4 <= abs(value) < 1e7:
        places = max(digits - 1 - int(np.floor(np.log10(abs(value)))), 0)
        text = f"{value:,.{places}f}"
        text = text if pad or "." not in text else text.rstrip("0").rstrip(".")
    else:
        text = f"{value:.{digits - 1}e}"
    return text.replace("-", "−")


def as_mean(value: float, spread: float) -> str:
    """Return a mean with the decimals that its column's standard deviation is worth."""
    if not 1e-7 < spread < 1e7 or abs(value) >= 1e7:
        return as_figure(value)
    # From 2/3 on a spread counts as 1, so that standardised columns have the same decimals.
    places = int(np.clip(2 - np.floor(np.log10(1.5 * spread)), 0, 9))
    # Adding 0 turns -0.0 into 0.0.
    return f"{round(value, places) + 0.0:,.{places}f}".replace("-", "−")


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text that no page breaks on."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def listed(words: list[str]) -> str:
    """Return "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}"


@dataclass(frozen=True)
class Moments:
    """Sizes and means of clusters, and how much of each feature's variance they explain."""

    sizes: NDArray
    means: NDArray
    mean: NDArray
    deviation: NDArray

    @property
    def between(self) -> NDArray:
        """Share of the variance of each feature that lies between the clusters."""
        share = self.sizes / self.sizes.sum()
        explained = share @ (self.means - self.mean) ** 2
        variance = self.deviation**2
        out = np.zeros_like(variance)
        np.divide(explained, variance, out=out, where=variance > 0)
        return np.clip(out, 0.0, 1.0)


def cluster_moments(X: Any, codes: NDArray, k: int) -> Moments:
    """Return sizes and means of the clusters, mean and deviation of all rows."""
    n, d = X.shape
    sizes = np.bincount(codes, minlength=k)
    member = sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(k, n))
    sums = member @ X
    sums = sums.toarray() if sparse.issparse(sums) else np.asarray(sums, dtype=np.float64)
    mean = sums.sum(axis=0) / n
    if sparse.issparse(X):
        square = np.asarray(X.multiply(X).sum(axis=0)).ravel() / n
        variance = np.maximum(square - mean**2, 0.0)
    else:
        variance = np.zeros(d)
        for start in range(0, n, CHUNK):
            centred = np.asarray(X[start : start + CHUNK], dtype=np.float64) - mean
            variance += np.einsum("ij,ij->j", centred, centred) / n
    return Moments(sizes, sums / np.maximum(sizes, 1)[:, None], mean, np.sqrt(variance))


def sampled(n: int, limit: int, seed: int) -> NDArray:
    """Return at most `limit` of n row numbers, in order."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, limit, replace=False))


def linear_direction(outcome: Outcome) -> NDArray | None:
    """Coefficients of the one hyperplane between two clusters; None where there is none."""
    if outcome.k != 2:
        return None
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is not None and len(tree.splits()) != 1:
        return None  # two clusters of more leaves: some were merged
    model = outcome.estimator if tree is None else tree.root.model
    coef = getattr(model, "coef_", None)
    if coef is None:
        return None
    coef = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    coef = coef[1] - coef[0] if coef.shape[0] == 2 else coef[0]
    # A pipeline's last step has the columns of the step before it.
    is_ours = outcome.model is outcome.estimator and coef.size == outcome.X.shape[1]
    return coef if is_ours and np.any(coef) else None


# ------------------------------------------------------------------------------ the plane


@dataclass(frozen=True)
class Plane:
    """Where a sample of the rows is drawn, and what the two axes are."""

    rows: NDArray
    x: NDArray
    y: NDArray
    names: tuple[str, str]
    is_score: bool


def plane(outcome: Outcome, lead: NDArray) -> Plane:
    """Return the view in which the split is seen best: own direction, columns or components."""
    n, d = outcome.X.shape
    rows = sampled(n, MAX_POINTS, outcome.seed)
    inside = outcome.X[rows]
    names = [str(name) for name in outcome.feature_names]
    coef = linear_direction(outcome)
    two = outcome.k == 2 and np.ptp(lead) > 0
    if d == 1:
        jitter = np.random.default_rng(outcome.seed).uniform(-1.0, 1.0, rows.size)
        return Plane(rows, _dense(inside)[:, 0], jitter, (names[0], "spread at random"), False)
    if d == 2 and (coef is None or not two):
        points = _dense(inside)
        return Plane(rows, points[:, 0], points[:, 1], (names[0], names[1]), False)
    inside, units = _without_units(outcome, inside)
    if coef is not None and two:
        rest, share = components(inside, 1, without=coef * units)
        axes = ("Direction of the split (decision score)", _component("rest", share[0]))
        return Plane(rows, lead[rows], rest[:, 0], axes, True)
    if two:
        points, share = components(inside, 1)
        axes = ("Decision score", _component("rows", share[0]))
        return Plane(rows, lead[rows], points[:, 0], axes, True)
    points, share = components(inside, 2)
    axes = (_percent_name(1, share[0]), _percent_name(2, share[1]))
    return Plane(rows, points[:, 0], points[:, 1], axes, False)


def _without_units(outcome: Outcome, X: Any) -> tuple[Any, NDArray]:
    """Return rows in which no column counts by its unit, and what their columns are measured in.

    Prepared columns stay as they are, and so do sparse ones, which are counts of one kind.
    """
    units = np.ones(X.shape[1])
    if outcome.scales is not None or outcome.offsets is not None or sparse.issparse(X):
        return X, units
    X = np.asarray(X, dtype=np.float64)
    spread = X.std(axis=0)
    usable = np.isfinite(spread) & (spread > 0)
    units[usable] = spread[usable]
    return X / units, units


def _component(of: str, share: float) -> str:
    return f"Main direction of the {of} ({100 * share:.0f} % of variance)"


def _percent_name(number: int, share: float) -> str:
    return f"Principal component {number} ({100 * share:.0f} % of variance)"


def components(X: Any, k: int, without: NDArray | None = None) -> tuple[NDArray, NDArray]:
    """Return the leading k principal components of rows, and their shares of the variance.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or sparse; sparse ones are centred implicitly.
    k : int
        How many; columns of zeros stand for those that do not exist.
    without : ndarray of shape (d,), optional
        Direction that is taken out first.
    """
    n, d = X.shape
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    unit = None if without is None else without / np.linalg.norm(without)

    def off(v: NDArray) -> NDArray:
        v = np.ravel(v)
        return v if unit is None else v - unit * (unit @ v)

    if min(n, d) <= 2 * k or (min(n, d) <= SMALL and n * d <= MAX_DENSE):
        Z = _dense(X) - mean
        Z = Z if unit is None else Z - np.outer(Z @ unit, unit)
        total = float(np.einsum("ij,ij->", Z, Z))
        left, values, _ = np.linalg.svd(Z, full_matrices=False)
        left, values = left[:, :k], values[:k]
    else:
        operator = LinearOperator(
            X.shape,
            matvec=lambda v: X @ off(v) - mean @ off(v),
            rmatvec=lambda u: off(X.T @ np.ravel(u) - mean * np.sum(u)),
            dtype=np.float64,
        )
        start = np.random.default_rng(0).normal(size=min(n, d))
        left, values, _ = svds(operator, k=k, v0=start)
        left, values = left[:, ::-1], values[::-1]
        square = X.multiply(X).sum() if sparse.issparse(X) else np.einsum("ij,ij->", X, X)
        total = float(square) - n * float(mean @ mean)
        if unit is not None:
            along = X @ unit - mean @ unit
            total -= float(along @ along)
    points = np.zeros((n, k))
    points[:, : values.size] = left * values
    share = np.zeros(k)
    if total > 0:
        share[: values.size] = np.minimum(values**2 / total, 1.0)
    return fix_signs(points), share


def _dense(X: Any) -> NDArray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def limits(values: NDArray) -> tuple[float, float]:
    """Return the range to draw: all, or the middle 98 % and as much again on either side."""
    low, high = float(values.min()), float(values.max())
    first, last = (float(v) for v in np.quantile(values, [0.01, 0.99]))
    if last > first:
        low, high = max(low, 2 * first - last), min(high, 2 * last - first)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        width = max(abs(low), 1.0)
        return low - width, high + width
    return low, high


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two."""
    rough = (high - low) / about
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * min((m for m in (1, 2, 5, 10) if m * power >= rough), default=10)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


# ------------------------------------------------------------------------------ the histogram


@dataclass(frozen=True)
class Histogram:
    """Counts of rows by bin and cluster, and what is marked on the axis."""

    edges: NDArray
    counts: NDArray
    marks: tuple[tuple[float, str, str], ...]
    name: str
    n_beyond: int


def histogram(outcome: Outcome, lead: NDArray, codes: NDArray) -> Histogram:
    """Count rows along the projection that the split is made on."""
    k = outcome.k
    values, of = lead, codes
    marks: tuple[tuple[float, str, str], ...] = ()
    if k == 1:
        rows = sampled(outcome.X.shape[0], MAX_POINTS, outcome.seed)
        points, share = components(outcome.X[rows], 1)
        values, of = points[:, 0], codes[rows]
        name = _percent_name(1, share[0])
    elif k == 2:
        name, marks = "Decision score", _two_way_marks(outcome, lead, codes)
    else:
        name = "Best score less second best"
        marks = ((0.0, "border", "border"),)
        if _has_margin(outcome):
            marks += ((1.0, "margin", "margin"),)
    low, high = limits(values)
    for at, _, _ in marks:
        low, high = min(low, at), max(high, at)
    edges = _edges(low, high, values.size, anchored=k > 1)
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, edges.size - 2)
    if k == 2:
        # A row on the border belongs to the first cluster: the bin below.
        bins[(values <= 0) & (edges[bins] >= 0) & (bins > 0)] -= 1
    counts = np.zeros((k, edges.size - 1), dtype=np.int64)
    np.add.at(counts, (of, bins), 1)
    n_beyond = int(np.sum((values < edges[0]) | (values > edges[-1])))
    return Histogram(edges, counts, marks, name, n_beyond)


def _edges(low: float, high: float, n: int, *, anchored: bool) -> NDArray:
    """Return edges of bins of one width, one of them at 0 if it is in the range."""
    n_bins = int(np.clip(2 * np.sqrt(n), 8, N_BINS))
    width = (high - low) / n_bins
    if not anchored or not low <= 0 <= high:
        return np.linspace(low, high, n_bins + 1)
    first, last = int(np.floor(low / width + 1e-9)), int(np.ceil(high / width - 1e-9))
    return width * np.arange(first, max(last, first + 1) + 1)


def _has_margin(outcome: Outcome) -> bool:
    """Whether scores are in units of the margin."""
    kind = type(outcome.estimator)
    return kind.__module__.startswith("volmar.margin") and not hasattr(outcome.estimator, "tree_")


def _two_way_marks(
    outcome: Outcome, lead: NDArray, codes: NDArray
) -> tuple[tuple[float, str, str], ...]:
    border = (0.0, "border", "border")
    if _has_margin(outcome):
        return ((-1.0, "margin", "margin"), border, (1.0, "margin", "margin"))
    means = [(i, lead[codes == i]) for i in range(2)]
    marked = [
        (float(v.mean()), f"mean of {outcome.clusters[i]}", "mean") for i, v in means if v.size
    ]
    return (border, *marked)


# ------------------------------------------------------------------------------ the features


@dataclass(frozen=True)
class Drivers:
    """Features by their part in the split, largest first.

    `kind` is "linear" (coefficient times standard deviation), "permutation" (share of rows that
    change cluster when the column is shuffled) or "between" (share of variance between clusters).
    """

    kind: str
    features: NDArray
    values: NDArray
    n_rows: int = 0
    n_tried: int = 0


def drivers(outcome: Outcome, moments: Moments) -> Drivers | None:
    """Return the features that drive the split; None where there is no split."""
    k = outcome.k
    if k < 2:
        return None
    coef = linear_direction(outcome)
    if coef is not None:
        return _largest("linear", coef * moments.deviation)
    if k == 2:
        found = _permuted(outcome, moments)
        if found is not None:
            return found
    return _largest("between", moments.between)


def _largest(kind: str, values: NDArray, **more: int) -> Drivers:
    order = np.argsort(-np.abs(values), kind="stable")[:N_DRIVERS]
    order = order[values[order] != 0]
    return Drivers(kind, order, values[order], **more)


def _permuted(outcome: Outcome, moments: Moments) -> Drivers | None:
    """Shuffle columns of a sample one by one, and count the rows that change cluster."""
    if not hasattr(outcome.model, "predict"):
        return None
    n, d = outcome.X.shape
    rows = sampled(n, min(MAX_PERMUTED_ROWS, MAX_DENSE // d), outcome.seed)
    if rows.size < 2:
        return None
    X = _dense(outcome.X[rows])
    tried = np.sort(np.argsort(-moments.between, kind="stable")[:MAX_PERMUTED_COLUMNS])
    rng = np.random.default_rng(outcome.seed)
    shares = np.zeros(d)
    try:
        before = outcome.model.predict(X)
        for j in tried:
            column = X[:, j].copy()
            X[:, j] = rng.permutation(column)
            shares[j] = np.mean(outcome.model.predict(X) != before)
            X[:, j] = column
    except ValueError:
        # Similarities to the training rows have no columns to shuffle.
        return None
    return _largest("permutation", shares, n_rows=rows.size, n_tried=tried.size)


# ------------------------------------------------------------------------------ the drawings


def scatter(outcome: Outcome, lead: NDArray, codes: NDArray) -> tuple[dict, list]:
    """Return the drawing, in per cent of its width and height, and the points by themselves."""
    view = plane(outcome, lead)
    x, x_ticks, beyond_x = _on_axis(view.x, include=0.0 if view.is_score else None)
    y, y_ticks, beyond_y = _on_axis(view.y)
    rows = view.rows
    distance = np.abs(lead[rows])
    typical = float(np.median(np.abs(lead))) if outcome.k > 1 else 0.0
    opacity = np.full(rows.size, 0.7)
    if typical > 0:
        opacity = 0.25 + 0.65 * np.minimum(distance / typical, 1.0)
    groups: list[list[tuple[str, str, str]]] = [[] for _ in range(outcome.k)]
    points: list[list[Any]] = []
    for i, row in enumerate(rows):
        at = (round(float(x[i]), 2), round(100 - float(y[i]), 2))
        code = int(codes[row])
        groups[code].append((f"{at[0]:g}", f"{at[1]:g}", f"{opacity[i]:.2f}".lstrip("0")))
        score = as_figure(float(lead[row])) if outcome.k > 1 else ""
        points.append([*at, code, score, shortened(str(outcome.ids[row]))])
    drawing = {
        "groups": groups,
        "x_ticks": x_ticks,
        "y_ticks": [(round(100 - at, 3), text) for at, text in y_ticks],
        "x_name": shortened(view.names[0]),
        "y_name": shortened(view.names[1]),
        "border": _position(0.0, view.x) if view.is_score else None,
        "n_drawn": rows.size,
        "n_beyond": int(np.sum(beyond_x | beyond_y)),
        "radius": "small" if rows.size > 800 else "large",
    }
    return drawing, points


def _range(values: NDArray, include: float | None) -> tuple[float, float]:
    low, high = limits(values)
    if include is not None:
        low, high = min(low, include), max(high, include)
    pad = 0.03 * (high - low)
    return low - pad, high + pad


def _position(value: float, values: NDArray) -> float:
    low, high = _range(values, value)
    return round(100 * (value - low) / (high - low), 2)


def _on_axis(
    values: NDArray, include: float | None = None
) -> tuple[NDArray, list[tuple[float, str]], NDArray]:
    low, high = _range(values, include)
    at = 100 * (values - low) / (high - low)
    beyond = (at < 0) | (at > 100)
    marks = [
        (round(100 * (tick - low) / (high - low), 3), as_figure(tick, 6))
        for tick in ticks(low, high)
    ]
    return np.clip(at, 0, 100), marks, beyond


def bars(outcome: Outcome, lead: NDArray, codes: NDArray) -> dict[str, Any]:
    """Return the histogram as bars, in per cent of its width and height."""
    found = histogram(outcome, lead, codes)
    low, high = float(found.edges[0]), float(found.edges[-1])
    tallest = max(int(found.counts.sum(axis=0).max()), 1)
    top = 1.04 * tallest
    width = 100 / (found.edges.size - 1)
    below = np.vstack([np.zeros(found.edges.size - 1), np.cumsum(found.counts, axis=0)])
    groups = [
        [
            {
                "x": f"{j * width:.3f}",
                "y": f"{100 - 100 * below[i + 1, j] / top:.3f}",
                "height": f"{100 * found.counts[i, j] / top:.3f}",
            }
            for j in np.flatnonzero(found.counts[i])
        ]
        for i in range(found.counts.shape[0])
    ]
    y_ticks = [t for t in ticks(0, top, 4) if t == int(t)]
    return {
        "groups": groups,
        "width": f"{width:.3f}",
        "x_ticks": [
            (round(100 * (t - low) / (high - low), 3), as_figure(t, 6))
            for t in ticks(low, high, 6)
        ],
        "y_ticks": [(round(100 - 100 * t / top, 3), as_count(t)) for t in y_ticks],
        "marks": _placed(found.marks, low, high),
        "kinds": {kind for _, _, kind in found.marks},
        "name": found.name,
        "n_beyond": found.n_beyond,
    }


def _placed(
    marks: tuple[tuple[float, str, str], ...], low: float, high: float
) -> list[dict[str, Any]]:
    """Return marks with the side on which their names stand, so that near ones do not overlap."""
    placed: list[dict[str, Any]] = [
        {"x": round(100 * (at - low) / (high - low), 3), "text": text, "kind": kind}
        for at, text, kind in marks
    ]
    for mark in placed:
        x = mark["x"]
        mark["anchor"] = "start" if x < 6 else "end" if x > 94 else "middle"
        for other in placed:
            # The border's name has a line to itself.
            if other is not mark and other["kind"] == mark["kind"] and abs(other["x"] - x) < 20:
                mark["anchor"] = "end" if x < other["x"] else "start"
    return placed
