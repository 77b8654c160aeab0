"""The minimax probability machine and the separation scores of dask collections."""

import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from volmar import MSPC, MinimaxProbabilityMachine
from volmar.distributed import report_passes
from volmar.metrics import msp_score, separation, separation_score

SCORES = pytest.mark.parametrize("score", [msp_score, separation_score])
# One block, blocks of very different sizes with an empty one, columns in several chunks.
CHUNKS = pytest.mark.parametrize("chunks", [(1200, 5), ((700, 1, 0, 499), 5), (500, 2)])
N = 1200


@pytest.fixture(autouse=True, scope="module")
def _threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def two_groups(n=N, dtype=np.float64):
    """Two groups of different covariances and features of different units, far from 0."""
    rng = np.random.default_rng(7)
    y = (rng.random(n) < 0.4).astype(int)
    maps = rng.standard_normal((2, 5, 5)) + 1.5 * np.eye(5)
    X = np.einsum("ij,ijk->ik", rng.standard_normal((n, 5)), maps[y])
    X[:, :2] += 2.5 * y[:, None]
    X = X * 10.0 ** np.arange(-2, 3) + 30.0
    return X.astype(dtype), y, rng.integers(0, 3, n).astype(float)


X, Y, WEIGHTS = two_groups()
D, DY = da.from_array(X, chunks=(500, 5)), da.from_array(Y, chunks=500)


def passes_of(function, *args, **kwargs):
    """Return the result of a function, and the kinds of statistics in each of its passes."""
    reports = []
    with report_passes(reports.append):
        found = function(*args, **kwargs)
    return found, [set(report.figures) for report in reports]


# ------------------------------------------------------------------ the same machine


@CHUNKS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_linear_machine_is_that_of_the_rows_in_memory(chunks, weighted, constant):
    rows = X.copy()
    rows[:, 3] = 4.25 if constant else rows[:, 3]
    weights = WEIGHTS if weighted else None
    here = MinimaxProbabilityMachine().fit(rows, Y, weights)
    there = MinimaxProbabilityMachine().fit(
        da.from_array(rows, chunks=chunks),
        da.from_array(Y, chunks=333),
        None if weights is None else da.from_array(weights, chunks=1000),
    )
    assert (there.coef_[0, 3] == 0.0) == constant
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(there.intercept_, here.intercept_, rtol=1e-10)
    assert there.separation_probability_ == pytest.approx(here.separation_probability_, rel=1e-10)
    assert there.n_features_in_ == 5
    assert there.classes_.tolist() == [0, 1]
    assert there.result_.is_certified(1e-9)
    blocks = da.from_array(rows, chunks=chunks)
    np.testing.assert_array_equal(there.predict(blocks).compute(), here.predict(rows))
    np.testing.assert_array_equal(there.predict(rows), here.predict(rows))


@CHUNKS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [
        {"kernel": "rbf"},  # more than 1000 rows (of positive weight or not): landmarks or exact
        {"kernel": "rbf", "n_components": 30},
        {"kernel": "poly", "gamma": 1e-4, "degree": 2, "n_components": 20},
    ],
)
def test_kernel_machine_is_that_of_the_rows_in_memory(chunks, weighted, parameters):
    rows = (X - 30.0) / 10.0 ** np.arange(-2, 3)
    weights = WEIGHTS if weighted else None
    model = MinimaxProbabilityMachine(random_state=0, **parameters)
    here = model.fit(rows, Y, weights)
    scores, labels = here.decision_function(rows), here.predict(rows)
    kappa, kind = here.kappa_, type(here.feature_map_)
    blocks = da.from_array(rows, chunks=chunks)
    there = model.fit(blocks, DY, weights)
    assert type(there.feature_map_) is kind
    assert there.kappa_ == pytest.approx(kappa, rel=1e-9)
    np.testing.assert_allclose(there.decision_function(blocks).compute(), scores, atol=1e-9)
    np.testing.assert_array_equal(there.predict(blocks).compute(), labels)


@pytest.mark.parametrize("weighted", [False, True])
def test_few_rows_take_the_kernel_exactly(weighted):
    weights = np.maximum(WEIGHTS[:200], 1 - weighted)
    here = MinimaxProbabilityMachine(kernel="rbf").fit(X[:200], Y[:200], weights)
    scores = here.decision_function(X)
    there = MinimaxProbabilityMachine(kernel="rbf").fit(D[:200], DY[:200], weights)
    assert there.feature_map_._points.shape[0] == np.count_nonzero(weights)
    np.testing.assert_allclose(there.decision_function(D).compute(), scores, atol=1e-8)


def test_float32_stays_near_float64():
    rows = X.astype(np.float32)
    there = MinimaxProbabilityMachine().fit(da.from_array(rows, chunks=(400, 5)), DY)
    here = MinimaxProbabilityMachine().fit(rows, Y)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-4)
    assert there.predict(rows).dtype == here.predict(rows).dtype


def test_integers_and_csr_blocks():
    counts = np.random.default_rng(0).poisson(0.5 + Y[:, None], size=(N, 5))
    here = MinimaxProbabilityMachine().fit(counts, Y).coef_
    whole = da.from_array(counts, chunks=(500, 5))
    thin = whole.map_blocks(sparse.csr_array, meta=sparse.csr_array((0, 0)), dtype=counts.dtype)
    for blocks in (whole, thin):
        there = MinimaxProbabilityMachine().fit(blocks, DY)
        np.testing.assert_allclose(there.coef_, here, rtol=1e-10)


def test_weight_two_is_a_row_written_twice():
    repeats = WEIGHTS.astype(int)
    twice = da.from_array(np.repeat(X, repeats, axis=0), chunks=(450, 5))
    written = MinimaxProbabilityMachine().fit(twice, np.repeat(Y, repeats))
    weighed = MinimaxProbabilityMachine().fit(D, DY, da.from_array(WEIGHTS, chunks=100))
    np.testing.assert_allclose(written.coef_, weighed.coef_, rtol=1e-9)


# ------------------------------------------------------------------ labels and collections


@pytest.mark.parametrize("dtype", [object, str, bool])
@pytest.mark.parametrize("lazy", [False, True])
def test_labels_of_any_kind_come_back(dtype, lazy):
    names = Y.astype(bool) if dtype is bool else np.array(["good", "evil"], dtype=dtype)[Y]
    here = MinimaxProbabilityMachine().fit(X, names)
    given = da.from_array(names, chunks=350) if lazy else names
    there = MinimaxProbabilityMachine().fit(D, given)
    assert there.classes_.tolist() == here.classes_.tolist()
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-10)
    predicted = there.predict(D)
    assert predicted.dtype == here.predict(X).dtype
    assert predicted.chunks == D.chunks[:1]
    np.testing.assert_array_equal(predicted.compute(), here.predict(X))


def test_dataframes_bring_names_and_unknown_sizes():
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=Y, w=WEIGHTS)
    lazy = dd.from_pandas(frame, npartitions=4)
    columns = list("abcde")
    here = MinimaxProbabilityMachine().fit(frame[columns], Y, WEIGHTS)
    there = MinimaxProbabilityMachine().fit(lazy[columns], lazy["y"], lazy["w"])
    assert there.feature_names_in_.tolist() == columns
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-10)
    np.testing.assert_array_equal(
        there.predict(lazy[columns]).compute(), here.predict(frame[columns])
    )
    with pytest.raises(ValueError, match=r"^X .*got e, d"):
        there.predict(lazy[columns[::-1]])
    # Arrays with chunks of unknown size, alone and selected by a condition.
    unknown = lazy[lazy["w"] > 0]
    some = WEIGHTS > 0
    there = MinimaxProbabilityMachine().fit(unknown[columns].values, unknown["y"].values)
    here = MinimaxProbabilityMachine().fit(X[some], Y[some])
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-10)
    assert not hasattr(there, "feature_names_in_")


def test_predictions_are_lazy_and_the_model_travels():
    model = pickle.loads(pickle.dumps(MinimaxProbabilityMachine().fit(D, DY)))
    touched = []

    def read(block):
        touched.append(block.shape[0])
        return block

    watched = D.map_blocks(read, dtype=D.dtype, meta=np.empty((0, 0)))
    scores, labels = model.decision_function(watched), model.predict(watched)
    assert not touched
    assert scores.chunks == labels.chunks == D.chunks[:1]
    np.testing.assert_allclose(scores.compute(), model.decision_function(X), rtol=1e-12)
    np.testing.assert_array_equal(labels.blocks[1].compute(), model.predict(X[500:1000]))
    assert len(touched) == 4
    assert model.score(D, DY) == model.score(X, Y)


# ------------------------------------------------------------------ passes


def test_passes_are_few_and_shared():
    _, passes = passes_of(MinimaxProbabilityMachine().fit, D, DY)
    moments = {"MomentSum"}
    assert passes == [{"Picked"}, {"Squares", "MomentSum", "Distinct"}, moments, moments]
    _, passes = passes_of(MinimaxProbabilityMachine().fit, D, DY, WEIGHTS)
    checks = {"Distinct", "Extremes", "Sum"}
    expected = [checks, {"Picked"}, {"Squares", "MomentSum", "Sum"}, moments, moments]
    assert passes == expected


@pytest.mark.parametrize(("weighted", "n_passes"), [(False, 8), (True, 11)])
def test_kernel_passes_do_not_grow_with_the_blocks(weighted, n_passes):
    model = MinimaxProbabilityMachine(kernel="rbf", n_components=10, random_state=0)
    for chunk in (50, 600):
        blocks = da.from_array(X, chunks=(chunk, 5))
        _, passes = passes_of(model.fit, blocks, Y, WEIGHTS if weighted else None)
        assert len(passes) == n_passes


# ------------------------------------------------------------------ errors


def bad(place, value):
    rows = X.copy()
    rows[place] = value
    return da.from_array(rows, chunks=(500, 5))


MISSING = np.array(["a", "b"], dtype=object)[Y]
MISSING[700] = np.nan


@pytest.mark.parametrize(
    ("rows", "y", "weights", "message"),
    [
        (bad((900, 1), np.nan), DY, None, "X contains NaN or infinity"),
        (bad((900, 1), np.nan), DY, WEIGHTS, "X contains NaN or infinity"),
        (D, np.zeros(N), None, "y has 1 class"),
        (D, np.arange(N) % 3, None, "OneVsOneClassifier"),
        (D, np.arange(N), None, "Only binary classification"),
        (D, X[:, 0], None, "Unknown label type: continuous"),
        (D, np.where(Y, 1.0, np.nan), None, "Input y contains NaN"),
        (D, MISSING, None, "^y .*labels"),
        (D, da.from_array(MISSING, chunks=100), WEIGHTS, "^y .*labels"),
        (D, Y.astype(object), None, "Unknown label type: unknown"),
        (D, DY[:-1], None, r"^y .*got \(1199,\)"),
        (D, None, None, "requires y to be passed"),
        (D, DY, np.where(Y, 0.0, 1.0), r"^sample_weight .*class .*1"),
        (D, DY, -WEIGHTS, "^sample_weight .*negative"),
        (D, DY, WEIGHTS[1:], "^sample_weight .*each row"),
    ],
)
def test_bad_input_is_named(rows, y, weights, message):
    model = MinimaxProbabilityMachine().fit(X, Y)
    with pytest.raises(ValueError, match=message):
        model.fit(rows, y, weights)
    with pytest.raises(NotFittedError):
        model.predict(D)


def test_weights_that_are_no_numbers_are_not_blamed_on_the_labels():
    names = np.array(["a", "b"], dtype=object)[Y]
    with pytest.raises(TypeError, match="sample_weight must hold real numbers"):
        MinimaxProbabilityMachine().fit(D, names, names)


def test_parameters_that_cannot_be_right():
    with pytest.raises(TypeError, match="kernel='precomputed'"):
        MinimaxProbabilityMachine(kernel="precomputed").fit(D @ D.T, DY)
    with pytest.raises(ValueError, match=r"^n_components .*got 5000"):
        MinimaxProbabilityMachine(kernel="rbf", n_components=5000).fit(D, DY)
    counted = np.count_nonzero(WEIGHTS)
    with pytest.raises(ValueError, match=f"between 1 and {counted}, got {counted + 1}"):
        MinimaxProbabilityMachine(kernel="rbf", n_components=counted + 1).fit(D, DY, WEIGHTS)
    with pytest.raises(ValueError, match="the 5 features seen in fit"):
        MinimaxProbabilityMachine().fit(D, DY).predict(D[:, :3])
    with pytest.warns(ConvergenceWarning, match="the classes have the same mean"):
        MinimaxProbabilityMachine().fit(D * 0 + 1, DY)


# ------------------------------------------------------------------ scores


def several(k, dtype=np.float64):
    rng = np.random.default_rng(k)
    labels = rng.permutation(np.arange(N) % (2 * k) % k)
    rows = rng.standard_normal((N, 5)) @ rng.standard_normal((5, 5))
    rows += 3.0 * rng.standard_normal((k, 5))[labels]
    return (rows * 10.0 ** np.arange(-2, 3) + 20.0).astype(dtype), labels


@SCORES
@CHUNKS
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("kind", ["integers", "strings", "lazy", "lazy objects"])
def test_scores_are_those_of_the_rows_in_memory(score, chunks, k, kind):
    rows, labels = several(k)
    rows[:, 2] = 7.1  # a feature that is constant
    given = np.array([f"cluster {i}" for i in range(k)])[labels]
    given = {
        "integers": lambda: labels,
        "strings": lambda: given,
        "lazy": lambda: da.from_array(labels, chunks=77),
        "lazy objects": lambda: da.from_array(given.astype(object), chunks=500),
    }[kind]()
    found, passes = passes_of(score, da.from_array(rows, chunks=chunks), given)
    expected = score(rows, labels)
    assert 0.01 < expected < 0.99
    assert found == pytest.approx(expected, abs=1e-10)
    moments = {"MomentSum"}
    assert passes == [{"Picked"}, {"Squares", "MomentSum", "Distinct"}, moments, moments]


@SCORES
def test_scores_of_a_clustering_of_blocks(score):
    model = MSPC(random_state=0).fit(D)
    found = score(D, model.labels_)
    assert found == pytest.approx(score(X, model.labels_.compute()), abs=1e-10)
    frame = dd.from_pandas(pd.DataFrame(X).assign(c=Y), npartitions=3)
    assert score(frame[list(range(5))], frame["c"]) == pytest.approx(score(X, Y), abs=1e-10)


@SCORES
def test_scores_of_float32_and_csr_blocks(score):
    rows, labels = several(3, np.float32)
    found = score(da.from_array(rows, chunks=(500, 5)), labels)
    assert found == pytest.approx(score(rows, labels), abs=1e-5)
    counts = np.random.default_rng(0).poisson(0.01 + 0.01 * labels[:, None], size=(N, 200)) * 1.0
    # Constant features, whose variance from sums of squares about 0 is a rounding error.
    counts[:, :12] = 10.0 ** np.linspace(1, 7, 12) / 3
    thin = da.from_array(counts, chunks=(500, 200)).map_blocks(
        sparse.csr_array, meta=sparse.csr_array((0, 0)), dtype=counts.dtype
    )
    expected = score(counts[:, 12:], labels)
    assert score(thin, labels) == pytest.approx(expected, abs=1e-10)


@SCORES
def test_large_statistics_are_requested_in_batches(score, monkeypatch):
    """Statistics beyond the cache of a table would be requested again, each in its own pass."""
    rows, labels = several(20)
    monkeypatch.setattr(separation, "KEPT_BYTES", 8 * 5**2)
    found, passes = passes_of(score, da.from_array(rows, chunks=(500, 5)), labels)
    assert found == pytest.approx(score(rows, labels), abs=1e-10)
    assert len(passes) == 2 + 3 + 3


@SCORES
def test_scores_name_bad_input(score):
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="X contains NaN or infinity"):
            score(bad((900, 1), value), DY)
    with pytest.raises(ValueError, match="at least 2 clusters, got 1"):
        score(D, DY * 0)
    with pytest.raises(ValueError, match=r"^labels .*each row"):
        score(D, DY[1:])
    with pytest.raises(ValueError, match="labels must not contain NaN"):
        score(D, np.where(Y, 1.0, np.nan))
    with pytest.raises(TypeError, match=r"^labels .*mixture"):
        score(D, MISSING)
    with pytest.raises(ValueError, match="singular"):
        score(D[:, [0, 0]], DY, reg=0.0)
    lonely = np.where(np.arange(len(Y)) == 5, 2, Y)
    with pytest.raises(ValueError, match=r"^cross_fit"):
        score(D, lonely, cross_fit=True)


@SCORES
@pytest.mark.parametrize("exact", [20, 10_000])
def test_halves_do_not_depend_on_blocks(score, exact, monkeypatch):
    monkeypatch.setattr(separation, "EXACT_UP_TO", exact)
    rows, labels = several(4)
    names = np.array(["d", "b", "a", "c"])[labels]
    near = score(rows, names, cross_fit=True, random_state=7)
    assert near != score(rows, names, cross_fit=True, random_state=8)
    for chunks in (len(rows), 130, (1, len(rows) - 1)):
        blocks = da.from_array(rows, chunks=(chunks, 5))
        found, passes = passes_of(score, blocks, names, cross_fit=True, random_state=7)
        assert found == pytest.approx(near, abs=1e-10)
        assert len(passes) <= 5


def test_halves_are_equal_and_random():
    codes = np.repeat([0, 1, 2], [2, 101, 4000])
    sizes = np.bincount(codes)
    found = [separation.random_halves(codes, sizes, seed) for seed in range(40)]
    for half in found:
        assert np.bincount(codes, half).tolist() == [1, 50, 2000]
    # Random halves of the rows, which depend on the seed.
    share = np.mean(found, axis=0)
    assert abs(share[103:].mean() - 0.5) < 1e-12
    assert 0.5 < share[103:].std() / np.sqrt(0.25 / 40) < 1.5
    assert abs(np.corrcoef(found[0][103:], found[1][103:])[0, 1]) < 0.1


def test_scores_refuse_a_label_for_each_row():
    rows = da.zeros((10_050, 1), chunks=(3000, 1))
    with pytest.raises(ValueError, match="at most 10000 clusters"):
        msp_score(rows, np.arange(10_050))
