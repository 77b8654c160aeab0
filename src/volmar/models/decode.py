"""Decode a model from nodes of plain values and arrays, without executing code from the file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._memory import available_memory
from volmar._npy import ARRAY_KINDS
from volmar.base import SplitTree
from volmar.base.tree import SplitNode
from volmar.graphs.neighbors import ExactBackend
from volmar.models.archive import Archive
from volmar.models.classes import (
    attribute_fault,
    class_named,
    defaults_of,
    is_cached,
    is_extension,
    known_functions,
)
from volmar.models.encode import is_key, is_short
from volmar.models.hints import is_numbers, type_fault
from volmar.models.limits import extent_fault
from volmar.models.rule_check import rule_fault

__all__ = ["Decoder"]

_SPARSE = {
    ("csr", True): sparse.csr_array,
    ("csc", True): sparse.csc_array,
    ("csr", False): sparse.csr_matrix,
    ("csc", False): sparse.csc_matrix,
}
# Maximum sum of the depths of all nodes of a tree, by which a printed tree is indented.
MAX_LEVELS = 10**7
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Decoder:
    """Decode the nodes of a file, from the first to the last.

    A node references only earlier nodes, so there are no cycles. Objects are created empty and
    then given their attributes: no constructor, no pickle method and no name from the file is
    called. Only the search trees of stored rows are computed.
    """

    def __init__(self, archive: Archive, nodes: Any):
        self._archive = archive
        self._made: list[Any] = []
        self._n_arrays = 0
        self._split_nodes: set[int] = set()
        self._budget = available_memory()
        makers: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
            "list": (lambda items: list(self._items(items)), ("items",)),
            "tuple": (lambda items: tuple(self._items(items)), ("items",)),
            "set": (lambda items: set(self._keys(items)), ("items",)),
            "dict": (self._dict, ("items",)),
            "proxy": (lambda items: MappingProxyType(self._dict(items)), ("items",)),
            "array": (self._array, ("file",)),
            "object array": (self._object_array, ("shape", "items")),
            "scalar": (self._scalar, ("dtype", "bytes")),
            "dtype": (self._dtype, ("name",)),
            "sparse": (self._sparse, ("format", "array", "shape", "data", "indices", "indptr")),
            "search": (self._search, ("rows", "n_jobs")),
            "weights": (self._weights, ("of",)),
            "function": (self._function, ("name",)),
            "enum": (self._enum, ("class", "name")),
            "object": (self._object, ("class", "state")),
        }
        fault = extent_fault(self._typed(nodes, list))
        if fault:
            raise archive.error(f"{fault}, unlike any fitted model")
        for node in nodes:
            parts = dict(self._typed(node, dict))
            kind = parts.pop("is", None)
            if not isinstance(kind, str) or kind not in makers:
                raise archive.error(f"has a node of an unknown kind, {kind!r:.60}")
            make, names = makers[kind]
            if set(parts) != set(names):
                raise archive.error(f"has a malformed node of kind {kind!r}")
            self._made.append(make(*(parts[name] for name in names)))
        if self._n_arrays != archive.n_arrays:
            raise archive.error("has unused arrays")

    def value(self, raw: Any) -> Any:
        """Return the value of a plain value or a reference."""
        if raw is None or type(raw) in (bool, int, float, str):
            if not is_short(raw):
                raise self._archive.error("has an integer of more than 64 bits")
            return raw
        if type(raw) is dict and len(raw) == 1:
            (kind, what), *_ = raw.items()
            if kind == "float" and type(what) is str and what in _FLOATS:
                return _FLOATS[what]
            if kind == "ref" and type(what) is int and 0 <= what < len(self._made):
                return self._made[what]
        raise self._archive.error(f"has {raw!r:.60} in place of a value or a reference")

    def _typed(self, raw: Any, kind: type) -> Any:
        if type(raw) is not kind:
            raise self._archive.error(f"has {raw!r:.60} in place of a {kind.__name__}")
        return raw

    def _items(self, raw: Any) -> list[Any]:
        return [self.value(item) for item in self._typed(raw, list)]

    def _keys(self, raw: Any) -> list[Any]:
        keys = self._items(raw)
        if not all(is_key(key) for key in keys):
            raise self._archive.error("has a key that is not a plain value or a pair")
        return keys

    def _dict(self, raw: Any) -> dict[Any, Any]:
        pairs = [self._typed(pair, list) for pair in self._typed(raw, list)]
        if any(len(pair) != 2 for pair in pairs):
            raise self._archive.error("has a dict with an entry that is not a key and a value")
        keys = self._keys([key for key, _ in pairs])
        return dict(zip(keys, self._items([item for _, item in pairs]), strict=True))

    def _array(self, name: Any) -> NDArray:
        # Arrays occur in the order in which they were written, each once.
        if name != f"arrays/{self._n_arrays}.npy":
            raise self._archive.error(f"names the array {name!r:.60} out of order")
        self._n_arrays += 1
        return self._archive.array(name)

    def _object_array(self, shape: Any, items: Any) -> NDArray:
        values = self._typed(items, list)
        sizes = self._typed(shape, list)
        if any(type(size) is not int or size < 0 for size in sizes) or (
            math.prod(sizes) != len(values)
        ):
            raise self._archive.error(
                f"has an array whose items do not fit the shape {shape!r:.60}"
            )
        array = np.empty(len(values), dtype=object)
        for i, item in enumerate(values):
            if type(item) is dict and "ref" in item:
                raise self._archive.error("has an array of objects that are not plain values")
            array[i] = self.value(item)
        return array.reshape(sizes)

    def _dtype(self, name: Any) -> np.dtype:
        # Only a letter and a size: NumPy parses commas and brackets as records.
        text = self._typed(name, str)
        is_short = len(text) < 24 and text.isascii() and "," not in text and "(" not in text
        try:
            dtype = np.dtype(text) if is_short else None
        except (TypeError, ValueError, SyntaxError):
            dtype = None
        if dtype is None or dtype.kind not in ARRAY_KINDS or dtype.str != text:
            raise self._archive.error(f"uses an unknown dtype {name!r:.60}")
        return dtype

    def _scalar(self, name: Any, raw: Any) -> Any:
        dtype = self._dtype(name)
        try:
            content = bytes.fromhex(self._typed(raw, str))
        except ValueError:
            content = b""
        is_truth = dtype.kind != "b" or content in (b"\0", b"\1")
        if not content or len(content) != dtype.itemsize or not is_truth or dtype.kind == "U":
            raise self._archive.error(f"has a malformed number of type {name}")
        return np.frombuffer(content, dtype)[0]

    def _sparse(
        self, layout: Any, is_array: Any, shape: Any, data: Any, indices: Any, indptr: Any
    ) -> Any:
        is_named = type(layout) is str and type(is_array) is bool
        cls = _SPARSE.get((layout, is_array)) if is_named else None
        size = self.value(shape)
        parts = [self.value(part) for part in (data, indices, indptr)]
        sound = (
            cls is not None
            and type(size) is tuple
            and [type(n) for n in size] == [int, int]
            and all(0 <= n < 2**63 for n in size)
            and all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts)
            and parts[0].dtype.kind in "biuf"
            and all(part.dtype in (np.int32, np.int64) for part in parts[1:])
        )
        if sound and cls is not None:
            self._spend(sum(part.nbytes for part in parts))
            try:
                matrix = cls(tuple(parts), shape=size)
                # Compiled code uses these indices without a check of their range.
                matrix.check_format(full_check=True)
            except (ValueError, IndexError, TypeError, OverflowError):
                pass
            else:
                return matrix
        raise self._archive.error("has a sparse matrix whose arrays do not fit together")

    def _search(self, rows: Any, n_jobs: Any) -> ExactBackend:
        points, n_jobs = self.value(rows), self.value(n_jobs)
        is_matrix = is_numbers(points) and points.ndim == 2 and points.dtype.kind == "f"
        if is_matrix:
            n_jobs = self._jobs(n_jobs)
            self._spend(3 * (points.data.nbytes if sparse.issparse(points) else points.nbytes))
            try:
                return ExactBackend(points, n_jobs)
            except (ValueError, TypeError):  # no rows, or not finite
                pass
        raise self._archive.error("has a search of neighbours without valid rows")

    def _jobs(self, n_jobs: Any) -> int | None:
        """Return a valid number of threads: the file may be from a machine with more cores."""
        if n_jobs is None:
            return None
        if type(n_jobs) is not int or n_jobs == 0:
            raise self._archive.error(f"has an invalid n_jobs={n_jobs!r:.40}")
        return max(-1, min(n_jobs, os.cpu_count() or 1))

    def _spend(self, n_bytes: int) -> None:
        """Raise `ModelError` if copies of arrays, stored once in the file, exceed the memory."""
        self._budget -= n_bytes
        if self._budget < 0:
            raise self._archive.error("needs more memory than is available")

    def _weights(self, raw: Any) -> Any:
        extension = self.value(raw)
        if not is_extension(extension):
            raise self._archive.error(f"has the weights of a {type(extension).__name__}")
        return extension.weights

    def _function(self, name: Any) -> Any:
        functions = known_functions()
        if self._typed(name, str) not in functions:
            raise self._archive.error(
                f"names a function {name!r:.60}, which is not on the list of allowed functions"
            )
        return functions[name]

    def _class(self, name: Any) -> type:
        cls = class_named(self._typed(name, str))
        if cls is None:
            raise self._archive.error(
                f"names a class {name!r:.80}, which this version of volmar does not know. No code "
                "was executed",
                "Install the version of volmar that wrote the file, or fit and save the model "
                "again.",
            )
        return cls

    def _enum(self, name: Any, member: Any) -> Enum:
        cls = self._class(name)
        if not issubclass(cls, Enum) or self._typed(member, str) not in cls.__members__:
            raise self._archive.error(f"has an unknown value of {name!r:.80}")
        return cls.__members__[member]

    def _object(self, name: Any, state: Any) -> Any:
        cls = self._class(name)
        parts = {key: self.value(part) for key, part in self._typed(state, dict).items()}
        for key, default in defaults_of(cls).items():
            parts.setdefault(key, default)
        for key in ("n_jobs", "_n_jobs"):
            if key in parts:
                parts[key] = self._jobs(parts[key])
        fault = attribute_fault(cls, parts) or type_fault(cls, parts)
        if fault:
            raise self._archive.error(f"has a {cls.__name__} that {fault}")
        made: Any = object.__new__(cls)
        # Cached properties are computed again, from attributes that have been checked.
        parts = {key: part for key, part in parts.items() if not is_cached(cls, key)}
        if hasattr(made, "__dict__"):
            vars(made).update(parts)
        else:
            for key, part in parts.items():
                object.__setattr__(made, key, part)
        if isinstance(made, SplitTree):
            self._check_tree(made)
        fault = rule_fault(made)
        if fault:
            raise self._archive.error(f"has a {cls.__name__} that {fault}")
        return made

    def _check_tree(self, tree: SplitTree) -> None:
        """Raise `ModelError` unless the nodes form a binary tree: every node has one parent."""
        seen = self._split_nodes  # of all trees, which must not share nodes either
        stack: list[Any] = [(tree.root, 0)]
        n_levels = 0
        while stack:
            node, depth = stack.pop()
            n_levels += depth
            is_node = isinstance(node, SplitNode) and isinstance(node.children, tuple)
            if not is_node or len(node.children) not in (0, 2) or id(node) in seen:
                raise self._archive.error("has a tree of splits that is not a binary tree")
            seen.add(id(node))
            stack.extend((child, depth + 1) for child in node.children)
            if n_levels > MAX_LEVELS:
                raise self._archive.error("has a tree of splits that is too deep")
        labels = [leaf.label for leaf in tree.leaves()]
        known = {label for label in labels if label is not None}
        if known and (None in labels or known != set(range(len(known)))):
            raise self._archive.error(
                "has a tree of splits whose clusters are not numbered from 0"
            )
        features = [feature for node in tree.nodes() for feature, _ in node.leading]
        names = tree.feature_names
        n_names = math.inf if names is None else len(names)
        if features and not 0 <= min(features) <= max(features) < n_names:
            raise self._archive.error("has a tree of splits with unknown features")
