"""Reading and writing tables: all formats, damaged files, and error messages."""

import gzip
import io
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.table_files import refused

from volmar.tables import Preparation, TableError, read_table
from volmar.tables.blocks import prepare_blocks
from volmar.tables.folder import is_folder_of_tables, read_folder
from volmar.tables.write import open_labels, write_labels


class TestReading:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", "a,b\n1.5,2\n3,-4\n"),
            ("a.tsv", "a\tb\n1.5\t2\n3\t-4\n"),
            ("a.txt", "a b\n1.5  2\n 3 -4\n"),
            ("b.txt", "a|b\n1.5|2\n3|-4\n"),
            ("b.csv", "a;b\n1,5;2\n3;-4\n"),
            ("c.csv", "a;b\n1.5;2\n3;-4\n"),
            ("d.csv", "\ufeffa,b\r\n1.5,2\r\n3,-4\r\n"),
            ("e.csv", "a, b\n1.5, 2\n3, -4\n"),
            ("f.csv", "a,b\n1.5,2\n3,-4\n".encode("utf-16")),
            ("g.csv", "a,b\n1.5,2\n3,-4\n".encode("utf-32")),
            ("h.csv", b"\0\0\xfe\xff" + "a,b\n1.5,2\n3,-4\n".encode("utf-32-be")),
            ("i.csv", b"a,b\r1.5,2\r3,-4\r"),
            ("j.tsv", b"a\tb\r\n1.5\t2\r3\t-4\n"),
            ("g.csv.gz", gzip.compress(b"a,b\n1.5,2\n3,-4\n", mtime=0)),
        ],
    )
    def test_text_in_many_layouts(self, put, name, content):
        table = read_table(put(name, content))
        assert table.name == name
        assert list(table.data.columns) == ["a", "b"]
        np.testing.assert_array_equal(table.data.to_numpy(), [[1.5, 2], [3, -4]])
        assert table.truth is None

    def test_values_are_those_of_pandas(self, put, rng):
        frame = pd.DataFrame(rng.normal(size=(500, 4)) * 10.0 ** rng.integers(-20, 20, (500, 4)))
        path = put("a.csv", frame.to_csv(index=False))
        # The names 0, 1, 2, 3 are a header.
        np.testing.assert_array_equal(read_table(path).data.to_numpy(), frame.to_numpy())

    def test_a_first_line_of_numbers_is_a_row(self, put):
        table = read_table(put("a.csv", "1,2\n3,4\n"))
        assert list(table.data.columns) == ["x0", "x1"]
        assert len(table.data) == 2
        assert any("first line" in note for note in table.notes)
        decimal = read_table(put("b.csv", "1,5;2,5\n3,0;4,1\n"))
        np.testing.assert_array_equal(decimal.data.to_numpy(), [[1.5, 2.5], [3, 4.1]])

    def test_two_decimal_signs_are_noted(self, put):
        """In a German file, 1.234 beside 12,5 is more than a thousand."""
        (note,) = [n for n in read_table(put("a.csv", "a;b\n1.234;12,5\n987;1,25\n")).notes
                   if "decimal sign" in n]  # fmt: skip
        assert "12,5" in note
        assert "1.234" in note
        notes = read_table(put("b.csv", "a;b\n1234;12,5\n987;1,25\n")).notes
        assert not any("thousands" in note for note in notes)

    def test_latin_1_and_quoted_line_breaks(self, put):
        latin = read_table(put("a.csv", "a,é\n1,ü\n2,x\n".encode("latin-1")))
        assert list(latin.data.columns) == ["a", "é"]
        assert latin.data["é"].tolist() == ["ü", "x"]
        assert any("Latin-1" in note for note in latin.notes)
        late = "a,b\n" + "1,2\n" * 100_000 + "1,é\n"
        assert read_table(put("c.csv", late.encode("latin-1"))).data["b"].iloc[-1] == "é"
        quoted = read_table(put("b.csv", 'a,b\n1,"x\ny, z"\n2,w\n'))
        assert quoted.data["b"].tolist() == ["x\ny, z", "w"]

    def test_a_type_does_not_depend_on_where_pandas_cuts(self, put):
        rows = "".join(f"{i},{i / 8 if i < 180_000 else 'x'}\n" for i in range(200_000))
        table = read_table(put("a.csv", "a,b\n" + rows))
        assert {type(value) for value in table.data["b"]} == {str}

    def test_parquet(self, tmp_path):
        frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=pd.Index([5, 6], name="k"))
        frame.to_parquet(tmp_path / "a.parquet")
        assert list(read_table(tmp_path / "a.parquet").data.columns) == ["k", "a", "b"]

    def test_arrays(self, tmp_path):
        X = np.arange(6.0).reshape(3, 2)
        np.save(tmp_path / "a.npy", X)
        np.savez(tmp_path / "b.npz", data=X, y=np.ones(3))
        np.savez(tmp_path / "c.npz", other=np.eye(4), X=X)
        sp.save_npz(tmp_path / "d.npz", sp.csr_array(X))
        for name in ("a.npy", "b.npz", "c.npz"):
            np.testing.assert_array_equal(read_table(tmp_path / name).data, X)
        sparse = read_table(tmp_path / "d.npz").data
        assert sp.issparse(sparse)
        np.testing.assert_array_equal(sparse.toarray(), X)
        np.save(tmp_path / "e.npy", np.arange(3))
        assert read_table(tmp_path / "e.npy").data.shape == (3, 1)

    def test_libsvm(self, put):
        table = read_table(put("a.svm", "1 1:2 3:4\n-1 2:1\n"))
        np.testing.assert_array_equal(table.data.toarray(), [[2, 0, 4], [0, 1, 0]])
        np.testing.assert_array_equal(table.truth, [1, -1])
        assert read_table(put("b.libsvm", "0 1:2\n0 2:1\n")).truth is None
        packed = read_table(put("c.svm.gz", gzip.compress(b"1 1:2\n2 2:1\n", mtime=0)))
        assert packed.data.shape == (2, 2)

    def test_a_file_of_one_row(self, put):
        for name, content in (("a.svm", "1 1:0.5 3:2\n"), ("a.csv", "a,b\n1,2\n")):
            path = put(name, content)
            refused(lambda path=path: Preparation().fit(read_table(path)), name, "1 row")

    def test_a_file_without_a_suffix(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "iris").write_text("a,b\n1,2\n3,4\n")
        assert read_table("iris").data.shape == (2, 2)

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("a.csv", b"", ["a.csv is empty"]),
            ("a.csv", b"\n \n", ["a.csv is empty"]),
            ("a.csv", b"a,b\n", ["no rows"]),
            ("a.csv", bytes(range(256)) * 4, ["not a text file", "CSV"]),
            ("a.csv", b"\x89PNG\r\n\x1a\n", ["not a text file"]),
            ("a.csv", b"a,b,a\n1,2,3\n", ["columns 1 and 3", "'a'", "Rename"]),
            ("a.csv", b"a,b\n1,2,3\n", ["2 fields", "3"]),
            ("a.csv", b"a,b\n" + b"1,2\n" * 99 + b"1,2,3\n", ["line 101"]),
            ("a.csv", b'a,b\n1,"2\n', ["a.csv", "EOF"]),
            ("a.csv", b'"' + b"x" * 200_000, ["a.csv", "field"]),
            ("a.csv.gz", b"rubbish", ["a.csv.gz", "gzip"]),
            ("a.csv.gz", gzip.compress(os.urandom(3000))[:-40], ["a.csv.gz"]),
            ("a.parquet.gz", b"rubbish", ["gunzip"]),
            ("a.parquet", b"rubbish", ["a.parquet", "Parquet"]),
            ("a.npy", b"rubbish", ["a.npy", "objects"]),
            ("a.npy", b"\x93NUMPY\x01\x00\x08\x00((((((((", ["a.npy"]),
            ("a.npz", b"PK\x03\x04rubbish", ["a.npz"]),
            ("a.svm", b"1:2 3:4\n", ["a.svm", "label column:value"]),
            ("a.svm", b"# nothing\n", ["a.svm"]),
            ("a.docx", b"rubbish", ["'.docx'", "CSV"]),
        ],
    )
    def test_damage(self, put, name, content, words):
        path = put(name, content)
        refused(lambda: read_table(path), *words)

    def test_wrong_paths(self, tmp_path):
        refused(lambda: read_table(tmp_path / "no.csv"), "no file", "no.csv")
        refused(lambda: read_table("digit"), "no file", "'digit'")
        refused(lambda: read_table(tmp_path), "folder", ".parquet or .csv")
        refused(lambda: read_table("x" * 5000), "cannot be read")
        refused(lambda: read_table("a\0b"), "a\\x00b")

    def test_no_permission(self, put, monkeypatch):
        path = put("a.csv", "a\n1\n")

        def deny(*args, **kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("pathlib.Path.open", deny)
        refused(lambda: read_table(path), "a.csv", "permission")

    def test_objects_are_never_unpickled(self, tmp_path):
        class Hostile:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "was-run"),)

        hostile = np.array([[Hostile()]], dtype=object)
        np.save(tmp_path / "a.npy", hostile, allow_pickle=True)
        np.savez(tmp_path / "b.npz", X=hostile)
        np.savez(tmp_path / "c.npz", good=np.eye(2), bad=hostile)
        (tmp_path / "d.npy").write_bytes(pickle.dumps(Hostile()))
        for name in ("a.npy", "b.npz", "c.npz", "d.npy"):
            refused(lambda name=name: read_table(tmp_path / name), name, "could execute code")
        assert not (tmp_path / "was-run").exists()

    @pytest.mark.parametrize(
        ("array", "word"),
        [
            (np.zeros((2, 2, 2)), "(2, 2, 2)"),
            (np.array(3.0), "()"),
            (np.zeros((0, 3)), "(0, 3)"),
            (np.array([["a"]]), "dtype"),
            (np.eye(2) * 1j, "complex"),
        ],
    )
    def test_arrays_that_are_no_tables(self, tmp_path, array, word):
        np.save(tmp_path / "a.npy", array)
        refused(lambda: read_table(tmp_path / "a.npy"), "a.npy", word)

    def test_several_arrays(self, tmp_path):
        np.savez(tmp_path / "a.npz", u=np.eye(2), v=np.eye(3))
        refused(lambda: read_table(tmp_path / "a.npz"), "'u', 'v'", "'X'")
        np.savez(tmp_path / "b.npz", u=np.ones(2))
        refused(lambda: read_table(tmp_path / "b.npz"), "none")


class TestFolders:
    @pytest.fixture
    def frame(self, rng):
        frame = pd.DataFrame(rng.normal(5, 3, (100, 3)), columns=list("abc"))
        frame["one"], frame["none"], frame["k"] = 1.0, np.nan, np.arange(100) + 7
        frame.loc[[3, 50, 51], "a"] = np.nan
        frame.loc[70, "b"] = np.inf
        return frame

    @pytest.fixture(params=["csv", "parquet"])
    def folder(self, request, frame, tmp_path):
        for number, rows in enumerate(np.split(np.arange(100), [40, 75])):
            part = frame.iloc[rows]
            if request.param == "csv":
                part.to_csv(tmp_path / f"{number}.csv", index=False)
            else:
                part.to_parquet(tmp_path / f"{number}.parquet", index=False)
        (tmp_path / "_SUCCESS").write_text("")
        return tmp_path

    @pytest.fixture(autouse=True)
    def one_thread(self):
        import dask

        with dask.config.set(scheduler="synchronous"):
            yield

    @pytest.mark.parametrize("scale", ["standard", "minmax", "none"])
    def test_dropped_rows_as_in_memory(self, folder, frame, scale):
        want = Preparation(missing="drop", scale=scale, id_column="k").fit_prepare(frame)
        model = Preparation(missing="drop", scale=scale, id_column="k")
        assert is_folder_of_tables(folder)
        for _ in ("fitted", "again"):
            got = prepare_blocks(read_folder(folder), model)
            assert got.X.shape == want.X.shape
            np.testing.assert_allclose(got.X.compute(), want.X, atol=1e-12)
            np.testing.assert_array_equal(got.ids.compute(), want.ids)
            np.testing.assert_array_equal(got.kept, want.kept)
            assert got.feature_names == ["a", "b", "c"]
        np.testing.assert_allclose(model.prepare(frame).X, want.X, atol=1e-12)

    def test_missing_values_are_filled_as_in_memory(self, folder, frame):
        want = Preparation(missing="impute", drop=["k"]).fit_prepare(frame)
        got = prepare_blocks(read_folder(folder), Preparation(missing="impute", drop=["k"]))
        np.testing.assert_allclose(got.X.compute(), want.X, atol=1e-12)
        assert got.ids is None
        assert got.kept is None
        assert got.notes == want.notes

    def test_an_estimator_takes_them(self, folder):
        from volmar import MSPC

        got = prepare_blocks(read_folder(folder), Preparation(missing="drop", drop=["k"]))
        np.testing.assert_array_equal(got.ids, np.delete(np.arange(100), [3, 50, 51, 70]))
        assert len(MSPC(random_state=0).fit(got.X).labels_) == 96

    def test_missing_is_an_error(self, folder, frame):
        tables = read_folder(folder)
        refused(lambda: prepare_blocks(tables, Preparation(missing="error")), "'a' 3", "missing=")
        model = Preparation(columns=["a", "c"], missing="error").fit(frame[["a", "c"]].dropna())
        lazy = prepare_blocks(tables, model).X
        refused(lazy.compute, "block", "'a'", "missing=")

    def test_ids_of_text(self, tmp_path):
        pd.DataFrame({"a": [1, 2], "t": ["x", "y"]}).to_parquet(tmp_path / "a.parquet")
        tables = read_folder(tmp_path)
        got = prepare_blocks(tables, Preparation(id_column="t"))
        assert got.ids.compute().tolist() == ["x", "y"]

    def test_constant_columns(self, tmp_path):
        pd.DataFrame({"a": [1, 1]}).to_csv(tmp_path / "a.csv", index=False)
        refused(lambda: prepare_blocks(read_folder(tmp_path), Preparation()), "all rows are equal")

    def test_folders_that_are_no_table(self, tmp_path, put):
        assert not is_folder_of_tables(tmp_path)
        refused(lambda: read_folder(tmp_path), "without .parquet or .csv")
        refused(lambda: read_folder(tmp_path / "no"), "no folder")
        put("a.csv", "a,b\n1,2\n2,5\n")
        put("b.csv", "a,c\n1,2\n")
        refused(lambda: read_folder(tmp_path), "b.csv", "'b'")
        put("c.parquet", "rubbish")
        refused(lambda: read_folder(tmp_path), "CSV and Parquet")
        (tmp_path / "a.csv").unlink()
        (tmp_path / "b.csv").unlink()
        refused(lambda: read_folder(tmp_path), "c.parquet", "Parquet")


class TestWriting:
    def test_labels(self, tmp_path):
        path = tmp_path / "l.csv"
        ids = np.array(["a", 'b "c"', "d,e", "f\ng", None], dtype=object)
        scores = np.array([0.1, -1e-300, 1 / 3, 2.0, 5.0])
        write_labels(path, ids, "my, id", np.array([0, 1, 0, 1, 1]), scores)
        back = pd.read_csv(path)
        assert list(back.columns) == ["my, id", "label", "score"]
        assert back["my, id"].tolist()[:4] == ids.tolist()[:4]
        assert back["my, id"].isna().tolist() == [False] * 4 + [True]
        assert back["label"].tolist() == [0, 1, 0, 1, 1]
        np.testing.assert_array_equal(back["score"], scores)
        assert [file.name for file in tmp_path.iterdir()] == ["l.csv"]

    def test_many_rows_and_many_clusters(self, tmp_path, rng):
        n = 70_000  # more rows than are formatted at once
        scores = rng.normal(size=(n, 3))
        write_labels(tmp_path / "l.csv.gz", np.arange(n), "row", scores.argmax(axis=1), scores)
        back = pd.read_csv(tmp_path / "l.csv.gz")
        np.testing.assert_array_equal(back["row"], np.arange(n))
        top = np.sort(scores, axis=1)
        np.testing.assert_array_equal(back["score"], top[:, 2] - top[:, 1])
        np.testing.assert_array_equal(read_table(tmp_path / "l.csv.gz").data["row"], np.arange(n))

    def test_names_do_not_clash(self, tmp_path):
        write_labels(tmp_path / "l.csv", ["a", "b"], "label", [0, 1], [1.0, 2.0])
        assert (tmp_path / "l.csv").read_text() == "id,label,score\na,0,1.0\nb,1,2.0\n"

    def test_in_blocks_as_at_once(self, tmp_path, rng):
        scores = rng.normal(size=(10, 3))
        labels = scores.argmax(axis=1)
        write_labels(tmp_path / "once.csv", np.arange(10), "row", labels, scores)
        with open_labels(tmp_path / "blocks.csv", "row") as write:
            for part in (slice(0, 4), slice(4, 4), slice(4, 10)):
                write(np.arange(10)[part], labels[part], scores[part])
            assert not (tmp_path / "blocks.csv").exists()
        assert (tmp_path / "blocks.csv").read_text() == (tmp_path / "once.csv").read_text()

    def test_lengths(self, tmp_path):
        with pytest.raises(ValueError, match=r"\(2,\), \(3,\) and \(2,\)"):
            write_labels(tmp_path / "l.csv", [0, 1], "row", [0, 1, 1], [0.0, 1.0])

    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
    def test_nothing_is_left_behind(self, tmp_path, monkeypatch, error):
        (tmp_path / "a.csv").write_text("old")

        def fail(number):
            raise error

        monkeypatch.setattr(os, "fsync", fail)
        wanted = KeyboardInterrupt if error is KeyboardInterrupt else TableError
        with pytest.raises(wanted):
            write_labels(tmp_path / "a.csv", [0, 1], "row", [0, 1], [0.0, 1.0], force=True)
        assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]
        assert (tmp_path / "a.csv").read_text() == "old"


def test_import_and_arrays_need_no_extra(tmp_path):
    """NPY, NPZ and libsvm need no pandas or dask. For CSV, an error names it."""
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    (tmp_path / "a.svm").write_text("1 1:2\n2 2:1\n")
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    np.savez(tmp_path / "b.npz", X=np.eye(3))
    code = """
import sys
for name in ("pandas", "pyarrow", "dask", "distributed", "polars", "matplotlib"):
    sys.modules[name] = None
import volmar.tables as tables
from volmar.tables.write import write_labels
for name in ("a.npy", "a.svm", "b.npz"):
    out = tables.Preparation().fit_prepare(tables.read_table(name))
    write_labels("l.csv", out.ids, out.id_name, out.ids % 2, out.X[:, 0], force=True)
try:
    tables.read_table("a.csv")
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'volmar[io]'" in done.stdout
    assert len(pd.read_csv(io.StringIO((tmp_path / "l.csv").read_text()))) == 3


def test_no_name_is_not_the_folder_one_is_in(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    monkeypatch.chdir(tmp_path)
    assert not is_folder_of_tables("")
    refused(lambda: read_table(""), "not the path of a file")
