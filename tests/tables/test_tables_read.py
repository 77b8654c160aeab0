"""Tables in Excel, JSON and Feather files, and the indices of sparse ones."""

import gzip
import json
import sys

import numpy as np
import openpyxl
import pandas as pd
import pytest
import scipy.sparse as sp

from volmar.cli import main
from volmar.tables import Preparation, TableError, read_table


def refused(path, *words):
    with pytest.raises(TableError) as caught:
        read_table(path)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text


@pytest.fixture
def book(tmp_path):
    """Write rows into the sheets of a file, and return its path."""

    def write(*sheets, name="a.xlsx", merge=None):
        made = openpyxl.Workbook()
        made.remove(made.active)
        for title, rows in sheets:
            sheet = made.create_sheet(title)
            for row in rows:
                sheet.append(row)
            if merge:
                sheet.merge_cells(merge)
        made.save(tmp_path / name)
        return tmp_path / name

    return write


ROWS = [["a", "when", "ok", "word"], [1, pd.Timestamp(2024, 1, 31).to_pydatetime(), True, "x"]]
ROWS += [[2.5, pd.Timestamp(2024, 2, 1).to_pydatetime(), False, "007"], [None, None, True, None]]


class TestExcel:
    def test_types(self, book):
        table = read_table(book(("Data", ROWS)))
        frame = table.data
        assert list(frame.columns) == ["a", "when", "ok", "word"]
        np.testing.assert_array_equal(frame["a"], [1, 2.5, np.nan])
        assert frame["a"].dtype == np.float64
        assert frame["ok"].dtype == bool
        assert frame["when"].dtype.kind == "M"
        assert frame["word"].tolist()[:2] == ["x", "007"]
        assert table.notes == []
        assert table.name == "a.xlsx"

    def test_sheets(self, book):
        path = book(("One", ROWS), ("Two", [["b"], [5], [6]]))
        table = read_table(path)
        assert list(table.data.columns) == ROWS[0]
        assert "2 sheets" in table.notes[0]
        assert "'Two'" in table.notes[0]
        table = read_table(f"{path}#Two")
        assert table.data["b"].tolist() == [5, 6]
        assert table.name == "a.xlsx#Two"
        assert table.notes == []
        refused(f"{path}#Too", "no sheet 'Too'", "'Two'")

    def test_a_sheet_of_what_has_none(self, tmp_path):
        (tmp_path / "a.csv").write_text("a\n1\n2\n")
        refused(f"{tmp_path}/a.csv#Two", "no sheet 'Two'")
        refused(f"{tmp_path}/b.xlsx#Two", "no file")

    def test_empty_rows_and_columns(self, book):
        rows = [[None, None, None], [None, "a", None, "b"], [None] * 4, [None, 1, None, 2]]
        frame = read_table(book(("S", rows))).data
        assert frame.to_dict("list") == {"a": [1], "b": [2]}

    def test_numbers_only(self, book):
        table = read_table(book(("S", [[1, 2], [3, 4]])))
        assert table.data.to_dict("list") == {"x0": [1, 3], "x1": [2, 4]}
        assert "only numbers" in table.notes[0]

    def test_names(self, book):
        refused(book(("S", [["a", "b", "a"], [1, 2, 3]])), "columns A and C", "'a'")
        table = read_table(book(("S", [["a", None, "b"], [1, 2, 3]])))
        assert list(table.data.columns) == ["a", "Unnamed: B", "b"]
        assert "'Unnamed: B'" in table.notes[0]

    def test_a_title_above_the_header(self, book):
        rows = [["Sales of 2024"], ["a", "b", "c"], [1, 2, 3]]
        refused(book(("S", rows)), "1 names for 3 columns", "Delete the rows above")

    def test_merged_header(self, book):
        rows = [["size", None, "b"], ["low", "high", "x"], [1, 2, 3]]
        refused(book(("S", rows), merge="A1:B1"), "A1:B1", "merged")

    def test_formulas_without_results(self, book):
        refused(book(("S", [["a", "b"], [1, "=A2+1"], [2, "=A3+1"]])), "cell B2", "save it")

    @pytest.mark.parametrize("rows", [[], [[None, None]]])
    def test_empty(self, book, rows):
        refused(book(("S", rows)), "is empty")
        refused(book(("S", rows), ("T", ROWS)), "#NAME")
        refused(book(("S", [["a", "b"]])), "no rows")

    def test_damage(self, tmp_path, book):
        (tmp_path / "a.xlsx").write_bytes(b"rubbish")
        refused(tmp_path / "a.xlsx", "cannot be read as Excel", "save")
        content = book(("S", ROWS), name="b.xlsx").read_bytes()
        (tmp_path / "b.xlsx").write_bytes(content[: len(content) // 2])
        refused(tmp_path / "b.xlsx", "cannot be read as Excel")

    def test_packages(self, book, monkeypatch, tmp_path):
        path = book(("S", ROWS))
        monkeypatch.setitem(sys.modules, "openpyxl", None)
        monkeypatch.setitem(sys.modules, "xlrd", None)
        with pytest.raises(ImportError, match=r"openpyxl.*pip install 'volmar\[io\]'"):
            read_table(path)
        (tmp_path / "a.xls").write_bytes(b"x")
        refused(tmp_path / "a.xls", "xlrd", "Save the table as .xlsx")


def test_more_empty_cells_than_values_are_refused(tmp_path):
    """Every record has a key of its own: 4,000 x 4,000 cells for 4,000 values."""
    records = [{f"k{i}": i} for i in range(4000)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    refused(tmp_path / "a.jsonl", "a.jsonl", "4,000 rows and 4,000 columns", "4,000 cells")
    (tmp_path / "a.json").write_text(json.dumps(records))
    refused(tmp_path / "a.json", "4,000 columns")
    wide = {f"k{i}": i for i in range(2**17 + 1)}
    (tmp_path / "b.jsonl").write_text("\n".join([json.dumps(wide)] * 2))
    refused(tmp_path / "b.jsonl", "131,073 columns", "maximum")


RECORDS = [{"a": 1, "b": "x"}, {"a": 2.5, "c": True, "b": ""}, {"b": "z\u2028", "a": None}]


class TestJson:
    @pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a.jsonl.gz"])
    def test_lines(self, tmp_path, name):
        text = "\n".join(json.dumps(record, ensure_ascii=False) for record in RECORDS)
        content = text.encode() + b"\n\n"
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        frame = read_table(path).data
        assert list(frame.columns) == ["a", "b", "c"]
        np.testing.assert_array_equal(frame["a"], [1, 2.5, np.nan])
        assert frame["b"].isna().tolist() == [False, True, False]
        assert frame["b"][2] == "z\u2028"

    @pytest.mark.parametrize("orient", ["records", "columns"])
    def test_what_pandas_writes(self, tmp_path, orient):
        frame = pd.DataFrame({"timestamp": [1, 2, 3], "b": ["x", "y", "z"]})
        frame.to_json(tmp_path / "a.json", orient=orient)
        pd.testing.assert_frame_equal(read_table(tmp_path / "a.json").data, frame)

    def test_lists_of_columns(self, tmp_path):
        (tmp_path / "a.json").write_text('{"a": [1, 2], "b": [3, null]}')
        assert read_table(tmp_path / "a.json").data["a"].tolist() == [1, 2]

    def test_nested_columns_are_left_out(self, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"a": 1, "tags": ["x"]}\n{"a": 2, "tags": null}\n')
        table = read_table(tmp_path / "a.jsonl")
        assert list(table.data.columns) == ["a"]
        assert "'tags'" in table.notes[0]
        assert "json_normalize" in table.notes[0]

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("a.jsonl", '{"a": 1}\n{"a": \n', ["line 2", "JSON"]),
            ("a.jsonl", '{"a": 1}\n[1, 2]\n', ["line 2", "a list", "record"]),
            ("a.jsonl", '{"a": {"b": 1}}\n', ["'a'", "json_normalize"]),
            ("a.jsonl", "{}\n{}\n", ["no values"]),
            ("a.jsonl", " \n", ["empty"]),
            ("a.jsonl", b'{"a": "\xff"}', ["UTF-8"]),
            ("a.jsonl", "[" * 100_000, ["line 1"]),
            ("a.json", '{"a": 1', ["not valid JSON"]),
            ("a.json", '[{"a": 1}, 3]', ["entry 1", "a number", "orient"]),
            ("a.json", '{"columns": ["a"], "data": [[1], [2]]}', ["an object", "orient"]),
            ("a.json", "[]", ["no values"]),
            ("a.json", "3", ["a number", "orient"]),
            ("a.json.gz", "rubbish", ["gzip"]),
        ],
    )
    def test_damage(self, tmp_path, name, content, words):
        content = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, name, *words)


@pytest.mark.parametrize("name", ["a.feather", "a.arrow"])
def test_feather(tmp_path, name):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    frame.to_feather(tmp_path / name)
    pd.testing.assert_frame_equal(read_table(tmp_path / name).data, frame)
    (tmp_path / name).write_text("rubbish")
    refused(tmp_path / name, "Feather")


def test_text_in_parquet_that_is_not_utf8(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = pa.array([b"fine", b"caf\xe9"], type=pa.binary())
    pq.write_table(pa.table({"a": [1.0, 2.0], "t": words.view(pa.string())}), tmp_path / "a.pq")
    refused(tmp_path / "a.pq", "Parquet", "UTF8")


class TestSparse:
    @pytest.fixture
    def counts(self, tmp_path, rng):
        from sklearn.datasets import dump_svmlight_file

        rates = np.repeat([[1.0, 0.1, 0.1], [0.1, 1.0, 0.1], [0.1, 0.1, 1.0]], 10, axis=1)
        X = sp.csr_array(rng.poisson(rates[np.arange(60) % 3]).astype(float))
        dump_svmlight_file(X, np.zeros(60), str(tmp_path / "a.svmlight"))
        wide = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)))
        sp.save_npz(tmp_path / "a.npz", wide)
        return X.toarray()

    @pytest.mark.parametrize("name", ["a.svmlight", "a.npz"])
    def test_indices_have_32_bits(self, tmp_path, counts, name):
        table = read_table(tmp_path / name)
        rows = Preparation(scale="none").fit_prepare(table).X
        for X in (table.data, rows):
            assert X.indices.dtype == X.indptr.dtype == np.int32
            np.testing.assert_array_equal(X.toarray(), counts)

    def test_a_method_of_scikit_learn_takes_them(self, tmp_path, counts, monkeypatch):
        monkeypatch.chdir(tmp_path)
        arguments = ["cluster", "a.svmlight", "--scale", "none", "-m", "CPMMC", "-k", "3"]
        monkeypatch.setattr(sys, "argv", ["volmar", *arguments, "-o", "l.csv"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert pd.read_csv("l.csv")["label"].nunique() == 3
