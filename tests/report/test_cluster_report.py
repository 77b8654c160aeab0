"""The HTML report of a clustering: what it says, what it holds, and how a browser shows it."""

import base64
import dataclasses
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.pages import Reader
from scipy import sparse
from sklearn.cluster import KMeans

pytest.importorskip("jinja2")

from volmar import CPMMC, MSPC, KernelCPMMC
from volmar.base import SplitTree
from volmar.base.tree import SplitNode
from volmar.datasets import make_two_moons
from volmar.diagnostics import describe_clusters
from volmar.report import figures
from volmar.report.cluster_page import write_report
from volmar.report.outcome import BestSplit, Evidence, Outcome, Score
from volmar.solvers import Result, Status

HOSTILE = "<script>alert(1)</script>"
ENDING = "</script><img src=x onerror=alert(2)>"
QUOTES = "\"quoted\" & 'single' <b>title</b>"


class Hyperplane:
    """Two clusters by the sign of a linear score."""

    def __init__(self, coef, intercept=0.0, result=None):
        self.coef_ = np.atleast_2d(np.asarray(coef, dtype=float))
        self.intercept_ = intercept
        if result is not None:
            self.result_ = result

    def decision_function(self, X):
        return np.ravel(X @ self.coef_[0]) + self.intercept_

    def predict(self, X):
        return (self.decision_function(X) > 0).astype(int)


def outcome_of(X, model, labels=None, scores=None, **changes):
    n, d = X.shape
    scores = model.decision_function(X) if scores is None else scores
    labels = model.predict(X) if labels is None else labels
    given = {
        "title": "Flowers",
        "command": "volmar cluster flowers.csv --seed 3",
        "asked": {"--n-clusters": "auto"},
        "source": "flowers.csv",
        "n_rows": n,
        "n_columns": d,
        "notes": ["Columns were scaled."],
        "method": type(model).__name__,
        "parameters": {"C": 2.0},
        "seed": 3,
        "X": X,
        "feature_names": [f"column {j}" for j in range(d)],
        "ids": np.arange(n),
        "id_name": "row",
        "labels": labels,
        "scores": scores,
        "model": model,
        "n_found": max(np.unique(labels).size, 1),
        "evidence": [Evidence("p-value", 0.004, "There is a gap.")],
        "quality": [Score("Silhouette", 0.61, "Above 0.5 is clear.")],
        "warnings": [],
        "seconds": {"fit": 0.5},
    }
    return Outcome(**given | changes)


def two_groups(n=120, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, 0] += np.where(np.arange(n) < n // 3, -4.0, 4.0)
    return X


def simple(**changes):
    X = changes.pop("X", None)
    X = two_groups() if X is None else X
    coef = np.zeros(X.shape[1])
    coef[0] = 0.25
    return outcome_of(X, changes.pop("model", Hyperplane(coef)), **changes)


def written(outcome, tmp_path):
    path = tmp_path / "report.html"
    write_report(outcome, path, force=True)
    reader = Reader()
    reader.html = path.read_text(encoding="utf-8")
    reader.feed(reader.html)
    reader.words = " ".join(" ".join(reader.text).split())
    reader.data = json.loads(reader.scripts[0])
    reader.outcome = outcome
    return reader


# ------------------------------------------------------------------------------ the file


def test_a_file_is_replaced_only_when_asked_and_appears_whole(tmp_path, monkeypatch):
    path = tmp_path / "new folder" / "report.html"
    write_report(simple(), path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"report\.html exists already.*another name"):
        write_report(simple(title="Other"), path)
    assert path.read_bytes() == before

    def broken(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="disk full"):
            write_report(simple(title="Other"), path, force=True)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    write_report(simple(title="Other"), path, force=True)
    assert b"<title>Other</title>" in path.read_bytes()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_report(simple(), tmp_path, force=True)


def test_the_same_outcome_gives_the_same_file(tmp_path):
    one, two = written(simple(), tmp_path).html, written(simple(), tmp_path).html
    assert one == two


def test_what_comes_from_the_data_is_escaped(tmp_path):
    X = two_groups()
    ids = np.array([ENDING] * len(X), dtype=object)
    page = written(
        simple(
            X=X,
            feature_names=[HOSTILE, ENDING, "a & b", "'"],
            ids=ids,
            id_name=ENDING,
            title=QUOTES,
            source=HOSTILE,
            command=f"volmar cluster '{HOSTILE}'",
            notes=[HOSTILE],
            asked={HOSTILE: ENDING},
            parameters={HOSTILE: ENDING},
            method=HOSTILE,
            evidence=[Evidence(HOSTILE, 0.2, ENDING), Evidence("p-value", 0.001, ENDING)],
            quality=[Score(HOSTILE, 1.0, ENDING)],
            warnings=[HOSTILE],
            seconds={HOSTILE: 1.0},
        ),
        tmp_path,
    )
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert "b" in page.tags  # the page's own: the title's is text
    assert not [a for a in page.attributes if a[1].startswith("on")]
    assert QUOTES in page.words
    assert page.words.count(HOSTILE) >= 6
    assert page.data["id"] == ENDING
    assert {point[4] for point in page.data["points"]} == {ENDING}
    assert "<" not in page.scripts[0]


def test_nothing_in_the_file_points_outside(tmp_path):
    page = written(simple(), tmp_path)
    links = [value for _, name, value in page.attributes if name in ("href", "src", "action")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert "http:" not in page.html
    assert "https:" not in page.html
    assert not re.search(r"url\(|@import", page.html)
    policy = next(value for _, name, value in page.attributes if value and "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert "script-src 'unsafe-inline'" not in policy


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_million_rows_are_a_small_file(tmp_path, kind):
    n = 1_000_000 if kind == "dense" else 200_000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    X[:, 0] += np.where(X[:, 1] > 0, 4.0, -4.0)
    if kind == "sparse":
        X = sparse.csr_array(sparse.hstack([sparse.csr_array(X), sparse.csr_array((n, 5000))]))
    page = written(simple(X=X, ids=np.full(n, "x" * 500, dtype=object)), tmp_path)
    assert len(page.html) < 1_500_000
    assert len(page.data["points"]) == 3000
    assert f"A random sample of 3,000 of the {n:,} rows is drawn (seed 3)" in page.words
    assert f"The {n:,} rows fall into two clusters" in page.words


# ------------------------------------------------------------------------------ what it says


def test_the_answer_and_its_key_figures(tmp_path):
    page = written(simple(n_rows=150, n_columns=3), tmp_path)
    assert "The 120 rows fall into two clusters, of 40 and 80 rows." in page.words
    assert "of 150 in the source" in page.words
    assert "4 features made of them" in page.words
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
    assert ("Weak evidence:" in page.words) == warned
    assert ("see the warnings" in page.words) == warned


def test_no_split(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 5))
    model = MSPC("auto", random_state=0).fit(X)
    assert np.ptp(model.labels_) == 0
    evidence = [Evidence("p-value", 0.63, "Nothing speaks for more.")]
    page = written(outcome_of(X, model, evidence=evidence, quality=[]), tmp_path)
    assert "No evidence for more than one group (p = 0.63)." in page.words
    assert "The 200 rows stay one cluster" in page.words
    assert "if you insist" not in page.words
    assert "data-toggle" not in [name for _, name, _ in page.attributes]
    assert 'class="plain"' in page.html
    assert "What drives" not in page.words
    assert "What sets the clusters apart" not in page.words
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
    model = MSPC("auto", random_state=0).fit(X)
    assert model.tree_.n_leaves == 3
    page = written(outcome_of(X, model, evidence=[]), tmp_path)
    assert "Every split was confirmed" in page.words
    assert "Split 2" in page.words
    first, *_ = model.tree_.splits()
    assert f"450 rows {first.p_text}, level 0.05" in page.words
    assert "150 rows · not split further: p = " in page.words
    assert "level 0.017" in page.words
    assert "by column" in page.words


def test_p_values_at_the_minimum_are_bounds(tmp_path):
    """No draw reached the sample: the test knows no more than an upper bound."""
    evidence = [Evidence("p-value", 0.0107, "As it is.", minimum=0.0107)]
    page = written(simple(evidence=evidence), tmp_path)
    assert "strong evidence (p ≤ 0.011)" in page.words
    assert "p ≤ 0.011, the smallest that the test gives" in page.words
    assert "in at most 1.1 % of cases" in page.words
    page = written(simple(evidence=[dataclasses.replace(evidence[0], minimum=0.001)]), tmp_path)
    assert "fair evidence (p = 0.011)" in page.words
    assert "in about 1.1 % of cases" in page.words


def four_groups():
    """Four groups of 100 rows, found one after the other."""
    X = np.random.default_rng(0).normal(size=(400, 3))
    X[:100, 0] += 12
    X[100:200, 1] += 9
    X[200:300, 2] += 10
    return X, MSPC("auto", random_state=0).fit(X)


def test_merged_leaves_are_one_cluster(tmp_path):
    X, model = four_groups()
    tree = model.tree_
    assert tree.n_leaves == 4
    apart = tree.siblings()
    one, other = next(pair for pair in [(0, 2), (0, 3), (1, 3)] if pair not in apart)
    new = np.arange(4)
    new[other] = one
    new = np.unique(new, return_inverse=True)[1]
    tree.relabel(new)
    labels = new[model.labels_]
    page = written(outcome_of(X, model, labels, tree.scores(X), evidence=[]), tmp_path)
    assert page.words.count(f"Part of cluster {new[one]} 100 rows") == 2
    assert f"Cluster {new[one]} is 2 parts of the tree, of 100 and 100 rows" in page.words
    assert "there is no valley between the parts" in page.words
    assert "fall into three clusters" in page.words
    # The sizes of both parts together are those of the cluster.
    assert "rows changed clusters afterwards" not in page.words
    for leaf in tree.leaves():  # two clusters of more than two leaves: no hyperplane is between
        leaf.label = min(leaf.label, 1)
    page = written(
        outcome_of(X, model, np.minimum(labels, 1), tree.scores(X), evidence=[]), tmp_path
    )
    assert "The columns with the most weight in the border" not in page.words


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
    assert "The best split in two, if you insist" in page.words
    assert "Not supported by the rows" in page.words
    sizes = np.bincount(two.labels_)
    assert f"Its two sides have {sizes[0]} and {sizes[1]} rows" in page.words
    assert "volmar cluster <x> -k 2" in page.words
    assert outcome.in_two().k == 2
    assert outcome.k == 1
    with pytest.raises(ValueError, match="best_split is for rows that are one cluster"):
        simple(best_split=split)
    with pytest.raises(ValueError, match="no best_split"):
        simple().in_two()


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (Result(200.0, gap=0.6), "within 0.3 % of the best possible."),
        (Result(200.0, gap=0.0), "within 0.01 % of the best possible."),
        (Result(200.0), "Converged No bound on the best possible answer is available"),
        (Result(1.0, status=Status.DEGENERATE), "does not determine its answer"),
        (None, "No certificate"),
    ],
)
def test_certificate_in_words(tmp_path, result, words):
    page = written(simple(model=Hyperplane([0.25, 0, 0, 0], result=result)), tmp_path)
    assert words in page.words
    is_early = result is not None and not result.status.ok
    assert ("The solver did not finish as it should" in page.words) == is_early


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
    assert "Of 3 clusters only 2 have any rows." in page.words
    alone = simple(labels=np.zeros(120, dtype=int), n_found=2)
    page = written(alone, tmp_path)
    assert "All 120 rows are in one cluster." in page.words
    assert "Of 2 clusters only 1 has any rows." in page.words


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


def section(page, name):
    """The words of a section of the page."""
    inside = re.search(rf'<section id="{name}".*?</section>', page.html, re.S)
    reader = Reader()
    reader.feed(inside[0])
    return " ".join(" ".join(reader.text).split())


def test_what_sets_two_clusters_apart_is_shown_once(tmp_path):
    page = written(simple(), tmp_path)
    words = section(page, "apart")
    assert "How cluster 0 differs from cluster 1" in words
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
    labels = outcome.labels + 5
    with pytest.raises(ValueError, match="describe the same labels"):
        simple(labels=labels, scores=outcome.scores, X=outcome.X, description=description)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.arange(3)}, "ids must hold one entry a row of X, 120, got 3"),
        ({"feature_names": ["a"]}, "feature_names must name the 4 columns"),
        ({"n_found": 1}, "n_found=1 is less than the 2 clusters"),
        ({"scales": np.ones(3)}, r"scales must have one entry a column of X, shape \(4,\)"),
    ],
)
def test_an_outcome_that_does_not_fit_together(change, message):
    with pytest.raises(ValueError, match=message):
        simple(**change)


# ------------------------------------------------------------------------------ the figures


@pytest.mark.parametrize("shape", [(60, 8), (400, 350)])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("with_direction", [False, True])
def test_components_are_principal(shape, is_sparse, with_direction):
    rng = np.random.default_rng(1)
    X = rng.normal(size=shape) * np.linspace(1, 3, shape[1]) ** 3 + 5
    w = rng.normal(size=shape[1]) if with_direction else None
    given = sparse.csr_array(X) if is_sparse else X
    points, share = figures.components(given, 2, without=w)
    Z = X - X.mean(axis=0)
    if w is not None:
        Z -= np.outer(Z @ w, w) / (w @ w)
    values, vectors = np.linalg.eigh(Z.T @ Z)
    np.testing.assert_allclose(share, values[:-3:-1] / values.sum(), rtol=1e-6)
    expected = Z @ vectors[:, :-3:-1]
    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-5 * np.ptp(points))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_moments_by_brute_force(is_sparse, monkeypatch):
    monkeypatch.setattr(figures, "CHUNK", 7)
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(50, 3)), rng.integers(0, 4, 50)
    found = figures.cluster_moments(sparse.csr_array(X) if is_sparse else X, codes, 4)
    np.testing.assert_allclose(found.means, [X[codes == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(found.deviation, X.std(axis=0))
    within = sum(((X[codes == c] - X[codes == c].mean(axis=0)) ** 2).sum(axis=0) for c in range(4))
    np.testing.assert_allclose(found.between, 1 - within / (50 * X.var(axis=0)))


def test_the_histogram_counts_every_row_on_its_side():
    outcome = simple()
    lead = outcome.lead.copy()
    lead[np.argmin(np.abs(lead))] = 0.0
    lead[0] = -1e6
    codes = (lead > 0).astype(int)
    found = figures.histogram(outcome, lead, codes)
    np.testing.assert_array_equal(found.counts.sum(axis=1), np.bincount(codes))
    middles = (found.edges[1:] + found.edges[:-1]) / 2
    assert not found.counts[0, middles > 0].any()
    assert not found.counts[1, middles < 0].any()
    assert found.n_beyond == 1


def test_what_drives_a_linear_split():
    X = two_groups()
    outcome = outcome_of(X, Hyperplane([0.5, -2.0, 0.0, 0.1]))
    found = figures.drivers(outcome, figures.cluster_moments(X, outcome.codes, 2))
    assert found.kind == "linear"
    expected = {0: 0.5 * X[:, 0].std(), 1: -2 * X[:, 1].std(), 3: 0.1 * X[:, 3].std()}
    assert dict(zip(found.features, found.values, strict=True)) == pytest.approx(expected)
    assert list(np.abs(found.values)) == sorted(np.abs(found.values), reverse=True)


def test_what_drives_a_curved_split():
    moons, _ = make_two_moons(120, random_state=0)
    X = np.column_stack([moons, np.random.default_rng(0).normal(size=(120, 3)) * 0.01])
    outcome = outcome_of(X, KernelCPMMC(random_state=0).fit(X))
    found = figures.drivers(outcome, figures.cluster_moments(X, outcome.codes, 2))
    assert found.kind == "permutation"
    assert set(found.features[:2]) == {0, 1}
    assert 0.1 < found.values[0] <= 1
    view = figures.plane(outcome, outcome.lead)
    np.testing.assert_array_equal(view.x, outcome.lead)


def test_similarities_are_not_shuffled():
    def refuse(X):
        raise ValueError("a precomputed matrix")

    X = two_groups()
    outcome = simple(X=X, model=SimpleNamespace(predict=refuse), labels=(X[:, 0] > 0) + 0,
                     scores=X[:, 0])  # fmt: skip
    found = figures.drivers(outcome, figures.cluster_moments(X, outcome.codes, 2))
    assert found.kind == "between"
    assert found.features[0] == 0


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3e-5, 1e-5), (12, 120000), (-0.3, 0.31)])
def test_ticks_are_round_and_inside(low, high):
    found = np.array(figures.ticks(low, high))
    assert 2 <= found.size <= 8
    assert found.min() >= low - 1e-9
    assert found.max() <= high + 1e-9
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0])
    assert round(steps[0] / 10 ** np.floor(np.log10(steps[0] * 1.0000001))) in (1, 2, 5)


# ------------------------------------------------------------------------------ the colours

# Machado, Oliveira and Fernandes (2009), severity 1.
SIGHTS = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(colour):
    colour = colour if len(colour) == 7 else "#" + "".join(2 * c for c in colour[1:])
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, two):
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, two))
    return (high + 0.05) / (low + 0.05)


def difference(one, two, sight):
    lab = [
        TO_LAB @ np.cbrt(TO_CONES @ np.clip(SIGHTS[sight] @ linear(c), 0, 1)) for c in (one, two)
    ]
    return float(np.linalg.norm(lab[0] - lab[1]))


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_can_be_read_and_told_apart(tmp_path, mode):
    html = written(simple(), tmp_path).html
    block = re.search(
        rf":root(?:\[data-theme=\"dark\"\])? {{ color-scheme: {mode};(.*?)}}", html, re.S
    )
    colour = dict(re.findall(r"--([\w-]+):(#[0-9a-f]{3,6});", block[1]))
    for back in ("card", "sunk", "page"):
        for text in ("text", "soft", "accent"):
            assert contrast(colour[text], colour[back]) >= 4.5, (text, back)
    for tone in ("good", "fair", "weak", "accent"):
        assert contrast(colour[tone], colour[f"{tone}-soft"]) >= 4.5
        assert contrast(colour["soft"], colour[f"{tone}-soft"]) >= 4.5
    marks = [colour[f"c{i}"] for i in range(8)]
    assert all(contrast(mark, colour["card"]) >= 3 for mark in marks)
    for sight in SIGHTS:
        for i in range(4):
            for j in range(i):
                assert difference(marks[i], marks[j], sight) > 0.09, (sight, i, j)


# ------------------------------------------------------------------------------ in a browser


@pytest.fixture
def page(browser, tmp_path):
    path = tmp_path / "report.html"
    ids = np.array([ENDING if i % 2 else f"flower {i}" for i in range(120)], dtype=object)
    names = [HOSTILE, "a very long name of a column " * 6, "b", "c"]
    outcome = simple(title=QUOTES, ids=ids, id_name="flower", feature_names=names)
    write_report(outcome, path)
    return path


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_opens_it_without_a_complaint(browser, page, width, theme):
    browser.open(page, width, theme)
    assert browser.run("document.title") == QUOTES
    assert browser.run("document.scripts.length") == 2
    assert browser.run("document.documentElement.scrollWidth") <= width
    # No element but those that scroll by themselves is wider than the page.
    assert browser.run("document.querySelector('main').scrollWidth") <= width
    dark = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(13, 17, 23)") == (theme == "dark")
    shot = page.with_suffix(".png")
    shot.write_bytes(base64.b64decode(browser("Page.captureScreenshot", format="png")["data"]))
    assert shot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert shot.stat().st_size > 10_000
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.run("performance.getEntriesByType('resource').length") == 0


def test_the_checks_of_the_browser_can_fail(browser, page):
    bad = page.with_name("bad.html")
    html = page.read_text(encoding="utf-8")
    bad.write_text(html.replace("</body>", "<img src='other.png'><script>x</script></body>"))
    browser.open(bad)
    # The page's own policy stops both, and says so.
    assert len(browser.complaints()) >= 2
    assert len(browser.requests()) == 2


def test_clusters_are_hidden_and_shown_by_mouse_and_keyboard(browser, page):
    browser.open(page)

    def shown():
        return browser.run(
            "[...document.querySelectorAll('#plane g[data-cluster]')]"
            ".map(g => getComputedStyle(g).display !== 'none')"
        )

    assert shown() == [True, True]
    browser.click('[data-toggle="0"]')
    assert shown() == [False, True]
    pressed = "document.querySelector('[data-toggle=\"0\"]').getAttribute('aria-pressed')"
    assert browser.run(pressed) == "false"
    assert browser.run("document.querySelectorAll('#bins g.off').length") == 1
    browser.run("document.querySelector('[data-toggle=\"0\"]').focus()")
    browser.press("Enter")
    assert shown() == [True, True]
    assert browser.complaints() == []


def test_a_mark_tells_its_id_cluster_and_score(browser, page):
    browser.open(page)
    where = browser.run(
        "(() => { const plot = document.getElementById('plane');"
        "plot.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const b = plot.getBoundingClientRect();"
        "const p = JSON.parse(document.getElementById('data').textContent).points[1];"
        "return [b.x + p[0] / 100 * b.width, b.y + p[1] / 100 * b.height, p[3]]; })()"
    )
    browser.point(*where[:2])
    tip = browser.run("document.getElementById('tip').innerText").split("\n")
    assert tip == ["flower", ENDING, "cluster", "0", "score", where[2]]
    assert browser.run("document.images.length") == 0
    browser.run("document.getElementById('plane').focus()")
    browser.press("Escape")
    assert browser.run("document.getElementById('tip').hidden") is True
    browser.press("ArrowRight")
    first = browser.run("document.getElementById('ring').getAttribute('cx')")
    browser.press("ArrowRight")
    second = browser.run("document.getElementById('ring').getAttribute('cx')")
    assert float(first[:-1]) <= float(second[:-1])
    assert browser.run("document.getElementById('tip').hidden") is False
    assert browser.complaints() == []


def test_dark_mode_is_toggled_and_kept(browser, page):
    browser.open(page)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(colour)
    browser.click("#theme")
    dark = browser.run(colour)
    assert dark != light
    browser.open(page)
    assert browser.run(colour) == dark
    browser.click("#theme")
    assert browser.run(colour) == light
    assert browser.complaints() == []
