"""``volmar predict``, ``score`` and ``compare`` on folders, noise labels, and samples of rows."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers.cli import invoke
from sklearn.metrics import adjusted_rand_score, silhouette_score

from volmar import MSPC, AutoClusterer
from volmar.cli import compare, rows
from volmar.cli.compare import compare_file
from volmar.cli.console import UsageError
from volmar.cli.score import score_file
from volmar.models import save_model
from volmar.table_clusterer import compare_methods, comparison
from volmar.tables import Preparation, TableError, read_table
from volmar.tables.blocks import sample_rows
from volmar.tables.folder import computed, read_folder
from volmar.tables.prepare import PreparedTable
from volmar.tables.write import match_labels


@pytest.fixture(autouse=True)
def one_thread():
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def groups(rng):
    """Three groups of 600 rows."""
    y = np.arange(600) % 3
    X = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 3]])[y] + rng.normal(size=(600, 3))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.insert(0, "who", [f"id-{i}" for i in range(600)])
    return frame, y


def split(frame, folder, kind="parquet"):
    folder.mkdir(exist_ok=True)
    for number, places in enumerate(np.array_split(np.arange(len(frame)), 7)):
        part = frame.iloc[places]
        path = folder / f"{number}.{kind}"
        part.to_csv(path, index=False) if kind == "csv" else part.to_parquet(path, index=False)
    return folder


@pytest.fixture(params=["csv", "parquet"])
def folder(request, groups, tmp_path):
    return split(groups[0], tmp_path / "parts", request.param)


class TestSample:
    def test_is_uniform_and_repeatable(self, tmp_path):
        frame = pd.DataFrame({"x": np.arange(1000)})
        whole = read_folder(split(frame, tmp_path / "parts"))
        one, same = sample_rows(whole, 100), sample_rows(whole, 100)
        np.testing.assert_array_equal(one.places, same.places)
        np.testing.assert_array_equal(one.frame["x"], one.places)
        assert one.n_rows == 1000
        assert (np.diff(one.places) > 0).all()
        drawn = np.concatenate(
            [sample_rows(whole, 100, random_state=seed).places for seed in range(60)]
        )
        # 6,000 draws over ten tenths: 600 each, and a standard deviation of 22
        counts = np.bincount(drawn // 100, minlength=10)
        assert abs(counts - 600).max() < 110

    def test_of_fewer_rows_than_asked_for(self, tmp_path):
        frame = pd.DataFrame({"x": np.arange(50), "t": ["a", "b"] * 25})
        told = []
        drawn = sample_rows(
            read_folder(split(frame, tmp_path / "parts")),
            100,
            progress=lambda *numbers: told.append(numbers),
        )
        np.testing.assert_array_equal(drawn.places, np.arange(50))
        assert drawn.frame["t"].tolist() == ["a", "b"] * 25
        assert told[-1] == (7, 7)

    def test_without_rows(self, tmp_path):
        pd.DataFrame({"x": []}).to_csv(tmp_path / "a.csv", index=False)
        with pytest.raises(TableError, match="no rows"):
            sample_rows(read_folder(tmp_path))


class TestCsvTypes:
    def test_types_are_those_of_all_files(self, tmp_path):
        (tmp_path / "1.csv").write_text("n,m,t,e\n1,1,1,\n2,2,2,\n")
        (tmp_path / "2.csv").write_text("n,m,t,e\n3,,x,\n4,2.5,y,\n")
        frame = read_folder(tmp_path).compute()
        assert frame["n"].tolist() == [1, 2, 3, 4]
        np.testing.assert_array_equal(frame["m"], [1, 2, np.nan, 2.5])
        assert frame["t"].tolist() == ["1", "2", "x", "y"]
        assert frame["e"].isna().all()

    def test_a_word_far_down_is_a_missing_value(self, tmp_path, rng):
        values = [f"{x:.3f},{y:.3f}" for x, y in rng.normal(size=(1500, 2))]
        values[1300] = "1.5,word"
        (tmp_path / "1.csv").write_text("n,m\n" + "\n".join(values) + "\n")
        drawn = sample_rows(read_folder(tmp_path))
        assert drawn.frame["m"][1300] == "word"
        assert float(drawn.frame["m"][0]) == float(values[0].split(",")[1])
        result = invoke("cluster", tmp_path)
        assert result.exit_code == 0, result.stderr
        assert "'word' in row 1300" in result.stderr

    def test_blocks_of_a_file_are_the_file(self, tmp_path, monkeypatch, rng):
        frame = pd.DataFrame({"n": np.arange(300), "x": rng.normal(size=300), "ä": 'ö,"ü'})
        frame.loc[200, "n"] = 2**60 + 1
        frame.to_csv(tmp_path / "1.csv", index=False)
        frame.to_csv(tmp_path / "2.csv.gz", index=False)
        for size in (1 << 26, 1000, 37, len("n,x,ä\n".encode())):
            monkeypatch.setattr("volmar.tables.folder._TEXT_BLOCK", size)
            back = read_folder(tmp_path)
            assert back.npartitions > 100 if size < 100 else back.npartitions < 30
            want = pd.concat([frame, frame], ignore_index=True)
            got = pd.concat([part for part in computed(back.to_delayed()) if len(part)])
            pd.testing.assert_frame_equal(
                got.reset_index(drop=True), want, check_dtype=False, rtol=0
            )
            some = pd.concat(part for part in computed(back[["x"]].to_delayed()) if len(part))
            np.testing.assert_array_equal(some["x"], want["x"])

    def test_damage_names_the_file(self, tmp_path):
        rows = "\n".join(f"{i},{i}" for i in range(1500))
        (tmp_path / "1.csv").write_text("n,m\n" + rows + "\n7,8,9\n")
        with pytest.raises(TableError, match=r"1\.csv cannot be read: Expected 2 fields"):
            sample_rows(read_folder(tmp_path))

    def test_damage_in_a_later_block(self, tmp_path, monkeypatch):
        monkeypatch.setattr("volmar.tables.folder._TEXT_BLOCK", 1000)
        rows = "\n".join(f"{i},{i}" for i in range(1500))
        (tmp_path / "1.csv").write_text("n,m\n" + rows + "\n7,8,9\n")
        with pytest.raises(TableError, match=r"1\.csv cannot be read"):
            sample_rows(read_folder(tmp_path))

    def test_not_utf8_far_down(self, tmp_path):
        text = b"n,t\n" + b"1,a\n" * 100_000 + b"2,caf\xe9\n"
        (tmp_path / "1.csv").write_bytes(text)
        assert read_folder(tmp_path).compute()["t"].iloc[-1] == "caf\xe9"


class TestPredict:
    @pytest.fixture
    def model(self, groups, tmp_path):
        frame = groups[0]
        preparation = Preparation(id_column="who", scale="standard", missing="error")
        X = preparation.fit_prepare(frame).X
        save_model(tmp_path / "m.volmar", MSPC(3, random_state=0).fit(X), preparation=preparation)
        return tmp_path / "m.volmar"

    @pytest.mark.parametrize("out", ["l.csv", "l.parquet"])
    def test_is_that_of_one_file(self, folder, groups, model, tmp_path, out):
        groups[0].to_csv(tmp_path / "all.csv", index=False)
        for source, path in ((tmp_path / "all.csv", "one.csv"), (folder, out)):
            result = invoke("predict", model, source, "-o", tmp_path / path)
            assert result.exit_code == 0, result.stderr
            assert "600 rows, 200 in cluster 0" in result.stdout
        want, got = read_table(tmp_path / "one.csv").data, read_table(tmp_path / out).data
        assert got["who"].tolist() == want["who"].tolist()
        assert got["label"].tolist() == want["label"].tolist()
        np.testing.assert_allclose(got["score"], want["score"], rtol=1e-9)

    def test_of_a_model_without_preparation(self, groups, tmp_path):
        frame = groups[0].drop(columns="who")
        frame["constant"] = 1.0  # a column that a preparation would leave out
        fitted = MSPC(3, random_state=0).fit(frame.to_numpy())
        save_model(tmp_path / "m.volmar", fitted)
        folder = split(frame, tmp_path / "parts")
        result = invoke("predict", tmp_path / "m.volmar", folder, "-o", tmp_path / "l.tsv")
        assert result.exit_code == 0, result.stderr
        back = read_table(tmp_path / "l.tsv").data
        assert back["row"].tolist() == list(range(600))
        assert back["label"].tolist() == fitted.labels_.tolist()

    def test_refusals(self, folder, model, tmp_path):
        result = invoke("predict", model, folder, "-o", tmp_path / "l.xlsx")
        assert result.exit_code == 2
        assert ".parquet" in result.stderr
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "x.csv").write_text("a,b,c\n1,,\n")
        result = invoke("predict", model, tmp_path / "other", "-o", tmp_path / "l.csv")
        assert result.exit_code == 2
        assert "block of other" in result.stderr
        assert not (tmp_path / "l.csv").exists()

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_of_what_cluster_saves(self, groups, tmp_path, kind):
        """Text, booleans and missing values, from a folder to a model and back to the folder."""
        frame, y = groups
        frame = frame.assign(flag=y == 1, city=np.array(["Rome", "Oslo"])[np.arange(600) % 2])
        frame.loc[5, "a"] = np.nan
        folder = split(frame, tmp_path / "parts", kind)
        model, one, two = (tmp_path / name for name in ("m.volmar", "one.csv", "two.csv"))
        result = invoke("cluster", folder, "--id", "who", "--save", model, "-o", one)
        assert result.exit_code == 0, result.stderr
        result = invoke("predict", model, folder, "-o", two)
        assert result.exit_code == 0, result.stderr
        want, got = pd.read_csv(one), pd.read_csv(two)
        assert want["label"].nunique() == 3
        pd.testing.assert_frame_equal(got, want)


class TestScore:
    def test_of_a_folder_is_that_of_the_file(self, folder, groups, tmp_path, capsys):
        frame, y = groups
        frame.to_csv(tmp_path / "all.csv", index=False)
        order = np.random.default_rng(0).permutation(600)
        labels = pd.DataFrame({"who": frame["who"][order], "label": y[order]})
        labels.to_parquet(tmp_path / "labels.parquet")
        of_folder, of_file = (
            score_file(str(source), tmp_path / "labels.parquet", id_column="who")
            for source in (folder, tmp_path / "all.csv")
        )
        assert of_folder.sizes == of_file.sizes == {"0": 200, "1": 200, "2": 200}
        for one, other in zip(of_folder.scores, of_file.scores, strict=True):
            assert one.value == pytest.approx(other.value)
        assert "600 rows" in capsys.readouterr().out

    @pytest.mark.parametrize("by", ["row", "order", "who"])
    def test_of_a_sample(self, folder, groups, tmp_path, by, monkeypatch, capsys):
        frame, y = groups
        monkeypatch.setattr(rows, "SAMPLE", 150)
        labels = pd.DataFrame({"row": np.arange(600), "label": y, "score": 0.0})
        if by == "who":
            labels = labels.assign(who=frame["who"]).drop(columns="row")
        elif by == "order":
            labels = labels[["label"]]
        labels.to_csv(tmp_path / "labels.csv", index=False)
        pd.DataFrame({"truth": y}).to_csv(tmp_path / "truth.csv", index=False)
        found = score_file(
            str(folder),
            tmp_path / "labels.csv",
            truth=tmp_path / "truth.csv",
            id_column="who" if by == "who" else None,
            drop=() if by == "who" else ("who",),
            test=False,
            as_json=True,
        )
        content = json.loads(capsys.readouterr().out)
        assert (content["rows"], content["rows scored"]) == (600, 150)
        assert content["notes"][0] == "150 of 600 rows were drawn at random (--seed)"
        assert not any("not scored" in note for note in content["notes"])
        assert sum(found.sizes.values()) == 150
        assert {one.name: one.value for one in found.agreement}["ARI"] == 1.0
        # labels that belong to other rows would not be separated at all
        assert found.scores[0].value > 0.8

    def test_clusters_without_a_row_in_the_sample(self, folder, groups, tmp_path, monkeypatch):
        monkeypatch.setattr(rows, "SAMPLE", 100)
        labels = groups[1].astype(str)
        drawn = sample_rows(read_folder(folder), 100).places
        labels[np.setdiff1d(np.arange(600), drawn)[0]] = "rare"
        pd.DataFrame({"label": labels}).to_csv(tmp_path / "labels.csv", index=False)
        found = score_file(str(folder), tmp_path / "labels.csv", drop=("who",), test=False)
        assert (
            "1 of the 4 labels of --labels labels.csv occur on none of the scored rows"
            in found.notes
        )

    def test_rows_with_their_labels_are_labels(self, groups, tmp_path):
        frame, y = groups
        frame.assign(cluster=y).to_csv(tmp_path / "all.csv", index=False)
        found = score_file(
            str(tmp_path / "all.csv"), tmp_path / "all.csv", drop=("who", "cluster"), test=False
        )
        assert found.sizes == {"0": 200, "1": 200, "2": 200}

    def test_noise_is_left_out(self, groups, tmp_path):
        frame, y = groups
        y = y.copy()
        y[:90] = -1
        frame.to_csv(tmp_path / "all.csv", index=False)
        pd.DataFrame({"label": y}).to_csv(tmp_path / "labels.csv", index=False)
        pd.DataFrame({"label": y % 3}).to_csv(tmp_path / "truth.csv", index=False)
        found = score_file(
            str(tmp_path / "all.csv"),
            tmp_path / "labels.csv",
            truth=tmp_path / "truth.csv",
            drop=("who",),
            scale="none",
        )
        assert found.sizes == {"0": 170, "1": 170, "2": 170}
        note = "90 of 600 rows have the label -1 (noise) and are left out of the scores"
        assert note in found.notes
        values = {one.name: one.value for one in found.scores}
        X = frame[["a", "b", "c"]].to_numpy()
        assert values["silhouette"] == pytest.approx(silhouette_score(X[90:], y[90:]))
        assert {one.name: one.value for one in found.agreement}["ARI"] == 1.0
        assert found.tested.n_noise == 90

    def test_one_cluster_beside_noise(self, groups, tmp_path):
        groups[0].to_csv(tmp_path / "all.csv", index=False)
        for labels in (np.where(np.arange(600) < 90, -1, 0), np.full(600, -1)):
            pd.DataFrame({"label": labels}).to_csv(tmp_path / "labels.csv", index=False)
            with pytest.raises(UsageError, match=r"apart from \d+ rows of noise \(label -1\)"):
                score_file(str(tmp_path / "all.csv"), tmp_path / "labels.csv", drop=("who",))

    def test_classes_of_plus_and_minus_one(self, groups, tmp_path):
        frame, y = groups
        frame.to_csv(tmp_path / "all.csv", index=False)
        signs = np.where(y == 1, 1, -1)
        pd.DataFrame({"label": signs}).to_csv(tmp_path / "labels.csv", index=False)
        found = score_file(str(tmp_path / "all.csv"), tmp_path / "labels.csv", drop=("who",))
        assert found.sizes == {"-1": 400, "1": 200}
        assert found.tested is not None
        assert found.tested.n_noise == 0


class TestCompare:
    def test_of_a_folder(self, folder, groups, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(rows, "SAMPLE", 300)
        found = compare_file(
            str(folder),
            ["KMeans", "CPMMC"],
            n_clusters="3",
            id_column="who",
            out=tmp_path / "c.pq",
        )
        assert found.n_rows == 300
        assert "300 of 600 rows" in capsys.readouterr().out
        back = read_table(tmp_path / "c.pq").data
        assert list(back.columns) == ["who", "KMeans", "CPMMC"]
        truth = groups[1][groups[0].set_index("who").index.get_indexer(back["who"])]
        assert adjusted_rand_score(truth, back["KMeans"]) > 0.95

    def test_superlinear_methods_are_fitted_to_a_sample(self, groups, monkeypatch, capsys):
        X, y = groups[0][["a", "b", "c"]].to_numpy(), groups[1]
        monkeypatch.setitem(comparison.MOST_FITTED, "SoftLabelMVC", 200)
        found = compare_methods(X, ["KMeans", "SoftLabelMVC"], n_clusters=3)
        kmeans, soft = found.runs
        assert (kmeans.n_fitted, soft.n_fitted) == (600, 200)
        assert soft.labels.shape == (600,)
        assert adjusted_rand_score(y, soft.labels) > 0.95
        compare.print_comparison(found, "groups", 600)
        printed = " ".join(capsys.readouterr().out.split())
        assert "SoftLabelMVC *" in printed
        assert "* fitted to a sample, other rows predicted: SoftLabelMVC 200 rows." in printed
        assert found.summary()["methods"]["SoftLabelMVC"]["rows fitted"] == 200

    def test_every_superlinear_method_predicts(self):
        import volmar

        for name in comparison.MOST_FITTED:
            assert hasattr(getattr(volmar, name), "predict")

    def test_the_clusters_of_auto_are_shown(self, tmp_path, rng):
        sizes = np.repeat([0, 1, 2], [700, 200, 100])
        X = np.array([[0, 0, 0], [6, 0, 0], [0, 6, 0]])[sizes] + rng.normal(size=(1000, 3))
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        frame.to_csv(tmp_path / "t.csv", index=False)
        found = compare_file(str(tmp_path / "t.csv"), ["KMeans", "AutoClusterer"])
        rows_used = Preparation(scale="standard", missing="error").fit_prepare(frame).X
        own = AutoClusterer(random_state=0).fit(rows_used)
        assert f"AutoClusterer finds evidence for {own.tree_.n_leaves} clusters" in found.notes
        (run,) = [run for run in found.runs if run.method == "AutoClusterer"]
        assert adjusted_rand_score(run.labels, own.labels_) == 1.0

    def test_kinds_of_columns(self, folder, tmp_path, groups):
        pd.DataFrame({"label": groups[1]}).to_csv(tmp_path / "labels.csv", index=False)
        for arguments in (
            ["compare", folder, "-m", "KMeans", "-k", 3],
            ["score", folder, "--labels", tmp_path / "labels.csv", "--no-test"],
        ):
            result = invoke(*arguments, "--kind", "who=ignore", "--kind", "c=ignore", "--json")
            assert result.exit_code == 0, result.stderr
            content = json.loads(result.stdout)
            assert content.get("columns", 2) == 2
            result = invoke(*arguments, "--kind", "c=nonsense")
            assert result.exit_code == 2
            assert "--kind c=nonsense" in result.stderr

    def test_other_suffixes_are_refused_at_once(self, folder, tmp_path):
        with pytest.raises(TableError, match=r"\.parquet"):
            compare_file(str(folder), out=tmp_path / "c.xlsx")


def test_ids_of_either_kind_match():
    table = pd.DataFrame({"id": [3.0, 4.0], "label": ["a", "b"]})
    rows = PreparedTable(np.zeros((2, 1)), np.array([4, 3]), "id", ["x"], np.ones(2, bool), [])
    assert match_labels(table, rows).tolist() == ["b", "a"]
