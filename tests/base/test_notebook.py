"""The display of trees and tests in a notebook."""

from html.parser import HTMLParser

import numpy as np
import pytest

from volmar import MSPC, AutoClusterer
from volmar._notebook import MOST_ROWS, html_card
from volmar.datasets import make_blobs
from volmar.diagnostics import stability
from volmar.evidence import label_test, split_test

VOID = {"br", "img", "meta", "link", "input", "hr"}


class Checked(HTMLParser):
    """Reads HTML whose tags must close in order; keeps text, tags and attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.tags, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


@pytest.fixture(scope="module")
def X():
    return make_blobs(300, centers=3, n_features=3, random_state=0)[0]


def shown(thing):
    page = Checked(thing._repr_html_())
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href")]
    assert len(repr(thing)) < 100
    assert "\n" not in repr(thing)
    return " ".join(page.text)


@pytest.mark.parametrize("n_clusters", ["auto", 1, 4])
def test_trees(X, n_clusters):
    kind = AutoClusterer if n_clusters == "auto" else MSPC
    if n_clusters == 1:
        kind, X = AutoClusterer, np.random.default_rng(0).normal(size=(200, 2))
    model = kind(n_clusters, random_state=0).fit(X)
    text = shown(model.tree_)
    for node in model.tree_.nodes():
        assert (f"cluster {node.label}" if node.is_leaf else f"split {node.rank}") in text
        assert node.p_text in text
        assert len(repr(node)) < 60
    assert ("Level" in text) == (n_clusters != 4)
    assert ("one cluster" in text) == (n_clusters == 1)


def test_names_are_escaped():
    pd = pytest.importorskip("pandas")
    X, _ = make_blobs(200, centers=3, n_features=2, random_state=0)
    frame = pd.DataFrame(X, columns=["<script>alert(1)</script>", "a & b"])
    tree = MSPC(3, random_state=0).fit(frame).tree_
    assert "<script" not in tree._repr_html_()
    text = shown(tree)
    assert "<script>alert(1)</script>" in text
    assert "a & b" in text


def test_tests_of_splits(X):
    real = split_test(X, random_state=0)
    assert str(real) in shown(real)
    noise = np.random.default_rng(0).normal(size=(200, 3))
    none = split_test(noise, random_state=0)
    assert str(none) in shown(none)
    assert "is_real=False" in repr(none)


def test_tests_of_labels(X):
    labels = np.array(["<a>", "b", "c"])[MSPC(3, random_state=0).fit_predict(X)]
    labels[:2] = "tiny"
    found = label_test(X, labels, random_state=0)
    text = shown(found)
    assert found.summary in text
    assert "too small to test" in text
    assert "<a>" not in found._repr_html_()


def test_stability(X):
    found = stability(X, MSPC(3), n_resamples=3, random_state=0)
    text = shown(found)
    assert str(found) in text
    assert "cluster 2" in text


def test_long_tables_are_cut():
    page = html_card("Kind", [], ["a"], [[i] for i in range(MOST_ROWS + 7)])
    assert page.count("<tr>") == MOST_ROWS + 1
    assert "7 more rows are not shown" in page
