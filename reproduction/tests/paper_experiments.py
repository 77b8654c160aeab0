"""Small experiments shared by several test files."""

import volmar
from reproduction import CellResult

SMALL = """
title = "A small table"
paper = "mvc-jmlr-2013"
table = "2"
metric = "clustering_error"

[sampling]
realizations = 3

[datasets]
digits-1v7 = { load = { n_samples = 60 } }

[similarities.default]
affinity = "gaussian"
sigma = ["mean", "mean/2"]

[methods.KM]
estimator = "KernelKMeans"
matrix = "kernel"
fixed = { init = "random", n_init = 1 }
"""

ON_ROWS = """
title = "A grid on rows"
paper = "mspc-aaai-2015"
table = "2"
metric = "clustering_error"

[sampling]
realizations = 2
whole_sets = true

[datasets]
digits-1v7 = { load = { scale = "unit" } }

[methods.MSPC-MPM]
estimator = "MSPC"
fixed = { solver = "mpm", mode = "paper", n_init = 1 }
grid = { reg = [0.1, 1.0], max_iter = [50, 100] }
default = { solver = "mpm" }

[methods.MSPC-EIG]
estimator = "MSPC"
fixed = { solver = "eig", mode = "paper" }
default = { solver = "eig" }
"""


SIZES = """
title = "Sizes, and similarities by method"
paper = "mvc-jmlr-2013"
table = "3"
metric = "clustering_error"

[sampling]
realizations = 2
sizes = [40, 60]

[datasets]
digits-1v7 = { load = { scale = "unit" } }
digits-3v8 = { load = { scale = "unit" }, similarity = "wide" }

[similarities.default]
affinity = "gaussian"
sigma = ["mean", "mean/2", "mean/4"]

[similarities.cosine]
affinity = "cosine_knn"
n_neighbors = [3, 5]

[similarities.wide]
affinity = "gaussian"
sigma = "4*mean"

[methods.KM]
estimator = "KernelKMeans"
matrix = "kernel"

[methods.NSC]
estimator = "NormalizedSpectralClustering"
matrix = "affinity"
similarity = "cosine"
"""

STRETCHED = """
title = "One feature multiplied"
paper = "mspc-aaai-2015"
figure = "1"
view = "curves"
metric = "clustering_error"

[sampling]
realizations = 3
stretches = [1, 4, 16]

[datasets]
digits-1v7 = {}

[methods.KM]
estimator = "sklearn.cluster.KMeans"
fixed = { n_clusters = 2, n_init = 1 }
default = { n_clusters = 2 }
"""

PARAMETER = """
title = "Against a parameter"
paper = "skmmc-nnw"
figure = "4"
view = "curves"
metric = "clustering_error"
columns = ["hindsight"]

[sampling]
realizations = 2

[axis]
parameter = "max_iter"
values = [1, 2, 5, 10, 20]
label = "iterations"
log = true

[datasets]
digits-1v7 = { load = { n_samples = 60 } }

[methods.KM]
estimator = "sklearn.cluster.KMeans"
fixed = { n_clusters = 2 }
grid = { n_init = [1, 2] }
"""

# Estimators that a worker can import: a slow one, and one that ends its process.
ESTIMATORS = """
import os
import time


class Slow:
    def __init__(self, setting=0, random_state=None):
        self.setting, self.random_state = setting, random_state

    def fit(self, X):
        time.sleep(float(os.environ.get("SLOW_SECONDS", "0")))
        self.labels_ = (X[:, 20] > X[:, 20].mean()).astype(int)
        return self


class Dying(Slow):
    def fit(self, X):
        if self.random_state == 2:
            os._exit(1)
        return super().fit(X)
"""

PATIENT = """
title = "Cells that take their time"
paper = "mvc-jmlr-2013"
table = "2"
metric = "clustering_error"

[sampling]
realizations = 2

[datasets]
digits-1v7 = { load = { n_samples = 60 } }
digits-3v8 = { load = { n_samples = 60 } }

[methods.A]
estimator = "slow_estimators.Slow"
grid = { setting = [1, 2, 3, 4] }

[methods.B]
estimator = "slow_estimators.Slow"
fixed = { setting = 5 }
"""


FIGURE = """
title = "A small figure"
paper = "mvc-jmlr-2013"
figure = "6"
view = "measures"
columns = ["hindsight"]
metric = "clustering_error"

[sampling]
realizations = 3
sizes = [30, 40]

[datasets]
two-gaussians = {}
two-circles = {}

[similarities.default]
affinity = "gaussian"
sigma = "mean/10"
self_loops = true

[methods.MVC-SL]
estimator = "SoftLabelMVC"
matrix = "affinity"
fixed = { mode = "paper" }

[measures]
iterations = "n_iter_"
v2 = "result_.second_vector"
"h*" = "result_.h"

[[panels]]
axis = "iterations"
measures = ["iterations"]

[[panels]]
axis = "error (%)"
measures = ["v2", "h*"]
percent = true
"""


def own(cells):
    """Return the cells without the reference."""
    return [cell for cell in cells if cell.column != "reference"]


def made_up(cell, value, seconds=1.0, status="converged"):
    return CellResult(cell, value, seconds, status, {"volmar": volmar.__version__})
