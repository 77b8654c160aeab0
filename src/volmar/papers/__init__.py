"""The papers' tables: one declarative file for each, and their runner."""

from volmar.papers.experiment import (
    Cell,
    Experiment,
    list_experiments,
    load_experiment,
    parse_experiment,
    published,
)
from volmar.papers.runner import Line, Summary, run_cell, run_cells, summarise
from volmar.papers.store import CellResult, Store

__all__ = [
    "Cell",
    "CellResult",
    "Experiment",
    "Line",
    "Store",
    "Summary",
    "list_experiments",
    "load_experiment",
    "parse_experiment",
    "published",
    "run_cell",
    "run_cells",
    "summarise",
]
