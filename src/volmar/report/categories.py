"""Check whether categorical columns dominate the clusters of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volmar.report.drivers import Drivers
from volmar.report.outcome import Outcome
from volmar.report.text import listed, shortened

__all__ = ["Led", "led_by_categories"]

# Categorical columns dominate if they have at least this share of the weight of all columns.
LEADING = 0.5
# Maximum number of columns that the sentence names.
MAX_NAMED = 3


@dataclass(frozen=True)
class Led:
    """Caveat about dominating categories; `is_one_column` if one column dominates them all."""

    is_one_column: bool
    sentence: str


def led_by_categories(outcome: Outcome, driving: Drivers | None) -> Led | None:
    """Return a caveat if categorical columns dominate the clusters, else None.

    Categorical columns are those of `Outcome.categorical` and `Outcome.category_features`. If
    neither is given, they are taken from features named "column=value".
    """
    of_feature = [_categories(str(name), outcome) for name in outcome.feature_names]
    if outcome.k < 2 or not any(of_feature):
        return None
    if driving is not None and driving.values.size:
        columns, share = _weights(of_feature, driving.features, np.abs(driving.values))
        if share >= LEADING:
            return _led(columns, "the clusters")
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is None or outcome.model is not outcome.estimator:
        return None
    for node in tree.splits():
        features = np.array([j for j, _ in node.leading], dtype=np.int64)
        values = np.array([abs(value) for _, value in node.leading])
        columns, share = _weights(of_feature, features, values)
        if share >= LEADING:
            return _led(columns, f"split {node.rank}", everything=False)
    return None


def _categories(name: str, outcome: Outcome) -> tuple[str, ...]:
    """Return the categorical columns that a feature was made from."""
    if name in outcome.category_features:
        return tuple(outcome.category_features[name])
    if outcome.categorical is None:
        return (name.split("=", 1)[0],) if "=" in name else ()
    return tuple(c for c in outcome.categorical if name == c or name.startswith(f"{c}="))[:1]


def _weights(
    of_feature: list[tuple[str, ...]], features: NDArray, values: NDArray
) -> tuple[list[str], float]:
    """Return the categorical columns by weight, and their share of the total weight."""
    weight: dict[str, float] = {}
    for j, value in zip(features.tolist(), values.tolist(), strict=True):
        columns = of_feature[j] if j < len(of_feature) else ()
        for column in columns:
            weight[column] = weight.get(column, 0.0) + value / len(columns)
    total = float(values.sum())
    share = sum(weight.values()) / total if total > 0 else 0.0
    return sorted(weight, key=lambda column: -weight[column]), share


def _led(columns: list[str], what: str, *, everything: bool = True) -> Led:
    names = [f"'{shortened(column, 40)}'" for column in columns[:MAX_NAMED]]
    if len(columns) > MAX_NAMED:
        names.append(f"{len(columns) - MAX_NAMED} more")
    sentence = f"The categories of {listed(names)} dominate {what}"
    sentence += (
        ", which may only restate that column. Leave it out to see what the other columns show."
        if len(columns) == 1
        else ". These columns agree with each other. Leave them out to see what the others show."
    )
    return Led(len(columns) == 1 and everything, sentence)
