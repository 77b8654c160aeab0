"""Distributions of columns in clusters, names of clusters, and their part of the report."""

import dataclasses
import sys

import numpy as np
import pytest
from helpers.conversions import CONVERSIONS
from scipy import sparse, stats

from volmar.diagnostics import column_profiles, describe_clusters
from volmar.diagnostics.cluster_description import suggested_names
from volmar.diagnostics.column_profiles import day_text
from volmar.metrics.contingency import sampled_rows
from volmar.report.outcome import Outcome
from volmar.report.sections import all_columns, border_rows, profiles

pd = pytest.importorskip("pandas")


def shop(n=300, seed=0):
    """A table with every kind of column, and two clusters."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) >= n // 3).astype(int)
    size = pd.Categorical(
        np.array(["S", "M", "L"])[np.minimum(labels + rng.integers(0, 2, n), 2)],
        categories=["S", "M", "L"],
        ordered=True,
    )
    frame = pd.DataFrame(
        {
            "income": np.where(labels == 1, 90.0, 30.0) + rng.normal(0, 5, n),
            "visits": rng.poisson(np.where(labels == 1, 2, 9)),
            "plan": np.where(rng.random(n) < 0.8, np.array(["basic", "gold"])[labels], "trial"),
            "town": [f"town {i % 20:02d}" for i in range(n)],
            "member": rng.random(n) < np.where(labels == 1, 0.9, 0.2),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(100 * labels, unit="D"),
            "size": size,
            "comment": [f"text {i}" for i in range(n)],
            "nothing": np.nan,
        }
    )
    frame.loc[::5, "income"] = np.nan
    return frame, labels


def by_name(found):
    return {one.name: one for one in found.columns}


# ------------------------------------------------------------------------------ profiles


@pytest.mark.parametrize("kind", CONVERSIONS)
def test_quartiles_shares_and_missing_by_brute_force(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)).round(2) * [1, 1000, 1] + [0, 5000, 0]
    X[:, 2] = rng.integers(0, 4, 120)
    labels = rng.integers(0, 3, 120)
    found = by_name(column_profiles(CONVERSIONS[kind](X), labels))
    for j in range(3):
        one = found[f"x{j}"]
        assert one.kind == "number"
        for c in range(3):
            expected = np.quantile(X[labels == c, j], [0.25, 0.5, 0.75])
            np.testing.assert_allclose(one.quartiles[c], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(one.shares.sum(axis=1), 1.0)
    assert found["x2"].levels == ["0", "1", "2", "3"]
    assert found["x2"].is_whole
    assert not found["x0"].is_whole
    shares = [[np.mean(X[labels == c, 2] == v) for v in range(4)] for c in range(3)]
    np.testing.assert_allclose(found["x2"].shares, shares)


def test_every_kind_of_column():
    frame, labels = shop()
    found = by_name(column_profiles(frame, labels))
    kinds = {name: one.kind for name, one in found.items()}
    assert kinds == {
        "income": "number",
        "visits": "number",
        "plan": "category",
        "town": "category",
        "member": "boolean",
        "since": "date",
        "size": "ordinal",
        "comment": "text",
        "nothing": "empty",
    }
    np.testing.assert_allclose(found["income"].missing, [0.2, 0.2], atol=0.02)
    np.testing.assert_array_equal(found["nothing"].missing, [1.0, 1.0])
    assert found["plan"].levels[-1] != "other"
    assert found["town"].levels[-1] == "other"
    assert len(found["town"].levels) == 7
    assert found["member"].levels == ["True", "False"]
    assert found["size"].levels == ["S", "M", "L"]
    assert day_text(found["since"].quartiles[1, 1]) == "2020-04-10"
    assert found["comment"].n_values == 300
    assert np.isnan(found["comment"].effect)
    assert np.isnan(found["nothing"].effect)


def test_a_single_further_level_has_its_name_instead_of_other():
    words = np.repeat(list("abcdefg"), [9, 8, 7, 6, 5, 4, 3])
    found = column_profiles(pd.DataFrame({"w": words}), np.arange(42) % 2)
    assert found.columns[0].levels == list("abcdefg")
    assert column_profiles(pd.DataFrame({"w": words}), np.arange(42) % 2, n_levels=5).columns[
        0
    ].levels == [*"abcde", "other"]


def test_used_columns_come_first_and_large_effects_before_small_ones():
    frame, labels = shop()
    used = [name in ("income", "visits", "town") for name in frame.columns]
    found = column_profiles(frame, labels, used=used)
    flags = [one.used for one in found.columns]
    assert flags == sorted(flags, reverse=True)
    assert sum(flags) == 3
    for wanted in (True, False):
        effects = [one.effect for one in found.columns if one.used == wanted]
        known = [effect for effect in effects if not np.isnan(effect)]
        assert known == sorted(known, reverse=True)
        assert all(np.isnan(effects[len(known) :]))


def test_effects_are_those_of_the_textbook():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 500)
    values = labels + rng.normal(size=500)
    words = np.where(rng.random(500) < 0.5, labels, rng.integers(0, 4, 500)).astype(str)
    found = by_name(column_profiles(pd.DataFrame({"v": values, "w": words}), labels))
    h = stats.kruskal(*(values[labels == c] for c in range(3))).statistic
    assert found["v"].effect == pytest.approx(np.sqrt((h - 2) / (500 - 3)))
    corrected = stats.contingency.association(
        pd.crosstab(labels, words).to_numpy(), method="cramer"
    )
    assert found["w"].effect == pytest.approx(corrected, abs=0.02)


def test_effects_of_noise_are_about_zero():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=200) for j in range(20)})
    for j in range(20):
        frame[f"w{j}"] = rng.choice(list("abcdefghijklmnop"), 200)
    effects = [one.effect for one in column_profiles(frame, rng.integers(0, 4, 200)).columns]
    assert np.median(effects) < 0.1
    assert max(effects) < 0.35


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_values_of_any_size(scale):
    frame, labels = shop()
    values = frame[["income"]].to_numpy()
    found, plain = (column_profiles(one, labels).columns[0] for one in (values * scale, values))
    assert found.effect == pytest.approx(plain.effect)
    np.testing.assert_allclose(found.quartiles / scale, plain.quartiles, rtol=1e-9)
    np.testing.assert_allclose(found.shares, plain.shares)


def test_degenerate_tables():
    one_row = column_profiles([[1.0, np.inf]], ["a"])
    assert by_name(one_row)["x1"].kind == "empty"
    constant = column_profiles(np.ones((5, 1)), [0, 0, 1, 1, 1]).columns[0]
    assert constant.effect == 0
    np.testing.assert_array_equal(constant.shares, [[1.0], [1.0]])
    half = np.array([[1.0], [2.0], [np.nan], [np.nan]])
    lost = column_profiles(half, [0, 0, 1, 1]).columns[0]
    assert np.isnan(lost.quartiles[1]).all()
    assert np.isnan(lost.shares[1]).all()
    assert "missing" in str(column_profiles(half, [0, 0, 1, 1]))
    same_day = pd.DataFrame({"d": pd.to_datetime(["2020-02-02"] * 3)})
    assert column_profiles(same_day, [0, 0, 1]).columns[0].shares.sum() == 2


def test_a_far_outlier_does_not_set_the_axis():
    rng = np.random.default_rng(0)
    values = np.append(rng.normal(size=999), 1e9)
    one = column_profiles(values[:, None], np.arange(1000) % 2).columns[0]
    assert one.edges[-1] < 10
    np.testing.assert_allclose(one.shares.sum(axis=1), 1.0)


def test_a_sample_keeps_small_clusters():
    codes = np.repeat([0, 1, 2], [100_000, 60, 5])
    rows = sampled_rows(codes, 1000, np.random.RandomState(0), 50)
    np.testing.assert_array_equal(np.bincount(codes[rows]), [999 + 1, 50, 5])
    X = np.arange(codes.size, dtype=float)[:, None]
    found = column_profiles(X, codes, max_rows=1000, random_state=0)
    assert found.n_sampled == 1055
    np.testing.assert_array_equal(found.sizes, [100_000, 60, 5])
    assert found.columns[0].quartiles[0, 1] == pytest.approx(50_000, rel=0.1)


def test_the_frame_and_the_words(monkeypatch):
    frame, labels = shop()
    used = [name != "plan" for name in frame.columns]
    found = column_profiles(frame, np.array(["north", "south"])[labels], used=used)
    table = found.to_frame()
    assert len(table) == 18
    row = table[(table["column"] == "plan") & (table["cluster"] == "south")].iloc[0]
    assert row["level"] == "gold"
    assert row["share"] == pytest.approx((frame["plan"][labels == 1] == "gold").mean())
    assert not row["used"]
    dates = table[table["column"] == "since"]["median"]
    assert dates.tolist() == [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-04-10")]
    words = str(found)
    assert "plan (left out)" in words
    assert "2020-04-10" in words
    assert "cluster north" in words
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'volmar\[io\]'"):
        found.to_frame()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1]}, r"^labels .*shape \(6,\)"),
        ({"used": [True]}, r"^used\b"),
        ({"feature_names": ["a"]}, "^feature_names"),
        ({"n_levels": 0}, "n_levels must be"),
        ({"max_rows": 0}, "max_rows must be"),
        ({"X": np.empty((0, 2)), "labels": []}, "X has no rows"),
        ({"X": np.arange(6.0)}, "X must have rows and columns"),
    ],
)
def test_bad_input(change, message):
    given = {"X": np.arange(12.0).reshape(6, 2), "labels": [0, 0, 0, 1, 1, 1]} | change
    with pytest.raises(ValueError, match=message):
        column_profiles(given.pop("X"), given.pop("labels"), **given)


# ------------------------------------------------------------------------------ names


def names_of(frame, labels):
    return suggested_names(describe_clusters(frame, labels))


def test_names_say_what_most_rows_have():
    frame, labels = shop()
    names = names_of(frame[["income", "plan"]], labels)
    assert names == {0: "low income, plan = basic", 1: "high income, plan = gold"}
    assert names_of(frame[["since"]], labels) == {0: "early since", 1: "late since"}
    assert names_of(frame[["size"]], labels) == {0: "low size", 1: "high size"}


def test_a_share_below_a_half_and_absent_levels():
    n = 400
    labels = np.repeat([0, 1], n // 2)
    level = np.array(["a"] * n, dtype=object)
    level[:80] = "b"  # 40 % against none
    names = names_of(pd.DataFrame({"w": level}), labels)
    assert names == {0: "more w = b", 1: "not w = b"}


def test_missing_values_name_a_cluster():
    values = np.arange(100.0) % 7
    values[:45] = np.nan
    names = names_of(pd.DataFrame({"answer": values}), np.repeat([0, 1], 50))
    assert names == {0: "answer missing", 1: "answer known"}


def test_a_cluster_between_two_others_is_the_middle():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 100)
    X = pd.DataFrame({"income": 10.0 * labels + rng.normal(size=300), "x": rng.normal(size=300)})
    assert names_of(X, labels) == {0: "low income", 1: "middle income", 2: "high income"}


def test_names_are_unique_and_short():
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 6
    long = "a column with a name that is far too long for a heading"
    X = pd.DataFrame({long: np.where(labels < 3, 0.0, 9.0) + rng.normal(size=600)})
    names = names_of(X, labels)
    assert len(set(names.values())) == 6
    assert all(len(name) < 60 for name in names.values())
    assert names[0].startswith("low a column")
    assert names[1].endswith("(2)")
    # A further column distinguishes two clusters that share the first two.
    values = np.zeros((400, 3))
    groups = np.repeat([0, 1, 2, 3], 100)
    values[groups < 2, 0], values[groups < 2, 1] = 20.0, 18.0
    values[groups == 0, 2] = 11.0
    values += rng.normal(size=values.shape)
    names = names_of(pd.DataFrame(values, columns=["a", "b", "c"]), groups)
    assert len(set(names.values())) == 4
    assert "high c" in names[0]


def test_no_column_leads():
    rng = np.random.default_rng(0)
    names = names_of(rng.normal(size=(300, 3)), rng.integers(0, 2, 300))
    assert names == {0: "no leading column", 1: "no leading column (2)"}
    assert suggested_names(describe_clusters(np.ones((5, 1)), np.zeros(5, dtype=int))) == {
        0: "no leading column"
    }


# ------------------------------------------------------------------------------ the report


def outcome_of(frame, labels, X=None, **changes):
    n = len(labels)
    X = np.column_stack([labels, np.arange(n)]).astype(float) if X is None else X
    given = {
        "title": "Shop",
        "command": "volmar cluster shop.csv",
        "asked": {},
        "source": "shop.csv",
        "n_rows": n,
        "n_columns": 9,
        "notes": [],
        "method": "MSPC",
        "parameters": {},
        "seed": 0,
        "X": X,
        "feature_names": [f"f{j}" for j in range(X.shape[1])],
        "ids": np.array([f"id{i}" for i in range(n)]),
        "id_name": "customer",
        "labels": labels,
        "scores": np.where(labels == 1, 1.0, -1.0) * (1.0 + np.arange(n)),
        "model": None,
        "n_found": np.unique(labels).size,
        "evidence": [],
        "quality": [],
        "warnings": [],
        "seconds": {},
        "columns": frame,
    }
    return Outcome(**(given | changes))


def test_the_table_of_all_columns_is_grouped_folded_and_counted():
    frame, labels = shop()
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(300, 30)), columns=[f"noise {j}" for j in range(30)])
    frame = pd.concat([frame, wide], axis=1)
    used = [name.startswith("noise") or name == "income" for name in frame.columns]
    view = all_columns(outcome_of(frame, labels, used=used))
    first, second = view["groups"]
    assert (first["title"], first["n"]) == ("Used for clustering", 31)
    assert (second["title"], second["n"]) == ("Not used for clustering", 8)
    assert (len(first["open"]), len(first["folded"]), first["n_hidden"]) == (20, 11, 0)
    assert first["open"][0]["name"] == "income"
    income = first["open"][0]["cells"][0]
    assert income["kind"] == "bins"
    assert income["missing"] == "20 %"
    assert income["q1"] <= income["median"] <= income["q3"]
    rows = {row["name"]: row for row in second["open"]}
    assert rows["member"]["cells"][1]["listed"][0][0] == "True"
    assert rows["plan"]["cells"][0]["listed"][0][0] == "basic"
    assert rows["since"]["cells"][1]["text"] == "2020-04-10"
    assert rows["comment"]["kind"] == "text, 300 values"
    assert rows["comment"]["cells"][0]["kind"] == "none"
    assert rows["visits"]["cells"][0]["text"].isdigit()


def test_columns_of_X_are_shown_in_their_own_units():
    labels = np.repeat([0, 1], 50)
    X = np.linspace(-1, 1, 100)[:, None]
    changes = {"columns": None, "scales": np.array([50.0]), "offsets": np.array([200.0])}
    view = all_columns(outcome_of(None, labels, X, **changes))
    low = view["groups"][0]["open"][0]["cells"][0]
    assert float(low["text"]) == pytest.approx(np.median(X[:50]) * 50 + 200, abs=0.1)


def test_huge_values_are_drawn():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 300) * 1.7e308})
    (group,) = all_columns(outcome_of(frame, shop()[1]))["groups"]
    for cell in group["open"][0]["cells"]:
        assert 0 <= cell["q1"] < cell["median"] < cell["q3"] <= 100
        assert "nan" not in cell["path"]


def test_many_sparse_columns_show_those_that_differ():
    X = sparse.random(200, 2000, 0.05, format="lil", random_state=0)
    labels = np.repeat([0, 1], 100)
    X[:100, 1234] = 5.0
    view = all_columns(outcome_of(None, labels, X.tocsr(), columns=None))
    (group,) = view["groups"]
    assert group["n"] == 2000
    assert group["open"][0]["name"] == "f1234"
    assert group["n_hidden"] + len(group["open"]) + len(group["folded"]) == 2000


def test_many_clusters_keep_the_table_small():
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 150
    view = all_columns(outcome_of(None, labels, rng.normal(size=(600, 40)), columns=None))
    (group,) = view["groups"]
    assert (len(group["open"]) + len(group["folded"])) * 150 <= 1300
    assert group["n_hidden"] == 32


def test_border_rows_are_nearest_to_the_border():
    frame, labels = shop()
    outcome = outcome_of(frame, labels)
    assert border_rows(outcome, 0).tolist() == ["id0", "id1", "id2"]
    assert border_rows(outcome, 1).tolist() == ["id100", "id101", "id102"]
    shown = profiles(outcome)["clusters"]
    assert shown[1]["border"] == ["id100", "id101", "id102"]
    assert shown[0]["name"] == "low f0, low f1"
    without = dataclasses.replace(outcome, scores=np.zeros(300))
    assert border_rows(without, 0).size == 0
