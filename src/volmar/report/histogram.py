"""The histogram of the page: rows along the projection of the split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.plots.projection import bin_edges, has_margin
from volmar.report.drivers import sampled
from volmar.report.outcome import Outcome
from volmar.report.plane import (
    MAX_POINTS,
    component_name,
    components,
    limits,
    placed_ticks,
    ticks,
)
from volmar.report.text import as_count

__all__ = ["Histogram", "bars", "histogram"]

# Maximum number of bins.
N_BINS = 48


@dataclass(frozen=True)
class Histogram:
    """Counts of rows by cluster and bin, marks on the axis, and rows beyond the bins."""

    edges: NDArray
    counts: NDArray
    marks: tuple[tuple[float, str, str], ...]
    name: str
    n_beyond: int


def histogram(outcome: Outcome, lead: NDArray, codes: NDArray) -> Histogram:
    """Count rows along the decision score, or along the main direction of one cluster."""
    k = outcome.k
    values, of = lead, codes
    marks: tuple[tuple[float, str, str], ...] = ()
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
    n_bins = int(np.clip(2 * np.sqrt(values.size), 8, N_BINS))
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


def _placed(
    marks: tuple[tuple[float, str, str], ...], low: float, high: float
) -> list[dict[str, Any]]:
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
