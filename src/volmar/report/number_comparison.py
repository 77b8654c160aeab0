"""The sections "Other numbers of clusters" and "Silhouettes" of the report."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar._warn import collecting
from volmar.diagnostics.alluvium import alluvium
from volmar.diagnostics.silhouettes import silhouettes
from volmar.report.outcome import Outcome
from volmar.report.text import as_count, as_number, listed, shortened

__all__ = ["numbers_side_by_side", "silhouette_blocks"]

# Size of the flow chart in SVG units, width of a block, and margin.
WIDTH, HEIGHT, BLOCK, MARGIN = 1000.0, 300.0, 14.0, 30.0
# Maximum number of bars per cluster; more would be thinner than a pixel.
MAX_BARS = 120


def numbers_side_by_side(outcome: Outcome) -> dict[str, Any] | None:
    """Return the scores for each number of clusters, and the flows between clusterings."""
    found = outcome.numbers
    if found is None:
        return None
    reference = outcome.codes[found.rows] if outcome.k > 1 else None
    blocks, flows = alluvium(found, reference)
    step = (WIDTH - 2 * MARGIN) / max(len(found.found) - 1, 1)
    rows = [
        {
            "k": one.n_clusters,
            "is_shown": one.n_clusters == outcome.k,
            "n_supported": "–" if one.n_supported is None else one.n_supported,
            "is_supported": one.is_supported,
            "p": "–" if np.isnan(one.p_value) else as_number(one.p_value, 2),
            "separation": as_number(one.separation, 2, pad=True),
            "silhouette": as_number(one.silhouette, 2, pad=True),
            "stability": as_number(one.stability, 2, pad=True),
            "sizes": ", ".join(as_count(size) for size in np.sort(one.sizes)[::-1]),
        }
        for one in found.found
    ]
    return {
        "rows": rows,
        "coloured": reference is not None,
        "width": WIDTH,
        "height": HEIGHT,
        "names": [
            {"x": round(MARGIN + i * step, 1), "text": one["k"], "is_shown": one["is_shown"]}
            for i, one in enumerate(rows)
        ],
        "blocks": [
            {
                "x": round(MARGIN + one.level * step - BLOCK / 2, 1),
                "y": round(HEIGHT * one.top, 1),
                "height": max(round(HEIGHT * (one.bottom - one.top), 1), 0.5),
                "colour": one.colour,
                "title": f"{as_count(one.n_rows)} rows",
            }
            for one in blocks
        ],
        "flows": [
            {
                "path": _band(
                    MARGIN + one.level * step + BLOCK / 2,
                    MARGIN + (one.level + 1) * step - BLOCK / 2,
                    one.left,
                    one.right,
                ),
                "colour": one.colour,
            }
            for one in flows
        ],
        "note": found.note,
        "words": _words(outcome),
    }


def _words(outcome: Outcome) -> str:
    """Return a sentence on the numbers for which all clusters are separated."""
    found = outcome.numbers
    assert found is not None
    real = [one.n_clusters for one in found.found if one.is_supported]
    if not any(one.n_supported is not None for one in found.found):
        return "The clusters are too small to test whether they are separated."
    if not real:
        return "For none of these numbers are all clusters separated on held-out rows."
    numbers = listed([str(k) for k in real])
    return f"With {numbers} clusters, all of them are separated on held-out rows."


def _band(left: float, right: float, start: tuple[float, float], end: tuple[float, float]) -> str:
    a, b, c, d = (f"{HEIGHT * value:.1f}" for value in (*start, *end))
    x, y, middle = f"{left:.1f}", f"{right:.1f}", f"{(left + right) / 2:.1f}"
    return f"M{x} {a}C{middle} {a} {middle} {c} {y} {c}V{d}C{middle} {d} {middle} {b} {x} {b}z"


def silhouette_blocks(outcome: Outcome) -> dict[str, Any] | None:
    """Return the silhouettes of a sample of rows, as one outline per cluster."""
    if outcome.k < 2:
        return None
    with collecting():
        try:
            found = silhouettes(outcome.X, outcome.codes, random_state=outcome.seed)
        except ValueError:  # every row is a cluster
            return None
    low = min(float(one.min()) for one in found.values)
    low = min(0.0, -0.1 * np.ceil(-10 * low - 1e-9) if low < 0 else 0.0)
    span = 1.0 - low
    blocks = []
    for i, (values, mean) in enumerate(zip(found.values, found.means, strict=True)):
        drawn = values
        if values.size > MAX_BARS:
            drawn = values[np.linspace(0, values.size - 1, MAX_BARS).astype(int)]
        share = float(found.shares[i])
        blocks.append(
            {
                "cluster": i,
                "mean": as_number(float(mean), 2, pad=True),
                "negative": int(np.count_nonzero(values < 0)),
                "path": _outline(drawn, low, span),
                # The height is proportional to the share of rows, within limits.
                "pixels": round(float(np.clip(320 * share, 14, 240))),
                "name": shortened(str(outcome.clusters[i])),
            }
        )
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    if low < -0.05:
        ticks.insert(0, low)
    return {
        "blocks": blocks,
        "zero": round(100 * (0.0 - low) / span, 2),
        "at_mean": round(100 * (found.mean - low) / span, 2),
        "mean": as_number(found.mean, 2, pad=True),
        "ticks": [(round(100 * (t - low) / span, 2), as_number(t, 2)) for t in ticks],
        "n_sampled": found.n_sampled,
        "is_sample": found.n_sampled < found.n_all,
        "n_negative": found.n_negative,
    }


def _outline(values: Any, low: float, span: float) -> str:
    """Return the outline of sorted bars in a box of 100 by 100."""
    zero = 100 * (0.0 - low) / span
    height = 100 / values.size
    at = 100 * (values - low) / span
    steps = [f"H{x:.1f}V{(j + 1) * height:.4g}" for j, x in enumerate(at)]
    return f"M{zero:.4g} 0" + "".join(steps) + f"H{zero:.4g}z"
