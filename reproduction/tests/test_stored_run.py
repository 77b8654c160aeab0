"""The stored run of the papers' tables: whole, within its tolerances, and what the page shows."""

from functools import cache

import pytest
from helpers import ROOT

from reproduction import Reproduction, Store, list_experiments, load_experiment, stored_results
from reproduction.page import to_markdown

DOCS = ROOT / "docs"
RESULTS = DOCS / "reproduction"
COMMAND = "python -m reproduction --all"


@cache
def stored(source):
    experiment = load_experiment(source)
    return stored_results(experiment.cells(), Store(RESULTS / f"{source}.jsonl"))


@cache
def shown(name):
    experiment = load_experiment(name)
    return Reproduction.of(experiment, list(stored(experiment.source).values()))


def test_every_cell_of_every_experiment_is_there():
    missing = {name: shown(name).n_cells - shown(name).n_done for name in list_experiments()}
    assert {name: n for name, n in missing.items() if n} == {}


def test_every_line_has_a_verdict_and_every_empty_one_a_reason():
    for name in list_experiments():
        for line in shown(name).lines:
            assert line.verdict
            assert line.label_free_verdict or shown(name).experiment.view == "times"
            empty = line.hindsight.summary.mean is None and line.label_free.summary.mean is None
            assert bool(line.reason) or not empty, (name, line.dataset, line.method)
        verdict = shown(name).verdict
        assert verdict.sentence.endswith(".")
        assert verdict.status in ("reproduced", "not reproduced", "shown")
        judged = ("as good as printed", "worse than printed", "not run")
        assert verdict.label_free in judged or verdict.status == "shown"


def near(name, methods=None, datasets=None):
    """How many printed values are reproduced under the paper's protocol, and of how many."""
    lines = [
        line
        for line in shown(name).lines
        if (methods is None or line.method in methods)
        and (datasets is None or line.dataset in datasets)
        and line.paper.mean is not None
    ]
    good = [line for line in lines if line.verdict == "reproduced"]
    return len(good), len(lines)


@pytest.mark.parametrize(
    ("name", "method", "at_least", "of"),
    [
        ("mspc-aaai-2015-table-2", "MSPC-MPM", 9, 10),
        ("mspc-aaai-2015-table-2", "MSPC-GEP", 9, 10),
        ("mvc-jmlr-2013-table-2", "MVC-SL", 10, 10),
        ("mvc-jmlr-2013-table-2", "NSC", 10, 10),
        ("mvc-jmlr-2013-table-3", "MVC-SL", 9, 12),
        ("mvc-jmlr-2013-table-3", "NSC", 9, 12),
        ("skmmc-nnw-table-v", "CPMMC", 4, 4),
    ],
)
def test_tables_are_reproduced_within_the_tolerances_of_their_families(name, method, at_least, of):
    good, n = near(name, [method])
    assert n == of
    assert good >= at_least


@pytest.mark.parametrize(
    ("dataset", "wanted", "within"),
    [
        ("digits-1v7", 1.0, 0.0),
        ("digits-2v7", 1.0, 0.0),
        # Of a first prototype: the print is not reached by either of the losses.
        ("digits-3v8", 0.775, 0.05),
        ("digits-8v9", 0.773, 0.05),
    ],
)
@pytest.mark.parametrize("method", ["MMC_uni", "MMC_multi"])
def test_rows_of_digits_at_the_papers_c(dataset, wanted, within, method):
    values = [
        result.value
        for result in stored("mmc-multivariate-loss-table-iii").values()
        if (result.cell.dataset, result.cell.method) == (dataset, method)
        and result.cell.parameters.get("C") == 10.0
        and result.cell.parameters.get("balance") == 0.0
    ]
    assert len(values) == 5
    for value in values:
        assert value == pytest.approx(wanted, abs=within + 1e-12)


@pytest.mark.parametrize("number", ["iv", "v"])
def test_rows_of_digits_are_as_printed(number):
    """Within five points, of the Rand index and of the F measure."""
    digits = ["digits-1v7", "digits-2v7", "digits-3v8", "digits-8v9"]
    name = f"mmc-multivariate-loss-table-{number}"
    assert near(name, ["MMC_uni", "MMC_multi"], digits) == (8, 8)


def test_the_page_is_what_the_stored_run_says():
    """``make reproduction`` writes it; nobody else does."""
    pictures = {path.stem: f"reproduction/{path.name}" for path in RESULTS.glob("*.png")}
    text = to_markdown(
        [shown(name) for name in list_experiments()], command=COMMAND, pictures=pictures
    )
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == text
