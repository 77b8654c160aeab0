"""What may stand in a model file: classes of volmar, a few of scikit-learn, and attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import kernel_metrics
from sklearn.pipeline import Pipeline

import volmar

__all__ = [
    "attribute_fault",
    "class_named",
    "is_extension",
    "is_public_estimator",
    "known_functions",
    "name_of",
    "transformers",
]

# Rooms whose classes a fitted model is made of, and `tables` for how its rows were prepared.
ROOMS = (
    *("rows", "graphs", "operators", "solvers", "evidence.splits", "base"),
    *("volume", "margin", "separation", "baselines", "tables"),
    *("margin.engine", "margin.feature_space", "margin.multiway", "margin.relaxations"),
)
# What a `TableClusterer` is made of beside the rooms.
OF_TABLES = frozenset(
    {"volmar.table_clusterer.estimator", "volmar.report.evidence", "volmar.report.outcome"}
)
# Steps of pipelines: their transforms are arithmetic with arrays, and call nothing by a name.
TRANSFORMERS = (
    *("sklearn.preprocessing.MaxAbsScaler", "sklearn.preprocessing.MinMaxScaler"),
    *("sklearn.preprocessing.Normalizer", "sklearn.preprocessing.RobustScaler"),
    *("sklearn.preprocessing.StandardScaler", "sklearn.decomposition.PCA"),
    *("sklearn.decomposition.TruncatedSVD", "sklearn.impute.MissingIndicator"),
    "sklearn.impute.SimpleImputer",
)
# Calls a method by a name that it holds.
NOT_THESE = frozenset({"volmar.base.blocks"})


@cache
def _modules() -> frozenset[str]:
    """Modules of the rooms, as they lie on the disk."""
    of_rooms = frozenset(
        f"volmar.{room}.{module.name}"
        for room in ROOMS
        for module in iter_modules([str(Path(home, *room.split("."))) for home in volmar.__path__])
        if not module.ispkg
    )
    return (of_rooms | OF_TABLES).difference(NOT_THESE)


@cache
def transformers() -> dict[str, type]:
    """Classes of scikit-learn that may be steps of a pipeline, by their public names."""
    pairs = [name.rpartition(".") for name in TRANSFORMERS]
    return {f"{home}.{own}": getattr(import_module(home), own) for home, _, own in pairs}


@cache
def _of_scikit_learn() -> dict[str, type]:
    return {**transformers(), "sklearn.pipeline.Pipeline": Pipeline}


def name_of(cls: type) -> str | None:
    """Return the name under which a class stands in a file, None for one that may not."""
    if cls.__module__.startswith("sklearn."):
        return next((name for name, known in _of_scikit_learn().items() if known is cls), None)
    name = f"{cls.__module__}.{cls.__qualname__}"
    return name if class_named(name) is cls else None


def class_named(name: str) -> type | None:
    """Return the class of that name, None where a file may not name it.

    Nothing is imported but volmar's own modules and those of a few transformers of scikit-learn,
    all known by name before.
    """
    if name in _of_scikit_learn():
        return _of_scikit_learn()[name]
    home, _, own = name.rpartition(".")
    if home not in _modules():
        return None
    found = vars(import_module(home)).get(own)
    # An imported name belongs to the module that it comes from.
    return found if isinstance(found, type) and found.__module__ == home else None


def is_public_estimator(cls: type) -> bool:
    """Whether it is an estimator that `volmar` exports."""
    return getattr(volmar, cls.__name__, None) is cls


def is_extension(value: Any) -> bool:
    """Whether it extends a similarity to new points: its `weights` is held by graph methods."""
    cls = type(value)
    return cls.__module__.startswith("volmar.graphs.") and cls.__name__.endswith("Extension")


@cache
def known_functions() -> dict[str, Callable[..., Any]]:
    """Functions that a model may hold: scikit-learn's kernels, and rows of given similarities."""
    graph = import_module("volmar.graphs.graph")
    kernels = {f"kernel {name}": function for name, function in kernel_metrics().items()}
    return {"given similarities": graph._given_row_weights, **kernels}


@cache
def _own_names(cls: Any) -> frozenset[str]:
    """Attributes that instances may have: fields, or parameters of an estimator."""
    if is_dataclass(cls):
        return frozenset(field.name for field in fields(cls))
    if issubclass(cls, BaseEstimator):
        return frozenset(inspect.signature(cls).parameters)
    return frozenset()


@cache
def _needed_names(cls: Any) -> frozenset[str]:
    """Attributes that instances must have.

    A field with a default may be absent, in a file that is older than the field: the default is
    an attribute of the class.
    """
    if not is_dataclass(cls) or "__slots__" in vars(cls):
        return _own_names(cls)
    return frozenset(field.name for field in fields(cls) if field.default is MISSING)


def attribute_fault(cls: Any, names: Iterable[str]) -> str | None:
    """Return what is wrong with the attributes of an instance, None where nothing is.

    A dataclass has its fields, an estimator its parameters and names that begin or end with an
    underscore, as scikit-learn has it; any class has what its cached properties have found. No
    attribute may hide a method or another name of the class.
    """
    if issubclass(cls, Enum):
        return "has attributes of its own"
    own, names = _own_names(cls), set(names)
    for name in sorted(_needed_names(cls) - names):
        return f"lacks {name!r}"
    for name in sorted(names - own):
        static = inspect.getattr_static(cls, name, None)
        if isinstance(static, cached_property):
            continue
        if not name.isidentifier() or name.startswith("__") or static is not None:
            return f"has an attribute {name!r:.60}, which is not one of its own"
        is_private = name.startswith("_") or name.endswith("_")
        if is_dataclass(cls) or (issubclass(cls, BaseEstimator) and not is_private):
            return f"has an unknown attribute {name!r:.60}"
    return None
