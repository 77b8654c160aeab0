"""Loaders against the manifest and the papers' sizes, generators against their formulas."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.datasets import require_data

from reproduction.datasets import data_folder, list_datasets, load
from reproduction.datasets.registry import BASES, GENERATED, find_task

# n, d and class sizes as stated in the papers or the README. If the rows of the papers are not
# available (isolet, 20news pairs of the 18828 version), the sizes are those of our copy.
SIZES = {
    # SKMMC table I; MSPC table 2
    "spectf": (267, 44, [55, 212]),
    "heart-statlog": (270, 13, [150, 120]),
    "haberman": (306, 3, [225, 81]),
    "liver-disorders": (345, 6, [145, 200]),
    "ionosphere": (351, 34, [126, 225]),
    "house-votes": (435, 16, [267, 168]),
    "clean1": (476, 166, [269, 207]),
    "breast": (683, 9, [444, 239]),
    "breast-with-id": (683, 10, [444, 239]),
    "australian": (690, 14, [383, 307]),
    "diabetes": (768, 8, [500, 268]),
    "german": (1000, 24, [700, 300]),
    "satellite-1v2": (2236, 36, [1533, 703]),
    "kr-vs-kp": (3196, 36, [1527, 1669]),
    "waveform-1v2": (3308, 40, [1653, 1655]),
    "spam": (4601, 57, [2788, 1813]),
    "letter-AvB": (1555, 16, [789, 766]),
    "echocardiogram": (131, 8, [88, 43]),
    "adult-a1a": (1605, 123, [1210, 395]),
    "adult-a2a": (2265, 123, [1693, 572]),
    "adult-a4a": (4781, 123, [3593, 1188]),
    "adult-a8a": (22696, 123, [17190, 5506]),
    "adult-a9a": (32561, 123, [24720, 7841]),
    # multivariate-loss paper, table II
    "digits-1v7": (361, 64, [182, 179]),
    "digits-2v7": (356, 64, [177, 179]),
    "digits-3v8": (357, 64, [183, 174]),
    "digits-8v9": (354, 64, [174, 180]),
    "20news-autos-v-motorcycles": (1986, 26675, [990, 996]),
    "20news-baseball-v-hockey": (1993, 26675, [994, 999]),
    # JMLR: seven topics of section 8.3.3, 1100 images per digit, two parts of isolet
    "20news-comp-v-rec": (8870, 26675, [4891, 3979]),
    "20news-sci-v-talk": (7205, 26675, [3952, 3253]),
    "20news-alt-v-misc": (1774, 26675, [799, 975]),
    "20news-misc-v-soc": (1972, 26675, [975, 997]),
    "usps-3v5": (2200, 256, [1100, 1100]),
    "isolet-TvD": (240, 617, [120, 120]),
    "isolet-MvN": (239, 617, [119, 120]),
    "ida-titanic": (2201, 3, [1490, 711]),
}


def test_every_name_of_the_papers_tables_is_listed():
    require_data()
    table = data_folder().parent / "papers" / "tables.csv"
    if not table.is_file():
        pytest.skip("the papers' tables.csv is not beside the data folder")
    with table.open(encoding="utf-8", newline="") as lines:
        names = {row["dataset"] for row in csv.DictReader(lines)}
    assert len(names) > 50
    assert names <= set(list_datasets())


def test_names_are_sorted_unique_and_all_resolve():
    names = list_datasets()
    assert names == sorted(set(names))
    for name in names:
        assert name in GENERATED or find_task(name).name == name


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("mnist-4v9", [("4", [4]), ("9", [9])]),
        ("mnist-9v4", [("9", [9]), ("4", [4])]),
        ("letter-KvP", [("K", [10]), ("P", [15])]),
        ("isolet-CvZ", [("C", [3]), ("Z", [26])]),
        ("satellite-3v7", [("grey soil", [3]), ("very damp grey soil", [7])]),
        ("usps-0v6", [("0", [0]), ("6", [6])]),
        ("usps-9298-0v6", [("0", [0]), ("6", [6])]),
        ("waveform-0v1", [("0", [0]), ("1", [1])]),
        ("20news-comp-v-rec", [("comp", [1, 2, 3, 4, 5]), ("rec", [7, 8, 9, 10])]),
        ("20news-crypt-v-sci.space", [("sci.crypt", [11]), ("sci.space", [14])]),
        ("20news-misc-v-guns", [("misc.forsale", [6]), ("talk.politics.guns", [16])]),
        ("covtype", [("lodgepole pine", [2]), ("rest", [1, 3, 4, 5, 6, 7])]),
    ],
)
def test_a_name_means_its_classes(name, groups):
    found = [(label, list(codes)) for label, codes in find_task(name).groups]
    assert found == groups


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ionospere", "Did you mean 'ionosphere'"),
        ("mnist-1vA", "'mnist' has no class 'A'"),
        ("satellite-1v6", "'satellite' has no class '6'"),
        ("digits-3v3", "a class in common"),
        ("20news-comp-v-graphics", "a class in common"),
        ("20news-comp-v-hardware", "has no class 'hardware'"),  # two groups have this ending
        ("spam-0v1", "not a known data set"),
        ("adult-a3a", "not a known data set"),
        ("nothing-of-the-kind", r"list_datasets\(\)"),
    ],
)
def test_an_unknown_name_is_refused_with_a_remedy(name, message):
    with pytest.raises(ValueError, match=message):
        load(name)


def test_registry_agrees_with_the_manifest():
    require_data()
    with (data_folder() / "MANIFEST.csv").open(encoding="utf-8", newline="") as lines:
        manifest = {row["file"].split(" + ")[0]: row for row in csv.DictReader(lines)}
    compared = 0
    for base in BASES.values():
        if not base.file:
            continue
        row = manifest[base.file]
        counts = {int(code): int(n) for code, n in _pairs(row["class_counts"])}
        labelled = {item.code: item.count for item in base.classes}
        assert sum(counts.values()) == int(row["n"]) == sum(labelled.values()) + base.unlabelled
        assert base.n_features == int(row["d"])
        assert {code: n for code, n in counts.items() if code in labelled} == labelled
        compared += 1
    assert compared == len(manifest) - 1  # all but the raw text


def _pairs(text):
    return [item.split(":") for item in text.split(";")]


@pytest.mark.parametrize("name", sorted(SIZES))
def test_sizes_are_those_of_the_papers(name):
    if not find_task(name).base.sklearn:
        require_data()
    data = load(name)
    n, d, counts = SIZES[name]
    assert data.X.shape == (n, d)
    assert np.bincount(data.y).tolist() == counts
    assert len(data.target_names) == len(counts)


BIG = ("mnist", "covtype", "20news")


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in list_datasets() if not name.startswith(BIG)),
        *("mnist-1v7", "covtype", "20news-misc-v-soc", "20news"),
    ],
)
def test_every_set_has_the_promised_form(name):
    if name not in GENERATED and not find_task(name).base.sklearn:
        require_data()
    data = load(name)
    assert data.X.shape[0] == len(data.y)
    assert data.X.dtype == (
        np.float32 if name.startswith(("mnist", "isolet", "covtype", "usps-9298")) else np.float64
    )
    if name.startswith(("20news", "adult")):
        assert isinstance(data.X, sp.csr_array)
    else:
        assert isinstance(data.X, np.ndarray)
    assert data.y.dtype.kind == "i"
    assert np.unique(data.y).tolist() == list(range(len(data.target_names)))
    assert data.feature_names is None or len(data.feature_names) == data.X.shape[1]
    assert data.name == name
    assert data.source in {"file", "scikit-learn", "generator"}
    assert data.DESCR.startswith(f"{name}: ")
    assert f"Size: {data.X.shape[0]} x {data.X.shape[1]}" in data.DESCR
    values = data.X.data if sp.issparse(data.X) else data.X
    assert np.isnan(values).any() == (name in {"echocardiogram", "house-votes"})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("isolet-AvH", "3119 of the 7797"),
        ("breast", "16 in 16 of 699 rows, these rows dropped"),
        ("echocardiogram", "131 rows"),
        ("house-votes", "392 in 203 of 435 rows, kept as NaN"),
        ("ringnorm-1000", "1000 rows of the multivariate-loss paper are lost"),
        ("20news-autos-v-motorcycles", "18828-document version"),
        ("breast-with-id", "identifier"),
    ],
)
def test_description_says_what_differs(name, words):
    require_data()
    assert words in load(name).DESCR


def test_values_are_the_stored_ones():
    require_data()
    with np.load(data_folder() / "usps_11000.npz") as stored:
        X, y = stored["X"], stored["y"]
    pair = load("usps-8v3")
    rows = np.isin(y, (3, 8))
    assert np.array_equal(pair.X, X[rows])
    assert np.array_equal(pair.y, (y[rows] == 3).astype(int))  # the 8 was named first


def test_sample_number_is_the_first_column():
    require_data()
    with np.load(data_folder() / "breast_cancer_wisconsin.npz") as stored:
        known = ~np.isnan(stored["X"]).any(axis=1)
        numbers = stored["sample_id"][known]
    data, plain = load("breast-with-id"), load("breast")
    assert np.array_equal(data.X[:, 0], numbers)
    assert np.array_equal(data.X[:, 1:], plain.X)
    assert data.feature_names == ["sample_id", *plain.feature_names]


def test_adult_parts_are_rows_of_the_whole():
    require_data()
    with np.load(data_folder() / "adult_a9a_labels.npz") as labels:
        rows = labels["a1a_index"]
    whole, part = load("adult-a9a"), load("adult-a1a")
    assert (whole.X[rows] != part.X).nnz == 0
    assert np.array_equal(part.y, whole.y[rows])
