"""The papers' declarative files: consistency with the printed values, and errors otherwise."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest
from helpers import ROOT
from paper_experiments import ON_ROWS, PARAMETER, SIZES, SMALL, own

from reproduction import (
    Reproduction,
    list_experiments,
    load_experiment,
    parse_experiment,
    published,
    published_cells,
)
from reproduction import runner as runner_module
from reproduction.datasets import list_datasets
from reproduction.datasets.registry import find_task
from volmar.graphs.graph import make_similarity

# ------------------------------------------------------------------------- the declared files


@lru_cache(maxsize=4)
def unfolded(source):
    """Return the cells of experiments by their keys; several experiments share cells."""
    cells = list(load_experiment(source).cells())
    by_key = {cell.key: cell for cell in cells}
    assert len(by_key) == len(cells)
    return by_key


@pytest.mark.parametrize("name", list_experiments())
def test_every_experiment_is_consistent(name):
    experiment = load_experiment(name)
    assert experiment.title
    assert bool(experiment.table) != bool(experiment.figure)
    assert name.startswith(f"{experiment.paper}-")
    if experiment.view == "data":
        assert not experiment.methods
        assert set(experiment.datasets) <= set(list_datasets())
        return
    assert callable(runner_module.find_metric(experiment.metric))
    by_key = unfolded(experiment.source)
    cells = list(by_key.values())
    assert list(experiment.cells(1)) == [c for c in cells if c.seed == 1]
    assert {c.experiment for c in cells} == {experiment.source}
    pairs = {
        (d, m, column)
        for d in experiment.datasets
        for m, spec in experiment.methods.items()
        if "best_of" not in spec and d in spec.get("datasets", experiment.datasets)
        for column in spec.get("columns", experiment.columns)
    }
    assert {(c.dataset, c.method, c.column) for c in own(cells)} == pairs
    references = Counter((c.dataset, c.rows_key) for c in cells if c.column == "reference")
    assert set(references) == {(c.dataset, c.rows_key) for c in cells}
    assert set(references.values()) == {1}
    for dataset in experiment.datasets:
        assert dataset in list_datasets() or find_task(dataset)

    for setting in {
        (c.estimator, str(c.parameters), str(c.similarity)): c for c in cells
    }.values():
        runner_module.find_estimator(setting.estimator)(**setting.parameters, random_state=0)
        if setting.similarity:
            make_similarity(**setting.similarity)
    # A quick run is a part of it, with every set and method.
    quick = replace(experiment, quick=True)
    few = list(quick.cells())
    assert len({c.key for c in few}) == len(few)
    assert {c.key for c in few} <= by_key.keys()
    assert {c.seed for c in few} == {1}
    places = set(quick.places())
    assert len(places) <= 2
    wanted = {
        (c.dataset, c.method, c.column)
        for c in cells
        # What a method's sizes leave out at the quick run's places.
        if places & set(experiment.methods.get(c.method, {}).get("sizes", places))
    }
    assert {(c.dataset, c.method, c.column) for c in few} == wanted
    settings = Counter(
        (c.sampling_key, c.dataset, c.method) for c in few if c.column == "hindsight"
    )
    assert max(settings.values()) <= 3


@pytest.mark.parametrize("name", list_experiments())
def test_every_printed_cell_is_run_or_has_a_reason(name):
    experiment = load_experiment(name)
    printed = published_cells(experiment.paper, experiment.table)
    assert len(set(printed)) == len(printed)
    declared = {(c.dataset, c.method) for c in experiment.cells(1)}
    for method, spec in experiment.methods.items():
        declared |= {(d, method) for d, of in declared if of in spec.get("best_of", ())}
    for dataset, method in printed:
        reason = experiment.absent.get(f"{method}/{dataset}") or experiment.absent.get(method)
        assert ((dataset, method) in declared) != bool(reason), (dataset, method)
    assert {key.split("/")[0] for key in experiment.absent} <= {method for _, method in printed}
    if printed and experiment.source == name:
        # The paper prints the better of two matrices under one name.
        unprinted = set(experiment.methods) - {method for _, method in printed}
        variants = [spec.get("best_of", ()) for spec in experiment.methods.values()]
        assert unprinted == {method for of in variants for method in of}
    figures = published(experiment.paper, experiment.table)
    n_cells = sum(1 for _ in experiment.cells(1))
    empty = Reproduction.of(experiment, [], n_cells=n_cells)
    assert (empty.n_done, empty.n_cells) == (0, n_cells)
    assert empty.verdict.status == ("shown" if experiment.view == "data" else "incomplete")
    if experiment.view not in ("data", "correlation"):
        lines = {(line.dataset, line.method): line for line in empty.lines}
        assert len(lines) == len(empty.lines)
        assert set(lines) >= declared - {(d, "KMeans") for d in experiment.datasets}
        assert set(lines) >= set(printed)
    for line in empty.lines:
        assert line.verdict == "not run"
        assert line.reason
        assert line.reason not in ("the method is not declared", "the file leaves it out")
        if experiment.view != "correlation":
            assert (line.paper.mean is None) == ((line.dataset, line.method) not in figures)


def test_the_packaged_figures_are_the_transcribed_ones():
    transcribed = ROOT.parent / "shared" / "papers" / "tables.csv"
    if not transcribed.is_file():
        pytest.skip("needs the transcribed tables beside the repository")
    packaged = ROOT / "reproduction" / "published.csv"
    assert packaged.read_bytes() == transcribed.read_bytes()


def test_published_figures():
    figures = published("mvc-jmlr-2013", "2")
    assert figures["ida-heart", "NSC"] == (18.0, 0.23)
    assert ("ida-german", "GMMC") not in figures  # not run by the authors
    assert ("ida-german", "GMMC") in published_cells("mvc-jmlr-2013", "2")
    assert published("nobody", "1") == {}
    assert published_cells("nobody", "1") == []


def test_unknown_experiment():
    with pytest.raises(
        ValueError, match=r"no experiment is named 'table-9'\. Available: mmc-multi"
    ):
        load_experiment("table-9")


# ----------------------------------------------------------------------------- other sides


def test_another_side_has_the_cells_of_its_source():
    source = load_experiment("mvc-jmlr-2013-figure-4")
    side = load_experiment("mvc-jmlr-2013-figure-5")
    assert side.source == source.name
    assert [c.key for c in side.cells(1)] == [c.key for c in source.cells(1)]
    assert (side.quantities, side.log) == (("seconds",), ("seconds",))
    assert side.statements != source.statements
    groups = load_experiment("mspc-aaai-2015-figure-2").groups
    assert load_experiment("mspc-aaai-2015-figure-3").groups == groups != {}


def test_another_side_starts_without_the_words_of_its_source():
    text = """
title = "Times"
paper = "mvc-jmlr-2013"
figure = "7"
view = "times"
cells_of = "mvc-jmlr-2013-table-3"
"""
    source, side = load_experiment("mvc-jmlr-2013-table-3"), parse_experiment("side", text)
    assert source.note
    assert source.reason
    assert source.statements
    assert (side.name, side.source, side.view) == ("side", source.name, "times")
    assert (side.table, side.figure) == ("", "7")
    assert (side.note, side.reason, side.test, side.statements) == ("", "", "", ())
    assert side.datasets == source.datasets


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('metric = "rand_index"', "metric"),
        ("[sampling]\nrealizations = 3", "sampling"),
        ("[datasets]\ndigits-1v7 = {}", "datasets"),
        ('[methods.A]\nestimator = "MSPC"', "methods"),
        ('columns = ["hindsight"]', "columns"),
        ('[measures]\nx = "n_iter_"', "measures"),
    ],
)
def test_another_side_runs_nothing_of_its_own(line, key):
    text = f'title = "t"\npaper = "mvc-jmlr-2013"\ncells_of = "mvc-jmlr-2013-table-3"\n{line}\n'
    with pytest.raises(
        ValueError, match=rf"side: it shows the cells of mvc-jmlr-2013-table-3.*leave out: {key}\."
    ):
        parse_experiment("side", text)


def test_another_side_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no experiment is named 'table-9'"):
        parse_experiment("side", 'title = "t"\npaper = "skmmc-nnw"\ncells_of = "table-9"\n')


# ------------------------------------------------------------------ files that contradict

PANELS = '\n[measures]\nm = "n_iter_"\n[[panels]]\naxis = "steps"\nmeasures = ["m"]\n'
BEST = '\n[methods.B]\nbest_of = ["KM", "NSC"]\n'
CLAIM = '\n[[claims]]\nsays = "s"\nof = "KM"\nbelow = 3.0\n'


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (SIZES, "[sampling]", 'view = "graph"\n[sampling]', "view names 'graph'.*'curves'"),
        (SIZES, "[sampling]", 'test = "sign"\n[sampling]', "test names 'sign'.*'paired'"),
        (
            SIZES,
            "[sampling]",
            'columns = ["free"]\n[sampling]',
            "columns names 'free'.*'label-free'",
        ),
        (SIZES, "[sampling]", 'judged = ["XX"]\n[sampling]', "judged names 'XX'.*'KM', 'NSC'"),
        (SIZES, "[sampling]", 'quantities = ["msp"]\n[sampling]', "quantities names 'msp'"),
        (SIZES, "[sampling]", '[groups]\na = ["iris"]\n[sampling]', "groups names 'iris'.*digits"),
        (SIZES, "[sampling]", '[parts]\na = ["iris"]\n[sampling]', "parts names 'iris'.*digits"),
        (SIZES, "[sampling]", '[absent]\n"KM/iris" = "no"\n[sampling]', "absent names 'iris'"),
        (SIZES, "[sampling]", "[sampling]\nwhole_sets = true", "sizes, whole_sets; leave one"),
        (SIZES, "[sampling]", "[sampling]\nstretches = [2]", "sizes, stretches; leave one"),
        (
            SIZES,
            "[sampling]",
            '[axis]\nparameter = "C"\nvalues = [1]\nlabel = "C"\n[sampling]',
            "sizes, axis; leave one",
        ),
        (SIZES, 'similarity = "cosine"', 'similarity = "cos"', "similarity of NSC names 'cos'"),
        (SIZES, 'similarity = "wide"', 'similarity = "w"', "similarity of KM names 'w'.*'cosine'"),
        (SIZES, 'similarity = "cosine"', 'datasets = ["iris"]', "datasets of NSC names 'iris'"),
        (SIZES, 'similarity = "cosine"', "on.iris = {}", "on of NSC names 'iris'"),
        (SIZES, 'similarity = "cosine"', 'columns = ["x"]', "columns of NSC names 'x'"),
        (SIZES + BEST, '"KM", "NSC"]', '"KM", "X"]', "best_of of B names 'X'.*'KM', 'NSC'"),
        (SIZES + BEST, '"KM", "NSC"]', '"KM", "B"]', "best_of of B names 'B'.*'KM', 'NSC'"),
        (SIZES + BEST, "best_of", "fixed = {}\nbest_of", "method B names 'fixed'.*'best_of'"),
        (ON_ROWS, "[sampling]", 'common = "C"\n[sampling]', "common names 'C'.*'reg', 'max_iter'"),
        (SIZES, "[sampling]", '[remarks]\n"KM/iris" = "no"\n[sampling]', "remarks names 'iris'"),
        (PARAMETER, 'columns = ["hindsight"]', "", 'label-free.*say columns = \\["hindsight"\\]'),
        (SIZES + CLAIM, 'of = "KM"', 'of = "GMMC"', "claim 's' names 'GMMC'.*'KM', 'NSC'"),
        (SIZES + CLAIM, "below = 3.0", 'below = "GMMC"', "claim 's' names 'GMMC'"),
        (SIZES + CLAIM, "below = 3.0", "", "claim 's' has 0 of below and above; give it one"),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nabove = 2.0", "claim 's' has 2 of below and"),
        (SIZES + CLAIM, "below = 3.0", 'below = 3.0\non = ["iris"]', "claim 's' names 'iris'"),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nat = [40, 50]", "claim 's' names '50'.*40"),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nbelow_at = 50", "claim 's' names '50'.*40"),
        (SIZES + CLAIM, "below = 3.0", 'below = 3.0\nquantity = "x"', "claim 's' names 'x'.*seco"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(text, old, new, message):
    parse_experiment("file", text)
    assert old in text
    with pytest.raises(ValueError, match=f"^file: .*{message}"):
        parse_experiment("file", text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (SIZES, "[sampling]", 'log = ["second"]\n[sampling]', "log names 'second'.*'seconds'"),
        (SIZES, "[sampling]", "repeats = 3\n[sampling]", "'repeats'"),
        (SIZES, "realizations = 2", "realizations = 2\nsize = [3]", "sampling names 'size'"),
        (SIZES, "realizations = 2\n", "", "realizations"),
        (SIZES, 'title = "Sizes, and similarities by method"\n', "", "title"),
        (SIZES, 'similarity = "wide"', "sizes = [50]", "sizes of digits-3v8 names '50'.*40"),
        (SIZES, 'similarity = "wide"', "sampling = 1", "digits-3v8 names 'sampling'"),
        (SIZES, 'similarity = "cosine"', "sizes = [50]", "sizes of NSC names '50'.*40"),
        (SIZES, 'similarity = "cosine"', "realisations = 1", "NSC names 'realisations'"),
        (SIZES, 'similarity = "cosine"', "grids = {}", "NSC names 'grids'"),
        (SMALL, 'matrix = "kernel"', 'matrix = "kernel"\nsizes = [40]', "sizes of KM names '40'"),
        (PARAMETER, 'label = "iterations"\n', "", "label"),
        (
            PARAMETER,
            "grid = {",
            'columns = ["label-free"]\ngrid = {',
            "columns of KM names 'label-free'",
        ),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nabove_at = 40", "claim 's'.*'above_at'"),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nshares = 0.5", "claim 's'.*'shares'"),
        (SIZES + CLAIM, 'says = "s"\n', "", "says"),
        (
            SIZES,
            "[sampling]",
            '[printed]\nall = 0.5\n[groups]\nsome = ["digits-1v7"]\n[sampling]',
            "printed names 'all'.*'some'",
        ),
        (SIZES, "[sampling]", '[absent]\n"SVN" = "no"\n[sampling]', "absent names 'SVN'"),
        (SIZES + PANELS, 'axis = "steps"\n', "", "axis"),
        (SIZES + PANELS, 'axis = "steps"', 'axis = "steps"\npercents = true', "'percents'"),
    ],
)
def test_a_file_with_words_that_mean_nothing_is_refused(text, old, new, message):
    parse_experiment("file", text)
    assert old in text
    with pytest.raises(ValueError, match=f"^file: .*{message}"):
        parse_experiment("file", text.replace(old, new, 1))
