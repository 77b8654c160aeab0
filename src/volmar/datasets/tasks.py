"""Find the classes and rows for a name: whole data sets, pairs, topics, named subsets."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any

from volmar.datasets.registry import BASES, GENERATED, TABLES, Base


@dataclass(frozen=True)
class Task:
    """The data set for a name: groups of classes of a base data set, in the order of labels."""

    name: str
    base: Base
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    rows: str = ""  # key of the array of row numbers in the file
    first_column: str = ""  # key of an array in the file that becomes the first feature
    n_samples: int | None = None  # fixed size of the random subset
    differs: str = ""

    @property
    def file_only(self) -> bool:
        """Whether the data set needs an array that only the file has."""
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
    """Return the names of the data sets that `load` can load.

    In addition, `load` accepts any pair of classes of a data set with at least three classes:
    ``"mnist-4v9"``, ``"letter-KvP"``, ``"satellite-3v4"``, ``"usps-9298-0v6"`` or
    ``"20news-crypt-v-space"``. Newsgroups are given by their last word, their full name or a
    topic.

    Returns
    -------
    names : list of str
        Sorted names.

    Examples
    --------
    >>> from volmar.datasets import list_datasets
    >>> "ionosphere" in list_datasets()
    True
    """
    return sorted({*_TASKS, *TABLES["pairs"], *GENERATED})


def find_task(name: str) -> Task:
    """Return the task for a name. Raise `ValueError` with similar names if it is unknown."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {name!r}. list_datasets() returns all names.")
    task = _TASKS.get(name) or _pair(name)
    if task is None:
        near = difflib.get_close_matches(name, list_datasets(), n=3)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise ValueError(
            f"name={name!r} is not a known data set. {hint}list_datasets() returns all names."
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
                    f"name={name!r}: {base.name!r} has no class {side!r}. Choose from "
                    f"{', '.join(sorted(tokens))}."
                )
        groups = [(side, tokens[side]) for side in sides]
        if set(groups[0][1]) & set(groups[1][1]):
            raise ValueError(
                f"name={name!r}: the two sides have a class in common. Give two disjoint sides."
            )
        names = {row.code: row.label for row in base.classes}
        named = [(names[codes[0]] if len(codes) == 1 else side, codes) for side, codes in groups]
        return Task(name, base, tuple(named))
    return None
