"""Public functions on data: metrics, evidence, diagnostics and generators of data."""

import importlib
import inspect
from dataclasses import replace

import numpy as np

from fuzz.contract import Case, require
from fuzz.fitted import check_numbers
from fuzz.parameters import BAD, EXTREME
from fuzz.rows import WEIGHTS, WRONG_WEIGHTS, draw_matrix, draw_size
from fuzz.script import Script

LABELS = (
    "rng.integers(2, size=n)",
    "rng.integers(3, size=n)",
    "rng.integers(3, size=n)",
    "np.arange(n) % 2",
    "(np.arange(n) > n // 3).astype(int)",
    "rng.integers(-1, 3, size=n)",
    "np.array(['a', 'b', 'c'])[rng.integers(3, size=n)]",
    "rng.integers(2, size=n).astype(bool)",
    "rng.integers(3, size=n).tolist()",
    "rng.integers(3, size=n).astype(np.int8)",
    "rng.integers(3, size=n).astype(np.uint64)",
    "rng.integers(3, size=n).astype(float)",
    "np.array(['x', 'y'], dtype=object)[rng.integers(2, size=n)]",
    "np.repeat(rng.integers(3, size=n), 2)[::2]",
    "np.arange(n)",
    "np.zeros(n, int)",
    "np.full(n, -1)",
)
WRONG_LABELS = (
    "np.arange(n + 1) % 2",
    "np.full(n, np.nan)",
    "np.r_[np.inf, np.zeros(n - 1)]",
    "rng.normal(size=n)",
    "np.array([None, 1], dtype=object)[np.arange(n) % 2]",
    "np.array([1, 'b'], dtype=object)[np.arange(n) % 2]",
    "np.array([(), []], dtype=object)[np.arange(n) % 2]",
    "np.array([np.nan, 'b'], dtype=object)[np.arange(n) % 2]",
    "np.arange(2 * n).reshape(n, 2)",
    "np.arange(n) * 1j",
    "np.arange(n).astype('M8[D]')",
    "np.array(['NaT'] * n, dtype='M8[D]')",
    "2**62 * np.ones(n, np.uint64)",
    "[]",
    "0",
    "None",
    "'labels'",
    "{0: 1}",
    "object()",
    "[[1], [1, 2]]",
)
MATRICES = (
    "(lambda A: A @ A.T + np.eye(n))(rng.normal(size=(n, n)))",
    "np.eye(n)",
    "np.diag(np.arange(n) + 1.0)",
    "np.ones((n, n))",
    "np.zeros((n, n))",
    "(lambda A: A + A.T)(rng.uniform(size=(n, n)))",
    "(lambda A: A + A.T)((rng.random((n, n)) < 0.2).astype(float))",
    "rng.normal(size=(n, n))",
    "rng.uniform(size=(n, n + 1))",
    "np.full((n, n), np.nan)",
    "1e300 * np.eye(n)",
    "1e-300 * np.eye(n)",
    "np.eye(n).astype(int)",
    "np.eye(n).tolist()",
    "__import__('scipy').sparse.eye_array(n, format='csr')",
    "__import__('scipy').sparse.coo_matrix(np.eye(n))",
    "rng.normal(size=n)",
    "None",
)
VECTORS = (
    "rng.normal(size=n)",
    "np.r_[rng.normal(size=n // 2), rng.normal(size=n - n // 2) + 9]",
    "rng.integers(4, size=n)",
    "np.zeros(n)",
    "1e300 * rng.normal(size=n)",
    "1e-300 * rng.normal(size=n)",
    "rng.standard_cauchy(size=n)",
    "rng.normal(size=n).astype(np.float32)",
    "rng.normal(size=n).tolist()",
    "np.full(n, np.nan)",
    "np.r_[np.inf, np.zeros(n)]",
    "rng.normal(size=(n, 2))",
    "np.array(['a'] * n)",
    "[]",
    "3.0",
    "None",
)
ESTIMATORS = (
    "None",
    "volmar.MSPC(2, random_state=0)",
    "volmar.KernelKMeans(2, gamma='scale', n_init=1, random_state=0)",
    "volmar.CPMMC(2, random_state=0)",
    "volmar.MSPC()",
    "volmar.MSPC",
    "'MSPC'",
    "3",
    "__import__('sklearn.cluster').cluster.KMeans(2, n_init=1, random_state=0)",
    "volmar.NormalizedCut(2, n_neighbors=3)",
)
FRACTIONS = ("0.05", "0.5", "0.001", "0", "1", "1.5", "-0.1", "1e-300")
COUNTS = ("1", "2", "3", "5", "np.int64(2)")
SEEDS = ("0", "0", "7", "np.random.RandomState(1)", "2**32 - 1", "-1", "'a'", "2**32")

#: Arguments by name, as options or as a kind with its own function.
ARGUMENTS = {
    "X": "rows",
    "labels": "labels",
    "labels_true": "labels",
    "labels_pred": "labels",
    "labels_or_model": "labels",
    "sample_weight": "weights",
    **dict.fromkeys(
        ("reg", "beta", "eta", "mu", "rho", "tol", "max_work", "separation"), "numbers"
    ),
    **dict.fromkeys(("W", "Q"), MATRICES),
    "h": VECTORS,
    **dict.fromkeys(("alpha", "share", "q", "delta", "factor"), FRACTIONS),
    **dict.fromkeys(("n_levels", "n_revealed"), COUNTS),
    **dict.fromkeys(("n_features", "centers"), COUNTS),
    "estimator": ESTIMATORS,
    "random_state": SEEDS,
    "seed": ("0", "3"),
    "cross_fit": ("True", "False"),
    "coef": (
        "rng.normal(size=p)",
        "rng.normal(size=(1, p))",
        "np.zeros(p)",
        "np.ones(p)",
        *VECTORS,
    ),
    "min_cluster_size": ("2", "5", "20", "0", "1"),
    "noise_label": ("-1", "'a'", "None"),
    "progress": ("None", "lambda done, total: None", "3"),
    "max_rows": ("1", "2", "20", "1000"),
    "feature_names": ("None", "[f'f{i}' for i in range(p)]", "['a', 'b']", "3"),
    "used": ("None", "[True] * p", "[False]"),
    "numbers": ("[2, 3]", "[2]", "range(3)", "[]"),
    "n_resamples": ("0", "1", "2"),
    "n_subsets": ("2", "5", "17"),
    "n_typical": ("0", "1", "3", "100"),
    "ids": ("None", "np.arange(n)", "['x']"),
    "revealed": ("np.arange(3)", "np.arange(n) < 3", "[]", "[10**9]"),
    "max_rows_for_si": ("0", "5", "20"),
    "n_samples": ("0", "1", "2", "51"),
    "noise": "numbers",
    "imbalance": ("1.0", "0.5", "[0.2, 0.8]", "0", "[1]", "[0.5, 0.6]"),
}
#: Public functions on data with the arguments that are drawn. Other public names are classes, and
#: steps of these functions that take the result of an earlier step.
FUNCTIONS = {
    "metrics.balanced_clustering_error": "labels_true labels_pred sample_weight",
    "metrics.clustering_error": "labels_true labels_pred sample_weight",
    "metrics.label_free_scores": "X labels seed",
    "metrics.matched_labels": "labels_true labels_pred",
    "metrics.msp_score": "X labels reg cross_fit random_state",
    "metrics.normalized_cut": "W labels",
    "metrics.normalized_margin": "X labels coef",
    "metrics.pair_f_measure": "labels_true labels_pred beta",
    "metrics.separation_score": "X labels reg cross_fit random_state",
    "evidence.label_test": ("X labels alpha min_cluster_size noise_label progress random_state"),
    "evidence.split_test": "X estimator alpha progress random_state",
    "diagnostics.column_profiles": "X labels used n_levels max_rows feature_names random_state",
    "diagnostics.compare_numbers": (
        "X estimator numbers max_rows n_resamples progress random_state"
    ),
    "diagnostics.describe_clusters": (
        "X labels_or_model estimator q n_subsets n_typical max_rows feature_names "
        "ids progress random_state"
    ),
    "diagnostics.error_bound": "Q reg eta h mu revealed labels n_revealed delta rho",
    "diagnostics.stability": "X estimator n_resamples share progress random_state",
    "diagnostics.stability_report": "Q tol max_rows_for_si max_work",
    "datasets.make_blobs": "n_samples n_features centers imbalance separation random_state",
    "datasets.make_two_circles": "n_samples noise factor random_state",
    "datasets.make_two_gaussians": "n_samples random_state",
    "datasets.make_two_moons": "n_samples noise random_state",
}
#: Values between 0 and 1.
SHARES = {
    *("metrics.balanced_clustering_error", "metrics.clustering_error", "metrics.pair_f_measure"),
    "metrics.msp_score",
}
#: Functions that need enough rows for halves and resamples.
NEED_ROWS = ("evidence.split_test", "evidence.label_test", "diagnostics.describe_clusters")


def draw_case(draw):
    """Return the call of a random function with random arguments."""
    name = draw.pick(*FUNCTIONS)
    kinds = {argument: ARGUMENTS[argument] for argument in FUNCTIONS[name].split()}
    room, _, function = name.partition(".")
    script = Script(draw)
    script.do(f"from volmar.{room} import {function}")
    size = draw_size(draw, 120 if name in NEED_ROWS else 40)
    hostility = draw.pick(0.2, 0.5, 1.0)
    if "rows" in kinds.values():
        draw_matrix(draw, script, size=size, hostility=hostility)
    else:
        script.do("n, p = {}, {}".format(*size))
    signature = inspect.signature(getattr(importlib.import_module(f"volmar.{room}"), function))
    given = []
    for argument, kind in kinds.items():
        is_optional = signature.parameters[argument].default is not inspect.Parameter.empty
        if argument != "random_state" and is_optional and not draw.chance(0.35):
            continue
        text = _draw_argument(draw, kind, hostility)
        if argument == "random_state" and text not in SEEDS:
            text = "0"
        if "rng." in text or kind in ("labels", "weights") or kind in (MATRICES, VECTORS):
            script.do(f"{argument} = {_safe(script, text)}")
            text = argument
        given.append(f"{argument}={text}")
    call = f"{function}({', '.join(given)})"

    def run():
        value = script.value(call)
        # Times are not part of the result.
        return replace(value, seconds=0.0) if hasattr(value, "seconds") else value

    inputs = tuple(script[one] for one in ("X", *kinds) if one in script)
    return Case(script.text(call), run, inputs, lambda value: _check(name, value))


def _draw_argument(draw, kind, hostility):
    if kind != "rows" and draw.chance(0.04 * hostility):
        return draw.pick(*BAD)
    if kind == "rows":
        return "X"
    if kind == "labels":
        return draw.pick(*(WRONG_LABELS if draw.chance(0.2 * hostility) else LABELS))
    if kind == "weights":
        return draw.pick(*(WRONG_WEIGHTS if draw.chance(0.3) else WEIGHTS), "None")
    if kind == "numbers":
        return draw.pick("1.0", "0.1", f"{draw.power(-3, 3):.3g}", "0", "-1", *EXTREME[:4])
    return draw.pick(*kind)


def _safe(script, text):
    """Return an expression that can be evaluated; without rows, some cannot."""
    try:
        script.value(text)
    except ValueError:
        return "None"
    return text


def _check(name, value):
    repr(value), str(value)
    check_numbers(name, value)
    for method in ("summary", "table", "to_frame", "names", "note"):
        if callable(getattr(value, method, None)):
            getattr(value, method)()
    if name in SHARES:
        require(np.ndim(value) == 0 and 0 <= value <= 1, f"{name} returned {value!r}, not a share")
