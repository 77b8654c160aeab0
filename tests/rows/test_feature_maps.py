"""Feature maps: inner products of features are kernel values."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import kernel_metrics, pairwise_kernels, rbf_kernel

from volmar import _memory
from volmar.rows.kernel import Kernel, KernelPCAMap, NystroemMap
from volmar.rows.tiled import MappedRows

KERNELS = [
    ("rbf", {"gamma": 0.3}),
    ("rbf", {"gamma": 30.0}),
    ("linear", {}),
    ("poly", {"gamma": 0.5, "degree": 2, "coef0": 1}),
    ("laplacian", {"gamma": 0.3}),
    ("cosine", {}),
    ("chi2", {"gamma": 0.5}),
]


def points(n=80, d=4, seed=0):
    return np.random.default_rng(seed).random((n, d)) + 0.1


def centred(K):
    return K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()


def vectorised(X, Y, *, width):
    """A callable kernel of two matrices."""
    return rbf_kernel(X, Y, gamma=width)


@pytest.mark.parametrize(("kernel", "parameters"), KERNELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_maps_reproduce_the_kernel(kernel, parameters, seed):
    X = points(seed=seed)
    X[-5:] = X[:5]  # repeated points make every kernel matrix singular
    K = pairwise_kernels(X, metric=kernel, filter_params=True, **parameters)
    Z = KernelPCAMap(kernel=kernel, **parameters).fit(X).transform(X)
    assert Z.shape[1] <= len(X) - 6
    np.testing.assert_allclose(Z @ Z.T, centred(K), rtol=0, atol=1e-8 * abs(K).max())


@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(1, 4), st.floats(-4, 4))
@settings(max_examples=60, deadline=None)
def test_exact_maps_at_any_width(seed, n, d, log_gamma):
    X = np.random.default_rng(seed).normal(size=(n, d))
    K = rbf_kernel(X, gamma=10.0**log_gamma)
    Z = KernelPCAMap(gamma=10.0**log_gamma).fit(X).transform(X)
    np.testing.assert_allclose(Z @ Z.T, centred(K), atol=1e-8)


def test_exact_maps_of_new_points_in_the_span():
    """A polynomial kernel has few dimensions, all found in fit, so new points are exact, too."""
    X, Y = points(60, 2), points(20, 2, seed=3)
    parameters = {"kernel": "poly", "degree": 2, "gamma": 1.0}
    K = (Y @ X.T + 1) ** 2
    pca = KernelPCAMap(**parameters).fit(X)
    assert pca.n_components == 5
    train = (X @ X.T + 1) ** 2
    expected = K - train.mean(axis=0) - K.mean(axis=1, keepdims=True) + train.mean()
    np.testing.assert_allclose(pca.transform(Y) @ pca.transform(X).T, expected, atol=1e-8)


def test_leading_components_are_those_of_the_full_map():
    X, Y = points(), points(10, seed=5)
    full = KernelPCAMap(gamma=1.0).fit(X)
    some = KernelPCAMap(4, gamma=1.0).fit(X)
    assert some.n_components == 4
    np.testing.assert_allclose(some.eigenvalues_, full.eigenvalues_[:4], rtol=1e-10)
    np.testing.assert_allclose(some.transform(Y), full.transform(Y)[:, :4], atol=1e-9)
    Z = some.transform(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.T @ Z, np.diag(some.eigenvalues_), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_precomputed_is_the_kernel_itself(dtype):
    X, Y = points(), points(10, seed=5)
    K, K_new = rbf_kernel(X, gamma=1.0).astype(dtype), rbf_kernel(Y, X, gamma=1.0).astype(dtype)
    by_matrix = KernelPCAMap(kernel="precomputed").fit(K)
    by_points = KernelPCAMap(kernel="rbf", gamma=1.0).fit(X)
    ours, theirs = by_matrix.transform(K_new), by_points.transform(Y)
    assert ours.dtype == dtype
    tolerance = 1e-8 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=tolerance)


def test_precomputed_matrix_is_left_alone():
    K = rbf_kernel(points())
    before = K.copy()
    KernelPCAMap(kernel="precomputed").fit(K).transform(K)
    np.testing.assert_array_equal(K, before)


@pytest.mark.parametrize(("kernel", "parameters"), KERNELS)
def test_nystroem_with_every_point_a_landmark_is_exact(kernel, parameters):
    X, Y = points(), points(15, seed=2)
    K = pairwise_kernels(X, metric=kernel, filter_params=True, **parameters)
    feature_map = NystroemMap(kernel, landmarks=np.arange(len(X)), **parameters).fit(X)
    Z = feature_map.transform(X)
    np.testing.assert_allclose(Z @ Z.T, K, atol=1e-8 * abs(K).max())
    L = pairwise_kernels(Y, X, metric=kernel, filter_params=True, **parameters)
    Z_new = feature_map.transform(Y)
    np.testing.assert_allclose(Z_new @ Z.T, L, atol=1e-4 * abs(K).max())


@pytest.mark.parametrize("choice", ["kmeans", "random"])
def test_nystroem_formula_and_its_error(choice):
    """z(x)'z(y) = k(x, L) K(L, L)⁺ k(L, y), never above the kernel, closer with more landmarks."""
    X = points(300)
    K = rbf_kernel(X, gamma=2.0)
    errors = []
    for m in (5, 20, 80):
        feature_map = NystroemMap(landmarks=m, choice=choice, gamma=2.0, random_state=0).fit(X)
        Z = feature_map.transform(X)
        cross = rbf_kernel(X, feature_map.landmarks_, gamma=2.0)
        inner = rbf_kernel(feature_map.landmarks_, gamma=2.0)
        expected = cross @ np.linalg.pinv(inner, rcond=1e-12, hermitian=True) @ cross.T
        np.testing.assert_allclose(Z @ Z.T, expected, atol=1e-8)
        residual = K - Z @ Z.T
        assert np.linalg.eigvalsh(residual)[0] > -1e-8
        errors.append(np.trace(residual))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


def test_kmeans_landmarks_beat_random_ones():
    X = points(400, 3)
    error = {}
    for choice in ("kmeans", "random"):
        traces = []
        for seed in range(5):
            feature_map = NystroemMap(landmarks=20, choice=choice, gamma=3.0, random_state=seed)
            traces.append(len(X) - (feature_map.fit(X).transform(X) ** 2).sum())
        error[choice] = np.mean(traces)
    assert error["kmeans"] < error["random"]


@pytest.mark.parametrize("choice", ["kmeans", "random"])
def test_landmarks_are_seeded(choice):
    X = points(3000, 2)
    first, again, other = (
        NystroemMap(landmarks=7, choice=choice, random_state=seed).fit(X).landmarks_
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert abs(first - other).max() > 0
    assert first.shape == (7, 2)


def test_landmarks_given_as_points_or_indices():
    X = points()
    index = np.array([3, 1, 40])
    by_index = NystroemMap(landmarks=index).fit(X).transform(X)
    by_points = NystroemMap(landmarks=X[index]).fit(X).transform(X)
    np.testing.assert_array_equal(by_index, by_points)


def test_repeated_landmarks_lower_the_rank_and_nothing_blows_up():
    X = points()
    once = NystroemMap(landmarks=np.arange(10), gamma=1.0).fit(X)
    twice = NystroemMap(landmarks=np.tile(np.arange(10), 2), gamma=1.0).fit(X)
    assert once.n_components == twice.n_components == 10
    A, B = once.transform(X), twice.transform(X)
    np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-8)


def test_fewer_distinct_points_than_landmarks():
    X = np.repeat(points(4, 2), 10, axis=0)
    feature_map = NystroemMap(landmarks=12, gamma=1.0, random_state=0).fit(X)
    assert feature_map.n_components == 4
    Z = feature_map.transform(X)
    np.testing.assert_allclose(Z @ Z.T, rbf_kernel(X, gamma=1.0), atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_kernels_keep_features_bounded(dtype):
    """Nearly all eigenvalues are noise at gamma=1e-4; |z(x)|² must still be at most k(x, x)."""
    X, Y = points(500).astype(dtype), points(100, seed=9).astype(dtype)
    feature_map = NystroemMap(landmarks=100, gamma=1e-4, random_state=0).fit(X)
    assert feature_map.n_components < 30
    Z = feature_map.transform(Y)
    assert (Z**2).sum(axis=1).max() < 1 + 1e-3
    np.testing.assert_allclose(Z @ Z.T, rbf_kernel(Y, gamma=1e-4), atol=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NystroemMap(landmarks=30, gamma=1.0, random_state=0),
        lambda: KernelPCAMap(gamma=1.0),
    ],
)
def test_float32_stays_float32_and_near_float64(make):
    X, Y = points(200), points(50, seed=4)
    single = make().fit(X.astype(np.float32))
    Z32, Z64 = single.transform(Y.astype(np.float32)), make().fit(X).transform(Y)
    assert Z32.dtype == np.float32
    assert Z64.dtype == np.float64
    assert make().fit(X).transform(Y.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(Z32 @ Z32.T, Z64 @ Z64.T, atol=5e-3)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "cosine", "laplacian"])
def test_sparse_points_are_mapped_as_dense_ones(container, kernel):
    X = points() * (np.random.default_rng(1).random((80, 4)) < 0.6) + 1e-3 * np.eye(80, 4)
    X[:, 0] += 0.1
    gamma = {} if kernel in ("linear", "cosine") else {"gamma": 0.7}
    index = np.arange(0, 80, 3)
    for make in (
        lambda: NystroemMap(kernel, landmarks=index, **gamma),
        lambda: NystroemMap(kernel, landmarks=10, random_state=0, **gamma),
        lambda: KernelPCAMap(kernel=kernel, **gamma),
    ):
        dense, fitted = make().fit(X), make().fit(container(X))
        Z, Z_sparse = dense.transform(X), fitted.transform(container(X))
        np.testing.assert_allclose(Z @ Z.T, Z_sparse @ Z_sparse.T, atol=1e-7)
    assert sparse.issparse(
        NystroemMap(kernel, landmarks=index, **gamma).fit(container(X)).landmarks_
    )


def test_streamed_features_are_those_of_the_whole():
    X = points(300)
    for feature_map in (NystroemMap(landmarks=20, random_state=0), KernelPCAMap(gamma=1.0)):
        feature_map.fit(X)
        rows, Z = MappedRows(X, feature_map).centered(), feature_map.transform(X)
        w = np.random.default_rng(0).normal(size=feature_map.n_components)
        np.testing.assert_allclose(rows.scores(w), (Z - Z.mean(axis=0)) @ w, atol=1e-9)


def test_callable_kernels_take_matrices():
    X = points()
    by_name = KernelPCAMap(kernel="rbf", gamma=0.7).fit(X).transform(X)
    by_call = KernelPCAMap(kernel=vectorised, kernel_params={"width": 0.7}).fit(X)
    np.testing.assert_allclose(by_call.transform(X), by_name, atol=1e-9)


def test_gamma_none_is_scikit_learns():
    X = points()
    Z = NystroemMap("rbf", landmarks=np.arange(80)).fit(X).transform(X)
    np.testing.assert_allclose(Z @ Z.T, rbf_kernel(X, gamma=1 / 4), atol=1e-8)


@pytest.mark.parametrize("kernel", sorted(set(kernel_metrics()) - {"sigmoid", "additive_chi2"}))
def test_every_positive_kernel_of_scikit_learn_has_features(kernel):
    X = points()
    Z = NystroemMap(kernel, landmarks=np.arange(80)).fit(X).transform(X)
    K = pairwise_kernels(X, metric=kernel)
    np.testing.assert_allclose(Z @ Z.T, K, atol=1e-7 * abs(K).max())


def test_indefinite_kernels_give_their_positive_part_and_a_warning():
    X = points()
    K = -np.abs(X[:, :1] - X[:, :1].T)
    values, vectors = np.linalg.eigh(centred(K) - 0.05)
    positive = (vectors * np.maximum(values, 0)) @ vectors.T

    def kernel(A, B):
        shift = K.mean(axis=0)
        k = -np.abs(A[:, :1] - B[:, :1].T)
        near = -np.abs(A[:, :1] - X[:, :1].T).mean(axis=1, keepdims=True)
        other = -np.abs(B[:, :1] - X[:, :1].T).mean(axis=1)
        return k - near - other + shift.mean() - 0.05

    with pytest.warns(UserWarning, match=r"semidefinite: \d+%"):
        feature_map = NystroemMap(kernel, landmarks=np.arange(80)).fit(X)
    Z = feature_map.transform(X)
    np.testing.assert_allclose(Z @ Z.T, positive, atol=1e-8)
    with pytest.warns(UserWarning, match="not positive semidefinite"):
        KernelPCAMap(kernel="precomputed").fit(np.diag([1.0, 1.0, -1.0, 1.0]))


def test_a_negative_definite_kernel_is_refused():
    with pytest.raises(ValueError, match="no positive eigenvalue"):
        NystroemMap(lambda A, B: -(A @ B.T), landmarks=5, choice="random").fit(points())


def test_constant_points_have_no_components():
    with pytest.raises(ValueError, match=r"look alike.*not constant"):
        KernelPCAMap(gamma=1.0).fit(np.full((10, 2), 0.3))


@pytest.mark.parametrize(
    "feature_map",
    [NystroemMap(landmarks=9, random_state=1), KernelPCAMap(3)],
)
def test_pickle_and_refit(feature_map):
    X = points()
    Z = feature_map.fit(X).transform(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(feature_map)).transform(X), Z)
    wider = points(d=6)
    assert feature_map.fit(wider).transform(wider).shape == (80, feature_map.n_components)
    np.testing.assert_array_equal(feature_map.fit(X).transform(X), Z)


def test_a_fitted_map_does_not_follow_its_data():
    X = points()
    for make in (
        lambda X: NystroemMap(landmarks=X),
        lambda X: NystroemMap(landmarks=np.arange(5)),
        lambda X: KernelPCAMap(4),
    ):
        own = X.copy()
        feature_map = make(own).fit(own)
        before = feature_map.transform(X)
        own[:] = 0.0
        np.testing.assert_array_equal(feature_map.transform(X), before)


@pytest.mark.parametrize("make", [NystroemMap, KernelPCAMap])
def test_bad_kernels_are_named(make):
    with pytest.raises(ValueError, match=r"^kernel='gauss'"):
        make(kernel="gauss")
    with pytest.raises(ValueError, match=r"^gamma"):
        make(kernel=vectorised, gamma=1.0)
    with pytest.raises(ValueError, match=r"^kernel_params"):
        make(kernel="rbf", kernel_params={"gamma": 2.0})
    with pytest.raises(ValueError, match=r"shape \(\).*pairwise_kernels"):
        make(kernel=lambda x, y: 1.0).fit(points(120))
    with pytest.raises(ValueError, match=r"symmetric.*K\.T"):
        make(kernel=lambda x, y: x[:, :1] - y[:, :1].T).fit(points(120))


@pytest.mark.parametrize("make", [NystroemMap, KernelPCAMap])
def test_bad_points_are_named(make):
    feature_map = make()
    with pytest.raises(NotFittedError, match=r"has not been fitted.*fit\(X\)"):
        feature_map.transform(points())
    with pytest.raises(NotFittedError, match="has not been fitted"):
        feature_map.n_components  # noqa: B018 - a property that raises
    feature_map.fit(points(120))
    with pytest.raises(ValueError, match=r"^X .*features"):
        feature_map.transform(points(d=3))


@pytest.mark.parametrize(
    ("landmarks", "error", "message"),
    [
        (100, ValueError, "^landmarks=100"),
        (0, ValueError, "^landmarks=0"),
        (np.array([0, 80]), ValueError, "^landmarks .*got 0 to 80"),
        (np.array([-1, 2]), ValueError, "^landmarks .*got -1 to 2"),
        (np.array([], dtype=int), ValueError, "at least one, got none"),
        (np.ones((3, 2)), ValueError, "^landmarks .*features"),
        (0.5, TypeError, "^landmarks .*row indices"),
        (np.ones(80, dtype=bool), TypeError, "landmarks must be a number of landmarks"),
        ("all", TypeError, "landmarks must be a number of landmarks"),
    ],
)
def test_bad_landmarks_are_named(landmarks, error, message):
    with pytest.raises(error, match=message):
        NystroemMap(landmarks=landmarks).fit(points())


def test_other_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"^choice"):
        NystroemMap(choice="grid")
    with pytest.raises(ValueError, match=r"kernel='precomputed'.*KernelPCAMap"):
        NystroemMap("precomputed")
    with pytest.raises(TypeError, match=r"^n_components .*got 2\.5"):
        KernelPCAMap(2.5)
    with pytest.raises(ValueError, match=r"^n_components=81"):
        KernelPCAMap(81).fit(points())
    with pytest.raises(ValueError, match=r"square .*got shape \(80, 4\)"):
        KernelPCAMap(kernel="precomputed").fit(points())
    with pytest.raises(TypeError, match=r"^a\b"):
        KernelPCAMap(kernel="precomputed").fit(sparse.csr_array(np.eye(3)))
    fitted = KernelPCAMap(kernel="precomputed").fit(rbf_kernel(points()))
    with pytest.raises(ValueError, match=r"^X .*columns"):
        fitted.transform(points())


def test_matrices_that_do_not_fit_are_refused(monkeypatch):
    X = points()
    maps = NystroemMap(landmarks=9).fit(X), KernelPCAMap().fit(X)
    monkeypatch.setattr(_memory, "available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=r"80 points.*NystroemMap"):
        KernelPCAMap().fit(X)
    with pytest.raises(MemoryError, match="9 landmarks"):
        NystroemMap(landmarks=9).fit(X)
    for fitted in maps:
        with pytest.raises(MemoryError, match=r"80 rows .*MappedRows"):
            fitted.transform(X)


def test_arguments_that_a_kernel_does_not_take_are_a_value_error(rng):
    kernel = Kernel("rbf", gamma=-1.0)  # as in a damaged model; estimators check this
    with pytest.raises(ValueError, match="'rbf' cannot be computed: The 'gamma'") as caught:
        kernel(rng.normal(size=(3, 2)), rng.normal(size=(3, 2)))
    assert caught.type is ValueError
