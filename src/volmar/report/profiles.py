"""The section of the report on differences between the clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.diagnostics import (
    ClusterDescription,
    Difference,
    describe_clusters,
    suggested_names,
)
from volmar.diagnostics.column_profiles import day_text
from volmar.report.outcome import Outcome
from volmar.report.text import as_mean, as_percent, shortened, signed

__all__ = ["border_rows", "description_of", "profiles"]

# Effect of the longest bar, in standard deviations; larger effects have the same bar.
LONGEST_BAR = 4.0
# Number of rows per cluster that are listed as nearest to a border.
N_BORDER = 3
NOTE = "It was not tested whether other rows would show the same differences."


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
    p = len(found.columns)
    scales = np.ones(p) if outcome.scales is None else outcome.scales
    offsets = np.zeros(p) if outcome.offsets is None else outcome.offsets
    named = replace(found, clusters=outcome.clusters[found.clusters].tolist(), note=NOTE)
    return named.in_units(offsets, scales)


def border_rows(outcome: Outcome, label: Any, count: int = N_BORDER) -> NDArray:
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
                    _row(one, found, spreads[one.column, one.level, one.kind]) for one in listed
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


def _row(one: Difference, found: ClusterDescription, spread: float) -> dict[str, Any]:
    size = min(abs(one.effect), LONGEST_BAR) / LONGEST_BAR
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
        "inside": _value(one.inside, one, found, spread),
        "outside": _value(one.outside, one, found, spread),
    }


def _value(value: float, one: Difference, found: ClusterDescription, spread: float) -> str:
    if one.kind in ("share", "missing"):
        return as_percent(value)
    if one.kind == "date":
        return day_text(value)
    if one.kind == "ordinal":
        return shortened(found.orders[one.column][round(value)], 20)
    return as_mean(value, spread)
