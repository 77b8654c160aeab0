"""Reports of a fitted `TableClusterer`: descriptions, HTML pages, pictures and a summary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from volmar._files import refuse_input
from volmar._input import known_values
from volmar._version import __version__
from volmar.report.outcome import Evidence, Outcome
from volmar.report.stages import Progress, StageTimes
from volmar.tables import LoadedTable, Preparation
from volmar.tables.columns import check_table

if TYPE_CHECKING:
    from volmar.diagnostics import ClusterDescription

# Modules for pages, pictures and files are imported when needed, because a fit needs none.
__all__ = ["TableReports"]


class TableReports(BaseEstimator):
    """Methods of `TableClusterer` that describe the clusters."""

    n_clusters: Any
    n_clusters_: int
    n_features_in_: int
    labels_: NDArray[np.int64]
    evidence_: list[Evidence]
    notes_: list[str]
    warnings_: list[str]
    seconds_: dict[str, float]
    preparation_: Preparation
    model_: Any
    _table: Any
    _fit_seed: int
    _rows: Any
    _scores_of: Any
    _new_clusterer: Any

    def describe(self, data: Any = None) -> ClusterDescription:
        """Describe how the clusters differ, in the columns of the table and their units.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path, default=None
            The table that was clustered. It is needed only if the estimator was loaded from a file
            or a pickle, which does not hold the table.

        Returns
        -------
        volmar.diagnostics.ClusterDescription
            The description. It prints as one sentence per cluster.
        """
        from volmar.report.judging import described

        return described(self._outcome(data))

    def suggest_labels(self, n: int = 10, data: Any = None, *, y: Any = None) -> NDArray[np.int64]:
        """Suggest rows whose labels would be most informative, in descending order.

        Parameters
        ----------
        n : int, default=10
            Number of rows.
        data : DataFrame, pyarrow Table, array, sparse array, str or path, default=None
            As for `describe`.
        y : array of shape (n_rows,), default=None
            Known labels of the rows of the table, -1 if unknown. Labelled rows are not suggested.

        Returns
        -------
        ndarray of int
            Row numbers in the table. See `volmar.diagnostics.suggest_labels`.
        """
        from volmar.diagnostics import suggest_labels

        rows = self._rows(data)
        kept = np.arange(rows.X.shape[0]) if rows.kept is None else np.flatnonzero(rows.kept)
        if y is not None:
            n_rows = rows.X.shape[0] if rows.kept is None else len(rows.kept)
            y = np.where(known_values(y, "y", n_rows)[1], 0, -1)[kept]
        found = suggest_labels(self.model_, rows.X, n, y=y, random_state=self._fit_seed)
        return kept[found].astype(np.int64)

    def outcome(
        self,
        data: Any = None,
        *,
        title: str | None = None,
        command: str | None = None,
        command_for_two: str | None = None,
        asked: dict[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Outcome:
        """Return the content of a report.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path, default=None
            As for `describe`.
        title : str, default=None
            Heading of the report. If None, it names the table.
        command, command_for_two : str, default=None
            Commands that reproduce the clusters, and that find two clusters. If None, they are
            Python code.
        asked : dict of str to str, default=None
            Options as shown in the report. If None, they are the parameters.
        progress : callable, default=None
            As for `fit`.

        Returns
        -------
        volmar.report.Outcome
            The content of the report.
        """
        from volmar.report.judging import best_split_of, judged

        found = self._outcome(data)
        times = StageTimes(progress)
        if self.n_clusters == "auto" and self.n_clusters_ == 1 and self.evidence_:
            two = command_for_two or f"{clone(self).set_params(n_clusters=2)!r}.fit(table)"
            found = replace(found, best_split=best_split_of(found, times, two))
        given: dict[str, Any] = {"title": title, "command": command, "asked": asked}
        found = replace(found, **{key: one for key, one in given.items() if one is not None})
        return judged(found, times)

    def report(
        self,
        path: str | os.PathLike[str],
        data: Any = None,
        *,
        force: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Write a report of the clusters as a self-contained HTML page.

        Parameters
        ----------
        path : str or path-like
            File to write.
        data : DataFrame, pyarrow Table, array, sparse array, str or path, default=None
            As for `describe`.
        force : bool, default=False
            Whether an existing file may be replaced.
        progress : callable, default=None
            As for `fit`.
        """
        from volmar.report import save_report

        self._refuse_input(path, data)
        save_report(path, self, data, force=force, progress=progress)

    def pictures(
        self,
        folder: str | os.PathLike[str],
        data: Any = None,
        *,
        formats: Sequence[str] = ("png", "svg"),
        force: bool = False,
        progress: Progress | None = None,
    ) -> list[Path]:
        """Write the pictures of the report as image files (requires matplotlib).

        Parameters
        ----------
        folder : str or path-like
            Folder for the files. It is created if it does not exist.
        data : DataFrame, pyarrow Table, array, sparse array, str or path, default=None
            As for `describe`.
        formats : sequence of {"png", "svg", "pdf"}, default=("png", "svg")
            Formats in which each picture is written.
        force : bool, default=False
            Whether existing files may be replaced.
        progress : callable, default=None
            As for `fit`.

        Returns
        -------
        list of Path
            The written files.
        """
        from volmar.report import save_pictures
        from volmar.report.judging import with_joins

        self._refuse_input(folder, data)
        outcome = with_joins(self.outcome(data, progress=progress), StageTimes(progress))
        return save_pictures(Path(folder), outcome, formats=formats, force=force)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Save the fitted estimator to a file, without the table; `load` loads it.

        The file holds what new rows need, see `volmar.models.save_model`.

        Parameters
        ----------
        path : str or path-like
            File to write, usually with the suffix ``.volmar``.
        force : bool, default=False
            Whether an existing file may be replaced.
        """
        from volmar.models import save_model

        self._refuse_input(path)
        save_model(path, self, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load an estimator that was saved by `save`.

        Parameters
        ----------
        path : str or path-like
            File to read.
        """
        from volmar.models import ModelError, load_model

        model = load_model(path).model
        if not isinstance(model, cls):
            raise ModelError(
                f"{path} holds a {type(model).__name__}, not a {cls.__name__}. Use load_model."
            )
        return model

    def _refuse_input(self, path: str | os.PathLike[str], data: Any = None) -> None:
        """Raise `ValueError` if writing to `path` would replace the table that was read."""
        read = getattr(getattr(self, "_table", None), "path", None)
        refuse_input(path, [one for one in (read, data) if isinstance(one, (str, os.PathLike))])

    def summary(self) -> dict[str, Any]:
        """Return the result as plain values, ready for `json.dumps`.

        Returns
        -------
        dict
            Cluster sizes, evidence with p-values and levels, columns and their kinds, notes,
            warnings, parameters, times and the version of volmar.
        """
        check_is_fitted(self)
        if not hasattr(self, "labels_"):
            raise AttributeError(
                "summary() counts the rows of the fit, which a model file does not hold. Call it "
                "before the model is saved."
            )
        used = self.labels_[self.labels_ >= 0]
        prepared = self.preparation_
        return _plain(
            {
                "volmar": __version__,
                "method": type(self.model_).__name__,
                "parameters": self.get_params(deep=False),
                "n_rows": self.labels_.size,
                "n_rows_used": used.size,
                "n_clusters": self.n_clusters_,
                "sizes": np.bincount(used, minlength=self.n_clusters_),
                "evidence": [vars(one) for one in self.evidence_],
                "splits": _splits(getattr(self.model_, "tree_", None)),
                "columns": prepared.kinds_,
                "left_out": prepared.left_out_,
                "features": prepared.feature_names_,
                "notes": self.notes_,
                "warnings": self.warnings_,
                "seconds": self.seconds_,
            }
        )

    def _outcome(self, data: Any) -> Outcome:
        """Return the content of a report that is known without further tests."""
        rows = self._rows(data)
        table = self._table if data is None else check_table(self, data, reset=False)
        if data is None:
            labels = self.labels_ if rows.kept is None else self.labels_[rows.kept]
        else:
            labels = np.asarray(self.model_.predict(rows.X))
        columns = names = used = None
        if table is not None:
            from volmar.tables import source_columns

            columns, names = source_columns(table, self.preparation_, rows.kept, every=True)
            used = [name in set(self.preparation_.used_) for name in names]
        name = table.name if isinstance(table, LoadedTable) else "the table"
        params = self.get_params(deep=False)
        prepared, is_split = self.preparation_, self.n_clusters_ > 1
        return Outcome(
            title=f"Clusters of {name}",
            command=f"{self!r}.fit(table)",
            asked={key: repr(value) for key, value in params.items()},
            source=name,
            n_rows=len(labels) if rows.kept is None else len(rows.kept),
            n_columns=self.n_features_in_,
            notes=self.notes_,
            parameters=self.model_.get_params(deep=False) if is_split else {},
            method=type(self.model_).__name__,
            seed=self._fit_seed,
            X=rows.X,
            feature_names=list(rows.feature_names),
            ids=rows.ids,
            id_name=rows.id_name,
            labels=labels,
            seeds=getattr(self, "_seeds", None) if data is None else None,
            scores=self._scores_of(rows.X),
            model=self.model_ if is_split else None,
            clusterer=self._new_clusterer(self._fit_seed, self.n_clusters_),
            fit_rows=rows.dithered(self._fit_seed),
            n_found=self.n_clusters_,
            evidence=self.evidence_,
            warnings=self.warnings_,
            seconds=self.seconds_,
            offsets=prepared.offsets_,
            scales=prepared.scales_,
            columns=columns,
            column_names=names,
            used=used,
            left_out=dict(prepared.left_out_),
            categorical=tuple(prepared.texts_),
            category_features=prepared.category_features_,
            novelty=getattr(self, "novelty_", None),
            outlying=rows.outlying,
        )


def _splits(tree: Any) -> list[dict[str, Any]]:
    """Return the splits of a tree, in the order in which they were found."""
    if tree is None:
        return []
    return [
        {
            "n_rows": node.n_rows,
            "sides": [child.n_rows for child in node.children],
            "p_value": node.p_value,
            "level": node.level,
            "separation": node.probability,
        }
        for node in tree.splits()
    ]


def _plain(value: Any) -> Any:
    """Return a value for JSON: None for NaN and infinity, and the repr of other objects."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray) or sparse.issparse(value):
        return _plain(value.tolist()) if isinstance(value, np.ndarray) else repr(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else repr(value)
