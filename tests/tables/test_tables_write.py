"""Labels and labelled rows as CSV, TSV and Parquet."""

import os

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from volmar.tables import LoadedTable, TableError, read_table
from volmar.tables.write import (
    open_columns,
    open_labels,
    open_rows,
    write_labels,
    write_rows,
    written_kind,
)

SUFFIXES = [".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq"]


class TestLabels:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_every_kind_reads_back(self, tmp_path, suffix, rng):
        ids = np.array(["a\tb", 'c "d"', "e,f", "g\nh", None], dtype=object)
        scores, confidence = rng.normal(size=5), rng.random(5)
        path = tmp_path / f"labels{suffix}"
        write_labels(path, ids, "name", [0, 1, 0, 2, 1], scores, confidence=confidence)
        back = read_table(path).data
        assert list(back.columns) == ["name", "label", "score", "confidence"]
        assert back["name"].tolist()[:4] == ids.tolist()[:4]
        assert back["name"].isna().tolist() == [False] * 4 + [True]
        assert back["label"].tolist() == [0, 1, 0, 2, 1]
        np.testing.assert_array_equal(back["score"], scores)
        np.testing.assert_array_equal(back["confidence"], confidence)
        assert [file.name for file in tmp_path.iterdir()] == [path.name]

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_blocks_are_as_one(self, tmp_path, suffix, rng):
        scores = rng.normal(size=(1000, 3))
        labels, ids = scores.argmax(axis=1), np.arange(1000)
        path = tmp_path / f"blocks{suffix}"
        with open_labels(path, "row", confidence=True) as write:
            for part in (slice(0, 400), slice(400, 400), slice(400, 1000)):
                write(ids[part], labels[part], scores[part], scores[part].max(axis=1))
            assert not path.exists()
        whole = tmp_path / f"whole{suffix}"
        write_labels(whole, ids, "row", labels, scores, confidence=scores.max(axis=1))
        pd.testing.assert_frame_equal(read_table(path).data, read_table(whole).data)

    @pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
    def test_nothing_is_left_of_a_stopped_one(self, tmp_path, suffix):
        path = tmp_path / f"l{suffix}"
        path.write_text("old")

        def stopped():
            with open_labels(path, "row", force=True) as write:
                write([0, 1], [0, 1], [0.5, 0.5])
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert path.read_text() == "old"
        assert len(list(tmp_path.iterdir())) == 1

    def test_nothing_is_replaced_without_force(self, tmp_path):
        path = tmp_path / "l.parquet"
        path.write_text("old")
        with pytest.raises(TableError, match="force=True"):
            write_labels(path, [0], "row", [0], [0.0])
        assert path.read_text() == "old"

    @pytest.mark.parametrize("name", ["l.xlsx", "l.txt", "l.parquet.gz", "l.json", "l.gz"])
    def test_other_suffixes(self, tmp_path, name):
        with pytest.raises(TableError, match=r"\.csv, \.csv\.gz, \.tsv, \.tsv\.gz, \.parquet"):
            write_labels(tmp_path / name, [0], "row", [0], [0.0])
        assert not list(tmp_path.iterdir())

    def test_kinds(self):
        assert [written_kind(f"A.B{suffix}".upper()) for suffix in SUFFIXES] == [
            *["csv", "csv", "tsv", "tsv"],
            *["parquet", "parquet"],
        ]
        assert written_kind("/dev/stdout") == "csv"

    @pytest.mark.parametrize("id_name", ["label", "score", "confidence"])
    def test_names_do_not_clash(self, tmp_path, id_name):
        write_labels(tmp_path / "l.tsv", [7], id_name, [0], [1.0], confidence=[0.5])
        text = (tmp_path / "l.tsv").read_text()
        assert text == "id\tlabel\tscore\tconfidence\n7\t0\t1.0\t0.5\n"

    def test_confidence_must_be_announced(self, tmp_path):
        with open_labels(tmp_path / "l.csv", "row") as write:
            with pytest.raises(ValueError, match="without"):
                write([0], [0], [0.0], [0.5])
            write([0], [0], [0.0])
        with pytest.raises(ValueError, match=r"\(1,\), \(1,\), \(1,\) and \(2,\)"):
            write_labels(tmp_path / "m.csv", [0], "row", [0], [0.0], confidence=[0.5, 0.5])

    def test_ids_whose_type_changes(self, tmp_path):
        def write_both():
            with open_columns(tmp_path / "l.parquet", ["id"]) as write:
                write(np.array([1, 2]))
                write(np.array([3.0]))
                write(np.array([0.5]))

        with pytest.raises(TableError, match=r"\.csv"):
            write_both()
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_dates_and_missing_values(self, tmp_path, suffix):
        path = tmp_path / f"c{suffix}"
        days = np.array(["2024-01-31", "NaT"], dtype="datetime64[D]")
        with open_columns(path, ["day", "number", "any"]) as write:
            write(days, np.array([np.nan, 2.5]), np.array([pd.NA, "x"], dtype=object))
        back = read_table(path).data
        assert str(back["day"][0])[:10] == "2024-01-31"
        assert back["day"].isna().tolist() == [False, True]
        assert back["number"].isna().tolist() == [True, False]
        assert back["any"].isna().tolist() == [True, False]


class TestRows:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_rows_left_out_have_no_label(self, tmp_path, suffix):
        frame = pd.DataFrame({"a": [1.5, 2.5, np.nan], "b": ["x,y", None, "z\t"], 3: [1, 2, 3]})
        path = tmp_path / f"rows{suffix}"
        kept = np.array([True, False, True])
        assert write_rows(path, frame, [4, -1], kept=kept) == "cluster"
        back = read_table(path).data
        assert list(back.columns) == ["a", "b", "3", "cluster"]
        assert back["cluster"].isna().tolist() == [False, True, False]
        assert back["cluster"].dropna().tolist() == [4, -1]
        assert back["a"].isna().tolist() == [False, False, True]
        assert back["b"].tolist()[::2] == ["x,y", "z\t"]
        assert back["3"].tolist() == [1, 2, 3]
        assert list(frame.columns) == ["a", "b", 3]

    def test_text_stays_as_it_is(self, tmp_path):
        source = tmp_path / "in.csv"
        source.write_text("zip;n;x;s\n01234;1;0,50;NA\n00007;;1e2; b\n", encoding="utf-8")
        table = read_table(source)
        assert table.data["x"].tolist() == [0.5, 100.0]
        write_rows(tmp_path / "out.csv", table, np.array([1, 0]))
        lines = (tmp_path / "out.csv").read_text().splitlines()
        assert lines == ["zip,n,x,s,cluster", '01234,1,"0,50",NA,1', "00007,,1e2,b,0"]
        source.write_text("zip;n;x;s\n01234;1;0,50;NA\n")
        with pytest.raises(TableError, match="changed"):
            write_rows(tmp_path / "out2.csv", table, np.array([1, 0]))

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_carriage_returns_are_quoted(self, tmp_path, suffix):
        words = ["a\rb", 'c "d"\r\n', "e"]
        write_rows(tmp_path / f"r{suffix}", pd.DataFrame({"w": words}), [0, 1, 0])
        write_labels(tmp_path / f"l{suffix}", words, "w", [0, 1, 0], [0.5, 1.5, 2.5])
        for name in "rl":
            assert read_table(tmp_path / f"{name}{suffix}").data["w"].tolist() == words

    def test_the_name_is_new(self, tmp_path):
        frame = pd.DataFrame({"cluster": [1.0], "cluster_2": [2.0]})
        assert write_rows(tmp_path / "a.csv", frame, [0]) == "cluster_3"
        assert (tmp_path / "a.csv").read_text() == "cluster,cluster_2,cluster_3\n1.0,2.0,0\n"
        assert write_rows(tmp_path / "b.csv", frame, ["one"], name="group") == "group"

    @pytest.mark.parametrize("as_array", [np.asarray, sp.csr_array])
    def test_arrays(self, tmp_path, as_array):
        X = as_array(np.array([[1.0, 0.0], [0.0, 2.0]]))
        write_rows(tmp_path / "a.tsv", X, [1, 0])
        assert (tmp_path / "a.tsv").read_text() == "x0\tx1\tcluster\n1.0\t0.0\t1\n0.0\t2.0\t0\n"

    def test_a_large_sparse_table(self, tmp_path):
        X = sp.csr_array((30_000, 30_000))
        with pytest.raises(TableError, match="GiB"):
            write_rows(tmp_path / "a.csv", X, np.zeros(30_000, int))

    def test_a_named_index_is_kept(self, tmp_path):
        frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "x"], name="who"))
        write_rows(tmp_path / "a.csv", frame, [1, 0])
        assert (tmp_path / "a.csv").read_text() == "who,a,cluster\nx,1,1\nx,2,0\n"

    def test_lengths(self, tmp_path):
        frame = pd.DataFrame({"a": [1, 2]})
        with pytest.raises(ValueError, match=r"\(2,\) for labels.*1 of 2 rows"):
            write_rows(tmp_path / "a.csv", frame, [0, 1], kept=[True, False])
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("suffix", [".csv", ".parquet"])
    def test_in_blocks(self, tmp_path, suffix):
        blocks = [
            pd.DataFrame({"a": [1.0, 2.0], "b": [None, None], "c": [1, 2]}),
            pd.DataFrame({"a": [3.0], "b": ["late"], "c": [np.nan]}),
        ]
        path = tmp_path / f"rows{suffix}"
        with open_rows(path, name="group") as write:
            write(blocks[0], [1, 0])
            write(blocks[1], [], [False])
        back = read_table(path).data
        assert back["a"].tolist() == [1.0, 2.0, 3.0]
        assert back["b"].isna().tolist() == [True, True, False]
        assert back["c"].isna().tolist() == [False, False, True]
        assert back["group"].isna().tolist() == [False, False, True]

    def test_values_that_parquet_does_not_take(self, tmp_path):
        frame = pd.DataFrame({"a": [1, "x"]}, dtype=object)
        with pytest.raises(TableError, match=r"Parquet.*\.csv"):
            write_rows(tmp_path / "a.parquet", frame, [0, 1])
        assert not list(tmp_path.iterdir())

    def test_many_rows(self, tmp_path, rng):
        frame = pd.DataFrame({"a": rng.normal(size=70_000)})
        labels = rng.integers(3, size=70_000)
        write_rows(tmp_path / "a.csv", LoadedTable("a", frame), labels)
        back = pd.read_csv(tmp_path / "a.csv")
        np.testing.assert_array_equal(back["a"], frame["a"])
        np.testing.assert_array_equal(back["cluster"], labels)


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'volmar\[io\]'"):
        write_labels(tmp_path / "l.parquet", [0], "row", [0], [0.0])
    assert not os.listdir(tmp_path)
