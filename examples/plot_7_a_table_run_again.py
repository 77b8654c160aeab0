"""
A table of a paper, run again
=============================

The tables and figures of the papers are defined in declarative files. A run of a file produces
table rows, checks of statements in the text, and a verdict. ``make reproduce`` runs them in a
checkout, which contains the package ``reproduction``. This example does the same in Python for a
part of one table that takes seconds and needs no data files: the digits, with a single seed.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from reproduction import PaperFigureDisplay, Reproduction, Store, load_experiment, run_cells

# %%
# An experiment defines data sets, methods and settings. With ``quick``, at most three settings of
# each grid are run.
whole = load_experiment("mmc-multivariate-loss-table-iii")
digits = {name: special for name, special in whole.datasets.items() if name.startswith("digits")}
experiment = replace(whole, datasets=digits, statements=(), parts={}, quick=True)
cells = list(experiment.cells())
print(len(cells), "cells, the first:", cells[0].method, "on", cells[0].dataset)

# %%
# Every cell is stored when it completes. A second run with the same store computes nothing again.
with TemporaryDirectory() as folder:
    store = Store(Path(folder) / "digits.jsonl")
    results = run_cells(cells, store)
    assert len(store.read()) == len(results) == len(cells)

# %%
# Under the *paper's protocol* (``hindsight``), the true labels select the best setting, as in the
# papers. *Label-free* uses the default settings. Each protocol has a separate verdict.
shown = Reproduction.of(experiment, list(results.values()))
for line in shown.lines:
    print(f"{line.dataset}  {line.method:9}  printed {line.paper}")
    print(f"    paper's protocol {line.hindsight.summary}: {line.verdict}")
    print(f"    label-free {line.label_free.summary}: {line.label_free_verdict}")
print(shown.verdict.sentence)

# %%
# Figures are plotted by the same display as in the documentation.
figure_6 = replace(load_experiment("mvc-jmlr-2013-figure-6"), quick=True)
with TemporaryDirectory() as folder:
    found = run_cells(figure_6.cells(5), Store(Path(folder) / "figure.jsonl"))
drawn = Reproduction.of(figure_6, list(found.values()), n_cells=len(found))
display = PaperFigureDisplay(drawn).plot()
