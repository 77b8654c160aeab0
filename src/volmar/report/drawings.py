"""The scatter plot and the histogram of the page."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from volmar._checks import fix_signs, shortened
from volmar._eigen import svds
from volmar._text import as_count, as_number
from volmar.plots.projection import bin_edges, has_margin
from volmar.report.drivers import MAX_DENSE, dense, linear_direction, sampled
from volmar.report.outcome import Outcome

# Maximum number of rows that are drawn.
MAX_POINTS = 3000


class Plane(NamedTuple):
    """A sample of rows, their two coordinates, and the names of the axes."""

    rows: NDArray
    x: NDArray
    y: NDArray
    names: tuple[str, str]
    is_score: bool


def plane(outcome: Outcome, lead: NDArray) -> Plane:
    """Return the view that shows the split: its direction, two columns, or components."""
    n, d = outcome.X.shape
    rows = sampled(n, MAX_POINTS, outcome.seed)
    inside = outcome.X[rows]
    names = [str(name) for name in outcome.feature_names]
    coef = linear_direction(outcome)
    two = outcome.k == 2 and np.ptp(lead) > 0
    if d == 1:
        jitter = np.random.default_rng(outcome.seed).uniform(-1.0, 1.0, rows.size)
        return Plane(rows, dense(inside)[:, 0], jitter, (names[0], "random jitter"), False)
    if d == 2 and (coef is None or not two):
        points = dense(inside)
        return Plane(rows, points[:, 0], points[:, 1], (names[0], names[1]), False)
    inside, units = _without_units(outcome, inside)
    if coef is not None and two:
        rest, share = components(inside, 1, without=coef * units)
        other = f"Main direction orthogonal to the split ({100 * share[0]:.0f} % of variance)"
        axes = ("Direction of the split (decision score)", other)
        return Plane(rows, lead[rows], rest[:, 0], axes, True)
    if two:
        points, share = components(inside, 1)
        other = f"Main direction of the rows ({100 * share[0]:.0f} % of variance)"
        axes = ("Decision score", other)
        return Plane(rows, lead[rows], points[:, 0], axes, True)
    points, share = components(inside, 2)
    axes = (component_name(1, share[0]), component_name(2, share[1]))
    return Plane(rows, points[:, 0], points[:, 1], axes, False)


def _without_units(outcome: Outcome, X: Any) -> tuple[Any, NDArray]:
    """Return rows with standardised columns, and the units that these were divided by.

    Prepared columns are not changed, nor are sparse ones, which usually are counts.
    """
    units = np.ones(X.shape[1])
    if outcome.scales is not None or outcome.offsets is not None or sparse.issparse(X):
        return X, units
    X = np.asarray(X, dtype=np.float64)
    spread = X.std(axis=0)
    usable = np.isfinite(spread) & (spread > 0)
    units[usable] = spread[usable]
    return X / units, units


def component_name(number: int, share: float) -> str:
    """Return the axis name of a principal component."""
    return f"Principal component {number} ({100 * share:.0f} % of variance)"


def components(X: Any, k: int, without: NDArray | None = None) -> tuple[NDArray, NDArray]:
    """Return the first k principal components of rows, and their shares of the variance.

    If there are fewer than k components, the others are zero. The direction `without` is projected
    out first. Sparse rows are centred implicitly.
    """
    n, d = X.shape
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    unit = None if without is None else without / np.linalg.norm(without)

    def off(v: NDArray) -> NDArray:
        v = np.ravel(v)
        return v if unit is None else v - unit * (unit @ v)

    # A dense SVD is fast for so few rows or columns.
    if min(n, d) <= 2 * k or (min(n, d) <= 300 and n * d <= MAX_DENSE):
        Z = dense(X) - mean
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


def scatter(outcome: Outcome, lead: NDArray, codes: NDArray) -> tuple[dict, list]:
    """Return the drawing, in per cent of its width and height, and the list of points."""
    view = plane(outcome, lead)
    x, x_ticks, beyond_x, border = _on_axis(view.x, include=0.0 if view.is_score else None)
    y, y_ticks, beyond_y, _ = _on_axis(view.y)
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
        score = as_number(float(lead[row])) if outcome.k > 1 else ""
        points.append([*at, code, score, shortened(str(outcome.ids[row]))])
    drawing = {
        "groups": groups,
        "x_ticks": x_ticks,
        "y_ticks": [(round(100 - at, 3), text) for at, text in y_ticks],
        "x_name": shortened(view.names[0]),
        "y_name": shortened(view.names[1]),
        "border": round(border, 2) if view.is_score else None,
        "n_drawn": rows.size,
        "n_beyond": int(np.sum(beyond_x | beyond_y)),
        "radius": "small" if rows.size > 800 else "large",
    }
    return drawing, points


def _on_axis(
    values: NDArray, include: float | None = None
) -> tuple[NDArray, list[tuple[float, str]], NDArray, float]:
    """Return positions in per cent, ticks, the mask of values beyond the axis, and where 0 is."""
    low, high = limits(values)
    if include is not None:
        low, high = min(low, include), max(high, include)
    pad = 0.03 * (high - low)
    low, high = low - pad, high + pad
    at = 100 * (values - low) / (high - low)
    beyond = (at < 0) | (at > 100)
    zero = 100 * (0.0 - low) / (high - low)
    return np.clip(at, 0, 100), placed_ticks(low, high), beyond, zero


def limits(values: NDArray) -> tuple[float, float]:
    """Return the range to draw: all values, or three times the range of the middle 98 %."""
    low, high = float(values.min()), float(values.max())
    first, last = (float(v) for v in np.quantile(values, [0.01, 0.99]))
    if last > first:
        low, high = max(low, 2 * first - last), min(high, 2 * last - first)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        width = max(abs(low), 1.0)
        return low - width, high + width
    return low, high


def placed_ticks(low: float, high: float, about: int = 5) -> list[tuple[float, str]]:
    """Return tick positions in per cent of the axis, with their labels."""
    return [
        (round(100 * (tick - low) / (high - low), 3), as_number(tick, 6))
        for tick in ticks(low, high, about)
    ]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about as many round numbers between `low` and `high` as `about`."""
    rough = (high - low) / about
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * min((m for m in (1, 2, 5, 10) if m * power >= rough), default=10)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


# ----------------------------------------------------------------------- the histogram of the page


# Position, text and kind of each mark.
Marks = tuple[tuple[float, str, str], ...]


class Histogram(NamedTuple):
    """Counts of rows by cluster and bin, marks on the axis, and rows beyond the bins."""

    edges: NDArray
    counts: NDArray
    marks: Marks
    name: str
    n_beyond: int


def histogram(outcome: Outcome, lead: NDArray, codes: NDArray) -> Histogram:
    """Count rows along the decision score, or along the main direction of one cluster."""
    k, values, of = outcome.k, lead, codes
    marks: Marks = ()
    if k == 1:
        rows = sampled(outcome.X.shape[0], MAX_POINTS, outcome.seed)
        points, share = components(outcome.X[rows], 1)
        values, of = points[:, 0], codes[rows]
        name = component_name(1, share[0])
    elif k == 2:
        name, marks = "Decision score", _two_way_marks(outcome, lead, codes)
    else:
        name = "Best score minus second best"
        marks = ((0.0, "border", "border"),)
        if _has_margin(outcome):
            marks += ((1.0, "margin", "margin"),)
    low, high = limits(values)
    for at, _, _ in marks:
        low, high = min(low, at), max(high, at)
    n_bins = int(np.clip(2 * np.sqrt(values.size), 8, 48))
    edges = np.linspace(low, high, n_bins + 1)
    if k > 1 and low <= 0 <= high:
        edges = bin_edges(low, high, n_bins)
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, edges.size - 2)
    if k == 2:
        # A row on the border belongs to the first cluster, and to the bin below.
        bins[(values <= 0) & (edges[bins] >= 0) & (bins > 0)] -= 1
    counts = np.zeros((k, edges.size - 1), dtype=np.int64)
    np.add.at(counts, (of, bins), 1)
    n_beyond = int(np.sum((values < edges[0]) | (values > edges[-1])))
    return Histogram(edges, counts, marks, name, n_beyond)


def _has_margin(outcome: Outcome) -> bool:
    """Return whether scores are in units of the margin; those of a tree are not."""
    return has_margin(outcome.estimator) and not hasattr(outcome.estimator, "tree_")


def _two_way_marks(outcome: Outcome, lead: NDArray, codes: NDArray) -> Marks:
    border = (0.0, "border", "border")
    if _has_margin(outcome):
        return ((-1.0, "margin", "margin"), border, (1.0, "margin", "margin"))
    means = [float(lead[codes == i].mean()) for i in range(2)]
    return (border, *((means[i], f"mean of {outcome.clusters[i]}", "mean") for i in range(2)))


def bars(outcome: Outcome, lead: NDArray, codes: NDArray) -> dict[str, Any]:
    """Return the bars of the histogram, in per cent of its width and height."""
    found = histogram(outcome, lead, codes)
    low, high = float(found.edges[0]), float(found.edges[-1])
    top = 1.04 * max(int(found.counts.sum(axis=0).max()), 1)
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
        "x_ticks": placed_ticks(low, high, 6),
        "y_ticks": [(round(100 - 100 * t / top, 3), as_count(t)) for t in y_ticks],
        "marks": _placed(found.marks, low, high),
        "kinds": {kind for _, _, kind in found.marks},
        "name": found.name,
        "n_beyond": found.n_beyond,
    }


def _placed(marks: Marks, low: float, high: float) -> list[dict[str, Any]]:
    """Return the marks, with text anchors such that labels of close marks do not overlap."""
    placed: list[dict[str, Any]] = [
        {"x": round(100 * (at - low) / (high - low), 3), "text": text, "kind": kind}
        for at, text, kind in marks
    ]
    for mark in placed:
        x = mark["x"]
        mark["anchor"] = "start" if x < 6 else "end" if x > 94 else "middle"
        for other in placed:
            # The label of the border is on a line of its own.
            if other is not mark and other["kind"] == mark["kind"] and abs(other["x"] - x) < 20:
                mark["anchor"] = "end" if x < other["x"] else "start"
    return placed
