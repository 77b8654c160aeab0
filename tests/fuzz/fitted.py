"""The fitted attributes of an estimator, and those that may be undefined."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np

from fuzz.contract import require_finite

#: Fields that may be NaN or infinite, by class (or base class) and name, with the reason.
UNDEFINED = {
    "Result.gap": "no bound was proved",
    "Result.residuals": "a residual that is undefined",
    "VolumeResult.field_residual": "the field is not one of `FirstStep`",
    "AVRResult.errors": "the status is not CONVERGED, of which there is a warning",
    "SplitNode.probability": "no split of the part was looked for",
    "SplitNode.p_value": "splits are tested by AutoClusterer only",
    "SplitNode.level": "the same",
    "SplitNode.effect": "the border was not tested",
    "SplitNode.repeats": "the border was not tested, or not on halves",
    "SplitTestResult.repeats": "the halves were not needed",
    "MarginResult.lower_bound": "no bound was proved (the papers' loops)",
    "SeparationResult.lower_bound": "the bound was not computed",
    "SeparationResult.held_out_bound": "there was no race of starts",
    "SeparationResult.held_out_score": "the same",
    "NumberOfClusters.p_value": "there is no border",
    "NumberOfClusters.silhouette": "one cluster",
    "NumberOfClusters.separation": "one cluster",
    "NumberOfClusters.stability": "there were no resamples",
    "ClusterDescription.effect": "a side without values, or one that does not vary",
    "ClusterDescription.inside": "a cluster without known values",
    "ClusterDescription.outside": "the same",
    "ClusterDescription.spread": "the same",
    "ClusterDescription.evidence": "a column that was not tested",
    "ColumnProfile.effect": "columns that have no effect to measure, such as text",
    "ColumnProfile.quartiles": "a cluster without known values",
    "ColumnProfile.shares": "the same",
    "StabilityReport.si_gap": "not computed for this many rows",
    "StabilityReport.frozen_below": "Q is zero",
    "ResamplingStability.confidence": "rows that were in no resample",
    "min_cluster_weight_": "clusters are found by splitting again (MSPC)",
}


def fitted_of(model):
    """Return the public fitted attributes of an estimator; lazy arrays are computed."""
    found = {}
    for name, value in vars(model).items():
        if name.endswith("_") and not name.startswith("_"):
            found[name] = np.asarray(value) if hasattr(value, "dask") else value
    return found


def check_finite(model):
    """Refuse a number in a fitted attribute that is neither finite nor documented."""
    for name, value in fitted_of(model).items():
        check_numbers(name, value, (id(model),))


def check_numbers(path, value, above=(), owner=None):
    """Refuse a number in a value, at any depth, that is neither finite nor documented."""
    name = path.rpartition(".")[2]
    if name in UNDEFINED or _is_undefined(owner, name) or id(value) in above:
        return
    above = (*above, id(value))
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_numbers(f"{path}.{key}", item, above)
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            check_numbers(f"{path}.{one.name}", getattr(value, one.name), above, type(value))
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", [""] * len(value))
        for key, item in zip(names, value, strict=True):
            check_numbers(f"{path}.{key}" if key else path, item, above, type(value))
    elif type(value).__module__.startswith("volmar") and hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            if not key.startswith("_"):
                check_numbers(f"{path}.{key}", item, above, type(value))
    else:
        require_finite(path, value)


def _is_undefined(owner, name):
    bases = () if owner is None else owner.__mro__
    return any(f"{base.__name__}.{name}" in UNDEFINED for base in bases)
