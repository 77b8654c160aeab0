"""init=model: fits that start from a fitted model and keep the numbers of its clusters."""

import itertools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans

from volmar import CPMMC, MSPC, SKMMC, KernelCPMMC, KernelKMeans, LDAKMeans, SoftLabelMVC
from volmar.base.clusterer import matched_order, taken_numbers
from volmar.metrics import clustering_error
from volmar.models import load_model, save_model

FAMILIES = [MSPC, CPMMC, KernelCPMMC, SKMMC, SoftLabelMVC]


def blobs(sizes, seed=0, d=4, spread=1.0):
    """Groups of these sizes around centres that are the same for every seed."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(9).normal(size=(len(sizes), d)) * 6
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return centers[y] + spread * rng.normal(size=(y.size, d))


SIZES = [90, 70, 50, 30]


# ---------------------------------------------------------------------- numbers by matching


def test_numbers_keep_as_many_rows_as_any_permutation():
    rng = np.random.default_rng(0)
    for _ in range(30):
        k_old, k = map(int, rng.integers(1, 5, 2))
        old, new = rng.integers(k_old, size=30), rng.integers(k, size=30)
        weights = rng.uniform(size=30)
        taken = taken_numbers(old, new, weights, k)
        kept = weights[taken[new] == old].sum()
        # Brute force: each new cluster continues one of the old ones or none.
        names = [*range(k_old), *range(-1, -k - 1, -1)]
        most = max(
            weights[np.array(of)[new] == old].sum() for of in itertools.permutations(names, k)
        )
        assert kept == pytest.approx(most)
        used = taken[taken >= 0]
        assert np.unique(used).size == used.size


def test_order_keeps_numbers_and_is_a_permutation():
    rng = np.random.default_rng(1)
    for _ in range(30):
        k = int(rng.integers(1, 6))
        taken = np.where(rng.uniform(size=k) < 0.3, -1, rng.permutation(8)[:k])
        order = matched_order(taken, rng.permutation(k))
        assert sorted(order) == list(range(k))
        for number in taken[(taken >= 0) & (taken < k)]:
            assert taken[order[number]] == number
    # Unmatched clusters are in the order of sizes.
    assert matched_order(np.array([-1, 1, -1]), np.array([2, 1, 0])).tolist() == [2, 1, 0]


def test_rows_without_an_old_cluster_do_not_count():
    taken = taken_numbers(np.array([-1, -1, -1, 2]), np.array([0, 0, 0, 1]), None, 2)
    assert taken.tolist() == [-1, 2]


# ---------------------------------------------------------------------- fits


CASES = [(family, k) for family in FAMILIES for k in (2, 3)]


@pytest.mark.parametrize(("family", "k"), CASES)
def test_numbers_stay_where_the_sizes_are_turned_round(family, k):
    sizes = SIZES[:k]
    X, Z = blobs(sizes), blobs(sizes[::-1], seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = family(k, random_state=0).fit(X)
        cold = family(k, random_state=0).fit(Z)
        new = family(k, random_state=0, init=old).fit(Z)
    expected = old.predict(Z)
    assert np.mean(cold.labels_ == expected) < 0.5  # by size
    assert np.mean(new.labels_ == expected) > 0.98
    assert np.mean(new.predict(Z) == new.labels_) > 0.98
    np.testing.assert_array_equal(new.previous_clusters_, np.arange(len(sizes)))
    assert new.init is old
    if hasattr(new, "tree_"):
        assert new.tree_.sizes == tuple(np.bincount(new.labels_))
    assert not hasattr(cold, "previous_clusters_")


def test_everything_of_two_clusters_is_turned_round():
    X, Z = blobs(SIZES[:2]), blobs(SIZES[:2][::-1], seed=1)
    old = MSPC(random_state=0).fit(X)
    cold, new = MSPC(random_state=0).fit(Z), MSPC(random_state=0, init=old).fit(Z)
    np.testing.assert_array_equal(new.labels_, 1 - cold.labels_)
    np.testing.assert_allclose(new.coef_, -cold.coef_, rtol=0.05, atol=0.01)
    np.testing.assert_allclose(
        new.side_probability_, cold.side_probability_[::-1], rtol=1e-3, atol=1e-3
    )
    np.testing.assert_array_equal(new.labels_, (new.decision_function(Z) > 0).astype(int))


@pytest.mark.parametrize("k", [2, 3])
def test_more_rows_than_are_split_at_once(k):
    """Trees of a sample, and discriminants and hyperplanes refined on all rows."""
    sizes = [12_000, 8_000, 5_000] if k == 3 else [14_000, 9_000]
    X, Z = blobs(sizes, d=3), blobs(sizes[::-1], seed=1, d=3)
    old = MSPC(k, random_state=0).fit(X)
    new = MSPC(k, random_state=0, init=old).fit(Z)
    assert np.mean(new.labels_ == old.predict(Z)) > 0.98
    assert np.mean(new.predict(Z) == new.labels_) > 0.999


@pytest.mark.parametrize("family", [MSPC, CPMMC])
def test_more_clusters_follow(family):
    X, Z = blobs(SIZES[:3]), blobs([30, 50, 70, 90], seed=1)
    Z = Z[np.lexsort(Z.T)]
    old = family(3, random_state=0).fit(X)
    new = family(4, random_state=0, init=old).fit(Z)
    assert sorted(new.previous_clusters_) == [-1, 0, 1, 2]
    assert new.previous_clusters_[3] == -1
    # Rows of the three groups that were there before.
    before = np.mean(new.labels_[new.labels_ < 3] == old.predict(Z)[new.labels_ < 3])
    assert before > 0.98


@pytest.mark.parametrize("family", [MSPC, KernelCPMMC])
def test_fewer_clusters_keep_what_numbers_there_are(family):
    X = blobs(SIZES[:3])
    old = family(3, random_state=0).fit(X)
    Z = X[old.labels_ != 0]  # clusters 1 and 2 are left
    new = family(2, random_state=0, init=old).fit(Z)
    # Cluster 1 keeps its number, and cluster 2 gets the free one.
    assert new.previous_clusters_.tolist() == [2, 1]
    assert np.mean((new.labels_ == 1) == (old.predict(Z) == 1)) > 0.98


def test_the_start_is_used():
    """Start labels that the default start would not lead to are kept."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) + 6 * rng.integers(2, size=(400, 2))  # four groups
    for column in (0, 1):
        old = MSPC(random_state=0, init=(X[:, column] > 3).astype(int)).fit(X)
        new = MSPC(random_state=0, init=old).fit(X)
        assert np.mean(new.labels_ == old.labels_) > 0.99
        assert clustering_error(X[:, column] > 3, new.labels_) < 0.05
    # For k > 2, the labels are the start of the refinement.
    labels = KMeans(4, n_init=3, random_state=0).fit(X)
    assert MSPC(4, random_state=0, init=labels).fit(X).previous_clusters_.tolist() == [0, 1, 2, 3]


def test_width_and_regularisation_are_those_of_the_model():
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 300)
    rings = np.c_[np.cos(angle), np.sin(angle)] * np.repeat([1, 4], 150)[:, None]
    X = rings + 0.1 * np.random.default_rng(1).normal(size=(300, 2))
    old = KernelCPMMC(random_state=0).fit(X)
    new = KernelCPMMC(random_state=0, init=old).fit(X)
    assert new.gamma_ == old.gamma_
    assert new.gamma == "auto"
    assert np.mean(new.labels_ == old.labels_) > 0.99
    reg = MSPC(random_state=0, reg=0.3).fit(X)
    assert MSPC(random_state=0, init=reg).fit(X).reg_ == 0.3
    assert MSPC(random_state=0, init=reg, reg=2.0).fit(X).reg_ == 2.0


def test_sparse_rows_and_batches():
    X, Z = blobs(SIZES[:3]), blobs(SIZES[:3][::-1], seed=1)
    old = MSPC(3, random_state=0).fit(X)
    of_csr = MSPC(3, random_state=0, init=old).fit(sparse.csr_array(Z))
    assert np.mean(of_csr.labels_ == old.predict(Z)) > 0.98
    begun = MSPC(3, random_state=0, init=old).partial_fit(Z)
    assert np.mean(begun.labels_ == old.predict(Z)) > 0.98
    begun.partial_fit(X)
    assert np.mean(begun.predict(X) == old.labels_) > 0.98


def test_one_cluster_of_a_model_that_has_several():
    X = blobs(SIZES[:2])
    old = MSPC(2, random_state=0).fit(X)
    assert MSPC(1, init=old).fit(X[old.labels_ == 1]).previous_clusters_.tolist() == [1]


# ---------------------------------------------------------------------- the parameter


def test_parameter_clone_repr_and_pickle():
    X = blobs(SIZES[:2])
    old = MSPC(random_state=0).fit(X)
    model = CPMMC(init=old, random_state=0)
    copied = clone(model)
    assert copied is not model
    assert copied.init is old  # the fitted model itself, not an unfitted clone
    assert model.get_params(deep=False)["init"] is old
    assert "init=MSPC(random_state=0)" in repr(model)
    assert clone(CPMMC(init="k-means")).init == "k-means"
    model.fit(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.labels_)
    assert "_previous" not in vars(model)


def test_a_file_holds_no_model_in_a_model(tmp_path):
    X = blobs(SIZES[:3])
    old = MSPC(3, random_state=0).fit(X)
    model = MSPC(3, random_state=0, init=old).fit(X)
    save_model(tmp_path / "model.volmar", model)
    loaded = load_model(tmp_path / "model.volmar").model
    assert loaded.init == "auto"
    assert model.init is old
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    np.testing.assert_array_equal(loaded.previous_clusters_, [0, 1, 2])
    chain = old
    for _ in range(3):  # files do not grow with every update
        chain = MSPC(3, random_state=0, init=chain).fit(X)
        save_model(tmp_path / "next.volmar", chain, force=True)
    size = (tmp_path / "model.volmar").stat().st_size
    assert abs((tmp_path / "next.volmar").stat().st_size - size) < 0.02 * size


def test_other_columns_are_refused():
    X = blobs(SIZES[:2])
    old = MSPC(random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"init=MSPC\(...\) was fitted to other columns"):
        CPMMC(init=old).fit(X[:, :3])
    named = MSPC(random_state=0).fit(pd.DataFrame(X, columns=list("abcd")))
    with pytest.raises(ValueError, match=r"other columns.*feature names"):
        MSPC(init=named).fit(pd.DataFrame(X, columns=list("abce")))
    model = MSPC(init=named)
    with pytest.raises(ValueError, match="NaN"):  # an error about X, not about the model
        model.fit(np.where(X > 5, np.nan, X))
    assert model.init is named


@pytest.mark.parametrize(
    ("init", "error", "message"),
    [
        (MSPC(), ValueError, "not fitted"),
        (KernelKMeans(kernel="precomputed"), ValueError, "precomputed"),
    ],
)
def test_models_that_cannot_be_a_start(init, error, message):
    X = blobs(SIZES[:2])
    if message == "precomputed":
        init.fit(X @ X.T)
    with pytest.raises(error, match=message):
        MSPC(init=init).fit(X)


def test_a_model_that_does_not_predict_and_blocks():
    from sklearn.cluster import DBSCAN

    X = blobs(SIZES[:2])
    with pytest.raises(TypeError, match="cannot predict"):
        MSPC(init=DBSCAN().fit(X)).fit(X)
    da = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="matched in memory"):
        MSPC(init=MSPC().fit(X)).fit(da.from_array(X))


@pytest.mark.parametrize("method", [KernelKMeans, LDAKMeans])
def test_methods_for_comparison_do_not_start_from_a_model(method):
    X = blobs(SIZES[:3])
    with pytest.raises(ValueError, match=r"^init .*label per"):
        method(3, init=MSPC(3, random_state=0).fit(X)).fit(X)
