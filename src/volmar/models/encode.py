"""Encode a fitted model as a list of nodes of plain values, and a list of arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from types import FunctionType, MappingProxyType, MethodType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._npy import ARRAY_KINDS
from volmar.base import SplitTree
from volmar.base.warm_start import WarmStart, default_start, is_model
from volmar.graphs.neighbors import (
    CellBackend,
    ExactBackend,
    FaissBackend,
    PyNNDescentBackend,
)
from volmar.models.classes import attribute_fault, is_extension, known_functions, name_of

__all__ = ["Encoder", "is_key", "is_short"]

# Attributes that scikit-learn sets for callbacks during a fit.
_WATCHING = ("_skl_callback", "_callback_fit_ctx")
# Indices of neighbour searches, which are rebuilt when first needed.
_INDICES = ("_index", "_quantizer")
# Maximum number of characters of a path in messages, and of parts of a tuple as key.
_MAX_PATH, _MAX_KEY = 200, 2
_PLAIN = (bool, int, str, type(None))
_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set"}
_MAPPINGS: dict[type, str] = {dict: "dict", MappingProxyType: "proxy"}


def is_key(value: Any) -> bool:
    """Return whether a value may be a key or a member of a set: a plain value or a pair.

    Longer tuples are not allowed. It is easy to create many with the same hash, and a dict of them
    would take forever.
    """
    parts = value if type(value) is tuple and len(value) <= _MAX_KEY else (value,)
    return all(isinstance(part, (*_PLAIN, float, Enum)) for part in parts)


def is_short(value: Any) -> bool:
    """Return False for integers of more than 64 bits, which no fitted model has."""
    return type(value) is not int or -(2**63) <= value < 2**64


class _Place:
    """The path to a value, which is formatted only for an error message."""

    __slots__ = ("parent", "step")

    def __init__(self, parent: _Place | None, step: str):
        self.parent, self.step = parent, step

    def __str__(self) -> str:
        steps, place = [], self
        while place.parent is not None:
            steps.append(place.step)
            place = place.parent
        path = "".join(reversed(steps))
        return place.step + (path if len(path) <= _MAX_PATH else f" ... {path[-_MAX_PATH:]}")


class Encoder:
    """Encode values as nodes, which hold plain values and references to earlier nodes.

    An object that occurs twice is one node. Cycles raise an error. There is no recursion, so
    models may be nested to any depth.
    """

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.arrays: list[NDArray] = []
        self._number: dict[int, int] = {}
        # Keep objects alive, so that their ids are not reused.
        self._kept: list[Any] = []
        self._states: dict[int, tuple[Any, dict[str, Any]]] = {}

    def add(self, value: Any, path: str) -> Any:
        """Encode a value, and return its plain value or reference. Messages name it as `path`."""
        open_: set[int] = set()
        stack = [(value, _Place(None, path), False)]
        while stack:
            item, where, is_done = stack.pop()
            if not is_short(item):
                raise TypeError(f"{where} is an integer of more than 64 bits. Use a smaller one.")
            if _is_inline(item) or id(item) in self._number:
                continue
            if is_done:
                open_.discard(id(item))
                node = self._node(item, where)
                self._number[id(item)] = len(self.nodes)
                self.nodes.append(node)
                self._kept.append(item)
                continue
            if id(item) in open_:
                raise TypeError(
                    f"{where} contains itself, which cannot be saved. Remove the cycle."
                )
            open_.add(id(item))
            stack.append((item, where, True))
            # In order, so that an error names the parameter `kernel`, not a derived attribute.
            parts = [(part, _Place(where, step), False) for part, step in self._parts(item, where)]
            stack.extend(reversed(parts))
        return self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, float) and type(value) is float and not math.isfinite(value):
            return {"float": repr(value)}
        if _is_inline(value):
            return str(value) if isinstance(value, str) else value
        return {"ref": self._number[id(value)]}

    def _parts(self, item: Any, path: _Place) -> Iterator[tuple[Any, str]]:
        """Yield the values inside an item, which are encoded before it, with the step to each."""
        if type(item) in _SEQUENCES:
            yield from ((part, f"[{i}]") for i, part in enumerate(item))
        elif type(item) in _MAPPINGS:
            for key, part in item.items():
                yield key, " (a key)"
                yield part, f"[{key!r:.40}]"
        elif isinstance(item, MethodType):
            yield item.__self__, ".__self__"
        else:
            state = self._state(item, path)
            yield from ((part, f".{name}") for name, part in state.items())

    def _state(self, item: Any, path: _Place) -> dict[str, Any]:
        """Return the attributes of an object, the same ones at every call."""
        if id(item) not in self._states:
            self._states[id(item)] = item, _state(item, path)
        return self._states[id(item)][1]

    def _node(self, item: Any, path: _Place) -> dict[str, Any]:
        kind = type(item)
        if kind in _SEQUENCES:
            if kind is set:
                _check_keys(item, path)
                item = sorted(item, key=repr)  # otherwise the order would differ between runs
            return {"is": _SEQUENCES[kind], "items": [self._value(part) for part in item]}
        if kind in _MAPPINGS:
            _check_keys(item, path)
            pairs = [[self._value(key), self._value(part)] for key, part in item.items()]
            return {"is": _MAPPINGS[kind], "items": pairs}
        if kind in (np.ndarray, np.memmap):
            return self._array(item, path)
        if isinstance(item, np.generic) and item.dtype.kind in ARRAY_KINDS:
            return {"is": "scalar", "dtype": item.dtype.str, "bytes": item.tobytes().hex()}
        if isinstance(item, np.dtype) and item.kind in ARRAY_KINDS:
            return {"is": "dtype", "name": item.str}
        if isinstance(item, MethodType) and item.__name__ == "weights":
            if is_extension(item.__self__):
                return {"is": "weights", "of": self._value(item.__self__)}
        elif callable(item) and not name_of(kind):
            for name, function in known_functions().items():
                if item is function:
                    return {"is": "function", "name": name}
        elif isinstance(item, Enum) and name_of(kind):
            return {"is": "enum", "class": name_of(kind), "name": item.name}
        parts = {name: self._value(part) for name, part in self._state(item, path).items()}
        if sparse.issparse(item):
            return {"is": "sparse", **parts}
        if isinstance(item, ExactBackend):
            return {"is": "search", **parts}
        fault = attribute_fault(kind, parts) if name_of(kind) else ""
        if fault is None:
            return {"is": "object", "class": name_of(kind), "state": parts}
        raise _refusal(item, path, fault)

    def _array(self, item: NDArray, path: _Place) -> dict[str, Any]:
        if item.dtype.kind == "O":
            if not all(_is_inline(value) for value in item.flat):
                raise TypeError(
                    f"{path} is an array of objects, which cannot be saved. Use numbers or "
                    "strings."
                )
            values = [self._value(value) for value in item.flat]
            return {"is": "object array", "shape": list(item.shape), "items": values}
        if item.dtype.kind not in ARRAY_KINDS or item.dtype.itemsize == 0:
            raise TypeError(
                f"{path} is an array of dtype {item.dtype}, which cannot be saved. Use numbers or "
                "strings."
            )
        self.arrays.append(np.asarray(item))
        return {"is": "array", "file": f"arrays/{len(self.arrays) - 1}.npy"}


def _is_inline(value: Any) -> bool:
    return type(value) in (*_PLAIN, float, np.str_)


def _check_keys(items: Any, path: _Place) -> None:
    for key in items:
        if not is_key(key):
            raise TypeError(
                f"{path} has a key of type {type(key).__name__}, which cannot be saved. Use plain "
                "values or pairs of them as keys."
            )


def _state(item: Any, path: _Place) -> dict[str, Any]:
    if sparse.issparse(item):
        if item.ndim != 2:
            raise TypeError(
                f"{path} is a sparse array of {item.ndim} dimensions, which cannot be saved. Use "
                "a dense array."
            )
        matrix = item if item.format in ("csr", "csc") else item.tocsr()
        return {
            "format": matrix.format,
            "array": isinstance(matrix, sparse.sparray),
            "shape": tuple(int(size) for size in matrix.shape),
            **{name: getattr(matrix, name) for name in ("data", "indices", "indptr")},
        }
    if isinstance(item, ExactBackend):
        # The search tree is rebuilt from these.
        return {"rows": item._rows, "n_jobs": item.n_jobs}
    if isinstance(item, Enum) or not name_of(type(item)):
        return {}
    if not hasattr(item, "__dict__"):
        return {field.name: getattr(item, field.name) for field in fields(item)}
    if isinstance(item, SplitTree):
        return dict(vars(item))  # its nodes are encoded as objects, at any depth
    # Classes of volmar leave out factorisations and labels in blocks.
    state = dict(item.__getstate__() or {})
    if isinstance(item, WarmStart) and is_model(state.get("init")):
        state["init"] = default_start(item)  # the previous model is not saved with this one
    if isinstance(item, (CellBackend, FaissBackend, PyNNDescentBackend)):
        state = {name: part for name, part in state.items() if name not in _INDICES}
        state["_index"] = None
    return {name: part for name, part in state.items() if not name.startswith(_WATCHING)}


def _refusal(item: Any, path: _Place, fault: str) -> TypeError:
    kind = type(item)
    if isinstance(item, (np.random.RandomState, np.random.Generator)):
        return TypeError(
            f"{path} is a {kind.__name__}, whose state cannot be saved. Call "
            "set_params(random_state=None), or give an int, on the fitted model, and save it then."
        )
    is_own = kind.__module__.startswith("volmar.")
    if isinstance(item, (FunctionType, MethodType)) or (callable(item) and not is_own):
        name = getattr(item, "__qualname__", kind.__qualname__)
        return TypeError(
            f"{path} is a function ({name}), and a model file holds no code. Give a kernel or an "
            "affinity by its name, or precomputed."
        )
    if fault:
        return TypeError(f"{path} ({kind.__name__}) cannot be saved, because it {fault}.")
    return TypeError(
        f"{path} is a {kind.__module__}.{kind.__qualname__}, which cannot be saved. A model file "
        "holds numbers, strings, arrays and the classes in volmar.models.classes."
    )
