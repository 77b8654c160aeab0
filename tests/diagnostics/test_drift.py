"""Drift: two tables under one model."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn.cluster import KMeans

from volmar import MSPC, TableClusterer
from volmar.diagnostics import DriftReport, drift
from volmar.diagnostics.drift import (
    CategoryCounts,
    DriftSummary,
    compare_summaries,
    holm,
    homogeneity,
)
from volmar.models import load_model

CENTERS = np.random.default_rng(1).normal(size=(3, 5)) * 3


def draw(rng, n, shares=(0.5, 0.3, 0.2)):
    y = rng.choice(3, n, p=shares)
    return CENTERS[y] + rng.normal(size=(n, 5))


def people(seed, n=400, share=0.4, **changes):
    rng = np.random.default_rng(seed)
    tall = rng.uniform(size=n) < share
    frame = pd.DataFrame(
        {
            "height": rng.normal(160, 5, n) + 30 * tall,
            "weight": rng.normal(55, 4, n) + 25 * tall + changes.get("weight", 0.0),
            "income": np.exp(rng.normal(3, 1, n)),
            "city": rng.choice(["Rome", "Oslo", "Bern"], n),
        }
    )
    frame.loc[rng.uniform(size=n) < changes.get("missing", 0.05), "income"] = np.nan
    return frame


@pytest.fixture(scope="module")
def fitted():
    return TableClusterer(2).fit(people(0, 800))


# ---------------------------------------------------------------------- the summary


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
def test_summary_is_by_the_definitions(as_rows):
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(60, 4)) + 3, rng.integers(3, size=60)
    labels[:5] = -1
    found = DriftSummary.of_rows(as_rows(X), labels, 3, list("abcd"))
    assert found.n_left_out == 5
    within = np.zeros(4)
    for j in range(3):
        own = X[labels == j]
        assert found.counts[j] == len(own)
        np.testing.assert_allclose(found.means[j], own.mean(axis=0))
        np.testing.assert_allclose(found.variances[j], own.var(axis=0, ddof=1), rtol=1e-8)
        within += ((own - own.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(found.scales, np.sqrt(within / (55 - 3)))
    assert (found.distance_counts.sum(axis=1) == found.counts).all()


def test_distances_of_old_rows_are_those_without_the_row_itself():
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(30, 3)), np.repeat([0, 1], 15)
    found = DriftSummary.of_rows(X, labels, 2, list("abc"))
    by_hand = []
    for i in range(15):
        others, own = np.delete(X, i, axis=0), np.delete(labels, i)
        means = [others[own == j].mean(axis=0) for j in (0, 1)]
        square = sum(((others[own == j] - means[j]) ** 2).sum(axis=0) for j in (0, 1)) / 27
        by_hand.append(np.sqrt(np.mean((X[i] - means[0]) ** 2 / square)))
    np.testing.assert_allclose(found.edges[0], np.quantile(by_hand, np.arange(1, 10) / 10))


def test_summaries_of_blocks_add_up():
    rng = np.random.default_rng(0)
    X, Z = draw(rng, 300), draw(rng, 200)
    labels, new = rng.integers(3, size=300), rng.integers(3, size=200)
    new[:50] = 0  # blocks without some of the clusters
    old = DriftSummary.of_rows(X, labels, 3, list("abcde"))
    whole = DriftSummary.of_rows(Z, new, 3, list("abcde"), reference=old)
    parts = [
        DriftSummary.of_rows(Z[i : i + 50], new[i : i + 50], 3, list("abcde"), reference=old)
        for i in range(0, 200, 50)
    ]
    found = parts[0]
    for part in parts[1:]:
        found = found.joined(part)
    for name in ("counts", "means", "squares", "distance_counts"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-9)


def test_category_counts_are_bounded_and_add_up():
    values = [f"v{i:03}" for i in range(300)]
    codes = np.r_[np.arange(300), [7] * 5, [-1] * 3]
    found = CategoryCounts.of_codes(codes, values)
    assert len(found.counts) == 100
    assert found.counts["v007"] == 6
    assert (sum(found.counts.values()) + found.n_other, found.n_missing) == (305, 3)
    both = found.joined(CategoryCounts({"v007": 2, "new": 1}, 4, 1))
    assert (both.counts["v007"], both.counts["new"]) == (8, 1)
    assert (both.n_other, both.n_missing) == (found.n_other + 4, 4)
    # Known values are counted separately even if they are rare.
    again = CategoryCounts.of_codes(codes, values, {"v299": 1})
    assert again.counts["v299"] == 1


# ---------------------------------------------------------------------- tests


def test_chi_squared_and_holm():
    table = np.array([[30, 50, 20], [25, 20, 40]])
    assert homogeneity(*table) == pytest.approx(stats.chi2_contingency(table).pvalue)
    # Rare values are merged, which gives the same test as by hand.
    rare = homogeneity(np.array([50, 40, 1, 2, 3]), np.array([30, 45, 2, 1, 3]))
    by_hand = stats.chi2_contingency([[50, 40, 6], [30, 45, 6]], correction=False).pvalue
    assert rare == pytest.approx(by_hand)
    assert np.isnan(homogeneity(np.array([10, 0]), np.array([5, 0])))
    p = np.array([0.04, np.nan, 0.001, 0.02])
    np.testing.assert_allclose(holm(p), [0.04, np.nan, 0.003, 0.04])


def test_a_column_in_one_cluster_is_welchs_test():
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(40, 1)), 2 * rng.normal(size=(30, 1)) + 0.5
    zeros = np.zeros(40, dtype=int)
    old = DriftSummary.of_rows(X, zeros, 1, ["a"])
    new = DriftSummary.of_rows(Z, zeros[:30], 1, ["a"], reference=old)
    (found,) = compare_summaries(old, new).columns
    expected = stats.ttest_ind(X[:, 0], Z[:, 0], equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.shift == pytest.approx((Z.mean() - X.mean()) / X.std(ddof=1))


def test_level_is_kept_without_drift():
    """At most 13 alarms in 150 at the level 0.05: more have a probability below 0.03."""
    n_alarms = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        X, Z = draw(rng, 300), draw(rng, 200)
        model = KMeans(3, n_init=1, init=CENTERS).fit(X)
        n_alarms += drift(model, Z, X).has_drifted
    assert n_alarms <= 13


def skewed(rng, n):
    return (
        np.rint(3 * CENTERS[rng.choice(3, n)])
        + np.c_[rng.exponential(size=(n, 3)), rng.uniform(size=(n, 2)) < 0.02]
    )


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 20, 50])
@pytest.mark.parametrize("source", [draw, skewed])
def test_level_is_kept_with_few_new_rows(source, n):
    """At most 10 alarms in 80 at the level 0.05: more have a probability below 0.003."""
    n_alarms = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        X, Z = source(rng, 300), source(rng, n)
        report = drift(KMeans(3, n_init=1, random_state=0).fit(X), Z, X)
        n_alarms += report.has_drifted
        if n < 5:
            assert "too few rows to compare columns" in report.notes[0]
    assert n_alarms <= 10


@pytest.mark.parametrize("n", [1, 5, 20])
def test_table_of_few_new_rows_keeps_the_level(fitted, n):
    assert sum(fitted.drift(people(seed, n)).has_drifted for seed in range(1, 61)) <= 8


def test_tests_of_few_rows_are_exact():
    """The p-value of a share below a decile of the old distances is that of all orders of rows."""
    rng = np.random.default_rng(0)
    zeros, p = np.zeros(40, dtype=int), []
    for _ in range(400):
        X, Z = rng.normal(size=(40, 2)), rng.normal(size=(4, 2))
        old = DriftSummary.of_rows(X, zeros, 1, ["a", "b"])
        new = DriftSummary.of_rows(Z, zeros[:4], 1, ["a", "b"], reference=old)
        p.append(compare_summaries(old, new).distances[0].p_value)
    p = np.array(p)
    for level in (0.02, 0.05, 0.1, 0.2):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level / 400)
    # Four rows far outside are noticed.
    far = DriftSummary.of_rows(np.full((4, 2), 50.0), zeros[:4], 1, ["a", "b"], reference=old)
    assert compare_summaries(old, far).has_drifted


def test_rare_values_are_tested_exactly():
    """Three values that are unknown in 500 old rows are a change; one rare value is none."""
    assert homogeneity(np.array([300, 200, 0]), np.array([10, 7, 3])) < 0.001
    assert homogeneity(np.array([300, 195, 5]), np.array([10, 9, 1])) > 0.1
    # With two values it is Fisher's test by both tails.
    p = stats.fisher_exact([[3, 37], [4, 6]], alternative="less").pvalue
    assert homogeneity(np.array([3, 37]), np.array([4, 6])) == pytest.approx(2 * p)


@pytest.mark.parametrize(("n", "least"), [(20, 12), (50, 38), (200, 40)])
def test_a_shift_is_found_with_few_rows(n, least):
    """A shift of one standard deviation in one of five columns, in 40 tables."""
    n_found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, Z = draw(rng, 400), draw(rng, n)
        Z[:, 2] += 1.0
        n_found += drift(KMeans(3, n_init=1, init=CENTERS).fit(X), Z, X).has_drifted
    assert n_found >= least


def test_a_cluster_without_new_rows_has_no_distance():
    X = np.repeat([[0.0, 1.0], [5.0, 1.0]], 20, axis=0)
    report = drift(KMeans(2, n_init=1, random_state=0).fit(X), X[:1], X)
    assert not report.has_drifted
    assert "nan" not in str(report)
    assert "nan" not in report._repr_html_()


def test_few_rows_and_many_columns_keep_the_level():
    n_alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        X, Z = rng.normal(size=(250, 20)), rng.normal(size=(100, 20))
        X[:125, 0] += 20
        Z[:50, 0] += 20
        model = KMeans(2, n_init=1, random_state=0).fit(X)
        n_alarms += drift(model, Z, X).has_drifted
    assert n_alarms <= 10


def test_a_column_that_moved_is_named():
    rng = np.random.default_rng(0)
    X, Z = draw(rng, 500), draw(rng, 300)
    model = MSPC(3, random_state=0).fit(X)
    Z[:, 2] += 0.5
    report = drift(model, Z, X)
    assert report.has_drifted
    assert [one.column for one in report.changed("columns")] == ["x2"]
    assert 0.3 < report.columns[0].shift < 1.0
    assert not report.changed("shares")
    assert "The mean of column x2 has changed by +0." in str(report)


def test_changed_shares_are_named():
    rng = np.random.default_rng(0)
    X, Z = draw(rng, 500), draw(rng, 400, (0.5, 0.15, 0.35))
    model = KMeans(3, n_init=1, init=CENTERS).fit(X)
    report = drift(model, Z, X)
    assert {one.cluster for one in report.changed("shares")} == {1, 2}
    assert not report.changed("columns")
    assert report.shares[2].new == pytest.approx(0.35, abs=0.06)
    assert sum(one.n_new for one in report.shares) == report.n_new == 400


def test_rows_farther_from_their_centres():
    rng = np.random.default_rng(0)
    X = draw(rng, 500)
    model = KMeans(3, n_init=1, init=CENTERS).fit(X)
    y = rng.choice(3, 300)
    report = drift(model, CENTERS[y] + 1.5 * rng.normal(size=(300, 5)), X)
    assert len(report.changed("distances")) == 3
    assert all(one.new > 1.2 * one.old for one in report.distances)


def test_rows_of_one_value_and_clusters_without_rows():
    X = np.repeat([[0.0, 1.0], [5.0, 1.0]], 20, axis=0)
    model = KMeans(2, n_init=1, random_state=0).fit(X)
    same = drift(model, X, X)
    assert not same.has_drifted
    half = drift(model, X[:20], X)
    assert half.has_drifted
    assert min(one.n_new for one in half.shares) == 0
    json.dumps(half.to_dict(), allow_nan=False)
    few = drift(model, X[:2], X)
    assert "too few rows to compare columns" in few.notes[0]


def test_report_shows_itself():
    rng = np.random.default_rng(0)
    X = draw(rng, 200)
    report = drift(KMeans(3, n_init=1, init=CENTERS).fit(X), X + 1, X)
    assert isinstance(report, DriftReport)
    assert "has_drifted=True" in repr(report)
    assert "volmar-card" in report._repr_html_()
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert content["has_drifted"] is True
    assert len(content["columns"]) == 5
    assert content["p_value"] == report.p_value


def test_wrong_input():
    rng = np.random.default_rng(0)
    X = draw(rng, 100)
    model = MSPC(3, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"^X_old"):
        drift(model, X)
    with pytest.raises(ValueError, match="alpha"):
        drift(model, X, X, alpha=0.0)
    with pytest.raises(ValueError, match="features"):
        drift(model, X[:, :2], X)


# ---------------------------------------------------------------------- tables


def test_table_without_drift(fitted):
    reports = [fitted.drift(people(seed)) for seed in range(1, 21)]
    assert sum(report.has_drifted for report in reports) <= 4
    assert {one.column for one in reports[0].columns} == {"height", "weight", "log(income)"}


def test_table_with_a_shift_a_new_category_and_missing_values(fitted):
    new = people(1, weight=1.5, missing=0.3)
    new.loc[:30, "city"] = "Paris"
    report = fitted.drift(new)
    assert report.changed("columns")[0].column == "weight"
    (city,) = report.changed("categories")
    assert (city.column, city.new_values, city.n_new_values) == ("city", ("Paris",), 31)
    assert [one.column for one in report.changed("missing")] == ["income"]
    text = str(report)
    assert "'Paris'" in text
    assert "Column income is missing in" in text
    # A categorical column that is absent from the new table is not compared, with a note.
    without = fitted.drift(new.drop(columns="city"))
    assert "city" in without.notes[0]


def test_summary_is_kept_in_the_file(fitted, tmp_path):
    fitted.save(tmp_path / "people.volmar")
    loaded = load_model(tmp_path / "people.volmar").model
    new = people(2, weight=2.0)
    assert loaded.drift(new).to_dict() == fitted.drift(new).to_dict()
    assert drift(loaded, new).to_dict() == fitted.drift(new).to_dict()
    # The result is the same with the old table given.
    given = drift(loaded, new, people(0, 800))
    assert given.p_value == pytest.approx(fitted.drift(new).p_value)


def test_rows_left_out_for_missing_values():
    model = TableClusterer(2, missing="drop").fit(people(0))
    report = model.drift(people(1, missing=0.5))
    assert report.n_left_out > 100
    assert report.n_new + report.n_left_out == 400
    assert [one.column for one in report.changed("missing")] == ["income"]
