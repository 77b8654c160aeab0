"""Tools of the benchmarks; times are never asserted."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def names():
    return sorted(path.stem for path in (ROOT / "benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize("name", names())
def test_every_benchmark_says_what_it_measures(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert module.__doc__.strip()
    assert list(inspect.signature(module.run).parameters) == ["full"]


def test_rivals_return_labels():
    rivals = importlib.import_module("benchmarks.rivals")
    X = np.vstack([np.zeros((20, 2)), np.ones((20, 2))])
    X += np.random.default_rng(0).normal(0, 0.05, X.shape)
    for rival in rivals.ALL[:3]:
        assert rival.available()
        assert set(rival.fit_predict(X, 2, 0)) == {0, 1}


def test_the_minimum_density_hyperplane_separates_two_groups():
    rival = importlib.import_module("benchmarks.rivals.minimum_density")
    X = np.random.default_rng(0).normal(size=(150, 4))
    X[:50, 0] += 8.0
    labels = rival.fit_predict(X, 2, 0)
    assert (labels[:50] != labels[50]).all()
    assert (labels[50:] == labels[50]).all()


def test_rivals_with_seeds_return_classes():
    rivals = importlib.import_module("benchmarks.rivals")
    seeds = importlib.import_module("benchmarks.bench_seeds")
    X = np.vstack([np.zeros((20, 2)), np.ones((20, 2))])
    X += np.random.default_rng(0).normal(0, 0.05, X.shape)
    y = np.repeat([1, 0], 20)
    given = seeds.draw_seeds(y, 4, 0)
    assert np.count_nonzero(given >= 0) == 4
    np.testing.assert_array_equal(given[given >= 0], y[given >= 0])
    for rival in rivals.SEEDED[:3]:
        assert rival.available()
        np.testing.assert_array_equal(rival.fit_predict_seeded(X, given, 2, 0), y)


def test_contenders_run_in_turns():
    timing = importlib.import_module("benchmarks.timing")
    order = []
    timings = timing.in_turns(
        {"a": lambda: order.append("a") or 1, "b": lambda: order.append("b") or 2}, repeats=2
    )
    assert order == ["a", "b"] * 3  # the first round warms up
    assert len(timings["a"].seconds) == 2
    assert (timings["a"].value, timings["b"].value) == (1, 2)
    assert len(timing.in_turns({"a": lambda: 1}, repeats=5, budget=0.0)["a"].seconds) == 1


def test_every_speed_row_has_its_work():
    bench = importlib.import_module("benchmarks.bench_speed")
    works = importlib.import_module("benchmarks.speed_work").WORK
    assert [work for work, *_ in bench.ROWS] == list(works)


def test_speed_is_measured_in_turns():
    work = importlib.import_module("benchmarks.speed_work")
    order = []
    both = work.Work(lambda: 7, order.append, lambda x: order.append(-x))
    found = work.measured(both, 2)
    assert order == [7, -7] * 3
    assert set(found) == {"ours user", "ours wall", "rival user", "rival wall", "ratio"}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are Linux's")
def test_memory_is_what_the_work_takes_beyond_its_rows():
    """In a separate process, because memory freed by other tests could be reused here."""
    program = (
        "import numpy as np; from benchmarks.speed_work import Work, measured;"
        "two = Work(lambda: np.ones((4_000, 1_000)), lambda X: [X + 1, X + 2], has_memory=True);"
        "print(measured(two, 1)['ratio'])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 1.5 < float(done.stdout) < 2.5


def test_table_renders_as_markdown():
    table = importlib.import_module("benchmarks.table").Table(("name", "value"))
    table.add("x", 0.123456)
    table.notes.append("a note")
    assert table.render().splitlines() == [
        "| name | value |",
        "|------|-------|",
        "| x    | 0.123 |",
        "",
        "a note",
    ]
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        table.add("x")


def test_what_the_budget_counts():
    house = importlib.import_module("benchmarks.house")
    code = "A = 1\nB, C = 2.0, -3 * A\nD = (1, 2)\nE: int = 4\nF = True\nG = 'x'\nH = A\nI = {}\n"
    assert house.numeric_constants(code) == ["A", "B", "C", "D", "E"]
    page = ".. currentmodule:: a.b\n\n.. autosummary::\n   :toctree: api\n\n   f\n   G\n"
    assert house.public_names(page) == {"a.b.f", "a.b.G"}


def test_a_budget_that_is_exceeded_is_an_error(monkeypatch, capsys, tmp_path):
    house = importlib.import_module("benchmarks.house")
    (tmp_path / "house.toml").write_text('"lines of src" = 5\n"files of src" = 2\n')
    monkeypatch.setattr(house, "BUDGET", tmp_path / "house.toml")
    monkeypatch.setattr(house, "measured", lambda root: {"lines of src": 6, "files of src": 2})
    monkeypatch.setattr("sys.argv", ["house", "--check"])
    with pytest.raises(SystemExit, match=r"lines of src$"):
        house.main()
    assert "files" not in capsys.readouterr().out
    monkeypatch.setattr(house, "measured", lambda root: {"lines of src": 5, "files of src": 2})
    house.main()
    assert not capsys.readouterr().out
