"""What a fit leaves on an estimator, and which of its numbers may be undefined."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np

from fuzz.contract import require_finite

#: Fields that are documented to be NaN, by their names, with the documented reason.
UNDEFINED = {
    "gap": "no bound was proved (Result)",
    "residuals": "a residual that is undefined (Result)",
    "probability": "no split of the part was looked for (SplitNode)",
    "p_value": "splits are tested with n_clusters='auto' only (SplitNode)",
    "level": "the same (SplitNode)",
    "lower_bound": "the bound was not computed (SeparationResult)",
    "held_out_bound": "there was no race of starts (SeparationResult)",
    "held_out_score": "the same (SeparationResult)",
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
        _check(name, value, (id(model),))


def _check(path, value, above):
    name = path.rpartition(".")[2]
    if name in UNDEFINED or id(value) in above:
        return
    above = (*above, id(value))
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check(f"{path}.{key}", item, above)
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            _check(f"{path}.{one.name}", getattr(value, one.name), above)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check(path, item, above)
    elif type(value).__module__.startswith("volmar") and hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            if not key.startswith("_"):
                _check(f"{path}.{key}", item, above)
    else:
        require_finite(path, value)
