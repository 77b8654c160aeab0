"""Widths of Gaussian kernels that are chosen without labels."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning

from volmar import SKMMC, KernelCPMMC
from volmar.base.kernel import MAX_HALVINGS, TIE, Fitted, first_good
from volmar.metrics import clustering_error
from volmar.models import load_model, save_model
from volmar.rows.anywhere import scale_gamma

METHODS = [KernelCPMMC, SKMMC]


def fixed(method):
    """The method with the widest kernel."""
    return method(gamma="scale", random_state=0)


def blobs(rng, sizes=(120, 80), d=2, distance=8.0):
    y = np.repeat([0, 1], sizes)
    return rng.standard_normal((y.size, d)) + distance / np.sqrt(d) * y[:, None], y


# ---------------------------------------------------------------------- which width


@pytest.mark.parametrize("method", METHODS)
def test_moons(method):
    X, y = make_moons(300, noise=0.07, random_state=0)
    model = method(random_state=0).fit(X)
    assert clustering_error(y, fixed(method).fit(X).labels_) > 0.1
    assert clustering_error(y, model.labels_) <= 0.01
    new, truth = make_moons(500, noise=0.07, random_state=1)
    assert clustering_error(truth, model.predict(new)) <= 0.02


@pytest.mark.parametrize("method", METHODS)
def test_circles(method):
    X, y = make_circles(300, noise=0.05, factor=0.5, random_state=0)
    model = method(random_state=0).fit(X)
    assert clustering_error(y, model.labels_) <= 0.01
    new, truth = make_circles(500, noise=0.05, factor=0.5, random_state=1)
    assert clustering_error(truth, model.predict(new)) <= 0.02


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("method", METHODS)
def test_round_groups_keep_the_widest_kernel(method, d, rng):
    X, y = blobs(rng, d=d)
    model, widest = method(random_state=0).fit(X), fixed(method).fit(X)
    assert clustering_error(y, model.labels_) <= 0.01
    assert model.gamma_ == widest.gamma_
    np.testing.assert_allclose(model.decision_function(X), widest.decision_function(X))


@pytest.mark.parametrize("method", METHODS)
def test_outliers_are_no_cluster(method, rng):
    X, y = blobs(rng, sizes=(150, 150))
    X[::100] += rng.uniform(15, 40, (3, 2))
    assert clustering_error(y, method(random_state=0).fit(X).labels_) <= 0.02


@pytest.mark.parametrize("method", METHODS)
def test_a_small_group_inside_a_ring(method, rng):
    angle, radius = rng.uniform(0, 2 * np.pi, 400), np.repeat([0.0, 5.0], [60, 340])
    X = (radius * [np.cos(angle), np.sin(angle)]).T + 0.5 * rng.standard_normal((400, 2))
    labels = method(random_state=0).fit(X).labels_
    assert clustering_error(np.repeat([0, 1], [60, 340]), labels) <= 0.01


@pytest.mark.parametrize("method", METHODS)
def test_three_rings(method, rng):
    sizes, radii = (60, 150, 250), (1.0, 3.0, 5.0)
    y = np.repeat(range(3), sizes)
    angle = rng.uniform(0, 2 * np.pi, y.size)
    X = (np.repeat(radii, sizes) * [np.cos(angle), np.sin(angle)]).T
    X += 0.15 * rng.standard_normal(X.shape)
    assert clustering_error(y, method(3, random_state=0).fit(X).labels_) <= 0.01


def test_widths_are_halves_of_the_widest():
    X, _ = make_moons(300, noise=0.07, random_state=0)
    for method in (KernelCPMMC, SKMMC):
        halvings = np.log2(method(random_state=0).fit(X).gamma_ / scale_gamma(X)) / 2
        assert halvings == pytest.approx(round(halvings))
        assert 1 <= halvings <= MAX_HALVINGS


def test_the_rule_takes_the_widest_of_equals():
    cuts = {(4.0, None): 0.9, (4.0, 0): 0.8, (2.0, 0): 0.15, (1.0, 0): 0.1}
    tried = []

    class Model:
        def __init__(self, labels):
            self.labels_ = labels

    def fit(width, start):
        tried.append((width, start))
        return None if (width, start) not in cuts else Fitted(Model((width, start)), [])

    def cut(labels, smallest):
        return cuts[labels]

    def taken(lowest):
        tried.clear()
        best = first_good([4.0, 2.0, 1.0], [0, 1], fit, cut, lowest=lowest)
        return best.width, best.start, best.cut

    assert taken(0.1) == (2.0, 0, 0.15)
    assert tried == [(4.0, None), (4.0, 0), (4.0, 1), (2.0, 0)]  # within TIE of the lowest known
    assert taken(0.01) == (2.0, 0, 0.15)  # none is, but this one is within TIE of the best
    assert len(tried) == 7
    assert taken(0.91 / TIE) == (4.0, None, 0.9)
    assert tried == [(4.0, None)]
    assert first_good([4.0], [], lambda *_: None, cut, lowest=0.0) is None


# ---------------------------------------------------------------------- what is left alone


@pytest.mark.parametrize("method", METHODS)
def test_chosen_gamma_is_reported(method, rng):
    X, _ = blobs(rng)
    assert fixed(method).fit(X).gamma_ == pytest.approx(scale_gamma(X))
    assert method(gamma="4*scale", random_state=0).fit(X).gamma_ == pytest.approx(
        4 * scale_gamma(X)
    )
    assert method(gamma=0.3, random_state=0).fit(X).gamma_ == 0.3
    assert method(gamma=None, random_state=0).fit(X).gamma_ == 0.5
    if method is SKMMC:  # has no other kernel
        return
    assert method(kernel="linear", random_state=0).fit(X).gamma_ is None
    for kernel in ("laplacian", "chi2"):
        model = method(kernel=kernel, random_state=0).fit(np.abs(X))
        assert model.gamma_ == pytest.approx(scale_gamma(np.abs(X)))
        assert not hasattr(model, "cut_")


@pytest.mark.parametrize("method", [KernelCPMMC, SKMMC])
def test_paper_mode_keeps_its_width(method):
    X, _ = make_moons(120, noise=0.07, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        auto = method(mode="paper", random_state=0).fit(X)
        given = clone(fixed(method)).set_params(mode="paper", gamma="rms").fit(X)
    assert auto.gamma_ == given.gamma_
    np.testing.assert_array_equal(auto.decision_function(X), given.decision_function(X))


@pytest.mark.parametrize("method", METHODS)
def test_labels_to_start_from_leave_the_widest(method):
    X, y = make_moons(120, noise=0.07, random_state=0)
    auto = method(init=y, random_state=0).fit(X)
    given = fixed(method).set_params(init=y).fit(X)
    assert auto.gamma_ == given.gamma_
    np.testing.assert_array_equal(auto.labels_, given.labels_)


@pytest.mark.parametrize("method", METHODS)
def test_parameters_are_as_given_after_a_fit(method):
    X, _ = make_moons(120, noise=0.07, random_state=0)
    model = method(random_state=0)
    before = model.get_params()
    first = model.fit(X).labels_
    assert model.get_params() == before
    np.testing.assert_array_equal(model.fit(X).labels_, first)


@pytest.mark.parametrize("method", METHODS)
def test_few_rows(method, rng):
    X = np.vstack([rng.normal(0, 0.1, (4, 2)), rng.normal(5, 0.1, (4, 2))])
    assert clustering_error(np.repeat([0, 1], 4), method(random_state=0).fit(X).labels_) == 0.0


@pytest.mark.parametrize("method", METHODS)
def test_unknown_words_are_refused(method, rng):
    with pytest.raises(ValueError, match=r"^gamma .*got 'automatic'"):
        method(gamma="automatic").fit(rng.standard_normal((30, 2)))


def test_rms_is_the_width_of_the_mean_squared_distance(rng):
    X = rng.standard_normal((60, 3)) * [1.0, 5.0, 0.2] + [10.0, 0.0, -3.0]
    square = np.mean((X[:, None] - X[None]) ** 2) * 3
    assert SKMMC(gamma="rms", random_state=0).fit(X).gamma_ == pytest.approx(0.5 / square)
    assert KernelCPMMC(gamma="4*rms", random_state=0).fit(X).gamma_ == pytest.approx(2.0 / square)
    for method in (SKMMC, KernelCPMMC):
        paper = method(mode="paper", cut_tol=10.0, random_state=0).fit(X)
        assert paper.gamma_ == pytest.approx(0.5 / square)
    weights = rng.integers(0, 3, 60)
    weighted = SKMMC(gamma="rms", random_state=0).fit(X, sample_weight=weights)
    repeated = SKMMC(gamma="rms", random_state=0).fit(np.repeat(X, weights, axis=0))
    assert weighted.gamma_ == pytest.approx(repeated.gamma_)
    with pytest.raises(ValueError, match=r"gamma='rms' .* equal"):
        SKMMC(gamma="rms").fit(np.ones((30, 2)))


def test_warnings_of_the_fit_that_stands_are_heard():
    X, _ = make_moons(200, noise=0.07, random_state=0)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        KernelCPMMC(max_iter=1, random_state=0).fit(X)


# ---------------------------------------------------------------------- kinds of rows


@pytest.mark.parametrize("method", METHODS)
def test_float32_and_sparse_rows(method):
    X, y = make_moons(200, noise=0.06, random_state=0)
    dense = method(random_state=0).fit(X)
    for rows in (X.astype(np.float32), sparse.csr_array(X)):
        model = method(random_state=0).fit(rows)
        assert model.gamma_ == pytest.approx(dense.gamma_, rel=1e-5)
        assert clustering_error(y, model.labels_) <= 0.01


@pytest.mark.parametrize("method", METHODS)
def test_weights(method):
    X, y = make_moons(200, noise=0.06, random_state=0)
    X, y = np.vstack([X, X[:3] + 30.0]), np.append(y, [0, 0, 0])
    weights = np.append(np.ones(200), np.zeros(3))
    model = method(random_state=0).fit(X, sample_weight=weights)
    alone = method(random_state=0).fit(X[:200])
    assert clustering_error(y[:200], model.labels_[:200]) <= 0.01
    assert model.gamma_ == pytest.approx(alone.gamma_)


@pytest.mark.parametrize("method", [KernelCPMMC, SKMMC])
def test_more_rows_than_are_compared(method):
    X, y = make_moons(2500, noise=0.08, random_state=0)
    options = {"method": "nystroem"} if method is KernelCPMMC else {}
    model = method(random_state=0, **options).fit(X)
    assert clustering_error(y, model.labels_) <= 0.02


@pytest.mark.parametrize("n", [600, 1500])
@pytest.mark.parametrize("method", [KernelCPMMC, SKMMC])
def test_rows_in_blocks(method, n):
    array = pytest.importorskip("dask.array")
    X, y = make_moons(n, noise=0.07, random_state=0)
    options = {"method": "nystroem"} if method is KernelCPMMC else {}
    here = method(random_state=0, **options).fit(X)
    there = method(random_state=0, **options).fit(array.from_array(X, chunks=(400, 2)))
    assert there.gamma_ == pytest.approx(here.gamma_)
    assert clustering_error(np.asarray(there.labels_), here.labels_) <= 0.002
    assert clustering_error(y, here.labels_) <= 0.02


@pytest.mark.parametrize("method", METHODS)
def test_saved_models(method, tmp_path):
    X, _ = make_moons(150, noise=0.07, random_state=0)
    model = method(random_state=0).fit(X)
    save_model(tmp_path / "model", model)
    back = load_model(tmp_path / "model").model
    assert (back.gamma_, back.cut_) == (model.gamma_, model.cut_)
    np.testing.assert_array_equal(back.decision_function(X), model.decision_function(X))


def test_gamma_used_by_default_is_scikit_learns(rng):
    X = np.abs(rng.standard_normal((30, 4)))
    for kernel, gamma in (("rbf", 0.25), ("laplacian", 0.25), ("chi2", 1.0), ("linear", None)):
        model = KernelCPMMC(kernel=kernel, gamma=None, random_state=0).fit(X)
        assert model.gamma_ == gamma
