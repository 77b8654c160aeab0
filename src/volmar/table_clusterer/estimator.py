"""`TableClusterer`: prepare the columns of a table and cluster its rows."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.utils.validation import check_is_fitted

import volmar
from volmar._checks import check_random_state, shown
from volmar._files import refuse_input
from volmar._input import known_values
from volmar._version import __version__
from volmar._warn import collecting, warn_user
from volmar.base.blocks import RefusedBlocksError
from volmar.base.clusterer import Clusterer, check_reject, rejected, warn_of_few_rows
from volmar.diagnostics.drift import CategoryCounts, DriftSummary, drift, plain
from volmar.evidence import calibrate_novelty
from volmar.guidance.knowledge import names_of_clusters
from volmar.report.evidence import evidence_of
from volmar.report.outcome import Evidence, Outcome, Progress, StageTimes
from volmar.tables import LoadedTable, Preparation, TableError
from volmar.tables.columns import as_columns, as_pandas, check_table, table_tags
from volmar.tables.prepare import PreparedTable

# Modules for pages, pictures and files are imported when needed, because a fit needs none.
if TYPE_CHECKING:
    from numpy.random import RandomState

    from volmar.diagnostics import ClusterDescription, DriftReport

# Kept by a fitted estimator for `describe` and `report`, and not saved to files.
_OF_THE_DATA = ("_table", "_prepared")


class TableClusterer(ClusterMixin, BaseEstimator):
    """Prepare the columns of a table, cluster its rows, and describe the clusters.

    It combines `volmar.tables.Preparation` and a clusterer. The command ``volmar cluster`` does
    the same with a file.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters. With "auto", every border is tested, and rows without evidence for
        groups stay a single cluster. Only `volmar.AutoClusterer` finds the number.
    clusterer : str or estimator, default="AutoClusterer"
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
        Maximum number of clusters with ``n_clusters="auto"``. If None, 50.
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
    novelty_ : volmar.evidence.ClusterNovelty
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
    volmar.save_report : Write a report of any fitted clusterer.
    volmar.load_model : Load a model that was written by `save`.

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
        clusterer: Any = "AutoClusterer",
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

        The fitted `preparation` will also prepare new tables. Reports describe the clusters by the
        columns of `table`, from which the rows were prepared. `blocks` are all rows in blocks: a
        clusterer that accepts dask arrays is fitted to them, and `is_fitted_to_blocks_` is True;
        others are fitted to `rows`. Tests, labels and reports always use `rows`.

        `labels_` has one entry per row of the table if `rows.kept` is given, and one per prepared
        row otherwise.
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
                is_in_blocks = blocks is not None and isinstance(model, Clusterer)
                if blocks is not None and is_in_blocks:
                    try:
                        fit_to_rows(model, blocks.dithered(seed), tell)
                    except RefusedBlocksError:
                        is_in_blocks = False
                if not is_in_blocks:
                    fit_to_rows(model, X, tell, **guide)
                # Seeds and links hold for the fitted rows.
                is_guided = guide or getattr(model, "max_cluster_size", None) is not None
                is_own = bool(X is rows.X or is_guided) and not is_in_blocks
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
        self.notes_ = list(rows.notes)
        if known.names:
            self.cluster_names_ = names_of_clusters(np.array(known.names), n_found).tolist()
            listed = ", ".join(f"{j} is {name!r}" for j, name in enumerate(self.cluster_names_))
            self.notes_.append(f"clusters have the names in column {self.seeds!r}: {listed}")
        texts = [*rows.warnings, *(one.text.splitlines()[0] for one in messages)]
        self.warnings_ = list(dict.fromkeys(texts))
        self.seconds_ = times.seconds
        self._table, self._prepared, self._fit_seed = table, rows, seed
        labels = np.asarray(labels)
        scores = self._scores_of(rows.X)
        self.slopes_ = {} if scores is None else score_slopes(scores, labels)
        self.labels_: NDArray[np.int64] = spread(labels, rows.kept, -1).astype(np.int64)
        confidence = self._confidence_of(scores, labels)
        self.confidence_: NDArray[np.float64] = spread(confidence, rows.kept, np.nan)
        self.drift_summary_ = self._summary(rows, labels, table)
        k = max(n_found, int(np.max(labels, initial=0)) + 1)
        self.novelty_ = calibrate_novelty(rows.X, labels, n_clusters=k, random_state=seed)
        for text in rows.warnings:
            warn_user(text)
        for one in messages:
            warn_user(*one)
        return self

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
        if isinstance(count, str) and type(made).__name__ != "AutoClusterer":
            raise ValueError(
                f"n_clusters={count!r} needs clusterer='AutoClusterer', which finds the number, "
                f"got clusterer={type(made).__name__}. Give a number of clusters."
            )
        settings: dict[str, Any] = {"n_clusters": count}
        is_name = isinstance(self.clusterer, str)
        if "random_state" in known and (is_name or known["random_state"] is None):
            settings["random_state"] = seed
        if (self.seeds or self.must_link) and "must_link" not in signature(made.fit).parameters:
            raise ValueError(
                f"{type(made).__name__} does not accept seeds and must_link. Use another "
                "clusterer, such as AutoClusterer."
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

    def predict(self, data: Any, reject: float | None = None) -> NDArray[np.int64]:
        """Assign the rows of a table to the clusters.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in `preparation_.used_`, in any order.
        reject : float, default=None
            Rows whose `novelty_score` is at most this value, such as 0.01, get the label -1. This
            is about that share of the rows from the same source, and all rows that are as far from
            the clusters. If None, no rows are rejected.

        Returns
        -------
        ndarray of shape (n,)
            Cluster of each row. It is -1 for rejected rows, and for rows that are left out because
            of missing values.
        """
        rows = self._new_rows(data)
        labels = np.asarray(self.model_.predict(rows.X)).astype(np.int64)
        if reject is not None:
            check_rejection(self, reject)
            labels = rejected(labels, self.novelty_prepared(rows, labels), reject)
        return spread(labels, rows.kept, -1).astype(np.int64)

    def novelty_score(self, data: Any) -> NDArray[np.float64]:
        """Return the p-value of each row in its cluster. It is low for rows far from all clusters.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in `preparation_.used_`.

        Returns
        -------
        ndarray of shape (n,)
            P-values. Among new rows from the source of the fitted table, at most about a share
            alpha has a p-value of at most alpha. NaN for rows that are left out because of missing
            values. The smallest possible value in each cluster is ``novelty_.min_p_values``.

        Notes
        -----
        P-values are computed from the prepared rows. A row without any values has the smallest
        p-value of all clusters. So has a row with an infinite value, or with ``scale="auto"`` an
        outlier in any column (more than ten times as far from the median as nearly all other
        values): the cluster is found from its other values, but the row is not an ordinary one.
        """
        rows = self._new_rows(data)
        labels = np.asarray(self.model_.predict(rows.X)).astype(np.int64)
        return spread(self.novelty_prepared(rows, labels), rows.kept, np.nan)

    def novelty_prepared(self, rows: PreparedTable, labels: NDArray) -> NDArray[np.float64]:
        """Return the p-values, as `novelty_score`, of prepared rows in given clusters."""
        return self.novelty_.p_values(rows.X, labels, rows.outlying)

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
        """Return the labels, scores and confidences of rows prepared by `preparation_`.

        Scores are NaN if the clusterer has no decision function.
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

    # ---------------------------------------------------------------------- drift

    def drift(self, data: Any, *, alpha: float = 0.05) -> DriftReport:
        """Test whether a new table differs from the fitted one.

        The shares of clusters, distances of rows from cluster centres, and columns are compared.
        Numeric columns are compared as prepared for the clusterer (after logs, filling in and
        scaling), categorical columns by the counts of their values. The fitted table itself is not
        needed, because the fit stores a summary, `drift_summary_`.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in `preparation_.used_`, in any order.
        alpha : float, default=0.05
            Level of the tests: a table from the same source is reported as changed with at most
            about this probability.

        Returns
        -------
        volmar.diagnostics.DriftReport
            The differences and their p-values.
        """
        return drift(self, data, alpha=alpha)

    def summarize_drift(self, data: Any, reference: DriftSummary | None = None) -> DriftSummary:
        """Summarise a table for a comparison. Summaries of blocks of a table can be joined.

        `reference` is the summary with which the new one will be compared, such as
        `drift_summary_`. If it is None, the new summary is the reference of a comparison.
        """
        check_is_fitted(self)
        table = check_table(self, as_pandas(data), reset=False)
        rows = self.preparation_.prepare(table)
        labels = np.asarray(self.model_.predict(rows.X))
        return self._summary(rows, labels, table, reference)

    def _summary(
        self,
        rows: PreparedTable,
        labels: NDArray,
        table: Any,
        reference: DriftSummary | None = None,
    ) -> DriftSummary:
        """Return the summary of prepared rows in clusters, and of their table."""
        names = self.preparation_.feature_names_
        k = self.n_clusters_ if reference is None else reference.counts.size
        k = max(k, int(labels.max(initial=0)) + 1) if reference is None else k
        found = DriftSummary.of_rows(rows.X, labels, k, names, reference=reference)
        kept = rows.kept
        n_left_out = 0 if kept is None else int(np.count_nonzero(~np.asarray(kept)))
        categories: dict[str, CategoryCounts] = {}
        missing: dict[str, int] = {}
        if table is not None:
            known = {} if reference is None else reference.categories
            categories, missing = _values_of(self.preparation_, table, known)
        return replace(found, n_left_out=n_left_out, categories=categories, missing=missing)

    # ---------------------------------------------------------------------- reports

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

        `command` and `command_for_two` reproduce the clusters and find two clusters; if None, they
        are Python code. `asked` are the options as shown in the report, by default the parameters.
        The other arguments are those of `report`.
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

        The file holds what new rows need, see `volmar.save_model`.

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
        prepared, tree = self.preparation_, getattr(self.model_, "tree_", None)
        splits = [
            {
                "n_rows": node.n_rows,
                "sides": [child.n_rows for child in node.children],
                "p_value": node.p_value,
                "level": node.level,
                "effect": node.effect,
                "repeats": node.repeats,
            }
            for node in (() if tree is None else tree.splits())
        ]
        return plain(
            {
                "volmar": __version__,
                "method": type(self.model_).__name__,
                "parameters": self.get_params(deep=False),
                "n_rows": self.labels_.size,
                "n_rows_used": used.size,
                "n_clusters": self.n_clusters_,
                "sizes": np.bincount(used, minlength=self.n_clusters_),
                "evidence": [vars(one) for one in self.evidence_],
                "splits": splits,
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
            from volmar.tables.prepare import source_columns

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


# ------------------------------------------------------------------------------ fitting


def fit_to_rows(model: Any, X: Any, tell: Callable[[int, int], None], **known: NDArray) -> None:
    """Fit a clusterer. `AutoClusterer` reports its progress to `tell`."""
    told = {"progress": tell} if "progress" in signature(model.fit).parameters else {}
    model.fit(X, **told, **known)


def number_found(model: Any, labels: NDArray, wanted: int | str) -> int:
    """Return the number of clusters that were found or requested."""
    if hasattr(model, "classes_") and hasattr(model, "novelty_score"):
        return len(model.classes_)
    found = int(np.max(labels)) + 1 if isinstance(wanted, str) else int(wanted)
    return int(getattr(model, "n_clusters_", found))


# ------------------------------------------------------------ columns of known labels and groups


class KnownColumns(NamedTuple):
    """Class of each row (-1 if unknown), names of the classes, and group of each row."""

    seeds: NDArray | None = None
    names: tuple[str, ...] = ()
    groups: NDArray | None = None

    def of_rows(self, kept: NDArray | None, column: str | None) -> dict[str, NDArray]:
        """Return the arguments of `fit` for the kept rows, given the name of the seeds column.

        An error is raised if no row of a class, or no row without a label, is kept. The names
        would otherwise belong to other clusters.
        """
        if kept is not None and self.seeds is not None:
            numbers = np.unique(self.seeds)
            gone = numbers[~np.isin(numbers, self.seeds[kept])]
            if gone.size:
                lost = " or ".join(shown(self.names[number]) for number in gone if number >= 0)
                raise TableError(
                    f"Column {shown(column)}, given in seeds=: all rows "
                    f"{f'with the label {lost}' if lost else 'without a label'} have missing "
                    "values and are dropped. Use missing='impute', or label other rows."
                )
        given = {"y": self.seeds, "must_link": self.groups}
        return {
            name: value if kept is None else value[kept]
            for name, value in given.items()
            if value is not None
        }


def known_columns(table: Any, seeds: str | None, must_link: str | None) -> KnownColumns:
    """Read the columns of classes and groups. `known_values` decides which fields are unknown."""
    numbers = groups = None
    names: tuple[str, ...] = ()
    if seeds is not None:
        numbers, names = _codes(table, seeds, "seeds=")
        if not names:
            raise TableError(
                f"Column {shown(seeds)}, given in seeds=, has no labels: all rows are empty or "
                "-1. Label some rows, or leave out seeds."
            )
        if (numbers >= 0).all():
            raise TableError(
                f"Column {shown(seeds)}, given in seeds=, has a label in every row, so no rows "
                "are left to cluster. Leave the labels of unknown rows empty."
            )
    if must_link is not None:
        groups = _codes(table, must_link, "must_link=")[0]
    return KnownColumns(numbers, names, groups)


def _codes(table: Any, column: str, argument: str) -> tuple[NDArray, tuple[str, ...]]:
    """Return the number of each row's value, -1 if unknown, and the known values as text."""
    columns = as_columns(table)
    (place,) = columns.find([column], argument)
    codes, words = columns.categories(place)
    try:
        known = known_values(columns.values(place), f"Column {shown(column)}", codes.size)[1]
    except ValueError as error:
        raise TableError(f"{error}") from error
    known &= codes >= 0
    used, numbers = np.unique(codes[known], return_inverse=True)
    found = np.full(codes.size, -1)
    found[known] = numbers
    return found, tuple(words[code] for code in used)


# ------------------------------------------------------------------------------ confidence


def score_slopes(scores: NDArray, labels: NDArray) -> dict[tuple[int, int], float]:
    r"""Return the slope of the logit for each pair of neighbouring clusters.

    For the rows of two clusters, the difference t of the two scores is modelled as a mixture of
    two normal distributions with a common variance, fitted by maximum likelihood (EM, which starts
    from the clusters). The log-odds are then linear in t with slope
    :math:`(\mu_a - \mu_b) / \sigma^2`.

    The smaller number of a pair comes first. A pair is left out if no row has its best and
    second-best scores in these two clusters.
    """
    matrix = _columns(scores)
    labels = np.asarray(labels)
    if matrix.shape[1] < 2 or np.unique(labels).size < 2:
        return {}
    pairs = np.sort(np.column_stack([labels, _next_best(matrix, labels)]), axis=1)
    slopes = {}
    for a, b in np.unique(pairs, axis=0):
        rows = np.flatnonzero((labels == a) | (labels == b))
        slopes[int(a), int(b)] = _slope(matrix[rows, b] - matrix[rows, a], labels[rows] == b)
    return slopes


def confidence_of(
    scores: NDArray, labels: NDArray, slopes: dict[tuple[int, int], float]
) -> NDArray[np.float64]:
    """Return the confidence of each row, from 0.5 (on the border between clusters) to 1.

    It is the logistic function of the slope times the difference between the scores of the row's
    cluster and the next best one. With a single cluster it is 1.
    """
    matrix = _columns(scores)
    labels = np.asarray(labels)
    if not slopes:
        return np.ones(len(labels))
    other = _next_best(matrix, labels)
    rows = np.arange(len(labels))
    lead = np.maximum(matrix[rows, labels] - matrix[rows, other], 0.0)
    # A pair without a fitted slope gets the smallest slope, which gives the lowest confidence.
    table = np.full((matrix.shape[1],) * 2, min(slopes.values()))
    for (a, b), slope in slopes.items():
        table[a, b] = table[b, a] = slope
    return 1.0 / (1.0 + np.exp(-np.minimum(table[labels, other] * lead, 700.0)))


def _columns(scores: NDArray) -> NDArray:
    """Return one column per cluster. A single score per row is that of the second of two."""
    scores = np.asarray(scores, dtype=np.float64)
    return scores if scores.ndim == 2 else np.column_stack([np.zeros(len(scores)), scores])


def _next_best(matrix: NDArray, labels: NDArray) -> NDArray[np.intp]:
    others = matrix.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    return np.argmax(others, axis=1)


def _slope(t: NDArray, is_second: NDArray) -> float:
    """Return the slope of the logit of the second group in t, 0 if there is only one group."""
    if np.ptp(t) == 0 or is_second.all() or not is_second.any():
        return 0.0
    order = np.argsort(t, kind="stable")
    if len(t) > 2000:  # evenly spaced quantiles are enough
        order = order[np.linspace(0, len(t) - 1, 2000).astype(np.intp)]
    second = is_second[order].astype(np.float64)
    values = t[order]
    # One outlier would widen both distributions.
    values = np.clip(values, *np.quantile(values, [0.005, 0.995]))
    unit = float(values.std()) or 1.0
    values = values / unit
    slope = 0.0
    for _ in range(200):
        share = np.clip(second.mean(), 1e-6, 1 - 1e-6)
        upper = second @ values / (share * len(values))
        lower = (1 - second) @ values / ((1 - share) * len(values))
        variance = np.mean(second * (values - upper) ** 2 + (1 - second) * (values - lower) ** 2)
        # Limit the slope: the variance of two groups of equal values would be 0.
        variance = max(float(variance), 1e-4)
        before, slope = slope, float(upper - lower) / variance
        logit = np.log(share / (1 - share)) + slope * (values - (upper + lower) / 2)
        second = 1.0 / (1.0 + np.exp(-np.clip(logit, -700.0, 700.0)))
        if abs(slope - before) <= 1e-4 * abs(slope):
            break
    return max(slope, 0.0) / unit


def warn_of_empty(model: Any, labels: NDArray) -> None:
    """Warn about clusters that were fitted to dithered rows and have no row of the table."""
    wanted = model.get_params(deep=False)["n_clusters"]
    n_clusters = model.n_clusters_ if isinstance(wanted, str) else int(wanted)
    if empty := sorted(set(range(n_clusters)) - set(labels.tolist())):
        warn_user(
            f"Cluster {', '.join(map(str, empty))} of {n_clusters} has no rows. The clusters were "
            "fitted to rows with added noise, and many rows have equal values. Lower n_clusters."
        )


# ------------------------------------------------------------------------------ new rows


def check_rejection(model: Any, reject: float) -> None:
    """Check the level and that the model has p-values, and warn if the level is too low."""
    check_reject(reject)
    novelty = getattr(model, "novelty_", None)
    if novelty is None:
        raise ValueError(
            f"reject={reject:g} needs p-values, and this {type(model).__name__} was saved without "
            "them. Save it again after TableClusterer.fit (volmar cluster --save), or after "
            "fit_novelty."
        )
    warn_of_few_rows(novelty, reject)


def spread(values: NDArray, kept: NDArray | None, missing: float) -> NDArray:
    """Return values of all rows from those of the kept rows, with `missing` for the others."""
    if kept is None or kept.all():
        return values
    out = np.full((len(kept), *values.shape[1:]), missing, dtype=values.dtype)
    out[kept] = values
    return out


def _values_of(
    preparation: Preparation, table: Any, known: dict[str, CategoryCounts]
) -> tuple[dict[str, CategoryCounts], dict[str, int]]:
    """Return the counts of categories, and of missing values in numeric columns."""
    columns = as_columns(table)
    missing: dict[str, int] = {}
    place = {name: j for j, name in enumerate(columns.names)}
    if not columns.is_sparse:
        names = [name for name in preparation.numbers_ if name in place]
        counts = columns.n_missing([place[name] for name in names])
        missing = {name: n for name, n in zip(names, counts, strict=True) if n}
    categories = {}
    if columns.is_frame:
        counted_kinds = ("categorical", "boolean")
        wanted = [name for name, kind in preparation.kinds_.items() if kind in counted_kinds]
        for name in dict.fromkeys([*preparation.texts_, *wanted]):
            if name in place:
                before = known[name].counts if name in known else None
                counted = columns.categories(place[name])
                categories[name] = CategoryCounts.of_codes(*counted, before)
    return categories, missing


# ---------------------------------------------------------------------- clusterers by name


def clusterer_names() -> list[str]:
    """Return the names of the clusterers in volmar."""
    return list(volmar.CLUSTERERS)


def find_name(given: str, names: Sequence[str], argument: str) -> str:
    """Return the name that matches the given one, ignoring case.

    `argument` precedes the given name in the error message.
    """
    for known in names:
        if known.lower() == given.lower():
            return known
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"{argument}{given!r} is not known.{hint} Choose from {', '.join(names)}.")


def new_clusterer(given: Any, argument: str = "clusterer=", **parameters: Any) -> Any:
    """Return an unfitted clusterer, by its name or as a clone of an estimator.

    Parameters that the clusterer does not have are ignored.
    """
    if isinstance(given, str):
        made = getattr(volmar, find_name(given, clusterer_names(), argument))()
    else:
        made = _checked(given)
    known = made.get_params(deep=False)
    return made.set_params(**{name: parameters[name] for name in parameters if name in known})


def _checked(given: Any) -> Any:
    """Return a clone of an estimator. Raise `TypeError` if it cannot be used."""
    is_fit = not isinstance(given, type) and hasattr(given, "get_params")
    if not is_fit or "n_clusters" not in given.get_params(deep=False):
        raise TypeError(
            "clusterer must be the name of a clusterer of volmar, or a clusterer with a parameter "
            f"n_clusters, got {given!r:.80}."
        )
    if not hasattr(given, "predict"):
        raise TypeError(
            f"clusterer must have a method predict, for new rows, got {type(given).__name__}. Use "
            "another one, such as MSPC or KMeans."
        )
    return clone(given)
