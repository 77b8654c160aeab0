"""The data sets of sets.toml: files, classes, and copies on OpenML."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
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
    """A data set that is drawn by a function of `volmar.datasets.generators`."""

    name: str
    about: str
    function: str
    differs: str = ""


def _stored(name: str, row: dict[str, Any]) -> Base:
    row = {key: tuple(item) if isinstance(item, list) else item for key, item in row.items()}
    labels, counts = row.pop("classes"), row.pop("counts")
    codes = row.pop("codes", range(len(labels)))
    return Base(name, classes=tuple(map(ClassRow, codes, labels, counts)), **row)


TABLES = tomllib.loads((files("volmar.datasets") / "sets.toml").read_text(encoding="utf-8"))
BASES: dict[str, Base] = {name: _stored(name, row) for name, row in TABLES["stored"].items()}
GENERATED = {name: Generated(name, **row) for name, row in TABLES["generated"].items()}
