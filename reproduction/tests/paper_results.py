"""Experiments without data, and artificial results of their cells."""

from reproduction import CellResult, Results, make_lines

TABLE = """
title = "A table"
paper = "mvc-jmlr-2013"
table = "2"
metric = "clustering_error"
tolerance = 2.0

[sampling]
realizations = 4

[datasets]
left = {}
right = {}

[methods.A]
estimator = "KernelKMeans"
grid = { n_init = [1, 2] }

[methods.B]
estimator = "KernelKMeans"

[methods.C]
estimator = "KernelKMeans"
realizations = 2
"""

CURVES = """
title = "Curves"
paper = "mvc-jmlr-2013"
figure = "4"
view = "curves"
metric = "clustering_error"
quantities = ["value", "seconds", "cuts"]

[sampling]
realizations = 2
sizes = [40, 20, 80]

[datasets]
left = {}
right = {}

[measures]
cuts = "result_.n_cuts"

[methods.A]
estimator = "KernelKMeans"

[methods.B]
estimator = "KernelKMeans"
"""

CORRELATION = """
title = "MSP and accuracy"
paper = "mspc-aaai-2015"
figure = "2"
view = "correlation"
metric = "clustering_error"
tolerance = 10.0

[sampling]
realizations = 2
whole_sets = true

[datasets]
a = {}
b = {}
c = {}
d = {}

[measures]
msp = "msp_"

[methods.MSPC]
estimator = "MSPC"
grid = { reg = [0.1, 1.0] }

[groups]
"all of them" = ["a", "b", "c", "d"]
"two of them" = ["a", "b"]

[printed]
"all of them" = 0.7
"""


def results_of(experiment, value_of, seconds_of=lambda _: 1.0, measures_of=lambda _: {}):
    """Return results of all cells; a text instead of a value is the error of a failed cell."""
    results = []
    for cell in experiment.cells():
        value = 0.25 if cell.column == "reference" else value_of(cell)
        status = value if isinstance(value, str) else "converged"
        value = None if isinstance(value, str) else value
        taken = {} if value is None or cell.column == "reference" else measures_of(cell)
        results.append(
            CellResult(cell, value, seconds_of(cell), status, {"volmar": "1", "numpy": "2"}, taken)
        )
    return results


def line_of(experiment, results, dataset="left", method="A"):
    (line,) = [
        line
        for line in make_lines(Results(experiment, results))
        if (line.dataset, line.method) == (dataset, method)
    ]
    return line


def msp_results(experiment, accuracies, msps):
    """Return results with these accuracies and separation probabilities (percent) by data set."""
    return results_of(
        experiment,
        # The second setting is the best one, and its MSP is the one that counts.
        lambda cell: (
            (100 - accuracies[cell.dataset]) / 100 + 0.1 * (cell.parameters.get("reg") == 0.1)
        ),
        measures_of=lambda cell: {
            "msp": msps[cell.dataset] / 100 + (cell.seed - 1.5) * 0.01
            if cell.parameters.get("reg") != 0.1
            else 0.9
        },
    )


def curve_results(experiment, value_of):
    return results_of(
        experiment,
        value_of,
        lambda cell: cell.seed * (cell.x or 1) / 100,
        lambda cell: {"cuts": cell.seed + (cell.x or 0)},
    )
