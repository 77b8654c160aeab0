"""Malicious files: inconsistent sparse matrices, decompression bombs, endless lines."""

import gzip
import io
import re
import warnings
import zipfile

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from helpers.table_files import CSR

from volmar import TableClusterer
from volmar.tables import TableError, read_table
from volmar.tables.errors import MAX_COLUMNS, MAX_FRAME_COLUMNS


def refused(path, *words):
    with pytest.raises(TableError) as caught:
        read_table(path)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert text.isprintable()
    return text


BSR = {**CSR, "format": b"bsr", "shape": [4, 4], "data": np.ones((2, 2, 2))}
COO = {**CSR, "format": b"coo", "row": np.array([0, 1]), "col": np.array([1, 0])}
DIA = {**CSR, "format": b"dia", "data": np.ones((1, 2)), "offsets": np.array([0])}


class TestSparseFiles:
    @pytest.mark.parametrize(
        "lie",
        [
            {"indices": np.array([0, 99], "i4")},
            {"indices": np.array([0, -1], "i4")},
            {"indices": np.array([0, 99], "i4"), "format": b"csc"},
            {"indptr": np.array([0, 99, 2], "i4")},
            {"indptr": np.array([0, -5, 2], "i4")},
            {"indptr": np.array([1, 1, 2], "i4")},
            # SciPy checks nothing if the last pointer is zero or below.
            {"indptr": np.array([0, 99, 0], "i4")},
            {"indptr": np.array([0, 2, -287_756_040], "i4")},
            {"indptr": np.array([0, 2**31 - 1, -(2**31) + 1], "i4")},
            {"indptr": np.array([0, 99, 0], "i4"), "format": b"csc"},
            {"indptr": np.array([0, 1], "i4")},
            {"indptr": np.array([0.0, 1.0, 2.0])},
            {"indices": np.array([[0, 1]], "i4")},
            {"data": np.ones(3)},
            {"data": np.array(["a", "b"])},
            {"data": np.array([1j, 2j])},
            {"shape": [2, 2, 2]},
            {"shape": [-2, 2]},
            {"shape": [2.0, 2.0]},
            {"shape": [0, 2]},
            {"format": b"lil"},
            {"format": np.array(["csr", "csr"])},
            {"format": np.array(3)},
            {**BSR, "indices": np.array([0, 9])},
            {**BSR, "data": np.ones((2, 0, 2))},
            {**BSR, "data": np.ones(2)},
            {**COO, "row": np.array([0, 9])},
            {**COO, "col": np.array([0, -1])},
            {**DIA, "offsets": np.array([0, 0]), "data": np.ones((2, 2))},
            {**DIA, "data": np.ones(2)},
        ],
    )
    def test_parts_that_do_not_fit_together_are_refused(self, tmp_path, lie):
        np.savez(tmp_path / "a.npz", **{**CSR, **lie})
        refused(tmp_path / "a.npz", "a.npz")

    def test_a_missing_part_is_refused(self, tmp_path):
        np.savez(tmp_path / "a.npz", **{k: v for k, v in CSR.items() if k != "indptr"})
        refused(tmp_path / "a.npz", "do not fit together")

    @pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "coo", "dia"])
    @pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "?", "g"])
    def test_every_format_is_read(self, tmp_path, layout, dtype):
        X = np.arange(24).reshape(6, 4) % 3
        made = getattr(sp, f"{layout}_array")(X.astype(dtype))
        sp.save_npz(tmp_path / "a.npz", made)
        found = read_table(tmp_path / "a.npz").data
        assert found.format == "csr"
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found.toarray(), made.toarray())

    def test_duplicates_are_summed(self, tmp_path):
        np.savez(tmp_path / "a.npz", **{**CSR, "indptr": [0, 2, 2], "indices": [1, 1]})
        found = read_table(tmp_path / "a.npz").data
        assert found.nnz == 1
        assert found.toarray().tolist() == [[0, 2], [0, 0]]

    def test_a_model_refuses_them_too(self, tmp_path, rng):
        model = TableClusterer(2).fit(rng.normal(size=(30, 2)))
        np.savez(tmp_path / "a.npz", **{**CSR, "indices": np.array([0, 99], "i4")})
        with pytest.raises(TableError, match="do not fit together"):
            model.predict(tmp_path / "a.npz")

    def test_a_shape_of_many_columns_or_rows_is_refused_before_use(self, tmp_path):
        (tmp_path / "a.svm").write_text("2 100000000:1\n1 3:1\n")
        refused(tmp_path / "a.svm", "100,000,000 columns", f"{MAX_COLUMNS:,}")
        np.savez(tmp_path / "a.npz", **{**CSR, "shape": [2, 2**40]})
        refused(tmp_path / "a.npz", "columns", f"{MAX_COLUMNS:,}")
        np.savez(tmp_path / "a.npz", **{**COO, "shape": [2**45, 2]})
        refused(tmp_path / "a.npz", "GiB are available")


class TestNumpyFiles:
    def test_no_arrays(self, tmp_path):
        np.savez(tmp_path / "a.npz")
        refused(tmp_path / "a.npz", "got none")

    @pytest.mark.parametrize("keep", [0.3, 0.7, 0.95])
    @pytest.mark.parametrize("name", ["a.npz", "a.npy"])
    def test_a_truncated_file_is_closed(self, tmp_path, name, keep):
        save = np.savez if name == "a.npz" else np.save
        save(tmp_path / name, np.ones((200, 3)))
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: int(keep * len(content))])
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            refused(tmp_path / name, name)

    def test_a_header_that_claims_more_than_there_is(self, tmp_path):
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2**10)}
        )
        (tmp_path / "a.npy").write_bytes(file.getvalue() + bytes(64))
        refused(tmp_path / "a.npy", "a.npy", "allocate")
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("X.npy", file.getvalue() + bytes(64))
        refused(tmp_path / "a.npz", "a.npz", "allocate")

    def test_a_member_that_is_larger_than_the_memory(self, tmp_path, monkeypatch):
        np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 100)))
        monkeypatch.setattr("volmar._memory.available_memory", lambda: 1000)
        refused(tmp_path / "a.npz", "available")

    def test_two_arrays_of_one_name(self, tmp_path):
        file = io.BytesIO()
        np.save(file, np.ones((3, 2)))
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("X.npy", file.getvalue())
            archive.writestr("X", file.getvalue())
        refused(tmp_path / "a.npz", "same name")

    def test_long_doubles_that_are_no_float64_count_as_missing(self, tmp_path):
        X = np.ones((20, 2), dtype=np.longdouble)
        X[0, 0] = np.longdouble(10) ** 400
        np.save(tmp_path / "a.npy", X)
        assert np.isinf(read_table(tmp_path / "a.npy").data[0, 0])


def packed_excel(path, change, part="sheet1"):
    """Write a workbook with a changed sheet and correct checksums."""
    book = openpyxl.Workbook()
    for row in [["a", "b"], [1, 2], [3, 4]]:
        book.active.append(row)
    book.save(path)
    with zipfile.ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, inside in content.items():
            new.writestr(name, change(inside) if part in name else inside)


class TestExcel:
    @pytest.mark.parametrize(
        ("more", "words"),
        [
            (b'<row r="100000000"><c r="A100000000"><v>1</v></c></row>', ["100,000,000 rows"]),
            (b"<row r='900000'><c r='XFD9'><v>1</v></c></row>", ["16,384 columns"]),
            (b'<row r="9"><c r="ZZZZ9"><v>1</v></c></row>', ["475,254 columns"]),
            (b"<row/>" * 2_000_000, ["2,000,003 rows"]),
            (b"<row/>" * 12_000_000, ["bomb"]),
        ],
    )
    def test_a_sheet_of_empty_cells_is_refused(self, tmp_path, more, words):
        end = b"</sheetData>"
        packed_excel(tmp_path / "a.xlsx", lambda xml: xml.replace(end, more + end))
        refused(tmp_path / "a.xlsx", *words)

    def test_a_few_empty_rows_are_none(self, tmp_path):
        more = b'<row r="5000"><c r="B5000"><v>1</v></c></row></sheetData>'
        packed_excel(tmp_path / "a.xlsx", lambda xml: xml.replace(b"</sheetData>", more))
        assert read_table(tmp_path / "a.xlsx").data.shape == (3, 2)

    def test_messages_show_no_path(self, tmp_path):
        path, date = tmp_path / "a.xlsx", re.compile(rb">[^<]*</dcterms:created>")
        wrong = b">rubbish</dcterms:created>"
        packed_excel(path, lambda xml: date.sub(wrong, xml), "core.xml")
        assert str(tmp_path) not in refused(path, "Excel", "properties")

    def test_entities_are_not_expanded_without_an_end(self, tmp_path):
        entities = b'<!DOCTYPE w [<!ENTITY a "haha">' + b"".join(
            b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 20) for i in range(9)
        )

        def change(xml):
            xml = xml.replace(b"<worksheet", entities + b"]><worksheet", 1)
            return xml.replace(b"<v>1</v>", b"<v>&j;</v>")

        packed_excel(tmp_path / "a.xlsx", change)
        refused(tmp_path / "a.xlsx", "Excel")


class TestArrow:
    def test_equal_values_that_fill_the_memory(self, tmp_path, monkeypatch):
        pq.write_table(pa.table({"a": np.zeros(100_000)}), tmp_path / "a.parquet")
        assert (tmp_path / "a.parquet").stat().st_size < 10_000
        monkeypatch.setattr("volmar._memory.available_memory", lambda: 400_000)
        refused(tmp_path / "a.parquet", "available")

    def test_metadata_that_does_not_fit_is_ignored(self, tmp_path):
        table = pa.table({"a": [1.0, 2.0]}).replace_schema_metadata({"pandas": "[[["})
        pq.write_table(table, tmp_path / "a.parquet")
        assert read_table(tmp_path / "a.parquet").data["a"].tolist() == [1, 2]

    def test_messages_show_no_path(self, tmp_path):
        (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(100))
        assert str(tmp_path) not in refused(tmp_path / "a.parquet", "a.parquet")


class TestText:
    @pytest.mark.parametrize(
        ("name", "line"),
        [("a.csv.gz", b"1,1\n"), ("a.svm.gz", b"1 1:1\n"), ("a.jsonl.gz", b'{"a":1}\n')],
    )
    def test_a_bomb_is_refused(self, tmp_path, name, line):
        (tmp_path / name).write_bytes(gzip.compress(line * (2**26 // len(line)), 9))
        refused(tmp_path / name, "bomb")

    def test_a_file_larger_than_the_memory_is_refused(self, tmp_path, monkeypatch):
        (tmp_path / "a.csv").write_text("a,b\n" + "1,1\n" * 1000)
        monkeypatch.setattr("volmar.tables.errors.available_memory", lambda: 5000)
        refused(tmp_path / "a.csv", "does not fit into memory", "folder")

    def test_a_line_without_an_end_is_refused(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"1," * 4_000_000)
        refused(tmp_path / "a.csv", "first line")

    def test_a_header_of_empty_names_is_refused(self, tmp_path):
        (tmp_path / "a.csv").write_bytes(b"," * 100_000 + b"\n1,2\n")
        refused(tmp_path / "a.csv", "100,001 fields", "name")

    def test_a_wide_table_is_read(self, tmp_path):
        names = [f"a_long_name_of_column_{j}" for j in range(8000)]
        (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * 8000) + "\n")
        assert read_table(tmp_path / "a.csv").data.shape == (1, 8000)

    @pytest.mark.parametrize("number", ["9" * 40, "9" * 400, "-" + "9" * 400])
    @pytest.mark.parametrize("others", ["{0}.5", "{0}", "word{0}"])
    def test_numbers_of_many_digits(self, tmp_path, number, others):
        rows = [f"{i % 7}.25,{number if i % 3 else others.format(i)}" for i in range(40)]
        (tmp_path / "a.csv").write_text("\n".join(["a,b", *rows]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # warnings about missing values
            labels = TableClusterer(2).fit(tmp_path / "a.csv").labels_
        assert set(labels.tolist()) <= {0, 1}

    def test_half_of_a_surrogate_pair_in_json(self, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"a": "\\ud800"}\n{"a": "b"}\n')
        refused(tmp_path / "a.jsonl", "surrogate")

    def test_the_home_of_nobody(self):
        refused("~nobody_xyz/a.csv", "'~nobody_xyz/a.csv'", "home")


def test_names_are_printable(tmp_path):
    path = tmp_path / "\x1b[31mred.csv"
    path.write_text("a,b\n1,2\n3,4,5\n")
    assert r"\x1b[31mred.csv" in refused(path)
    path.write_text("a,b\n1,2\n")
    assert read_table(path).name == r"\x1b[31mred.csv"


def test_text_of_very_many_columns_is_refused_before_pandas_reads_it(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"1," * (MAX_FRAME_COLUMNS + 1) + b"1\n")
    refused(tmp_path / "a.csv", "columns", f"{MAX_FRAME_COLUMNS:,}")


def test_long_doubles_that_are_no_numbers_are_missing(tmp_path):
    bits = np.full((4, 16), 0xFF, np.uint8)  # a signalling NaN of 80 bits
    values = bits.view(np.longdouble).repeat(2, axis=1)
    np.save(tmp_path / "a.npy", values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(read_table(tmp_path / "a.npy").data).all()
