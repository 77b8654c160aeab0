"""The sentences of the report of a clustering."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.outcomes import HOSTILE, Hyperplane, outcome_of, section, simple, two_groups, written
from sklearn.cluster import KMeans

pytest.importorskip("jinja2")

from volmar import CPMMC, MSPC, AutoClusterer
from volmar.base import SplitTree
from volmar.base.tree import SplitNode
from volmar.diagnostics import describe_clusters
from volmar.report.outcome import BestSplit, Evidence
from volmar.solvers import Result, Status


def test_the_answer_and_its_key_figures(tmp_path):
    page = written(simple(n_rows=150, n_columns=3), tmp_path)
    assert "The 120 rows fall into two clusters, of 40 and 80 rows." in page.words
    assert "of 150 in the source" in page.words
    assert "4 features made from them" in page.words
    assert "Strong evidence" in page.words.replace("strong", "Strong")
    assert "volmar cluster flowers.csv --seed 3" in page.words
    for name in ("volmar", "numpy", "scikit-learn", "Python", "seed"):
        assert name in page.words


@pytest.mark.parametrize(
    ("p", "word", "warned"),
    [
        (0.00002, "very strong", False),
        (0.005, "strong", False),
        (0.03, "fair", False),
        (0.4, "weak", True),
        (None, "not tested", False),
    ],
)
def test_evidence_in_words(tmp_path, p, word, warned):
    page = written(simple(evidence=[Evidence("p-value", p, "As it is.")] if p else []), tmp_path)
    assert f"Evidence {word}" in page.words
    assert ("Weak evidence (" in page.words) == warned
    assert ("see the warnings" in page.words) == warned


def test_no_split(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 5))
    model = AutoClusterer(random_state=0).fit(X)
    assert np.ptp(model.labels_) == 0
    evidence = [Evidence("p-value", 0.63, "No gap.")]
    page = written(outcome_of(X, model, evidence=evidence, quality=[]), tmp_path)
    assert "No evidence for more than one group (p = 0.63)." in page.words
    assert "The 200 rows stay in one cluster" in page.words
    assert "The best split in two" not in page.words
    assert "data-toggle" not in [name for _, name, _ in page.attributes]
    assert 'class="plain"' in page.html
    assert "Columns that drive" not in page.words
    assert "How the clusters differ" not in page.words
    assert len(page.data["points"]) == 200


@pytest.mark.parametrize("n", [2, 3, 7])
def test_few_rows(tmp_path, n):
    X = np.arange(2.0 * n).reshape(n, 2) - n
    page = written(simple(X=X), tmp_path)
    assert len(page.data["points"]) == n
    assert "Few rows" in page.words
    for d in (1, 3):
        written(simple(X=np.linspace(-1, 1, n)[:, None] * np.arange(1, d + 1)), tmp_path)
        constant = outcome_of(np.ones((n, d)), Hyperplane(np.ones(d)), evidence=[])
        written(constant, tmp_path)


def test_twenty_clusters(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    scores = rng.normal(size=(400, 20))
    labels = scores.argmax(axis=1)
    page = written(outcome_of(X, SimpleNamespace(), labels, scores), tmp_path)
    assert "The 400 rows fall into 20 clusters" in page.words
    assert len([a for a in page.attributes if a[1] == "data-toggle"]) == 20
    # Colour and shape of no two clusters are the same.
    looks = re.findall(r'<button.*?class="swatch (f\d)".*?href="(#s\d)"', page.html)
    assert len(looks) == len(set(looks)) == 20


def test_a_tree_of_tested_splits(tmp_path):
    X = np.random.default_rng(0).normal(size=(450, 3))
    X[:150, 0] += 12
    X[150:300, 1] += 9
    model = AutoClusterer(random_state=0).fit(X)
    assert model.tree_.n_leaves == 3
    page = written(outcome_of(X, model, evidence=[]), tmp_path)
    assert "Every split was confirmed" in page.words
    assert "Split 2" in page.words
    first, *_ = model.tree_.splits()
    assert first.grade == "confirmed"
    assert f"450 rows · {first.evidence_text}" in page.words
    assert "150 rows · not split further: p = " in page.words
    # The level is the same at every depth, and no hyperplane of columns is claimed.
    assert page.words.count("not split further: p = ") == 3
    assert len(re.findall(r"\d+ rows · [^·]*?p .*?, level 0\.05", page.words)) == 5
    assert "by column" not in page.words[page.words.index("The tree of splits") :]
    page = written(outcome_of(X, MSPC(3, random_state=0).fit(X), evidence=[]), tmp_path)
    assert "by column" in page.words[page.words.index("The tree of splits") :]


def test_the_level_of_the_tree_is_the_one_that_was_used(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 3))
    X[:150, 0] += 12
    model = AutoClusterer(alpha=0.01, random_state=0).fit(X)
    page = written(outcome_of(X, model, evidence=[]), tmp_path)
    assert "at most its level, which is 1 %" in page.words


@pytest.mark.parametrize("p", [0.005, None])
def test_the_page_does_not_claim_a_test_that_was_not_made(tmp_path, p):
    evidence = [] if p is None else [Evidence("p-value", p, "Tested.")]
    page = written(simple(evidence=evidence), tmp_path)
    assert ("Sizes, evidence, solver" in page.words) is (p is not None)
    assert ("the evidence was not tested" in page.words) is (p is None)


@pytest.mark.parametrize("depth", [2, 3000])
def test_a_tree_of_any_depth(tmp_path, depth):
    """A chain of splits, deeper than Python's stack: lists are closed where they end."""
    node = SplitNode(n_rows=1, weight=1.0, label=0)
    for rank in range(depth, 0, -1):
        other = SplitNode(n_rows=1, weight=1.0, label=1)
        node = SplitNode(n_rows=2, weight=2.0, rank=rank, probability=0.9, children=(node, other))
    model = Hyperplane([1.0, 0, 0, 0])
    model.tree_ = SplitTree(node)
    page = written(simple(model=model), tmp_path)
    assert f"Split {depth} 2 rows" in page.words
    listed = page.html[page.html.index('<div class="tree">') : page.html.index('id="certificate"')]
    for tag in ("ul", "li"):
        assert listed.count(f"<{tag}>") == listed.count(f"</{tag}>") > depth


def test_the_best_split_if_one_insists(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 5))
    two = MSPC(2, random_state=0).fit(X)
    split = BestSplit(two, two.labels_, two.decision_function(X), "volmar cluster <x> -k 2")
    outcome = outcome_of(
        X,
        SimpleNamespace(),
        np.zeros(200, dtype=int),
        np.zeros(200),
        evidence=[Evidence("p-value", 0.63, "No gap.")],
        quality=[],
        best_split=split,
    )
    page = written(outcome, tmp_path)
    assert "No evidence for more than one group (p = 0.63)." in page.words
    assert "The best split in two, without evidence" in page.words
    assert "Not supported by the evidence" in page.words
    sizes = np.bincount(two.labels_)
    assert f"Its two sides have {sizes[0]} and {sizes[1]} rows" in page.words
    assert "volmar cluster <x> -k 2" in page.words
    assert outcome.in_two().k == 2
    assert outcome.k == 1


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (Result(200.0, gap=0.6), "within 0.3 % of the best possible."),
        (Result(200.0, gap=0.0), "within 0.01 % of the best possible."),
        (Result(200.0), "Not proved No bound on the best possible solution"),
        (Result(1.0, status=Status.DEGENERATE), "does not determine a unique solution"),
        (None, "No certificate"),
    ],
)
def test_certificate_in_words(tmp_path, result, words):
    page = written(simple(model=Hyperplane([0.25, 0, 0, 0], result=result)), tmp_path)
    assert words in page.words
    is_early = result is not None and not result.status.ok
    warned = "The solver did not finish normally: " in section(page, "warnings")
    assert warned == is_early


def test_a_margin_is_certified_for_its_labels(tmp_path):
    X = two_groups()
    model = CPMMC(random_state=0).fit(X)
    page = written(outcome_of(X, model), tmp_path)
    assert "of the best possible for these labels" in page.words
    marks = re.findall(r'class="mark-label".*?>(.*?)<', page.html)
    assert marks == ["margin", "border", "margin"]


def test_fewer_clusters_than_asked_for(tmp_path):
    page = written(simple(n_found=3), tmp_path)
    assert "fall into two clusters" in page.words
    assert "Only 2 of 3 clusters have any rows." in page.words
    alone = simple(labels=np.zeros(120, dtype=int), n_found=2)
    page = written(alone, tmp_path)
    assert "All 120 rows are in one cluster." in page.words
    assert "Only 1 of 2 clusters has any rows." in page.words


def test_nothing_was_split_and_there_is_no_model(tmp_path):
    X = two_groups()
    evidence = [Evidence("p-value", None, "120 rows are too few to test.")]
    zeros = np.zeros(120, dtype=int)
    outcome = outcome_of(X, None, zeros, zeros, evidence=evidence, quality=[], method="MSPC")
    page = written(outcome, tmp_path)
    assert "120 rows are too few to test." in page.words
    assert "Nothing to solve" in page.words


def test_warnings_of_its_own(tmp_path):
    X = two_groups(200)
    labels = np.zeros(200, dtype=int)
    labels[:5] = 1
    unstable = [Evidence("stability", 0.3, "They change.")]
    page = written(simple(X=X, labels=labels, evidence=unstable, warnings=["Mind."]), tmp_path)
    assert "Three things to know" in page.words
    for words in ("Mind.", "cluster 1 has less than 5 % of the rows", "Unstable:"):
        assert words in page.words


def test_means_are_in_the_units_of_the_source(tmp_path):
    offsets, scales = np.array([100.0, 0, 0, 0]), np.array([10.0, 1, 1, 1])
    plain = simple()
    page = written(dataclasses.replace(plain, offsets=offsets, scales=scales), tmp_path)
    for label in (0, 1):
        mean = 100 + 10 * plain.X[plain.labels == label, 0].mean()
        assert f"{mean:.1f}" in page.words
    assert "the units of the source" in page.words


def test_what_sets_two_clusters_apart_is_shown_once(tmp_path):
    page = written(simple(), tmp_path)
    words = section(page, "apart")
    assert "Differences of cluster 0 from cluster 1" in words
    # In the names of both clusters, and once as a row.
    assert words.count("low column 0") == words.count("high column 0") == 1
    assert words.count("column 0") == 3
    assert "✓ real" not in words
    assert "was not tested" in words
    typical = describe_clusters(page.outcome.X, page.outcome.labels).typical
    for rows in typical:
        assert "typical: row " + ", ".join(map(str, rows)) in words


def test_what_is_real_is_marked(tmp_path):
    outcome = simple(X=two_groups(240))
    description = describe_clusters(
        outcome.X,
        outcome.labels,
        estimator=KMeans(2, n_init=2, random_state=0),
        feature_names=outcome.feature_names,
        random_state=0,
    )
    page = written(dataclasses.replace(outcome, description=description), tmp_path)
    words = section(page, "apart")
    # Once in the text above, and once for each real difference.
    assert words.count("✓ real") == 1 + description.real[0].sum()
    assert "column 0 ✓ real" in words
    assert description.note in words


def test_categories_missing_values_and_noise_are_described(tmp_path):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(c, 1, (80, 2)) for c in (-8, 0, 8)])
    labels = np.repeat([0, 1, 2], 80)
    labels[::40] = -1
    size = pd.Categorical.from_codes(np.repeat([0, 1, 2], 80), ["S", "M", "L"], ordered=True)
    frame = pd.DataFrame(
        {
            HOSTILE: np.where(np.arange(240) < 80, "red", "blue"),
            "size": size,
            "age": np.where(np.arange(240) < 160, rng.normal(40, 9, 240), np.nan),
        }
    )
    description = describe_clusters(frame, labels)
    outcome = outcome_of(X, SimpleNamespace(), labels, rng.normal(size=(240, 4)))
    page = written(dataclasses.replace(outcome, description=description), tmp_path)
    words = section(page, "apart")
    assert f"{HOSTILE} = red" in words
    assert "age is missing" in words
    assert "100 % 0 %" in words
    assert "6 rows of noise" in words
    assert re.search(r"size .*? S L", words) or re.search(r"size .*? S M", words)
    assert page.tags.count("script") == 2
