"""The data sets of sets.toml, and the classes and rows for a name: whole sets, pairs, subsets."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ClassRow:
    """A class: its stored label, its name and its number of rows."""

    code: int
    label: str
    count: int


@dataclass(frozen=True)
class Base:
    """A stored data set, before classes or rows are selected and features are scaled.

    `origin` describes only the file, and `differs` describes all copies. `unlabelled` is the
    number of rows of the file without a label, which are never returned.
    """

    name: str
    about: str
    n_features: int
    classes: tuple[ClassRow, ...]
    file: str = ""
    origin: str = ""
    differs: str = ""
    openml_id: int | None = None
    openml_labels: tuple[str, ...] = ()  # in the order of the classes, if they differ
    openml_counts: tuple[int, ...] = ()  # if OpenML has more rows than the file
    sklearn: str = ""  # the function of sklearn.datasets that loads it
    dtype: str = "float64"
    sparse: bool = False
    text: bool = False  # whether features are term counts, for TF-IDF
    grey: tuple[float, float] | None = None  # range of the grey values of an image
    n_train: int | None = None  # size of a realization, IDA collection
    missing: str = "keep"
    unlabelled: int = 0
    feature_names: tuple[str, ...] = ()
    pairs_by_label: bool = False  # whether names of pairs have labels in place of codes

    @property
    def tokens(self) -> dict[str, tuple[int, ...]]:
        """Names of classes in the name of a pair, and their codes."""
        if len(self.classes) <= 2:
            return {}
        if not self.text:
            by_label = self.pairs_by_label
            return {row.label if by_label else str(row.code): (row.code,) for row in self.classes}
        topics: dict[str, tuple[int, ...]] = {}
        short: dict[str, list[int]] = {}
        for row in self.classes:
            topic = row.label.split(".")[0]
            topics[topic] = (*topics.get(topic, ()), row.code)
            short.setdefault(row.label.rsplit(".", 1)[-1], []).append(row.code)
        unique = {word: tuple(codes) for word, codes in short.items() if len(codes) == 1}
        return unique | {row.label: (row.code,) for row in self.classes} | topics


@dataclass(frozen=True)
class Generated:
    """A data set that is drawn by a function of `volmar.datasets`."""

    name: str
    about: str
    function: str
    differs: str = ""


def _stored(name: str, row: dict[str, Any]) -> Base:
    row = {key: tuple(item) if isinstance(item, list) else item for key, item in row.items()}
    labels, counts = row.pop("classes"), row.pop("counts")
    codes = row.pop("codes", range(len(labels)))
    return Base(name, classes=tuple(map(ClassRow, codes, labels, counts)), **row)


TABLES = tomllib.loads(Path(__file__).with_name("sets.toml").read_text(encoding="utf-8"))
BASES: dict[str, Base] = {name: _stored(name, row) for name, row in TABLES["stored"].items()}
GENERATED = {name: Generated(name, **row) for name, row in TABLES["generated"].items()}


# --------------------------------------------------------------------- the data set for a name


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


def _task(name: str, base: str, groups: dict[str, list[int]] | None = None, **more: Any) -> Task:
    given = groups or {row.label: [row.code] for row in BASES[base].classes}
    return Task(name, BASES[base], tuple((key, tuple(g)) for key, g in given.items()), **more)


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
