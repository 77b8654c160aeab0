"""SKMMC on the rows of dask collections: the answer of rows in memory, by few passes."""

import collections
import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from volmar import SKMMC
from volmar.margin.engine.descent import maximise_margin
from volmar.margin.engine.problem import HingeLoss, MarginProblem
from volmar.margin.feature_space import basis
from volmar.margin.feature_space.basis import GROUP, BasisSpace, BlockImages
from volmar.rows.blocks import as_table
from volmar.rows.blocks.table import HeldRows, report_passes

N = 3000
CHUNKS = [1300, (37, 2500, 0, 463), N]


@pytest.fixture(autouse=True)
def _threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def clouds(n=N, d=6, seed=0):
    """Two Gaussian clouds of unequal size, and a mask of the rows of the second."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.4
    return rng.normal(size=(n, d)) + 3.0 * y[:, None] * np.eye(d)[2], y


def in_blocks(X, chunks=1300):
    return da.from_array(X, chunks=(chunks, X.shape[1]))


def both(X, D, sample_weight=None, **parameters):
    """Fit to rows in memory and in blocks; return the models and the passes of the second."""
    passes = []
    here = SKMMC(random_state=0, **parameters).fit(X, sample_weight=sample_weight)
    with report_passes(passes.append):
        there = SKMMC(random_state=0, **parameters).fit(D, sample_weight=sample_weight)
    return here, there, passes


def check_same(here, there, X, D, atol=1e-10):
    scores = there.decision_function(D)
    assert isinstance(scores, da.Array)
    np.testing.assert_allclose(scores.compute(), here.decision_function(X), rtol=0, atol=atol)
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)
    np.testing.assert_array_equal(there.predict(D).compute(), here.labels_)
    np.testing.assert_allclose(there.result_.scores.compute(), here.result_.scores, atol=atol)
    assert there.n_iter_ == here.n_iter_
    assert there.status_ is here.status_
    assert there.result_.n_passes == here.result_.n_passes
    assert there.n_diverged_ == here.n_diverged_
    assert there.basis_vectors_.shape == here.basis_vectors_.shape
    assert there.gamma_ == pytest.approx(here.gamma_, rel=1e-13)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-10)
    assert there.result_.gap == pytest.approx(here.result_.gap, rel=1e-6, nan_ok=True)


# ------------------------------------------------------------------ the same answer


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"basis": "single"},
        {"threshold": "fixed", "C": 10.0, "gamma": 0.06},
        {"basis": "single", "threshold": "fixed", "C": 10.0, "gamma": "4*rms"},
        {"n_basis": 2, "gamma": "2*rms", "max_basis": 12},
        {"max_basis": 5},
    ],
    ids=str,
)
def test_rows_in_blocks_give_the_answer_of_rows_in_memory(parameters):
    X, _ = clouds()
    here = SKMMC(random_state=0, **parameters).fit(X)
    for chunks in CHUNKS[1:2] if parameters else CHUNKS:
        D = in_blocks(X, chunks)
        there = SKMMC(random_state=0, **parameters).fit(D)
        check_same(here, there, X, D)


def test_the_width_is_the_same_to_the_last_digit():
    for seed in range(12):
        X, _ = clouds(2000, seed=seed)
        for rule in ("rms", "0.3*scale/2"):
            model = SKMMC(gamma=rule)
            widths = {model._resolved_gamma(as_table(in_blocks(X, c)), None) for c in (700, 70)}
            assert widths == {model._resolved_gamma(X, None)}


def test_a_basis_close_to_dependent_magnifies_rounding():
    X, _ = clouds(d=4)
    D = in_blocks(X)
    here, there, _ = both(X, D, gamma="4*rms", C=4.0, max_basis=30)
    assert len(here.basis_vectors_) == 30
    check_same(here, there, X, D, atol=1e-9)
    # A change of 1 in the last digit of the width has an effect: it must not depend on blocks.
    gamma = here.gamma_ * (1 - 2e-12)
    other = SKMMC(gamma=gamma, C=4.0, max_basis=30, random_state=0).fit(X)
    assert np.abs(other.decision_function(X) - here.decision_function(X)).max() > 1e-9


@pytest.mark.parametrize("kind", ["many", "few"])
def test_weights_in_blocks_are_those_in_memory(kind):
    X, _ = clouds()
    weights = np.random.default_rng(1).integers(0, 3, N).astype(float)
    if kind == "few":
        weights[np.random.default_rng(2).random(N) < 0.6] = 0.0
    D = in_blocks(X)
    assert (np.count_nonzero(weights) > basis.PILOT_ROWS) == (kind == "many")
    here, there, _ = both(X, D, weights)
    check_same(here, there, X, D)


def test_given_labels():
    X, y = clouds()
    D = in_blocks(X)
    for init in (y, da.from_array(y, chunks=500)):
        here = SKMMC(init=y, random_state=0).fit(X)
        there = SKMMC(init=init, random_state=0).fit(D)
        check_same(here, there, X, D)


def test_fewer_rows_than_the_pilot_has():
    X, _ = clouds(300)
    D = in_blocks(X, 120)
    here, there, _ = both(X, D)
    check_same(here, there, X, D)


@pytest.mark.parametrize("offset", [1e4, -1e5])
def test_rows_far_from_the_origin(offset):
    X, _ = clouds()
    X += offset
    D = in_blocks(X)
    here, there, _ = both(X, D)
    check_same(here, there, X, D, atol=1e-9)
    near = SKMMC(random_state=0).fit(X - offset)
    np.testing.assert_array_equal(there.labels_.compute(), near.labels_)


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_float32_in_blocks_is_near_float32_in_memory(offset):
    X, _ = clouds()
    X = (X + offset).astype(np.float32)
    D = in_blocks(X)
    here, there, _ = both(X, D, gamma="rms")
    scores = there.decision_function(D)
    assert scores.dtype == there.result_.scores.dtype == np.float32
    np.testing.assert_allclose(scores.compute(), here.decision_function(X), atol=2e-3)
    assert np.mean(there.labels_.compute() != here.labels_) <= 2e-3
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-4)
    assert there.gamma_ == pytest.approx(here.gamma_, rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_sparse_blocks(offset):
    X, _ = clouds()
    X = np.where(np.abs(X) > 0.7, X + offset, 0.0) if offset else np.where(X > 0.5, X, 0.0)
    D = in_blocks(X).map_blocks(sparse.csr_array)
    here = SKMMC(max_basis=8, random_state=0).fit(sparse.csr_array(X))
    there = SKMMC(max_basis=8, random_state=0).fit(D)
    np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), atol=1e-9)
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)


def test_a_data_frame():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, _ = clouds()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    parts = dd.from_pandas(frame, npartitions=3)
    here, there, _ = both(frame, parts)
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)
    np.testing.assert_array_equal(there.predict(parts).compute(), here.labels_)
    assert list(there.feature_names_in_) == list("abcdef")


# ------------------------------------------------------------------ passes


@pytest.mark.parametrize("parameters", [{}, {"C": 6.0, "max_basis": 8}, {"basis": "single"}])
def test_a_step_is_one_pass_and_another_where_the_basis_grows(parameters):
    X, _ = clouds()
    _, model, passes = both(X, in_blocks(X), balance=0.05, **parameters)
    # Besides steps: first rows, checks, width, pilot, sample for starts, first cut, last labels.
    # If both cuts of a relabelling find vectors, the second is requested again.
    assert len(passes) <= model.n_iter_ + 2 * len(model.basis_vectors_) + 8
    assert len(passes) <= 3 * model.n_iter_ + 8
    steps = [p for p in passes if "Sum" in p.figures and "Combination" in p.figures]
    assert len(steps) <= model.n_iter_ + 1
    # Rows are loaded three times: first ones, pilot, starts. Entries of vectors never are.
    assert sum("Picked" in p.figures for p in passes) == 3


def test_a_full_basis_needs_one_pass_a_step():
    X, _ = clouds()
    passes = []
    with report_passes(passes.append):
        model = SKMMC(max_basis=2, C=6.0, balance=0.05, random_state=0).fit(in_blocks(X))
    kinds = collections.Counter(tuple(sorted(set(p.figures))) for p in passes)
    assert model.n_iter_ > 10
    assert kinds["Combination",] <= 1
    assert len(passes) <= model.n_iter_ + 9


def test_a_saved_model_has_no_rows():
    X, _ = clouds()
    model = SKMMC(random_state=0).fit(in_blocks(X))
    saved = pickle.dumps(model)
    assert len(saved) < 20_000
    np.testing.assert_array_equal(pickle.loads(saved).predict(X), model.labels_.compute())


# ------------------------------------------------------------------ the parts


@pytest.mark.parametrize("weighted", [False, True])
def test_images_are_the_centred_kernel_values(weighted):
    X, _ = clouds(900, d=3)
    table = as_table(in_blocks(X, 250))
    rng = np.random.default_rng(0)
    shares = rng.random(900)
    shares /= shares.sum()
    p = shares if weighted else np.full(900, 1 / 900)
    given = table.beside(da.from_array(shares, chunks=250)) if weighted else None
    images = BlockImages(table, 0.3, None, given)
    B = rng.normal(size=(2 * GROUP + 3, 3))
    few = np.full(5, 0.2)
    expected = rbf_kernel(X, B, gamma=0.3)
    expected -= p @ expected
    v = rng.normal(size=(2, 900))
    vectors = [table.beside(da.from_array(one, chunks=250)) for one in v]
    done = [0, 0]
    # The basis grows by a few vectors at a time, within groups and across them.
    for m in (2, 5, GROUP, GROUP + 1, 2 * GROUP + 3):
        for b in B[len(images.means) : m]:
            images.append(b, rng.random(5), few)  # a guess that is far off
        starts = [done[0], 1]
        passes = []
        with report_passes(passes.append):
            found = images.products(vectors, starts)
        assert len(passes) == 1
        for one, start, products in zip(v, starts, found, strict=True):
            np.testing.assert_allclose(products, one @ expected[:, start:m], atol=1e-10)
        coefficients = rng.normal(size=m)
        np.testing.assert_allclose(
            images.combined(coefficients).to_dask().compute(),
            expected[:, :m] @ coefficients,
            atol=1e-12,
        )
        done[0] = m
    np.testing.assert_allclose(images.means, p @ rbf_kernel(X, B, gamma=0.3), rtol=1e-12)


def test_vectors_are_computed_at_the_rows_that_are_here():
    X, y = clouds(900, d=3)
    table = as_table(in_blocks(X, 250))
    index = np.array([0, 3, 249, 250, 899])
    held = HeldRows(table, index)
    labels = table.beside(da.from_array(np.where(y, 1.0, -1.0), chunks=250))
    images = BlockImages(table, 0.3, None, None)
    images.append(X[0], np.ones(1), np.ones(1))
    f = images.combined(np.array([2.0]))
    v = labels * (f > 0) + 0.5 * f
    expected = v.to_dask().compute()[index]
    held.entries(v)
    passes = []
    with report_passes(passes.append):
        np.testing.assert_allclose(held.entries(v), expected, atol=1e-15)
    assert passes == []


def test_prefetched_requests_do_not_change_the_basis():
    X, y = clouds()
    source = BasisSpace(as_table(in_blocks(X)), gamma=0.05, random_state=0)
    labels = source._images.table.beside(da.from_array(np.where(y, 1.0, -1.0), chunks=1300))
    source.prefetch(lambda: source.vector(labels / N))
    assert source.version == source.n_passes == 0
    a = source.vector(labels / N)
    assert source.version == 2
    assert source.inner(a, [a])[0] > 0


def test_one_pass_projects_all_cuts_onto_new_vectors():
    X, y = clouds()
    source = BasisSpace(as_table(in_blocks(X)), gamma=0.3, random_state=0)
    exact = BasisSpace(X, gamma=0.3, random_state=0)
    signs = np.where(y, 1.0, -1.0)
    cuts, grams, numbers = [], [], []
    for part in (signs, signs * (X[:, 0] > 0.5), signs * (X[:, 1] > 0.5)):
        v = source._images.table.beside(da.from_array(part / N, chunks=1300))
        source._pilot.restricted(v)  # brings its entries at the pilot rows
        before, passes = source.version, []
        with report_passes(passes.append):
            cuts.append((source.vector(v), exact.vector(part / N)))
            # In the order of a working set: earlier cuts first.
            for old, _ in cuts:
                source.inner(old, [one for one, _ in cuts[:-1]] or [old])
            source.inner(cuts[-1][0], [one for one, _ in cuts])
        assert source.version == exact.version > before
        numbers.append(len(passes))
    assert numbers == [1, 1, 1]
    for one, which in ((source, 0), (exact, 1)):
        vectors = [pair[which] for pair in cuts]
        grams.append([one.inner(a, vectors) for a in vectors])
    np.testing.assert_allclose(grams[0], grams[1], rtol=1e-9, atol=1e-14)


def test_pilot_rows_do_not_depend_on_blocks():
    X, _ = clouds()
    shares = np.random.default_rng(0).random(N) ** 4
    shares /= shares.sum()
    here = [basis.drawn(N, one, np.random.RandomState(0)) for one in (None, shares)]
    for chunks in (700, (2600, 400)):
        table = as_table(in_blocks(X, chunks))
        given = table.beside(da.from_array(shares, chunks=(chunks,)))
        there = basis.drawn(N, given, np.random.RandomState(0))
        np.testing.assert_array_equal(there[0], here[1][0])
        np.testing.assert_allclose(there[1], here[1][1], rtol=1e-14)
    assert here[0][0].size == basis.PILOT_ROWS
    for (index, inverse), p in zip(here, (np.full(N, 1 / N), shares), strict=True):
        assert np.all(np.diff(index) > 0)
        np.testing.assert_allclose(p[index] @ inverse, 1.0, rtol=1e-12)


def test_sums_over_pilot_rows_have_the_expectation_of_those_over_all(monkeypatch):
    monkeypatch.setattr(basis, "PILOT_ROWS", 20)
    rng = np.random.default_rng(0)
    values = rng.normal(size=60)
    shares = rng.random(60) ** 3
    shares /= shares.sum()
    for p in (None, shares):
        weights = np.full(60, 1 / 60) if p is None else p
        sums = []
        for seed in range(1500):
            index, inverse = basis.drawn(60, p, np.random.RandomState(seed))
            sums.append(inverse @ (weights * values)[index])
        error = np.std(sums) / np.sqrt(len(sums))
        assert abs(np.mean(sums) - weights @ values) < 4 * error


def test_the_engine_on_blocks_is_certified():
    X, y = clouds()
    source = BasisSpace(as_table(in_blocks(X)), gamma=0.05, random_state=0)
    start = source._images.table.beside(da.from_array(y, chunks=1300))
    found = maximise_margin(MarginProblem(source, HingeLoss(), tau=0.05), start, C=2.0)
    assert found.status.ok
    assert found.gap <= 0.01 * abs(found.objective)
    # J of the scores, by hand.
    f = found.scores.to_dask().compute()
    J = 0.5 * found.square - found.rho + 2.0 * np.maximum(found.rho - np.abs(f), 0).mean()
    assert found.objective == pytest.approx(J, rel=1e-10)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"mode": "paper"}, "pass over all rows"),
        ({"mode": "paper", "init": np.arange(200) % 2}, "pass over all rows"),
    ],
)
def test_what_needs_all_rows_at_once_is_refused(parameters, match):
    X, _ = clouds(200)
    with pytest.raises(TypeError, match=match):
        SKMMC(random_state=0, **parameters).fit(in_blocks(X, 90))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [1.0, 0.1, -1234.567])
def test_equal_rows_are_refused(value, dtype):
    D = da.full((N + 1, 3), value, chunks=(1300, 3), dtype=dtype)
    with pytest.raises(ValueError, match="rows of X differ"):
        SKMMC(random_state=0).fit(D)


def test_too_wide_a_kernel_warns():
    X, _ = clouds()
    with pytest.warns(UserWarning, match="all rows .*kernel"):
        SKMMC(gamma=5e-9, random_state=0).fit(in_blocks(X))
