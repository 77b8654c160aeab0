"""The shapes of the registry's rows: a stored set, its classes, its twin on OpenML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "Base",
    "ClassRow",
    "Generated",
    "OpenMLTwin",
    "many_classes",
    "twin",
    "two_classes",
    "words",
]


@dataclass(frozen=True)
class ClassRow:
    """A class: the label as stored, its name, its size, and its token in a pair's name."""

    code: int
    label: str
    count: int
    token: str = ""


@dataclass(frozen=True)
class OpenMLTwin:
    """The same set on OpenML: the labels there, in the order of the base's classes."""

    data_id: int
    labels: tuple[str, ...]
    counts: tuple[int, ...] | None = None  # where OpenML has more rows than the file


@dataclass(frozen=True)
class Base:
    """A data set as it is stored, before a choice of classes, rows or scaling.

    `origin` describes the file only, `differs` every copy. `unlabelled` is the number of
    rows of the file whose label is unknown; they are never returned.
    """

    name: str
    about: str
    n_features: int
    classes: tuple[ClassRow, ...]
    file: str = ""
    origin: str = ""
    differs: str = ""
    openml: OpenMLTwin | None = None
    sklearn: str = ""  # the function of sklearn.datasets that has it
    dtype: str = "float64"
    sparse: bool = False
    text: bool = False  # term counts, so TF-IDF makes sense
    grey: tuple[float, float] | None = None  # range of the grey values of an image
    n_train: int | None = None  # size of a realization, IDA collection
    missing: str = "keep"
    unlabelled: int = 0
    feature_names: tuple[str, ...] = ()

    @property
    def tokens(self) -> dict[str, tuple[int, ...]]:
        """What may stand on either side of the v in a pair's name, and the codes meant."""
        if len(self.classes) <= 2:
            return {}
        if not self.text:
            return {row.token or str(row.code): (row.code,) for row in self.classes}
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
    """A set drawn by a function of `volmar.datasets.generators`."""

    name: str
    about: str
    function: str
    differs: str = ""


def two_classes(
    first: str, n_first: int, second: str, n_second: int, *, codes: tuple[int, int] = (0, 1)
) -> tuple[ClassRow, ...]:
    """Return two classes by their names and sizes."""
    return ClassRow(codes[0], first, n_first), ClassRow(codes[1], second, n_second)


def many_classes(
    labels: Iterable[str], counts: str, *, first: int = 0, letters: bool = False
) -> tuple[ClassRow, ...]:
    """Return classes with consecutive codes; with `letters` a pair names them by label."""
    sizes = [int(word) for word in counts.split()]
    return tuple(
        ClassRow(code, label, size, label if letters else "")
        for code, (label, size) in enumerate(zip(labels, sizes, strict=True), start=first)
    )


def twin(data_id: int, labels: str) -> OpenMLTwin:
    """Return a twin with as many rows as the file; `labels` are words with spaces between."""
    return OpenMLTwin(data_id, tuple(labels.split()))


def words(text: str) -> tuple[str, ...]:
    """Split at commas."""
    return tuple(text.split(", "))
