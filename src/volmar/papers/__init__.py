"""The papers' tables and figures: one declarative file for each, and their runner."""

from volmar.papers.experiment import (
    Cell,
    Experiment,
    Panel,
    list_experiments,
    load_experiment,
    parse_experiment,
    published,
)
from volmar.papers.measures import MeasureLine, Spread, summarise_measures
from volmar.papers.runner import Line, Summary, run_cell, run_cells, summarise
from volmar.papers.store import CellResult, Store

__all__ = [
    "Cell",
    "CellResult",
    "Experiment",
    "Line",
    "MeasureLine",
    "Panel",
    "Spread",
    "Store",
    "Summary",
    "list_experiments",
    "load_experiment",
    "parse_experiment",
    "published",
    "run_cell",
    "run_cells",
    "summarise",
    "summarise_measures",
]
