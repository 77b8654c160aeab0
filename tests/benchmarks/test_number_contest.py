"""The comparison of methods that find the number of clusters: data, bookkeeping and tables."""

import importlib
import time

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_here")


@pytest.fixture
def data():
    return importlib.import_module("benchmarks.number_data")


@pytest.fixture
def contest():
    return importlib.import_module("benchmarks.number_contest")


@pytest.fixture
def bench():
    return importlib.import_module("benchmarks.bench_number_of_clusters")


def cases_of(data, topic):
    return {case.name: case for case in data.CASES if case.topic == topic}


def test_every_case_draws_rows_with_their_groups(data, contest):
    wanted = {"level": {1}, "power": {2}, "tutorial": {4}, "bent": {2}}
    for case in data.CASES:
        if case.topic == "real" and case.name not in ("iris", "digits"):
            continue  # the others come from a folder of data files
        X, y = contest.draw_rows(case, 0, "a test")
        assert X.ndim == 2
        assert len(X) == len(y) <= 2000
        assert np.isfinite(X).all()
        if case.topic in wanted:
            assert len(np.unique(y)) in wanted[case.topic]
        if case.topic in ("blobs", "equal distances"):
            assert f"k = {len(np.unique(y))}" in case.name.split(", ")
    assert len({(case.topic, case.name) for case in data.CASES}) == len(data.CASES)


def test_draws_depend_on_the_seed_and_on_nothing_else(data, contest, bench):
    case = cases_of(data, "level")["ring"]
    X, _ = contest.draw_rows(case, 0, bench.SEED)
    np.testing.assert_array_equal(X, contest.draw_rows(case, 0, bench.SEED)[0])
    for other in ((1, bench.SEED), (0, bench.SEED_WHILE_DEVELOPING)):
        assert not np.array_equal(X, contest.draw_rows(case, *other)[0])


def test_groups_of_blobs_have_their_sizes_and_distances(data):
    rng = np.random.default_rng(0)
    for k in data.NUMBERS:
        parts = data.shares(k, "geometric")
        np.testing.assert_allclose(parts.sum(), 1.0)
        assert parts[-1] >= data.SMALLEST
        np.testing.assert_allclose(parts[1:] / parts[:-1], parts[1] / parts[0] if k > 1 else 1.0)
        for d in data.DIMENSIONS:
            centres = data.centres(k, d, rng)
            gaps = np.linalg.norm(centres[:, None] - centres, axis=2)[np.triu_indices(k, 1)]
            assert (gaps >= data.MINIMUM).all()
    np.testing.assert_allclose(
        data.shares(4, "geometric")[1:] / data.shares(4, "geometric")[:-1], 0.6
    )


def test_groups_at_equal_distances_are_at_equal_distances(data):
    for name, case in cases_of(data, "equal distances").items():
        X, y = case.draw(np.random.default_rng(0))
        means = np.array([X[y == group].mean(axis=0) for group in np.unique(y)])
        gaps = np.linalg.norm(means[:, None] - means, axis=2)[np.triu_indices(len(means), 1)]
        wanted = float(name.split(", ")[1].removesuffix(" sd"))
        np.testing.assert_allclose(gaps, wanted, atol=0.7)


def test_two_groups_differ_in_one_standardised_column(data):
    X, y = cases_of(data, "power")["6 sd, 30%, 1 of 10 columns"].draw(np.random.default_rng(0))
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(X.std(axis=0), 1.0)
    gaps = np.abs(X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0))
    assert y.mean() == 0.3
    assert (gaps > 1.5).sum() == 1


def test_targets_of_power_are_cases(data):
    cases = cases_of(data, "power")
    for target in data.POWER_TARGETS:
        assert cases[data.power_name(*target)].factor == data.TARGET_FACTOR


def test_a_call_that_takes_too_long_is_stopped():
    timing = importlib.import_module("benchmarks.timing")
    start = time.perf_counter()
    with pytest.raises(TimeoutError, match=r"stopped after 0\.1 s"), timing.time_limit(0.1):
        time.sleep(30)
    assert time.perf_counter() - start < 15
    with timing.time_limit(30):
        pass


def test_what_was_found(contest):
    X, y = np.zeros((6, 2)), np.array([0, 0, 0, 1, 1, 1])
    right = contest.found(lambda *_: y, X, y, 0)
    assert (right.k, right.n_groups, right.ari, right.failed) == (2, 2, 1.0, False)
    assert contest.found(lambda *_: np.full(6, -1), X, y, 0).k == 1  # noise alone
    assert contest.found(lambda *_: np.array([0, 0, -1, 1, 1, 1]), X, y, 0).k == 2

    def breaks(X, seed):
        raise RuntimeError("no")

    assert contest.found(breaks, X, y, 0).failed


def test_rivals_find_two_plain_groups_and_keep_their_input():
    rivals = importlib.import_module("benchmarks.rivals")
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 12.0])
    before = X.copy()
    installed = [rival for rival in rivals.FINDING_THE_NUMBER if rival.available()]
    assert len(installed) >= 3
    for rival in installed:
        labels = rival.find_clusters(X, 0)
        assert len(labels) == len(X)
        assert len(np.unique(labels[labels >= 0])) == 2, rival.NAME
    np.testing.assert_array_equal(X, before)


def fake_results(bench, data, n_draws):
    """Ours are right, one rival is always wrong, another one always fails."""
    contest = importlib.import_module("benchmarks.number_contest")
    results = {}
    for case in data.CASES:
        k = 1 if case.topic == "level" else 2
        results.setdefault(case.topic, {})[case.name] = {
            bench.LINEAR: [contest.Found(k, k, 1.0)] * n_draws,
            bench.CURVED: [contest.Found(k, k, 1.0)] * n_draws,
            "HDBSCAN": [contest.Found(k + 1, k, 0.5)] * n_draws,
            "mixture, BIC": [contest.Found(0, k, 0.0)] * n_draws,
        }
    return results


def fake_times(bench, seconds):
    timing = importlib.import_module("benchmarks.timing")
    contest = importlib.import_module("benchmarks.number_contest")
    one = timing.Timing((seconds,), contest.Found(1, 1, 1.0))
    return contest.Times(
        {name: dict.fromkeys(bench.METHODS, one) for name in ("blobs", "noise")},
        {name: {bench.LINEAR: one, bench.FIT: one} for name in ("blobs", "noise")},
    )


def test_rates_count_failures_as_wrong(bench, data):
    results = fake_results(bench, data, 4)
    assert bench.overall(results, bench.LINEAR) == 1.0
    np.testing.assert_allclose(bench.overall(results, "HDBSCAN"), 1 / 3)  # finds groups everywhere
    assert bench.overall(results, "mixture, BIC") == 0.0
    failed, n = bench.failures(results, "mixture, BIC")
    assert failed == n == 4 * len(data.CASES)
    np.testing.assert_allclose(bench.level_limit(200), 0.0808, atol=1e-4)


def test_targets_are_met_or_not(bench, data):
    good = bench.targets(fake_results(bench, data, 2), fake_times(bench, 0.5))
    assert {target.cells[2] for target in good} == {"yes"}
    slow = bench.targets(fake_results(bench, data, 2), fake_times(bench, 2.0))
    assert [t.cells[2] for t in slow if t.words.startswith("seconds")] == ["no", "no"]
    wrong = fake_results(bench, data, 2)
    for by_method in wrong["level"].values():
        by_method[bench.LINEAR] = by_method["HDBSCAN"]
    assert bench.targets(wrong, fake_times(bench, 0.5))[0].cells[2] == "no"


def test_failures_count_against_a_target_unless_there_is_nothing_else(bench, data):
    results = fake_results(bench, data, 2)
    broken = results["level"]["ring"]
    broken[bench.LINEAR] = broken["mixture, BIC"]
    for by_method in results["bent"].values():
        by_method[bench.CURVED] = by_method["mixture, BIC"]
    by_words = {t.words: t for t in bench.targets(results, fake_times(bench, 0.5))}
    assert by_words["level, worst case (ring)"].cells[2] == "no"
    assert by_words["power: moons, noise .15"].cells == ("-", "at least 0.8", "-")


def test_tables_show_every_case_and_failures(bench, data):
    text = bench.tables(fake_results(bench, data, 2), bench.QUICK, fake_times(bench, 0.5)).render()
    for topic in ("level", "power", "equal distances", "tutorial", "bent", "real"):
        for name in cases_of(data, topic):
            assert f"| {name} " in text
    assert "**1.00**" in text  # above the limit of the level
    assert "failed" in text
    summary = text.splitlines()[2:6]
    assert [line.split(" | ")[0].strip("| ") for line in summary][-1] == "mixture, BIC"
    assert summary[-1].split("|")[2].strip() == "-"


def test_the_contest_runs(bench, data):
    draws = dict.fromkeys(bench.QUICK, bench.Draws(2, 1, 1))
    cases = [
        cases_of(data, "level")["Gaussian, d = 2"],
        cases_of(data, "blobs")["d = 2, equal, k = 2"],
    ]
    methods = [bench.LINEAR, "HDBSCAN"]
    results = bench.measured(draws, "a test", cases, methods)
    for by_method in (by for found in results.values() for by in found.values()):
        assert {name: len(found) for name, found in by_method.items()} == {
            bench.LINEAR: 2,
            "HDBSCAN": 1,
        }
    assert bench.share(results["blobs"].values(), bench.LINEAR, bench.exact) == 1.0
    bench.tables(results, draws, fake_times(bench, 0.5)).render()
