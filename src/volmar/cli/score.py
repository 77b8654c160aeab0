"""``volmar score``: how good a labelling of a table is, with and without the truth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from scipy import sparse

from volmar.cli.console import Screen, UsageError, counted, say
from volmar.cli.label_lines import label_test_content, print_label_test, tested_labels
from volmar.cli.match_labels import match_labels
from volmar.cli.rows import read_rows

if TYPE_CHECKING:
    from volmar.diagnostics import LabelTestResult

__all__ = [
    "Judgement",
    "Judgements",
    "agreement_scores",
    "drawn",
    "label_free_scores",
    "match_labels",
    "print_judgements",
    "score_file",
    "shown",
]

# Rows of the sample that silhouette and normalised cut are taken from: both grow with n².
MOST_SAMPLED = 5000
N_NEIGHBORS = 10
# The separation scores look at all pairs of clusters, k² problems of d³ each.
MOST_COMPARED = 200


@dataclass(frozen=True)
class Judgement:
    """One score of a labelling.

    Attributes
    ----------
    name : str
        What it is called.
    value : float or None
        None where it could not be computed; `meaning` then says why. Never NaN.
    better : {"higher", "lower", ""}
        Which way is better.
    meaning : str
        What it means, in a line.
    """

    name: str
    value: float | None
    better: str
    meaning: str


@dataclass(frozen=True)
class Judgements:
    """What ``volmar score`` finds out: of `n_rows` rows, which may be a sample of `n_all`."""

    source: str
    n_rows: int
    n_all: int
    sizes: dict[str, int]
    scores: list[Judgement]
    agreement: list[Judgement]
    notes: list[str]
    tested: LabelTestResult | None = None

    def as_json(self) -> str:
        """Return one JSON object."""
        content = {
            "file": self.source,
            "rows": self.n_all,
            "rows scored": self.n_rows,
            "clusters": self.sizes,
            "scores": {one.name: one.value for one in self.scores},
            "agreement": {one.name: one.value for one in self.agreement},
            "label test": label_test_content(self.tested),
            "notes": self.notes,
        }
        return json.dumps(content, ensure_ascii=False, allow_nan=False)


def score_file(
    source: str,
    labels: Path,
    *,
    truth: Path | None = None,
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    id_column: str | None = None,
    kinds: Mapping[str, str] | None = None,
    scale: str = "auto",
    missing: str = "impute",
    seed: int = 0,
    test: bool = True,
    as_json: bool = False,
) -> Judgements:
    """Judge the labels of a file for the rows of another, and print the scores.

    Parameters
    ----------
    source : str
        The table, a folder of tables (of which rows are drawn), or the name of a built-in set.
    labels, truth : Path
        Tables with a column ``label``, or with one column beside the ids. Labels belong to the
        row with the same id where both tables have ids, else to the row in the same place. Not
        given, the truth is that of a built-in set or of a libsvm file, where there is one.
    columns, drop, id_column, kinds, scale, missing
        As for `volmar.tables.Preparation`.
    seed : int, default=0
        Draws the rows of a folder, the sample of silhouette and normalised cut, and the splits
        of the test.
    test : bool, default=True
        Whether to test which clusters are separated (`volmar.evidence.label_test`).
    as_json : bool, default=False
        Whether to print one JSON object in place of a table.
    """
    from volmar.tables import Preparation

    with counted("reading"):
        given = _read_labels("--labels", labels)
        true = _read_labels("--truth", truth) if truth is not None else None
    preparation = Preparation(
        columns=list(columns) or None,
        drop=list(drop) or None,
        id_column=id_column,
        kinds=dict(kinds or {}),
        scale=scale,
        missing=missing,
    ).check_parameters()
    table = read_rows(source, preparation, seed=seed)
    rows = table.rows
    notes = [*rows.notes, *rows.warnings]
    found = match_labels("--labels", labels, given, rows, notes)
    classes = None
    if true is not None and truth is not None:
        classes = match_labels("--truth", truth, true, rows, notes)
    elif table.truth is not None:
        classes = np.asarray(table.truth)[rows.kept]
        notes.append(f"the truth is that of {table.name} itself")
    # Two classes are often called -1 and 1, and then none of them is noise.
    noise = None if set(np.unique(found)) == {"-1", "1"} else "-1"
    in_cluster = found != (noise or "")
    names, codes = np.unique(found[in_cluster], return_inverse=True)
    _check_clusters(labels, len(names), len(found), len(found) - len(codes))
    X = rows.X
    if not in_cluster.all():
        n_noise = int(np.count_nonzero(~in_cluster))
        notes.append(
            f"{n_noise:,} of {len(found):,} rows have the label -1 (noise), and are left out of "
            "the scores"
        )
        X = X[in_cluster]
        classes = None if classes is None else classes[in_cluster]
    with counted("judging"):
        scores = label_free_scores(X, codes, seed=seed)
        agreement = [] if classes is None else agreement_scores(classes, codes)
    tested = tested_labels(rows.X, found, noise=noise, seed=seed, notes=notes) if test else None
    sizes = dict(zip(map(str, names), np.bincount(codes).tolist(), strict=True))
    judgements = Judgements(
        table.name, len(found), table.n_rows, sizes, scores, agreement, notes, tested
    )
    print_judgements(judgements, as_json=as_json)
    return judgements


# ---------------------------------------------------------------------- labels of the rows


def _read_labels(option: str, path: Path) -> Any:
    from volmar.tables import read_table

    path = Path(path).expanduser()
    if not path.is_file():
        # Not a name of a built-in set, which is what a table of rows may be.
        what = "that is a folder" if path.is_dir() else "there is no such file"
        raise UsageError(f"{option} {path}: {what}. Check the path.")
    return read_table(path).data


def _check_clusters(path: Path, n_clusters: int, n_rows: int, n_noise: int) -> None:
    name = Path(path).name
    if n_clusters < 2:
        beside = f" beside {n_noise} of noise (label -1)" if n_noise else ""
        raise UsageError(
            f"--labels {name} has one label for all {n_rows - n_noise} rows{beside}, and scores "
            "compare clusters. Give labels of two clusters or more."
        )
    if n_clusters > n_rows / 2 and n_clusters > 2:
        raise UsageError(
            f"--labels {name} has {n_clusters} different labels for {n_rows} rows. Check that "
            "its column label holds clusters, and not ids."
        )


# ---------------------------------------------------------------------- the scores


def label_free_scores(X: Any, codes: NDArray, *, seed: int = 0) -> list[Judgement]:
    """Return what can be said of labels without the truth.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR.
    codes : ndarray of int, shape (n,)
        Labels, of two clusters or more.
    seed : int, default=0
        Draws the sample of silhouette and normalised cut.
    """
    from volmar.metrics import imbalance, msp_score, separation_score

    chosen = drawn(len(codes), MOST_SAMPLED, seed)
    sampled, some = X[chosen], codes[chosen]
    return [
        _separation(
            "separation score",
            separation_score,
            X,
            codes,
            "worst-case share of rows that a straight border puts right; 1 is perfect",
        ),
        _separation(
            "MSP",
            msp_score,
            X,
            codes,
            "the same at the best border, unequal sizes forgiven: a few outliers win it",
        ),
        _silhouette(sampled, some, len(codes)),
        Judgement(
            "Calinski-Harabasz",
            _calinski_harabasz(X, codes),
            "higher",
            "spread between the clusters over that within; for comparing, no upper end",
        ),
        _cut(sampled, some, len(codes)),
        Judgement(
            "imbalance",
            imbalance(codes),
            "",
            "sizes: 0 all equal, near 1 one cluster has hardly any rows; neither is wrong",
        ),
    ]


def agreement_scores(classes: NDArray, codes: NDArray) -> list[Judgement]:
    """Return how well labels agree with the truth."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    from volmar.metrics import clustering_error, pair_f_measure

    return [
        Judgement(
            "error",
            clustering_error(classes, codes),
            "lower",
            "share of rows outside the class that their cluster stands for; 0 is perfect",
        ),
        Judgement(
            "NMI",
            float(normalized_mutual_info_score(classes, codes, average_method="geometric")),
            "higher",
            "what clusters tell of classes, from 0 (nothing) to 1",
        ),
        Judgement(
            "ARI",
            float(adjusted_rand_score(classes, codes)),
            "higher",
            "pairs of rows treated alike (adjusted Rand), 0 by chance, 1 perfect",
        ),
        Judgement(
            "F measure",
            pair_f_measure(classes, codes),
            "higher",
            "precision and recall of pairs in one cluster, from 0 to 1",
        ),
    ]


def drawn(n: int, size: int, seed: int) -> NDArray[np.intp]:
    """Return the places of rows drawn at random, all where there are no more than `size`."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))


def _separation(name: str, score: Any, X: Any, codes: NDArray, meaning: str) -> Judgement:
    k = int(codes.max()) + 1
    if k > MOST_COMPARED:
        return Judgement(name, None, "higher", f"left out: {k} clusters make too many pairs")
    try:
        return Judgement(name, score(X, codes), "higher", meaning)
    except MemoryError as error:
        return Judgement(name, None, "higher", f"left out: {error}")


def _silhouette(X: Any, codes: NDArray, n: int) -> Judgement:
    from sklearn.metrics import silhouette_score

    k = len(np.unique(codes))
    if not 1 < k < len(codes):
        why = f"left out: a sample of {len(codes)} rows has {k} clusters"
        return Judgement("silhouette", None, "higher", why)
    meaning = "how much nearer rows are to their own cluster than to the next; -1 to 1"
    value = float(silhouette_score(X, codes))
    return Judgement("silhouette", value, "higher", meaning + _of_sample(len(codes), n))


def _cut(X: Any, codes: NDArray, n: int) -> Judgement:
    from volmar.graphs import nearest_neighbors_similarity
    from volmar.metrics import normalized_cut

    k = min(N_NEIGHBORS, len(codes) - 1)
    W = nearest_neighbors_similarity(X, n_neighbors=k, neighbors="exact")
    meaning = f"ties between {k} nearest neighbours that are cut; 0 to the number of clusters"
    value = normalized_cut(W, codes)
    return Judgement("normalised cut", value, "lower", meaning + _of_sample(len(codes), n))


def _of_sample(n_sampled: int, n: int) -> str:
    return f" (of {n_sampled:,} rows)" if n_sampled < n else ""


def _calinski_harabasz(X: Any, codes: NDArray) -> float:
    """Return the score of scikit-learn, which takes no sparse rows."""
    from sklearn.metrics import calinski_harabasz_score

    if not sparse.issparse(X):
        return float(calinski_harabasz_score(X, codes))
    n, sizes = len(codes), np.bincount(codes)
    members = sparse.csr_array((np.ones(n), (codes, np.arange(n))))
    sums = (members @ X).toarray()
    mean = sums.sum(axis=0) / n
    total = float(X.multiply(X).sum()) - n * float(mean @ mean)
    between = float((sums**2 / sizes[:, None]).sum()) - n * float(mean @ mean)
    within = max(total - between, 0.0)
    # As scikit-learn has it: 1 where no cluster has any spread.
    return between * (n - len(sizes)) / (within * (len(sizes) - 1)) if within > 0 else 1.0


# ---------------------------------------------------------------------- print


def print_judgements(judgements: Judgements, *, as_json: bool = False) -> None:
    """Print the scores as a table, or as JSON."""
    if as_json:
        Screen().out(judgements.as_json(), highlight=False)
        return
    for note in judgements.notes:
        say(f"note: {note}")
    console = Screen(highlight=False, emoji=False)
    sizes = ", ".join(str(size) for size in list(judgements.sizes.values())[:20])
    more = ", ..." if len(judgements.sizes) > 20 else ""
    is_sample = judgements.n_rows < judgements.n_all
    of_all = f" of {judgements.n_all}" if is_sample else ""
    console.print(
        f"{judgements.source}: {judgements.n_rows}{of_all} rows in {len(judgements.sizes)} "
        f"clusters of {sizes}{more}",
        markup=False,
        soft_wrap=True,
    )
    console.print("\nWithout the truth:")
    console.print(_table(judgements.scores))
    if judgements.agreement:
        console.print("Against the truth:")
        console.print(_table(judgements.agreement))
    if judgements.tested is not None:
        print_label_test(console, judgements.tested)


def _table(scores: list[Judgement]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("score", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("better", no_wrap=True)
    table.add_column("what it means")
    for one in scores:
        table.add_row(one.name, shown(one.value), one.better, one.meaning)
    return table


def shown(value: float | None) -> str:
    """Return a score with three digits or so, a dash where there is none."""
    if value is None or not np.isfinite(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
