"""`fit_novelty`, `novelty_score` and `predict(reject=)` of clusterers."""

import io
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import volmar
from volmar import CPMMC, MSPC, KernelKMeans, SoftLabelMVC
from volmar.models import load_model, save_model
from volmar.table_clusterer.estimator import clusterer_names


def draw(rng, n=150):
    return np.concatenate([rng.normal(-3, 1, (n, 3)), rng.normal(3, 1, (n, 3))])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return draw(rng), draw(rng)


@pytest.fixture(scope="module")
def model(rows):
    return MSPC(2, random_state=0).fit(rows[0]).fit_novelty(rows[0])


def test_strangers_are_rejected_and_ordinary_rows_are_not(model, rows):
    labels = model.predict(rows[1])
    p = model.novelty_score(rows[1])
    assert (p <= 0.05).mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 * 2 / len(p))
    for reject in (0.01, 0.2):
        expected = np.where(p <= reject, -1, labels)
        np.testing.assert_array_equal(model.predict(rows[1], reject=reject), expected)
    strangers = rows[1] + [0.0, 40.0, -40.0]
    assert (model.predict(strangers, reject=0.01) == -1).all()
    assert (model.predict(strangers) >= 0).all()


@pytest.mark.parametrize("name", [one for one in clusterer_names() if one != "AutoClusterer"])
def test_every_clusterer_is_calibrated(name, rows):
    few = rows[0][::5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = getattr(volmar, name)(random_state=0).fit(few)
    before = fitted.labels_.copy()
    assert fitted.fit_novelty(few) is fitted
    np.testing.assert_array_equal(fitted.labels_, before)
    assert fitted.novelty_.n_rows.sum() == len(few)
    p = fitted.novelty_score(few[0] + np.array([[0.0, 0.0, 0.0], [0.0, 30.0, -30.0]]))
    assert p[0] > p[1] == fitted.novelty_.min_p_values[fitted.predict(few[:1])[0]]


def test_numbers_of_clusters_and_one_cluster():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(8 * j, 1, (120, 2)) for j in range(3)])
    three = MSPC(3, random_state=0).fit(X).fit_novelty(X)
    assert three.novelty_.n_clusters == 3
    one = MSPC(1, random_state=0).fit(X[:120]).fit_novelty(X[:120])
    assert one.novelty_.n_clusters == 1
    assert one.predict([[50.0, -50.0], X[0]], reject=0.02).tolist() == [-1, 0]


def test_before_the_calibration(rows):
    fitted = MSPC(2, random_state=0)
    with pytest.raises(NotFittedError):
        fitted.fit_novelty(rows[0])
    fitted.fit(rows[0])
    for call in (
        lambda: fitted.novelty_score(rows[0]),
        lambda: fitted.predict(rows[0], reject=0.01),
    ):
        with pytest.raises(NotFittedError, match=r"fit_novelty\(X\)"):
            call()
    fitted.fit_novelty(rows[0])
    assert not hasattr(clone(fitted), "novelty_")
    fitted.fit(rows[0])
    assert not hasattr(fitted, "novelty_")


@pytest.mark.parametrize(
    ("reject", "error"),
    [(0.0, ValueError), (1.0, ValueError), (-0.1, ValueError), ("0.01", TypeError)],
)
def test_wrong_levels_are_refused(model, rows, reject, error):
    with pytest.raises(error, match="reject must be"):
        model.predict(rows[0], reject=reject)


def test_other_columns_and_given_similarities_are_refused(model, rows):
    with pytest.raises(ValueError, match="features"):
        model.novelty_score(rows[0][:, :2])
    with pytest.raises(ValueError, match="features"):
        model.fit_novelty(rows[0][:, :2])
    few = rows[0][::10]
    pairs = few @ few.T
    given = KernelKMeans(2, kernel="precomputed", random_state=0).fit(pairs)
    with pytest.raises(ValueError, match="calibrate_novelty"):
        given.fit_novelty(pairs)


def test_a_level_that_cannot_be_reached_is_warned_of(rows):
    few = rows[0][::10]
    fitted = MSPC(2, random_state=0).fit(few).fit_novelty(few)
    with pytest.warns(UserWarning, match="^reject=0.01"):
        labels = fitted.predict(few + 100.0, reject=0.01)
    assert (labels >= 0).all()


def test_sparse_rows_float32_and_weights(rows):
    X = rows[0]
    dense, csr = (
        CPMMC(2, random_state=0).fit(one).fit_novelty(one) for one in (X, sparse.csr_array(X))
    )
    np.testing.assert_allclose(
        dense.novelty_score(rows[1]), csr.novelty_score(sparse.csr_array(rows[1]))
    )
    small = MSPC(2, random_state=0).fit(X.astype(np.float32)).fit_novelty(X.astype(np.float32))
    assert small.novelty_score(rows[1].astype(np.float32)).dtype == np.float64
    weights = np.r_[np.ones(len(X)), np.zeros(1)]
    heavy = MSPC(2, random_state=0).fit(X)
    heavy.fit_novelty(np.vstack([X, [[1e6, 0, 0]]]), sample_weight=weights)
    assert heavy.novelty_.n_rows.sum() == len(X)
    assert abs(heavy.novelty_.scatter.mean).max() < 10


def test_saved_and_pickled_models_reject_the_same_rows(model, rows, tmp_path):
    wide = np.random.default_rng(0).normal(size=(80, 300))
    models = {
        "MSPC": (model, rows[1]),
        "graph": (SoftLabelMVC(random_state=0).fit(rows[0]).fit_novelty(rows[0]), rows[1]),
        "sketch": (CPMMC(random_state=0).fit(wide).fit_novelty(wide), wide + 0.5),
    }
    for name, (one, new) in models.items():
        save_model(tmp_path / f"{name}.volmar", one)
        again = load_model(tmp_path / f"{name}.volmar").model
        for other in (again, pickle.load(io.BytesIO(pickle.dumps(one)))):
            np.testing.assert_array_equal(other.novelty_score(new), one.novelty_score(new))
            np.testing.assert_array_equal(
                other.predict(new, reject=0.1), one.predict(new, reject=0.1)
            )


def test_dask_rows_are_scored_by_block(model, rows):
    da = pytest.importorskip("dask.array")
    X = da.from_array(rows[1], chunks=(70, 3))
    p, labels = model.novelty_score(X), model.predict(X, reject=0.1)
    assert p.chunks == labels.chunks == (X.chunks[0],)
    np.testing.assert_array_equal(p.compute(), model.novelty_score(rows[1]))
    np.testing.assert_array_equal(labels.compute(), model.predict(rows[1], reject=0.1))
    frame = pytest.importorskip("dask.dataframe").from_dask_array(X, columns=["a", "b", "c"])
    fitted = MSPC(2, random_state=0).fit(frame).fit_novelty(frame)
    assert fitted.novelty_.n_rows.sum() == len(rows[1])
    assert len(fitted.predict(frame, reject=0.1).compute()) == len(rows[1])
    weights = da.from_array(np.r_[np.zeros(10), np.ones(290)], chunks=70)
    assert fitted.fit_novelty(frame, weights).novelty_.n_rows.sum() == 290
