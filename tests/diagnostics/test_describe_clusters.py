"""Differences between clusters: effects, kinds of columns, and claims tested on other rows."""

import dataclasses
import pickle
import sys

import numpy as np
import pytest
from helpers.conversions import CONVERSIONS
from helpers.groups import kmeans
from scipy import sparse
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmar import AutoClusterer
from volmar.diagnostics import ClusterDescription, describe_clusters

pd = pytest.importorskip("pandas")


def two_groups(n=300, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[: n // 3, 0] += 6.0
    X[: n // 3, 1] -= 4.0
    return X, (np.arange(n) >= n // 3).astype(int)


def one(found, label, column, level="", kind=None):
    (match,) = [
        difference
        for difference in found.differences(label)
        if (difference.column, difference.level) == (column, level)
        and (kind is None or difference.kind == kind)
    ]
    return match


# ------------------------------------------------------------------------------ effects


@pytest.mark.parametrize("kind", CONVERSIONS)
def test_sizes_means_and_effects_by_brute_force(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3)).round(3) * [1, 100, 1e-3] + [5, 0, 0]
    labels = rng.integers(0, 3, 90)
    found = describe_clusters(CONVERSIONS[kind](X), labels)
    np.testing.assert_array_equal(found.sizes, np.bincount(labels))
    for c in range(3):
        for j in range(3):
            inside, outside = X[labels == c, j], X[labels != c, j]
            spread = np.sqrt(
                ((inside.size - 1) * inside.var(ddof=1) + (outside.size - 1) * outside.var(ddof=1))
                / (X.shape[0] - 2)
            )
            match = one(found, c, f"x{j}")
            tolerance = {"rel": 1e-4 if kind == "float32" else 1e-8, "abs": 1e-6}
            assert match.inside == pytest.approx(inside.mean(), **tolerance)
            assert match.outside == pytest.approx(outside.mean(), **tolerance)
            expected = (inside.mean() - outside.mean()) / spread
            assert match.effect == pytest.approx(expected, **tolerance)
            assert match.real is None


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_values_of_any_size(scale):
    X, labels = two_groups()
    found, plain = (describe_clusters(one, labels) for one in (X * scale, X))
    np.testing.assert_allclose(found.effect, plain.effect, rtol=1e-8)
    np.testing.assert_allclose(found.inside / scale, plain.inside, rtol=1e-8)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_typical_rows_are_nearest_to_the_mean(make):
    X, labels = two_groups()
    found = describe_clusters(make(X), labels, n_typical=4)
    Z = X / X.std(axis=0)
    for c in range(2):
        members = np.flatnonzero(labels == c)
        gaps = np.linalg.norm(Z[members] - Z[members].mean(axis=0), axis=1)
        np.testing.assert_array_equal(found.typical[c], members[np.argsort(gaps)[:4]])


def test_columns_that_do_not_vary_or_do_not_overlap():
    X = np.column_stack([np.ones(60), np.repeat([0.0, 1.0], 30), np.arange(60) % 7])
    found = describe_clusters(X, np.repeat([0, 1], 30), feature_names=["same", "step", "other"])
    assert one(found, 0, "same").effect == 0
    assert one(found, 0, "step").effect == -np.inf
    assert "lower step (no overlap)" in found.sentence(0)


# ------------------------------------------------------------------------------ columns


def mixed(n=400, seed=0):
    """Two groups that differ in income, education, colour, and missing values of age."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) < n // 4
    levels = ["low", "middle", "high", "highest"]
    education = np.clip(np.where(group, 2, 1) + rng.integers(-1, 2, n), 0, 3)
    age = rng.normal(40, 10, n)
    age[rng.random(n) < np.where(group, 0.5, 0.05)] = np.nan
    colour = np.where(rng.random(n) < np.where(group, 0.9, 0.1), "red", "blue").astype(object)
    colour[rng.random(n) < 0.1] = "green"
    colour[:3] = None
    frame = pd.DataFrame(
        {
            "income": rng.normal(np.where(group, 60, 30), 5),
            "education": pd.Categorical.from_codes(education, levels, ordered=True),
            "age": age,
            "colour": colour,
            "smoker": rng.random(n) < 0.3,
        }
    )
    return frame, group.astype(int)


def test_numbers_ranks_levels_and_missing_values():
    frame, labels = mixed()
    found = describe_clusters(frame, labels)
    inside, outside = frame[labels == 1], frame[labels == 0]
    education = one(found, 1, "education")
    assert education.kind == "ordinal"
    assert education.inside == pytest.approx(inside["education"].cat.codes.mean())
    assert education.effect > 0.5
    assert found.orders == {"education": ["low", "middle", "high", "highest"]}
    red = one(found, 1, "colour", "red")
    assert red.inside == pytest.approx(
        (inside["colour"] == "red").sum() / inside["colour"].count()
    )
    shares = [
        (part["colour"] == "red").sum() / part["colour"].count() for part in (inside, outside)
    ]
    expected = 2 * np.arcsin(np.sqrt(shares[0])) - 2 * np.arcsin(np.sqrt(shares[1]))
    assert red.effect == pytest.approx(expected)
    assert one(found, 1, "age", kind="number").inside == pytest.approx(inside["age"].mean())
    missing = one(found, 1, "age", kind="missing")
    assert missing.inside == pytest.approx(inside["age"].isna().mean())
    assert "age missing more often" in str(missing)
    assert "more colour = red" in str(red)
    # Of two levels only one is compared.
    assert [level for level in found.levels if level in ("True", "False")] == ["True"]
    assert found.levels.count("red") == 1


def test_claims_about_every_kind_of_column():
    frame, labels = mixed(800)
    found = describe_clusters(
        frame, labels, estimator=kmeans(), model_input=frame[["income"]] / 5, random_state=0
    )
    for column, level, kind in (
        ("income", "", "number"),
        ("education", "", "ordinal"),
        ("colour", "red", "share"),
        ("age", "", "missing"),
    ):
        assert one(found, 1, column, level, kind).real, column
    assert one(found, 1, "smoker", "True").real is False
    assert found.found_again.min() > 0.95


def test_polars_text_and_missing_values_are_as_in_pandas():
    pl = pytest.importorskip("polars")
    frame, labels = mixed()
    frame = frame.assign(education=frame["education"].cat.codes)
    frame["colour"] = frame["colour"].fillna("unknown")
    other = pl.DataFrame({name: frame[name].to_list() for name in frame}, nan_to_null=True)
    one_, two = describe_clusters(frame, labels), describe_clusters(other, labels)
    assert one_.columns == two.columns
    assert one_.levels == two.levels
    np.testing.assert_allclose(one_.effect, two.effect)


def test_names_of_rows_and_many_levels_are_remarked_on():
    n = 300
    frame = pd.DataFrame(
        {
            "name": [f"row {i}" for i in range(n)],
            "place": [f"p{i % 100}" for i in range(n)],
            "x": np.arange(n),
        }
    )
    found = describe_clusters(frame, np.arange(n) % 2)
    assert found.columns.count("place") == 50
    assert "name" not in found.columns
    assert any("'name' has a different value in every row" in remark for remark in found.remarks)
    assert any("100 values of column 'place'" in remark for remark in found.remarks)


def test_noise_is_counted_but_not_compared():
    X, labels = two_groups()
    labels[::10] = -1
    found = describe_clusters(X, labels)
    assert found.clusters == [0, 1]
    assert found.n_noise == 30
    assert found.shares.sum() == pytest.approx(0.9)
    assert one(found, 0, "x0").outside == pytest.approx(X[labels == 1, 0].mean())
    assert found.sentence(-1) == "noise: 30 rows (10 %), not compared"
    assert "noise: 30 rows" in str(found)
    everything = describe_clusters(X, np.full(300, -1))
    assert everything.clusters == []
    assert "noise: 300 rows (100 %)" in str(everything)


def test_a_single_cluster_is_not_compared():
    X, _ = two_groups()
    found = describe_clusters(X, np.zeros(300, dtype=int), estimator=kmeans())
    assert found.real is None
    assert "single cluster" in found.note
    assert found.table.empty
    assert found.sentence(0).startswith("cluster 0: 300 rows (100 %); typical row:")


# ------------------------------------------------------------------------------ input


def test_labels_alone_are_described_without_a_claim():
    X, labels = two_groups()
    found = describe_clusters(X, labels)
    assert found.real is None
    assert "Pass the estimator" in found.note
    assert "(not tested)" in found.sentence(0)
    assert found.table["real"].isna().all()
    assert found.differences(0, real_only=True) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: AutoClusterer(random_state=0),
        lambda: KMeans(2, n_init=5),
        lambda: AgglomerativeClustering(2),
        lambda: GaussianMixture(2, random_state=0),
        lambda: DBSCAN(eps=2.6, min_samples=3),
        lambda: make_pipeline(StandardScaler(), KMeans(2, n_init=5)),
    ],
)
@pytest.mark.parametrize("fitted", [False, True])
def test_any_clusterer_fitted_or_not(make, fitted):
    X, truth = two_groups()
    model = make()
    if fitted:
        model.fit(X)
    found = describe_clusters(X, model, random_state=0)
    assert len(found.clusters) == 2
    assert sorted(found.sizes) == pytest.approx(sorted(np.bincount(truth)), abs=12)
    assert one(found, 0, "x0").real
    assert one(found, 0, "x1").real
    assert not found.real[:, 2:].all()
    np.testing.assert_array_equal(found.real[0], found.real[1])


def test_a_model_that_was_fitted_to_other_rows_predicts():
    X, _ = two_groups(400)
    model = kmeans().fit(X[:200])
    found = describe_clusters(X[100:], model, random_state=0)
    assert found.sizes.sum() == 300
    with pytest.raises(ValueError, match="cannot predict"):
        describe_clusters(X, AgglomerativeClustering(2).fit(X[:200]))


def test_the_same_seed_gives_the_same_answer_and_rows_may_be_drawn():
    X, _ = two_groups(3000)
    seen = []
    found = [
        describe_clusters(
            X,
            KMeans(2, n_init=1),
            max_rows=600,
            random_state=3,
            progress=lambda done, wanted: seen.append((done, wanted)),
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(found[0].evidence, found[1].evidence)
    assert "of 600 rows" in found[0].note
    assert found[0].sizes.sum() == 3000
    n_subsets = seen[0][1]
    assert seen[:n_subsets] == [(i + 1, n_subsets) for i in range(n_subsets)]


def test_the_note_gives_the_reason_if_there_are_too_few_rows():
    X, _ = two_groups(100, 5)
    found = describe_clusters(X, kmeans())
    assert found.real is None
    assert "needs 6 subsets of 20 rows" in found.note
    assert np.abs(found.effect[0, 0]) > 2  # effects are shown all the same
    assert "higher x0 (+" in str(found)


@pytest.mark.parametrize(("d", "n_subsets"), [(5, 8), (30, 11)])
def test_there_are_subsets_for_a_single_real_claim(d, n_subsets):
    X, _ = two_groups(300, d)
    assert f"{n_subsets} disjoint subsets" in describe_clusters(X, kmeans(), random_state=0).note


def test_effects_are_shown_if_clusters_are_not_found_again():
    X = np.random.default_rng(0).normal(size=(300, 4))
    found = describe_clusters(X, kmeans(3), random_state=0)
    assert not found.real.any()
    assert "sd) (not confirmed)" in found.sentence(0) or "not found again" in found.sentence(0)
    assert "sd)" in found.sentence(0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": 0}, ValueError, "q must be greater than 0"),
        ({"n_typical": 0}, ValueError, "n_typical must be at least 1"),
        ({"n_subsets": 40}, ValueError, "^n_subsets"),
        ({"feature_names": ["a"]}, ValueError, "^feature_names"),
        ({"ids": [1, 2]}, ValueError, r"ids must have shape \(300,\)"),
        ({"model_input": np.ones((3, 2))}, ValueError, "^model_input"),
        ({"labels_or_model": [0, 1]}, ValueError, r"labels of shape \(300,\)"),
        ({"labels_or_model": KMeans}, TypeError, "Pass an instance"),
        ({"labels_or_model": np.full(300, 0.5)}, TypeError, "^labels .*integers"),
        ({"X": np.ones(5)}, ValueError, "X must have rows and columns"),
        ({"X": np.ones((0, 5)), "labels_or_model": []}, ValueError, "X has no rows"),
        ({"X": pd.DataFrame({"z": [[1]] * 300})}, TypeError, "column 'z' .*row 0"),
        ({"X": np.ones((300, 2), dtype=complex)}, TypeError, "complex numbers"),
        ({"X": sparse.csr_array(np.full((300, 2), np.nan))}, ValueError, "is sparse and has 600"),
    ],
)  # fmt: skip
def test_bad_input(change, error, message):
    X, labels = two_groups()
    given = {"X": X, "labels_or_model": labels} | change
    with pytest.raises(error, match=message):
        describe_clusters(given.pop("X"), given.pop("labels_or_model"), **given)


def test_an_estimator_that_takes_no_such_rows():
    frame, labels = mixed()
    with pytest.raises(ValueError, match=r"no subset .*KMeans"):
        describe_clusters(frame, labels, estimator=kmeans())
    X, labels = two_groups()
    with pytest.raises(ValueError, match="takes a precomputed matrix"):
        describe_clusters(X, labels, estimator=DBSCAN(metric="precomputed"))


@pytest.mark.parametrize("make", ["pandas", "polars", "objects", "zoned", "numpy"])
def test_dates_are_days(make):
    """A date is compared as a number of days; missing dates stay missing."""
    days = pd.date_range("2020-01-01", periods=300)
    labels = (np.arange(300) >= 200).astype(int)
    frame = pd.DataFrame({"when": days, "x": np.arange(300.0)})
    frame.loc[5, "when"] = pd.NaT
    X = {
        "pandas": lambda: frame,
        "polars": lambda: pytest.importorskip("polars").from_pandas(frame),
        "objects": lambda: frame.assign(when=[None, *days[1:].date]).assign(
            when=lambda f: f["when"].where(f.index != 5)
        ),
        "zoned": lambda: frame.assign(when=frame["when"].dt.tz_localize("Asia/Tokyo")),
        "numpy": frame[["when"]].to_numpy,
    }[make]()
    found = describe_clusters(X, labels, feature_names=["when", "x"][: X.shape[1]])
    late = one(found, 1, "when", kind="date")
    expected = (days[200:] - pd.Timestamp("1970-01-01")).days.to_numpy().mean()
    shift = 9 / 24 if make == "zoned" else 0.0
    assert late.inside == pytest.approx(expected - shift)
    assert str(late).startswith("later when (+")
    assert one(found, 0, "when", kind="missing").inside == pytest.approx(
        (2 if make == "objects" else 1) / 200
    )


def test_lengths_of_time_are_days():
    frame = pd.DataFrame({"stay": pd.to_timedelta(np.arange(10) * 12, unit="h")})
    found = describe_clusters(frame, [0] * 5 + [1] * 5)
    assert one(found, 0, "stay").inside == pytest.approx(1.0)
    assert found.kinds == ["number"]


# ------------------------------------------------------------------------------ the result


def test_the_result_in_words_as_a_table_and_pickled():
    X, labels = two_groups()
    names = ["income", "age", "a", "b", "c"]
    ids = np.array([f"id{i}" for i in range(300)])
    found = describe_clusters(
        X, labels, estimator=kmeans(), feature_names=names, ids=ids, random_state=0
    )
    sentence = found.sentence(0)
    assert sentence.startswith("cluster 0: 100 rows (33 %); higher income (+")
    assert "lower age (-" in sentence
    assert f"typical row: {found.typical[0][0]}" in sentence
    assert found.typical[0][0].startswith("id")
    assert len(str(found).splitlines()) == 4
    assert "Suggested names: 0: high income, low age; 1: low income, high age." in str(found)
    assert "false discovery rate of 0.05" in str(found)
    table = found.table
    expected = ["cluster", "name", "size", "share", "column", "level", "kind"]
    assert list(table.columns[:7]) == expected
    assert set(table["name"]) == set(found.names.values())
    assert len(table) == 10
    assert table.loc[table["cluster"] == 0, "effect"].abs().is_monotonic_decreasing
    assert table["real"].sum() == found.real.sum()
    again = pickle.loads(pickle.dumps(found))
    assert isinstance(again, ClusterDescription)
    assert str(again) == str(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.q = 0.2
    with pytest.raises(ValueError, match="label=7 is not a cluster"):
        found.sentence(7)
    with pytest.raises(ValueError, match="no row is noise"):
        found.sentence(-1)


def test_text_labels():
    X, labels = two_groups()
    found = describe_clusters(X, np.array(["north", "south"])[labels])
    assert found.clusters == ["north", "south"]
    assert found.sentence("north").startswith("cluster north: 100 rows")


def test_the_table_asks_for_pandas(monkeypatch):
    found = describe_clusters(*two_groups())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'volmar\[io\]'"):
        _ = found.table
    assert "cluster 0" in str(found)
