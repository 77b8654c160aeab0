"""The section "All columns" of the report: a table with a small plot per column and cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from volmar.diagnostics import ColumnProfile, ColumnProfiles, column_profiles
from volmar.diagnostics.column_profiles import OTHER, day_text
from volmar.report.drivers import cluster_moments
from volmar.report.outcome import Outcome
from volmar.report.text import as_count, as_mean, as_percent, shortened

__all__ = ["all_columns", "profiles_of"]

# Number of columns that are not folded, and maximum number of plots on the page.
N_OPEN, MAX_CELLS = 20, 1200
# Maximum number of sparse columns that are described; text may have very many.
MAX_SPARSE = 400
# Number of levels of a category that are named; the bar shows all of them.
N_LISTED = 3
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
        shown = [_row(one, k) for one in every[:limit]]
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


def _row(one: ColumnProfile, k: int) -> dict[str, Any]:
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
    return _number(one, np.rint(value) if one.is_whole else value)


def _number(one: ColumnProfile, value: float) -> str:
    if one.kind == "date":
        return day_text(value)
    if one.is_whole and abs(value) < 1e7:
        # Quartiles of whole numbers may be halves, which matter for small numbers.
        places = 1 if abs(value) < 1000 else 0
        return f"{round(value, places) + 0.0:,.{places}f}".removesuffix(".0").replace("-", "−")
    return as_mean(value, _spread(one))


def _spread(one: ColumnProfile) -> float:
    """Return about a standard deviation; it determines the number of decimals."""
    assert one.quartiles is not None
    with np.errstate(all="ignore"):
        width = float(np.nanmean(one.quartiles[:, 2] - one.quartiles[:, 0])) / 1.35
        reach = float(np.nanmax(one.quartiles) - np.nanmin(one.quartiles)) / 3
    return max(width, reach) if np.isfinite(width) else 0.0


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
            "text": _number(one, middle),
            "low": _number(one, low),
            "high": _number(one, high),
        }
    start = np.concatenate([[0.0], np.cumsum(shares)])
    order = [j for j in np.argsort(-shares, kind="stable") if one.levels[j] != OTHER]
    listed = [j for j in order[:N_LISTED] if shares[j] > 0]
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
