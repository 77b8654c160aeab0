"""Tables with a column of labels, or of groups: `TableClusterer` and the command line."""

import numpy as np
import pandas as pd
import pytest
from helpers.cli import invoke
from sklearn.datasets import make_blobs

from volmar import TableClusterer
from volmar.models import load_model
from volmar.tables import TableError

METHOD = "MSPC"
FINDS_THE_NUMBER = "AutoClusterer"


@pytest.fixture
def table():
    X, y = make_blobs(120, 3, centers=3, cluster_std=1.0, random_state=1)
    known = np.where(np.arange(120) % 10 == 0, np.array(["good", "bad", "odd"])[y], None)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    return frame.assign(known=known, household=np.arange(120) // 2, truth=y)


def fitted(table, **settings):
    model = TableClusterer(3, clusterer=METHOD, seeds="known", drop=["truth"], **settings)
    return model.fit(table)


def test_a_column_of_labels_names_the_clusters(table):
    model = fitted(table.drop(columns="household"))
    assert model.cluster_names_ == ["bad", "good", "odd"]
    names = np.array(model.cluster_names_)[model.labels_]
    known = table["known"].notna().to_numpy()
    assert (names[known] == table["known"][known]).all()
    assert np.mean(names == np.array(["good", "bad", "odd"])[table["truth"]]) > 0.95
    assert model.preparation_.used_ == ["a", "b", "c"]
    # New tables need no such column.
    np.testing.assert_array_equal(
        model.predict(table[["a", "b", "c"]])[~known], model.labels_[~known]
    )


def test_groups_stay_together(table):
    model = TableClusterer(
        2, clusterer=METHOD, must_link="household", drop=["truth", "known"]
    ).fit(table)
    assert (model.labels_[::2] == model.labels_[1::2]).all()
    assert not hasattr(model, "cluster_names_")


def test_more_clusters_than_labels_have_new_names(table):
    table.loc[table["known"] == "odd", "known"] = None
    model = fitted(table, must_link="household")
    assert model.cluster_names_ == ["bad", "good", "new 1"]


def test_the_model_keeps_the_names(table, tmp_path):
    model = fitted(table.drop(columns="household"))
    model.save(tmp_path / "model.volmar")
    again = load_model(tmp_path / "model.volmar").model
    assert again.cluster_names_ == model.cluster_names_
    np.testing.assert_array_equal(again.predict(table), model.predict(table))


def test_wrong_columns_are_refused(table):
    with pytest.raises(TableError, match=r"'nown'.*seeds="):
        TableClusterer(3, clusterer=METHOD, seeds="nown").fit(table)
    with pytest.raises(TableError, match="has a label in every row"):
        TableClusterer(3, clusterer=METHOD, seeds="truth").fit(table)
    with pytest.raises(TableError, match="has no labels"):
        TableClusterer(3, clusterer=METHOD, seeds="known").fit(table.assign(known=np.nan))
    with pytest.raises(ValueError, match="does not accept seeds"):
        TableClusterer(3, clusterer="SMIC", seeds="known").fit(table)


def test_the_command_line_writes_names(table, tmp_path):
    path, out, model = tmp_path / "t.csv", tmp_path / "labels.csv", tmp_path / "m.volmar"
    table.drop(columns="truth").to_csv(path, index=False)
    result = invoke(
        "cluster", str(path), "-k", "3", "-m", METHOD, "--seeds", "known", "--must-link",
        "household", "-o", str(out), "--save", str(model),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "0 is bad, 1 is good, 2 is odd" in " ".join(result.output.split())
    labels = pd.read_csv(out)["label"]
    known = table["known"].notna()
    assert (labels[known] == table["known"][known]).all()
    assert (labels[::2].to_numpy() == labels[1::2].to_numpy()).all()
    result = invoke("predict", str(model), str(path), "-o", str(tmp_path / "new.csv"))
    assert "in cluster bad" in " ".join(result.output.split())
    assert set(pd.read_csv(tmp_path / "new.csv")["label"]) == {"good", "bad", "odd"}


@pytest.mark.parametrize("size", ["0", "-3", "1.5", "many", "nan", "inf"])
def test_wrong_sizes_are_refused(table, tmp_path, size):
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    result = invoke("cluster", str(path), "-k", "3", "--max-size", size)
    assert result.exit_code == 2
    assert "--max-size takes a whole number of rows, or a share" in " ".join(result.output.split())


def names_of(model):
    return np.array(model.cluster_names_)[model.labels_]


@pytest.mark.parametrize(
    ("n_clusters", "clusterer"),
    [(3, METHOD), (4, METHOD), *((k, FINDS_THE_NUMBER) for k in (3, 4, "auto"))],
)
@pytest.mark.parametrize("missing", ["impute", "drop", "indicator"])
def test_the_name_of_every_kept_row_is_its_label(table, n_clusters, missing, clusterer):
    table.loc[[0, 1, 2, 10, 17, 18, 50, 63, 119], "b"] = np.nan
    model = TableClusterer(
        n_clusters,
        clusterer=clusterer,
        seeds="known",
        drop=["truth", "household"],
        missing=missing,
    ).fit(table)
    kept = model.labels_ >= 0
    assert kept.all() == (missing != "drop")
    kept &= table["known"].notna().to_numpy()
    assert (names_of(model)[kept] == table["known"][kept]).all()
    assert model.cluster_names_[:3] == ["bad", "good", "odd"]


DROPPED = {
    "all": (["bad", "good", "odd"], "'bad' or 'good' or 'odd'"),
    "one": (["good"], "label 'good'"),
    "two": (["bad", "odd"], "'bad' or 'odd'"),
    "unlabelled": ([None], "without a label have missing"),
}


@pytest.mark.parametrize(
    ("n_clusters", "name"),
    [(3, "all"), ("auto", "one"), (4, "two"), ("auto", "unlabelled"), (4, "unlabelled")],
)
def test_labels_whose_rows_are_all_dropped_are_reported(table, n_clusters, name, tmp_path):
    """The other names must not move to the clusters of these labels."""
    lost, message = DROPPED[name]
    table.loc[table["known"].isin(lost), "b"] = np.nan
    for clusterer in (FINDS_THE_NUMBER, METHOD)[: 1 if n_clusters == "auto" else 2]:
        model = TableClusterer(
            n_clusters, clusterer=clusterer, seeds="known", drop=["truth"], missing="drop"
        )
        with pytest.raises(TableError, match=message):
            model.fit(table)
        model.set_params(missing="impute").fit(table)
        kept = table["known"].notna().to_numpy()
        assert (names_of(model)[kept] == table["known"][kept]).all()
    path, out = tmp_path / "t.csv", tmp_path / "labels.csv"
    table.to_csv(path, index=False)
    result = invoke(
        "cluster", str(path), "-k", str(n_clusters), "--seeds", "known", "--drop", "truth",
        "--missing", "drop", "-o", str(out),
    )  # fmt: skip
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert message in text
    assert "given in --seeds" in text
    assert "Use --missing impute" in text
    assert not out.exists()
