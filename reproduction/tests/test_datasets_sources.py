"""Sources of data sets: files, scikit-learn and OpenML."""

from __future__ import annotations

import inspect
from urllib.error import URLError

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.datasets import require_data
from sklearn import datasets as sklearn_datasets
from sklearn.utils import Bunch

from reproduction.datasets import data_folder, load
from reproduction.datasets.registry import BASES, find_task

OFFLINE = sorted(name for name, base in BASES.items() if base.sklearn)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(**kwargs):
        raise URLError("no network in tests")

    monkeypatch.setattr(sklearn_datasets, "fetch_openml", refuse)


def test_offline_sets_need_no_folder_and_no_network(tmp_path, no_network):
    for name in OFFLINE:
        assert load(name, data_home=tmp_path).source == "scikit-learn"


def test_folder_is_the_argument_then_the_variable(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.setenv("VOLMAR_DATA", str(second))
    assert data_folder() == second
    assert data_folder(first) == first
    monkeypatch.setenv("VOLMAR_DATA", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match=r"VOLMAR_DATA=.*absent"):
        data_folder()
    with pytest.raises(FileNotFoundError, match=r"data_home=.*nowhere"):
        load("ionosphere", data_home=tmp_path / "nowhere")


def test_folder_beside_the_checkout_needs_a_checkout(tmp_path, monkeypatch):
    monkeypatch.delenv("VOLMAR_DATA", raising=False)
    sources = inspect.getmodule(data_folder)
    module = tmp_path / "project" / "reproduction" / "datasets" / "sources.py"
    monkeypatch.setattr(sources, "__file__", str(module))
    module.parent.mkdir(parents=True)
    beside = tmp_path / "shared" / "data"
    beside.mkdir(parents=True)
    assert data_folder() is None
    (tmp_path / "project" / "pyproject.toml").touch()
    assert data_folder() == beside
    beside.rmdir()
    assert data_folder() is None


@pytest.mark.parametrize("name", ["german", "breast-with-id", "20news", "ida-heart", "satellite"])
def test_a_set_that_is_nowhere_names_the_file_and_the_remedy(name, tmp_path, no_network):
    file = find_task(name).base.file
    with pytest.raises(FileNotFoundError, match=f"{file}.*VOLMAR_DATA"):
        load(name, data_home=tmp_path)


def test_sparse_file_without_its_labels_is_refused(tmp_path):
    sp.save_npz(tmp_path / "adult_a9a.npz", sp.csr_array(np.eye(3)))
    with pytest.raises(FileNotFoundError, match=r"adult_a9a_labels.npz"):
        load("adult-a9a", data_home=tmp_path)


def test_file_of_another_size_is_refused(tmp_path):
    X, y = np.zeros((306, 3)), np.repeat([0, 1], [200, 106])
    np.savez(tmp_path / "haberman.npz", X=X, y=y)
    with pytest.raises(ValueError, match=r"\[200, 106\], .*\[225, 81\]"):
        load("haberman", data_home=tmp_path)


def test_pickled_file_is_refused(tmp_path):
    np.savez(tmp_path / "haberman.npz", X=np.array([[{}]], dtype=object), y=np.zeros(1))
    with pytest.raises(ValueError, match="allow_pickle"):
        load("haberman", data_home=tmp_path)


def stub_openml(monkeypatch, expected_id, **answer):
    def fetch(*, data_id, as_frame, parser):
        assert (data_id, as_frame, parser) == (expected_id, False, "liac-arff")
        return Bunch(**answer)

    monkeypatch.setattr(sklearn_datasets, "fetch_openml", fetch)


def test_openml_haberman_nominal_numbers_become_numbers(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    years = ["69", "58", "64"]  # the order of an ARFF header, not of the years
    X = np.column_stack([rng.integers(30, 80, 306), rng.integers(0, 3, 306), np.arange(306)])
    y = rng.permutation(np.repeat(["1", "2"], [225, 81])).astype(object)
    names = ["age", "year", "nodes"]
    stub_openml(
        monkeypatch,
        43,
        data=X.astype(float),
        target=y,
        feature_names=names,
        categories={"year": years},
    )
    data = load("haberman", data_home=tmp_path)
    assert data.source == "openml"
    assert "OpenML data set 43" in data.DESCR
    assert np.array_equal(data.X[:, 1], np.array(years, dtype=float)[X[:, 1]])
    assert np.array_equal(data.X[:, [0, 2]], X[:, [0, 2]])
    assert np.array_equal(data.y, (y == "2").astype(int))
    assert data.target_names == ["survived", "died"]
    assert data.feature_names == ["age", "year of operation", "positive nodes"]


def test_openml_votes_become_what_the_file_has(tmp_path, monkeypatch):
    require_data()
    file = load("house-votes")
    # The header of OpenML lists y before n in some columns, and quotes words; "?" is NaN.
    codes = np.where(np.arange(16) % 2 == 0, 1 - file.X, file.X)
    names = [f"vote {column}" for column in range(16)]
    stub_openml(
        monkeypatch,
        56,
        data=codes,
        target=np.array(["'democrat'", "'republican'"], dtype=object)[file.y],
        feature_names=names,
        categories={
            name: ["'y'", "'n'"] if column % 2 == 0 else ["'n'", "'y'"]
            for column, name in enumerate(names)
        },
    )
    data = load("house-votes", data_home=tmp_path)
    np.testing.assert_array_equal(data.X, file.X)
    assert np.array_equal(data.y, file.y)


def test_openml_has_the_whole_isolet(tmp_path, monkeypatch):
    counts = [300] * 26
    counts[5], counts[12] = 298, 299
    y = np.repeat(np.arange(1, 27), counts)
    X = np.zeros((7797, 617))
    X[:, 0] = y
    stub_openml(
        monkeypatch,
        300,
        data=X,
        target=y.astype(str).astype(object),
        feature_names=[f"f{column}" for column in range(617)],
        categories={},
    )
    data = load("isolet-TvD", data_home=tmp_path)
    assert data.X.shape == (600, 617)
    assert data.X.dtype == np.float32
    assert np.array_equal(data.X[:, 0], np.where(data.y == 0, 20, 4))
    assert "3119" not in data.DESCR


def test_openml_usps_labels_start_from_one(tmp_path, monkeypatch):
    counts = [row.count for row in BASES["usps-9298"].classes]
    y = np.repeat(np.arange(1.0, 11.0), counts)
    X = sp.csr_array(np.repeat(y[:, None], 256, axis=1))
    stub_openml(
        monkeypatch,
        41082,
        data=X,
        target=y,
        feature_names=[f"double{column}" for column in range(256)],
        categories=None,
    )
    data = load("usps-9298-0v9", data_home=tmp_path)
    assert np.bincount(data.y).tolist() == [1553, 821]
    assert np.array_equal(data.X[:, 7], np.where(data.y == 0, 1, 10))


@pytest.mark.parametrize(
    ("labels", "sizes", "message"),
    [
        (["1", "2"], [224, 82], r"'haberman'.*\[224, 82\]"),
        (["1", "2"], [225, 80], r"shape \(305, 3\)"),
        (["1", "3"], [225, 81], r"'haberman'.*\['3'\]"),
    ],
)
def test_another_set_on_openml_is_refused(labels, sizes, message, tmp_path, monkeypatch):
    y = np.repeat(labels, sizes).astype(object)
    stub_openml(
        monkeypatch,
        43,
        data=np.zeros((len(y), 3)),
        target=y,
        feature_names=["a", "b", "c"],
        categories={},
    )
    with pytest.raises(ValueError, match=message):
        load("haberman", data_home=tmp_path)


@pytest.mark.parametrize("error", [URLError("refused"), TimeoutError("slow"), ValueError("gone")])
def test_a_failed_download_says_what_to_do(error, tmp_path, monkeypatch):
    def fail(**kwargs):
        raise error

    monkeypatch.setattr(sklearn_datasets, "fetch_openml", fail)
    with pytest.raises(ConnectionError, match=r"OpenML .*letter.npz .*VOLMAR_DATA") as caught:
        load("letter-KvP", data_home=tmp_path)
    assert caught.value.__cause__ is error


def test_bad_sampling_is_refused_before_a_download(tmp_path, no_network):
    with pytest.raises(ValueError, match="Give n_samples"):
        load("mnist-1v7", realization=3, data_home=tmp_path)
