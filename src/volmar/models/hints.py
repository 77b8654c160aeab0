"""Check that the attributes of an object have the types that its class declares.

The types are the annotations of dataclass fields, and of attributes in the bodies of other classes
of volmar. The annotations of estimator parameters are ignored, because `fit` checks parameters:
plain values, arrays and flat containers of plain values are accepted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from types import MethodType, NoneType, UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from volmar.models.classes import known_functions, name_of

__all__ = ["is_known_function", "is_numbers", "is_real", "type_fault"]

# Sizes of floats that compiled code accepts: float32 and float64.
_FLOAT_SIZES = (4, 8)
_CONTAINERS = (list, tuple, set)


def type_fault(cls: Any, parts: dict[str, Any]) -> str | None:
    """Return what is wrong with the types of attributes, or None."""
    hints, parameters = _hints(cls), _parameters(cls)
    for name, value in parts.items():
        if name in parameters:
            if not _is_parameter(value):
                return f"has a parameter {name!r} that is not a plain value or array"
        elif name in hints and not _fits(hints[name], value):
            return f"has a {type(value).__name__} as {name!r}"
    return None


def is_real(value: Any) -> bool:
    """Return whether a value is a real number."""
    return isinstance(value, (int, float)) or (
        isinstance(value, np.generic) and value.dtype.kind in "biuf"
    )


def is_known_function(value: Any) -> bool:
    """Return whether a value is one of the functions that a model may hold."""
    return any(value is function for function in known_functions().values())


def is_numbers(value: Any) -> bool:
    """Return whether a value is an array or sparse matrix of a dtype for compiled code."""
    if not isinstance(value, np.ndarray) and not sparse.issparse(value):
        return False
    dtype = value.dtype
    return dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize in _FLOAT_SIZES)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    if not cls.__module__.startswith("volmar."):
        return {}
    return {
        name: hint
        for name, hint in get_type_hints(cls).items()
        if hint is not Any and get_origin(hint) is not ClassVar and hint is not ClassVar
    }


@cache
def _parameters(cls: Any) -> frozenset[str]:
    is_estimator = issubclass(cls, BaseEstimator)
    return frozenset(inspect.signature(cls).parameters) if is_estimator else frozenset()


def _is_parameter(value: Any) -> bool:
    if type(value) is dict:  # a proxy can be neither copied nor cloned
        return all(_is_plain(key) and _is_plain(part) for key, part in value.items())
    if type(value) is list and value and all(type(part) is tuple for part in value):
        # Steps of a pipeline.
        return all(len(part) == 2 and _is_plain(part[0]) and _is_single(part[1]) for part in value)
    if type(value) in _CONTAINERS:
        return all(map(_is_plain, value))
    return _is_single(value)


def _is_single(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray) or sparse.issparse(value)
    is_known = bool(name_of(type(value))) or is_known_function(value)
    return _is_plain(value) or is_array or isinstance(value, np.dtype) or is_known


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, np.generic))


def _fits(hint: Any, value: Any) -> bool:
    origin, of = get_origin(hint), get_args(hint)
    if hint is Any:  # in a container: attributes that are any object have no entry
        return _is_plain(value)
    if origin in (Union, UnionType):
        return any(_fits(one, value) for one in of)
    if hint in (None, NoneType):
        return value is None
    if hint is float:
        return is_real(value)
    if hint is int:
        return is_real(value) and not isinstance(value, (float, np.floating))
    if hint is bool:
        return isinstance(value, (bool, np.bool_))
    if origin is np.ndarray:
        if not isinstance(value, np.ndarray):
            return False
        is_text = value.dtype.kind == "U" and _scalar(of) is np.str_
        return is_text or (is_numbers(value) and _has_kind(of, value))
    if origin is tuple:
        return type(value) is tuple and _are_items(of, value)
    if origin is list:
        return type(value) is list and all(_fits(of[0], item) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(of[0], key) and _fits(of[1], item) for key, item in value.items()
        )
    if origin is Sequence:
        is_sequence = isinstance(value, (list, tuple)) or (
            isinstance(value, np.ndarray) and value.ndim == 1
        )
        return is_sequence and all(_fits(of[0], item) for item in value)
    if origin is Callable:
        return isinstance(value, MethodType) or is_known_function(value)
    if not isinstance(hint, type):
        return True
    if getattr(hint, "_is_protocol", False):
        return name_of(type(value)) is not None and not isinstance(value, Enum)
    return isinstance(value, hint)


def _scalar(of: tuple[Any, ...]) -> Any:
    """Return the type of entries in the annotation of an array, or None if it has none."""
    return next(iter(get_args(of[1])), None) if len(of) == 2 else None


def _has_kind(of: tuple[Any, ...], value: Any) -> bool:
    """Return whether an array has the kind of its annotation, such as NDArray[np.float64]."""
    scalar = _scalar(of)
    if not isinstance(scalar, type) or not issubclass(scalar, np.generic):
        return True
    families = (np.floating, np.integer, np.bool_)
    return any(issubclass(scalar, one) and issubclass(value.dtype.type, one) for one in families)


def _are_items(of: tuple[Any, ...], value: tuple[Any, ...]) -> bool:
    if len(of) == 2 and of[1] is ...:
        return all(_fits(of[0], item) for item in value)
    return len(of) == len(value) and all(map(_fits, of, value))
