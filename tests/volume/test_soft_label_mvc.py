"""SoftLabelMVC: the paper's labels, hard inputs, new rows, memory."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from reproduction.datasets import data_folder, load
from volmar import NormalizedSpectralClustering, SoftLabelMVC
from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import (
    cosine_knn_similarity,
    gaussian_similarity,
    laplacian,
    local_scaling_similarity,
)
from volmar.graphs.similarities import CosineKNNSimilarity, GaussianSimilarity
from volmar.metrics import clustering_error
from volmar.operators import as_operator
from volmar.solvers import Status

SETS = {"gaussians": make_two_gaussians, "moons": make_two_moons, "circles": make_two_circles}
DIGITS = load_digits()


def digit_pair(a, b):
    chosen = np.isin(DIGITS.target, [a, b])
    return DIGITS.data[chosen], (DIGITS.target[chosen] == b).astype(int)


def quiet_fit(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # components of the graph
        return model.fit(X)


# ------------------------------------------------------------------ default and paper


def matrices():
    for name, make in SETS.items():
        for n in (50, 120, 300):
            for seed in (0, 1):
                X, _ = make(n, random_state=seed)
                yield f"{name}-{n}-{seed}", gaussian_similarity(X, sigma="mean/10")
                yield f"{name}-{n}-{seed}-knn", local_scaling_similarity(X, graph="knn")
    for a, b in [(3, 8), (1, 7), (8, 9), (3, 5)]:
        X, _ = digit_pair(a, b)
        yield f"digits-{a}v{b}", cosine_knn_similarity(X, n_neighbors=5)
        yield f"digits-{a}v{b}-gauss", gaussian_similarity(X, sigma="mean/4")


@pytest.mark.parametrize("W", [pytest.param(W, id=name) for name, W in matrices()])
def test_default_labels_are_the_papers_where_refinement_is_off(W):
    settings = {"affinity": "precomputed", "n_candidates": 1}
    default = quiet_fit(SoftLabelMVC(**settings, max_iter=1), W)
    paper = quiet_fit(SoftLabelMVC(**settings, mode="paper"), W)
    np.testing.assert_array_equal(default.labels_, paper.labels_)
    # h is the same stationary point, which the default mode solves for directly.
    np.testing.assert_allclose(default.h_, paper.h_, atol=1e-6)
    assert default.objective_ == pytest.approx(paper.objective_, rel=1e-9)
    for model in (default, paper):
        assert max(model.result_.residuals.values()) < 1e-8


@pytest.mark.parametrize("name", SETS)
def test_results_are_certified_and_complete(name):
    X, y = SETS[name](300, random_state=0)
    model = quiet_fit(SoftLabelMVC(), X)
    assert clustering_error(y, model.labels_) < 0.02
    assert model.result_.check(model.problem_).is_stationary(1e-8)
    assert np.linalg.norm(model.h_) == pytest.approx(1.0)
    assert abs(model.balance_) <= 1 / 300 + 1e-12
    assert model.balance_ == pytest.approx(model.h_.sum())
    np.testing.assert_array_equal(model.labels_, (model.h_ >= 0).astype(int))
    np.testing.assert_array_equal(model.labels_, (model.field_ >= 0).astype(int))
    assert model.eigenvalues_.size == 3
    assert np.isnan(model.result_.gap)
    start = (model.result_.start >= 0).astype(int)
    assert model.n_moved_ == round(clustering_error(start, model.labels_) * 300)
    assert model.degenerate_ is False


def test_the_paper_mode_uses_the_papers_graph():
    X, _ = make_two_gaussians(100, random_state=0)
    paper = SoftLabelMVC(mode="paper").fit(X)
    given = SoftLabelMVC(mode="paper", affinity="precomputed").fit(
        gaussian_similarity(X, sigma="mean/10", self_loops=True)
    )
    np.testing.assert_array_equal(paper.labels_, given.labels_)
    np.testing.assert_allclose(paper.h_, given.h_, atol=1e-10)
    scaled = SoftLabelMVC(mode="paper", affinity="local_scaling", n_neighbors=5).fit(X)
    dense = local_scaling_similarity(X, n_neighbors=5, graph="dense", self_loops=True)
    np.testing.assert_allclose(
        scaled.h_, SoftLabelMVC(mode="paper", affinity="precomputed").fit(dense).h_, atol=1e-10
    )


def test_the_aistats_mode_is_its_own_algorithm():
    X, y = digit_pair(3, 8)
    model = SoftLabelMVC(mode="aistats").fit(X)
    same = SoftLabelMVC(mode="aistats", affinity=CosineKNNSimilarity()).fit(X)
    np.testing.assert_array_equal(model.labels_, same.labels_)
    assert model.eigenvalues_[0] == pytest.approx(0.0, abs=1e-10)  # Q without a shift
    assert abs(model.balance_) <= 1e-7 + 1e-12
    assert model.result_.second_vector is not None
    np.testing.assert_array_equal(model.result_.second_vector, model.result_.chosen_vector)
    assert clustering_error(y, model.labels_) < 0.05


def test_candidates_rescue_the_crossed_gaussians():
    """Among the near-null eigenvectors of outliers, the paper's rule picks a balanced one."""
    errors = {}
    for label, settings in {
        "one": {"mode": "paper", "n_candidates": 1},
        "paper": {"mode": "paper"},
        "default": {"n_candidates": 4, "affinity": GaussianSimilarity(sigma="mean/10")},
    }.items():
        found = []
        for seed in range(5):
            X, y = make_two_gaussians(200, random_state=seed)
            found.append(clustering_error(y, quiet_fit(SoftLabelMVC(**settings), X).labels_))
        errors[label] = np.mean(found)
    assert errors["paper"] < 0.1
    assert errors["one"] > 0.25
    assert errors["default"] < errors["one"]


def test_reg_is_idle_below_its_natural_scale():
    X, _ = make_two_moons(200, noise=0.12, random_state=1)
    labels = [SoftLabelMVC(reg=reg).fit(X).labels_ for reg in (1e-6, 1e-2, 1.0)]
    np.testing.assert_array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(labels[1], labels[2])
    huge = SoftLabelMVC(reg=1e8, balance=0.0, Q=_unnormalised).fit(X)
    assert abs(huge.h_ @ huge.result_.second_vector) > 1 - 1e-6  # section 4's limit
    np.testing.assert_array_equal(huge.field_, huge.h_)


def _unnormalised(W):
    return laplacian(W, kind="unnormalized") + 0.01 * sparse.identity(W.shape[0])


# ------------------------------------------------------------------ what Q may be


def test_q_may_be_a_matrix_an_operator_or_a_function():
    X, _ = make_two_moons(150, random_state=0)
    W = local_scaling_similarity(X, graph="knn", self_loops=False)
    L = laplacian(W)
    default = SoftLabelMVC().fit(X)
    shifted = sparse.csr_matrix(L + sparse.identity(150) / 150)
    for Q in (shifted, shifted.toarray(), lambda W: laplacian(W) + sparse.identity(150) / 150):
        model = SoftLabelMVC(Q=Q).fit(X)
        np.testing.assert_array_equal(model.labels_, default.labels_)
    Z = np.linalg.qr(np.column_stack([np.ones(150), X, X**2]))[0]
    with pytest.warns(ConvergenceWarning, match="DEGENERATE"):  # equal eigenvalues
        low_rank = SoftLabelMVC(Q=as_operator(np.eye(150) - 0.81 * Z @ Z.T)).fit(X)
    assert max(low_rank.result_.residuals.values()) < 1e-8
    kernel = SoftLabelMVC(Q="kernel", affinity="gaussian", sigma="mean/4").fit(X)
    assert kernel.eigenvalues_[-1] > 100  # n I - W
    assert set(kernel.labels_) == {0, 1}
    with pytest.raises(ValueError, match=r"^Q .*got 150 and 149"):
        SoftLabelMVC(Q=shifted).fit(X[:-1])
    with pytest.raises(ValueError, match="Q must be one of"):
        SoftLabelMVC(Q="laplace").fit(X)


# ------------------------------------------------------------------ hard inputs


def test_two_components_are_found_exactly():
    X, y = make_blobs(200, centers=[[-20, 0], [20, 0]], random_state=0)
    model = SoftLabelMVC().fit(X)
    assert clustering_error(y, model.labels_) == 0
    assert model.degenerate_ is False


def test_more_components_than_clusters_warn_and_are_degenerate():
    X, _ = make_blobs(150, centers=[[-30, 0], [30, 0], [0, 50]], random_state=0)
    with pytest.warns(UserWarning, match="3 connected components"):
        model = SoftLabelMVC(affinity="local_scaling").fit(X)
    assert model.degenerate_ is True
    assert model.result_.status is Status.DEGENERATE
    assert set(model.labels_) == {0, 1}


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_isolated_rows_get_a_label(mode):
    X, y = make_two_moons(100, random_state=0)
    W = np.zeros((102, 102))
    W[:100, :100] = gaussian_similarity(X, sigma="mean/6")
    with pytest.warns(UserWarning, match="connected components"):
        model = SoftLabelMVC(mode=mode, affinity="precomputed").fit(W)
    assert model.labels_.shape == (102,)
    assert np.isfinite(model.h_).all()
    assert clustering_error(y, model.labels_[:100]) < 0.2


def test_duplicates_stay_together():
    X, _ = make_two_moons(60, random_state=0)
    model = quiet_fit(SoftLabelMVC(), np.repeat(X, 4, axis=0))
    labels = model.labels_.reshape(60, 4)
    assert np.all(labels == labels[:, :1])


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_constant_data_is_degenerate_not_an_accident(mode):
    model = quiet_fit(SoftLabelMVC(mode=mode, affinity="precomputed"), np.ones((12, 12)))
    assert model.degenerate_ is True
    assert model.result_.status is Status.DEGENERATE
    assert set(model.labels_) == {0, 1}


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_two_and_three_rows(mode):
    X = np.array([[0.0, 1.0], [1.0, 0.2], [5.0, 5.0]])
    two = quiet_fit(SoftLabelMVC(mode=mode), X[:2])
    assert sorted(two.labels_) == [0, 1]
    assert two.degenerate_ is False
    three = quiet_fit(SoftLabelMVC(mode=mode), X)
    assert set(three.labels_) == {0, 1}
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        SoftLabelMVC(mode=mode).fit(X[:1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"balance": -0.1}, "balance must be"),
        ({"balance": np.nan}, "balance must be"),
        ({"reg": 0.0}, "reg must be"),
        ({"reg": "strong"}, "reg must be"),
        ({"tol": 0.0}, "tol must be"),
        ({"n_candidates": 0}, "n_candidates must be"),
        ({"max_iter": 1.5}, "max_iter must be"),
        ({"mode": "jmlr"}, "mode must be one of"),
        ({"n_clusters": 3, "mode": "paper"}, "multiway='recursive'"),
        ({"sigma": 1.0}, "^sigma"),
        ({"mode": "paper", "n_neighbors": 3}, "n_neighbors=3 has no meaning"),
        ({"affinity": "rbf"}, "affinity must be one of"),
    ],
)
def test_bad_parameters_are_named(settings, message):
    X, _ = make_two_moons(40, random_state=0)
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        SoftLabelMVC(**settings).fit(X)


def test_a_start_that_is_constant_is_refused():
    """v2 of this Q is the vector of ones, from which no step satisfies the balance."""
    n = 10
    direction = np.arange(n) - (n - 1) / 2
    basis = np.linalg.qr(np.column_stack([direction, np.ones(n), np.eye(n)]))[0]
    Q = (basis * np.concatenate([[0.1, 0.2], np.ones(n - 2)])) @ basis.T
    X = np.random.default_rng(0).standard_normal((n, 2))
    for mode in ("default", "paper"):
        with pytest.raises(ValueError, match="not distinguish"):
            quiet_fit(SoftLabelMVC(Q=Q, mode=mode, affinity="gaussian"), X)


def test_a_free_balance_may_leave_one_cluster():
    X, _ = make_blobs([45, 15], centers=[[0, 0], [3, 0]], random_state=0)
    W = gaussian_similarity(X, sigma="2*mean")
    Q = laplacian(W) + 1e-4 * np.eye(60)
    with pytest.warns(UserWarning, match="one cluster.* balance=100"):
        model = SoftLabelMVC(balance=100.0, Q=Q, affinity="precomputed").fit(W)
    np.testing.assert_array_equal(model.labels_, 0)


# ------------------------------------------------------------------ new rows


def held_back():
    for name, noise in (("moons", 0.08), ("circles", 0.05)):
        yield name, SETS[name](1000, noise=noise, random_state=0)[0]
    for a, b in [(3, 8), (1, 7), (8, 9)]:
        yield f"digits-{a}v{b}", digit_pair(a, b)[0]


@pytest.mark.parametrize("X", [pytest.param(X, id=name) for name, X in held_back()])
def test_new_rows_agree_with_the_transductive_labels(X):
    order = np.random.default_rng(0).permutation(len(X))
    half = order[: len(X) // 2]
    rest = order[len(X) // 2 :]
    whole = quiet_fit(SoftLabelMVC(), X)
    part = quiet_fit(SoftLabelMVC(), X[half])
    assert clustering_error(whole.labels_[rest], part.predict(X[rest])) <= 0.05
    scores = part.decision_function(X[rest])
    assert scores.shape == rest.shape
    np.testing.assert_array_equal(part.predict(X[rest]), (scores > 0).astype(int))


def test_precomputed_rows_and_pickles():
    X, _ = make_two_moons(150, random_state=0)
    named = SoftLabelMVC(affinity="gaussian", sigma=0.2).fit(X)
    W, extension = GaussianSimilarity(sigma=0.2, self_loops=False).build(X)
    given = SoftLabelMVC(affinity="precomputed").fit(W)
    np.testing.assert_array_equal(named.labels_, given.labels_)
    new = make_two_moons(40, random_state=5)[0]
    np.testing.assert_allclose(
        named.decision_function(new), given.decision_function(extension(new)), rtol=1e-9
    )
    again = pickle.loads(pickle.dumps(named))
    np.testing.assert_array_equal(again.predict(new), named.predict(new))
    assert again.degenerate_ == named.degenerate_
    assert clone(named).get_params() == named.get_params()
    with pytest.raises(NotFittedError):
        _ = SoftLabelMVC().degenerate_


def test_permuting_rows_permutes_labels():
    X, _ = make_two_moons(200, noise=0.1, random_state=4)
    order = np.random.default_rng(1).permutation(200)
    one, two = SoftLabelMVC().fit(X), SoftLabelMVC().fit(X[order])
    assert clustering_error(one.labels_[order], two.labels_) == 0


# ------------------------------------------------------------------ large graphs

LARGE = """
import resource, warnings
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
from sklearn.datasets import make_moons
from volmar import SoftLabelMVC
from volmar.metrics import clustering_error
X, y = make_moons(100_000, noise=0.05, random_state=0)
model = SoftLabelMVC(n_neighbors=10).fit(X)
# The high-water mark of this program: that of getrusage counts the process it was forked from.
status = Path("/proc/self/status")
if status.exists():
    print(int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
print(clustering_error(y, model.labels_), max(model.result_.residuals.values()))
print(model.result_.field_residual)
"""


def test_memory_stays_in_proportion_to_the_edges():
    """100,000 rows: a dense matrix would be 80 GB. The whole process stays below 700 MB."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LARGE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    peak, error, residual, field_residual = map(float, done.stdout.split())
    assert peak < 700 * 2**20
    assert error < 0.02
    assert residual < 1e-6
    assert field_residual < 1e-2


def test_ties_of_large_graphs_are_looked_for_when_asked():
    rng = np.random.default_rng(0)
    arm = np.column_stack([np.linspace(1, 10, 600), 0.1 * rng.standard_normal(600)])
    angles = np.deg2rad([90, 210, 330])
    turns = [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in angles]
    star = np.vstack([arm @ turn.T for turn in turns])  # three arms: v2 and v3 are tied
    model = SoftLabelMVC(affinity="gaussian", sigma=0.5).fit(star)
    assert model.eigenvalues_.size == 2
    assert model.result_.status is Status.CONVERGED
    assert model.degenerate_ is True
    assert SoftLabelMVC().fit(make_two_moons(1600, random_state=0)[0]).degenerate_ is False


# ------------------------------------------------------------------ small rows of the papers


@pytest.mark.skipif(data_folder() is None, reason="the papers' data are not here")
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("ida-heart", 18.8),
        ("ida-titanic", 21.9),
        ("ida-breast-cancer", 25.6),
        ("ida-twonorm", 2.2),
    ],
)
def test_rows_of_jmlr_table_2(name, printed):
    """Best width in hindsight for each realization, as the paper did."""
    widths = ["4*mean", "2*mean", "mean", "mean/2", "mean/4"]
    best = []
    for realization in range(1, 11):
        data = load(name, realization=realization)
        errors = []
        for sigma in widths:
            model = quiet_fit(SoftLabelMVC(mode="paper", affinity="gaussian", sigma=sigma), data.X)
            errors.append(clustering_error(data.y, model.labels_))
        best.append(min(errors))
    assert 100 * np.mean(best) == pytest.approx(printed, abs=2.6)


def test_it_starts_where_spectral_clustering_ends():
    """On the same graph, the gain from the refinement is visible on noisy moons."""
    errors = np.zeros(2)
    for seed in range(3):
        X, y = make_two_moons(3000, noise=0.2, random_state=seed)
        models = (NormalizedSpectralClustering(random_state=0), SoftLabelMVC())
        errors += [clustering_error(y, quiet_fit(model, X).labels_) for model in models]
    assert errors[1] < errors[0]
