"""The benchmark of embeddings: its rivals, and its tables on tiny data."""

import importlib
import sys
import time

import numpy as np
import pytest
from helpers import ROOT
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.metrics import adjusted_rand_score


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def _busy(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


def three_directions(n=90, seed=0):
    """Return rows along three directions, of lengths between 1 and 10."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = np.eye(5)[y] + rng.normal(0, 0.05, (n, 5))
    return (X * rng.uniform(1, 10, (n, 1))).astype(np.float32), y


def test_rivals_label_every_row():
    rivals = importlib.import_module("benchmarks.rivals").EMBEDDINGS
    X, y = three_directions()
    for rival in rivals:
        labels = rival.fit_predict(X, 3, 0)
        assert labels.shape == y.shape
        assert set(labels) <= {0, 1, 2}


def test_spherical_k_means_finds_directions_and_ends_at_a_fixed_point():
    rival = importlib.import_module("benchmarks.rivals.spherical_k_means")
    X, y = three_directions()
    labels = rival.fit_predict(X, 3, 0)
    assert adjusted_rand_score(y, labels) == 1.0
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    centers = np.stack([unit[labels == c].sum(axis=0) for c in range(3)])
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    np.testing.assert_array_equal((unit @ centers.T).argmax(axis=1), labels)
    assert rival.lloyd_on_sphere(unit, centers)[1] == pytest.approx(
        (unit * centers[labels]).sum(), rel=1e-5
    )


def test_spherical_k_means_fills_empty_clusters():
    rival = importlib.import_module("benchmarks.rivals.spherical_k_means")
    X, _ = three_directions()
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    labels, _ = rival.lloyd_on_sphere(unit, np.stack([unit[0], unit[1], -unit[0]]))
    assert len(np.unique(labels)) == 3


def test_gradient_of_turtle_agrees_with_finite_differences():
    turtle = importlib.import_module("benchmarks.rivals.turtle")
    rng = np.random.default_rng(0)
    views = [turtle.with_intercept(rng.normal(size=(12, d))) for d in (3, 4)]
    theta = [(rng.uniform(0.5, 2, 3), rng.normal(size=(3, z.shape[1]))) for z in views]
    targets = turtle.soft_labels(theta, views)[0]
    inner = [turtle.learnt_classifier(z, targets) for z in views]
    gradients = turtle.outer_loss(theta, inner, views)[1]
    for pair, found in zip(theta, gradients, strict=True):
        for array, gradient in zip(pair, found, strict=True):
            for place in np.ndindex(array.shape):
                kept = array[place]
                values = []
                for step in (1e-5, -1e-5):
                    array[place] = kept + step
                    values.append(turtle.outer_loss(theta, inner, views)[0])
                array[place] = kept
                wanted = (values[0] - values[1]) / 2e-5
                assert gradient[place] == pytest.approx(wanted, rel=1e-5, abs=1e-8)


def test_outer_loss_of_turtle_is_the_formula():
    turtle = importlib.import_module("benchmarks.rivals.turtle")
    rng = np.random.default_rng(1)
    z = turtle.with_intercept(rng.normal(size=(10, 3)))
    theta, w = [(rng.uniform(0.5, 2, 2), rng.normal(size=(2, 4)))], rng.normal(size=(2, 4))
    lengths, directions = theta[0]
    slopes = directions[:, :3] * (lengths / np.linalg.norm(directions[:, :3], axis=1))[:, None]
    scores = z[:, :3] @ slopes.T + directions[:, 3]
    tau = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    p = np.exp(z @ w.T) / np.exp(z @ w.T).sum(axis=1, keepdims=True)
    share = tau.mean(axis=0)
    wanted = -(tau * np.log(p)).sum() / 10 + 10.0 * (share * np.log(share)).sum()
    assert turtle.outer_loss(theta, [w], [z])[0] == pytest.approx(wanted)


def test_turtle_separates_far_groups_from_one_view_or_two():
    turtle = importlib.import_module("benchmarks.rivals.turtle")
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    views = [np.eye(3)[y] * 8 + rng.normal(size=(120, 3)) for _ in range(2)]
    for given in (views[:1], views):
        labels = turtle.labels_of_views(given, 3, 0, n_steps=200)
        assert adjusted_rand_score(y, labels) == 1.0


def test_every_contender_has_its_line():
    bench = importlib.import_module("benchmarks.bench_embeddings")
    names = [one.name for one in bench.contenders()]
    assert len(set(names)) == len(names)
    assert {"CPMMC", "MSPC", "SoftLabelMVC", "KernelCPMMC", "HDBSCAN"} <= set(names)


def test_unit_norm_is_a_line_of_its_own(monkeypatch):
    bench = importlib.import_module("benchmarks.bench_embeddings")

    class Norms(ClusterMixin, BaseEstimator):
        """Label rows by their rounded norms."""

        def __init__(self, n_clusters=2, *, random_state=None):
            self.n_clusters, self.random_state = n_clusters, random_state

        def fit(self, X, y=None):
            self.labels_ = np.linalg.norm(X, axis=1).round().astype(int)
            return self

    monkeypatch.setattr(bench, "OURS", {Norms: np.inf})
    plain, unit = bench.contenders()[-2:]
    assert (plain.name, unit.name) == ("Norms", "Norms, unit norm")
    X = np.full((3, 1), 4.0)
    assert plain.labels(X, 2, 0).tolist() == [4, 4, 4]
    assert unit.labels(X, 2, 0).tolist() == [1, 1, 1]


def test_table_of_tiny_sets_marks_what_took_too_long():
    bench = importlib.import_module("benchmarks.bench_embeddings")
    rivals = importlib.import_module("benchmarks.rivals")
    X, y = three_directions()
    methods = [
        bench.Contender(rivals.kmeans.NAME, rivals.kmeans.fit_predict),
        bench.Contender("right", lambda X, k, seed: y),
        bench.Contender("slow", lambda X, k, seed: _busy(5.0)),
        bench.Contender("few", lambda X, k, seed: y, most_rows=10),
    ]
    table = bench.compare({"tiny": lambda: (X, y)}, methods, range(2), 0.3)
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["right"][:4] == ("1.000",) * 4
    assert cells[rivals.kmeans.NAME][-1] == "1.00"
    assert cells["slow"] == cells["few"] == ("-",) * 5
    assert "few above 10 rows" in table.render()


def test_generated_groups_are_unequal_and_float32():
    data = importlib.import_module("benchmarks.embedding_data")
    X, y = data.make_groups(2000, 30, 5, 4, seed=0)
    assert X.shape == (2000, 30)
    assert X.dtype == np.float32
    sizes = np.bincount(y, minlength=5)
    assert sizes[0] > sizes[4] > 0
    again, _ = data.make_groups(2000, 30, 5, 4, seed=0)
    np.testing.assert_array_equal(X, again)


def test_sets_without_the_data_folder(monkeypatch):
    data = importlib.import_module("benchmarks.embedding_data")
    monkeypatch.setattr(data, "data_folder", lambda: None)
    found, missing = data.sets(full=True)
    assert list(found) == ["digits"]
    assert len(missing) == len(data.FULL) - 1
    X, y = found["digits"]()
    assert X.dtype == np.float32
    assert X.shape == (1797, 64)
    assert X.max() == 1.0
    assert y.shape == (1797,)
