"""``python -m reproduction`` on the command line: lists, runs, interrupts, pages and plots."""

import json
import os
import re
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import paper_experiments
import pytest
from helpers.reproductions import running, started

import volmar
from reproduction import CellResult, Store, list_experiments, load_experiment, parse_experiment
from reproduction import command as reproduce_module
from reproduction import summary as summary_module
from reproduction.__main__ import main
from reproduction.experiment import PAPERS

FIGURE = f"""
note = "The sizes are smaller."
{paper_experiments.FIGURE}
[[claims]]
says = "h* is no worse than v2"
of = "h*"
below = "v2"
margin = 100.0
"""

TABLE = """
title = "A small table"
paper = "skmmc-nnw"
table = "XX"
metric = "clustering_error"
note = "It is not the paper's."

[sampling]
realizations = 2

[datasets]
digits-1v7 = { load = { n_samples = 40 } }
digits-3v8 = { load = { n_samples = 40 } }

[methods.KM]
estimator = "KernelKMeans"
grid = { n_init = [1, 2, 3, 4] }
"""


@pytest.fixture
def invoke():
    """Run the command in this process; both streams are its output."""

    def run(*arguments):
        output = StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            try:
                code = main(arguments)
            except SystemExit as stop:
                code = stop.code
        return SimpleNamespace(exit_code=code, output=output.getvalue())

    return run


@pytest.fixture(autouse=True)
def leave_signals_alone():
    """Restore the signal handlers, because the command sets one for SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def experiments(monkeypatch):
    """Experiments of the command, by name; tests may change them."""
    known = {
        "figure": parse_experiment("figure", FIGURE),
        "table": parse_experiment("table", TABLE),
    }
    monkeypatch.setattr(reproduce_module, "load_experiment", known.__getitem__)
    return known


@pytest.fixture
def reproduce(experiments, invoke, tmp_path):
    """The command on the small experiments, with its own folder."""
    return lambda *arguments: invoke(*arguments, "--out", str(tmp_path / "out"))


def stored(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def flat(text):
    return " ".join(text.split())


# --------------------------------------------------------------------------------- the list


@pytest.mark.parametrize("width", ["200", "40"])
def test_the_list_has_a_line_for_each(invoke, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    result = invoke("--list")
    assert result.exit_code == 0
    head, *lines, last = result.output.splitlines()
    assert head.split() == ["id", "paper", "what", "cells", "time", "quick"]
    assert last.startswith("Times are of one core")
    assert "…" not in result.output
    assert [line.split()[0] for line in lines] == list_experiments()
    for line in lines:
        name, paper, what, cells, *times = re.split(r"\s{2,}", line)
        experiment = load_experiment(name)
        assert paper == PAPERS[experiment.paper].short
        number = experiment.table or experiment.figure
        assert what == f"{'Table' if experiment.table else 'Figure'} {number}"
        if experiment.source == name:
            assert cells == str(sum(1 for _ in experiment.cells()))
        else:
            assert cells == f"as {experiment.source.removeprefix(experiment.paper + '-')}"
        assert len(times) == 2
        for text in times:
            assert re.fullmatch(r"\d+ s|\d+ min|\d+\.\d h|\?|-", text)
    assert invoke().output == result.output


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (99, "99 s"), (150, "2 min"), (7200, "2.0 h")]
)
def test_durations(seconds, text):
    assert reproduce_module.duration(seconds) == text


# ---------------------------------------------------------------------------- wrong requests


def test_wrong_names_are_refused(invoke, tmp_path):
    result = invoke("nonsense", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "no experiment is named 'nonsense'" in result.output
    result = invoke("mvc-jmlr-2013-table-2", "--only", "iris", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "iris is not a data set of mvc-jmlr-2013-table-2; it has: ida-" in flat(result.output)


def test_names_and_all_of_them_are_refused(invoke, tmp_path):
    result = invoke("mvc-jmlr-2013-table-2", "--all", "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "--all" in result.output
    assert "mvc-jmlr-2013-table-2" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [("-j", "0"), ("--realizations", "0")])
def test_numbers_below_one_are_refused(reproduce, arguments, tmp_path):
    assert reproduce("table", *arguments).exit_code == 2
    assert not (tmp_path / "out").exists()


def test_it_needs_a_place_before_it_computes(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce_module, "run_cells", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "sub", tmp_path / "file"):
        result = invoke("mvc-jmlr-2013-figure-6", "--out", str(out))
        assert result.exit_code == 2
        assert "file" in result.output
    assert "python -m reproduction: " in (
        invoke("mvc-jmlr-2013-figure-6", "--out", str(tmp_path / "file" / "s")).output
    )


def test_a_page_that_cannot_be_written_is_refused_before_it_computes(
    reproduce, tmp_path, monkeypatch
):
    monkeypatch.setattr(reproduce_module, "run_cells", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "folder").mkdir()
    for page in (tmp_path / "folder", tmp_path / "nowhere" / "page.md"):
        result = reproduce("table", "--page", str(page))
        assert result.exit_code == 2
        assert f"--page {page}" in flat(result.output)


def test_without_the_data_it_says_which_file(invoke, monkeypatch, tmp_path):
    monkeypatch.setenv("VOLMAR_DATA", str(tmp_path))
    result = invoke(
        "mvc-jmlr-2013-table-2",
        *("--only", "ida-heart", "--quick", "--out", str(tmp_path / "out")),
    )
    assert result.exit_code == 2
    assert "ida_heart.npz" in result.output
    assert "Traceback" not in result.output


def test_without_results_there_is_nothing_to_show(reproduce):
    result = reproduce("table", "--no-run")
    assert result.exit_code == 2
    assert "python -m reproduction: there is no result; run it without --no-run." in result.output


def test_realizations_are_not_ignored_by_a_quick_run(reproduce, tmp_path):
    assert reproduce("table", "--quick", "--realizations", "2").exit_code == 0
    results = Store(tmp_path / "out" / "table.jsonl").read().values()
    assert {r.cell.seed for r in results} == {1, 2}
    assert len(results) == 2 * 2 * (1 + 3 + 1)


# ----------------------------------------------------------------------------------- results


def test_a_table_is_run_printed_and_written(reproduce, tmp_path):
    result = reproduce("table")
    assert result.exit_code == 0
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {"table.jsonl", "table.md", "table.html"}
    results = Store(out / "table.jsonl").read()
    assert len(results) == stored(out / "table.jsonl") == 2 * 2 * (1 + 4 + 1)
    assert "A small table" in result.output
    text = flat(result.output)
    for dataset in ("digits-1v7", "digits-3v8"):
        values = [
            100
            * min(
                r.value
                for r in results.values()
                if (r.cell.dataset, r.cell.seed) == (dataset, seed)
                and r.cell.column == "hindsight"
            )
            for seed in (1, 2)
        ]
        mean, error = sum(values) / 2, abs(values[0] - values[1]) / 2
        assert f"{dataset} KM - {mean:.1f} ± {error:.1f}" in text
    assert "table: Shown. There is no value to compare with." in text
    page = (out / "table.md").read_text(encoding="utf-8")
    assert "A small table" in page
    assert "python -m reproduction table" in page
    assert "--all" not in page
    assert "wrote" in result.output


def test_a_second_run_only_shows_what_is_there(reproduce, tmp_path, monkeypatch):
    first = reproduce("table")
    lines = (tmp_path / "out" / "table.jsonl").read_bytes()
    page = (tmp_path / "out" / "table.md").read_bytes()
    for more in ((), ("--no-run",)):
        again = reproduce("table", *more)
        assert again.exit_code == 0
        assert again.output.strip() == first.output.strip()
        assert (tmp_path / "out" / "table.jsonl").read_bytes() == lines
        assert (tmp_path / "out" / "table.md").read_bytes() == page


def test_a_part_of_the_sets(reproduce, tmp_path):
    result = reproduce("table", "--only", "digits-3v8")
    assert result.exit_code == 0
    assert "digits-1v7" not in result.output
    results = Store(tmp_path / "out" / "table.jsonl").read().values()
    assert {r.cell.dataset for r in results} == {"digits-3v8"}
    assert "--only digits-3v8" in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    # The rest is added beside it.
    assert reproduce("table").exit_code == 0
    assert stored(tmp_path / "out" / "table.jsonl") == 2 * 2 * (1 + 4 + 1)


def test_a_part_of_the_sets_of_a_printed_table(invoke, tmp_path, monkeypatch):
    """The paper's other data sets are not requested."""
    name = "mspc-aaai-2015-table-2"
    experiment = load_experiment(name)
    dataset = next(iter(experiment.datasets))
    store = Store(tmp_path / f"{name}.jsonl")
    for cell in replace(experiment, datasets={dataset: experiment.datasets[dataset]}).cells(1):
        result = CellResult(cell, 0.2, 1.0, "done", {"volmar": volmar.__version__}, {})
        store.append(result)
    arguments = (name, "--no-run", "--only", dataset, "--realizations", "1")
    result = invoke(*arguments, "--out", str(tmp_path))
    assert result.exit_code == 0
    others = set(experiment.datasets) - {dataset}
    assert not any(re.search(rf"^{other} ", result.output, re.MULTILINE) for other in others)


def test_fewer_realizations(reproduce, tmp_path):
    assert reproduce("table", "--realizations", "1").exit_code == 0
    results = Store(tmp_path / "out" / "table.jsonl").read().values()
    assert {r.cell.seed for r in results} == {1}
    assert len(results) == 2 * (1 + 4 + 1)
    page = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "python -m reproduction table --realizations 1" in page
    result = reproduce("table", "--no-run")
    assert "Incomplete. 12 cells have not been run" in result.output


def test_a_quick_run_is_kept_apart_but_counts(reproduce, tmp_path):
    result = reproduce("table", "--quick")
    assert result.exit_code == 0
    out = tmp_path / "out"
    names = {path.name for path in out.iterdir()}
    assert names == {"table.jsonl", "table-quick.md", "table-quick.html"}
    assert stored(out / "table.jsonl") == 2 * (1 + 3 + 1)
    assert "quick" in result.output.lower()
    assert "python -m reproduction table --quick" in (out / "table-quick.md").read_text(
        encoding="utf-8"
    )
    assert reproduce("table").exit_code == 0
    assert stored(out / "table.jsonl") == 2 * 2 * (1 + 4 + 1)


def test_several_are_told_in_a_line_each(reproduce, tmp_path):
    result = reproduce("table", "figure", "table", "--realizations", "1")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split(":")[0] for line in lines if re.match("(table|figure): ", line)] == [
        "table",
        "figure",
    ]
    assert "A small table" not in result.output
    assert (tmp_path / "out" / "figure.png").is_file()
    page = (tmp_path / "out" / "reproduction.md").read_text(encoding="utf-8")
    assert "A small table" in page
    assert "A small figure" in page
    # The command on the page is one that gives this page.
    assert "python -m reproduction table figure --realizations 1" in page
    assert "--all" not in page


def test_the_page_goes_elsewhere_too(reproduce, tmp_path):
    page = tmp_path / "docs" / "pages" / "reproduction.md"
    page.parent.mkdir(parents=True)
    result = reproduce("figure", "--realizations", "1", "--page", str(page))
    assert result.exit_code == 0
    assert f"wrote {page}" in result.output
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert "A small figure" in text
    assert "](../../out/figure.png)" in text
    assert (page.parent / "../../out/figure.png").resolve().is_file()
    assert "](figure.png)" in (tmp_path / "out" / "figure.md").read_text(encoding="utf-8")


def test_a_figure_has_its_picture_and_its_statements(reproduce, tmp_path):
    result = reproduce("figure")
    assert result.exit_code == 0
    assert (tmp_path / "out" / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert "data:image/png;base64," in (tmp_path / "out" / "figure.html").read_text("utf-8")
    text = flat(result.output)
    assert (
        "figure: Reproduced under the paper's protocol; not run without labels. Under the paper's "
        "protocol, 1 of 1 statement of the text holds." in text
    )
    assert "h* is no worse than v2: paper's protocol yes, label-free not checked" in text
    # The same results make the same picture.
    before = (tmp_path / "out" / "figure.png").read_bytes()
    reproduce("figure")
    assert (tmp_path / "out" / "figure.png").read_bytes() == before


def test_without_matplotlib_it_says_so(reproduce, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = reproduce("figure", "--realizations", "1")
    assert result.exit_code == 0
    assert "no pictures: matplotlib is not installed (pip install 'volmar[plot]')" in result.output
    assert (tmp_path / "out" / "figure.md").is_file()
    assert not (tmp_path / "out" / "figure.png").exists()


def test_without_a_good_cell_it_ends_with_the_error(reproduce, experiments, tmp_path):
    bad = {"default": {"affinity": "gaussian", "sigma": -1.0}}
    experiments["figure"] = replace(experiments["figure"], similarities=bad)
    result = reproduce("figure", "--realizations", "1")
    # K-means gave its times, and there is nothing to time.
    assert not (tmp_path / "out" / "figure.png").exists()
    assert "failed 4 times: ValueError: " in result.output
    assert "Traceback" not in result.output
    assert "Reproduced" not in result.output


def test_a_measure_that_is_not_there_is_told(reproduce, experiments):
    experiments["figure"] = replace(
        experiments["figure"], measures={"x": "result_.x"}, panels=(), statements=()
    )
    result = reproduce("figure", "--realizations", "1")
    assert "measure 'x': a fitted SoftLabelMVC has no 'result_.x'" in flat(result.output)
    assert "Reproduced" not in result.output


def test_failed_cells_run_again_when_asked(reproduce, experiments, tmp_path, monkeypatch):
    store = tmp_path / "out" / "table.jsonl"
    good = experiments["table"]
    methods = {"KM": {**good.methods["KM"], "fixed": {"max_iter": -1}}}
    experiments["table"] = replace(good, methods=methods)
    result = reproduce("table", "--realizations", "1")
    assert "failed 8 times: " in result.output
    n = stored(store)
    reproduce("table", "--realizations", "1")
    assert stored(store) == n
    reproduce("table", "--realizations", "1", "--retry-failed")
    assert stored(store) == n + 8


def test_packed_results_are_shown_again(reproduce, tmp_path):
    first = reproduce("table", "--pack")
    assert first.exit_code == 0
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {"table.jsonl.xz", "table.md", "table.html"}
    packed = (out / "table.jsonl.xz").read_bytes()
    again = reproduce("table", "--pack", "--no-run")
    assert again.exit_code == 0
    assert (out / "table.jsonl.xz").read_bytes() == packed
    table = [line for line in first.output.splitlines() if line.startswith("digits")]
    assert [line.split()[:6] for line in again.output.splitlines() if line[:6] == "digits"] == [
        line.split()[:6] for line in table
    ]


def test_packing_a_part_keeps_the_rest(reproduce, tmp_path):
    reproduce("table")
    store = Store(tmp_path / "out" / "table.jsonl")
    whole = store.read()
    for part in (["--realizations", "1"], ["--quick"], ["--only", "digits-1v7"]):
        assert reproduce("table", *part, "--pack").exit_code == 0
        assert store.read().keys() == whole.keys()


def test_brackets_are_text(reproduce, experiments, monkeypatch):
    """Errors and notes contain brackets, which rich would interpret as styles."""
    table = experiments["table"]
    methods = {**table.methods, "X": {"estimator": "KernelKMeans", "datasets": []}}
    monkeypatch.setattr(summary_module, "published_cells", lambda *_: [("digits-1v7", "X")])
    experiments["table"] = replace(
        table, methods=methods, absent={"X": "not [bold] but [/red]"}, note="see [1]"
    )
    result = reproduce("table", "--realizations", "1")
    assert result.exit_code == 0
    assert "not [bold] but [/red]" in flat(result.output)
    assert "see [1]" in flat(result.output)


# -------------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize(
    ("jobs", "number"), [("1", signal.SIGINT), ("2", signal.SIGINT), ("2", signal.SIGTERM)]
)
def test_an_interrupt_keeps_what_is_done(invoke, tmp_path, jobs, number):
    name, out = "mvc-jmlr-2013-figure-6", tmp_path / "out"
    store = out / f"{name}.jsonl"
    with started(name, "--out", str(out), "-j", jobs) as process:
        end = time.monotonic() + 120
        while stored(store) < 3:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        # As a terminal does: to everyone in the group.
        os.killpg(process.pid, number)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + number, output
    assert len(output.strip().splitlines()) == 1, output
    assert f"stopped; {out} keeps what is done. Run it again to go on." in flat(output)
    assert "Traceback" not in output
    lines = store.read_text().splitlines()
    results = Store(store).read()
    assert 3 <= len(results) < 3600
    # No line was cut short, and nothing ran twice.
    assert len({json.dumps(json.loads(line)["cell"]) for line in lines}) == len(lines)
    end = time.monotonic() + 60
    while running(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert running(process.pid) == []
    shown = invoke(name, "--no-run", "--out", str(out))
    missing = sum(1 for _ in load_experiment(name).cells()) - len(results)
    assert f"Incomplete. {missing} cells have not been run" in flat(shown.output)
