"""From a name to the classes and rows it means: whole sets, pairs, topics, named subsets."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any

from volmar.datasets.registry import BASES, GENERATED, TABLES, Base

__all__ = ["Task", "find_task", "list_datasets"]


@dataclass(frozen=True)
class Task:
    """What a name stands for: groups of classes of a base set, in label order."""

    name: str
    base: Base
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    rows: str = ""  # key of the file's array of row numbers
    first_column: str = ""  # key of the file's array put before the features
    n_samples: int | None = None  # size of the draw that the name itself means
    differs: str = ""

    @property
    def file_only(self) -> bool:
        """Whether it needs an array that no other copy of the base set has."""
        return bool(self.rows or self.first_column)


def _whole(base: Base) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((row.label, (row.code,)) for row in base.classes)


def _task(name: str, base: str, groups: dict[str, list[int]] | None = None, **more: Any) -> Task:
    if groups is None:
        return Task(name, BASES[base], _whole(BASES[base]), **more)
    return Task(name, BASES[base], tuple((key, tuple(g)) for key, g in groups.items()), **more)


_TASKS = {name: _task(name, name) for name in BASES}
_TASKS |= {name: _task(name, **row) for name, row in TABLES["task"].items()}
_PAIR_PATTERNS = (
    re.compile(r"(?P<base>.+)-(?P<first>[0-9A-Z]+)v(?P<second>[0-9A-Z]+)"),
    re.compile(r"(?P<base>[^-]+)-(?P<first>.+)-v-(?P<second>.+)"),
)


def list_datasets() -> list[str]:
    """Names that `load` knows, sorted.

    Besides these, any pair of classes of a set with three classes or more loads by name:
    ``"mnist-4v9"``, ``"letter-KvP"``, ``"satellite-3v4"``, ``"usps-9298-0v6"``,
    ``"20news-crypt-v-space"`` (a group's last word, its full name, or a topic).

    Returns
    -------
    names : list of str

    Examples
    --------
    >>> from volmar.datasets import list_datasets
    >>> "ionosphere" in list_datasets()
    True
    """
    return sorted({*_TASKS, *TABLES["pairs"], *GENERATED})


def find_task(name: str) -> Task:
    """Return what `name` stands for, or raise `ValueError` with the nearest names."""
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} must be a str; list_datasets() has the names")
    task = _TASKS.get(name) or _pair(name)
    if task is None:
        near = difflib.get_close_matches(name, list_datasets(), n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise ValueError(
            f"name={name!r} is not a known data set; {hint}list_datasets() has all names"
        )
    return task


def _pair(name: str) -> Task | None:
    for pattern in _PAIR_PATTERNS:
        match = pattern.fullmatch(name)
        if match is None or match["base"] not in BASES:
            continue
        base = BASES[match["base"]]
        tokens = base.tokens
        if not tokens:
            continue
        sides = [match["first"], match["second"]]
        for side in sides:
            if side not in tokens:
                raise ValueError(
                    f"name={name!r}: {base.name!r} has no class {side!r}; it has "
                    f"{', '.join(sorted(tokens))}"
                )
        groups = [(side, tokens[side]) for side in sides]
        if set(groups[0][1]) & set(groups[1][1]):
            raise ValueError(f"name={name!r}: the two sides share a class; name two that do not")
        names = {row.code: row.label for row in base.classes}
        named = [(names[codes[0]] if len(codes) == 1 else side, codes) for side, codes in groups]
        return Task(name, base, tuple(named))
    return None
