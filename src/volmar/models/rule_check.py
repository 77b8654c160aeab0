"""Check that the attributes of an object follow the rules of its class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import MethodType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.evidence.novelty.scatter import WIDE
from volmar.models.classes import is_public_estimator, name_of
from volmar.models.hints import is_known_function, is_numbers, is_real
from volmar.models.rules import RULES

__all__ = ["rule_fault"]

# Minimum scale of a column (as in `volmar.tables.number_features`), and maximum distance between
# rows of a table in units of the standard deviations.
SMALLEST_DIVISOR, LARGEST_DISTANCE = 1e-150, 1e100


def rule_fault(value: Any) -> str | None:
    """Return which attribute of an object does not fit the others, or None if all do."""
    sizes: dict[str, int] = {}
    # The clusterer that is a parameter of a `TableClusterer` is never fitted.
    is_fitted = not is_public_estimator(type(value)) or any(
        name.endswith("_") for name in vars(value)
    )
    for rule in _rules(type(value).__name__):
        part = rule.follow(value)
        if part is _ABSENT and rule.is_needed and is_fitted:
            return f"lacks {'.'.join(rule.way)!r}"
        if part is _ABSENT or (part is None and rule.is_optional):
            continue
        if not (rule.is_kind(part) and rule.binds(part, sizes)):
            return f"has a {'.'.join(rule.way)!r} that does not fit its other attributes"
    for rule in _rules(type(value).__name__):  # all sizes are known now
        part = rule.follow(value)
        if part is not _ABSENT and part is not None and not rule.holds(part, sizes):
            return f"has values of {'.'.join(rule.way)!r} that do not fit its other attributes"
    is_sound = _CHECKS.get(type(value).__name__) if is_fitted else None
    return None if is_sound is None or is_sound(value) else "has values that do not fit together"


_ABSENT: Any = object()


@cache
def _rules(name: str) -> tuple[_Rule, ...]:
    return tuple(map(_Rule.parse, RULES.get(name, ())))


@dataclass(frozen=True)
class _Rule:
    """A line of `RULES`."""

    way: tuple[str, ...]
    kinds: tuple[str, ...]
    is_optional: bool
    is_needed: bool
    dims: tuple[str, ...]
    flags: tuple[str, ...]

    @classmethod
    def parse(cls, line: str) -> _Rule:
        way, _, rest = line.partition(":")
        kind, *words = rest.split()
        flags = [word for word in words if word.partition(":")[0] in _FLAGS]
        return cls(
            tuple(way.split(".")),
            tuple(kind.rstrip("?!").split("|")),
            kind.endswith("?"),
            kind.endswith("!"),
            tuple(word for word in words if word not in flags),
            tuple(flags),
        )

    def follow(self, value: Any) -> Any:
        """Return the value at the end of the path. It is absent if a part of the path is."""
        for name in self.way:
            if value is None:
                return _ABSENT
            value = getattr(value, name, _ABSENT)
            if value is _ABSENT:
                return _ABSENT
        return value

    def is_kind(self, value: Any) -> bool:
        return any(
            _KINDS[kind](value) if kind in _KINDS else _is_class(kind, value)
            for kind in self.kinds
        )

    def binds(self, value: Any, sizes: dict[str, int]) -> bool:
        """Return whether the shape agrees with `sizes`, and add new dimensions to `sizes`."""
        if not self.dims:
            return not isinstance(value, np.ndarray) or value.ndim == 0
        shape = value.shape if hasattr(value, "shape") else _shape(value)
        n_required = sum(not dim.endswith("?") for dim in self.dims)
        if not n_required <= len(shape) <= len(self.dims):
            return False
        for dim, size in zip(self.dims, shape, strict=False):
            name = dim.rstrip("?")
            expected = int(name) if name.isdigit() else sizes.setdefault(name, size)
            if name != "*" and expected != size:
                return False
        return True

    def holds(self, value: Any, sizes: dict[str, int]) -> bool:
        """Return whether the values satisfy the flags."""
        values = value.data if sparse.issparse(value) else np.asarray(value)
        for flag in self.flags:
            name, _, of = flag.partition(":")
            if (of and of not in sizes) or (name == "number" and "names" in sizes):
                continue  # the dimension belongs to an attribute that is None
            if values.size and not _FLAGS[name](values, sizes.get(of, 0)):
                return False
        return True


def _shape(value: Any) -> tuple[int, ...]:
    return (len(value),) if isinstance(value, (list, tuple)) else ()


def _is_class(kind: str, value: Any) -> bool:
    """Return whether a value has a class of this name, or with this ending ("*Map")."""
    own = type(value).__name__
    is_named = own.endswith(kind[1:]) if kind.startswith("*") else own == kind
    is_search = own == "ExactBackend"  # created by the decoder, not by its name
    return is_named and (is_search or name_of(type(value)) is not None)


def _is_float(value: Any) -> bool:
    return is_real(value) or (is_numbers(value) and value.dtype.kind == "f")


def _is_int(value: Any) -> bool:
    if is_real(value):
        return not isinstance(value, (float, np.floating, bool, np.bool_))
    return is_numbers(value) and value.dtype.kind in "iu"


def _is_text(value: Any) -> bool:
    if isinstance(value, np.ndarray) and (value.ndim != 1 or value.dtype.kind not in "OU"):
        return False
    return isinstance(value, (list, tuple, np.ndarray)) and all(
        isinstance(item, str) for item in value
    )


_KINDS: dict[str, Callable[[Any], bool]] = {
    "any": lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "biufUO",
    "bool": lambda value: (
        isinstance(value, (bool, np.bool_))
        or (isinstance(value, np.ndarray) and value.dtype.kind == "b")
    ),
    "categories": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "estimator": lambda value: is_public_estimator(type(value)),
    "float": _is_float,
    "function": lambda value: isinstance(value, MethodType) or is_known_function(value),
    "int": _is_int,
    "list": lambda value: isinstance(value, list),
    "name": lambda value: isinstance(value, str),
    "names": lambda value: (
        isinstance(value, dict)
        and all(isinstance(one, str) for pair in value.items() for one in pair)
    ),
    "numbers": lambda value: (
        isinstance(value, dict)
        and all(isinstance(key, str) and is_real(part) for key, part in value.items())
    ),
    "slopes": lambda value: (
        isinstance(value, dict)
        and all(
            isinstance(key, tuple) and len(key) == 2 and all(map(_is_int, key)) and is_real(part)
            for key, part in value.items()
        )
    ),
    "real": lambda value: is_real(value) or is_numbers(value),
    "text": _is_text,
}


def _are_below(values: NDArray, limit: float) -> bool:
    return values.dtype.kind in "biuf" and values.min() >= 0 and values.max() < limit


_FLAGS: dict[str, Callable[[Any, float], bool]] = {
    "below": _are_below,
    "number": _are_below,
    "divisor": lambda values, _: bool((np.abs(values) >= SMALLEST_DIVISOR).all()),
    "finite": lambda values, _: bool(np.isfinite(values).all()),
    "is": lambda values, limit: values.max() == limit,
    "label": lambda values, limit: values.min() >= -1 and values.max() < limit,
    "nonzero": lambda values, _: bool((values != 0).all()),
    "positive": lambda values, _: bool((values > 0).all()),
    "sum": lambda values, limit: values.sum() == limit,
    "upto": lambda values, limit: values.min() >= 0 and values.max() <= limit,
}


def _are_tails(tails: Any) -> bool:
    """Return whether the logs exist: x + shift must be positive at the minima, `leasts`."""
    is_log = np.isfinite(tails.shifts)
    return bool((tails.leasts + tails.shifts > 0)[is_log].all())


def _are_fills(fills: Any) -> bool:
    """Return whether distances between rows do not overflow."""
    with np.errstate(all="ignore"):
        distances = np.abs((fills.donors - fills.medians) / fills.scales)
    return not np.isinf(fills.donors).any() and not (distances > LARGEST_DISTANCE).any()


def _are_scores(scores: Any) -> bool:
    k = scores.widths.size
    return len(scores.weights) == len(scores.columns) and all(
        weights.ndim == 2 and len(weights) and weights.shape[1] == k and np.isfinite(weights).all()
        for weights in scores.weights
    )


def _are_starts(starts: Any, n: int) -> bool:
    """Return whether start indices divide n entries into consecutive ranges."""
    is_ordered = bool((np.diff(starts) >= 0).all())
    return starts.size > 0 and starts[0] == 0 and starts[-1] == n and is_ordered


def _is_scatter(scatter: Any) -> bool:
    """Return whether sizes agree: columns with the sketch, covariances with the clusters."""
    q = scatter.mean.size
    n_columns = q if scatter.sketch is None else scatter.sketch.bucket.size
    return (
        _are_starts(scatter.starts, len(scatter.centers))
        and len(scatter.axes) in (1, scatter.starts.size - 1)
        and n_columns == scatter.n_features
        and (scatter.sketch is None or q == WIDE)
    )


def _is_novelty(novelty: Any) -> bool:
    k = novelty.n_rows.size
    sizes = novelty.starts.size, novelty.scatter.starts.size
    ranges = list(zip(novelty.starts[:-1], novelty.starts[1:], strict=True))
    return (
        sizes == (k + 1, k + 1)
        and _are_starts(novelty.starts, novelty.distances.size)
        and bool((novelty.n_rows >= 0).all() and (novelty.counts >= 0).all())
        and all((np.diff(novelty.distances[a:b]) > 0).all() for a, b in ranges)
        and all(
            (novelty.counts[a:b] <= n).all()
            for (a, b), n in zip(ranges, novelty.n_rows, strict=True)
        )
    )


def _is_sketch(sketch: Any) -> bool:
    bucket = sketch.bucket
    is_inside = bucket.size > 0 and bucket.min() >= 0 and bucket.max() < WIDE
    return bool(is_inside and (np.abs(sketch.sign) == 1).all())


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "CategoryScores": _are_scores,
    "ClusterNovelty": _is_novelty,
    "ClusterScatter": _is_scatter,
    "Fills": _are_fills,
    "Sketch": _is_sketch,
    "Tails": _are_tails,
}
