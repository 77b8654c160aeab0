"""The border test: strips, binomial probabilities, and distances along the graph."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.stats import binom

from volmar.evidence.borders import (
    Borders,
    Strips,
    evidence_of_all,
    held_out_evidence,
    log_binomial,
    lower_effect,
    strip_widths,
    strips,
    vote,
)
from volmar.evidence.modes import Graph, mode_tree, neighbor_graph
from volmar.evidence.splits import mean_evidence, neighbors_of, partition_of


def borders(X, cells):
    tree = cKDTree(X)
    graph = neighbor_graph(X, neighbors_of(X))
    return Borders(X, graph, cells, lambda points: cells[tree.query(points)[1]])


def test_strips_are_counted_as_one_by_one():
    s = np.random.default_rng(0).normal(size=300)
    widths = np.array([0.05, 0.1, 0.3, 5.0])
    found = strips(s, widths)
    for j, h in enumerate(widths[:3]):
        assert found.centre[j] == np.sum((s >= -h) & (s < h))
        assert found.first[j] == np.sum((s >= -3 * h) & (s < -h))
        assert found.second[j] == np.sum((s >= h) & (s < 3 * h))
    assert found.centre[3] == -1  # wider than the median distance
    np.testing.assert_array_equal(found.sparser, np.minimum(found.first, found.second))


def test_the_probability_is_binomial():
    centre = np.array([0.0, 3.0, 20.0, 40.0])
    sides = np.array([10.0, 12.0, 30.0, 20.0])
    expected = binom.logcdf(centre, centre + sides, 0.5)
    np.testing.assert_allclose(log_binomial(Strips(centre, sides, sides + 5)), expected)
    assert log_binomial(Strips(*np.array([[0.0], [0.0], [9.0]]))) == 0
    assert log_binomial(Strips(*np.array([[-1.0], [-1.0], [-1.0]]))) == 0


def test_the_limit_of_the_effect():
    assert lower_effect(0, 0) == -1.0
    assert -1.0 <= lower_effect(50, 50) < 0 < lower_effect(0, 50) < 1.0
    assert lower_effect(0, 100) > lower_effect(0, 10) > lower_effect(3, 10)
    # The upper limit of the share in the strip is exceeded with a probability of 0.9.
    share = 1.0 - 1.0 / (2.0 - lower_effect(7, 40))
    assert binom.cdf(7, 47, share) == pytest.approx(0.1, abs=1e-6)


def test_the_clearest_width_counts():
    counts = Strips(*np.array([[5.0, 2.0, -1.0], [6.0, 30.0, -1.0], [9.0, 40.0, -1.0]]))
    p_value, effect = held_out_evidence(counts)
    assert p_value == pytest.approx(binom.cdf(2, 32, 0.5))
    assert effect == lower_effect(2, 30)
    assert mean_evidence([counts] * 4, 8).p_value >= p_value  # half of the halves
    assert mean_evidence([counts], 8) == (1.0, -1.0)


def test_distances_along_a_line():
    x = np.sort(np.random.default_rng(0).uniform(-1, 1, 400))
    cells = (x > 0).astype(np.int64)
    found = borders(x[:, None], cells).distances(np.array([-1, 1]))
    middle = 0.5 * (x[cells == 0].max() + x[cells == 1].min())
    np.testing.assert_allclose(found, x - middle, atol=0.01)
    # Rows on neither side have no distance.
    third = cells + (x > 0.5)
    assert borders(x[:, None], third).distances(np.array([-1, 1, 0])).size == np.sum(x <= 0.5)
    assert borders(x[:, None], third).distances(np.array([-1, 0, 1])).size == 0


def test_distances_along_an_arc_are_arc_lengths():
    angle = np.sort(np.random.default_rng(0).uniform(0, 1.9 * np.pi, 500))
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    place = angle.mean()
    found = borders(X, (angle > place).astype(np.int64)).distances(np.array([-1, 1]))
    far = np.abs(angle - place) > 0.3
    assert np.abs(found[far] / (angle - place)[far] - 1.0).max() < 0.1


def test_the_third_cell_on_an_edge():
    """A cell between the ends of an edge is shared by both."""
    X = np.array([[0.0], [10.0]])
    graph = Graph(np.array([0]), np.array([1]), np.array([10.0]))
    given = (
        X,
        graph,
        np.array([0, 1]),
        lambda at: np.where((at[:, 0] > 1) & (at[:, 0] < 9), 2, at[:, 0] > 5).astype(int),
    )
    first, second = Borders(*given).distances(np.array([-1, 1, 0]))
    assert -first < 2
    assert second > 8
    first, second = Borders(*given, is_shared=True).distances(np.array([-1, 1, 0]))
    assert -first == pytest.approx(second, rel=0.1)


def test_a_gap_and_a_cut_of_all_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    cells = (X[:, 0] > 0).astype(np.int64)
    of_cut = evidence_of_all(borders(X, cells), np.array([-1, 1]), 20.0)
    assert of_cut.p_value == 1.0
    assert of_cut.effect < 0.2
    X[:, 0] += 5.0 * cells
    of_gap = evidence_of_all(borders(X, cells), np.array([-1, 1]), 20.0)
    assert of_gap.p_value < 1e-6
    assert of_gap.effect > 0.8


def test_votes():
    labels = np.array([0, 1, 1, 2])
    neighbors = np.array([[0, 1, 2], [3, 0, 1], [1, 0, 2]])
    np.testing.assert_array_equal(vote(labels, neighbors, 3), [1, 2, 1])


def test_the_graph_is_connected_and_modes_are_few():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 50.0])
    graph = neighbor_graph(X, neighbors_of(X))
    assert (graph.a < graph.b).all()
    across = (graph.a < 100) != (graph.b < 100)
    assert across.any()
    assert graph.length[across].min() > 40
    tree = mode_tree(X)
    modes = {one.mode for one in tree.modes(5)}
    _, labels = tree.labels({max(tree.modes(5), key=lambda one: one.drop).mode})
    assert len(modes) >= 1
    assert np.unique(labels[:100]).size == np.unique(labels[100:]).size == 1
    part = partition_of(X, 5)
    np.testing.assert_array_equal(part.cell_of(X), part.cells)
    assert strip_widths(graph)[0] == pytest.approx(0.5 * np.median(graph.length))
