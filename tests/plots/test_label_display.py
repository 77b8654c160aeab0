"""The picture of `label_test`: what is drawn is what was tested."""

import numpy as np
import pytest
from helpers.label_tests import chain, three

from volmar.evidence import label_test
from volmar.plots import LabelTestDisplay
from volmar.plots.label_joins import MERGED, SEPARATED

pytestmark = pytest.mark.usefixtures("figures")


def test_every_join_is_drawn_in_the_style_of_its_outcome():
    X, y = three()
    labels = np.array(["$left", "right", "a name of more than thirty letters, by far"])[y]
    labels[(y == 1) & (X[:, 1] > 0)] = "half"
    result = label_test(X, labels, random_state=0)
    display = LabelTestDisplay(result).plot()
    lines = display.ax_.get_lines()
    assert [line.get_linestyle() for line in lines] == [
        (SEPARATED if join.is_real else MERGED)["ls"] for join in result.tree
    ]
    assert sum(line.get_linestyle() == "--" for line in lines) == 1
    assert [text.get_text() for text in display.ax_.texts] == [
        f"p = {p:.2g}" for p in result.p_values
    ]
    ticks = [tick.get_text() for tick in display.ax_.get_yticklabels()]
    assert "$left (200 rows)" in ticks
    assert "a name of more than thirty le… (200 rows)" in ticks
    # Merged clusters are neighbours, and joined by the line between them.
    first, second = result.tree[0].tested
    places = dict(zip(ticks, display.ax_.get_yticks(), strict=True))
    sizes = dict(zip(result.clusters, result.sizes, strict=True))
    ends = [places[f"{name} ({sizes[name]} rows)"] for name in (first[0], second[0])]
    assert abs(ends[0] - ends[1]) == 1
    assert sorted(set(lines[0].get_ydata())) == sorted(ends)
    assert display.ax_.get_title() == "4 clusters, 3 separated groups"
    display.figure_.canvas.draw()


def test_joins_are_right_of_those_below_them():
    result = chain(6)
    lines = LabelTestDisplay(result).plot().ax_.get_lines()
    for line in lines:
        x = line.get_xdata()
        assert x[1] == x[2] == 1 + max(x[0], x[3])


def test_a_long_chain_and_a_single_cluster_can_be_drawn():
    from matplotlib import pyplot

    display = LabelTestDisplay(chain(500)).plot()
    assert len(display.ax_.get_lines()) == 499
    assert not display.ax_.texts
    assert display.ax_.get_ylabel() == "500 clusters"
    display.figure_.canvas.draw()
    X, _ = three(n=100)
    ax = pyplot.figure().add_subplot()
    labels = np.where(np.arange(100) < 90, "most", "few")
    display = LabelTestDisplay.from_labels(X, labels, ax=ax, random_state=0)
    assert display.ax_ is ax
    assert ax.get_title() == "1 cluster, one group"
    display.figure_.canvas.draw()
