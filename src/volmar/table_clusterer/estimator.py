"""`TableClusterer`: prepare the columns of a table and cluster its rows."""

from __future__ import annotations

import os
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_random_state
from volmar._warn import collecting, warn_user
from volmar.base import Clusterer
from volmar.guidance.knowledge import names_of_clusters
from volmar.report.evidence import evidence_of
from volmar.report.outcome import Evidence
from volmar.report.stages import Progress, StageTimes
from volmar.table_clusterer.confidence import confidence_of, score_slopes, warn_of_empty
from volmar.table_clusterer.drift import TableDrift
from volmar.table_clusterer.fitting import (
    fit_to_blocks,
    fit_to_rows,
    is_guided,
    names_note,
    number_found,
)
from volmar.table_clusterer.known import KnownColumns, known_columns
from volmar.table_clusterer.names import new_clusterer
from volmar.table_clusterer.rejection import TableRejection, spread
from volmar.table_clusterer.reports import TableReports
from volmar.tables import Preparation, PreparedTable, as_pandas
from volmar.tables.columns import check_table, table_tags

if TYPE_CHECKING:
    from numpy.random import RandomState

__all__ = ["TableClusterer"]

# Kept by a fitted estimator for `describe` and `report`, and not saved to files.
_OF_THE_DATA = ("_table", "_prepared", "_seeds")


class TableClusterer(TableRejection, ClusterMixin, TableDrift, TableReports):
    """Prepare the columns of a table, cluster its rows, and describe the clusters.

    It combines `volmar.tables.Preparation` and a clusterer. The command ``volmar cluster`` does
    the same with a file.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters. With "auto", every split is tested on held-out rows, and rows without
        evidence for groups stay a single cluster.
    clusterer : str or estimator, default="MSPC"
        Name of a clusterer of volmar, or any clusterer with a parameter `n_clusters` and a method
        `predict`. A clone is fitted, with the `n_clusters` given here.
    columns : list of str, default=None
        Columns to use. If None, all columns are used.
    drop : list of str, default=None
        Columns to leave out.
    id_column : str, default=None
        Column that names the rows. It is not a feature.
    kinds : dict of str to str, default=None
        Kinds of columns, in place of the detected ones: "numeric", "ordinal", "categorical",
        "boolean", "date", "text", "id" or "ignore". See `volmar.tables.Preparation`.
    scale : {"auto", "standard", "minmax", "none"}, default="auto"
        Scaling of the columns. "auto" is "standard" after the log of columns with a long tail.
    missing : {"impute", "drop", "indicator", "error"}, default="impute"
        How to handle missing values: fill them in, leave out their rows, fill them in and add a
        column that marks them, or raise an error.
    alpha : float, default=None
        Level of the tests with ``n_clusters="auto"``: the probability that rows without groups are
        split. If None, the default of the clusterer is used, 0.05.
    max_clusters : int, default=None
        Maximum number of clusters with ``n_clusters="auto"``. If None, there is no limit.
    seeds : str, default=None
        Column with the labels of some rows, empty (or -1) for all others. It is not a feature.
        Labelled rows are in the cluster of that name, see `cluster_names_`. With
        ``missing="drop"``, rows with each label and rows without a label must remain.
    must_link : str, default=None
        Column with group ids. Rows with the same id are in one cluster, rows without an id are not
        constrained. It is not a feature.
    min_cluster_size, max_cluster_size : int or float, default=None
        Minimum and maximum size of a cluster, as a number of rows or as a fraction of the rows.
    random_state : int, RandomState or None, default=0
        Random seed of the clusterer, the tests and the samples of rows.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Cluster of each row, -1 for rows that were left out because of missing values.
    n_clusters_ : int
        Number of clusters that were found or requested.
    cluster_names_ : list of str
        Names of the clusters: the labels in the column `seeds`, and "new 1", ... for the others.
        Only defined with `seeds`.
    confidence_ : ndarray of shape (n,)
        How clearly each row belongs to its cluster rather than to the next best one, from 0.5 (on
        the border) to 1. NaN for rows that were left out. See Notes.
    novelty_ : volmar.diagnostics.ClusterNovelty
        Calibrated distances of rows in each cluster, for `novelty_score` and ``predict(reject=)``.
    is_fitted_to_blocks_ : bool
        Whether the clusterer was fitted to the `blocks` of `fit_prepared`. Only defined with them.
    evidence_ : list of volmar.report.Evidence
        Evidence for or against the clusters.
    notes_ : list of str
        Description of the preparation of the columns, one line each.
    warnings_ : list of str
        Warnings of the fit.
    preparation_ : volmar.tables.Preparation
        The fitted preparation of the columns.
    model_ : estimator
        The fitted clusterer. If nothing was split, it predicts a single cluster.
    drift_summary_ : DriftSummary
        Summary of the table, with which `drift` compares new tables.
    seconds_ : dict of str to float
        Time of each stage in seconds.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Names of these columns. Only defined if the table has column names.

    See Also
    --------
    volmar.report.save_report : Write a report of any fitted clusterer.
    volmar.models.load_model : Load a model that was written by `save`.

    Notes
    -----
    `confidence_` ranks rows, and is a probability only under assumptions. For the rows of two
    neighbouring clusters, the difference of the two scores is modelled as a mixture of two normal
    distributions with a common variance. The log-odds are then linear in this difference, and the
    confidence is their logistic function, with 0.5 on the border between the clusters. If normal
    groups overlap and were found, the mean confidence is within 0.06 of the share of rows in the
    correct cluster. The confidence does not test the clusters: if a group is cut in half, rows on
    both sides have a high confidence. Use `evidence_` to see whether there are groups.

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
        seeds: str | None = None,
        must_link: str | None = None,
        min_cluster_size: float | None = None,
        max_cluster_size: float | None = None,
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
        self.seeds = seeds
        self.must_link = must_link
        self.min_cluster_size = min_cluster_size
        self.max_cluster_size = max_cluster_size
        self.random_state = random_state

    # ---------------------------------------------------------------------- fitting

    def fit(self, data: Any, y: Any = None, *, progress: Progress | None = None) -> Self:
        """Prepare a table and cluster its rows.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            The table. DataFrames of pandas and polars are accepted. A str or path is the file of
            a table.
        y : None
            Ignored.
        progress : callable, default=None
            Called as ``progress(stage, done, total)``. The total is 0 if steps are not counted.

        Returns
        -------
        self : TableClusterer
            The fitted estimator.
        """
        del y
        self._forget()
        # Check the parameters before a large table is read.
        self._new_clusterer(0)
        preparation = self._new_preparation().check_parameters()
        times = StageTimes(progress)
        if isinstance(data, (str, os.PathLike)):
            with times.stage("reading"):
                data = as_pandas(data)
        try:
            with times.stage("preparing"):
                table = check_table(self, data, reset=True)
                known = known_columns(table, self.seeds, self.must_link)
                rows = preparation.fit_prepare(table)
            return self._fit_rows(rows, preparation, table, times, known=known)
        except BaseException:
            self._forget()
            raise

    def fit_prepared(
        self,
        rows: PreparedTable,
        preparation: Preparation,
        *,
        table: Any = None,
        blocks: PreparedTable | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Cluster prepared rows, for example a sample of a table in blocks.

        Parameters
        ----------
        rows : PreparedTable
            The prepared rows, in memory.
        preparation : Preparation
            The fitted preparation, which will also prepare new tables.
        table : DataFrame or LoadedTable, default=None
            The table from which the rows were prepared. Reports describe the clusters by its
            columns.
        blocks : PreparedTable, default=None
            All rows, as returned by `volmar.tables.prepare_blocks`. A clusterer that accepts dask
            arrays is fitted to them, and `is_fitted_to_blocks_` is True. Others are fitted to
            `rows`. Tests, labels and reports always use `rows`.
        progress : callable, default=None
            As for `fit`.

        Returns
        -------
        self : TableClusterer
            The fitted estimator. `labels_` has one entry per row of the table if `rows.kept` is
            given, and one per prepared row otherwise.
        """
        if self.seeds is not None or self.must_link is not None:
            raise ValueError(
                "seeds and must_link are columns of a table, and fit_prepared takes prepared "
                "rows. Use fit with a table in memory."
            )
        self._forget()
        self.n_features_in_ = len(preparation.names_in_)
        self.feature_names_in_ = np.array(preparation.names_in_, dtype=object)
        return self._fit_rows(rows, preparation, table, StageTimes(progress), blocks)

    def _fit_rows(
        self,
        rows: PreparedTable,
        preparation: Preparation,
        table: Any,
        times: StageTimes,
        blocks: PreparedTable | None = None,
        known: KnownColumns | None = None,
    ) -> Self:
        known = known or KnownColumns()
        seed = self._seed()
        model = self._new_clusterer(seed)
        n = rows.X.shape[0] if blocks is None else blocks.X.shape[0]
        wanted = self.n_clusters
        if isinstance(wanted, (int, np.integer)) and wanted > n:
            raise ValueError(
                f"n_clusters={wanted} is larger than the number of rows, {n}. Lower n_clusters, "
                "or give more rows."
            )
        # Noise closes the gaps that the preparation creates: for the fit, not for the labels.
        X = rows.dithered(seed)
        guide = known.of_rows(rows.kept, self.seeds)
        with collecting() as messages:
            with times.stage("looking for groups") as tell:
                is_in_blocks = False
                if blocks is not None:
                    is_in_blocks = fit_to_blocks(model, blocks.dithered(seed), tell)
                if not is_in_blocks:
                    fit_to_rows(model, X, tell, **guide)
                # Seeds and links hold for the fitted rows.
                is_own = (X is rows.X or is_guided(model, guide)) and not is_in_blocks
                labels = model.labels_ if is_own else model.predict(rows.X)
                if not is_own and blocks is None:
                    warn_of_empty(model, labels)
            with times.stage("testing") as tell:
                n_found = number_found(model, labels, wanted)
                asked = wanted if hasattr(model, "tree_") else n_found
                evidence = evidence_of(
                    model, X, labels, n_clusters=asked, random_state=seed, progress=tell
                )
        self.preparation_ = preparation
        self.model_ = model
        if blocks is not None:
            self.is_fitted_to_blocks_ = is_in_blocks
        self.evidence_: list[Evidence] = evidence
        self.n_clusters_ = n_found
        if known.names:
            self.cluster_names_ = names_of_clusters(np.array(known.names), n_found).tolist()
        self.notes_ = [*rows.notes, *names_note(self)]
        texts = [*rows.warnings, *(one.text.splitlines()[0] for one in messages)]
        self.warnings_ = list(dict.fromkeys(texts))
        self.seconds_ = times.seconds
        self._table, self._prepared, self._fit_seed = table, rows, seed
        self._seeds = guide.get("y")
        self._label(np.asarray(labels))
        self.drift_summary_ = self._summary(rows, np.asarray(labels), table)
        self._calibrate(rows.X, np.asarray(labels), seed)
        for text in rows.warnings:
            warn_user(text)
        for one in messages:
            warn_user(*one)
        return self

    def _label(self, labels: NDArray) -> None:
        """Set the labels and confidences of all rows of the table."""
        rows = self._rows()
        scores = self._scores_of(rows.X)
        self.slopes_ = {} if scores is None else score_slopes(scores, labels)
        self.labels_: NDArray[np.int64] = spread(labels, rows.kept, -1).astype(np.int64)
        confidence = self._confidence_of(scores, labels)
        self.confidence_: NDArray[np.float64] = spread(confidence, rows.kept, np.nan)

    def _scores_of(self, X: Any) -> NDArray | None:
        if not hasattr(self.model_, "decision_function"):
            return None
        return np.asarray(self.model_.decision_function(X), dtype=np.float64)

    def _confidence_of(self, scores: NDArray | None, labels: NDArray) -> NDArray[np.float64]:
        if scores is None:
            return np.full(len(labels), np.nan)
        return confidence_of(scores, labels, self.slopes_)

    def _forget(self) -> None:
        """Delete fitted attributes, so that a failed or interrupted fit leaves none."""
        fitted = [name for name in vars(self) if name.endswith("_") and name[0] != "_"]
        for name in [*fitted, *_OF_THE_DATA, "_fit_seed"]:
            if hasattr(self, name):
                delattr(self, name)

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _new_preparation(self) -> Preparation:
        known = [name for name in (self.seeds, self.must_link) if name is not None]
        return Preparation(
            columns=self.columns,
            drop=[*(self.drop or ()), *known] or None,
            id_column=self.id_column,
            kinds=self.kinds,
            scale=self.scale,
            missing=self.missing,
        )

    def _new_clusterer(self, seed: int, n_clusters: Any = None) -> Any:
        """Return the unfitted clusterer with its parameters set."""
        made = new_clusterer(self.clusterer)
        known = made.get_params(deep=False)
        count = self.n_clusters if n_clusters is None else n_clusters
        is_ours = isinstance(made, Clusterer)
        if isinstance(count, str) and not is_ours:
            raise ValueError(
                f"n_clusters={count!r} needs a clusterer of volmar, such as MSPC, got "
                f"clusterer={type(made).__name__}. Give a number of clusters."
            )
        settings: dict[str, Any] = {"n_clusters": count}
        is_name = isinstance(self.clusterer, str)
        if "random_state" in known and (is_name or known["random_state"] is None):
            settings["random_state"] = seed
        if (self.seeds or self.must_link) and "must_link" not in signature(made.fit).parameters:
            raise ValueError(
                f"{type(made).__name__} does not accept seeds and must_link. Use another "
                "clusterer, such as MSPC."
            )
        for name in ("alpha", "max_clusters", "min_cluster_size", "max_cluster_size"):
            value = getattr(self, name)
            if value is None:
                continue
            if name not in known:
                raise ValueError(
                    f"{name}={value!r} is not a parameter of {type(made).__name__}. Leave it out."
                )
            settings[name] = value
        return made.set_params(**settings)

    # ---------------------------------------------------------------------- new rows

    def decision_function(self, data: Any) -> NDArray[np.float64]:
        """Return the scores of the rows of a table, from the decision function of the clusterer.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in `preparation_.used_`.

        Returns
        -------
        ndarray of shape (n,) or (n, n_clusters)
            Scores. NaN for rows that are left out because of missing values.
        """
        rows = self._new_rows(data)
        scores = self._scores_of(rows.X)
        if scores is None:
            raise AttributeError(
                f"{type(self.model_).__name__} has no decision_function. Use predict."
            )
        return spread(scores, rows.kept, np.nan)

    def confidence(self, data: Any) -> NDArray[np.float64]:
        """Return how clearly each row of a table belongs to its predicted cluster.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in `preparation_.used_`.

        Returns
        -------
        ndarray of shape (n,)
            Confidence of each row, as in `confidence_`, with the slopes of the fit.
        """
        rows = self._new_rows(data)
        return spread(self.label_prepared(rows.X)[2], rows.kept, np.nan)

    def label_prepared(self, X: Any) -> tuple[NDArray[np.int64], NDArray, NDArray[np.float64]]:
        """Return the labels, scores and confidences of prepared rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows prepared by `preparation_`, for example from a block of a table.

        Returns
        -------
        labels : ndarray of shape (n,)
            Cluster of each row.
        scores : ndarray of shape (n,) or (n, n_clusters)
            Scores. NaN if the clusterer has no decision function.
        confidence : ndarray of shape (n,)
            Confidence of each row, as returned by `confidence`.
        """
        labels = np.asarray(self.model_.predict(X)).astype(np.int64)
        scores = self._scores_of(X)
        confidence = self._confidence_of(scores, labels)
        return labels, np.full(len(labels), np.nan) if scores is None else scores, confidence

    def _new_rows(self, data: Any) -> PreparedTable:
        check_is_fitted(self)
        rows = self.preparation_.prepare(check_table(self, data, reset=False))
        for text in rows.warnings:
            warn_user(text)
        return rows

    def _rows(self, data: Any = None) -> PreparedTable:
        """Return the prepared rows of the fit, or of `data` if it is given."""
        check_is_fitted(self)
        if data is not None:
            return self._new_rows(data)
        if not hasattr(self, "_prepared"):
            raise ValueError(
                "data must be given, because this TableClusterer was loaded from a file or a "
                "pickle, which does not hold the table. Give the table as data."
            )
        return self._prepared

    # ---------------------------------------------------------------------- scikit-learn

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the table, so that a pickle or file holds only the model."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "slopes_" in state:  # a file has no pairs as keys
            state["slopes_"] = list(state["slopes_"].items())
        return {name: value for name, value in state.items() if name not in _OF_THE_DATA}

    def __setstate__(self, state: dict[str, Any]) -> None:
        slopes = {"slopes_": dict(state["slopes_"])} if "slopes_" in state else {}
        super().__setstate__(state | slopes)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: which input is accepted."""
        return table_tags(super().__sklearn_tags__(), self.missing)
