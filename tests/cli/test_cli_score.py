"""``volmar score`` and ``compare``, by the functions behind them."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import dump_svmlight_file, load_digits
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score, silhouette_score

from volmar._warn import warn_user
from volmar.cli import score
from volmar.cli.compare import compare_file
from volmar.cli.console import UsageError
from volmar.cli.score import score_file
from volmar.datasets import make_blobs
from volmar.evidence import label_test
from volmar.metrics import label_free_scores, msp_score, scores, separation_score
from volmar.metrics.scores import agreement_scores
from volmar.report.drivers import sampled
from volmar.table_clusterer import compare_methods, comparison
from volmar.tables import TableError
from volmar.tables.write import match_labels

tables = pytest.importorskip("volmar.tables")
FREE = [
    "separation score",
    "MSP",
    "silhouette",
    "Calinski-Harabasz",
    "normalised cut",
    "imbalance",
]


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(120, centers=3, random_state=0)


@pytest.fixture
def table(tmp_path, blobs):
    """Write a table with ids, and labels in another order."""
    X, y = blobs
    names = [f"row-{i}" for i in range(len(y))]
    pd.DataFrame({"name": names, "a": X[:, 0], "b": X[:, 1]}).to_csv(
        tmp_path / "table.csv", index=False
    )
    order = np.random.default_rng(0).permutation(len(y))
    pd.DataFrame({"name": np.array(names)[order], "label": y[order]}).to_csv(
        tmp_path / "shuffled.csv", index=False
    )
    pd.DataFrame({"group": np.array(["x", "y", "z"])[y]}).to_csv(
        tmp_path / "ordered.csv", index=False
    )
    return tmp_path


def prepared(ids, kept=None, id_name="row"):
    ids = np.asarray(ids)
    kept = np.ones(len(ids), dtype=bool) if kept is None else np.asarray(kept)
    return SimpleNamespace(ids=ids, kept=kept, id_name=id_name)


def values(judgements):
    return {one.name: one.value for one in judgements}


# ---------------------------------------------------------------------- the scores


def test_scores_are_those_of_the_metrics(blobs):
    X, y = blobs
    found = values(label_free_scores(X, y))
    assert list(found) == FREE
    assert found["separation score"] == separation_score(X, y)
    assert found["MSP"] == msp_score(X, y)
    assert found["silhouette"] == pytest.approx(silhouette_score(X, y))
    assert found["Calinski-Harabasz"] == pytest.approx(calinski_harabasz_score(X, y))
    assert found["imbalance"] == 0.0
    # Three groups with wide gaps: no nearest neighbour is in another group.
    assert found["normalised cut"] == pytest.approx(0.0, abs=0.1)
    worse = values(label_free_scores(X, np.arange(len(y)) % 3))
    for one in label_free_scores(X, y)[:5]:
        sign = {"higher": 1, "lower": -1}[one.better]
        assert sign * (one.value - worse[one.name]) > 0


def test_scores_of_sparse_rows_are_those_of_dense_ones(blobs):
    X, y = blobs
    dense, thin = (values(label_free_scores(rows, y)) for rows in (X, sparse.csr_array(X)))
    assert thin == pytest.approx(dense)
    still = sparse.csr_array(np.repeat(np.eye(2), 3, axis=0))
    assert values(label_free_scores(still, np.repeat([0, 1], 3)))["Calinski-Harabasz"] == 1.0


def test_large_tables_are_sampled_and_the_seed_draws(blobs, monkeypatch):
    X, y = blobs
    monkeypatch.setattr(scores, "MOST_SAMPLED", 40)
    one, same, other = (label_free_scores(X, y, seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert values(one)["silhouette"] != values(other)["silhouette"]
    assert values(one)["separation score"] == values(other)["separation score"]
    assert "(of 40 rows)" in one[2].meaning


def test_scores_that_cannot_be_computed_say_why(monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 2))
    monkeypatch.setattr(scores, "MOST_COMPARED", 2)
    monkeypatch.setattr(scores, "MOST_SAMPLED", 10)
    rare = np.zeros(60, dtype=int)
    rare[int(np.setdiff1d(np.arange(60), sampled(60, 10, 0))[0])] = 1
    assert label_free_scores(X, rare)[2].meaning == "left out: a sample of 10 rows has 1 clusters"
    found = label_free_scores(X, np.arange(60) % 3)
    assert found[0].value is None
    assert "3 clusters have too many pairs" in found[0].meaning
    assert score.score_text(found[0].value) == "-"


def test_agreement_with_the_truth(blobs):
    _, y = blobs
    perfect = values(agreement_scores(np.array(["c", "a", "b"])[y], y))
    assert perfect == pytest.approx({"error": 0, "NMI": 1, "ARI": 1, "F measure": 1})
    labels = y.copy()
    labels[:6] = (y[:6] + 1) % 3
    found = values(agreement_scores(y, labels))
    assert found["error"] == pytest.approx(6 / 120)
    assert found["ARI"] == pytest.approx(adjusted_rand_score(y, labels))


# ---------------------------------------------------------------------- whose label is whose


def test_labels_follow_ids_and_else_the_order():
    frame = pd.DataFrame({"row": [2, 0, 1, 9], "label": ["c", "a", "b", "z"], "score": 0.5})
    notes = []
    found = match_labels(frame, prepared([0, 1, 2]), name="--labels l.csv", notes=notes)
    assert found.tolist() == ["a", "b", "c"]
    assert notes == ["--labels l.csv has labels for 1 rows that are not scored"]
    # Ids that were read as numbers with a point, because one was missing in the other table.
    as_float = pd.DataFrame({"name": [2.0, 0.0, 1.0], "k": [5, 6, 7]})
    rows = prepared([0, 1, 2], id_name="name")
    assert match_labels(as_float, rows).tolist() == ["6", "7", "5"]
    # No ids: by order, of all rows or of those that were kept.
    kept = prepared([0, 2], [True, False, True])
    for given in ([4, 5, 6], [4, 6]):
        frame = pd.DataFrame({"anything": given})
        assert match_labels(frame, kept).tolist() == ["4", "6"]
    assert match_labels(np.array([[4], [6]]), kept).tolist() == ["4", "6"]
    # The name of the ids may be that of a column of the labels.
    named = pd.DataFrame({"id": [1, 0], "label": [8, 9], "score": 0.0})
    assert match_labels(named, prepared([0, 1], id_name="label")).tolist() == [
        "9",
        "8",
    ]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"label": [1, 2]}, r"--labels l\.csv has 2 labels for 3 rows\. Give one label per row"),
        ({"label": [1, 2, None]}, "has 1 rows without a label"),
        ({"a": [1, 2, 3], "b": [1, 2, 3]}, r"no column named label, only 2 others \(a, b\)"),
        ({"row": [0, 1, 1], "label": [1, 2, 3]}, "has row '1' twice"),
        ({"row": [0, 1, 5], "label": [1, 2, 3]}, "no label for 1 of 3 rows, such as row '2'"),
    ],
)
def test_labels_that_do_not_fit_are_refused(frame, message):
    with pytest.raises(TableError, match=message):
        match_labels(pd.DataFrame(frame), prepared([0, 1, 2]), name="--labels l.csv")


# ---------------------------------------------------------------------- volmar score


def test_score_file_by_id_and_by_order(table, blobs, capsys):
    X, y = blobs
    source = str(table / "table.csv")
    by_id = score_file(source, table / "shuffled.csv", id_column="name")
    by_order = score_file(source, table / "ordered.csv", drop=["name"])
    assert values(by_id.scores) == pytest.approx(values(by_order.scores))
    assert by_id.sizes == {"0": 40, "1": 40, "2": 40}
    assert by_order.sizes == {"x": 40, "y": 40, "z": 40}
    assert by_id.agreement == []
    assert values(by_id.scores)["separation score"] == pytest.approx(separation_score(X, y))
    printed = capsys.readouterr().out
    assert "table.csv: 120 rows in 3 clusters of 40, 40, 40" in printed
    assert all(name in printed for name in FREE)
    assert "Agreement with the true classes" not in printed


def test_score_file_with_the_truth_and_as_json(table, capsys):
    found = score_file(
        str(table / "table.csv"),
        table / "ordered.csv",
        truth=table / "shuffled.csv",
        id_column="name",
        as_json=True,
    )
    assert values(found.agreement)["error"] == 0.0
    content = json.loads(capsys.readouterr().out)
    assert content["agreement"] == values(found.agreement)
    assert list(content["scores"]) == FREE
    assert content["clusters"] == {"x": 40, "y": 40, "z": 40}


@pytest.fixture
def too_many(tmp_path):
    """Write a table of three groups, and labels of six clusters, a tiny one and noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(606, 2)) + 6 * np.array([[0, 0], [1, 0], [0.5, 0.9]])[np.arange(606) % 3]
    labels = KMeans(6, n_init=3, random_state=0).fit_predict(X)
    labels[:4], labels[4:6] = 9, -1
    pd.DataFrame(X, columns=["a", "b"]).to_csv(tmp_path / "table.csv", index=False)
    pd.DataFrame({"label": labels}).to_csv(tmp_path / "labels.csv", index=False)
    return tmp_path


def test_score_file_tests_which_clusters_are_separated(too_many, capsys):
    found = score_file(str(too_many / "table.csv"), too_many / "labels.csv")
    assert found.tested.n_real == 3
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    words = " ".join(printed.split())
    assert "Which clusters are real? 6 tested clusters form 3 groups" in words
    assert words.count("are not separated") == 3
    assert words.count("rows) are separated") == 2
    assert "Cluster 9 (4 rows) is too small to test" in words
    assert "2 rows without a cluster (noise)" in words
    score_file(str(too_many / "table.csv"), too_many / "labels.csv", as_json=True)
    content = json.loads(capsys.readouterr().out)["label test"]
    assert content["separated groups"] == 3
    assert sorted(len(group) for group in content["groups"]) == [2, 2, 2]
    assert content["untested"] == ["9"]
    assert content["noise rows"] == 2
    assert [join["separated"] for join in content["joins"]] == [False] * 3 + [True] * 2
    assert all(join["sentence"] in str(found.tested) for join in content["joins"])


def test_score_file_can_leave_the_test_out(too_many, capsys):
    found = score_file(
        str(too_many / "table.csv"), too_many / "labels.csv", test=False, as_json=True
    )
    assert found.tested is None
    assert json.loads(capsys.readouterr().out)["label test"] is None


def test_labels_that_cannot_be_tested_leave_a_note(too_many, capsys):
    labels = np.arange(606) % 40
    pd.DataFrame({"label": labels}).to_csv(too_many / "labels.csv", index=False)
    found = score_file(str(too_many / "table.csv"), too_many / "labels.csv")
    assert found.tested is None
    assert "the clusters were not tested: no cluster in labels has" in found.notes[-1]
    assert "Which clusters are real" not in capsys.readouterr().out


def test_few_of_many_separated_pairs_are_printed(capsys, monkeypatch):
    result = label_test(*make_blobs(300, centers=3, random_state=0), random_state=0)
    monkeypatch.setattr(score, "MAX_PRINTED", 1)
    score.print_label_test(Console(width=80), result)
    printed = capsys.readouterr().out
    assert "... and 1 more pairs are separated (--json lists all)." in printed


def test_the_truth_is_that_of_an_svmlight_file(tmp_path, capsys):
    X, y = load_digits(n_class=2, return_X_y=True)
    dump_svmlight_file(X, y, str(tmp_path / "digits.svm"))
    pd.DataFrame({"label": np.arange(len(y)) % 2}).to_csv(tmp_path / "labels.csv", index=False)
    found = score_file(tmp_path / "digits.svm", tmp_path / "labels.csv")
    assert 0.3 < values(found.agreement)["error"] <= 0.5
    assert "true classes were taken from digits.svm" in found.notes
    assert "Agreement with the true classes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label\n" + "1\n" * 119, "has 119 labels for 120 rows"),
        ("label\n" + "1\n" * 120, "one label for all 120 rows"),
        ("label\n" + "\n".join(map(str, range(120))) + "\n", "120 different labels for 120 rows"),
        ("", "empty"),
        (None, r"--labels .*nothing\.csv: there is no such file"),
    ],
)
def test_score_file_refuses_in_a_line(table, content, message):
    path = table / "nothing.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        score_file(str(table / "table.csv"), path, id_column="name")
    assert "\n" not in str(error.value)


def test_a_folder_of_labels_is_refused(table):
    with pytest.raises(UsageError, match=r"--truth .*: that is a folder"):
        score_file(str(table / "table.csv"), table / "ordered.csv", truth=table)


# ---------------------------------------------------------------------- volmar compare


def test_compare_fits_scores_and_collects(blobs):
    X, _ = blobs
    found = compare_methods(X, ["MSPC", "KMeans"], n_clusters=3)
    assert [run.method for run in found.runs] == ["MSPC", "KMeans"]
    labels = KMeans(3, n_init=10, random_state=0).fit(X).labels_
    assert adjusted_rand_score(found.runs[1].labels, labels) == 1.0
    assert found.runs[0].n_clusters == 3
    assert values(found.runs[0].scores) == values(label_free_scores(X, found.runs[0].labels))
    matrix = found.agreement()
    assert matrix[0, 1] == matrix[1, 0]
    assert matrix[0, 1] == adjusted_rand_score(found.runs[0].labels, found.runs[1].labels)
    np.testing.assert_array_equal(np.diag(matrix), 1.0)


def test_compare_numbers_clusters_as_the_first_method_does():
    first = np.array([0, 0, 1, 1, 2, 2])
    assert comparison._numbered_as(first, np.array([1, 1, 2, 2, 0, 0])).tolist() == first.tolist()
    assert (
        comparison._numbered_as(first, np.array([1, 1, 1, 0, 0, 0])).tolist() == [0] * 3 + [2] * 3
    )
    many = comparison._numbered_as(np.array([1, 0, 0]), np.array([0, 1, 2]))
    assert many[0] == 1
    assert sorted(many.tolist()) == [0, 1, 2]


def test_compare_leaves_out_what_cannot_be(blobs, monkeypatch):
    X, _ = blobs

    class Warns:
        def fit(self, X):
            warn_user("something\n  odd")
            self.labels_ = np.zeros(len(X), dtype=int)
            return self

    class Large:
        def fit(self, X):
            raise MemoryError("a matrix needs 9 GiB.")

    made = {"LDAKMeans": Warns(), "IterSVR": Large()}
    monkeypatch.setattr(comparison, "new_clusterer", lambda name, **_: made[name])
    found = compare_methods(X, ["LDAKMeans", "IterSVR"], n_clusters=2)
    assert list(found.left_out) == ["IterSVR"]
    assert found.left_out["IterSVR"] == "a matrix needs 9 GiB."
    assert found.warnings == ["LDAKMeans: something odd"]
    assert found.runs[0].scores == []  # one cluster, nothing to compare


def test_compare_file_prints_and_writes(table, capsys):
    out = table / "labels.csv"
    found = compare_file(str(table / "table.csv"), n_clusters="3", id_column="name", out=out)
    assert [run.method for run in found.runs] == list(comparison.DEFAULT_METHODS)
    assert {run.n_clusters for run in found.runs} == {3}
    printed = capsys.readouterr()
    assert "Agreement" in printed.out
    assert max(map(len, printed.out.splitlines())) <= 80
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["name", *comparison.DEFAULT_METHODS]
    assert [row["name"] for row in rows] == [f"row-{i}" for i in range(120)]
    assert [int(row["MSPC"]) for row in rows] == found.runs[1].labels.tolist()
    with pytest.raises(UsageError, match="exists already"):
        compare_file(str(table / "table.csv"), id_column="name", out=out)
    with pytest.raises(UsageError, match="there is no folder"):
        compare_file(str(table / "table.csv"), out=table / "none" / "labels.csv")


def test_compare_file_as_json_with_methods_by_any_spelling(table, capsys):
    compare_file(
        str(table / "table.csv"),
        ["kmeans", "Mspc", "KMEANS"],
        n_clusters="2",
        drop=["name"],
        as_json=True,
    )
    content = json.loads(capsys.readouterr().out)
    assert list(content["methods"]) == ["KMeans", "MSPC"]
    assert content["n_clusters"] == 2
    assert sum(content["methods"]["MSPC"]["clusters"]) == 120
    assert content["agreement"]["adjusted Rand index"][0][0] == 1.0


def test_compare_takes_the_number_that_the_evidence_supports(tmp_path, rng):
    grouped = np.vstack([rng.normal(at, 1, (150, 2)) for at in ((0, 0), (12, 0), (6, 10))])
    noise = rng.normal(size=(300, 2))
    for X, n_clusters, note in (
        (grouped, 3, "AutoClusterer finds evidence for 3 clusters"),
        (noise, 2, "there is no evidence for a split of these rows"),
        (noise[:20], 2, "20 rows are too few to test a split"),
    ):
        pd.DataFrame(X, columns=["a", "b"]).to_csv(tmp_path / "table.csv", index=False)
        found = compare_file(str(tmp_path / "table.csv"), ["KMeans"])
        assert found.n_clusters == n_clusters
        assert note in found.notes[-1]


def test_compare_file_refuses_in_a_line(table):
    source = str(table / "table.csv")
    for arguments, message in (
        ({"methods": ["SoftLabelMCV"]}, "Did you mean SoftLabelMVC.*KMeans"),
        ({"n_clusters": "1"}, "--n-clusters must be a whole number of at least 2, or auto"),
        ({"n_clusters": "many"}, "got 'many'"),
        (
            {"n_clusters": "500", "id_column": "name", "methods": ["MSPC"]},
            "no method could cluster table.csv. MSPC: .*500",
        ),
    ):
        with pytest.raises(ValueError, match=message) as error:
            compare_file(source, **arguments)
        assert "\n" not in str(error.value)


def test_compare_stopped_keeps_what_is_complete(table, monkeypatch, capsys):
    ended = comparison._fit

    def stop_at_the_second(X, rows, name, *rest):
        if name == "MSPC":
            raise KeyboardInterrupt
        return ended(X, rows, name, *rest)

    monkeypatch.setattr(comparison, "_fit", stop_at_the_second)
    out = table / "labels.csv"
    # Printed once, by what catches it: "volmar compare: stopped; complete: AutoClusterer."
    with pytest.raises(KeyboardInterrupt, match=r"^; complete: AutoClusterer$"):
        compare_file(str(table / "table.csv"), n_clusters="3", id_column="name", out=out)
    assert out.read_text().splitlines()[0] == "name,AutoClusterer"
    assert "volmar compare:" not in capsys.readouterr().err
