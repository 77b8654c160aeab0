"""Rows projected onto a few basis vectors: projections, searches, and the engine on them."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel

from volmar.margin.engine.descent import CutPool, maximise_margin
from volmar.margin.engine.problem import HingeLoss, MarginProblem
from volmar.margin.feature_space import basis
from volmar.margin.feature_space.basis import BasisSpace
from volmar.margin.feature_space.kernel import KernelSpace

KINDS = ["split", "single"]


def two_clouds(n=120, d=4, seed=0):
    """Two Gaussian clouds in float64 and their labels ±1."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, 1.0, -1.0)
    return rng.normal(size=(n, d)) + 1.2 * y[:, None] * np.eye(d)[0], y


def digits(first=3, second=8):
    X, y = load_digits(return_X_y=True)
    chosen = np.isin(y, [first, second])
    return X[chosen].astype(np.float64), np.where(y[chosen] == first, 1.0, -1.0)


def gamma_of(X, ratio):
    """Coefficient for sigma = ratio * root of the mean squared distance between rows."""
    return 1.0 / (2 * ratio**2 * 2 * X.var(axis=0).sum())


def cut_of(y, share, seed=0):
    """Coefficients of a cut by a random set of rows."""
    chosen = np.random.default_rng(seed).random(y.size) < share
    return y * chosen / y.size


def gram(source, vectors):
    return np.array([source.inner(a, vectors) for a in vectors])


def fit(source, y, C=2.0, shares=None, **options):
    problem = MarginProblem(source, HingeLoss(shares), tau=0.05)
    return maximise_margin(problem, y, C=C, path=(1.2,), **options)


def share_caught(source, X, y, gamma):
    """Length of the projection of the cut of all rows over its length."""
    exact = KernelSpace(rbf_kernel(X, gamma=gamma))
    whole = exact.vector(y / y.size)
    caught = source.vector(y / y.size)
    return float(np.sqrt(source.inner(caught, [caught])[0] / exact.inner(whole, [whole])[0]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_projections_are_those_of_the_explicit_expansion(kind, weighted):
    X, y = two_clouds()
    shares = np.random.default_rng(1).random(y.size) if weighted else np.ones(y.size)
    shares /= shares.sum()
    gamma = 0.2
    source = BasisSpace(
        X, gamma=gamma, weights=shares if weighted else None, basis=kind, random_state=0
    )
    cuts = [y * shares * (np.random.default_rng(k).random(y.size) < 0.6) for k in range(4)]
    projections = [source.vector(v) for v in cuts]
    B = source.vectors
    centred = rbf_kernel(X, B, gamma=gamma)
    centred -= shares @ centred
    g = np.array(cuts) @ centred
    expected = g @ np.linalg.solve(rbf_kernel(B, gamma=gamma), g.T)
    np.testing.assert_allclose(gram(source, projections), expected, rtol=1e-8, atol=1e-14)

    weights = np.array([0.3, 0.0, 1.0, 2.0])
    w = source.combination(projections, weights)
    beta = np.linalg.solve(rbf_kernel(B, gamma=gamma), weights @ g)
    scores = source.scores(w)
    np.testing.assert_allclose(scores, centred @ beta, rtol=1e-7, atol=1e-12)
    assert abs(shares @ scores) < 1e-14
    # The cuts hold exactly for w in the span: <w, a> by the scores is that by the projections.
    np.testing.assert_allclose(source.inner(w, projections), np.array(cuts) @ scores, rtol=1e-9)
    np.testing.assert_allclose(source.inner(w, [w])[0], beta @ rbf_kernel(B, gamma=gamma) @ beta)


def test_earlier_cuts_are_projected_onto_later_vectors():
    X, y = two_clouds()
    source = BasisSpace(X, gamma=0.5, random_state=0)
    first = source.vector(cut_of(y, 1.0))
    before, version = source.inner(first, [first])[0], source.version
    w = source.combination([first], np.ones(1))
    f = source.scores(w)
    source.vector(cut_of(y, 0.3))
    assert source.version > version
    assert source.inner(first, [first])[0] > before * (1 + 1e-6)
    # A vector in the span does not change.
    np.testing.assert_allclose(source.inner(w, [w])[0], before, rtol=1e-12)
    np.testing.assert_allclose(source.scores(w), f, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(source.inner(w, [first])[0], before, rtol=1e-9)


@pytest.mark.parametrize(
    ("ratio", "minimum"), [(0.25, 0.55), (0.5, 0.92), (1.0, 0.985), (2.0, 0.997)]
)
def test_two_vectors_approximate_cuts_better_than_one(ratio, minimum):
    X, y = digits()
    gamma = gamma_of(X, ratio)
    split = share_caught(BasisSpace(X, gamma=gamma, random_state=0), X, y, gamma)
    single = BasisSpace(X, gamma=gamma, basis="single", random_state=0)
    assert minimum < split <= 1.0
    assert share_caught(single, X, y, gamma) < split - 0.02
    more = BasisSpace(X, gamma=gamma, n_basis=3, random_state=0, min_gain=0.0)
    assert share_caught(more, X, y, gamma) > split
    assert more.version == 6


def test_a_vector_of_one_cut_is_a_fixed_point_of_mean_shift():
    X, y = digits()
    gamma = gamma_of(X, 0.5)
    source = BasisSpace(X, gamma=gamma, random_state=0)
    source.vector(y / y.size)
    for b, side in zip(source.vectors, (y > 0, y < 0), strict=True):
        k = rbf_kernel(X[side], b[None], gamma=gamma)[:, 0]
        assert 2 * gamma * np.sum((k @ X[side] / k.sum() - b) ** 2) < basis.STEP_TOL


@pytest.mark.parametrize("signs", ["positive", "mixed"])
def test_searches_never_lower_the_field(signs, monkeypatch):
    X, y = two_clouds(n=80)
    source = BasisSpace(X, gamma=0.5, random_state=0)
    pilot = source._pilot
    r = np.abs(y) if signs == "positive" else y + 0.1
    field = pilot.field(r / y.size)
    monkeypatch.setattr(basis, "STEP_TOL", 0.0)
    for start in X[:20]:
        values = []
        for steps in range(6):
            monkeypatch.setattr(basis, "MAX_STEPS", steps)
            end = pilot.climb(field, start)
            values.append(abs((r / y.size) @ rbf_kernel(X, end[None], gamma=0.5)[:, 0]))
        assert np.all(np.diff(values) >= -1e-14)
        assert values[-1] > values[0]


def test_the_divergence_of_algorithm_4_is_caught_and_counted():
    X, y = digits()
    gamma = gamma_of(X, 1.0)
    centre = X.mean(axis=0)
    reach = np.linalg.norm(X - centre, axis=1).max() + 3 / np.sqrt(2 * gamma)
    diverged = []
    for seed in range(12):
        source = BasisSpace(X, gamma=gamma, basis="single", random_state=seed)
        a = source.vector(y / y.size)
        diverged.append(source.n_diverged)
        assert np.isfinite(source.vectors).all()
        assert np.linalg.norm(source.vectors - centre, axis=1).max() <= reach
        assert source.inner(a, [a])[0] > 0
    assert sum(count > 0 for count in diverged) >= 4
    assert max(diverged) <= 1 + basis.MAX_RESTARTS
    split = BasisSpace(X, gamma=gamma, random_state=0)
    split.vector(y / y.size)
    assert split.n_diverged == 0


def test_the_best_point_seen_is_the_last_resort(monkeypatch):
    # Between two equal points with opposite signs the field of eq. 47 vanishes.
    X, y = np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0])
    monkeypatch.setattr(basis, "N_AVERAGED", 2)
    source = BasisSpace(X, gamma=0.01, basis="single", random_state=0)
    source.vector(y / 2)
    assert source.n_diverged == 1 + basis.MAX_RESTARTS
    assert np.isfinite(source.vectors).all()


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_rows_are_those_of_the_dense_ones(kind):
    X, y = two_clouds(seed=3)
    X = np.where(np.abs(X) > 0.6, X, 0.0)
    sources = [
        BasisSpace(rows, gamma=0.3, basis=kind, random_state=0)
        for rows in (X, sparse.csr_array(X))
    ]
    results = [fit(source, y) for source in sources]
    assert sources[0].version == sources[1].version
    np.testing.assert_array_equal(results[0].labels, results[1].labels)
    np.testing.assert_allclose(results[0].scores, results[1].scores, rtol=1e-4, atol=1e-7)
    f = [s.expansion(r.normal) for s, r in zip(sources, results, strict=True)]
    np.testing.assert_allclose(f[1](sparse.csr_array(X)), f[0](X), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_float32_is_near_float64(offset):
    X, y = two_clouds(n=200)
    # Rows that are exact in float32, so that only the arithmetic is tested.
    X = (X + offset).astype(np.float32).astype(np.float64)
    results = {}
    for dtype in (np.float32, np.float64):
        source = BasisSpace(X.astype(dtype), gamma=0.1, random_state=0)
        found = fit(source, y)
        assert found.scores.dtype == source.scores(found.normal).dtype == dtype
        results[dtype] = found
        spread = found.scores.std()
        assert abs(found.scores.mean() - found.t) < 1e3 * np.finfo(dtype).eps * spread
        f = source.expansion(found.normal)(X.astype(dtype)) + dtype(found.t)
        assert f.dtype == dtype
        assert np.abs(f - found.scores).max() < 1e5 * np.finfo(dtype).eps * spread
    single, double = results.values()
    np.testing.assert_allclose(single.objective, double.objective, rtol=5e-3)
    assert np.mean(single.labels != double.labels) < 0.01


def test_rows_far_from_the_origin_lose_nothing():
    X, y = two_clouds()
    near = BasisSpace(X, gamma=0.3, random_state=0)
    away = BasisSpace(X + 1e5, gamma=0.3, random_state=0)
    assert near.offset is None
    assert away.offset is not None
    a, b = (fit(source, y) for source in (near, away))
    np.testing.assert_allclose(b.objective, a.objective, rtol=1e-6)
    f = away.expansion(b.normal)
    np.testing.assert_allclose(f(X + 1e5) + b.t, b.scores, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(f.vectors.mean(), 1e5, rtol=1e-4)


def test_a_weight_of_two_is_a_row_given_twice():
    X, y = two_clouds()
    copies = np.random.default_rng(2).integers(0, 3, size=y.size)
    copies[:2] = 1
    twice, labels = np.repeat(X, copies, axis=0), np.repeat(y, copies)
    shares = copies / copies.sum()
    one = BasisSpace(X, gamma=0.3, weights=shares, max_basis=40, random_state=0)
    two = BasisSpace(twice, gamma=0.3, max_basis=40, random_state=0)
    # The same starts: they are drawn by row number.
    one._pilot.starts, two._pilot.starts = (X[copies > 0][:5] for _ in range(2))
    for source in (one, two):
        pilot = source._pilot
        pilot.start_images = np.array([pilot.rows.kernel(b) for b in pilot.starts])
    a, b = fit(one, y, shares=shares), fit(two, labels)
    np.testing.assert_allclose(a.objective, b.objective, rtol=1e-8)
    np.testing.assert_allclose(np.repeat(a.scores, copies), b.scores, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_duplicated_and_nearly_duplicated_rows(kind):
    X, y = two_clouds(n=40)
    X = np.vstack([X, X, X + 1e-9])
    y = np.tile(y, 3)
    source = BasisSpace(X, gamma=0.05, basis=kind, min_gain=0.0, random_state=0)
    source.add(X)
    assert source.version < 60
    cuts = [source.vector(cut_of(y, share, seed)) for seed, share in enumerate([1, 0.5, 0.2])]
    assert np.linalg.eigvalsh(gram(source, cuts)).min() > -1e-12
    found = fit(source, y)
    assert found.status.ok
    assert np.isfinite(found.scores).all()


def test_constant_rows_and_one_sided_labels_have_no_margin():
    y = np.array([1.0, -1.0, 1.0, -1.0])
    source = BasisSpace(np.ones((4, 2)), gamma=1.0, random_state=0)
    a = source.vector(y / 4)
    np.testing.assert_allclose(source.scores(a), 0.0, atol=1e-15)
    X, _ = two_clouds(n=30)
    source = BasisSpace(X, gamma=1.0, random_state=0)
    a = source.vector(np.full(30, 1 / 30))
    assert source.inner(a, [a])[0] < 1e-15
    nothing = BasisSpace(X, gamma=1.0, random_state=0)
    empty = nothing.vector(np.zeros(30))
    np.testing.assert_array_equal(nothing.scores(empty), 0.0)
    np.testing.assert_array_equal(nothing.expansion(empty)(X), 0.0)


def test_the_expansion_gives_the_scores_of_the_training_rows():
    X, y = two_clouds(n=300)
    source = BasisSpace(X, gamma=0.2, random_state=0)
    found = fit(source, y)
    f = source.expansion(found.normal)
    assert f.vectors.shape == (source.version, X.shape[1])
    np.testing.assert_allclose(f(X) + found.t, found.scores, rtol=1e-8, atol=1e-12)
    by_hand = rbf_kernel(X, f.vectors, gamma=0.2) @ f.coefficients + f.intercept
    np.testing.assert_allclose(by_hand, f(X), rtol=1e-6, atol=1e-10)


def test_a_full_basis_asks_for_no_further_pass():
    X, y = two_clouds()
    source = BasisSpace(X, gamma=0.5, max_basis=3, random_state=0)
    cuts = [source.vector(cut_of(y, 0.5, seed)) for seed in range(5)]
    assert source.version == source.n_passes == len(source.vectors) == 3
    assert gram(source, cuts).shape == (5, 5)
    assert np.linalg.matrix_rank(gram(source, cuts)) <= 3
    # No array of the size of the data is stored any more.
    assert all(cut.coefficients is None for cut in cuts)


def test_searches_on_a_sample_catch_as_much(monkeypatch):
    X, y = two_clouds(n=3000)
    gamma = gamma_of(X, 0.7)
    monkeypatch.setattr(basis, "PILOT_ROWS", 400)
    some = BasisSpace(X, gamma=gamma, random_state=0)
    monkeypatch.setattr(basis, "PILOT_ROWS", 3000)
    every = BasisSpace(X, gamma=gamma, random_state=0)
    assert some._pilot.index.size == 400
    lengths = []
    for source in (some, every):
        a = source.vector(y / y.size)
        lengths.append(source.inner(a, [a])[0])
        # Images are of all rows.
        assert abs(source.scores(a).mean()) < 1e-12
    np.testing.assert_allclose(lengths[0], lengths[1], rtol=0.02)
    shares = np.where(np.arange(3000) < 30, 0.02, 0.4 / 2970)
    monkeypatch.setattr(basis, "PILOT_ROWS", 400)
    heavy = BasisSpace(X, gamma=gamma, weights=shares, random_state=0)
    assert np.isin(np.arange(30), heavy._pilot.index).mean() > 0.9
    np.testing.assert_allclose(heavy._pilot.restricted(shares).sum(), 1.0, atol=0.1)


def test_the_gram_matrix_of_the_working_set_follows_the_basis():
    X, y = two_clouds()
    problem = MarginProblem(BasisSpace(X, gamma=0.5, random_state=0), HingeLoss())
    cuts = CutPool(problem)
    rng = np.random.default_rng(0)
    for share in (1.0, 0.5, 0.2):
        chosen = rng.random(y.size) < share
        violated = HingeLoss().violated(y, np.where(chosen, 0.0, y), 0.5)
        cuts.add(problem.cut(y, violated))
        vectors = [cut.a for cut in cuts.cuts]
        np.testing.assert_allclose(cuts.gram, gram(problem.space, vectors), rtol=1e-12)


@pytest.mark.parametrize("C", [1.5, 5.0])
def test_with_all_rows_as_basis_the_engine_finds_what_the_kernel_matrix_gives(C):
    X, y = digits()
    X, y = X[:120], y[:120]
    gamma = gamma_of(X, 0.4)
    start = np.where(X @ np.random.default_rng(0).normal(size=64) > 0, 1.0, -1.0)
    source = BasisSpace(X, gamma=gamma, max_basis=120, random_state=0)
    source.add(X)
    assert source.version == 120
    ours = fit(source, start, C=C, tol=1e-4)
    exact = fit(KernelSpace(rbf_kernel(X, gamma=gamma)), start, C=C, tol=1e-4)
    np.testing.assert_allclose(ours.objective, exact.objective, rtol=1e-5)
    np.testing.assert_array_equal(ours.labels, exact.labels)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_holds_for_every_hyperplane_in_the_span(kind):
    X, y = digits()
    gamma, C, tau = gamma_of(X, 1.0), 2.0, 0.05
    source = BasisSpace(X, gamma=gamma, basis=kind, random_state=0)
    start = np.where(X @ np.random.default_rng(0).normal(size=64) > 0, 1.0, -1.0)
    found = maximise_margin(MarginProblem(source, HingeLoss(), tau=tau), start, C=C)
    assert found.status.ok
    assert np.all(np.diff(found.history) <= 0)

    B = source.vectors
    images = rbf_kernel(X, B, gamma=gamma)
    images -= images.mean(axis=0)
    features = np.linalg.solve(np.linalg.cholesky(rbf_kernel(B, gamma=gamma)), images.T).T
    u, rho, t = cvxpy.Variable(len(B)), cvxpy.Variable(nonneg=True), cvxpy.Variable()
    lack = rho - cvxpy.multiply(2.0 * found.labels - 1.0, features @ u + t)
    J = cvxpy.sum_squares(u) / 2 - rho + C * cvxpy.sum(cvxpy.pos(lack)) / y.size
    best = cvxpy.Problem(cvxpy.Minimize(J), [cvxpy.abs(t) <= tau * rho]).solve(
        solver=cvxpy.CLARABEL
    )
    assert found.lower_bound <= best + 1e-6 * abs(best)
    assert best <= found.objective + 1e-6 * abs(best)
    assert found.gap <= 0.011 * abs(best)


def test_one_cut_of_all_rows_is_the_paper_at_large_scale():
    # At C = 1 only c = 1 has weight: SKMMC with eta = 1.
    X, y = digits()
    source = BasisSpace(X, gamma=gamma_of(X, 1.0), random_state=0)
    problem = MarginProblem(source, HingeLoss(), tau=0.0)
    found = maximise_margin(problem, y, C=1.0)
    assert found.status.ok
    assert source.version >= 2
    f = source.scores(source.vector((2.0 * found.labels - 1) / y.size))
    assert abs(np.corrcoef(f, found.scores)[0, 1]) > 0.99
    assert np.mean(found.labels != (y > 0)) < 0.08


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.0}, "gamma must be greater than 0"),
        ({"basis": "both"}, "^basis"),
        ({"n_basis": 0}, "n_basis must be at least 1"),
        ({"max_basis": 0}, "max_basis must be at least 1"),
        ({"min_gain": -1.0}, "min_gain must be at least 0"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        BasisSpace(np.eye(3), **{"gamma": 1.0, **options})
