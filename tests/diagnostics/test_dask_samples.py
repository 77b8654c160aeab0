"""Diagnostics of a dask collection, computed from a random sample of its rows."""

import dask
import dask.array as da
import numpy as np
import pytest

from volmar import MSPC
from volmar.diagnostics import describe_clusters, stability
from volmar.evidence import label_test, split_test
from volmar.rows import anywhere
from volmar.rows.anywhere import count_labels, draw_from_collection

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(anywhere, "COLLECTION_ROWS", 500)
    with dask.config.set(scheduler="synchronous"):
        yield


def three_groups(n=1800):
    rng = np.random.default_rng(0)
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    return rng.normal(size=(n, 3)) + 8.0 * np.eye(3)[y], y


X, Y = three_groups()
CHUNKS = [(700, 700, 400), (1, 1799), (1800,)]


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_the_same_rows_of_every_chunking(kind):
    seen = []
    for sizes in CHUNKS:
        if kind == "array":
            rows = da.from_array(X, chunks=(sizes, 3))
        else:
            ends = np.cumsum(sizes)
            parts = [pd.DataFrame(X[e - s : e]) for s, e in zip(sizes, ends, strict=True)]
            rows = dd.concat([dd.from_pandas(part, npartitions=1) for part in parts])
        drawn = draw_from_collection(rows, da.from_array(Y, chunks=250), None, seed=3)
        seen.append(drawn.numbers)
        assert drawn.n_rows == 1800
        assert drawn.numbers.size == 500
        np.testing.assert_array_equal(np.asarray(drawn.rows), X[drawn.numbers])
        np.testing.assert_array_equal(drawn.beside[0], Y[drawn.numbers])
        assert drawn.beside[1] is None
    for numbers in seen[1:]:
        np.testing.assert_array_equal(numbers, seen[0])
    assert draw_from_collection(da.from_array(X[:40]), seed=0).numbers.size == 40


def test_labels_are_counted_block_by_block():
    words = np.array(["a", "b", "c"])[Y]
    expected = dict(zip(*(a.tolist() for a in np.unique(words, return_counts=True)), strict=True))
    assert count_labels(da.from_array(words, chunks=333)) == expected
    assert count_labels(words) == expected


def test_tests_of_collections():
    rows, labels = da.from_array(X, chunks=(700, 3)), da.from_array(Y, chunks=700)
    found = label_test(rows, labels, random_state=0)
    assert found.n_real == 3
    assert split_test(rows, random_state=0).is_real
    assert stability(rows, MSPC(3, random_state=0), n_resamples=3, random_state=0).agreement > 0.98
    with pytest.raises(ValueError, match=r"^there"):
        label_test(rows, labels[1:])


@pytest.mark.parametrize("kind", ["labels", "model", "new model"])
def test_a_description_has_the_sizes_of_all_rows(kind):
    rows = da.from_array(X, chunks=(700, 3))
    model = MSPC(3, random_state=0)
    if kind == "labels":
        given = da.from_array(np.where(np.arange(1800) < 30, -1, Y), chunks=600)
        sizes = np.bincount(Y[30:])
    else:
        given = model.fit(rows) if kind == "model" else model
        sizes = np.sort(np.bincount(Y))[::-1]
    found = describe_clusters(rows, given, random_state=0)
    assert found.sizes.tolist() == sizes.tolist()
    assert found.n_noise == (30 if kind == "labels" else 0)
    assert "computed from 500 of 1,800 rows, drawn at random" in str(found)
    assert (found.real is None) == (kind == "labels")
    # Typical rows are given by their indices among all rows.
    for label, ids in zip(found.clusters, found.typical, strict=True):
        assert np.unique(Y[ids]).size == 1, label


def test_a_description_of_a_frame_with_words():
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["color"] = np.array(["red", "green", "blue"])[Y]
    parts = dd.from_pandas(frame, npartitions=3)
    found = describe_clusters(parts, da.from_array(Y, chunks=600), random_state=0)
    assert found.sizes.tolist() == np.bincount(Y).tolist()
    assert "color = red" in str(found)
