"""Sampling, scaling and missing values of data sets."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.datasets import require_data
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import datasets as sklearn_datasets
from sklearn.feature_extraction.text import TfidfTransformer

from reproduction.datasets import data_folder, load
from reproduction.datasets.registry import GENERATED


def test_fixed_realization_is_the_collections_training_part():
    require_data()
    with np.load(data_folder() / "ida_heart.npz") as stored:
        rows = stored["train_index"][stored["realization"].tolist().index(4)]
        X, y = stored["X"][rows], stored["y"][rows]
    data = load("ida-heart", realization=4)
    assert np.array_equal(data.X, X)
    assert np.array_equal(data.y, (y == 1).astype(int))
    assert "realization 4 of the collection, 170 of 270" in data.DESCR


# Table 1 of the JMLR paper: training sizes.
@pytest.mark.parametrize(
    ("name", "size", "number", "fixed"),
    [
        ("ida-breast-cancer", 200, 10, True),
        ("ida-breast-cancer", 200, 11, False),
        ("ida-diabetes", 468, 1, False),  # its one split has no number
        ("ida-flare-solar", 666, 1, False),
        ("ida-german", 700, 2, True),
        ("ida-heart", 170, 1, True),
        ("ida-image", 1300, 1, True),
        ("ida-ringnorm", 400, 1, True),
        ("ida-splice", 1000, 1, False),
        ("ida-titanic", 150, 1, True),
        ("ida-twonorm", 400, 1, True),
        ("ida-twonorm", 400, 2, False),
    ],
)
def test_realizations_have_the_papers_size(name, size, number, fixed):
    require_data()
    data = load(name, realization=number)
    assert len(data.y) == size
    assert ("training part of realization" in data.DESCR) == fixed
    assert ("seeded random split" in data.DESCR) == (not fixed)


@settings(max_examples=30, deadline=None)
@given(number=st.integers(1, 10_000), size=st.integers(1, 178))
def test_samplings_are_subsets_without_repetition(number, size):
    data = load("wine", n_samples=size, realization=number)
    again = load("wine", n_samples=size, realization=number)
    assert np.array_equal(data.X, again.X)
    whole = load("wine")
    known = {(*row, label) for row, label in zip(whole.X.tolist(), whole.y, strict=True)}
    drawn = {(*row, label) for row, label in zip(data.X.tolist(), data.y, strict=True)}
    assert len(known) == 178  # all rows differ, so a repeated row would be found below
    assert drawn <= known
    assert len(drawn) == len(data.y) == size


def test_samplings_differ_by_number_name_and_size():
    labels = [
        load(name, n_samples=size, realization=number).y[:50].tolist()
        for name, size, number in (
            ("digits-3v8", 50, 1),
            ("digits-3v8", 50, 2),
            ("digits-3v8", 51, 1),
            ("digits-8v3", 50, 1),
        )
    ]
    assert len(set(map(tuple, labels))) == 4
    assert load("digits-3v8", n_samples=50).y.tolist() == labels[0]


def test_sampling_is_the_same_in_every_run():
    # A change here changes every sampled table: the seed is crc32(name), size, number.
    data = load("digits-3v8", n_samples=12, realization=3)
    assert data.y.tolist() == [1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1]


def test_ringnorm_1000_is_a_fixed_draw():
    require_data()
    data = load("ringnorm-1000")
    assert data.X.shape == (1000, 20)
    assert np.array_equal(data.X, load("ringnorm-1000", realization=1, n_samples=1000).X)
    assert not np.array_equal(data.X, load("ringnorm-1000", realization=2).X)
    with pytest.raises(ValueError, match=r"^n_samples .*'ida-ringnorm'"):
        load("ringnorm-1000", n_samples=500)


def test_n_samples_goes_before_the_fixed_realizations():
    require_data()
    data = load("ida-heart", n_samples=170, realization=1)
    assert "seeded random sample 1, 170 of 270" in data.DESCR
    assert not np.array_equal(data.X, load("ida-heart", realization=1).X)


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_sets_load_by_name(name):
    data = load(name, n_samples=80, realization=2)
    assert len(data.y) == 80
    assert data.source == "generator"
    assert np.array_equal(data.X, load(name, n_samples=80, realization=2).X)
    assert not np.array_equal(data.X, load(name, n_samples=80, realization=3).X)
    scaled = load(name, n_samples=80, realization=2, scale="symmetric").X
    assert scaled.min() == pytest.approx(-1)
    assert scaled.max() == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"name": "iris", "realization": 3},
            ValueError,
            "^realization=3",
        ),
        ({"name": "iris", "realization": 0}, ValueError, "^realization .*got 0"),
        ({"name": "iris", "realization": 1.5}, TypeError, "^realization .*got 1.5"),
        ({"name": "iris", "n_samples": -1}, ValueError, "^n_samples .*got -1"),
        ({"name": "iris", "n_samples": True}, TypeError, "^n_samples .*got True"),
        (
            {"name": "iris", "n_samples": 151},
            ValueError,
            "^n_samples .*got 151",
        ),
        (
            {"name": "iris", "scale": "l2"},
            ValueError,
            "^scale .*'minmax'",
        ),
        ({"name": "iris", "missing": "zero"}, ValueError, "^missing"),
        ({"name": "iris", "scale": "tfidf"}, ValueError, "^scale='tfidf'"),
        ({"name": "iris", "scale": "unit"}, ValueError, "scale='unit' needs grey values"),
        ({"name": "two-moons", "scale": "unit"}, ValueError, "scale='unit' is not available for"),
        (
            {"name": "adult-a1a", "scale": "standard"},
            ValueError,
            "sparse data set 'adult-a1a' dense",
        ),
        ({"name": "20news", "scale": "minmax"}, ValueError, "Use scale=None or 'tfidf'"),
        ({"name": "adult-a1a", "scale": "tfidf"}, ValueError, "^scale='tfidf'"),
        ({"name": ["iris"]}, TypeError, r"\['iris'\]"),
    ],
)
def test_load_names_the_bad_argument(arguments, error, message):
    with pytest.raises(error, match=message):
        load(**arguments)


@pytest.mark.parametrize(
    ("scale", "low", "high"), [("minmax", 0.0, 1.0), ("symmetric", -1.0, 1.0)]
)
def test_range_scaling(scale, low, high):
    X = load("wine", scale=scale).X
    np.testing.assert_allclose(X.min(axis=0), low, atol=1e-12)
    np.testing.assert_allclose(X.max(axis=0), high, atol=1e-12)


def test_standard_scaling_and_the_default_of_none():
    plain, X = load("wine").X, load("wine", scale="standard").X
    np.testing.assert_allclose(X, (plain - plain.mean(axis=0)) / plain.std(axis=0))
    assert np.array_equal(plain, sklearn_datasets.load_wine().data)


def test_scaling_comes_before_the_sampling():
    X = load("wine", scale="minmax", n_samples=20, realization=1).X
    whole = {tuple(row) for row in load("wine", scale="minmax").X.tolist()}
    assert {tuple(row) for row in X.tolist()} <= whole


def test_scaling_is_over_the_named_pair():
    X = load("digits-3v8", scale="minmax").X
    varies = X.max(axis=0) > 0
    assert np.array_equal(X.max(axis=0)[varies], np.ones(varies.sum()))


def test_unit_scaling_is_by_the_known_range():
    assert np.array_equal(load("digits-3v8", scale="unit").X, load("digits-3v8").X / 16)
    require_data()
    assert np.array_equal(load("usps-3v5", scale="unit").X, load("usps-3v5").X / 255)
    X = load("usps-9298-3v5", scale="unit").X
    assert X.dtype == np.float32
    assert (X.min(), X.max()) == (0, 1)


def test_tfidf_weighs_over_all_documents():
    require_data()
    counts, data = load("20news"), load("20news-alt-v-misc", scale="tfidf")
    weights = TfidfTransformer().fit_transform(counts.X)[np.isin(counts.y, (0, 6))]
    np.testing.assert_allclose(data.X.data, weights.data)
    np.testing.assert_allclose(sp.linalg.norm(data.X, axis=1), 1)
    assert isinstance(data.X, sp.csr_array)


@pytest.mark.parametrize(
    ("name", "missing", "n", "unknown"),
    [
        ("breast", None, 683, 0),
        ("breast", "keep", 699, 16),
        ("breast", "mean", 699, 0),
        ("house-votes", None, 435, 392),
        ("house-votes", "drop", 232, 0),
        ("house-votes", "mean", 435, 0),
        ("echocardiogram", "drop", 106, 0),
        ("ionosphere", "drop", 351, 0),
    ],
)
def test_missing_values(name, missing, n, unknown):
    require_data()
    data = load(name, missing=missing)
    assert len(data.y) == n
    assert np.isnan(data.X).sum() == unknown


def test_mean_goes_into_the_unknown_cells_only():
    require_data()
    kept, filled = load("house-votes").X, load("house-votes", missing="mean").X
    unknown = np.isnan(kept)
    assert np.array_equal(kept[~unknown], filled[~unknown])
    expected = np.broadcast_to(np.nanmean(kept, axis=0), kept.shape)[unknown]
    np.testing.assert_allclose(filled[unknown], expected)
