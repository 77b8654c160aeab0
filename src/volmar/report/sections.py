"""Sections of the report: differences, columns, new rows, splits, other numbers of clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._checks import shortened
from volmar._text import as_count, as_mean, as_number, as_percent, listed, signed
from volmar._warn import collecting
from volmar.diagnostics import (
    ClusterDescription,
    ColumnProfiles,
    column_profiles,
    describe_clusters,
)
from volmar.diagnostics.cluster_description import Difference, suggested_names
from volmar.diagnostics.column_profiles import OTHER, ColumnProfile, day_text
from volmar.diagnostics.compare_numbers import NumberComparison, alluvium
from volmar.diagnostics.silhouettes import silhouettes
from volmar.report.drawings import bars
from volmar.report.drivers import drivers
from volmar.report.outcome import Outcome
from volmar.rows.tiled import cluster_moments


def description_of(outcome: Outcome) -> ClusterDescription:
    """Return the description of a run; if it has none, describe `X` without tests."""
    if outcome.description is not None:
        return outcome.description
    found = describe_clusters(
        outcome.X,
        outcome.codes,
        feature_names=[str(name) for name in outcome.feature_names],
        ids=np.array([str(one) for one in outcome.ids], dtype=object),
    )
    scales = np.ones(1) if outcome.scales is None else outcome.scales
    offsets = np.zeros(1) if outcome.offsets is None else outcome.offsets
    note = "It was not tested whether other rows would show the same differences."
    named = replace(found, clusters=outcome.clusters[found.clusters].tolist(), note=note)
    return named.in_units(offsets, scales)


def border_rows(outcome: Outcome, label: Any, count: int = 3) -> NDArray:
    """Return the ids of the rows of a cluster that are nearest to its border, nearest first.

    Empty if all scores are equal or not finite, or if the cluster has at most ``2 * count`` rows.
    """
    inside = np.flatnonzero(outcome.labels == label)
    distance = np.abs(outcome.lead[inside])
    if inside.size <= 2 * count or not np.isfinite(distance).all() or np.ptp(distance) == 0:
        return np.asarray(outcome.ids)[:0]
    nearest = inside[np.argsort(distance, kind="stable")[:count]]
    return np.asarray(outcome.ids)[nearest]


def profiles(outcome: Outcome) -> dict[str, Any] | None:
    """Return the differences of each cluster from the others."""
    if outcome.k < 2:
        return None
    found = description_of(outcome)
    shown = 10 if outcome.k == 2 else 6 if outcome.k <= 6 else 4
    features = zip(found.columns, found.levels, found.kinds, strict=True)
    spreads = dict(zip(features, found.spread, strict=True))
    clusters = []
    names = suggested_names(found)
    # Plots show noise as a cluster, but it is not compared with others.
    place = {label: i for i, label in enumerate(outcome.clusters.tolist())}
    for i, label in enumerate(found.clusters):
        # Real differences first, then the largest effects; one level per category.
        every = sorted(found.differences(label), key=lambda one: not one.real)
        first = {(one.column, one.kind): one for one in reversed(every) if one.effect != 0}
        listed = [one for one in every if first.get((one.column, one.kind)) is one][:shown]
        clusters.append(
            {
                "cluster": place[label],
                "size": int(found.sizes[i]),
                "share": float(found.shares[i]),
                "name": shortened(names[label], 90),
                "typical": [shortened(str(row), 40) for row in found.typical[i]],
                "border": [shortened(str(row), 40) for row in border_rows(outcome, label)],
                "again": found.was_found_again(label),
                "rows": [
                    _difference_row(one, found, spreads[one.column, one.level, one.kind])
                    for one in listed
                ],
            }
        )
    return {
        "clusters": clusters,
        "names": {one["cluster"]: one["name"] for one in clusters},
        "tested": found.real is not None,
        "n_noise": found.n_noise,
        "note": found.note,
        "remarks": [remark[0].upper() + remark[1:] + "." for remark in found.remarks],
        "n_columns": len(set(found.columns)),
        "n_shown": shown,
        "has_shares": any(kind in ("share", "missing") for kind in found.kinds),
    }


def _difference_row(one: Difference, found: ClusterDescription, spread: float) -> dict[str, Any]:
    size = min(abs(one.effect) / 4.0, 1.0)  # larger effects have the same bar
    name = one.column if one.kind != "missing" else f"{one.column} is missing"
    if one.kind == "share":
        name = f"{one.column} = {one.level}"
    effect = "no overlap" if np.isinf(one.effect) else signed(one.effect)
    return {
        "name": shortened(name, 90),
        "effect": effect,
        "bar": round(50 * size, 2),
        "more": one.effect > 0,
        "real": one.real,
        "inside": _difference_value(one.inside, one, found, spread),
        "outside": _difference_value(one.outside, one, found, spread),
    }


def _difference_value(
    value: float, one: Difference, found: ClusterDescription, spread: float
) -> str:
    if one.kind in ("share", "missing"):
        return as_percent(value)
    if one.kind == "date":
        return day_text(value)
    if one.kind == "ordinal":
        return shortened(found.orders[one.column][round(value)], 20)
    return as_mean(value, spread)


# --------------------------------------------------------- the section "All columns" of the report


# Number of columns that are not folded, and maximum number of plots on the page.
N_OPEN, MAX_CELLS = 20, 1200
# Maximum number of sparse columns that are described; text may have very many.
MAX_SPARSE = 400
KINDS = {
    "number": "number",
    "date": "date",
    "ordinal": "ordered levels",
    "boolean": "yes or no",
    "category": "category",
    "text": "text",
    "empty": "empty",
}


def profiles_of(outcome: Outcome) -> ColumnProfiles:
    """Return the profiles of the source's columns, or of `X` if the source is not known.

    If there are many sparse columns, only those that differ most between clusters are profiled.
    """
    source, names, used = outcome.columns, outcome.column_names, outcome.used
    if source is None:
        source, names, used = _in_units(outcome), [str(one) for one in outcome.feature_names], None
    if sparse.issparse(source) and source.shape[1] > MAX_SPARSE:
        between = cluster_moments(source, outcome.codes, outcome.k).between
        chosen = np.sort(np.argsort(-between, kind="stable")[:MAX_SPARSE])
        source = sparse.csc_array(source)[:, chosen]
        names = [f"x{j}" if names is None else names[j] for j in chosen]
        used = None if used is None else [used[j] for j in chosen]
    return column_profiles(
        source, outcome.codes, used=used, feature_names=names, random_state=outcome.seed
    )


def _in_units(outcome: Outcome) -> Any:
    """Return `X`, in the units of the source if these are known and `X` is dense."""
    X = outcome.X
    if sparse.issparse(X):
        return X
    X = X if outcome.scales is None else X * outcome.scales
    return X if outcome.offsets is None else X + outcome.offsets


def all_columns(outcome: Outcome) -> dict[str, Any]:
    """Return the table of all columns, used ones first, with a cell per cluster."""
    found = profiles_of(outcome)
    k = len(found.clusters)
    limit = max(MAX_CELLS // k, 5)
    source = outcome.X if outcome.columns is None else outcome.columns
    n_passed_over = source.shape[1] - len(found.columns)
    groups = []
    # If the columns of X are shown, because the source is not known, all of them were used.
    for is_used, title in ((True, "Used for clustering"), (False, "Not used for clustering")):
        every = [one for one in found.columns if one.used == is_used]
        if not every:
            continue
        shown = [_column_row(one, k) for one in every[:limit]]
        limit = max(limit - len(shown), 5)
        groups.append(
            {
                "title": title if k > 1 or not is_used else "Used",
                "open": shown[:N_OPEN],
                "folded": shown[N_OPEN:],
                "n": len(every) + n_passed_over,
                "n_hidden": len(every) + n_passed_over - len(shown),
            }
        )
        n_passed_over = 0
    return {
        "groups": groups,
        "n_sampled": found.n_sampled,
        "is_sample": found.n_sampled < len(outcome.labels),
        "has_numbers": any(one.has_numbers for one in found.columns),
        "has_levels": any(one.levels and not one.has_numbers for one in found.columns),
    }


def _column_row(one: ColumnProfile, k: int) -> dict[str, Any]:
    top = float(np.nanmax(one.shares, initial=0.0)) or 1.0
    return {
        "name": shortened(one.name, 60),
        "kind": KINDS[one.kind] + (f", {as_count(one.n_values)} values" * (one.kind == "text")),
        "effect": "" if np.isnan(one.effect) or k < 2 else f"{one.effect:.2f}",
        "bar": 0.0 if np.isnan(one.effect) else round(100 * one.effect, 1),
        "low": _end(one, 0),
        "high": _end(one, -1),
        "levels": [shortened(level, 40) for level in one.levels] if not one.has_numbers else [],
        "cells": [_cell(one, i, top) for i in range(k)],
    }


def _end(one: ColumnProfile, i: int) -> str:
    """Return the value at an end of the histogram's axis as text."""
    if not one.has_numbers:
        return ""
    if one.edges is None:
        return one.levels[i] if len(one.levels) > 1 else ""
    value = float(one.edges[i])
    return one.text(np.rint(value) if one.is_whole else value)


def _cell(one: ColumnProfile, i: int, top: float) -> dict[str, Any]:
    missing = float(one.missing[i])
    cell: dict[str, Any] = {"missing": as_percent(missing) if missing > 0 else "", "kind": "none"}
    if one.shares.shape[1] == 0 or not np.isfinite(one.shares[i]).all():
        return cell
    shares = one.shares[i]
    if one.quartiles is not None:
        low, middle, high = (float(value) for value in one.quartiles[i])
        marks = {} if one.edges is None else _marks(one.edges, low, middle, high)
        return {
            **cell,
            **marks,
            "kind": "bins",
            "path": _path(shares / top),
            "text": one.text(middle),
            "low": one.text(low),
            "high": one.text(high),
        }
    start = np.concatenate([[0.0], np.cumsum(shares)])
    order = [j for j in np.argsort(-shares, kind="stable") if one.levels[j] != OTHER]
    listed = [j for j in order[:3] if shares[j] > 0]
    rest = [OTHER]  # all levels that have no part of their own in the bar
    if one.kind == "boolean":
        listed, rest = [0], [OTHER, "False"]  # True, or the only value
    if one.kind == "ordinal":
        listed.sort()
    return cell | {
        "kind": "shares",
        "parts": [
            {
                "x": round(100 * float(start[j]), 2),
                "width": round(100 * float(shares[j]), 2),
                # The first level is the darkest; other levels together are grey.
                "tone": "other" if one.levels[j] in rest else min(j, 6),
                "title": f"{shortened(one.levels[j], 40)} {as_percent(float(shares[j]))}",
            }
            for j in range(shares.size)
            if shares[j] > 0
        ],
        "listed": [(shortened(one.levels[j], 40), as_percent(float(shares[j]))) for j in listed],
    }


def _marks(edges: Any, low: float, middle: float, high: float) -> dict[str, float]:
    """Return the positions of quartiles and median, in per cent of the width."""
    # Halves, so that the difference of huge values does not overflow.
    start, span = edges[0] / 2, edges[-1] / 2 - edges[0] / 2
    at = [float(np.clip(100 * ((v / 2 - start) / span), 0, 100)) for v in (low, middle, high)]
    return {"q1": round(at[0], 1), "median": round(at[1], 1), "q3": round(at[2], 1)}


def _path(heights: Any) -> str:
    """Return the outline of bars in a box of 100 by 30."""
    width = 100 / heights.size
    steps = [f"V{30 - 30 * height:.1f}H{(j + 1) * width:.4g}" for j, height in enumerate(heights)]
    return "M0 30" + "".join(steps) + "V30z"


# ------------------------------------- the section of the report on rows that belong to no cluster


# Level at which the page counts rejected rows.
REJECT_LEVEL = 0.01


def strangers(outcome: Outcome) -> dict[str, Any] | None:
    """Return the number of rejected rows, clusters with too few rows, and the command."""
    novelty = outcome.novelty
    if novelty is None:
        return None
    p = novelty.p_values(outcome.X, outcome.labels, outcome.outlying)
    n_rejected = int(np.count_nonzero(p <= REJECT_LEVEL))
    few = [j for j in outcome.clusters.tolist() if novelty.min_p_values[j] > REJECT_LEVEL]
    names = [f"cluster {j} ({as_number(float(novelty.min_p_values[j]), 2)})" for j in few[:5]]
    if len(few) > 5:
        names.append(f"{as_count(len(few) - 5)} more")
    is_command = outcome.command.startswith("volmar ")
    return {
        "level": as_percent(REJECT_LEVEL),
        "n_rejected": n_rejected,
        "n_rows": len(p),
        "share": as_percent(n_rejected / max(len(p), 1)),
        "few": listed(names) if names else "",
        "command": f"volmar predict MODEL TABLE --reject {REJECT_LEVEL:g} -o labels.csv"
        if is_command
        else f"model.predict(new_rows, reject={REJECT_LEVEL:g})",
    }


# ------------------------------------------------------------------------------ the tree of splits


def tree_lines(outcome: Outcome) -> dict[str, Any] | None:
    """Return the nodes of the tree of splits from the root down, None without splits.

    They are a flat list, because a tree may be deeper than Python's recursion limit. `closes` is
    the number of nested HTML lists that end after a node.
    """
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is None or not tree.splits():
        return None
    note = "Sizes are numbers of the rows that the splits were fitted to."
    if tree.root.n_rows == len(outcome.labels):
        note = tree.size_note([int(np.sum(outcome.labels == c)) for c in range(tree.n_leaves)])
    total = tree.root.n_rows
    place = {label: i for i, label in enumerate(outcome.clusters.tolist())}
    lines: list[dict[str, Any]] = []
    stack = [(tree.root, 0)]
    while stack:
        node, closes = stack.pop()
        lines.append(
            {
                "n_rows": node.n_rows,
                "share": node.n_rows / total,
                "rank": node.rank,
                "cluster": place.get(node.label),
                "is_leaf": node.is_leaf,
                "p": node.p_text,
                "level": None if np.isnan(node.level) else f"{node.level:.2g}",
                "probability": None if np.isnan(node.probability) else node.probability,
                "evidence": "" if np.isnan(node.effect) else node.evidence_text,
                "leading": [_column(outcome, j) for j, _ in node.leading],
                # The lists of a split end after its last child.
                "closes": closes if node.is_leaf else 0,
            }
        )
        if not node.is_leaf:
            first, second = node.children
            stack += [(second, closes + 1), (first, 0)]
    return {
        "lines": lines,
        "tested": any(line["p"] for line in lines),
        "alpha": f"{100 * tree.root.level:.2g} %",
        "note": note,
    }


def _column(outcome: Outcome, feature: int) -> str:
    known = outcome.model is outcome.estimator and feature < len(outcome.feature_names)
    return shortened(str(outcome.feature_names[feature])) if known else f"x{feature}"


def best_split(outcome: Outcome) -> dict[str, Any] | None:
    """Return sizes, histogram, columns and command of the best split without evidence."""
    if outcome.best_split is None:
        return None
    two = outcome.in_two()
    lead = np.nan_to_num(two.lead)
    moments = cluster_moments(two.X, two.codes, two.k)
    driving = drivers(two, moments)
    leading: Any = () if driving is None else driving.features[:4]
    return {
        "sizes": [int(size) for size in moments.sizes],
        "histogram": bars(two, lead, two.codes),
        "columns": [shortened(str(two.feature_names[j])) for j in leading],
        "command": outcome.best_split.command,
        "method": type(two.estimator).__name__,
    }


# ------------------------ the sections "Other numbers of clusters" and "Silhouettes" of the report


# Size of the flow chart in SVG units, width of a block, and margin.
WIDTH, HEIGHT, BLOCK, MARGIN = 1000.0, 300.0, 14.0, 30.0


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
        "words": _numbers_words(found),
    }


def _numbers_words(found: NumberComparison) -> str:
    """Return a sentence on the numbers for which all clusters are separated."""
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
        # More than 120 bars would be thinner than a pixel.
        some = np.linspace(0, values.size - 1, min(values.size, 120)).astype(int)
        share = float(found.shares[i])
        blocks.append(
            {
                "cluster": i,
                "mean": as_number(float(mean), 2, pad=True),
                "negative": int(np.count_nonzero(values < 0)),
                "path": _outline(values[some], low, span),
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
