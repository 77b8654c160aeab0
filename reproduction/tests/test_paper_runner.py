"""The papers' runner: kills, failures, workers, times."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from paper_experiments import ESTIMATORS, PATIENT, SIZES, made_up, own

import volmar
from reproduction import (
    CellResult,
    Results,
    Store,
    list_experiments,
    load_experiment,
    make_lines,
    parse_experiment,
    run_cell,
    run_cells,
    stored_results,
)
from reproduction import expected as expected_module
from reproduction import runner as runner_module
from reproduction.datasets import load
from reproduction.expected import read_expected, write_expected
from reproduction.store import NO_DATA
from volmar import NormalizedSpectralClustering
from volmar.graphs.graph import make_similarity
from volmar.metrics import clustering_error, pair_f_measure


@pytest.fixture
def slow_estimators(tmp_path, monkeypatch):
    (tmp_path / "slow_estimators.py").write_text(ESTIMATORS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("slow_estimators", None)


# ----------------------------------------------------------------------------------- runner


def test_a_sampling_is_loaded_once_and_a_run_loads_anew(tmp_path, monkeypatch):
    cells = list(parse_experiment("sizes", SIZES).cells(1))[:13]  # 1 and 7, then 3 and 8
    assert cells[-1].method == "NSC"
    loaded = []
    real = runner_module.datasets.load

    def count(name, **arguments):
        loaded.append((name, arguments["n_samples"]))
        return real(name, **arguments)

    monkeypatch.setattr(runner_module.datasets, "load", count)
    run_cells(cells, Store(tmp_path / "one.jsonl"))
    assert loaded == [("digits-1v7", 40), ("digits-3v8", 40)]
    last = next(c for c in reversed(cells) if c.similarity)
    alone = run_cells([last], Store(tmp_path / "two.jsonl"))
    assert loaded[2:] == [("digits-3v8", 40)]
    direct = real("digits-3v8", **last.sampling)
    model = NormalizedSpectralClustering(**last.parameters, random_state=1)
    W = make_similarity(**last.similarity).build(direct.X)[0]
    assert alone[last.key].value == clustering_error(direct.y, model.fit(W).labels_)


def test_a_cell_runs_and_is_stored(experiment, tmp_path):
    store = Store(tmp_path / "deep" / "cells.jsonl")
    heard = []
    results = run_cells(
        experiment.cells(), store, progress=lambda done, wanted: heard.append((done, wanted))
    )
    assert list(results) == [cell.key for cell in experiment.cells()]
    assert heard == [(i, 12) for i in range(13)]
    assert all(0 <= r.value <= 0.5 and r.seconds > 0 for r in results.values())
    assert {r.status for r in results.values() if r.cell.method == "KM"} == {"converged"}
    assert {r.status for r in results.values() if r.cell.method == "KMeans"} == {"done"}
    assert store.read() == results
    packages = {"volmar", "python", "numpy", "scipy", "scikit-learn"}
    assert all(r.versions.keys() == packages for r in results.values())


def test_a_value_over_n_is_resolved_for_the_rows_of_the_cell(monkeypatch):
    text = PATIENT.replace("setting = [1, 2, 3, 4]", 'setting = ["5/n", "0.5/n", "n/2", 3, "rms"]')
    given = []

    class Recorder:
        def __init__(self, setting, random_state):
            given.append(setting)

    monkeypatch.setattr(runner_module, "find_estimator", lambda _: Recorder)
    cells = [c for c in own(parse_experiment("n", text).cells(1)) if c.method == "A"]
    for cell in cells[:5]:
        assert cell.sampling["n_samples"] == 60
        run_cell(cell)
    assert given == [5 / 60, 0.5 / 60, "n/2", 3, "rms"]


def test_a_run_goes_on_where_it_stopped(experiment, tmp_path, monkeypatch):
    store = Store(tmp_path / "cells.jsonl")
    cells = list(experiment.cells())
    run_cells(cells[:4], store)
    text = store.path.read_text()
    store.path.write_text(text[:-40])  # a kill in the middle of the last line
    assert len(store.read()) == 3
    ran = []
    real = run_cell
    monkeypatch.setattr(
        runner_module, "run_cell", lambda cell: (ran.append(cell.key), real(cell))[1]
    )
    results = run_cells(cells, store)
    assert ran == [cell.key for cell in cells[3:]]
    assert len(results) == len(Store(store.path).read()) == 12


def test_results_come_in_the_order_of_the_cells(experiment, tmp_path):
    """The first of equally good settings is used, independent of the order of completion."""
    store = Store(tmp_path / "cells.jsonl")
    cells = list(experiment.cells(1))
    run_cells(cells[2:], store)
    assert list(run_cells(cells, store)) == [cell.key for cell in cells]


@pytest.mark.parametrize(
    "line", ["123", "null", "[]", "\udcff", '{"cell": {}}', '"text"', '{"cell": 3}']
)
def test_lines_that_are_no_result_are_ignored(experiment, tmp_path, line):
    store = Store(tmp_path / "cells.jsonl")
    run_cells(list(experiment.cells())[:1], store)
    with store.path.open("ab") as file:
        file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    assert len(store.read()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"value": "0.1"},
        {"value": math.nan},
        {"seconds": None},
        {"seconds": math.inf},
        {"surplus": 1},
        {"versions": "0.1"},
    ],
)
def test_results_that_are_not_whole_run_again(experiment, tmp_path, change):
    store = Store(tmp_path / "cells.jsonl")
    cell = next(experiment.cells())
    raw = {**asdict(made_up(cell, 0.1)), **change}
    store.path.write_text(json.dumps(raw) + "\n")
    assert store.read() == {}
    (result,) = run_cells([cell], store).values()
    assert not result.failed


def refused(cell):
    return replace(cell, similarity={"affinity": "gaussian", "sigma": -1.0})


def test_a_refused_cell_is_recorded_and_not_tried_again(experiment, tmp_path):
    good, cell = list(experiment.cells())[:2]
    cell, store = refused(cell), Store(tmp_path / "cells.jsonl")
    results = run_cells([cell, good], store)
    assert results[good.key].value is not None  # the rest goes on
    result = results[cell.key]
    assert (result.value, result.failed, result.measures) == (None, True, {})
    assert result.status.startswith("ValueError: ")
    run_cells([cell, good], store)
    assert len(store.path.read_text().splitlines()) == 2
    run_cells([cell, good], store, retry=True)
    assert len(store.path.read_text().splitlines()) == 3
    assert str(Results(experiment, [result]).side("digits-1v7", "KM", "hindsight").summary) == "-"


def test_a_cell_without_its_data_is_tried_again(experiment, tmp_path, monkeypatch):
    monkeypatch.setenv("VOLMAR_DATA", str(tmp_path))
    cell = replace(next(experiment.cells()), dataset="ida-heart", sampling={"realization": 1})
    store = Store(tmp_path / "cells.jsonl")
    (result,) = run_cells([cell], store).values()
    assert result.failed
    assert result.status.startswith("no data: FileNotFoundError: ")
    assert "ida_heart.npz" in result.status
    assert stored_results([cell], store) == {cell.key: result}  # shown, but run again later
    run_cells([cell], store)
    assert len(store.path.read_text().splitlines()) == 2


def test_data_that_is_not_there_is_looked_for_once_a_sampling(experiment, tmp_path, monkeypatch):
    """Asking OpenML without a network takes seconds, and a sampling has dozens of cells."""
    asked = []

    def missing(name, **arguments):
        asked.append(arguments["realization"])
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(runner_module.datasets, "load", missing)
    results = run_cells(experiment.cells(), Store(tmp_path / "cells.jsonl"))
    assert {r.status for r in results.values()} == {"no data: ConnectionError: nobody answers"}
    assert asked == [1, 2, 3]


def test_results_of_another_version_do_not_count(experiment, tmp_path):
    cell = next(experiment.cells())
    store = Store(tmp_path / "cells.jsonl")
    store.append(CellResult(cell, 0.1, 1.0, "done", {"volmar": "0.0.0"}))
    assert stored_results([cell], store)[cell.key].versions == {"volmar": "0.0.0"}
    (result,) = run_cells([cell], store).values()
    assert result.versions["volmar"] == volmar.__version__
    assert stored_results([cell], store) == {cell.key: result}


def test_processes_give_the_same_values(experiment, tmp_path):
    alone = run_cells(experiment.cells(1), Store(tmp_path / "one.jsonl"))
    together = run_cells(experiment.cells(1), Store(tmp_path / "two.jsonl"), jobs=2)
    assert {k: r.value for k, r in alone.items()} == {k: r.value for k, r in together.items()}
    assert {k: r.value for k, r in Store(tmp_path / "two.jsonl").read().items()} == {
        k: r.value for k, r in alone.items()
    }


@pytest.mark.usefixtures("slow_estimators")
def test_a_worker_that_dies_is_recorded_and_the_rest_goes_on(tmp_path):
    text = PATIENT.split("[methods.A]", maxsplit=1)[0].replace(
        "realizations = 2", "realizations = 3"
    )
    text = text.replace("digits-3v8 = { load = { n_samples = 60 } }\n", "")
    text += '[methods.A]\nestimator = "slow_estimators.Dying"\ncolumns = ["label-free"]\n'
    cells = own(parse_experiment("dying", text).cells())
    assert [c.seed for c in cells] == [1, 2, 3]
    store = Store(tmp_path / "cells.jsonl")
    results = run_cells(cells, store, jobs=2)
    statuses = [results[cell.key].status for cell in cells]
    assert statuses == ["done", "process ended: out of memory, or a crash", "done"]
    assert [results[cell.key].failed for cell in cells] == [False, True, False]
    assert store.read() == results
    run_cells(cells, store, jobs=2)
    assert len(store.path.read_text().splitlines()) == 3  # it would end its process again


def script(folder):
    """Write a program that runs the slow experiment; return the command."""
    (folder / "patient.py").write_text(
        f"""
import sys
from dataclasses import replace
from pathlib import Path

from reproduction import Store, parse_experiment, run_cells

if __name__ == "__main__":
    experiment = replace(parse_experiment("patient", '''{PATIENT}'''), quick="quick" in sys.argv)
    run_cells(experiment.cells(), Store(Path("cells.jsonl")), jobs=2)
"""
    )
    return [sys.executable, "patient.py"]


def start(command, folder, seconds=0.5):
    """Start a program in a separate process group, whose cells take some seconds."""
    return subprocess.Popen(
        command,
        cwd=folder,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SLOW_SECONDS": str(seconds), "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.usefixtures("slow_estimators")
@pytest.mark.parametrize("quick", [True, False])
def test_a_run_that_was_killed_goes_on(tmp_path, quick):
    command = [*script(tmp_path), *(["quick"] if quick else [])]
    experiment = replace(parse_experiment("patient", PATIENT), quick=quick)
    wanted = {cell.key for cell in experiment.cells()}
    store = Store(tmp_path / "cells.jsonl")

    def stored():
        return store.path.read_bytes().count(b"\n") if store.path.exists() else 0

    process = start(command, tmp_path)
    try:
        wait_for(lambda: stored() >= 3, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = store.read()
    assert 3 <= len(before) < len(wanted)
    lines = store.path.read_bytes().splitlines()
    run_cells(experiment.cells(), store)
    after = store.read()
    assert after.keys() == wanted
    assert {key: after[key] for key in before} == before
    # No stored cell ran again.
    added = store.path.read_bytes().splitlines()[len(lines) :]
    assert len(added) == len(wanted) - len(before)


@pytest.mark.usefixtures("slow_estimators")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    process = start(script(tmp_path), tmp_path)
    store = tmp_path / "cells.jsonl"

    def members():
        """Processes of the group that have not ended."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, group, *_ = stat.read_text().rpartition(")")[2].split()
                if int(group) == process.pid and state != "Z":
                    found.append(int(stat.parent.name))
        return found

    try:
        wait_for(lambda: store.exists() and store.stat().st_size > 0, process)
        assert len(members()) >= 3
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        end = time.monotonic() + 30
        while members() and time.monotonic() < end:
            time.sleep(0.1)
        assert members() == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.usefixtures("slow_estimators")
def test_an_interrupt_does_not_wait_for_long_cells(tmp_path):
    store = tmp_path / "cells.jsonl"
    process = start(script(tmp_path), tmp_path, seconds=3600)
    try:
        # K-means is there at once.
        wait_for(lambda: store.exists() and store.stat().st_size > 0, process)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(Store(store).read()) >= 1


def test_workers_that_cannot_start_end_the_run(experiment, tmp_path, monkeypatch):
    """As in a script without a main guard: no cell is recorded as failed."""

    class Pool:
        def submit(self, *_):
            future = Future()
            future.set_exception(BrokenProcessPool("it ended"))
            return future

        def shutdown(self, **_):
            pass

    monkeypatch.setattr(runner_module, "_pool", lambda jobs: Pool())
    store = Store(tmp_path / "cells.jsonl")
    with pytest.raises(RuntimeError, match=r"jobs: .*\(it ended\); take jobs=1, and in a script"):
        run_cells(experiment.cells(), store, jobs=2)
    assert store.read() == {}


# ------------------------------------------------------------------------- agreements, times

AGREEMENT = """
title = "A rival of scikit-learn's, judged by an agreement"
paper = "mmc-multivariate-loss"
table = "V"
metric = "pair_f_measure"
metric_params = { beta = 1.5 }

[sampling]
realizations = 1
whole_sets = true

[datasets]
digits-1v7 = {}

[methods.KM]
estimator = "sklearn.cluster.KMeans"
fixed = { n_clusters = 2, n_init = 1 }
grid = { max_iter = [1, 100] }
default = { n_clusters = 2, n_init = 10 }
"""


def test_of_an_agreement_the_largest_is_the_best(tmp_path):
    experiment = parse_experiment("agreement", AGREEMENT)
    assert experiment.larger_is_better
    results = run_cells(experiment.cells(), Store(tmp_path / "cells.jsonl"))
    values = [r.value for r in results.values() if r.cell.column == "hindsight"]
    line = next(
        line
        for line in make_lines(Results(experiment, results.values()))
        if (line.dataset, line.method) == ("digits-1v7", "KM")
    )
    assert line.hindsight.summary.mean == pytest.approx(100 * max(values))
    assert line.paper.mean == pytest.approx(99.4)  # printed as a share
    assert {r.status for r in results.values()} == {"done"}
    (default,) = [r for r in results.values() if r.cell.column == "label-free"]
    data = load("digits-1v7")
    labels = runner_module.find_estimator("sklearn.cluster.KMeans")(
        n_clusters=2, n_init=10, random_state=1
    ).fit_predict(data.X)
    assert default.value == pytest.approx(pair_f_measure(data.y, labels, beta=1.5))


def test_expected_times_are_of_complete_experiments(tmp_path, monkeypatch):
    names = ["mvc-jmlr-2013-figure-3", *(f"skmmc-nnw-figure-{number}" for number in (4, 5, 6))]
    monkeypatch.setattr(expected_module, "list_experiments", lambda: names)
    assert set(read_expected()) <= set(list_experiments())
    experiment = load_experiment("skmmc-nnw-figure-6")
    store = Store(tmp_path / f"{experiment.name}.jsonl")
    cells = list(experiment.cells())
    for cell in cells:
        store.append(replace(made_up(cell, 0.1, 2.0), measures=dict.fromkeys(cell.measures, 1.0)))
    # Neither incomplete experiments nor those without data.
    part, empty = (load_experiment(f"skmmc-nnw-figure-{number}") for number in (4, 5))
    Store(tmp_path / f"{part.name}.jsonl").append(made_up(next(part.cells()), 0.1))
    for cell in empty.cells():
        result = made_up(cell, None, 0.0, f"{NO_DATA}OSError: no file")
        Store(tmp_path / f"{empty.name}.jsonl").append(result)
    write_expected(tmp_path, tmp_path / "expected.csv")
    n_quick = len(list(replace(experiment, quick=True).cells()))
    head, *rows = (tmp_path / "expected.csv").read_text().splitlines()
    assert head == "experiment,seconds,quick_seconds"
    # An experiment without cells takes no time.
    rows = [row for row in rows if not row.startswith("mvc-jmlr-2013-figure-3,0,")]
    assert rows == [f"{experiment.name},{2.0 * len(cells):.3g},{2.0 * n_quick:.3g}"]
