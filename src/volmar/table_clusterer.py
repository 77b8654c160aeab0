"""`TableClusterer`: the columns of a table prepared, its rows clustered, in one estimator."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

import volmar
from volmar._version import __version__
from volmar.base import Clusterer
from volmar.diagnostics import ClusterDescription
from volmar.diagnostics.confidence import confidence_of, score_slopes
from volmar.models import save_model
from volmar.report.evidence import evidence_of
from volmar.report.judging import Judged, best_split_of, described, judged_outcome, with_joins
from volmar.report.outcome import Evidence, Outcome
from volmar.report.pictures import save_pictures
from volmar.report.save_report import save_report
from volmar.report.stages import Progress, StageTimes
from volmar.tables import (
    LoadedTable,
    Preparation,
    Prepared,
    TableError,
    as_pandas,
    source_columns,
)
from volmar.tables.errors import as_parameters

if TYPE_CHECKING:
    from numpy.random import RandomState

__all__ = ["TableClusterer", "clusterer_names"]

# Held by a fitted estimator for `describe` and `report`, and not by a copy of it in a file.
_OF_THE_DATA = ("_table", "_prepared")


def clusterer_names() -> list[str]:
    """Return the names of the clusterers of the library."""
    return [
        name
        for name in volmar.__all__
        if name != "__version__" and issubclass(getattr(volmar, name), Clusterer)
    ]


class TableClusterer(ClusterMixin, BaseEstimator):
    """Prepare the columns of a table, cluster its rows, and describe the clusters.

    `volmar.tables.Preparation` and a clusterer as one estimator: what ``volmar cluster`` does to a
    file, for the DataFrames of Python.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters. With "auto" every split is tested on held-out rows, and rows without
        evidence for groups stay one cluster.
    clusterer : str or estimator, default="MSPC"
        A clusterer of volmar by its name, or any clusterer with `n_clusters` and `predict`; a
        clone of it is fitted, with the `n_clusters` given here.
    columns, drop : list of str, default=None
        The columns to use (None for all), and columns to leave out.
    id_column : str, default=None
        The column that names the rows; not a feature.
    kinds : dict of str to str, default=None
        The kind of a column where the guess is wrong: "numeric", "ordinal", "categorical",
        "boolean", "date", "text", "id" or "ignore", as for `volmar.tables.Preparation`.
    scale : {"auto", "standard", "minmax", "none"}, default="auto"
        How columns are scaled: "auto" is "standard" after a log of columns with a long tail.
    missing : {"impute", "drop", "indicator", "error"}, default="impute"
        How to handle missing values: fill them in, leave out their rows, fill them in and add a
        column that tells where, or refuse them.
    alpha : float, default=None
        Level of the tests of ``n_clusters="auto"``: the probability that rows without groups are
        split. None leaves that of the clusterer, 0.05.
    max_clusters : int, default=None
        Maximum number of clusters of ``n_clusters="auto"``; None for no limit.
    random_state : int, RandomState or None, default=0
        Random seed of everything that draws: the clusterer, tests, samples of rows.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of each row of the table, -1 for rows that were left out for missing values.
    n_clusters_ : int
        Number of clusters that were found, or asked for.
    confidence_ : ndarray of shape (n,)
        How clearly each row belongs to its cluster rather than to the next one, from 0.5 (on the
        border) to 1; NaN for rows that were left out. See Notes.
    evidence_ : list of volmar.report.Evidence
        What supports the clusters, or does not.
    notes_ : list of str
        What was done to the columns, a line each.
    warnings_ : list of str
        What the fit warned of.
    preparation_ : volmar.tables.Preparation
        How the columns were prepared; fitted.
    model_ : estimator
        The fitted clusterer. Where nothing is split it predicts one cluster.
    seconds_ : dict of str to float
        Time of each stage.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Their names, if the table has any.

    See Also
    --------
    volmar.report.save_report : A report of any fitted clusterer.
    volmar.models.load_model : Read what `save` has written.

    Notes
    -----
    `confidence_` is a number for ranking rows, and a probability only under assumptions. For the
    rows of two neighbouring clusters the difference of the two scores is taken as a mixture of two
    normal distributions of one variance; then the log-odds are linear in it, and the confidence is
    their logistic function, with 0.5 on the border that the clusterer has drawn. Where normal
    groups overlap and were found, its mean is within 0.06 of the share of rows in the right
    cluster. It takes the clusters for granted: a group that is cut in half has confident rows on
    both sides. Whether there are groups is the question of `evidence_`.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from volmar import TableClusterer
    >>> rng = np.random.default_rng(0)
    >>> is_tall = np.arange(300) % 3 == 0
    >>> people = pd.DataFrame({
    ...     "height": rng.normal(160, 5, 300) + 30 * is_tall,
    ...     "weight": rng.normal(55, 4, 300) + 25 * is_tall,
    ... })
    >>> clusterer = TableClusterer().fit(people)
    >>> clusterer.n_clusters_
    2
    >>> clusterer.predict(pd.DataFrame({"weight": [52.0], "height": [158.0]})).tolist()
    [0]
    >>> print(clusterer.describe().sentence(0)[:27])
    cluster 0: 200 rows (67 %);
    """

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        clusterer: Any = "MSPC",
        columns: list[str] | None = None,
        drop: list[str] | None = None,
        id_column: str | None = None,
        kinds: dict[str, str] | None = None,
        scale: str = "auto",
        missing: str = "impute",
        alpha: float | None = None,
        max_clusters: int | None = None,
        random_state: int | RandomState | None = 0,
    ):
        self.n_clusters = n_clusters
        self.clusterer = clusterer
        self.columns = columns
        self.drop = drop
        self.id_column = id_column
        self.kinds = kinds
        self.scale = scale
        self.missing = missing
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    # ---------------------------------------------------------------------- fitting

    def fit(self, data: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Prepare a table and cluster its rows.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            The table: a DataFrame of pandas or polars, or the file of one.
        y : None
            Not used; there for scikit-learn.
        progress : callable, optional
            Called as ``progress(stage, done, total)``; total is 0 where steps are not counted.

        Returns
        -------
        TableClusterer
            Itself.
        """
        del y
        self._forget()
        # Wrong parameters are refused before a large table is read.
        self._new_clusterer(0)
        with _in_python():
            preparation = self._new_preparation()
        times = StageTimes(progress)
        if isinstance(data, (str, os.PathLike)):
            with times.stage("reading"):
                data = as_pandas(data)
        with times.stage("preparing"), _in_python():
            table = self._table_of(data, reset=True)
            rows = preparation.fit_transform(table)
        try:
            return self._fit_rows(rows, preparation, table, times)
        except BaseException:
            self._forget()
            raise

    def fit_prepared(
        self,
        rows: Prepared,
        preparation: Preparation,
        *,
        table: Any = None,
        progress: Progress | None = None,
    ) -> Self:
        """Cluster rows that are prepared already: a sample of a table that lies in blocks.

        Parameters
        ----------
        rows : Prepared
            The rows, in memory.
        preparation : Preparation
            Fitted; new tables are prepared by it.
        table : DataFrame or LoadedTable, optional
            What the rows were made from: reports describe the clusters by its columns.
        progress : callable, optional
            As for `fit`.

        Returns
        -------
        TableClusterer
            Itself. `labels_` has one entry for each of the given rows, or of the table's where
            `rows.kept` tells which these are.
        """
        self._forget()
        self.n_features_in_ = len(preparation.names_in_)
        self.feature_names_in_ = np.array(preparation.names_in_, dtype=object)
        return self._fit_rows(rows, preparation, table, StageTimes(progress))

    def adopt(self, model: Any) -> Self:
        """Take another fitted clusterer of the same rows: one that was fitted to more of them.

        Parameters
        ----------
        model : clusterer
            Fitted to rows prepared by `preparation_`.

        Returns
        -------
        TableClusterer
            Itself, with the labels of `model`.
        """
        check_is_fitted(self)
        self.model_ = model
        self._label(model.predict(self._rows().X))
        return self

    def _fit_rows(
        self, rows: Prepared, preparation: Preparation, table: Any, times: StageTimes
    ) -> Self:
        seed = self._seed()
        model = self._new_clusterer(seed)
        n = rows.X.shape[0]
        wanted = self.n_clusters
        if isinstance(wanted, (int, np.integer)) and wanted > n:
            raise ValueError(
                f"n_clusters={wanted} is more than the {n} rows. Lower n_clusters, or give more "
                "rows."
            )
        # Gaps that the preparation makes are filled with noise for the fit, not for the labels.
        X = rows.dithered(seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with times.stage("looking for groups"):
                model.fit(X)
                labels = model.labels_ if X is rows.X else model.predict(rows.X)
            with times.stage("testing") as tell:
                evidence = evidence_of(
                    model, X, labels, n_clusters=wanted, random_state=seed, progress=tell
                )
        self.preparation_ = preparation
        self.model_ = model
        self.evidence_: list[Evidence] = evidence
        self.n_clusters_ = model.tree_.n_leaves if isinstance(wanted, str) else int(wanted)
        self.notes_ = [as_parameters(note) for note in rows.notes]
        of_table = [as_parameters(text) for text in rows.warnings]
        said = [*of_table, *(str(one.message).splitlines()[0] for one in caught)]
        self.warnings_ = list(dict.fromkeys(said))
        self.seconds_ = times.seconds
        self._table, self._prepared, self._fit_seed = table, rows, seed
        self._fit_work = times.work["looking for groups"]
        self._label(np.asarray(labels))
        for text in of_table:
            warnings.warn(text, UserWarning, stacklevel=3)
        for one in caught:
            warnings.warn(one.message, one.category, stacklevel=3)
        return self

    def _label(self, labels: NDArray) -> None:
        """Set labels and confidences of all rows of the table."""
        rows = self._rows()
        scores = self._scores_of(rows.X)
        self.slopes_ = {} if scores is None else score_slopes(scores, labels)
        self.labels_: NDArray[np.int64] = _spread(labels, rows.kept, -1).astype(np.int64)
        confidence = self._confidence_of(scores, labels)
        self.confidence_: NDArray[np.float64] = _spread(confidence, rows.kept, np.nan)

    def _scores_of(self, X: Any) -> NDArray | None:
        if not hasattr(self.model_, "decision_function"):
            return None
        return np.asarray(self.model_.decision_function(X), dtype=np.float64)

    def _confidence_of(self, scores: NDArray | None, labels: NDArray) -> NDArray[np.float64]:
        if scores is None:
            return np.full(len(labels), np.nan)
        return confidence_of(scores, labels, self.slopes_)

    def _forget(self) -> None:
        """Delete what was fitted: a fit that fails or is interrupted leaves nothing of any."""
        fitted = [name for name in vars(self) if name.endswith("_") and name[0] != "_"]
        for name in [*fitted, *_OF_THE_DATA, "_fit_seed", "_fit_work"]:
            if hasattr(self, name):
                delattr(self, name)

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _new_preparation(self) -> Preparation:
        """Return how the columns are to be prepared."""
        return Preparation(
            columns=self.columns,
            drop=self.drop,
            id_column=self.id_column,
            kinds=self.kinds,
            scale=self.scale,
            missing=self.missing,
        )

    def _new_clusterer(self, seed: int, n_clusters: Any = None) -> Any:
        """Return the clusterer, not fitted, with its parameters set."""
        given = self.clusterer
        is_name = isinstance(given, str)
        made = getattr(volmar, _known(given))() if is_name else _checked(given)
        known = made.get_params(deep=False)
        count = self.n_clusters if n_clusters is None else n_clusters
        is_ours = isinstance(made, Clusterer)
        if isinstance(count, str) and not is_ours:
            raise ValueError(
                f"n_clusters={count!r} needs a clusterer of volmar, such as MSPC, got "
                f"clusterer={type(made).__name__}. Give a number of clusters."
            )
        settings: dict[str, Any] = {"n_clusters": count}
        if "random_state" in known and (is_name or known["random_state"] is None):
            settings["random_state"] = seed
        for name in ("alpha", "max_clusters"):
            value = getattr(self, name)
            if value is None:
                continue
            if name not in known:
                raise ValueError(
                    f"{name}={value!r}: {type(made).__name__} has no such parameter. Leave it out."
                )
            settings[name] = value
        return made.set_params(**settings)

    # ---------------------------------------------------------------------- new rows

    def predict(self, data: Any) -> NDArray[np.int64]:
        """Assign the rows of a table to the clusters.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in use, in any order.

        Returns
        -------
        ndarray of shape (n,)
            Cluster of each row; -1 for rows that are left out for missing values.
        """
        rows = self._new_rows(data)
        labels = np.asarray(self.model_.predict(rows.X))
        return _spread(labels, rows.kept, -1).astype(np.int64)

    def decision_function(self, data: Any) -> NDArray[np.float64]:
        """Score the rows of a table.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in use.

        Returns
        -------
        ndarray of shape (n,) or (n, n_clusters)
            As the clusterer gives them; NaN for rows that are left out for missing values.
        """
        rows = self._new_rows(data)
        scores = self._scores_of(rows.X)
        if scores is None:
            raise AttributeError(
                f"{type(self.model_).__name__} has no decision_function. Use predict."
            )
        return _spread(scores, rows.kept, np.nan)

    def confidence(self, data: Any) -> NDArray[np.float64]:
        """Return how clearly each row of a table belongs to the cluster that `predict` gives it.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in use.

        Returns
        -------
        ndarray of shape (n,)
            As `confidence_`, by the scale that was found at the fit.
        """
        rows = self._new_rows(data)
        return _spread(self.label_prepared(rows.X)[2], rows.kept, np.nan)

    def label_prepared(self, X: Any) -> tuple[NDArray[np.int64], NDArray, NDArray[np.float64]]:
        """Return labels, scores and confidences of rows that `preparation_` has made.

        Parameters
        ----------
        X : array of shape (n, d)
            Prepared rows, of a block of a table for example.

        Returns
        -------
        labels : ndarray of shape (n,)
            Their clusters.
        scores : ndarray of shape (n,) or (n, n_clusters)
            Their scores; NaN where the clusterer has none.
        confidence : ndarray of shape (n,)
            As by `confidence`.
        """
        labels = np.asarray(self.model_.predict(X)).astype(np.int64)
        scores = self._scores_of(X)
        confidence = self._confidence_of(scores, labels)
        return labels, np.full(len(labels), np.nan) if scores is None else scores, confidence

    def _new_rows(self, data: Any) -> Prepared:
        check_is_fitted(self)
        with _in_python():
            return self.preparation_.transform(self._table_of(data, reset=False))

    def _table_of(self, data: Any, *, reset: bool) -> Any:
        """Return a table as `Preparation` takes it, checked as scikit-learn does."""
        table = as_pandas(data)
        content = table.data if isinstance(table, LoadedTable) else table
        if hasattr(content, "iloc"):
            if reset:
                names = np.array([str(name) for name in content.columns], dtype=object)
                self.feature_names_in_, self.n_features_in_ = names, len(names)
            return table
        is_named = isinstance(table, LoadedTable) and table.feature_names is not None
        # A sparse file need not mention its last columns: the preparation adds them.
        if is_named or (isinstance(table, LoadedTable) and not reset):
            self.n_features_in_ = content.shape[1] if reset else self.n_features_in_
            return table
        checked = validate_data(
            self,
            content,
            reset=reset,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        return table if isinstance(table, LoadedTable) else checked

    # ---------------------------------------------------------------------- what was found

    def describe(self, data: Any = None) -> ClusterDescription:
        """Return what sets the clusters apart, in the columns of the table and their units.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path, optional
            The table that was clustered. Only needed where the estimator was read from a file or a
            pickle, which do not hold it.

        Returns
        -------
        volmar.diagnostics.ClusterDescription
            It prints as a sentence for each cluster.
        """
        return described(self._judged(data))

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
        """Return everything that a report shows.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path, optional
            As for `describe`.
        title : str, optional
            Heading of the report.
        command, command_for_two : str, optional
            What gives the same clusters again, and two of them; by default the code in Python.
        asked : dict of str to str, optional
            What was asked for, as the report shows it; by default the parameters.
        progress : callable, optional
            As for `fit`.

        Returns
        -------
        volmar.report.Outcome
        """
        judged = self._judged(data)
        rows = self._rows(data)
        table = self._table if data is None else as_pandas(data)
        name = table.name if isinstance(table, LoadedTable) else "the table"
        two = clone(self).set_params(n_clusters=2)
        best = None
        times = StageTimes(progress)
        if self.n_clusters == "auto" and self.n_clusters_ == 1 and self.evidence_:
            best = best_split_of(judged, times, command_for_two or f"{two!r}.fit(table)")
        params = {key: repr(value) for key, value in self.get_params(deep=False).items()}
        known = Outcome(
            title=title or f"Clusters of {name}",
            command=command or f"{self!r}.fit(table)",
            asked=params if asked is None else asked,
            source=name,
            n_rows=len(judged.labels) if rows.kept is None else len(rows.kept),
            n_columns=self.n_features_in_,
            notes=self.notes_,
            parameters=self.model_.get_params(deep=False) if self.n_clusters_ > 1 else {},
            method=type(self.model_).__name__,
            seed=self._fit_seed,
            X=rows.X,
            feature_names=list(rows.feature_names),
            ids=rows.ids,
            id_name=rows.id_name,
            labels=judged.labels,
            scores=self._scores_of(rows.X),
            model=self.model_ if self.n_clusters_ > 1 else None,
            n_found=self.n_clusters_,
            evidence=self.evidence_,
            warnings=self.warnings_,
            seconds=self.seconds_,
            offsets=self.preparation_.offsets_,
            scales=self.preparation_.scales_,
            best_split=best,
            used=None if judged.columns is None else self._used(judged.names),
            left_out=dict(self.preparation_.left_out_),
            categorical=tuple(self.preparation_.texts_),
        )
        return judged_outcome(known, judged, times)

    def report(
        self,
        path: str | os.PathLike[str],
        data: Any = None,
        *,
        force: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Write a report of the clusters: one HTML page that needs no network.

        Parameters
        ----------
        path : str or path
            The file.
        data : DataFrame, pyarrow Table, array, sparse array, str or path, optional
            As for `describe`.
        force : bool, default=False
            Replace a file that exists.
        progress : callable, optional
            As for `fit`.
        """
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
        """Write every picture of the report as image files (needs matplotlib).

        Parameters
        ----------
        folder : str or path
            Where to write; it is made where there is none.
        data : DataFrame, pyarrow Table, array, sparse array, str or path, optional
            As for `describe`.
        formats : sequence of {"png", "svg", "pdf"}, default=("png", "svg")
            Formats of each picture.
        force : bool, default=False
            Replace files that exist.
        progress : callable, optional
            As for `fit`.

        Returns
        -------
        list of Path
            The files.
        """
        outcome = with_joins(self.outcome(data, progress=progress), StageTimes(progress))
        return save_pictures(Path(folder), outcome, formats=formats, force=force)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the fitted estimator to a file, without the table, for `volmar.models.load_model`.

        Parameters
        ----------
        path : str or path
            The file; ``.volmar`` is the customary ending.
        force : bool, default=False
            Replace a file that exists.
        """
        save_model(path, self, force=force)

    def summary(self) -> dict[str, Any]:
        """Return what was found as plain values, ready for `json.dumps`.

        Returns
        -------
        dict
            Sizes, evidence with p-values and levels, columns and their kinds, notes, warnings,
            parameters, times and the version.
        """
        check_is_fitted(self)
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

    def _rows(self, data: Any = None) -> Prepared:
        """Return the prepared rows of the fit, or of a table that was not kept."""
        check_is_fitted(self)
        if data is not None:
            return self._new_rows(data)
        if not hasattr(self, "_prepared"):
            raise ValueError(
                "data=None: this TableClusterer was read from a file or a pickle, which do not "
                "hold the table. Give the table as data."
            )
        return self._prepared

    def _used(self, names: list[str]) -> list[bool]:
        """Return which columns make features."""
        used = set(self.preparation_.used_)
        return [name in used for name in names]

    def _judged(self, data: Any) -> Judged:
        rows = self._rows(data)
        table = self._table if data is None else self._table_of(data, reset=False)
        if data is None:
            labels = self.labels_ if rows.kept is None else self.labels_[rows.kept]
        else:
            labels = np.asarray(self.model_.predict(rows.X))
        columns, names = None, rows.feature_names
        if table is not None:
            columns, names = source_columns(table, self.preparation_, rows.kept, every=True)
        return Judged(
            X=rows.X,
            labels=labels,
            estimator=self._new_clusterer(self._fit_seed, max(self.n_clusters_, 1)),
            seed=self._fit_seed,
            fit_seconds=self._fit_work,
            fit_rows=rows.dithered(self._fit_seed),
            columns=columns,
            names=list(names),
            ids=rows.ids,
            units=(self.preparation_.offsets_, self.preparation_.scales_),
        )

    # ---------------------------------------------------------------------- scikit-learn

    def __getstate__(self) -> dict[str, Any]:
        """Leave the table behind: a pickle or a file is as large as the model."""
        state: dict[str, Any] = dict(super().__getstate__())
        return {name: value for name, value in state.items() if name not in _OF_THE_DATA}

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn which input is taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


@contextmanager
def _in_python() -> Iterator[None]:
    """Name parameters where messages of tables name options of the command."""
    try:
        yield
    except TableError as error:
        raise TableError(as_parameters(str(error))) from error


def _known(name: str) -> str:
    names = clusterer_names()
    for known in names:
        if known.lower() == name.lower():
            return known
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"clusterer={name!r} is not known.{hint} There are {', '.join(names)}.")


def _checked(given: Any) -> Any:
    """Return a clone of an estimator that can be used."""
    is_fit = not isinstance(given, type) and hasattr(given, "get_params")
    if not is_fit or "n_clusters" not in given.get_params(deep=False):
        raise TypeError(
            "clusterer must be the name of a clusterer of volmar, or a clusterer with a parameter "
            f"n_clusters, got {given!r:.80}."
        )
    if not hasattr(given, "predict"):
        raise TypeError(
            f"clusterer={type(given).__name__} has no predict, which new rows need. Use another "
            "one, such as MSPC or KMeans."
        )
    return clone(given)


def _spread(values: NDArray, kept: NDArray | None, missing: float) -> NDArray:
    """Return values of the kept rows as values of all rows."""
    if kept is None or kept.all():
        return values
    out = np.full((len(kept), *values.shape[1:]), missing, dtype=values.dtype)
    out[kept] = values
    return out


def _splits(tree: Any) -> list[dict[str, Any]]:
    """Return the splits of a tree, in the order in which they were made."""
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
    """Return a value as JSON knows it: NaN and infinity are null, objects their text."""
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
