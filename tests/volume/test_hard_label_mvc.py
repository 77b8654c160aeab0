"""HardLabelMVC: labels, new rows, warnings."""

import pickle
import warnings

import numpy as np
import pytest
from helpers.cvxpy_references import hard_label_value
from scipy import sparse
from sklearn.datasets import load_breast_cancer, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from volmar import SDPMMC, HardLabelMVC
from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity
from volmar.graphs.graph import build_graph
from volmar.metrics import clustering_error
from volmar.operators import as_operator
from volmar.solvers import Status, solve_elliptope_saddle
from volmar.solvers.box_qp import BoxQP
from volmar.volume import hard_label_mvc
from volmar.volume.hard_label_mvc import HardLabelProblem


def quiet_fit(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X)


@pytest.mark.parametrize("make", [make_two_gaussians, make_two_circles])
def test_balance_and_centred_rounding_save_the_relaxation(make):
    """Ten draws of 50 rows; as printed the relaxation is far worse."""
    errors = {"default": [], "paper": []}
    for seed in range(10):
        X, y = make(50, random_state=seed)
        for mode, found in errors.items():
            model = quiet_fit(HardLabelMVC(mode=mode, random_state=0), X)
            found.append(clustering_error(y, model.labels_))
            assert model.result_.gap <= 1e-3 * abs(model.objective_)
    assert np.mean(errors["default"]) <= 0.05
    assert np.mean(errors["paper"]) > 0.1


def test_new_rows_and_attributes():
    X, y = make_two_moons(120, random_state=0)
    model = HardLabelMVC(random_state=0).fit(X)
    assert clustering_error(y, model.labels_) == 0
    assert clustering_error(model.labels_, model.predict(X)) <= 0.02
    new, truth = make_two_moons(60, random_state=1)
    assert clustering_error(truth, model.predict(new)) <= 0.05
    assert model.alpha_.shape == (120,)
    assert model.result_.rank >= 1
    assert model.result_.spread < 0.5
    assert np.linalg.norm(model.alpha_) == pytest.approx(1.0, abs=1e-6)


def test_given_similarities_and_random_rounding():
    X, y = make_two_moons(60, random_state=0)
    W = gaussian_similarity(X, sigma="mean/10", self_loops=True)
    named = HardLabelMVC(random_state=0).fit(X)
    given = HardLabelMVC(affinity="precomputed", random_state=0).fit(W)
    np.testing.assert_array_equal(named.labels_, given.labels_)
    random = HardLabelMVC(rounding="random", random_state=0).fit(X)
    assert clustering_error(y, random.labels_) == 0


def test_sparse_similarities_are_taken():
    X, y = make_two_moons(300, random_state=0)
    model = quiet_fit(
        HardLabelMVC(affinity="local_scaling", n_neighbors=10, random_state=0, tol=1e-3), X
    )
    assert clustering_error(y, model.labels_) < 0.1
    assert np.isfinite(model.result_.gap)


def test_an_undetermined_matrix_is_warned_of():
    """Without balance and with similarities everywhere, the best M is all ones."""
    X, _ = make_two_moons(40, random_state=0)
    with pytest.warns(UserWarning, match="does not determine.*Use balance"):
        HardLabelMVC(balance=None, sigma="2*mean", reg=0.05, random_state=0).fit(X)
    # Single points: balanced, too, M is anything.
    with pytest.warns(UserWarning, match=r"does not determine.*Use a wider similarity") as seen:
        HardLabelMVC(sigma="mean/200", random_state=0).fit(X)
    assert seen[0].filename == __file__


def test_a_certified_relaxation_is_converged_however_far_from_two_groups():
    """`spread` and a warning refer to the labels, `status` to the relaxation."""
    X, _ = make_two_moons(40, random_state=0)
    model = quiet_fit(HardLabelMVC(sigma="mean/200", random_state=0), X)
    assert model.result_.spread > 0.5
    assert model.result_.is_certified(1e-5)


def test_equal_similarities_are_refused():
    with pytest.raises(ValueError, match=r"equally similar.*narrower"):
        HardLabelMVC(affinity="precomputed").fit(np.ones((20, 20)))
    # A diagonal does not distinguish rows either; one pair that differs does.
    W = 0.5 + 0.5 * np.eye(20)
    with pytest.raises(ValueError, match="equally similar"):
        HardLabelMVC(affinity="precomputed").fit(W)
    W[0, 1] = W[1, 0] = 0.4
    quiet_fit(HardLabelMVC(affinity="precomputed", random_state=0), W)


def test_the_gap_is_relative_to_what_the_weight_leaves_to_the_matrix():
    """With a small reg the value is slightly above 2 sqrt(n), and M only affects the excess."""
    X, _ = make_two_moons(40, random_state=0)
    for reg in (1e-2, 1e-4):
        result = quiet_fit(HardLabelMVC(reg=reg, random_state=0), X).result_
        assert result.gap <= 1e-5 * 40 * reg  # a'|Q|a is below the largest eigenvalue of Q
        assert result.residuals["relative gap"] <= 1e-5
        assert result.is_certified(1e-5)


def test_a_pickle_has_no_similarities_in_it():
    X, _ = make_two_moons(200, random_state=0)
    model = HardLabelMVC(random_state=0).fit(X)
    stored = pickle.dumps(model)
    assert len(stored) < 8 * 200**2 / 4
    np.testing.assert_array_equal(pickle.loads(stored).predict(X), model.predict(X))


def test_too_few_iterations_are_warned_of():
    X, _ = make_two_moons(40, random_state=0)
    with pytest.warns(ConvergenceWarning, match="after 30 .*max_iter") as seen:
        model = HardLabelMVC(max_iter=30, tol=1e-9, random_state=0).fit(X)
    assert seen[0].filename == __file__
    assert model.result_.status is Status.MAX_ITER


def binary_rows():
    rng = np.random.default_rng(0)
    share = np.where(np.arange(60)[:, None] < 30, 0.1, 0.9)
    return (rng.random((60, 12)) < share).astype(float)


@pytest.mark.parametrize(
    ("X", "y", "affinity"),
    [
        (*make_blobs(100, 10, centers=2, cluster_std=0.1, random_state=0), "gaussian"),
        (np.array([[0.0, 0.0], [1.0, 2.0]]), [0, 1], "gaussian"),
        (np.kron(np.eye(2), np.ones((15, 15))), np.repeat([0, 1], 15), "precomputed"),
        (binary_rows(), np.repeat([0, 1], 30), "gaussian"),
    ],
    ids=["tight groups", "two rows", "cliques", "binary"],
)
def test_the_default_weight_is_never_too_large(X, y, affinity):
    model = HardLabelMVC(affinity=affinity, random_state=0).fit(X)
    assert model.result_.status is Status.CONVERGED
    assert model.result_.eta < 0
    assert 0 < model.reg_ < 1
    assert clustering_error(y, model.labels_) <= 0.1


@pytest.mark.parametrize("C", [0.2, 0.35, 0.71, 1.0])
def test_the_safe_weight_leaves_eta_negative_for_any_matrix(C, rng):
    """At random points of the elliptope; with a larger reg, there are some that fail."""
    Q = HardLabelProblem.of(np.kron(np.eye(2), np.ones((15, 15))))
    safe = Q.safe_reg(C)
    for rank in (1, 2, 30):
        V = rng.standard_normal((30, rank))
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        point = BoxQP(30, C, unit_norm=True).solve(0.999 * safe * Q.Q * (V @ V.T))
        assert np.linalg.norm(point.a) == pytest.approx(1.0, abs=1e-9)
        assert point.eta <= 0
    if C == 1.0:
        point = BoxQP(30, C, unit_norm=True).solve(1.001 * safe * Q.Q)
        assert np.linalg.norm(point.a) < 1 - 1e-4


def test_a_refusal_names_a_weight_that_works():
    X, y = make_blobs(100, 10, centers=2, cluster_std=0.1, random_state=0)
    with pytest.raises(ValueError, match="reg=1 is too large for these data") as seen:
        HardLabelMVC(reg=1.0).fit(X)
    reg = float(str(seen.value).split("Use reg=")[1].split(",")[0])
    model = HardLabelMVC(reg=reg, random_state=0).fit(X)
    assert model.reg_ == reg
    assert model.result_.eta < 0
    assert clustering_error(y, model.labels_) == 0


def test_indefinite_similarities_are_made_definite():
    """Q + cI has the same M, a and labels, eta and the value moved by reg c."""
    X = StandardScaler().fit_transform(load_breast_cancer().data)
    X = X[np.random.default_rng(2).choice(len(X), 60)]
    model = quiet_fit(HardLabelMVC(affinity="nearest_neighbors", random_state=0), X)
    W = build_graph(X, "nearest_neighbors").W.toarray()
    problem = HardLabelProblem.of(W)
    assert np.linalg.eigvalsh(W + np.eye(60) / 60)[0] == pytest.approx(-problem.shift)
    assert problem.shift > 1
    assert np.linalg.eigvalsh(problem.Q)[[0, -1]] == pytest.approx([0, problem.largest], abs=1e-9)
    assert model.result_.eta < -model.reg_ * problem.shift
    a, V = model.alpha_, model.result_.factor
    Q = W + np.eye(60) / 60
    value = 2 * a.sum() - model.reg_ * a @ (Q * (V @ V.T)) @ a
    assert model.objective_ == pytest.approx(value)
    assert model.result_.lower_bound == pytest.approx(value, abs=2 * model.result_.gap)
    raised = solve_elliptope_saddle(Q + 5 * np.eye(60), reg=model.reg_, balance=1.0, tol=1e-5)
    assert raised.objective + 5 * model.reg_ == pytest.approx(model.objective_, rel=1e-4)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix])
def test_large_spectra_are_bounded_as_small_ones(make, monkeypatch):
    X, _ = make_two_moons(80, random_state=0)
    W = gaussian_similarity(X, sigma="mean/10", self_loops=False)
    small = HardLabelProblem.of(W)
    monkeypatch.setattr(hard_label_mvc, "DENSE_UP_TO", 10)
    for values, name in ((W, "indefinite"), (W + 2 * np.eye(80), "definite")):
        large = HardLabelProblem.of(make(values))
        expected = small.shift if name == "indefinite" else 0.0
        assert large.shift == pytest.approx(expected, rel=1e-2)
        assert large.shift >= expected - 1e-9
    assert HardLabelProblem.of(make(W)).largest >= small.largest - 1e-6
    assert HardLabelProblem.of(make(W)).largest == pytest.approx(small.largest, rel=1e-2)


@pytest.mark.parametrize(("reg", "C"), [(1e3, 1.0), (100.0, 1e4)])
def test_the_weights_of_the_papers_are_solved_in_paper_mode(reg, C):
    """JMLR section 8.2 has reg=1e3, AISTATS section 5 reg=100 with C=1e4."""
    X, _ = make_two_circles(24, random_state=0)
    with pytest.warns(UserWarning, match=rf"reg={reg:g} is so large that eta is not neg"):
        model = HardLabelMVC(mode="paper", reg=reg, C=C, random_state=0).fit(X)
    Q = gaussian_similarity(X, sigma="mean/10", self_loops=True) + np.eye(24) / 24
    value, _ = hard_label_value(Q, reg, min(C, 1.0))  # the same problem from 1 on
    assert model.result_.is_certified(1e-5)
    assert model.result_.lower_bound - 1e-3 <= value <= model.objective_ + 1e-3
    assert model.result_.eta > 0
    with pytest.raises(ValueError, match=r"too large.*mode='paper'"):
        HardLabelMVC(reg=reg, C=C).fit(X)


@pytest.mark.parametrize(
    "X",
    [np.array([[0.0, 0.0], [1.0, 2.0]]), np.repeat([[0.0, 1.0], [1.0, 0.2]], 10, axis=0)],
    ids=["two rows", "two points"],
)
def test_paper_mode_with_its_own_weight_on_two_points(X):
    with pytest.warns(UserWarning, match=r"reg=1 is so large that eta is not negative"):
        model = HardLabelMVC(mode="paper", random_state=0).fit(X)
    assert model.result_.is_certified(1e-4)
    np.testing.assert_array_equal(np.bincount(model.labels_), [len(X) // 2] * 2)
    assert np.ptp(model.labels_[: len(X) // 2]) == 0


def test_one_cluster_is_recognised():
    """Without a bound on row sums M = 11' is the only solution, up to the tolerance."""
    X, _ = make_two_circles(60, random_state=0)
    with pytest.warns(UserWarning, match="all ones.*mode='default'"):
        model = HardLabelMVC(mode="paper", random_state=0).fit(X)
    V = model.result_.factor
    assert 0.95 < np.mean(V @ V.sum(axis=0)) / 60 < 0.99  # far from 1, given the gap of 1e-5
    assert model.result_.one_cluster
    centred = V - V.mean(axis=0)
    assert np.sum(centred**2) / 60 <= model.result_.room_beside_one
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not HardLabelMVC(random_state=0).fit(X).result_.one_cluster
    # Two groups with negligible similarities between them are as good as one.
    Y, _ = make_two_gaussians(60, random_state=0)
    assert not quiet_fit(HardLabelMVC(mode="paper", random_state=0), Y).result_.one_cluster


def test_any_definite_matrix_may_be_given():
    """AISTATS Theorem 2 is about Q = K, whose entries may be negative."""
    X, y = make_blobs(20, 3, centers=2, cluster_std=0.5, random_state=0)
    X = X - X.mean(axis=0)
    K = X @ X.T / 20 + 0.1 * np.eye(20)
    assert K.min() < -0.1
    value, _ = hard_label_value(K, 0.2, 1.0)
    models = [
        quiet_fit(HardLabelMVC(Q=Q, mode="paper", reg=0.2, random_state=0), X)
        for Q in (K, sparse.csr_matrix(K), as_operator(K - np.eye(20), shift=1.0), lambda W: K)
    ]
    for model in models:
        assert model.result_.is_certified(1e-5)
        assert model.objective_ == pytest.approx(value, rel=1e-5)
        assert clustering_error(y, model.labels_) == 0
    default = quiet_fit(HardLabelMVC(Q=K, random_state=0), X)
    assert clustering_error(y, default.predict(X)) == 0
    # With eta held at zero it is the relaxation of the margin, JMLR eq. 22.
    margin = SDPMMC(kernel="precomputed", mode="paper", C=1.0, random_state=0)
    saddle = solve_elliptope_saddle(K, C=1.0, unit_norm=False, tol=1e-5)
    assert quiet_fit(margin, K).objective_ == pytest.approx(saddle.objective, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"Q": "laplacian"}, "^Q .*similarity"),
        ({"Q": np.eye(3)}, "^Q .*got 3 and 20"),
        ({"Q": -np.eye(20)}, "^Q .*eigenvalue"),
        ({"Q": np.ones((20, 20)) + np.eye(20)}, "off-diagonal entries of Q"),
        ({"Q": np.eye(20), "n_clusters": 3}, "^Q .*function"),
    ],
)
def test_wrong_matrices_are_named(settings, message):
    X, _ = make_two_moons(20, random_state=0)
    with pytest.raises(ValueError, match=message):
        HardLabelMVC(**settings).fit(X)


def test_balance_of_rows_and_of_their_mean():
    X, _ = make_two_moons(40, random_state=0)
    rows = HardLabelMVC(row_balance=True, balance=0.2, tol=1e-4, max_iter=3000, random_state=0)
    mean = HardLabelMVC(balance=0.2, tol=1e-4, random_state=0).fit(X)
    for model, size in ((rows.fit(X), np.abs), (mean, np.mean)):
        V = model.result_.factor
        assert np.max(size(V @ V.sum(axis=0))) <= 0.2 + 40 * 1e-4
    assert mean.objective_ <= rows.objective_ * (1 + 1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reg": 1e4}, "reg=10000 is too large"),
        ({"reg": -1.0}, "reg must be"),
        ({"C": 0.01}, "C=0.01 is too small"),
        ({"balance": -1.0}, "balance must be"),
        ({"balance": np.inf}, "balance must be"),
        ({"mode": "printed"}, "mode must be one of"),
        ({"rounding": "best"}, "rounding must be one of"),
        ({"n_neighbors": 3}, "n_neighbors=3 has no meaning"),
    ],
)
def test_bad_parameters_are_named(settings, message):
    X, _ = make_two_moons(40, random_state=0)
    with pytest.raises(ValueError, match=message):
        HardLabelMVC(**settings).fit(X)
    with pytest.raises(TypeError, match=r"^row_balance"):
        HardLabelMVC(row_balance=1).fit(X)
