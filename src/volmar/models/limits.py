"""Limits on the depth and size of the values of a model file, checked before they are created.

A node may be referenced any number of times. A short file can therefore describe a value that is
astronomically large when all references are expanded, such as sixty tuples, each of which holds
the previous one twice. To hash, print, compare or clone such a value would never end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["MAX_DEPTH", "MAX_EXPANDED", "extent_fault"]

#: Maximum nesting depth of values; a fitted model has a depth of about ten. Trees of splits are
#: not counted, because they are never traversed by recursion.
MAX_DEPTH = 50
#: Maximum number of values when every reference is expanded. Eight characters count as one value.
MAX_EXPANDED = 2**24
_TREE = "SplitNode/"
_TOO_LARGE = f"holds more than {MAX_EXPANDED:,} values when every reference is expanded"


def extent_fault(nodes: list[Any]) -> str | None:
    """Return why nodes are too deep or too large, or None if they are not.

    Nodes may be malformed. A value that is not a reference to an earlier node counts as one.
    """
    depths: list[int] = []
    sizes: list[int] = []
    is_used = bytearray(len(nodes))
    for number, node in enumerate(nodes):
        is_tree = isinstance(node, dict) and str(node.get("class"))[: len(_TREE)] == _TREE
        depth = size = 1
        for value, is_child in _values(node, is_tree=is_tree):
            place = _place(value, number)
            if place is None:
                size += 1 + (len(value) // 8 if isinstance(value, str) else 0)
            else:
                is_used[place] = 1
                size += sizes[place]
                depth = max(depth, 1 if is_child else 1 + depths[place])
            if size > MAX_EXPANDED:
                return _TOO_LARGE
        if depth > MAX_DEPTH:
            return f"is nested more than {MAX_DEPTH} levels deep"
        depths.append(depth)
        sizes.append(size)
    # Nodes without references to them are the model, its preparation, or unused.
    if sum(size for size, used in zip(sizes, is_used, strict=True) if not used) > MAX_EXPANDED:
        return _TOO_LARGE
    return None


def _place(value: Any, number: int) -> int | None:
    """Return the number of the earlier node that a value references, None for other values."""
    place = value.get("ref") if type(value) is dict else None
    return place if type(place) is int and 0 <= place < number else None


def _values(node: Any, *, is_tree: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the values of a node, and whether each is a child in a tree of splits."""
    stack: list[tuple[Any, bool]] = [(node, False)]
    while stack:
        value, is_child = stack.pop()
        if type(value) is dict and "ref" not in value:
            stack.extend((part, is_tree and name == "children") for name, part in value.items())
        elif type(value) is list:
            stack.extend((part, is_child) for part in value)
        else:
            yield value, is_child
