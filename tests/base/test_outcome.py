"""Checks of every estimator: rows, weights, finite values, the status."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import has_fit_parameter

import volmar
from volmar._input import check_matrix
from volmar._weights import rescaled_sample_weight
from volmar.rows.kernel import Kernel
from volmar.solvers import Status

CLUSTERERS = [getattr(volmar, name) for name in volmar.CLUSTERERS]
WITH_KERNEL = [one for one in CLUSTERERS if "kernel" in one().get_params()]
WITH_WEIGHTS = [one for one in CLUSTERERS if has_fit_parameter(one, "sample_weight")]
GRAPHS = [
    volmar.HardLabelMVC,
    volmar.NormalizedCut,
    volmar.NormalizedSpectralClustering,
    volmar.SMIC,
    volmar.SoftLabelMVC,
]
X = np.random.default_rng(0).normal(size=(40, 3)) + np.repeat([[0.0], [5.0]], 20, axis=0)
Y = np.repeat([0, 1], 20)
CATEGORIES = {UserWarning, ConvergenceWarning}


def warned(fit):
    """Return the result of a fit and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit()
    return model, caught


# ------------------------------------------------------------------ rows


def unsorted_csr():
    """Positive rows as CSR with unsorted, 64-bit indices and an entry given twice."""
    S = sparse.csr_array(np.abs(X))
    indices = S.indices.reshape(40, 3)[:, ::-1].copy()
    data = S.data.reshape(40, 3)[:, ::-1].copy()
    indices = np.column_stack([indices, np.zeros(40, int)]).ravel().astype(np.int64)
    data = np.column_stack([data, np.full(40, 0.5)]).ravel()
    return sparse.csr_array((data, indices, np.arange(0, 161, 4, dtype=np.int64)), shape=(40, 3))


@pytest.mark.parametrize("kernel", ["laplacian", "chi2", "rbf", Kernel("linear")])
@pytest.mark.parametrize("clusterer", [one for one in WITH_KERNEL if one._accepts_sparse])
def test_unsorted_sparse_rows_are_taken_and_not_changed(clusterer, kernel):
    given = unsorted_csr()
    before = [part.copy() for part in (given.data, given.indices, given.indptr)]
    plain = sparse.csr_array(given.toarray())
    options = {"kernel": kernel, "random_state": 0}
    if callable(kernel):
        options["gamma"] = None
    if kernel != "chi2":  # does not support sparse rows
        model, _ = warned(lambda: clusterer(**options).fit(given))
        other, _ = warned(lambda: clusterer(**options).fit(plain))
        np.testing.assert_array_equal(model.labels_, other.labels_)
        np.testing.assert_array_equal(model.predict(given), model.predict(plain))
    else:
        with pytest.raises((TypeError, ValueError)):
            clusterer(**options).fit(given)
    for part, kept in zip((given.data, given.indices, given.indptr), before, strict=True):
        np.testing.assert_array_equal(part, kept)
        assert part.dtype == kept.dtype


@pytest.mark.parametrize("kernel", ["chi2", "additive_chi2"])
@pytest.mark.parametrize("clusterer", WITH_KERNEL)
def test_read_only_rows_are_taken(clusterer, kernel):
    given = np.abs(X)
    given.flags.writeable = False
    model, _ = warned(lambda: clusterer(kernel=kernel, random_state=0).fit(given))
    other, _ = warned(lambda: clusterer(kernel=kernel, random_state=0).fit(np.abs(X)))
    np.testing.assert_array_equal(model.labels_, other.labels_)
    np.testing.assert_array_equal(model.predict(given), other.predict(given))


@pytest.mark.parametrize("name", [*volmar.CLUSTERERS, "VolumeRegularizedClassifier"])
def test_hidden_entries_are_not_used(name):
    masked = np.ma.masked_array(X, mask=X > 6.0)
    with pytest.raises(ValueError, match=r"^X .*masked"):
        getattr(volmar, name)().fit(masked, Y)
    nothing_hidden = np.ma.masked_array(X, mask=False)
    assert check_matrix(nothing_hidden).shape == X.shape


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix])
@pytest.mark.parametrize("indices", [[0, 99], [0, -1]])
def test_indices_outside_the_shape_are_refused(kind, indices):
    wrong = kind((2, 2))
    wrong.data, wrong.indices = np.ones(2), np.array(indices, dtype=np.int32)
    wrong.indptr = np.array([0, 1, 2], dtype=np.int32)
    with pytest.raises(ValueError, match=r"^X .*indices"):
        volmar.KernelKMeans().fit(wrong)


@pytest.mark.parametrize(
    "given",
    [
        [["a", "b"], ["c", "d"]],
        [[1.0], [1.0, 2.0]],
        np.array([[10**400, 1], [2, 3]], dtype=object),
        np.array([[None, 1], [2, 3]], dtype=object),
    ],
)
def test_rows_that_are_no_numbers_are_named(given):
    with pytest.raises((TypeError, ValueError), match=r"^(X must|Input X)"):
        volmar.MSPC().fit(given)


def test_a_frame_with_columns_of_one_name_is_refused_in_words():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=r"^X .*several columns"):
        volmar.MSPC().fit(pd.DataFrame(X, columns=["a", "a", "a"]))


# ------------------------------------------------------------------ weights


@pytest.mark.parametrize("size", [1e-300, 2.0**-40, 2.0**60, 1e99, 1e300])
@pytest.mark.parametrize("clusterer", WITH_WEIGHTS)
def test_the_size_of_the_weights_does_not_matter(clusterer, size):
    weights = np.random.default_rng(1).uniform(0.5, 1.5, 40)
    for rows in (X, X.astype(np.float32)):
        plain, _ = warned(lambda r=rows: clusterer(random_state=0).fit(r, sample_weight=weights))
        model, caught = warned(
            lambda r=rows: clusterer(random_state=0).fit(r, sample_weight=size * weights)
        )
        np.testing.assert_array_equal(model.labels_, plain.labels_)
        assert np.isfinite(model.decision_function(rows)).all()
        assert {one.category for one in caught} <= CATEGORIES


@pytest.mark.parametrize("clusterer", WITH_WEIGHTS)
def test_weights_of_any_range_give_finite_scores_or_an_error(clusterer):
    rng = np.random.default_rng(2)
    for reach in (12, 90, 300):
        weights = 10.0 ** rng.uniform(-reach, reach, 40)
        try:
            model, caught = warned(
                lambda w=weights: clusterer(random_state=0).fit(X, sample_weight=w)
            )
        except ValueError as error:
            message = str(error)
            assert message, "names what is wrong"
            continue
        assert {one.category for one in caught} <= CATEGORIES
        assert np.isfinite(model.decision_function(X)).all()
        assert np.isfinite(model.objective_)


def test_ordinary_weights_keep_their_bits_and_others_their_ratios():
    ordinary = np.array([0.0, 1e-9, 3.0, 4e9])
    assert rescaled_sample_weight(ordinary, 4) is ordinary
    large = rescaled_sample_weight(np.array([0.0, 1.0, 2.0, 3.0]) * 2.0**900, 4)
    np.testing.assert_array_equal(large / large[1], [0.0, 1.0, 2.0, 3.0])
    assert 1.0 <= large.max() < 2.0
    mixed = rescaled_sample_weight([1e-90, 1.0, 1e90], 3)
    np.testing.assert_array_equal(mixed[:2], [0.0, 0.0])


def test_weights_in_blocks_are_rescaled_as_those_in_memory():
    da = pytest.importorskip("dask.array")
    weights = np.random.default_rng(1).uniform(0.5, 1.5, 40)
    for size in (1e-200, 1e200):
        model = volmar.CPMMC(random_state=0).fit(
            da.from_array(X, chunks=(10, 3)), sample_weight=size * weights
        )
        here = volmar.CPMMC(random_state=0).fit(X, sample_weight=size * weights)
        np.testing.assert_array_equal(np.asarray(model.labels_), here.labels_)


@pytest.mark.parametrize("weights", [["a"] * 40, [10**400] * 40, 10**400])
def test_weights_that_are_no_numbers_are_named(weights):
    with pytest.raises(TypeError, match=r"^sample_weight"):
        volmar.KernelCPMMC().fit(X, sample_weight=weights)


# ------------------------------------------------------------------ finite numbers


class Broken(volmar.KernelKMeans):
    """A clusterer with fitted values that are not finite."""

    def _set_result(self, result):
        super()._set_result(result)
        self.centre_ = np.array([0.0, np.nan])


class Undefined(volmar.KernelKMeans):
    """A clusterer with scores that are not finite in some rows."""

    def _scores(self, X):
        return np.where(np.arange(X.shape[0]) == 3, np.nan, 1.0)


class Divided(volmar.KernelKMeans):
    """A solver that divides by zero."""

    def _run(self, prepared, seed):
        return 1 / (0 * seed)


def test_a_fit_whose_numbers_are_not_finite_is_an_error_and_leaves_nothing():
    model = Broken(gamma=1e-5, random_state=0)
    with pytest.raises(ValueError, match=r"^centre_ .*gamma=1e-05"):
        model.fit(X)
    assert not any(name.endswith("_") for name in vars(model))


def test_arithmetic_that_breaks_down_is_an_error_that_names_the_parameters():
    with pytest.raises(ValueError, match=r"division by zero.*max_iter=7") as caught:
        Divided(max_iter=7, random_state=0).fit(X)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_scores_that_are_not_finite_are_an_error_that_names_the_rows():
    model = Undefined(random_state=0).fit(X)
    for method in (model.decision_function, model.predict):
        with pytest.raises(ValueError, match=r"^X .*Undefined"):
            method(X)
    da = pytest.importorskip("dask.array")
    lazy = model.predict(da.from_array(X, chunks=(20, 3)))  # nothing is computed yet
    with pytest.raises(ValueError, match=r"^X .*Undefined"):
        lazy.compute()


@pytest.mark.parametrize("clusterer", GRAPHS)
def test_rows_beyond_the_reach_of_a_graph_are_an_error(clusterer):
    narrow = clusterer(affinity="gaussian", sigma=1e-160, random_state=0)
    with pytest.raises(
        ValueError, match=r"too far from every|not distinguish the rows|all similarities"
    ):
        warned(lambda: narrow.fit(X).decision_function(X + 0.1))
    model, _ = warned(
        lambda: clusterer(affinity="gaussian", random_state=0).fit(X.astype(np.float32))
    )
    with pytest.raises(ValueError, match=r"^X_new .*magnitude"):
        model.decision_function(np.full((1, 3), 1e39))


@pytest.mark.parametrize("kernel", ["poly", "sigmoid", "chi2"])
def test_kernels_that_overflow_do_so_silently(kernel):
    model = volmar.KernelKMeans(kernel=kernel, degree=300.0, gamma=1e10, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model.fit(np.abs(X) * 1e100)
        except ValueError as error:
            message = str(error)
            assert "NaN or infinite" in message


# ------------------------------------------------------------------ status

LIMITED = [one for one in CLUSTERERS if "max_iter" in one().get_params()]


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("clusterer", LIMITED)
def test_a_status_other_than_converged_warns_once(clusterer, k):
    rows = np.random.default_rng(3).normal(size=(90, 4))
    try:
        model, caught = warned(lambda: clusterer(k, max_iter=2, random_state=0).fit(rows))
    except ValueError:  # a descent that has found nothing yet
        return
    statuses = [one for one in caught if "ended with the status" in str(one.message)]
    assert len(statuses) == (model.status_ is not Status.CONVERGED)
    for one in statuses:
        assert one.category is ConvergenceWarning
        assert one.filename == __file__
        assert model.status_.name in str(one.message)
        if model.status_ is Status.MAX_ITER:
            assert "max_iter" in str(one.message)


@pytest.mark.parametrize("name", ["KernelKMeans", "MSPC", "DiscriminativeKMeans"])
def test_the_iteration_limit_is_warned_of(name):
    rows = np.random.default_rng(0).normal(size=(200, 4))
    model = getattr(volmar, name)(max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="MAX_ITER .*max_iter=1"):
        model.fit(rows)
    assert model.status_ is Status.MAX_ITER
