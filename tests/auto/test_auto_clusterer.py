"""AutoClusterer: the number of clusters, their shapes, and what must not change them."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from volmar import AutoClusterer
from volmar.datasets import make_blobs, make_two_circles, make_two_moons


def fit(X, *args, seed=0, **params):
    return AutoClusterer(*args, random_state=seed, **params).fit(X)


def ring(rng, n, noise=0.1):
    angle = 2 * np.pi * rng.random(n)
    return np.c_[np.cos(angle), np.sin(angle)] + noise * rng.normal(size=(n, 2))


def test_curved_groups_are_found():
    for make in (make_two_moons, make_two_circles):
        X, y = make(500, noise=0.05, random_state=0)
        model = fit(X)
        assert model.n_clusters_ == 2, make.__name__
        assert adjusted_rand_score(y, model.labels_) > 0.95


def test_a_grid_of_groups_is_found_at_once():
    y = np.repeat(np.arange(16), 40)
    X = 6.0 * np.c_[y // 4, y % 4] + np.random.default_rng(0).normal(size=(640, 2))
    model = fit(X)
    assert model.n_clusters_ == 16
    assert adjusted_rand_score(y, model.labels_) > 0.95


def test_groups_in_one_of_many_columns_are_found_by_a_hyperplane():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 500)
    X = rng.normal(size=(1000, 20))
    X[:, 7] += 5.0 * y
    model = fit(X)
    assert model.n_clusters_ == 2
    assert adjusted_rand_score(y, model.labels_) > 0.9
    assert fit(X, shapes="curved").n_clusters_ == 1


@pytest.mark.parametrize("noise_columns", [0, 8])
def test_single_pieces_stay_whole(noise_columns):
    """A ring has two modes in every direction, and a valley in none along itself."""
    n_split = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        angle = 1.5 * np.pi * rng.random(600)
        arc = np.c_[np.cos(angle), np.sin(angle)] + 0.1 * rng.normal(size=(600, 2))
        for piece in (rng.normal(size=(600, 2)), ring(rng, 600), arc, rng.random((600, 2))):
            X = np.c_[piece, piece.std() * rng.normal(size=(600, noise_columns))]
            n_split += fit(X, seed=seed).n_clusters_ > 1
    assert n_split <= 2


def test_columns_that_are_not_groups():
    """Heaps, top codes, shares of zeros, shared values and codes are no clusters."""
    n_split = {}
    for seed in range(3):
        rng, n = np.random.default_rng(seed), 1000
        inches = rng.normal(68, 4, n)
        inches[150:] = inches[150:].round()
        top = np.c_[np.minimum(rng.exponential(8, n).astype(int), 20), rng.lognormal(11, 0.5, n)]
        hours = np.where(
            rng.random(n) < 0.02, rng.integers(0, 24, n), rng.choice([0, 6, 12, 18], n)
        )
        zeros = np.where(rng.random(n) < 0.4, 0, rng.lognormal(8.5, 0.8, n).round(-2))
        group = rng.integers(0, 40, n)
        shared = rng.normal((60, 50), (20, 15), (40, 2)).round()[group]
        tables = {
            "heaped": inches[:, None],
            "top-coded": top,
            "calendar": np.c_[hours, rng.normal(size=(n, 2))],
            "zero-inflated": np.c_[zeros, rng.normal(45, 12, n)],
            "shared": np.c_[rng.lognormal(5, 0.6, n), shared],
            "codes": rng.choice([3.0, 6.0, 7.0], (n, 3)),
        }
        for name, X in tables.items():
            n_split[name] = n_split.get(name, 0) + (fit(X, seed=seed).n_clusters_ > 1)
    assert sum(n_split.values()) <= 1, n_split


def test_the_number_cuts_the_same_tree():
    X, y = make_blobs(600, centers=4, n_features=3, random_state=1)
    auto = fit(X)
    assert auto.n_clusters_ == 4
    again = fit(X, 4)
    assert np.array_equal(auto.labels_, again.labels_)
    two = fit(X, 2)
    # No cluster of the finer partition is cut by the coarser one.
    assert all(np.unique(two.labels_[auto.labels_ == j]).size == 1 for j in range(4))
    for k in (1, 3, 7, 20):
        model = fit(X, k)
        assert model.n_clusters_ == np.unique(model.labels_).size == k
    assert adjusted_rand_score(y, auto.labels_) > 0.95


def test_the_tree_has_effects_and_grades():
    X, _ = make_two_moons(400, noise=0.05, random_state=0)
    tree = fit(X).tree_
    (split,) = tree.splits()
    assert split.grade == "confirmed"
    assert split.effect > 0.5
    assert split.p_value <= 0.05
    assert all(leaf.grade != "confirmed" for leaf in tree.leaves())
    assert "confirmed" in str(tree)


@pytest.mark.parametrize("change", ["rows", "columns", "scale", "shift", "float32", "sparse"])
def test_what_must_not_change_the_clusters(change):
    X, y = make_two_moons(400, noise=0.05, random_state=2)
    order = np.random.default_rng(0).permutation(len(X))
    changed = {
        "rows": X[order],
        "columns": X[:, ::-1],
        "scale": 7.3e5 * X,
        "shift": X + 1e3,
        "float32": X.astype(np.float32),
        "sparse": sparse.csr_array(X),
    }[change]
    labels = fit(changed).labels_
    assert adjusted_rand_score(y[order] if change == "rows" else y, labels) > 0.95


def test_units_of_columns_do_not_matter():
    X, y = make_blobs(500, centers=3, n_features=4, random_state=0)
    labels = fit(X * [1.0, 1e3, 1e-3, 1.0]).labels_
    assert adjusted_rand_score(y, labels) > 0.95


def test_scores_agree_with_predictions():
    X, _ = make_blobs(500, centers=4, n_features=3, random_state=0)
    model = fit(X)
    scores = model.decision_function(X)
    assert scores.shape == (500, 4)
    assert np.array_equal(np.argmax(scores, axis=1), model.predict(X))
    assert np.array_equal(model.labels_, model.predict(X))
    two = fit(X, 2)
    assert np.array_equal(two.decision_function(X) > 0, two.predict(X) == 1)
    assert not fit(X, 1).decision_function(X).any()


def test_known_labels_links_and_sizes():
    X, y = make_blobs(300, centers=3, random_state=0)
    known = np.array([f"group {label}" for label in y], dtype=object)
    known[30:] = -1
    model = AutoClusterer(random_state=0).fit(X, known)
    assert set(model.classes_) == {"group 0", "group 1", "group 2"}
    assert (model.labels_[:30] == known[:30]).all()
    groups = np.full(300, -1)
    groups[[0, 1]] = 5
    linked = AutoClusterer(3, random_state=0).fit(X, must_link=groups)
    assert linked.labels_[0] == linked.labels_[1]
    sizes = np.bincount(fit(X, 3, max_cluster_size=100).labels_)
    assert sizes.max() <= 100
    refit = model.fit(X)
    assert not hasattr(refit, "classes_")


def test_many_rows_and_small_groups():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 2))
    X[:150] += [7.0, 0.0]
    model = fit(X)
    assert model.n_clusters_ == 2
    assert abs(np.bincount(model.labels_)[1] - 150) <= 15


def test_a_few_rows():
    assert fit([[0.0, 1.0]]).n_clusters_ == 1
    assert fit(np.ones((50, 3))).n_clusters_ == 1
    y = np.arange(39) % 2
    X = 12.0 * y[:, None] + np.random.default_rng(0).normal(size=(39, 2))
    assert fit(X).n_clusters_ == 2  # no cliff at 40 rows
    assert adjusted_rand_score(y, fit(X).labels_) == 1.0
    assert fit(np.arange(6.0)[:, None], 3).n_clusters_ == 3


def test_the_limit_is_reported():
    y = np.repeat(np.arange(9), 40)
    X = 8.0 * np.c_[y // 3, y % 3] + np.random.default_rng(0).normal(size=(360, 2))
    with pytest.warns(UserWarning, match="max_clusters=4"):
        assert fit(X, max_clusters=4).n_clusters_ == 4


def test_progress_ends_with_all_rows():
    X, _ = make_blobs(300, centers=3, random_state=0)
    told = []
    AutoClusterer(random_state=0).fit(X, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (300, 300)
    assert all(done <= total for done, total in told)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"n_clusters": "many"}, "n_clusters"),
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 500}, "n_clusters"),
        ({"shapes": "round"}, "shapes"),
        ({"alpha": 0.0}, "alpha"),
        ({"max_clusters": 0}, "max_clusters"),
        ({"min_cluster_size": -3}, "min_cluster_size"),
    ],
)
def test_errors_name_the_parameter(params, named):
    with pytest.raises((ValueError, TypeError), match=named):
        AutoClusterer(**params).fit(np.random.default_rng(0).normal(size=(60, 2)))
