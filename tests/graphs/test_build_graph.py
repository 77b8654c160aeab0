"""Graphs of estimators: affinities by name, as recipes and as functions."""

from functools import partial

import numpy as np
import pytest
from helpers.points import BOTH, points
from sklearn.metrics.pairwise import rbf_kernel

from volmar import NormalizedCut
from volmar.datasets import make_two_moons
from volmar.graphs import nearest_neighbors_similarity
from volmar.graphs.graph import build_graph, make_similarity
from volmar.graphs.similarities import CallableSimilarity, GaussianSimilarity
from volmar.metrics import clustering_error


class Recipe:
    """A recipe that is also callable, but must not be called."""

    def build(self, X):
        return GaussianSimilarity(sigma=1.0).build(X)

    def __call__(self, X, Y):
        raise AssertionError("the recipe wins")


def test_recipes_win_over_callables_and_classes_are_refused():
    X = points(0)
    recipe = Recipe()
    assert make_similarity(recipe) is recipe
    expected = GaussianSimilarity(sigma=1.0).build(X)[0]
    np.testing.assert_array_equal(build_graph(X, recipe).W, expected)
    for bad in (GaussianSimilarity, Recipe, dict):
        for build in (make_similarity, partial(build_graph, X), partial(build_graph, X, sigma=1)):
            with pytest.raises(TypeError, match=rf"not a class. Use {bad.__name__}\(\)"):
                build(bad)
        with pytest.raises(TypeError, match=rf"function must be a callable.*got {bad.__name__}"):
            CallableSimilarity(bad)
    for bad in (3, None):
        with pytest.raises(TypeError, match=r"^affinity .*object"):
            make_similarity(bad)
    with pytest.raises(TypeError, match=r"^function .*got float"):
        CallableSimilarity(0.5)


def test_parameters_beside_a_callable_are_refused():
    X = points(0)
    for params in ({"sigma": 1.0}, {"n_neighbors": 3}):
        (name,) = params
        with pytest.raises(ValueError, match=f"{name} cannot be given with a callable affinity"):
            NormalizedCut(affinity=rbf_kernel, **params).fit(X)
        with pytest.raises(ValueError, match=f"{name} cannot be given.*set it there, in Recipe"):
            NormalizedCut(affinity=Recipe(), **params).fit(X)
    with pytest.raises(TypeError, match=r"^affinity .*functools\.partial"):
        make_similarity(rbf_kernel, gamma=2.0)
    with pytest.raises(ValueError, match=r"^sigma=1\.0"):
        NormalizedCut(affinity="nearest_neighbors", sigma=1.0).fit(X)


def test_names_stand_in_the_messages():
    with pytest.raises(ValueError, match="nearest_neighbors; got 'rbf'"):
        make_similarity("rbf")
    with pytest.raises(ValueError, match=r"^affinity .*'nearest_neighbors'"):
        build_graph(points(0), "rbf")
    with pytest.raises(ValueError, match="or 'cosine_knn' or 'nearest_neighbors'"):
        build_graph(points(0), "gaussian", n_neighbors=3)


@pytest.mark.parametrize("method", BOTH)
def test_estimators_cut_the_nearest_neighbor_graph(method):
    X, y = make_two_moons(300, random_state=0)
    model = method(affinity="nearest_neighbors", random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.01
    X_new, y_new = make_two_moons(200, random_state=1)
    assert clustering_error(y_new, model.predict(X_new)) < 0.02
    W = nearest_neighbors_similarity(X)
    same = method(affinity="precomputed", random_state=0).fit(W)
    np.testing.assert_array_equal(same.labels_, model.labels_)


def test_n_neighbors_reaches_the_graph():
    X = points(0)
    for k in (3, 9):
        expected = nearest_neighbors_similarity(X, n_neighbors=k)
        graph = build_graph(X, "nearest_neighbors", n_neighbors=k)
        np.testing.assert_array_equal(graph.W.toarray(), expected.toarray())


def test_few_rows_take_all_others_as_neighbors():
    graph = build_graph(points(0, n=4), "nearest_neighbors")
    np.testing.assert_array_equal(graph.W.toarray(), 1 - np.eye(4))
