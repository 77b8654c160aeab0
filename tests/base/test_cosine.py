"""metric="cosine": every estimator sees rows of unit length, at fit and after."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize
from sklearn.utils.estimator_checks import check_estimator

import volmar
from volmar import CPMMC, MSPC, KernelCPMMC, SoftLabelMVC
from volmar.models import load_model, save_model

NAMES = [
    name
    for name in volmar.__all__
    if name[0] != "_" and "metric" in inspect.signature(getattr(volmar, name)).parameters
]
MODELS = [
    CPMMC(random_state=0),
    CPMMC(3, random_state=0),
    CPMMC("auto", random_state=0),
    CPMMC(3, multiway="recursive", random_state=0),
    KernelCPMMC(3, random_state=0),
    KernelCPMMC(method="nystroem", random_state=0),
    MSPC(random_state=0),
    MSPC(3, random_state=0),
    MSPC("auto", random_state=0),
    SoftLabelMVC(3, random_state=0),
    volmar.SKMMC(random_state=0),
    volmar.KernelKMeans(3, random_state=0),
    volmar.NormalizedSpectralClustering(3, random_state=0),
]
LINEAR = [model for model in MODELS if type(model) in (CPMMC, MSPC)]


def cosine(model, **params):
    return clone(model).set_params(metric="cosine", **params)


@pytest.fixture(scope="module")
def directions():
    """Rows in three directions of eight columns, of very different lengths."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    X = normalize(2.5 * np.eye(8)[y] + 0.35 * rng.normal(size=(240, 8)))
    return X * np.exp(2 * rng.normal(size=(240, 1))), y


@pytest.fixture(scope="module")
def text():
    """Counts of 1500 words in 240 documents of three topics."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    topics = 0.7 * rng.dirichlet(np.full(1500, 0.05), size=3) + 0.3 / 1500
    rows = [rng.multinomial(rng.integers(30, 300), topics[i]) for i in y]
    return sparse.csr_array(np.array(rows, dtype=np.float64)), y


def test_seven_estimators_have_it():
    assert len(NAMES) == 7


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_fit_is_that_of_unit_rows(model, directions):
    X = directions[0]
    plain = clone(model).fit(normalize(X))
    ours = cosine(model).fit(X)
    np.testing.assert_array_equal(ours.labels_, plain.labels_)
    scores = ours.decision_function(X)
    np.testing.assert_allclose(scores, plain.decision_function(normalize(X)), atol=1e-9)
    np.testing.assert_array_equal(ours.predict(X), plain.predict(normalize(X)))
    assert ours.get_params()["metric"] == "cosine"
    assert ours.n_features_in_ == 8


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_lengths_of_rows_do_not_matter(model, directions):
    X, y = directions
    ours = cosine(model).fit(X)
    factors = 2.0 ** np.random.default_rng(1).integers(-20, 20, size=(X.shape[0], 1))
    again = cosine(model).fit(factors * X)
    np.testing.assert_array_equal(again.labels_, ours.labels_)
    np.testing.assert_array_equal(ours.predict(factors * X), ours.predict(X))
    if model.n_clusters == 3:
        assert adjusted_rand_score(y, ours.labels_) > 0.9


@pytest.mark.parametrize("model", LINEAR, ids=str)
def test_sparse_is_dense(model, directions):
    X = directions[0]
    dense, ours = cosine(model).fit(X), cosine(model).fit(sparse.csr_array(X))
    assert adjusted_rand_score(dense.labels_, ours.labels_) > 0.98
    np.testing.assert_array_equal(dense.predict(sparse.csr_array(X)), dense.predict(X))


@pytest.mark.parametrize("model", LINEAR, ids=str)
def test_float32_is_near_float64(model, directions):
    X = directions[0]
    ours = cosine(model).fit(X.astype(np.float32))
    assert ours.row_map_.transform(X[:5].astype(np.float32)).dtype == np.float32
    assert adjusted_rand_score(cosine(model).fit(X).labels_, ours.labels_) > 0.98


def test_coefficients_belong_to_unit_rows(directions):
    X = directions[0]
    model = CPMMC(3, metric="cosine", random_state=0).fit(X)
    scores = normalize(X) @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(scores, model.decision_function(X), atol=1e-9)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_rows_of_zeros_stay_zeros(model, directions):
    X = directions[0].copy()
    X[7] = 0.0
    ours = cosine(model).fit(X)
    assert ours.predict(np.zeros((2, 8))).shape == (2,)
    assert np.isfinite(ours.decision_function(X)).all()


@pytest.mark.parametrize("name", NAMES)
def test_bad_values(name, directions):
    X = directions[0].copy()
    kind = getattr(volmar, name)
    with pytest.raises(
        ValueError, match="metric must be one of 'euclidean', 'cosine', got 'angle'"
    ):
        kind(metric="angle").fit(X)
    with pytest.raises(ValueError, match="text_components"):
        kind(metric="cosine", text_components=0).fit(X)
    with pytest.raises(ValueError, match="text_components must be one of 'auto'"):
        kind(metric="cosine", text_components="all").fit(X)
    with pytest.raises(ValueError, match="text_components=5 has no effect with metric='eucl"):
        kind(text_components=5).fit(X)
    with pytest.raises(ValueError, match="text_components=5 is for sparse rows"):
        kind(metric="cosine", text_components=5).fit(X)
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        kind(metric="cosine").fit(X)


@pytest.mark.parametrize("name", NAMES)
def test_pairs_of_rows_have_no_length(name, directions):
    parameters = inspect.signature(getattr(volmar, name)).parameters
    which = next((one for one in ("kernel", "affinity") if one in parameters), None)
    if which is None:
        return
    X = normalize(directions[0])
    model = getattr(volmar, name)(metric="cosine", **{which: "precomputed"})
    with pytest.raises(ValueError, match="metric='cosine' needs rows, but with 'precomputed'"):
        model.fit(np.exp(X @ X.T))


def test_a_fit_that_fails_leaves_its_parameters(directions):
    X = directions[0].copy()
    model = CPMMC(metric="cosine", text_components=None)
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, sample_weight=-np.ones(len(X)))
    assert (model.metric, model.text_components) == ("cosine", None)
    assert not hasattr(model, "row_map_")


def test_a_later_fit_forgets_the_map(directions):
    X = directions[0]
    model = CPMMC(metric="cosine", random_state=0).fit(X)
    model.set_params(metric="euclidean").fit(X)
    assert not hasattr(model, "row_map_")
    np.testing.assert_array_equal(model.labels_, CPMMC(random_state=0).fit(X).labels_)


@pytest.mark.parametrize("model", LINEAR, ids=str)
def test_guided_fits_see_unit_rows(model, directions):
    X, y = directions
    known = np.full(240, -1)
    known[:30] = y[:30] % (3 if model.n_clusters != 2 else 2)
    pairs = [[0, 1], [3, 4]]
    plain = clone(model).fit(normalize(X), known, cannot_link=pairs)
    ours = cosine(model).fit(X, known, cannot_link=pairs)
    np.testing.assert_array_equal(ours.labels_, plain.labels_)
    np.testing.assert_array_equal(ours.predict(X), plain.predict(normalize(X)))


def test_warm_starts_see_unit_rows(directions):
    X = directions[0]
    first = MSPC(3, metric="cosine", random_state=0).fit(X[:120])
    again = MSPC(3, metric="cosine", init=first, random_state=0).fit(X)
    np.testing.assert_array_equal(again.previous_clusters_, [0, 1, 2])
    plain = MSPC(3, random_state=0).fit(normalize(X)[:120])
    expected = MSPC(3, init=plain, random_state=0).fit(normalize(X))
    np.testing.assert_array_equal(again.labels_, expected.labels_)


def test_batches_see_unit_rows(directions):
    X = directions[0]
    ours, plain = MSPC(3, metric="cosine", random_state=0), MSPC(3, random_state=0)
    for batch in np.split(X, 3):
        ours.partial_fit(batch)
        plain.partial_fit(normalize(batch))
    np.testing.assert_allclose(ours.coef_, plain.coef_, rtol=1e-9)
    np.testing.assert_array_equal(ours.labels_, plain.labels_)


@pytest.mark.parametrize("model", LINEAR[:2] + LINEAR[-3:], ids=str)
def test_novelty_sees_unit_rows(model, directions):
    X = directions[0]
    ours = cosine(model).fit(X).fit_novelty(X)
    plain = clone(model).fit(normalize(X)).fit_novelty(normalize(X))
    np.testing.assert_allclose(ours.novelty_score(X), plain.novelty_score(normalize(X)))
    np.testing.assert_array_equal(ours.predict(8 * X, reject=0.1), ours.predict(X, reject=0.1))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_model_files_keep_it(model, directions, tmp_path):
    X = directions[0]
    ours = cosine(model).fit(X)
    save_model(tmp_path / "model.volmar", ours)
    loaded = load_model(tmp_path / "model.volmar").model
    np.testing.assert_array_equal(loaded.decision_function(X), ours.decision_function(X))
    assert loaded.metric == "cosine"


def test_names_of_columns(directions):
    X = pd.DataFrame(directions[0], columns=list("abcdefgh"))
    model = MSPC("auto", metric="cosine", random_state=0).fit(X)
    assert list(model.tree_.feature_names) == list("abcdefgh")


# ---------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("model", [*LINEAR, MODELS[5]], ids=str)
def test_blocks_see_unit_rows(model, directions):
    da = pytest.importorskip("dask.array")
    X = directions[0]
    blocks = da.from_array(X, chunks=(50, 8))
    ours = cosine(model).fit(blocks)
    plain = clone(model).fit(da.from_array(normalize(X), chunks=(50, 8)))
    np.testing.assert_array_equal(ours.labels_.compute(), plain.labels_.compute())
    np.testing.assert_array_equal(ours.predict(blocks).compute(), ours.predict(X))


def test_frames_in_blocks_see_unit_rows(directions):
    dd = pytest.importorskip("dask.dataframe")
    X = pd.DataFrame(directions[0], columns=list("abcdefgh"))
    ours = CPMMC(3, metric="cosine", random_state=0).fit(dd.from_pandas(X, npartitions=3))
    np.testing.assert_array_equal(ours.labels_.compute().to_numpy(), ours.predict(X))


def test_text_in_blocks_is_refused(text):
    da = pytest.importorskip("dask.array")
    blocks = da.from_array(text[0].toarray(), chunks=(80, 1500)).map_blocks(sparse.csr_matrix)
    with pytest.raises(TypeError, match=r"sparse blocks of 1500 columns.*need all rows at once"):
        CPMMC(3, metric="cosine").fit(blocks)


def test_sparse_blocks_see_unit_rows(directions):
    da = pytest.importorskip("dask.array")
    X = directions[0]
    blocks = da.from_array(X, chunks=(80, 8)).map_blocks(sparse.csr_matrix)
    ours = CPMMC(3, metric="cosine", random_state=0).fit(blocks)
    expected = CPMMC(3, metric="cosine", random_state=0).fit(X)
    assert adjusted_rand_score(ours.labels_.compute(), expected.labels_) > 0.98


def test_missing_values_in_blocks_are_refused(directions):
    da = pytest.importorskip("dask.array")
    X = directions[0].copy()
    X[100, 3] = np.nan
    with pytest.raises(ValueError, match="X contains NaN"):
        CPMMC(3, metric="cosine").fit(da.from_array(X, chunks=(50, 8)))


# ---------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    "model", [CPMMC(3), KernelCPMMC(3), MSPC(3), MSPC("auto"), SoftLabelMVC(3)], ids=str
)
def test_topics_are_found(model, text, tmp_path):
    X, y = text
    ours = cosine(model, random_state=0).fit(X)
    assert adjusted_rand_score(y, ours.labels_) > 0.9
    assert ours.row_map_.idf.shape == (1500,)
    assert ours.row_map_.components.shape == (100, 1500)
    assert ours.n_features_in_ == 1500
    # New rows, dense or sparse, are transformed by the fitted map.
    np.testing.assert_array_equal(ours.predict(X[:20].toarray()), ours.predict(X)[:20])
    save_model(tmp_path / "text.volmar", ours)
    loaded = load_model(tmp_path / "text.volmar").model
    np.testing.assert_array_equal(loaded.predict(X), ours.predict(X))
    again = cosine(model, random_state=0).fit(X)
    np.testing.assert_array_equal(again.labels_, ours.labels_)


def test_novelty_of_reduced_rows_in_a_file(text, tmp_path):
    X, _ = text
    model = MSPC(3, metric="cosine", text_components=5, random_state=0).fit(X).fit_novelty(X)
    save_model(tmp_path / "text.volmar", model)
    loaded = load_model(tmp_path / "text.volmar").model
    np.testing.assert_array_equal(loaded.novelty_score(X), model.novelty_score(X))


def test_batches_of_text_keep_the_first_map(text):
    X, y = text
    model = MSPC(3, metric="cosine", text_components=10, random_state=0).partial_fit(X[:120])
    first = model.row_map_
    model.partial_fit(X[120:])
    assert model.row_map_ is first
    assert adjusted_rand_score(y, model.predict(X)) > 0.9


def test_counts_need_no_weights_of_their_own(text):
    from sklearn.feature_extraction.text import TfidfTransformer

    X, _ = text
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(X)
    a = CPMMC(3, metric="cosine", random_state=0).fit(X)
    b = CPMMC(3, metric="cosine", random_state=0).fit(weighted)
    assert b.row_map_.idf is None
    assert adjusted_rand_score(a.labels_, b.labels_) > 0.98


@pytest.mark.parametrize("name", ["CPMMC", "MSPC", "SoftLabelMVC"])
def test_checks_of_scikit_learn(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            getattr(volmar, name)(metric="cosine", random_state=0), on_fail=None
        )
    failed = {one["check_name"] for one in results if one["status"] == "failed"}
    assert failed <= {
        "check_fit2d_1feature",  # positive numbers of one column are all in the same direction
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    }
