"""Text that a spreadsheet would evaluate: written with an apostrophe, matched without it."""

import numpy as np
import pytest

from volmar.tables import LoadedTable, Preparation, read_table
from volmar.tables.write import match_labels, neutral, open_columns, write_labels, write_rows

pandas = pytest.importorskip("pandas")

FORMULAS = [
    "=cmd|' /C calc'!A0",
    "=id",
    "+1+cmd",
    "-1-1",
    "-x",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\n=x",
    " =1",
    "\u00a0=1",
    "\ufeff=1",
    "\x00=1",
    "＝1",
    "'=1",
    "''@x",
    "+49 170 1234567",
]
PLAIN = ["", "a", "a=1", "-5", "+1.5e3", "-1,5", "-1 234,56", "-.5", " -5", "-5 %", "-inf", "-"]
PLAIN += ["'a", "'-5", "12-3", "x@y.org", "#1", "é", " x"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_an_apostrophe(text):
    assert neutral(text) == f"'{text}"


@pytest.mark.parametrize("text", PLAIN)
def test_numbers_and_other_texts_stay(text):
    assert neutral(text) == text


def test_different_texts_stay_different():
    texts = [*FORMULAS, *PLAIN]
    assert len({neutral(text) for text in texts}) == len(texts)


def prepared(ids, name):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({name: ids, "x": rng.normal(size=len(ids))})
    frame["y"] = rng.normal(size=len(ids))
    return Preparation(id_column=name).fit_prepare(LoadedTable("t", frame))


IDS = ["=x", "'=x", "a", "-5", "+cmd", "'+cmd", *(f"n{i}" for i in range(14))]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("raw", [False, True])
def test_labels_find_their_rows_again(tmp_path, suffix, raw):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"labels{suffix}"
    labels = np.arange(len(IDS)) % 3
    write_labels(path, np.array(IDS), "=id", labels, np.zeros(len(IDS)), raw_ids=raw)
    data = read_table(path).data
    is_raw = raw or suffix == ".parquet"
    assert list(data.columns[:1]) == ["=id" if is_raw else "'=id"]
    assert data.iloc[:, 0].tolist() == (IDS if is_raw else [neutral(one) for one in IDS])
    order = np.random.default_rng(1).permutation(len(IDS))
    found = match_labels(data, prepared([IDS[i] for i in order], "=id"))
    assert found.tolist() == [str(labels[i]) for i in order]


def test_rows_and_columns_are_written_without_formulas(tmp_path):
    frame = pandas.DataFrame(
        {
            "=name": ["=1+1", "b", None],
            "kind": pandas.Categorical(["@a", "b", "@a"]),
            "mixed": [-5, "-x", 2.5],
            "number": [-1.5, 2.0, np.nan],
        }
    )
    path = tmp_path / "rows.csv"
    write_rows(path, frame, [0, 1, 0])
    assert path.read_text() == (
        "'=name,kind,mixed,number,cluster\n'=1+1,'@a,-5,-1.5,0\nb,b,'-x,2.0,1\n,'@a,2.5,,0\n"
    )
    write_rows(path, frame, [0, 1, 0], raw_ids=True, force=True)
    assert path.read_text().splitlines()[:2] == [
        "=name,kind,mixed,number,cluster",
        "=1+1,@a,-5,-1.5,0",
    ]
    # The fields of a text file are unchanged.
    (tmp_path / "in.csv").write_text("a,-b\n-007,=x\n+1.50,y\n-3,z\n")
    write_rows(path, read_table(tmp_path / "in.csv"), [0, 1, 0], force=True)
    assert path.read_text() == "a,'-b,cluster\n-007,'=x,0\n+1.50,y,1\n-3,z,0\n"
    with open_columns(path, ["=a", "b"], force=True) as write:
        write(np.array(["=1", "2"], dtype=object), np.array([-1.5, 2]))
    assert path.read_text() == "'=a,b\n'=1,-1.5\n2,2.0\n"
