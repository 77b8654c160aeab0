"""
A table of a paper, run again
=============================

The tables and figures of the papers are declarative files; a run of one gives lines, statements of
the text that were checked, and a verdict. ``make reproduce`` does this in a checkout, which the
package ``reproduction`` is part of. Here it is done by hand, for a part that takes seconds and
needs no files: the rows of digits of one table, with a single seed.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from reproduction import PaperFigureDisplay, Reproduction, Store, load_experiment, run_cells

# %%
# An experiment says which data sets, methods and settings there are. ``quick`` takes at most three
# settings of each grid.
whole = load_experiment("mmc-multivariate-loss-table-iii")
digits = {name: special for name, special in whole.datasets.items() if name.startswith("digits")}
experiment = replace(whole, datasets=digits, statements=(), parts={}, quick=True)
cells = list(experiment.cells())
print(len(cells), "cells, the first:", cells[0].method, "on", cells[0].dataset)

# %%
# Every cell is stored as it completes: run it again with the same store, and nothing is left to
# do.
with TemporaryDirectory() as folder:
    store = Store(Path(folder) / "digits.jsonl")
    results = run_cells(cells, store)
    assert len(store.read()) == len(results) == len(cells)

# %%
# Under the *paper's protocol* (``hindsight``) the labels pick the best setting, as in the papers;
# *label-free* is the default. Each has a verdict of its own.
shown = Reproduction.of(experiment, list(results.values()))
for line in shown.lines:
    print(f"{line.dataset}  {line.method:9}  printed {line.paper}")
    print(f"    paper's protocol {line.hindsight.summary}: {line.verdict}")
    print(f"    label-free {line.label_free.summary}: {line.label_free_verdict}")
print(shown.verdict.sentence)

# %%
# Figures are drawn by the same display that the pages have.
figure_6 = replace(load_experiment("mvc-jmlr-2013-figure-6"), quick=True)
with TemporaryDirectory() as folder:
    found = run_cells(figure_6.cells(5), Store(Path(folder) / "figure.jsonl"))
drawn = Reproduction.of(figure_6, list(found.values()), n_cells=len(found))
display = PaperFigureDisplay(drawn).plot()
