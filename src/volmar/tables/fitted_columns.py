"""`FittedColumns`: apply a fitted preparation to the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar.tables.agreement import CategoryScores
from volmar.tables.columns import Columns, fitted_places
from volmar.tables.errors import TableError, quoted_names, shown
from volmar.tables.fills import Filled
from volmar.tables.kinds import ColumnKind
from volmar.tables.missing import without_infinite, without_missing, without_missing_sparse
from volmar.tables.number_features import NumberFeatures
from volmar.tables.prepared_table import PreparedTable

__all__ = ["FittedColumns", "KeptRows", "beyond_float64"]

# Values near the limits of float64 may overflow in between. `FittedColumns._finish` raises an
# error if the features are not finite.
beyond_float64 = np.errstate(over="ignore", invalid="ignore")


@dataclass
class KeptRows:
    """The kept rows before scaling: numbers, codes, filled-in values and the outlying rows."""

    numbers: Any
    codes: list[NDArray[np.intp]]
    kept: NDArray[np.bool_]
    filled: Filled | None = None
    outlying: NDArray[np.bool_] | None = None


class FittedColumns:
    """The fitted state of `Preparation`, and its application to rows."""

    id_column: str | None
    scale: str
    missing: str
    n_features_in_: int
    names_in_: list[str]
    numbers_: list[str]
    number_kinds_: list[ColumnKind]
    number_features_: NumberFeatures | None
    texts_: list[str]
    categories_: dict[str, list[str]]
    scores_: CategoryScores | None
    feature_names_: list[str]

    @property
    def used_(self) -> list[str]:
        """Columns that are used for features: numeric ones first, then categorical ones."""
        return [*self.numbers_, *self.texts_]

    @property
    def offsets_(self) -> NDArray[np.float64]:
        """Offsets subtracted from features; 0 for scores, which have mean 0 and variance 1."""
        known: Any = [] if self.number_features_ is None else self.number_features_.offsets
        return np.pad(known, (0, len(self.feature_names_) - len(known)))

    @property
    def scales_(self) -> NDArray[np.float64]:
        """Scales by which features are divided; 1 for scores of categories."""
        known: Any = [] if self.number_features_ is None else self.number_features_.scales
        return np.pad(known, (0, len(self.feature_names_) - len(known)), constant_values=1.0)

    @property
    def category_features_(self) -> dict[str, tuple[str, ...]]:
        """Features that are scores of categories, and the columns with the largest weights."""
        if self.scores_ is None:
            return {}
        names = self.feature_names_[len(self.numbers_) :]
        return {n: tuple(c) for n, c in zip(names, self.scores_.leading, strict=True)}

    def _names_of_features(self, called: dict[str, str]) -> list[str]:
        """Return the names of the features. `called` maps columns to other names."""
        names, features = [], self.number_features_
        for k, (name, kind) in enumerate(zip(self.numbers_, self.number_kinds_, strict=True)):
            own = called.get(name, name)
            if features is not None and features.is_log(k):
                own = f"log({own})"
            elif kind.kind == "date":
                own = f"{own} (year)"
            names.append(own)
        if self.scores_ is not None:
            for k, leading in enumerate(self.scores_.leading):
                number = f" {k + 1}" if self.scores_.n_scores > 1 else ""
                quoted = quoted_names([called.get(name, name) for name in leading], 3)
                names.append(f"categories{number} ({quoted})")
        return names

    @beyond_float64
    def _new_rows(self, table: Columns, notes: list[str], warnings: list[str]) -> KeptRows:
        """Return new rows before scaling; values that are not understood give `warnings`."""
        if table.is_sparse:
            table = table.padded(self.names_in_)
        places = fitted_places(table, self.numbers_, self.names_in_)
        features = self.number_features_
        if table.is_sparse and (features is None or self.scale == "none") and not self.texts_:
            X, kept = without_missing_sparse(
                table, table.csr(places), self.numbers_, self.missing, notes, fitted=True
            )
            return KeptRows(X, [], kept)
        X, infinite = without_infinite(table.numbers(places, self.number_kinds_, warnings))
        codes = [self._new_codes(table, name, warnings) for name in self.texts_]
        notes += warnings
        place = set(self.names_in_)
        X, codes, kept = without_missing(table, self.used_, X, codes, self.missing, notes)
        # The indicators "x is missing" of missing="indicator" are no columns of the table.
        own = [code < 0 for name, code in zip(self.texts_, codes, strict=True) if name in place]
        empty = np.logical_and.reduce([np.isnan(X).all(axis=1), *own])
        if n_empty := int(np.count_nonzero(empty)):
            warnings.append(
                f"{n_empty:,} of {table.n_rows:,} rows have no value in any column of the model. "
                "They are in the cluster of the medians of the columns. Leave these rows out, or "
                "reject them with reject=0.01."
            )
        # A row without values, or with a value too far out to be used, is not an ordinary row.
        outlying, filled = empty | infinite[kept], None
        if features is not None:
            X, filled, far = features.complete(X, notes)
            outlying |= far
        return KeptRows(X, codes, kept, filled, outlying)

    def _new_codes(self, table: Columns, name: str, notes: list[str]) -> NDArray[np.intp]:
        """Return the fitted codes: -1 for missing, the number of categories for a new value."""
        of = name.removesuffix(" is missing")
        if self.missing == "indicator" and name not in self.names_in_ and of != name:
            (j,) = fitted_places(table, [of], self.names_in_)
            kind = self.number_kinds_[self.numbers_.index(of)]
            # Words among numbers are missing, as in the fitted table. They were noted before.
            return np.isnan(table.numbers([j], [kind], [])[:, 0]).astype(np.intp)
        (j,) = fitted_places(table, [name], self.names_in_)
        codes, found = table.categories(j)
        known = self.categories_[name]
        place = {value: k for k, value in enumerate(known)}
        if new := [value for value in found if value not in place]:
            notes.append(
                f"column {shown(name)} has values that are not in the fitted table, treated as "
                f"missing: {quoted_names(new)}; write them as there, such as "
                f"{quoted_names(known, 3)}"
            )
        moved = np.array([*(place.get(value, len(known)) for value in found), -1], dtype=np.intp)
        return moved[codes]

    @beyond_float64
    def _finish(
        self, table: Columns, rows: KeptRows, notes: list[str], warnings: list[str]
    ) -> PreparedTable:
        if self.id_column is None:
            ids, id_name = table.row_names()
        else:
            ids, id_name = table.ids(self.id_column), self.id_column
            if len(set(ids.tolist())) < len(ids):
                notes.append(f"some values of the id column {shown(id_name)} are repeated")
        has_steps = self.number_features_ is not None and self.number_features_.has_steps
        has_noise = rows.filled is not None or self.scores_ is not None or has_steps
        X = self._scaled(rows)
        self._refuse_infinite(table.source, X)
        return PreparedTable(
            X,
            ids if rows.kept.all() else ids[rows.kept],
            id_name,
            list(self.feature_names_),
            rows.kept,
            notes,
            warnings,
            partial(self._dithered, filled=rows.filled) if has_noise else None,
            rows.outlying,
        )

    def _refuse_infinite(self, source: str, X: Any) -> None:
        if sp.issparse(X) or np.isfinite(X.sum()):
            return
        wrong = np.flatnonzero(~np.isfinite(X).all(axis=0))
        if wrong.size:
            raise TableError(
                f"{source}: values of {shown(self.feature_names_[wrong[0]])} are too near the "
                "limits of float64 to be scaled. Change the unit of this column, or name it in "
                "drop=."
            )

    @property
    def is_noisy(self) -> bool:
        """Whether `PreparedTable.dithered` may differ from the features of the rows."""
        features = self.number_features_
        has_own = features is not None and (features.has_steps or features.fills is not None)
        return has_own or self.scores_ is not None

    def _scaled(self, rows: KeptRows) -> Any:
        X, p, features = rows.numbers, len(self.numbers_), self.number_features_
        if sp.issparse(X):
            return X
        if features is None or (self.scale == "none" and self.scores_ is None):
            X = np.ascontiguousarray(X)
            return X if X.flags.writeable else X.copy()
        out = np.empty((int(rows.kept.sum()), len(self.feature_names_)))
        features.scale_into(out[:, :p], X)
        if self.scores_ is not None:
            out[:, p:] = self.scores_.transform(rows.codes)
        return out

    @beyond_float64
    def _dithered(
        self, X: NDArray[Any], rng: np.random.Generator, *, filled: Filled | None
    ) -> NDArray[Any]:
        X, p = X.copy(), len(self.numbers_)
        if self.number_features_ is not None:
            self.number_features_.dither_into(X[:, :p], rng, filled)
        if self.scores_ is not None:
            widths = self.scores_.widths
            X[:, p:] += rng.uniform(-0.5, 0.5, (len(X), widths.size)) * widths
        return X
