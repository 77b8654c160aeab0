"""The papers' tables and figures, run again: ``make reproduce NAME=...`` in a checkout.

One declarative file per table or figure (``experiments/``), their runner and store, the printed
values (``published.csv``), summaries, verdicts, pages and plots.
"""

from reproduction.claims import Claim
from reproduction.experiment import Axis, Cell, Experiment, Panel, Statement
from reproduction.figure_display import PaperFigureDisplay, has_picture
from reproduction.files import (
    list_experiments,
    load_experiment,
    parse_experiment,
    published,
    published_cells,
)
from reproduction.measures import Spread
from reproduction.measures_display import MeasuresDisplay
from reproduction.page import to_markdown, write_reproduction
from reproduction.results import Line, Point, Results, Side, Summary
from reproduction.runner import run_cell, run_cells, stored_results
from reproduction.store import CellResult, Store
from reproduction.summary import make_lines
from reproduction.verdict import Reproduction, Verdict

__all__ = [
    "Axis",
    "Cell",
    "CellResult",
    "Claim",
    "Experiment",
    "Line",
    "MeasuresDisplay",
    "Panel",
    "PaperFigureDisplay",
    "Point",
    "Reproduction",
    "Results",
    "Side",
    "Spread",
    "Statement",
    "Store",
    "Summary",
    "Verdict",
    "has_picture",
    "list_experiments",
    "load_experiment",
    "make_lines",
    "parse_experiment",
    "published",
    "published_cells",
    "run_cell",
    "run_cells",
    "stored_results",
    "to_markdown",
    "write_reproduction",
]
