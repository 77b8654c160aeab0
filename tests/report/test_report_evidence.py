"""The evidence for the clusters that a report shows, in values and words."""

import dataclasses
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

pytest.importorskip("jinja2")


from helpers.outcomes import THREE, TWO, groups

import volmar
from volmar import MSPC, AutoClusterer
from volmar.datasets import make_two_moons
from volmar.evidence import LabelTestResult, split_test
from volmar.evidence.label_test import LabelJoin
from volmar.evidence.wording import p_value_text
from volmar.report import Evidence, evidence_of
from volmar.report import evidence as module
from volmar.report.verdict import join_sentence, sentences_of


def by_kind(found):
    return {kind: [one for one in found if one.kind == kind] for kind in {e.kind for e in found}}


# ------------------------------------------------------------------------------ the evidence


def test_six_clusters_of_two_groups():
    X = groups(900, TWO)
    model = MSPC(6, random_state=0).fit(X)
    found = evidence_of(model, X, model.labels_, n_clusters=6)
    of = by_kind(found)
    assert [one.kind for one in found] == ["p-value", "groups", *["join"] * 5]
    assert of["p-value"][0].is_supported
    assert of["p-value"][0].level == 0.05
    assert of["groups"][0].value == 2
    assert of["groups"][0].sentence.startswith(
        "Evidence for 2 of the 6 clusters that were requested"
    )
    # The groups are those of the rows: on either side of the middle.
    side = {c: X[model.labels_ == c, 0].mean() > 3 for c in range(6)}
    for group in of["groups"][0].clusters:
        assert len({side[c] for c in group}) == 1
    assert [one.is_supported for one in of["join"]] == [False] * 4 + [True]
    for one in of["join"]:
        assert f"level {one.level:.2g}" in one.sentence
    assert of["join"][-1].sentence.count("separated by a gap (p < ") == 1


def test_halves_of_one_group_are_named():
    X = groups(900, TWO, seed=1)
    labels = np.where(X[:, 0] < 3, 0, np.where(X[:, 1] < 0, 1, 2))
    found = by_kind(evidence_of(None, X, labels, n_clusters=3))
    first, second = found["join"]
    assert first.sentence.startswith(
        "Clusters 1 and 2 are halves of one group: no gap between them (p = "
    )
    assert first.clusters == ((1,), (2,))
    assert second.is_supported
    assert set(found["groups"][0].clusters) == {(0,), (1, 2)}


def test_a_border_that_is_nearly_a_gap_is_not_called_none():
    join = LabelJoin((0,), (1,), 50, 50, ((0,), (1,)), (50, 50), 0.08, 0.05, 0.4)
    sentence = join_sentence(join)
    assert sentence == (
        "Clusters 0 and 1 may be halves of one group: not enough evidence for a gap between "
        "them (p = 0.08, level 0.05)."
    )
    hints = LabelTestResult((join,) * 2, (0, 1, 2), (50,) * 3, (), (), 0, 0.05, np.zeros(150))
    summary, *_ = module._about_clusters(hints, 3)
    assert summary.sentence.startswith("Not enough evidence for the 3 clusters that were request")
    several = dataclasses.replace(join, tested=((0, 2), (1,)), p_value=0.9)
    assert join_sentence(several).startswith("Clusters 0 + 2 and cluster 1 are parts of")


def test_all_clusters_are_groups():
    X = groups(600, THREE)
    model = MSPC(3, random_state=0).fit(X)
    found = by_kind(evidence_of(model, X, model.labels_, n_clusters=3))
    assert found["groups"][0].value == 3
    assert found["groups"][0].sentence.startswith("All 3 clusters are separated from each other")
    assert all(one.is_supported for one in found["join"])


@pytest.mark.parametrize("k", [2, 4])
def test_noise_supports_no_clusters(k):
    X = np.random.default_rng(0).normal(size=(400, 4))
    model = MSPC(k, random_state=0).fit(X)
    found = by_kind(evidence_of(model, X, model.labels_, n_clusters=k))
    assert not found["p-value"][0].is_supported
    assert not any(one.is_supported for one in found["join"])
    # Of one border there is nothing to sum up.
    assert ("groups" in found) == (k > 2)


def test_the_tree_is_read_where_it_was_tested():
    X = groups(600, THREE)
    model = AutoClusterer(random_state=0).fit(X)
    (only,) = evidence_of(model, X, model.labels_, n_clusters="auto")
    worst = max(model.tree_.splits(), key=lambda node: node.p_value)
    assert (only.kind, only.value, only.level) == ("p-value", worst.p_value, worst.level)
    assert f"level {worst.level:.2g})" in only.sentence
    noise = np.random.default_rng(0).normal(size=(300, 4))
    model = AutoClusterer(random_state=0).fit(noise)
    (only,) = evidence_of(model, noise, model.labels_, n_clusters="auto")
    assert only.sentence.startswith("No evidence for more than one group (p = ")
    assert ", level 0.05)" in only.sentence
    model.tree_.root.p_value = 0.052
    (only,) = evidence_of(model, noise, model.labels_, n_clusters="auto")
    assert only.sentence.startswith(
        "Not enough evidence for more than one group (p = 0.052, level 0.05): the rows hint"
    )


def test_the_tree_of_borders():
    X, _ = make_two_moons(400, noise=0.05, random_state=0)
    model = volmar.AutoClusterer(random_state=0).fit(X)
    (only,) = evidence_of(model, X, model.labels_, n_clusters="auto")
    assert only.effect == model.tree_.root.effect >= 0.2
    assert only.is_supported
    assert only.sentence.startswith("The split has a border with a density clearly below that of")
    assert not dataclasses.replace(only, effect=0.1).is_supported
    noise = np.random.default_rng(0).normal(size=(300, 4))
    model = volmar.AutoClusterer(random_state=0).fit(noise)
    (only,) = evidence_of(model, noise, model.labels_, n_clusters="auto")
    assert only.sentence.startswith("No evidence for more than one group (p = ")


def test_labels_of_any_tool():
    X = groups(300, TWO)
    given = np.array(["left", "right"])[(X[:, 0] > 3).astype(int)]
    found = by_kind(evidence_of(None, X, given, n_clusters=None))
    assert found["join"][0].clusters == (("left",), ("right",))
    other = AgglomerativeClustering(n_clusters=None, distance_threshold=60.0).fit(X)
    evidence_of(other, X, other.labels_, n_clusters=None)
    labels = (X[:, 0] > 3).astype(int)
    for rows in (X.astype(np.float32), sparse.csr_array(X), X.tolist()):
        found = by_kind(evidence_of(KMeans(2), rows, labels, n_clusters=2))
        assert found["join"][0].is_supported
    pipe = make_pipeline(StandardScaler(), MSPC(2, random_state=0)).fit(X)
    rows = pipe[:-1].transform(X)
    assert by_kind(evidence_of(pipe, rows, labels, n_clusters=2))["join"][0].is_supported
    noisy = labels.copy()
    noisy[:30] = -1
    assert by_kind(evidence_of(None, X, noisy, n_clusters=2))["join"][0].is_supported


def test_a_curved_border():
    X, y = make_two_moons(400, noise=0.05, random_state=0)
    model = volmar.SoftLabelMVC(2, random_state=0).fit(X)
    found = by_kind(evidence_of(model, X, model.labels_, n_clusters=2))
    assert found["p-value"][0].is_supported
    assert found["join"][0].is_supported
    # The halves of each moon are no groups.
    quarters = 2 * y + (X[:, 0] > np.where(y == 0, 0.0, 1.0))
    found = by_kind(evidence_of(model, X, quarters, n_clusters=4))
    assert found["groups"][0].value < 4


def test_what_cannot_be_tested_is_said():
    X = groups(20, TWO)
    (only,) = evidence_of(MSPC(2), X, (X[:, 0] > 3) + 0, n_clusters=2)
    assert only.value is None
    assert only.sentence == "20 rows are too few to test a split."
    X = groups(120, TWO)
    labels = (X[:, 0] > 3) + 0
    assert evidence_of(MSPC(1), X, np.zeros(120, int), n_clusters=1) == []
    # Asked for two, got one.
    (only,) = evidence_of(MSPC(2), X, np.zeros(120, int), n_clusters=2)
    assert only.kind == "p-value"
    S = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    model = volmar.NormalizedCut(2, affinity="precomputed", random_state=0).fit(S)
    (only,) = evidence_of(model, S, model.labels_, n_clusters=2)
    assert only.value is None
    assert "takes a precomputed matrix" in only.sentence
    small = labels.copy()
    small[:7] = 2
    found = by_kind(evidence_of(None, X, small, n_clusters=3))
    assert found["untested"][0].sentence == "Cluster 2 is too small to test: fewer than 20 rows."
    found = by_kind(evidence_of(None, X, np.arange(120), n_clusters=120))
    assert "there are 120 clusters, and at most 50 are tested" in found["untested"][0].sentence
    tiny = by_kind(evidence_of(None, X, np.arange(120) % 20, n_clusters=20))
    assert "borders of the clusters were not tested" in tiny["untested"][0].sentence
    with pytest.raises(ValueError, match=r"^labels .*each row"):
        evidence_of(None, X, [0, 1, 1], n_clusters=2)


def test_many_rows_are_sampled(monkeypatch):
    X = groups(5000, TWO)
    labels = (X[:, 0] > 3) + 0
    seen = []

    def counted(rows, *given, **options):
        seen.append(rows.shape[0])
        return split_test(rows, *given, **options)

    monkeypatch.setattr(module, "split_test", counted)
    monkeypatch.setattr(module, "MAX_ROWS", 400)
    found = by_kind(evidence_of(None, X, labels, n_clusters=2))
    assert seen == [400]
    assert found["join"][0].is_supported
    again = evidence_of(None, X, labels, n_clusters=2, random_state=0)
    assert again == evidence_of(None, X, labels, n_clusters=2, random_state=0)


def test_progress_goes_on_to_the_end():
    X = groups(300, THREE)
    reports = []
    labels = KMeans(3, n_init=3, random_state=0).fit_predict(X)
    evidence_of(None, X, labels, n_clusters=3, progress=lambda *one: reports.append(one))
    done, wanted = zip(*reports, strict=True)
    assert list(done) == sorted(done)
    assert done[-1] == wanted[-1]
    assert all(part <= whole for part, whole in reports)


def test_a_terminal_lists_borders_without_a_gap():
    joins = [Evidence("join", 0.9, f"open {i}", level=0.05) for i in range(10)]
    gap = Evidence("join", 0.001, "a gap", level=0.05)
    summary = Evidence("groups", 2.0, "Two groups.")
    lines = sentences_of([summary, *joins, gap])
    assert lines[:2] == ["Two groups.", "open 0"]
    assert lines[-1] == "... and 2 more borders without a gap."
    assert "a gap" not in lines
    assert sentences_of([gap]) == ["a gap"]


# ------------------------------------------------------------------------------ the words


def test_levels_beside_p_values():
    assert p_value_text(0.5, level=0.05) == "p = 0.5, level 0.05"
    assert p_value_text(0.001, 0.0125) == "p = 0.001, level 0.013"
    assert p_value_text(0.5, level=float("nan")) == "p = 0.5"


def test_a_split_in_two_that_is_not_settled_has_a_remedy():
    X = groups(300, TWO)
    found = split_test(X, random_state=0)
    assert "Try another" not in str(found)
    words = str(dataclasses.replace(found, repeats=0.6))
    assert "Only 60 % of the halves of the rows find this border again. There are" in words
    assert words.endswith("Try another number of clusters, or another method.")
    hint = str(dataclasses.replace(found, p_value=0.052))
    assert hint.startswith("Not enough evidence for more than one group (p = 0.052, level 0.05)")


def test_a_tree_says_why_its_sizes_are_not_those_of_the_clusters():
    X = load_wine().data
    model = MSPC(3, random_state=0).fit(X)
    tree = model.tree_
    sizes = np.bincount(model.labels_)
    leaves = [leaf.n_rows for leaf in tree.leaves()]
    assert sorted(leaves) != sorted(sizes)
    note = "now the clusters have " + ", ".join(map(str, sizes)) + " rows."
    assert str(tree).splitlines()[-1].endswith(note)
    assert str(tree).splitlines()[-1].startswith("Sizes are those at the time of the split;")
    assert str(pickle.loads(pickle.dumps(tree))) == str(tree)
    tree.relabel(np.array([2, 0, 1]))
    assert tree.size_note() == ""  # sizes of other numbers
    assert "rows changed clusters" in tree.size_note([int(size) for size in sizes])
    kept = volmar.CPMMC(3, multiway="recursive", random_state=0).fit(groups(300, THREE))
    for leaf in kept.tree_.leaves():
        assert leaf.n_rows == np.sum(kept.labels_ == leaf.label)
    assert kept.tree_.size_note() == ""
    assert "Sizes" not in str(kept.tree_)


def test_a_printed_tree_has_the_level_of_each_test():
    model = AutoClusterer(random_state=0).fit(groups(450, THREE))
    for node, line in zip(model.tree_.nodes(), str(model.tree_).splitlines(), strict=False):
        assert f"({node.p_text}, level {node.level:.2g})" in line


def test_a_drawn_tree_has_levels_and_the_note():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from volmar.plots import TreeDisplay

    X = load_wine().data
    model = MSPC(3, random_state=0).fit(X)
    display = TreeDisplay.from_estimator(model, feature_names=[f"n{j}" for j in range(13)])
    assert display.ax_.get_xlabel().replace("\n", " ") == model.tree_.size_note() != ""
    plt.close(display.figure_)
    tree = AutoClusterer(random_state=0).fit(groups(450, THREE)).tree_
    display = TreeDisplay(tree).plot()
    words = [text.get_text() for text in display.ax_.texts]
    assert len(words) == len(tree.splits()) > 1
    for node, text in zip(tree.splits(), words, strict=True):
        assert f"{node.p_text}\nlevel {node.level:.2g}" in text
    plt.close(display.figure_)
