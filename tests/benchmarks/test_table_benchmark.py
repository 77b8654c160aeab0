"""The benchmark of tables: its artificial data, rivals, bookkeeping and tables."""

import importlib
import sys

import numpy as np
import pytest

pytest.importorskip("pandas")


pytestmark = pytest.mark.usefixtures("benchmarks_here")


@pytest.fixture
def data():
    return importlib.import_module("benchmarks.table_data")


@pytest.fixture
def contest():
    return importlib.import_module("benchmarks.table_contest")


@pytest.fixture
def bench():
    return importlib.import_module("benchmarks.bench_tables")


# ---------------------------------------------------------------------- data


def test_there_are_twelve_kinds_and_a_twin_of_each(data):
    grouped = [kind for kind in data.KINDS.values() if kind.grouped]
    assert len(grouped) >= 12
    assert len({kind.n_groups for kind in grouped}) >= 3  # "always three" does not win
    for kind in grouped:
        twin = data.KINDS[kind.name + data.NO_GROUPS]
        assert twin.n_groups == 1
        assert twin.columns is kind.columns


def test_tables_have_their_rows_ids_and_groups(data):
    for name, kind in data.KINDS.items():
        n = kind.n_rows(200)
        frame, truth = data.make_table(name, n, 1000)
        assert len(frame) == n
        for column in kind.id_columns:
            assert column in frame
        if not kind.grouped:
            assert truth is None
            continue
        ends = np.round(n * np.cumsum(kind.shares)).astype(int)
        np.testing.assert_array_equal(np.bincount(truth), np.diff(ends, prepend=0))
        twin, _ = data.make_table(name + data.NO_GROUPS, n, 1000)
        assert list(twin.columns) == list(frame.columns)
        assert (twin.dtypes == frame.dtypes).all()


def test_draws_depend_on_the_seed_and_on_nothing_else(data):
    for name, kind in data.KINDS.items():
        n = kind.n_rows(80)
        frame, truth = data.make_table(name, n, 1000)
        again, same = data.make_table(name, n, 1000)
        assert frame.equals(again)
        np.testing.assert_array_equal(truth, same)
        assert not frame.equals(data.make_table(name, n, 1001)[0])


def test_wrong_kinds_and_sizes_are_refused(data):
    with pytest.raises(ValueError, match=r"^kind\b"):
        data.make_table("custumers", 100, 1000)
    with pytest.raises(ValueError, match=r"^n_rows"):
        data.make_table("wide", 151, 1000)
    assert data.make_table("wide", 150, 1000)[0].shape == (150, 3002)


def test_memberships_without_groups_have_the_moments_of_groups_and_one_mode():
    rows = importlib.import_module("benchmarks.table_rows").Rows
    shares = np.array([0.6, 0.3, 0.1])
    alone = rows(np.random.default_rng(0), 200_000, shares, grouped=False)
    groups = rows(np.random.default_rng(0), 200_000, shares, grouped=True)
    for one in (alone, groups):
        np.testing.assert_allclose(one.members.sum(axis=1), 1.0)
        np.testing.assert_allclose(one.members.mean(axis=0), shares, atol=0.005)
        np.testing.assert_allclose(
            np.cov(one.members.T), np.diag(shares) - np.outer(shares, shares), atol=0.005
        )
    third = ((alone.members - shares) ** 3).mean(axis=0)
    np.testing.assert_allclose(third, 0.0, atol=0.005)  # no skewness: Gaussian
    assert (np.abs(((groups.members - shares) ** 3).mean(axis=0)) > 0.02).all()


def test_groups_are_as_far_apart_as_asked():
    rows = importlib.import_module("benchmarks.table_rows").Rows
    one = rows(np.random.default_rng(0), 40_000, (0.5, 0.3, 0.2), grouped=True)
    scores = one.scores([[0, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 2]], 5.0, common=0.4)
    means = np.array([scores[one.groups == g].mean(axis=0) for g in range(3)])
    within = np.cov((scores - means[one.groups]).T)
    np.testing.assert_allclose(np.diag(within), 1.0, atol=0.05)
    gaps = [means[i] - means[j] for i in range(3) for j in range(i)]
    apart = [gap @ gap / np.sqrt(gap @ within @ gap) for gap in gaps]
    np.testing.assert_allclose(min(apart), 5.0, rtol=0.03)


def test_values_are_missing_more_often_where_the_driver_is_large(data):
    frame, _ = data.make_table("clinical", 4000, 1000)
    shares = frame.isna().mean()
    partial = shares[shares > 0]
    assert len(partial) == 15
    assert partial.between(0.03, 0.22).all()
    old = frame["age"] > frame["age"].median()
    gone = frame[partial.index].isna()
    assert gone[old].to_numpy().mean() > 1.5 * gone[~old].to_numpy().mean()


@pytest.mark.nightly
def test_the_columns_tell_the_groups(data, contest):
    """A target of .85 can be reached: a classifier is far above it on every kind."""
    for name, kind in data.KINDS.items():
        if not kind.grouped:
            continue
        frame, truth = data.make_table(name, kind.n_rows(500), 1000)
        usual = importlib.import_module("benchmarks.rivals.usual_preparation")
        X = usual.usual_preparation(frame, kind.id_columns).one_hot
        assert contest.supervised_ari(X, truth) > 0.88, name


# ---------------------------------------------------------------------- rivals


def test_usual_preparation_codes_every_kind_of_column():
    import pandas as pd

    usual = importlib.import_module("benchmarks.rivals.usual_preparation")
    frame = pd.DataFrame(
        {
            "id": [7, 8, 9, 10],
            "day": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]),
            "value": [1.0, None, 3.0, 5.0],
            "colour": ["red", None, "blue", "red"],
            "flag": [True, False, True, False],
        }
    )
    found = usual.usual_preparation(frame, ["id"])
    day = np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25)
    value = np.array([1.0, 3.0, 3.0, 5.0])
    np.testing.assert_allclose(found.numbers[:, 0], day)
    np.testing.assert_allclose(found.numbers[:, 1], (value - 3.0) / value.std())
    np.testing.assert_array_equal(found.categories[:, 0], ["red", "red", "blue", "red"])
    assert found.one_hot.shape == (4, 2 + 2 + 2)
    np.testing.assert_allclose(found.one_hot.mean(axis=0), 0.0, atol=1e-12)
    numbers = usual.usual_preparation(frame[["value"]])
    assert numbers.categories.shape == (4, 0)
    np.testing.assert_array_equal(numbers.one_hot, numbers.numbers)


def test_k_prototypes_finds_groups_of_numbers_and_categories(monkeypatch):
    pytest.importorskip("kmodes")
    rival = importlib.import_module("benchmarks.rivals.k_prototypes")
    monkeypatch.setattr(rival, "MOST_ROWS", 60)
    monkeypatch.setattr(rival, "MOST_CLUSTERS", 4)
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 30)
    numbers = rng.normal(size=(90, 2)) + 12.0 * np.eye(3)[truth][:, :2]
    categories = np.array([["a", "b", "c"][i] for i in truth])[:, None]
    for given in ((numbers, categories), (numbers, categories[:, :0])):
        labels = rival.find_clusters(*given, 0)
        assert len({(a, b) for a, b in zip(labels, truth, strict=True)}) == 3


# ---------------------------------------------------------------------- bookkeeping


def test_what_was_found(contest, data):
    frame, truth = data.make_table("blobs and yes/no", 40, 1000)
    source = contest.Source(None, frame, ())
    right = contest.found(lambda *_: truth, source, truth, 0)
    assert (right.k, right.n_groups, right.ari, right.error) == (4, 4, 1.0, "")
    assert right.right
    alone = contest.found(lambda *_: np.full(40, -1), source, None, 0)
    assert (alone.k, alone.n_groups, alone.right) == (1, 1, True)

    def breaks(source, seed):
        raise RuntimeError("no\n  luck")

    broken = contest.found(breaks, source, None, 0)
    assert (broken.k, broken.ari, broken.error) == (0, 0.0, "RuntimeError: no luck")
    assert not broken.right


def test_development_does_not_use_the_seeds_of_the_benchmark(contest, data, monkeypatch):
    assert max(data.BENCHMARK_SEEDS) < data.FIRST_SEED_OF_DEVELOPMENT
    monkeypatch.setattr(sys, "argv", ["table_contest", "--first-seed", "3"])
    with pytest.raises(SystemExit):
        contest.main()


def fake_results(bench, contest, n_draws=2, seconds=1.0):
    """Ours is right, one rival always finds two clusters, another one always fails."""
    results = {}
    for name, kind in bench.KINDS.items():
        k = kind.n_groups
        results[name] = {
            bench.OURS: [contest.Found(k, k, 1.0, seconds)] * n_draws,
            "HDBSCAN": [contest.Found(2, k, 0.5, seconds)] * n_draws,
            "KMeans, silhouette": [contest.Found(0, k, 0.0, seconds, "ValueError: a | b")]
            * n_draws,
        }
        if kind.grouped:
            results[name][bench.SUPERVISED] = [0.97] * n_draws
    return results, {
        method: runs[0]
        for method, runs in results["customers"].items()
        if method != bench.SUPERVISED
    }


def test_targets_are_met_or_not(bench, contest):
    good = bench.targets(*fake_results(bench, contest))
    assert {target.cells[2] for target in good} == {"yes"}
    results, times = fake_results(bench, contest, seconds=11.0)
    assert [t.cells[2] for t in bench.targets(results, times)] == ["yes", "yes", "yes", "no"]
    failed = times["KMeans, silhouette"]._replace(seconds=0.1)  # quick, but no answer
    wrong = {kind: {**by, bench.OURS: by["HDBSCAN"]} for kind, by in results.items()}
    verdicts = [t.cells[2] for t in bench.targets(wrong, {bench.OURS: failed})]
    assert verdicts == ["no", "no", "no", "no"]


def test_tables_show_every_kind_and_every_failure(bench, contest):
    text = bench.tables(*fake_results(bench, contest), 1000).render()
    for name in bench.KINDS:
        assert f"| {name} " in text
    assert "ValueError: a / b" in text
    assert f"{2 * len(bench.KINDS)} of {2 * len(bench.KINDS)}" in text
    assert "100 % / 1.00 (k = 3)" in text
    assert "0 % / 0.00 (k = ?)" in text


def test_the_benchmark_runs(bench, contest, monkeypatch):
    kinds = ["blobs and yes/no", "imbalanced 90/7/3, no groups"]
    methods = [bench.OURS, "KMeans, silhouette", "HDBSCAN"]
    results = contest.measured(kinds, 120, [1000, 1001], 1, methods)
    assert [len(results[kinds[0]][m]) for m in methods] == [2, 1, 1]
    assert 0.8 < results[kinds[0]][bench.SUPERVISED][0] <= 1.0
    assert bench.SUPERVISED not in results[kinds[1]]
    assert not any(one.error for by in results.values() for m in methods for one in by[m])
    times = bench.timed(150, methods)
    assert set(times) == set(methods)
    text = bench.tables(results, times, 120).render()
    assert "| blobs and yes/no " in text
    calls = []
    monkeypatch.setattr(bench, "measured", lambda *arguments: calls.append(arguments) or results)
    monkeypatch.setattr(bench, "timed", lambda: times)
    bench.run(full=False)
    bench.run(full=True)
    assert [list(call[2]) for call in calls] == [list(range(3)), list(range(20))]
