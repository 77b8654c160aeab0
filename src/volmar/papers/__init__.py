"""The papers' tables and figures: one declarative file for each, their runner, their verdicts."""

from volmar.papers.claims import Claim
from volmar.papers.experiment import Axis, Cell, Experiment, Panel, Statement
from volmar.papers.files import (
    list_experiments,
    load_experiment,
    parse_experiment,
    published,
    published_cells,
)
from volmar.papers.measures import Spread
from volmar.papers.runner import run_cell, run_cells, stored_results
from volmar.papers.store import CellResult, Store
from volmar.papers.summary import Line, Point, Results, Side, Summary, make_lines
from volmar.papers.verdict import Reproduction, Verdict, reproduction

__all__ = [
    "Axis",
    "Cell",
    "CellResult",
    "Claim",
    "Experiment",
    "Line",
    "Panel",
    "Point",
    "Reproduction",
    "Results",
    "Side",
    "Spread",
    "Statement",
    "Store",
    "Summary",
    "Verdict",
    "list_experiments",
    "load_experiment",
    "make_lines",
    "parse_experiment",
    "published",
    "published_cells",
    "reproduction",
    "run_cell",
    "run_cells",
    "stored_results",
]
